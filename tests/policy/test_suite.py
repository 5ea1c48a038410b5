import pytest
import yaml

from webhook.policy.suite import read_suites, run

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p1", "namespace": "ns"}, "spec": {}}
RULE = {"name": "named", "expression": "object.metadata.name.startsWith('p')", "message": "has a bad name"}


def write(name="p1", **fields):
    obj = {**POD, "metadata": {"name": name, "namespace": "ns"}}
    return {"operation": "CREATE", "object": obj, **fields}


GOOD = {"name": "good", "review": write(), "expect": {"allowed": True, "findings": []}}
BAD = {"name": "bad", "review": write("x"), "expect": {"allowed": False, "findings": ["named"]}}


def suite(*cases, name="p", **spec):
    metadata = {"name": name}
    whole = {"cases": list(cases), **spec}
    return {"apiVersion": "allocguard.dev/v1alpha1", "kind": "PolicyTest", "metadata": metadata, "spec": whole}


def no_files(file: str, name: str) -> bytes:
    raise FileNotFoundError(2, "no such file", name)


@pytest.fixture
def results(policy, compiled):
    """The results of test documents, each read from a file of its own, against one policy."""

    def run_all(*suites, read=no_files, rule=RULE, **spec):
        files = {f"{i}.test.yaml": yaml.safe_dump(each, sort_keys=False).encode() for i, each in enumerate(suites)}
        found, problems = read_suites(files, read)
        assert not problems, [problem.text for problem in problems]
        return run(found, compiled(policy(validations=[rule], **spec)))

    return run_all


def failures(results):
    return [text for result in results for text in (*result.failures, *(f for c in result.cases for f in c.failures))]


def test_a_rule_with_a_case_that_passes_and_one_that_fails(results) -> None:
    found = results(suite(GOOD, BAD))
    assert [(r.policy, r.passed, [c.passed for c in r.cases]) for r in found] == [("p", True, [True, True])]
    assert found[0].cases[1].rules == ("named",)


@pytest.mark.parametrize(
    ("cases", "part"),
    [
        ([GOOD], "vacuous: no case makes the rule named fail"),
        ([BAD], "vacuous: no case lets the rule named pass"),
        ([GOOD, BAD, {**GOOD, "name": "c", "expect": {"findings": ["named"]}}], "expected named, which never fires"),
        ([GOOD, BAD, {**GOOD, "name": "c", "expect": {"allowed": False}}], "allowed, expected that it is not"),
        ([GOOD, BAD, {**BAD, "name": "c", "expect": {"allowed": True}}], "denied, expected that it is not"),
        ([GOOD, BAD, {**BAD, "name": "c", "expect": {"findings": []}}], "expected no findings"),
        ([GOOD, BAD, {**BAD, "name": "c", "expect": {"noFindings": ["named"]}}], "has named, which is not expected"),
        ([GOOD, BAD, {**BAD, "name": "c", "expect": {"message": "other"}}], "no message has 'other'"),
        ([GOOD, BAD, {**BAD, "name": "c", "expect": {"warnings": True}}], "not warned, expected otherwise"),
        ([GOOD, BAD, {**GOOD, "name": "c", "expect": {"matched": False}}], "the policy matches"),
        (
            [GOOD, BAD, {"name": "c", "review": write(subresource="status"), "expect": {"allowed": True}}],
            "the policy does not match (matchConstraints)",
        ),
    ],
)
def test_what_fails_a_suite(results, cases, part) -> None:
    found = failures(results(suite(*cases)))
    assert len(found) == 1
    assert part in found[0]


def test_an_evaluation_that_fails_fails_its_case_under_both_failure_policies(results) -> None:
    rule = {**RULE, "expression": "object.nope"}
    for failure_policy in ("Fail", "Ignore"):
        found = failures(results(suite(GOOD), rule=rule, failurePolicy=failure_policy))
        assert any("named could not be judged: 1:7: no such key: nope" in text for text in found)


def test_a_match_condition_that_fails_is_no_case_that_does_not_match(results) -> None:
    other = {**GOOD, "name": "other", "expect": {"matched": False}}
    conditions = [{"name": "c0", "expression": "object.spec.?nope.orValue('p') == 'p' || object.spec.nope.x"}]
    unmatched = {**other, "review": {**write(), "object": {**POD, "spec": {"nope": "q"}}}}
    found = failures(results(suite(GOOD, BAD, unmatched), matchConditions=conditions, failurePolicy="Ignore"))
    assert len(found) == 1
    assert found[0].startswith("c0 could not be judged: ")


def test_suites_of_one_policy_complete_each_other(results) -> None:
    assert all(result.passed for result in results(suite(GOOD), suite(BAD)))


def test_a_suite_of_no_policy_and_a_policy_of_no_suite_fail(results) -> None:
    found = results(suite(GOOD, BAD, name="pp"))
    assert failures(found) == ["is about the policy pp, which is not there; did you mean `p`?", "policy p has no test"]


def test_settings_of_a_case_win_over_those_of_the_suite(results) -> None:
    rule = {**RULE, "expression": "node.ready == params.ready"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    sick = {**node, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    bound = {"operation": "CREATE", "object": "bound"}
    found = results(
        suite(
            {"name": "a", "review": bound, "expect": {"findings": []}},
            {"name": "b", "review": bound, "expect": {"findings": ["named"]}, "cluster": {"objects": [sick]}},
            {
                "name": "c",
                "review": bound,
                "expect": {"findings": []},
                "cluster": {"objects": [sick]},
                "params": {"ready": False},
            },
            objects={"bound": {**POD, "spec": {"nodeName": "n1"}}, "node": node},
            cluster={"objects": ["node"]},
        ),
        rule=rule,
        params={"ready": True},
    )
    assert failures(found) == []


def test_params_of_a_case_that_say_nothing_of_writers_fail_it(results) -> None:
    rule = {**RULE, "expression": "writer.kind == 'Nobody' && object.metadata.name.startsWith('p')"}
    found = failures(results(suite(GOOD, {**BAD, "params": {"schedulers": "x"}}, BAD | {"name": "c"}), rule=rule))
    assert found == ["params.schedulers: has no list, needs a list of names"]
    # A policy that does not ask may call its params what it likes.
    assert not failures(results(suite(GOOD, {**BAD, "params": {"schedulers": "x"}})))


def test_the_clock_and_the_release_of_a_case(results) -> None:
    rule = {**RULE, "expression": "request.name == 'never'"}
    exception = {"name": "e", "expression": "true", "expires": "2027-01-01T00:00:00Z", "ticket": "T"}
    before = {"name": "a", "review": write(), "expect": {"allowed": True}}
    after = {"name": "b", "at": "2027-01-01T00:00:00Z", "review": write(), "expect": {"allowed": False}}
    passing = {"name": "c", "kubernetesVersion": 1.37, "review": write("never"), "expect": {"allowed": True}}
    assert failures(results(suite(before, after, passing), rule=rule, exceptions=[exception])) == []


def test_a_whole_review_and_files(results) -> None:
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "x",
        "namespace": "ns",
        "operation": "CREATE",
        "object": {**POD, "metadata": {"name": "x"}},
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    asked = []

    def read(file: str, name: str) -> bytes:
        asked.append((file, name))
        return b"apiVersion: v1\nkind: Node\nmetadata: {name: n}\n"

    whole = {"name": "whole", "review": review, "expect": {"findings": ["named"]}}
    found = results(suite(GOOD, whole, cluster={"files": ["cluster/nodes.yaml"]}), read=read)
    assert failures(found) == []
    assert set(asked) == {("0.test.yaml", "cluster/nodes.yaml")}


def test_a_review_by_its_text(results) -> None:
    """Its bytes are what a rule about how JSON is written goes by."""

    def sent(number: str) -> str:
        kind = (
            '"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"}'
        )
        data = f'"object":{{"status":{{"devices":[{{"data":{{"a":{number}}}}}]}}}}'
        head = '{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{'
        return f'{head}{kind},"operation":"CREATE",{data}}}}}'

    other = {"name": "other", "review": {"sent": sent("1.0")}, "expect": {"findings": ["blob-not-canonical"]}}
    same = {"name": "same", "review": {"sent": sent("1")}, "expect": {"findings": []}}
    rule = {"name": "form", "findings": "writer.blobProblems"}
    assert failures(results(suite(other, same), rule=rule)) == []


@pytest.mark.parametrize(
    ("document", "part"),
    [
        (suite(), "spec: has no cases"),
        (suite(7), "spec.cases[0]: has a number, needs a map"),
        (suite(GOOD, GOOD), "has the case 'good' twice"),
        (suite({**GOOD, "expct": {}}), "did you mean `expect`?"),
        (suite({**GOOD, "expect": {}}), "expects nothing"),
        (suite({**GOOD, "expect": {"allowed": "yes"}}), "needs true or false"),
        (suite({**GOOD, "expect": {"findings": "x"}}), "needs a list of strings"),
        (suite({**GOOD, "review": {"operation": "CREATE"}}), "has operation CREATE, needs an object"),
        (suite({**GOOD, "review": write(oldObject=POD)}), "needs no oldObject"),
        (suite({**GOOD, "review": write(operation="UPDATE")}), "needs an oldObject"),
        (suite({**GOOD, "review": write(operation="DELETE", oldObject=POD)}), "needs oldObject alone"),
        (suite({**GOOD, "review": write(object="nope")}), "has the object nope, needs a name from spec.objects"),
        (suite({**GOOD, "review": write(set={"spec..x": 1})}), "has the path spec..x"),
        (suite({**GOOD, "review": write(set={"metadata.name.x": 1})}), "leads nowhere at x"),
        (suite({**GOOD, "review": write(set=[])}), "needs field paths and values"),
        (suite({**GOOD, "review": {"sent": "{"}}), "review.sent: is no JSON"),
        (suite({**GOOD, "review": {"sent": "{}", "user": "x"}}), "user: is no field here, needs one of sent, endpoint"),
        (suite({**GOOD, "at": "yesterday"}), "has yesterday, needs a time"),
        (suite({**GOOD, "kubernetesVersion": "1.12"}), "1.36"),
        (suite({**GOOD, "featureGates": {"A": "yes"}}), "needs gate names with true or false"),
        (suite({**GOOD, "params": 7}), "needs names and values"),
        (suite(GOOD, objects={"a": 7}), "spec.objects: needs names and objects"),
        (suite(GOOD, cluster={"files": ["gone.yaml"]}), "has gone.yaml, which cannot be read: no such file"),
        ({**suite(GOOD), "spec": None}, "spec: has null, needs a map"),
        ({**suite(GOOD), "kind": "PolicyTst"}, "has 'PolicyTst', needs PolicyTest or AdmissionPolicy"),
    ],
)
def test_what_a_test_document_must_not_say(document, part) -> None:
    _, problems = read_suites({"t.yaml": yaml.safe_dump(document).encode()}, no_files)
    assert any(part in problem.text for problem in problems), [problem.text for problem in problems]
    assert all(problem.text.startswith("t.yaml:") for problem in problems)


def test_what_cannot_be_read_is_told_and_the_rest_still_runs() -> None:
    suites, problems = read_suites({"t.yaml": yaml.safe_dump(suite(GOOD)).encode() + b"---\n{"}, no_files)
    assert len(suites) == 1
    assert problems[0].file == "t.yaml"


def test_a_broken_file_of_a_cluster_is_told() -> None:
    document = suite(GOOD, cluster={"files": ["bad.yaml"]})
    _, problems = read_suites({"t.yaml": yaml.safe_dump(document).encode()}, lambda file, name: b"a: [")
    assert "has bad.yaml, whose line" in problems[0].text


ADD = {"op": "add", "path": "/spec/x", "value": "p1"}
MUTATING = {
    "endpoint": "mutate",
    "action": "Hold",
    "matchConstraints": {
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    },
    "mutations": [
        {
            "patchType": "JSONPatch",
            "expression": "object.metadata.name == 'p1' ? [{'op': 'add', 'path': '/spec/x', 'value': 'p1'}] : []",
        }
    ],
}
CHANGED = {"name": "p1", "review": write(endpoint="mutate"), "expect": {"patch": [ADD], "held": False}}
HELD = {"name": "x", "review": write("x", endpoint="mutate"), "expect": {"patch": [], "held": True, "warnings": True}}


def test_what_a_policy_changes_and_holds(results) -> None:
    assert failures(results(suite(CHANGED, HELD), **MUTATING)) == []


@pytest.mark.parametrize(
    ("cases", "part"),
    [
        ([{**CHANGED, "expect": {"patch": [{**ADD, "value": "p2"}]}}, HELD], "has the patch [{"),
        ([{**CHANGED, "expect": {"patch": []}}, HELD], "expected []"),
        ([CHANGED, {**HELD, "expect": {"patch": [ADD]}}], "has the patch [], expected [{"),
        ([CHANGED, {**HELD, "expect": {"held": False}}], "held, expected otherwise"),
        ([{**CHANGED, "expect": {"held": True}}, HELD], "not held, expected otherwise (no findings)"),
        ([HELD, {**HELD, "name": "p2", "review": write("p2", endpoint="mutate"), "expect": {"patch": []}}], "anything"),
        ([CHANGED, HELD, {**CHANGED, "name": "v", "review": write()}], "the policy does not match (matchConstraints)"),
    ],
)
def test_a_patch_or_a_hold_that_is_not_as_expected_fails(results, cases, part) -> None:
    found = failures(results(suite(*cases), **MUTATING))
    assert any(part in text for text in found), found


def test_mutations_that_always_change_something_are_not_shown_to_leave_anything(results) -> None:
    always = {
        **MUTATING,
        "mutations": [{**MUTATING["mutations"][0], "expression": "[{'op': 'test', 'path': '/kind', 'value': 'Pod'}]"}],
    }
    cases = ({**CHANGED, "expect": {"held": False}}, {**HELD, "expect": {"held": True}})
    assert failures(results(suite(*cases), **always)) == ["vacuous: no case makes the mutations change nothing"]
