import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

SHIPPED = Path(__file__).parents[2] / "policies"


@pytest.fixture
def edited(tmp_path):
    """The shipped policies, to be broken."""
    return Path(shutil.copytree(SHIPPED, tmp_path / "policies"))


def test_the_shipped_policies_are_clean(run):
    ran = run("policy", "lint", "-o", "json")
    value = json.loads(ran.out)
    assert ran.code == 0
    assert value["problems"] == []
    assert "claim-allocation" in [each["name"] for each in value["policies"]]
    assert value["revision"] in run("policy", "lint").out


def test_the_shipped_cases_pass(run):
    ran = run("policy", "test", "-o", "json")
    value = json.loads(ran.out)
    assert [suite["policy"] for suite in value["suites"] if not suite["passed"]] == []
    assert ran.code == 0
    assert value["summary"]["failed"] == 0


def test_a_typo_is_named_with_its_place(run, edited):
    file = edited / "claim-allocation.yaml"
    file.write_text(file.read_text().replace("claim.fitProblems", "claim.fitProblem"))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "fitProblem" in text)
    ran = run("policy", "lint", edited)
    assert ran.code == 1
    assert f"{file}:{line}:" in ran.out
    assert "fitProblems" in ran.out
    root = ElementTree.fromstring(run("policy", "lint", edited, "-o", "junit").out)
    assert [case.attrib["name"] for case in root.iter("testcase") if case.find("failure") is not None] == [str(file)]


@pytest.mark.parametrize(("year", "told"), [("2020", True), ("2999", False)])
def test_an_expired_exception_is_told_and_nothing_refused(run, edited, year, told):
    with (edited / "pod-claims.yaml").open("a") as policy:
        policy.write(
            f"  exceptions:\n  - {{name: old, expression: 'true', expires: '{year}-01-31T00:00:00Z', ticket: OPS-1}}\n"
        )
    ran = run("policy", "lint", edited)
    assert ran.code == 0
    assert ("policy pod-claims: exception old (OPS-1) expired on 2020-01-31" in ran.err) is told


def test_a_file_that_cannot_be_read_is_exit_code_2(run, edited):
    (edited / "broken.yaml").write_text("a: [")
    ran = run("policy", "lint", edited)
    assert ran.code == 2
    assert f"allocguard: {edited}/broken.yaml:2:1: " in ran.err


def test_a_folder_without_policies_is_no_clean_set(run, tmp_path):
    (tmp_path / "p.yaml").write_text((SHIPPED / "slice-mappings.test.yaml").read_text())
    assert run("policy", "lint", tmp_path).code == 2


def test_a_weakened_policy_fails_its_cases(run, edited):
    file = edited / "slice-mappings.yaml"
    file.write_text(file.read_text().replace("action: Deny", "action: Audit"))
    ran = run("policy", "test", edited / "slice-mappings.yaml", edited / "slice-mappings.test.yaml")
    assert ran.code == 1
    assert "FAILED slice-mappings" in ran.out
    assert f"{edited}/slice-mappings.test.yaml:" in ran.out
    root = ElementTree.fromstring(run("policy", "test", file, edited / "slice-mappings.test.yaml", "-o", "junit").out)
    assert any(case.find("failure") is not None for case in root.iter("testcase"))


def test_a_policy_without_a_case_fails(run, edited):
    (edited / "slice-mappings.test.yaml").unlink()
    ran = run("policy", "test", edited / "slice-mappings.yaml")
    assert ran.code == 1
    assert "has no test" in ran.out


def test_cases_run_against_the_policies_that_are_named(run):
    ran = run("policy", "test", SHIPPED / "slice-mappings.test.yaml", "--policies", SHIPPED / "slice-mappings.yaml")
    assert ran.code == 0
    assert ran.out.startswith("ok     slice-mappings")


def test_a_test_file_that_is_named_asks_about_its_policy_alone(run, edited):
    file = SHIPPED / "slice-gate.test.yaml"
    for chosen in ([], ["--policies", edited]):
        ran = run("policy", "test", file, *chosen)
        assert (ran.code, ran.out.count("\n")) == (0, 2)
    (edited / "slice-mappings.test.yaml").unlink()
    assert "slice-mappings has no test" in run("policy", "test", edited).out
    assert "slice-mappings has no test" in run("policy", "test", "--policies", edited).out


def test_a_broken_policy_cannot_be_tested(run, edited):
    file = edited / "claim-allocation.yaml"
    file.write_text(file.read_text().replace("claim.fitProblems", "claim.fitProblem"))
    ran = run("policy", "test", edited)
    assert ran.code == 2
    assert "fitProblem" in ran.err
