from pathlib import Path

import pytest
import yaml

from webhook.policy.compile import compile_files
from webhook.policy.reference import facts_markdown, renewed
from webhook.policy.suite import read_suites, run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "policies.md").read_text()


def examples() -> list[str]:
    return [block.partition("```")[0] for block in PAGE.split("```yaml\n")[1:]]


def test_the_page_is_current() -> None:
    assert renewed(PAGE) == PAGE, "run python tests/tools/make_policy_docs.py"


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="needs both marks"):
        renewed("# Policies")


def test_every_fact_is_on_the_page() -> None:
    assert "| `poolProblems` | list(Finding) |" in facts_markdown()
    assert "| `claim` | [Claim](#claim) |" in facts_markdown()


def test_the_first_policy_compiles_and_its_test_runs() -> None:
    policy = next(text for text in examples() if "kind: AdmissionPolicy" in text)
    test = next(text for text in examples() if "kind: PolicyTest" in text).replace(
        "    files: [../cluster.yaml]", "    files: []"
    )
    revision = compile_files({"maintenance.yaml": policy.encode()})
    suites, problems = read_suites({"t.yaml": test.encode()}, lambda file, name: b"")
    assert problems == []
    results = run(suites, revision)
    assert [(result.failures, [case.failures for case in result.cases]) for result in results] == [((), [(), ()])]


def test_the_typo_of_the_page_is_told_as_the_page_says() -> None:
    from webhook.policy.compile import PolicyErrors

    policy = next(text for text in examples() if "kind: AdmissionPolicy" in text)
    with pytest.raises(PolicyErrors) as caught:
        compile_files({"my-policies/maintenance.yaml": policy.replace("claim.allocating", "claim.alocating").encode()})
    assert str(caught.value) in PAGE


def test_validations_and_exceptions_of_the_page_compile(policy) -> None:
    head = policy(
        matchConstraints={
            "resourceRules": [
                {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*", "*/*"]}
            ]
        },
        params={"nodes": []},
    )
    spec = {**head["spec"]}
    for text in examples():
        part = yaml.safe_load(text)
        if set(part) <= {"validations", "exceptions"}:
            spec |= part
    revision = compile_files({"p.yaml": yaml.safe_dump({**head, "spec": spec}).encode()})
    assert len(revision.policies[0].validations) == 3
    assert len(revision.policies[0].exceptions) == 1


def test_the_condition_of_the_page_says_what_an_object_with_the_typo_gets() -> None:
    from webhook.store.policies import PolicyStore, shipped

    policy = yaml.safe_load(next(text for text in examples() if "kind: AdmissionPolicy" in text))
    policy["metadata"] |= {"uid": "u", "generation": 1}
    store = PolicyStore([shipped()])
    store.set_objects({"maintenance": policy})
    edited = yaml.safe_load(yaml.safe_dump(policy).replace("claim.allocating", "claim.alocating"))
    edited["metadata"]["generation"] = 2
    store.set_objects({"maintenance": edited})
    assert store.verdicts["maintenance"].message in PAGE
