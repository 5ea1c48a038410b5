import pytest

PASS = [{"name": "r", "expression": "true"}]


def test_every_problem_of_a_file_is_told_at_its_place(problems) -> None:
    text = """\
apiVersion: allocguard.dev/v1
kind: AdmissionPolicy
metadata: {name: P_1}
spec:
  matchConstraint: {}
  action: Denied
  failurePolicy: Open
  validations:
  - name: r
    expresion: "true"
"""
    assert problems(text) == [
        "p.yaml:1:1: apiVersion: has 'allocguard.dev/v1', needs allocguard.dev/v1alpha1",
        "p.yaml:3:12: metadata.name: has the name P_1 that has upper case, needs lower case letters, digits, '-' and "
        "'.', a letter or digit at both ends of every part, at most 253 characters",
        "p.yaml:4:1: spec: has no matchConstraints, needs resourceRules that say which writes it judges",
        "p.yaml:5:3: spec.matchConstraint: is no field here, needs one of endpoint, matchConstraints, matchConditions, "
        "params, variables, validations, auditAnnotations, action, failurePolicy, exceptions; did you mean "
        "`matchConstraints`?",
        "p.yaml:6:3: spec.action: has Denied, needs Deny or Warn or Audit; did you mean `Deny`?",
        "p.yaml:7:3: spec.failurePolicy: has Open, needs Fail or Ignore",
        "p.yaml:9:5: spec.validations[0]: has no expression and no findings, needs one of the two",
        "p.yaml:10:5: spec.validations[0].expresion: is no field here, needs one of name, expression, findings, "
        "message, messageExpression, reason; did you mean `expression`?",
    ]


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ({"action": None}, "spec: has no action, needs one"),
        ({"action": "Hold"}, "spec.action: has Hold, which is not available yet"),
        ({"mutations": []}, "spec.mutations: is not available yet"),
        ({"canary": {"percent": 10}}, "spec.canary: is not available yet"),
        ({"validationActions": ["Deny"]}, "write one action: Deny, Warn or Audit"),
        ({"paramKind": {}}, "write the values themselves under params"),
        ({"endpoint": "mutating"}, "needs validate or mutate or check"),
        ({"endpoint": "mutate"}, "has Deny, needs Warn or Audit at the mutate endpoint"),
        ({"params": 7}, "spec.params: is no map"),
        ({"validations": None}, "has no validations and no auditAnnotations"),
        ({"validations": {}}, "spec.validations: has a map, needs a list"),
        ({"validations": [7]}, "spec.validations[0]: has a number, needs a map"),
        ({"validations": PASS * 2}, "has r a second time"),
        ({"validations": [{"name": "R!", "expression": "true"}]}, "has the name R! that has upper case"),
        ({"validations": [{"name": "r", "expression": 7}]}, "validations[0].expression: has a number, needs a string"),
        ({"validations": [{"name": "r", "expression": "true", "findings": "[]"}]}, "split it in two validations"),
        ({"validations": [{"name": "r", "findings": "[]", "message": "m"}]}, "every finding brings its own"),
        ({"validations": [{"name": "r", "expression": "true", "message": "a\nb"}]}, "has line breaks"),
        ({"validations": [{"name": "r", "expression": "true", "reason": "Invalid"}]}, "needs Forbidden or nothing"),
        ({"variables": [{"name": "in", "expression": "1"}]}, "no word of CEL"),
        ({"variables": [{"name": "a-b", "expression": "1"}]}, "has the name a-b, needs letters"),
        ({"matchConditions": [{"name": "a b", "expression": "true"}]}, "has the name a b"),
        ({"auditAnnotations": [{"key": "a/b", "valueExpression": "''"}]}, "has the key a/b"),
        ({"auditAnnotations": [{"key": "k" * 62, "valueExpression": "''"}]}, "at most 63 long"),
        ({"exceptions": [{"name": "e", "expression": "true", "expires": "2027-01-01", "ticket": "T"}]}, "and offset"),
        ({"exceptions": [{"name": "e", "expression": "true", "ticket": "T"}]}, "has no expires"),
        ({"exceptions": [{"name": "e", "expression": "true", "expires": "2027-01-01T00:00:00Z"}]}, "has no ticket"),
    ],
)
def test_what_a_policy_must_not_say(policy, problems, spec, part) -> None:
    found = problems(policy(**{"validations": PASS, **spec}))
    assert any(part in text for text in found), found


def test_a_part_that_is_not_built_is_told_beside_other_problems(policy, problems) -> None:
    found = problems(policy(validations=[{"name": "r", "expression": "nope"}], canary={}, action="Hold"))
    assert len(found) == 3


@pytest.mark.parametrize(
    "spec", [None, 7, [], "x", {"matchConstraints": 7}, {"matchConstraints": {"resourceRules": 7}, "validations": [{}]}]
)
def test_a_document_of_wrong_types_is_told_and_not_a_traceback(problems, spec) -> None:
    document = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": 7, "spec": spec}
    assert problems(document)


def test_content_alone_names_a_revision(policy, compiled) -> None:
    one, two = policy("a", validations=PASS), policy("b", validations=PASS)
    assert compiled(one, two).hash == compiled(two, {**one, "metadata": {"name": "a", "labels": {"x": "y"}}}).hash
    assert compiled(one).hash != compiled(policy("a", validations=PASS, action="Warn")).hash
    assert len(compiled(one).hash) == 16
