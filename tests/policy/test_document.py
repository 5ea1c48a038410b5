import pytest

PASS = [{"name": "r", "expression": "true"}]
PATCH = {"patchType": "JSONPatch", "expression": "[]"}
MUTATING = {"endpoint": "mutate", "action": "Warn", "mutations": [PATCH]}


def constraints(group, *resources, operations=("CREATE",)):
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": list(operations), "resources": list(resources)}
    return {"resourceRules": [rule]}


NEW_PODS = constraints("", "pods")


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
        "params, variables, validations, mutations, auditAnnotations, action, failurePolicy, exceptions; did you mean "
        "`matchConstraints`?",
        "p.yaml:6:3: spec.action: has Denied, needs Deny or Warn or Audit or Hold; did you mean `Deny`?",
        "p.yaml:7:3: spec.failurePolicy: has Open, needs Fail or Ignore",
        "p.yaml:9:5: spec.validations[0]: has no expression and no findings, needs one of the two",
        "p.yaml:10:5: spec.validations[0].expresion: is no field here, needs one of name, expression, findings, "
        "message, messageExpression, reason; did you mean `expression`?",
    ]


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ({"action": None}, "spec: has no action, needs one"),
        ({"action": "Hold"}, "spec.action: has Hold at the validate endpoint, needs the mutate endpoint"),
        ({"action": "Hold", "endpoint": "mutate"}, "needs resourceRules that name CREATE of pods and nothing else"),
        (
            {**MUTATING, "action": "Hold", "validations": [], "matchConstraints": NEW_PODS},
            "has Hold, needs validations that say what makes a pod wait",
        ),
        ({**MUTATING, "endpoint": None}, "spec.mutations: has mutations at the validate endpoint"),
        ({**MUTATING, "endpoint": "check"}, "spec.mutations: has mutations at the check endpoint"),
        ({"mutations": [{"patchType": "ApplyConfiguration", "expression": "[]"}]}, "needs JSONPatch"),
        ({"mutations": [{"expression": "[]"}]}, "spec.mutations[0]: has no patchType"),
        ({"mutations": [{"patchType": "JSONPatch"}]}, "spec.mutations[0]: has no expression"),
        ({"mutations": [{**PATCH, "name": "x"}]}, "spec.mutations[0].name: is no field here"),
        ({"mutations": [{**PATCH, "expression": "'x'"}]}, "has type string, needs list(map(string, dyn))"),
        ({"canary": {"percent": 10}}, "spec.canary: is not available yet"),
        ({"validationActions": ["Deny"]}, "write one action: Deny, Warn, Audit or Hold"),
        ({"paramKind": {}}, "write the values themselves under params"),
        ({"endpoint": "mutating"}, "needs validate or mutate or check"),
        ({"endpoint": "mutate"}, "has Deny, needs Warn, Audit or Hold at the mutate endpoint"),
        ({"params": 7}, "spec.params: is no map"),
        ({"validations": None}, "has no validations, no mutations and no auditAnnotations"),
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
    found = problems(policy(validations=[{"name": "r", "expression": "nope"}], canary={}))
    assert len(found) == 2


@pytest.mark.parametrize(
    ("group", "resource"),
    [
        ("resource.k8s.io", "resourceclaims"),
        ("resource.k8s.io", "resourceclaims/status"),
        ("resource.k8s.io", "resourceclaims/*"),
        ("*", "*"),
        ("resource.k8s.io", "*/*"),
    ],
)
def test_a_claim_is_never_patched(policy, problems, group, resource) -> None:
    found = problems(policy(**MUTATING, matchConstraints=constraints(group, resource, operations=("*",))))
    assert any("spec.mutations: has mutations of resourceclaims, needs other resources" in text for text in found)


@pytest.mark.parametrize(
    ("group", "resource"), [("resource.k8s.io", "resourceslices"), ("", "*"), ("apps", "resourceclaims")]
)
def test_mutations_of_other_resources_and_without_validations(policy, compiled, group, resource) -> None:
    revision = compiled(policy(**MUTATING, matchConstraints=constraints(group, resource)))
    assert revision.policies[0].policy.mutations[0].expression.source == "[]"


def test_a_policy_that_holds_new_pods(policy, compiled) -> None:
    revision = compiled(policy(endpoint="mutate", action="Hold", validations=PASS, matchConstraints=NEW_PODS))
    assert revision.policies[0].policy.action == "Hold"


@pytest.mark.parametrize(
    "constrained",
    [
        constraints("", "pods", "nodes"),
        constraints("", "*"),
        constraints("", "pods/status", operations=("UPDATE",)),
        constraints("", "pods", operations=("CREATE", "UPDATE")),
        constraints("", "pods", operations=("*",)),
    ],
)
def test_only_a_new_pod_can_be_held(policy, problems, constrained) -> None:
    found = problems(policy(endpoint="mutate", action="Hold", validations=PASS, matchConstraints=constrained))
    assert any("only a new pod takes a gate" in text for text in found)


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
