import contextlib
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.policy.compile import PolicyErrors, compile_files

PASS = [{"name": "r", "expression": "true"}]


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("request.nam == 'x'", "has no field `nam` in Request; did you mean `name`?"),
        ("pod.specProblem == []", "did you mean `specProblems`?"),
        ("reqest.name == 'x'", "has the unknown name `reqest`; did you mean `request`?"),
        ("1 +", "spec.validations[0].expression"),
        ("request.name", "has type string, needs bool"),
        ("role.problems == []", "reads role, but matchConstraints name none of clusterroles, roles"),
        ("slice.mapped", "reads slice, but matchConstraints name none of resourceslices"),
        ("claim.mapped", "reads claim, but matchConstraints name none of resourceclaims"),
        ("variables.x", "has the unknown name `variables`"),
        ("x" * 30000, "needs at most"),
        ("(" * 200 + ")" * 200, "nested"),
    ],
)
def test_a_bad_expression_is_told_at_its_place(policy, problems, expression, part) -> None:
    found = problems(policy(validations=[{"name": "r", "expression": expression}]))
    assert any(part in text for text in found), found
    assert all(text.startswith("p.yaml:") for text in found)


def test_findings_must_be_findings(policy, problems, compiled) -> None:
    assert "needs list(Finding)" in problems(policy(validations=[{"name": "r", "findings": "['x']"}]))[0]
    assert compiled(policy(validations=[{"name": "r", "findings": "pod.specProblems + []"}]))


@pytest.mark.parametrize(
    ("expression", "found"),
    [("1", "has type int, needs string, or null for no annotation"), ("[request.name]", "has type list(string)")],
)
def test_an_annotation_is_a_string_or_nothing(policy, problems, expression, found) -> None:
    annotated = policy(validations=PASS, auditAnnotations=[{"key": "k", "valueExpression": expression}])
    assert found in problems(annotated)[0]


@pytest.mark.parametrize("expression", ["'a'", "null", "dyn(1)", "request.name == '' ? dyn(null) : request.name"])
def test_an_annotation_whose_type_may_be_right_compiles(policy, compiled, expression) -> None:
    assert compiled(policy(validations=PASS, auditAnnotations=[{"key": "k", "valueExpression": expression}]))


def test_all_problems_of_all_files_are_told_in_order() -> None:
    head = "apiVersion: allocguard.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: %s}\nspec:\n"
    body = (
        "  matchConstraints:\n    resourceRules:\n"
        "    - {apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}\n"
        "  action: Deny\n"
        "  validations:\n"
        "  - name: a\n    expression: >-\n      true &&\n      nope\n"
        "  - {name: b, expression: 'request.nam == \"\"'}\n"
    )
    files = {
        "b.yaml": (head % "two" + body).encode(),
        "a.yaml": (head % "one" + body).encode() + b"---\nkind: [\n",
        "c.yaml": b"apiVersion: v1\nkind: ConfigMap\n",
    }
    with pytest.raises(PolicyErrors) as caught:
        compile_files(files)
    places = [(p.file, p.line, p.column) for p in caught.value.problems]
    assert places[:2] == [("a.yaml", 13, 7), ("a.yaml", 14, 36)]
    assert places[-3:] == [("b.yaml", 13, 7), ("b.yaml", 14, 36), ("c.yaml", 2, 1)]
    assert [p.file for p in caught.value.problems].count("a.yaml") == 3


def test_one_name_for_two_policies_is_refused(policy) -> None:
    one = yaml.safe_dump(policy(validations=PASS)).encode()
    with pytest.raises(PolicyErrors, match=r"b\.yaml:4:3: .*a second time, first in a\.yaml"):
        compile_files({"a.yaml": one, "b.yaml": one})


def test_tests_beside_policies_are_passed_over(policy, compiled) -> None:
    test = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "PolicyTest", "metadata": {"name": "t"}, "spec": {}}
    assert len(compiled(policy(validations=PASS), test).policies) == 1


def test_variables_are_typed_and_see_those_before_them(policy, problems, compiled) -> None:
    good = [{"name": "a", "expression": "1"}, {"name": "b", "expression": "variables.a + 1"}]
    assert compiled(policy(variables=good, validations=[{"name": "r", "expression": "variables.b == 2"}]))
    late = [{"name": "b", "expression": "variables.a + 1"}, {"name": "a", "expression": "1"}]
    assert any("`variables`" in text for text in problems(policy(variables=late, validations=PASS)))
    wrong = problems(policy(variables=good, validations=[{"name": "r", "expression": "variables.b == 'x'"}]))
    assert "has `==` of (int, string)" in wrong[0]


def test_an_error_in_a_variable_is_told_once(policy, problems) -> None:
    variables = [{"name": "a", "expression": "nope"}]
    found = problems(policy(variables=variables, validations=[{"name": "r", "expression": "variables.a.b == 2"}]))
    assert len(found) == 1


def test_an_empty_set_is_a_revision_of_no_policy() -> None:
    assert compile_files({}).policies == ()


FIELDS = ["endpoint", "matchConstraints", "matchConditions", "params", "variables", "validations", "auditAnnotations"]
FIELDS += ["action", "failurePolicy", "exceptions", "resourceRules", "excludeResourceRules", "namespaceSelector"]
FIELDS += ["objectSelector", "matchLabels", "matchExpressions", "apiGroups", "operations", "resources", "name", "key"]
FIELDS += [
    "expression",
    "findings",
    "message",
    "messageExpression",
    "expires",
    "ticket",
    "scope",
    "mutations",
    "canary",
]
WORDS = ["", "x", "Deny", "Hold", "*", "true", "pod.specProblems", "1 +", "object.x", "a/b/c", "\ud800", "v1", "pods"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2**65) | st.floats(allow_nan=False) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=10,
)


@settings(max_examples=60)
@given(spec=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=8), name=VALUES)
def test_no_document_breaks_the_compiler(spec, name) -> None:
    document = {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }
    for data in (json.dumps(document).encode(), yaml.safe_dump(document, allow_unicode=False).encode()):
        with contextlib.suppress(PolicyErrors):
            compile_files({"p.yaml": data})


def test_a_thousand_rules_compile() -> None:
    rules = [{"name": f"r{i}", "expression": f"request.name != 'x{i}'"} for i in range(1000)]
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "action": "Audit", "validations": rules}
    document = {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": spec,
    }
    assert len(compile_files({"p.yaml": json.dumps(document).encode()}).policies[0].validations) == 1000


def test_a_variable_may_be_nested_deeper_than_the_checker_knows_types(policy, compiled) -> None:
    nested = [{"name": f"v{i}", "expression": f"[variables.v{i - 1}]" if i else "[1]"} for i in range(20)]
    compiled(policy(variables=nested, validations=[{"name": "r", "expression": "variables.v19 == variables.v19"}]))
