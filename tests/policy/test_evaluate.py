from datetime import UTC, datetime, timedelta

import pytest

from webhook import cel
from webhook.policy.evaluate import FAILED

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"]}


def rules(evaluation):
    return [finding.rule for result in evaluation.policies for finding in result.findings]


def texts(evaluation):
    return [finding.text(result.policy) for result in evaluation.policies for finding in result.findings]


def validation(expression, name="r", **fields):
    return {"name": name, "expression": expression, **fields}


def test_a_false_expression_is_a_finding_with_the_rules_name_and_message(policy, compiled, judge) -> None:
    revision = compiled(policy(validations=[validation("object.spec.hostNetwork", message="no host network here")]))
    assert texts(judge(revision, None)) == [
        "p/evaluation-failed: r could not be judged: 1:12: no such key: hostNetwork"
    ]
    assert rules(judge(compiled(policy(validations=[validation("true")])))) == []
    false = compiled(policy(validations=[validation("request.name == 'x'", message="name it x")]))
    assert texts(judge(false)) == ["p/r: name it x"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"messageExpression": "'has ' + request.name"}, "has p1"),
        ({"messageExpression": "''", "message": "plain"}, "plain"),
        ({"messageExpression": "'a\\nb'", "message": "plain"}, "plain"),
        ({"messageExpression": "object.nothing", "message": "plain"}, "plain"),
        ({}, "failed expression: false"),
    ],
)
def test_messages_as_upstream(policy, compiled, judge, fields, message) -> None:
    assert texts(judge(compiled(policy(validations=[validation("false", **fields)])))) == [f"p/r: {message}"]


def test_findings_bring_their_own_rule(policy, compiled, judge, pod) -> None:
    revision = compiled(policy(validations=[{"name": "lint", "findings": "pod.specProblems"}]))
    claims = pod(resourceClaims=[{"name": "c"}])
    assert rules(judge(revision, claims)) == ["claim-source-missing"]
    doubled = compiled(policy(validations=[{"name": "x", "findings": "pod.specProblems + pod.specProblems"}]))
    assert rules(judge(doubled, claims)) == ["claim-source-missing"] * 2
    none = compiled(policy(validations=[{"name": "x", "findings": "pod.specProblems.filter(f, f.severity == 'info')"}]))
    assert rules(judge(none, claims)) == []


def test_a_list_of_something_else_fails_the_rule(policy, compiled, judge) -> None:
    revision = compiled(policy(validations=[{"name": "x", "findings": "dyn(object.metadata.name)"}]))
    assert rules(judge(revision)) == [FAILED]


@pytest.mark.parametrize(("failure_policy", "expected"), [("Fail", [FAILED, "s"]), ("Ignore", ["s"])])
def test_a_failing_rule_follows_the_failure_policy_and_the_others_go_on(
    policy, compiled, judge, failure_policy, expected
) -> None:
    validations = [validation("object.nope == 1"), validation("false", name="s")]
    result = judge(compiled(policy(validations=validations, failurePolicy=failure_policy))).policies[0]
    assert [finding.rule for finding in result.findings] == expected
    assert "no such key: nope" in result.rules[0].error


@pytest.mark.parametrize(
    ("conditions", "failure_policy", "expected"),
    [
        (["true"], "Fail", ["r"]),
        (["false"], "Fail", []),
        (["object.nope", "false"], "Fail", []),
        (["object.nope", "true"], "Fail", [FAILED]),
        (["object.nope", "true"], "Ignore", []),
    ],
)
def test_match_conditions_as_upstream(policy, compiled, judge, conditions, failure_policy, expected) -> None:
    named = [{"name": f"c{i}", "expression": text} for i, text in enumerate(conditions)]
    one = policy(matchConditions=named, validations=[validation("false")], failurePolicy=failure_policy)
    assert rules(judge(compiled(one))) == expected


def test_who_cannot_tell_whether_it_matches_says_so_under_ignore_too(policy, compiled, judge) -> None:
    conditions = [{"name": "c0", "expression": "object.nope"}, {"name": "c1", "expression": "true"}]
    one = policy(matchConditions=conditions, validations=[validation("false")], failurePolicy="Ignore")
    result = judge(compiled(one)).policies[0]
    assert (result.matched, result.findings) == (False, ())
    assert [(rule.name, rule.error) for rule in result.rules] == [("c0", "1:7: no such key: nope")]
    conditions[1]["expression"] = "false"
    assert judge(compiled(one)).policies[0].rules == ()


def test_variables_are_evaluated_once_and_only_when_read(policy, compiled, judge) -> None:
    variables = [
        {"name": "broken", "expression": "object.nope"},
        {"name": "twice", "expression": "request.name + request.name"},
    ]
    fine = policy(variables=variables, validations=[validation("variables.twice == 'p1p1'")])
    assert rules(judge(compiled(fine))) == []
    read = policy(variables=variables, validations=[validation("variables.broken", name=n) for n in ("a", "b")])
    assert rules(judge(compiled(read))) == [FAILED, FAILED]


def test_params_are_the_policys_own(policy, compiled, judge) -> None:
    names = [
        policy(name, params={"want": want}, validations=[validation("request.name == params.want")])
        for name, want in (("a", "p1"), ("b", "p2"))
    ]
    assert texts(judge(compiled(*names))) == ["b/r: failed expression: request.name == params.want"]


def test_names_of_the_request_are_upstreams(policy, compiled, judge, pod) -> None:
    expression = """
      request.operation == 'UPDATE' && request.kind.kind == 'Pod' && request.kind.group == '' &&
      request.resource.resource == 'pods' && request.subResource == '' && request.requestKind.version == 'v1' &&
      request.requestResource.resource == 'pods' && request.requestSubResource == '' && request.namespace == 'ns' &&
      request.userInfo.username == 'u' && 'g' in request.userInfo.groups && request.userInfo.uid == '' &&
      request.userInfo.extra['k'][0] == 'v' && request.dryRun && request.options.kind == 'UpdateOptions' &&
      request.uid != '' && oldObject.metadata.name == 'p1' && namespaceObject.metadata.labels.team == 'a'
    """
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": {"team": "a"}}}
    who = {"user": "u", "groups": ("g",), "extra": {"k": ["v"]}, "dry_run": True}
    revision = compiled(policy(validations=[validation(expression)]))
    assert texts(judge(revision, operation="UPDATE", old=pod(), cluster=[namespace], **who)) == []


def test_what_is_not_there_is_null(policy, compiled, judge) -> None:
    revision = compiled(
        policy(validations=[validation("oldObject == null && namespaceObject == null && node == null")])
    )
    assert texts(judge(revision)) == []


def test_audit_annotations(policy, compiled, judge) -> None:
    annotations = [
        {"key": "who", "valueExpression": "'name ' + request.name"},
        {"key": "none", "valueExpression": "null"},
        {"key": "empty", "valueExpression": "''"},
        {"key": "bad", "valueExpression": "dyn(7)"},
    ]
    result = judge(compiled(policy(auditAnnotations=annotations))).policies[0]
    assert result.annotations == {"p.who": "name p1"}
    assert [(rule.name, [f.rule for f in rule.findings]) for rule in result.rules] == [("p.bad", [FAILED])]


def test_the_budget_is_shared_and_its_end_is_told(policy, compiled, judge, pod) -> None:
    heavy = "object.spec.list.all(a, object.spec.list.all(b, object.spec.list.all(c, a + b + c >= 0)))"
    one = policy(validations=[validation(heavy), validation("true", name="after")])
    evaluation = judge(compiled(one), pod(list=list(range(200))), budget=cel.Budget(10_000))
    assert rules(evaluation) == [FAILED, FAILED]
    assert "cost" in evaluation.policies[0].findings[0].message


def test_when_the_time_is_spent_the_rest_fails_by_policy(policy, compiled, judge) -> None:
    spent = iter([False, True, True])
    policies = [
        policy("a", validations=[validation("true")]),
        policy("b", validations=[validation("true")]),
        policy("c", validations=[validation("true")], failurePolicy="Ignore"),
    ]
    evaluation = judge(compiled(*policies), expired=lambda: next(spent))
    assert texts(evaluation) == [
        "b/evaluation-failed: policy could not be judged: the time for this request is nearly spent"
    ]
    assert evaluation.policies[2].rules[0].error


def test_when_the_time_is_spent_a_policy_that_does_not_match_fails_nothing(policy, compiled, judge) -> None:
    rule = [validation("true")]
    elsewhere = {"resourceRules": [{**PODS, "resourceNames": ["p2"]}]}
    revision = compiled(
        policy("condition", matchConditions=[{"name": "c", "expression": "request.name == 'p2'"}], validations=rule),
        policy("names", matchConstraints=elsewhere, validations=rule),
        policy("matches", matchConditions=[{"name": "c", "expression": "request.name == 'p1'"}], validations=rule),
    )
    evaluation = judge(revision, expired=lambda: True)
    assert {result.policy: result.skipped for result in evaluation.policies if not result.matched} == {
        "condition": "matchConditions: c",
        "names": "resourceRules",
    }
    assert [text.partition(":")[0] for text in texts(evaluation)] == ["matches/evaluation-failed"]


def test_an_endpoint_has_its_own_policies(policy, compiled, judge) -> None:
    revision = compiled(
        policy("m", endpoint="mutate", action="Warn", validations=[validation("false")]),
        policy("v", validations=[validation("false")]),
        policy("c", endpoint="check", validations=[validation("false")]),
    )
    for endpoint, name in (("mutate", "m"), ("validate", "v"), ("check", "c")):
        assert [result.policy for result in judge(revision, endpoint=endpoint).policies] == [name]


def test_one_decision_is_one_value(policy, compiled, judge) -> None:
    revision = compiled(policy(validations=[{"name": "x", "findings": "pod.specProblems"}, validation("false")]))
    first, second = (judge(revision) for _ in range(2))
    assert first.policies == second.policies
    assert first.revision == revision.hash


def exception(expires, expression="true", name="e"):
    return {"name": name, "expression": expression, "expires": expires, "ticket": "OPS-1"}


def test_an_exception_leaves_findings_to_the_audit_log(policy, compiled, judge) -> None:
    one = policy(validations=[validation("false")], exceptions=[exception("2026-12-01T00:00:00Z")])
    result = judge(compiled(one)).policies[0]
    assert (result.action, result.exception) == ("Audit", "e (ticket OPS-1)")
    assert [finding.rule for finding in result.findings] == ["r"]


def test_an_exception_for_others_changes_nothing(policy, compiled, judge) -> None:
    other = exception("2026-12-01T00:00:00Z", "request.name == 'other'")
    broken = exception("2026-12-01T00:00:00Z", "object.nope", name="broken")
    result = judge(compiled(policy(validations=[validation("false")], exceptions=[other, broken]))).policies[0]
    assert (result.action, result.exception) == ("Deny", "")
    assert "no such key: nope" in result.rules[-1].error


def test_an_expired_exception_says_so(policy, compiled, judge) -> None:
    one = policy(validations=[validation("false", message="no")], exceptions=[exception("2026-11-29T12:00:00Z")])
    evaluation = judge(compiled(one))
    assert evaluation.policies[0].action == "Deny"
    expected = "p/r: no; exception e expired on 2026-11-29T12:00:00+00:00, ticket OPS-1"
    assert texts(evaluation) == [expected]


def test_the_clock_is_an_argument(policy, compiled, judge) -> None:
    revision = compiled(policy(validations=[validation("false")], exceptions=[exception("2026-12-01T00:00:00Z")]))
    actions = [judge(revision, now=NOW + timedelta(days=days)).policies[0].action for days in (0, 1, 3)]
    assert actions == ["Audit", "Audit", "Deny"]


def test_no_exception_is_asked_where_nothing_is_found(policy, compiled, judge) -> None:
    one = policy(validations=[validation("true")], exceptions=[exception("2026-12-01T00:00:00Z", "object.nope")])
    result = judge(compiled(one)).policies[0]
    assert [rule.error for rule in result.rules] == [""]
    assert result.exception == ""


def mutating(expression, *more, **fields):
    mutations = [{"patchType": "JSONPatch", "expression": each} for each in (expression, *more)]
    return {"endpoint": "mutate", "action": "Warn", "mutations": mutations, **fields}


def add(path, value):
    return f"[{{'op': 'add', 'path': '{path}', 'value': {value}}}]"


def test_mutations_are_a_patch_and_the_object_after_it(policy, compiled, judge) -> None:
    both = mutating(add("/spec/nodeSelector", "{'a': 'b'}"), add("/spec/nodeSelector/c", "object.metadata.name"))
    result = judge(compiled(policy(**both)), endpoint="mutate")
    assert result.patch == (
        {"op": "add", "path": "/spec/nodeSelector", "value": {"a": "b"}},
        {"op": "add", "path": "/spec/nodeSelector/c", "value": "p1"},
    )
    assert result.patched["spec"]["nodeSelector"] == {"a": "b", "c": "p1"}
    nothing = judge(compiled(policy(**mutating("[]"))), endpoint="mutate")
    assert (nothing.patch, "nodeSelector" in nothing.patched["spec"]) == ((), False)


def test_the_next_policy_is_asked_about_what_this_one_has_made(policy, compiled, judge) -> None:
    first = policy("a", **mutating(add("/metadata/labels", "{'x': 'y'}")))
    then = policy("b", **mutating(add("/metadata/labels/seen", "object.metadata.labels.x + pod.name")))
    last = policy("c", **mutating("[]", validations=[validation("object.metadata.labels.seen != 'yp1'")]))
    result = judge(compiled(first, then, last), endpoint="mutate")
    assert [operation["value"] for operation in result.patch] == [{"x": "y"}, "yp1"]
    assert rules(result) == ["r"]


@pytest.mark.parametrize("fields", [{"action": "Audit"}, {"exceptions": [{"name": "e", "expression": "true"}]}])
def test_a_policy_that_only_audits_changes_nothing(policy, compiled, judge, fields) -> None:
    for each in fields.get("exceptions", ()):
        each |= {"expires": "2027-01-01T00:00:00Z", "ticket": "T-1"}
    first = policy("a", **{**mutating(add("/metadata/labels", "{'x': 'y'}")), **fields})
    then = policy("b", **mutating("'x' in object.metadata.labels ? [] : " + add("/metadata/labels/z", "'1'")))
    result = judge(compiled(first, then), endpoint="mutate")
    assert [operation["path"] for operation in result.patch] == ["/metadata/labels/z"]
    assert result.policies[0].patch


@pytest.mark.parametrize(("failure_policy", "expected"), [("Fail", [FAILED]), ("Ignore", [])])
@pytest.mark.parametrize(
    ("expression", "error"),
    [
        (add("/spec/nothing/there", "1"), "the patch does not apply"),
        (add("/spec/x", "object.nope"), "no such key: nope"),
        ("[{'op': 'add', 'path': '/spec/x'}]", "the patch[0] has no value"),
        ("dyn(1)", "the patch has no list"),
    ],
)
def test_a_mutation_that_fails_makes_no_patch_and_follows_the_failure_policy(
    policy, compiled, judge, failure_policy, expected, expression, error
) -> None:
    broken = mutating(add("/spec/hostNetwork", "true"), expression, failurePolicy=failure_policy)
    result = judge(compiled(policy(**broken)), endpoint="mutate")
    assert (result.patch, rules(result)) == ((), expected)
    assert error in result.policies[0].rules[-1].error


def test_there_is_nothing_to_patch_on_delete(policy, compiled, judge, pod) -> None:
    gone = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}
    revision = compiled(policy(**mutating(add("/x", "1"), matchConstraints={"resourceRules": [gone]})))
    result = judge(revision, None, "DELETE", old=pod(), endpoint="mutate")
    assert result.patch == ()
    assert "no new object" in result.policies[0].rules[-1].error
