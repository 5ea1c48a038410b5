import json
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import yaml

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


@pytest.fixture
def rollouts(tmp_path):
    """A file with a driver that names its writers, and one that does not."""
    writers = [{"namespace": "acme", "serviceAccount": "gpu-plugin", "profile": "NodeLocal"}]
    file = tmp_path / "rollouts.yaml"
    file.write_text(yaml.safe_dump_all([_rollout("gpu.example", writers=writers), _rollout("held.example")]))
    return file


def _rollout(driver, **spec):
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": {"name": driver},
        "spec": {"stage": "General", **spec},
    }


def test_writers_are_exported_as_objects_that_kubectl_takes(run, rollouts):
    ran = run("policy", "export-vap", "--cluster", rollouts)
    assert (ran.code, ran.err) == (0, "")
    objects = list(yaml.safe_load_all(ran.out))
    assert [(each["kind"].removeprefix("ValidatingAdmission"), each["metadata"]["name"]) for each in objects] == [
        ("Policy", "allocguard-slices.gpu.example"),
        ("PolicyBinding", "allocguard-slices.gpu.example"),
        ("Policy", "allocguard-slices-of-others"),
        ("PolicyBinding", "allocguard-slices-of-others"),
    ]
    comment = ran.out[: ran.out.index("apiVersion")]
    assert all(line.startswith("# ") for line in comment.splitlines())
    assert "slices of gpu.example: policy slice-writers" in comment
    assert "Not in it: takeover (writer.takeoverProblems)" in comment
    told = " ".join(line.removeprefix("# ") for line in comment.splitlines())
    assert "writer.sliceProblems != []): needs nothing, as what it passes by breaks none of these rules." in told
    assert "write it into each policy" not in told
    as_json = run("policy", "export-vap", "--cluster", rollouts, "-o", "json")
    assert json.loads(as_json.out) == {"apiVersion": "v1", "kind": "List", "items": objects}
    assert "allocguard: Not in it: takeover" in as_json.err


def test_what_an_edited_policy_says_beyond_it_is_named(run, edited, rollouts):
    file = edited / "slice-writers.yaml"
    asked = "slice.changed || slice.lifetimeChanged || slice.deleted\n"
    more = (
        "  - {name: no-lab, expression: \"!slice.driver.startsWith('lab-')\"}\n"
        "  - {name: either, expression: 'slice.deleted ? false : slice.changed || writer.sliceProblems != []'}\n"
    )
    file.write_text(file.read_text().replace("action: Deny", "action: Warn").replace(asked, asked + more))
    with file.open("a") as policy:
        policy.write(
            "  exceptions:\n"
            "  - {name: old, expression: 'true', expires: '2020-01-31T00:00:00Z', ticket: OPS-1}\n"
            "  - {name: new, expression: 'true', expires: '2999-01-31T00:00:00Z', ticket: OPS-2}\n"
        )
    ran = run("policy", "export-vap", "--cluster", rollouts, "--policies", edited)
    assert ran.code == 0
    actions = [each["spec"].get("validationActions") for each in yaml.safe_load_all(ran.out)]
    assert actions == [None, ["Warn"]] * 2
    comment = " ".join(line.removeprefix("# ") for line in ran.out.splitlines() if line.startswith("#"))
    advice = "write it into each policy where you want it."
    assert f"Not in it: the match condition no-lab (!slice.driver.startsWith('lab-')): {advice}" in comment
    assert f"slice.changed || writer.sliceProblems != []): {advice}" in comment
    assert "Not in it: the exception new (OPS-2): it ends at 2999-01-31T00:00:00Z" in comment
    assert "OPS-1" not in comment


def test_without_named_writers_only_the_warning_is_exported_and_that_is_said(run, tmp_path):
    (tmp_path / "rollout.yaml").write_text(yaml.safe_dump(_rollout("held.example")))
    ran = run("policy", "export-vap", "--cluster", tmp_path)
    assert ran.code == 0
    assert "slices of no driver" in ran.out
    assert "No DriverRollout and no params name writers" in ran.out.replace("\n# ", " ")
    [_, binding] = yaml.safe_load_all(ran.out)
    assert binding["spec"] == {"policyName": "allocguard-slices-of-others", "validationActions": ["Warn"]}


def test_what_may_name_writers_and_cannot_be_read_is_not_passed_over(run, rollouts):
    """The output is for kubectl: of half of the drivers it would be none of their guard."""
    (rollouts.parent / "cut.yaml").write_text("{")
    ran = run("policy", "export-vap", "--cluster", rollouts.parent)
    assert (ran.code, ran.out) == (2, "")
    assert "cut.yaml:2:1: is no YAML" in ran.err
    assert "nothing is exported: what cannot be read may name writers" in ran.err


def test_policies_without_the_rule_have_nothing_to_export(run, edited, rollouts):
    (edited / "slice-writers.yaml").unlink()
    ran = run("policy", "export-vap", "--cluster", rollouts, "--policies", edited)
    assert ran.code == 2
    assert "policies: none of them with writer.sliceProblems, needs one; name it with --policies" in ran.err
