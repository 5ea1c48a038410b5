import pytest

from webhook.kube.admission import raw_request, read_request
from webhook.policy.match import NAME_LABEL

PASS = [{"name": "r", "expression": "true"}]
SLICE = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": {"team": "a"}}}


def rule(**fields):
    base = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
    return {**base, **fields}


@pytest.fixture
def matched(policy, compiled, judge):
    def run(constraints, obj=None, **request):
        revision = compiled(policy(matchConstraints=constraints, validations=PASS))
        found = judge(revision, obj, **request).policies
        return bool(found) and found[0].matched

    return run


@pytest.mark.parametrize(
    ("fields", "request_fields", "expected"),
    [
        ({}, {}, True),
        ({"operations": ["UPDATE"]}, {}, False),
        ({"operations": ["CREATE", "UPDATE"]}, {}, True),
        ({"apiGroups": ["*"]}, {}, True),
        ({"apiGroups": ["apps"]}, {}, False),
        ({"apiVersions": ["v2"]}, {}, False),
        ({"resources": ["*"]}, {}, True),
        ({"resources": ["*"]}, {"sub_resource": "status"}, False),
        ({"resources": ["pods"]}, {"sub_resource": "status"}, False),
        ({"resources": ["pods/status"]}, {"sub_resource": "status"}, True),
        ({"resources": ["pods/status"]}, {}, False),
        ({"resources": ["pods/*"]}, {"sub_resource": "status"}, True),
        ({"resources": ["*/status"]}, {"sub_resource": "status"}, True),
        ({"resources": ["*/*"]}, {"sub_resource": "status"}, True),
        ({"resources": ["nodes", "pods"]}, {}, True),
        ({"scope": "Namespaced"}, {}, True),
        ({"scope": "Cluster"}, {}, False),
        ({"resourceNames": ["p1"]}, {}, True),
        ({"resourceNames": ["p2"]}, {}, False),
    ],
)
def test_a_rule_matches_as_upstream_rules_do(matched, fields, request_fields, expected) -> None:
    assert matched({"resourceRules": [rule(**fields)]}, **request_fields) is expected


def test_any_rule_is_enough_and_an_excluding_rule_wins(matched) -> None:
    assert matched({"resourceRules": [rule(resources=["nodes"]), rule()]})
    assert not matched({"resourceRules": [rule()], "excludeResourceRules": [rule(resourceNames=["p1"])]})
    assert matched({"resourceRules": [rule()], "excludeResourceRules": [rule(resourceNames=["p2"])]})


@pytest.mark.parametrize(
    ("version", "policy_kind", "expected"),
    [("v1", "Equivalent", True), ("v1beta1", "Equivalent", True), ("v1beta1", "Exact", False), ("v1", "Exact", True)],
)
def test_versions_of_one_object_are_equivalent(matched, version, policy_kind, expected) -> None:
    constraints = {"resourceRules": [rule(apiGroups=["resource.k8s.io"], resources=["resourceslices"])]}
    obj = {**SLICE, "apiVersion": f"resource.k8s.io/{version}"}
    assert matched({**constraints, "matchPolicy": policy_kind}, obj) is expected


def test_exact_looks_at_what_the_writer_asked_for(policy, compiled) -> None:
    constraints = {"resourceRules": [rule(apiGroups=["resource.k8s.io"], resources=["resourceslices"])]}
    raw = raw_request("CREATE", SLICE)
    raw["requestResource"] = {"group": "resource.k8s.io", "version": "v1beta1", "resource": "resourceslices"}
    for kind, count in (("Exact", 0), ("Equivalent", 1)):
        revision = compiled(policy(matchConstraints={**constraints, "matchPolicy": kind}, validations=PASS))
        assert len(revision.route(read_request(raw), "validate")) == count


@pytest.mark.parametrize(
    ("selector", "cluster", "expected"),
    [
        ({}, [], True),
        ({"matchLabels": {"team": "a"}}, [NAMESPACE], True),
        ({"matchLabels": {"team": "b"}}, [NAMESPACE], False),
        ({"matchLabels": {NAME_LABEL: "ns"}}, [], True),
        ({"matchExpressions": [{"key": NAME_LABEL, "operator": "NotIn", "values": ["ns"]}]}, [], False),
    ],
)
def test_a_namespace_selector_reads_the_namespace(matched, selector, cluster, expected) -> None:
    assert matched({"resourceRules": [rule()], "namespaceSelector": selector}, cluster=cluster) is expected


@pytest.mark.parametrize(("failure_policy", "findings"), [("Fail", 1), ("Ignore", 0)])
def test_labels_of_an_unknown_namespace_fail_by_policy(policy, compiled, judge, failure_policy, findings) -> None:
    constraints = {"resourceRules": [rule()], "namespaceSelector": {"matchLabels": {"team": "a"}}}
    revision = compiled(policy(matchConstraints=constraints, validations=PASS, failurePolicy=failure_policy))
    result = judge(revision).policies[0]
    assert len(result.findings) == findings
    assert result.matched is bool(findings)
    assert [rule.name for rule in result.rules] == ["namespaceSelector"]
    assert "namespace ns is not known" in result.rules[0].error


def test_a_selector_of_labels_takes_the_new_or_the_old_object(matched, pod) -> None:
    constraints = {"resourceRules": [rule()], "objectSelector": {"matchLabels": {"app": "z"}}}
    other = {**pod(), "metadata": {"name": "p1", "namespace": "ns", "labels": {"app": "z"}}}
    assert not matched(constraints)
    assert matched(constraints, other)
    assert matched(constraints, pod(), operation="UPDATE", old=other)


def test_cluster_scoped_objects_pass_a_namespace_selector(matched) -> None:
    constraints = {
        "resourceRules": [rule(apiGroups=["resource.k8s.io"], resources=["resourceslices"], scope="Cluster")],
        "namespaceSelector": {"matchLabels": {"team": "a"}},
    }
    assert matched(constraints, SLICE)


@pytest.mark.parametrize(
    ("constraints", "part"),
    [
        ({}, "has no resourceRules"),
        ({"resourceRules": [rule(operations=["PATCH"])]}, "operations[0]: has PATCH"),
        ({"resourceRules": [rule(operations=[])]}, "has no operations"),
        ({"resourceRules": [rule(resources=["a/b/c"])]}, "has 'a/b/c'"),
        ({"resourceRules": [rule(resources=["Pods"])]}, "plural name in lower case"),
        ({"resourceRules": [rule(scope="Any")]}, "has Any"),
        ({"resourceRules": [rule()], "matchPolicy": "Same"}, "has Same"),
        ({"resourceRules": [rule()], "objectSelector": {"matchLabels": {"a": 1}}}, "a string in quotes"),
        ({"resourceRules": [rule()], "namespaceSelector": {"matchLabel": {}}}, "unknown field matchLabel"),
    ],
)
def test_what_constraints_must_not_say(policy, problems, constraints, part) -> None:
    found = problems(policy(matchConstraints=constraints, validations=PASS))
    assert any(part in text for text in found), found


def test_routing_is_a_look_up_and_its_memo_is_bounded(policy, compiled) -> None:
    revision = compiled(policy(matchConstraints={"resourceRules": [rule(resources=["*"])]}, validations=PASS))
    for number in range(5000):
        request = read_request(raw_request("CREATE", {"apiVersion": "v1", "kind": f"Kind{number}", "metadata": {}}))
        assert len(revision.route(request, "validate")) == 1
    assert len(revision._routes) <= 4096
