import pytest

from webhook.kube.rbac import PolicyRule, Subject, account_user, rbac_key, read_binding, read_role, read_rule


def role(kind="ClusterRole", **more):
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "r"}, **more}


def test_a_role_with_everything_that_is_read() -> None:
    annotations = {"allocguard.dev/profile": "NodeLocal", "allocguard.dev/driver": " b.example,,a.example, b.example"}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["x"]}
    url = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    found = read_role(
        role(
            metadata={"name": "r", "labels": {"a": "b"}, "annotations": annotations},
            rules=[rule, url],
            aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"c": "d"}}]},
        )
    )
    assert (found.kind, found.key, found.reference) == ("ClusterRole", ("", "r"), ("ClusterRole", "", "r"))
    assert found.rules == (
        PolicyRule(("",), ("pods",), ("get",), ("x",)),
        PolicyRule(verbs=("get",), urls=("/metrics",)),
    )
    assert (found.labels, found.profile, found.drivers) == ({"a": "b"}, "NodeLocal", ("a.example", "b.example"))
    assert found.aggregates == ({"matchLabels": {"c": "d"}},)


def test_equal_rules_of_different_roles_are_kept_once() -> None:
    rules = [{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]}]
    first = read_role(role(rules=rules))
    second = read_role(role("Role", metadata={"name": "s", "namespace": "ns"}, rules=rules))
    assert first.rules[0] is second.rules[0]


@pytest.mark.parametrize("kind", ["Role", "RoleBinding"])
def test_what_needs_a_namespace_and_has_none_is_not_one_of_the_cluster(kind) -> None:
    assert rbac_key(role(kind)) == ("default", "r")
    assert rbac_key(role(f"Cluster{kind}", metadata={"name": "r", "namespace": "x"})) == ("", "r")


def test_a_binding_names_accounts_also_by_their_user_and_in_its_own_namespace() -> None:
    subjects = [
        {"kind": "ServiceAccount", "name": "here"},
        {"kind": "ServiceAccount", "name": "there", "namespace": "other"},
        {"kind": "User", "name": account_user("ns", "by-user")},
        {"kind": "User", "name": "jane", "namespace": "ignored"},
        {"kind": "Group", "name": "system:authenticated"},
    ]
    reference = {"kind": "ClusterRole", "name": "c"}
    found = read_binding(
        role("RoleBinding", metadata={"name": "b", "namespace": "ns"}, roleRef=reference, subjects=subjects)
    )
    assert found.subjects == (
        Subject("ServiceAccount", "ns", "here"),
        Subject("ServiceAccount", "other", "there"),
        Subject("ServiceAccount", "ns", "by-user"),
        Subject("User", "", "jane"),
        Subject("Group", "", "system:authenticated"),
    )
    assert (found.kind, found.role) == ("RoleBinding", ("ClusterRole", "", "c"))
    assert read_binding(role("RoleBinding", roleRef={"kind": "Role", "name": "x"})).role == ("Role", "default", "x")
    # In a binding of the cluster an account without a namespace is nobody.
    of_cluster = read_binding(role("ClusterRoleBinding", roleRef=reference, subjects=subjects[:1]))
    assert of_cluster.subjects == (Subject("ServiceAccount", "", "here"),)


@pytest.mark.parametrize("wrong", [None, 7, "x", ["x"], [None, 7], {"a": 1}])
def test_values_of_a_wrong_type_count_as_absent(wrong) -> None:
    found = read_role(role(rules=wrong, aggregationRule=wrong, metadata={"name": "r", "annotations": wrong}))
    assert {*found.rules} <= {PolicyRule()}
    assert (found.aggregates, found.profile, found.drivers) == ((), "", ())
    binding = read_binding(role("ClusterRoleBinding", roleRef=wrong, subjects=wrong))
    assert binding.role == ("", "", "")
    assert {*binding.subjects} <= {Subject("", "", "")}
    assert read_rule({"apiGroups": wrong, "verbs": wrong}).urls == ()


def test_members_of_a_wrong_type_keep_the_place_of_the_others() -> None:
    """Messages tell it as ``rules[1]``."""
    assert read_role(role(rules=[None, {"verbs": ["get"]}])).rules == (PolicyRule(), PolicyRule(verbs=("get",)))
    user = {"kind": "User", "name": "jane"}
    assert read_binding(role("ClusterRoleBinding", subjects=["x", user])).subjects[1] == Subject("User", "", "jane")
