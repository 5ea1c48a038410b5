import random
from typing import Any

import pytest

from webhook.kube.rbac import Subject, read_binding, read_role
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1", "uid": "u1"},
    "status": {"allocatable": {"cpu": "8"}},
}
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s1"},
    "spec": {
        "driver": "d.example",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "g", "nodeAllocatableResourceMappings": {"cpu": {}}}, {"name": "h"}],
    },
}
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c1", "namespace": "ns", "uid": "c-1"},
    "status": {
        "allocation": {
            "devices": {"results": [{"request": "r", "driver": "d.example", "pool": "n1", "device": "g"}] * 2},
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
            },
        }
    },
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p1", "namespace": "ns", "uid": "p-1"},
    "spec": {"nodeName": "n1", "resourceClaims": [{"name": "c", "resourceClaimName": "c1"}]},
}
NOMINATED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p2", "namespace": "ns", "uid": "p-2"},
    "spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "c2"}]},
    "status": {"nominatedNodeName": "n1"},
}
GATED = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p3", "namespace": "ns", "uid": "p-3"},
    "spec": {"schedulingGates": [{"name": "other"}, {"name": "allocguard.dev/claims"}]},
}
SUBJECTS = [{"kind": "ServiceAccount", "name": "plugin", "namespace": "ns"}] * 2
RBAC = [
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "same", "labels": {"a": "b"}},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"c": "d"}}]},
    },
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "same", "namespace": "ns"}},
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "same"},
        "roleRef": {"kind": "ClusterRole", "name": "same"},
        "subjects": SUBJECTS,
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "same", "namespace": "ns"},
        "roleRef": {"kind": "Role", "name": "same"},
        "subjects": SUBJECTS,
    },
]
OTHERS: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}},
    {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "k"}},
    {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t", "namespace": "ns"}},
    {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": {"name": "d.example"},
        "spec": {"writers": [{"namespace": "sys", "serviceAccount": "plugin"}]},
    },
    {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": "n1"}},
    {"apiVersion": "allocguard.dev/v1alpha1", "kind": "NodeLedger", "metadata": {"name": "n1"}},
    *RBAC,
]
ALL = [NODE, SLICE, CLAIM, POD, NOMINATED, GATED, *OTHERS]


def filled(snapshot: Snapshot) -> set[str]:
    return {name for name in Snapshot.__struct_fields__ if name != "release" and len(getattr(snapshot, name))}


def test_every_index_is_filled() -> None:
    assert filled(build(ALL, Release())) == set(Snapshot.__struct_fields__) - {"release", "free_slices", "seen"}


def test_removing_everything_leaves_nothing_whatever_the_order() -> None:
    order = random.Random(1)
    for _ in range(20):
        snapshot = build(order.sample(ALL, len(ALL)), Release())
        for obj in order.sample(ALL, len(ALL)):
            snapshot = snapshot.remove(obj)
        assert filled(snapshot) == set()


def test_an_older_snapshot_keeps_what_it_saw() -> None:
    before = build([NODE, SLICE, CLAIM], Release())
    after = before.remove(CLAIM)
    assert before.device_claims["d.example", "n1", "g"][0].name == "c1"
    assert ("d.example", "n1", "g") not in after.device_claims


def test_a_claim_that_holds_one_device_twice_is_indexed_once() -> None:
    assert len(build([CLAIM], Release()).device_claims["d.example", "n1", "g"]) == 1


def test_the_later_object_of_a_name_wins() -> None:
    newer = {**NODE, "metadata": {"name": "n1", "uid": "u2"}}
    snapshot = build([NODE, newer], Release())
    assert snapshot.nodes["n1"].uid == "u2"
    assert [len(names) for names in snapshot.node_shapes.values()] == [1]


def test_nodes_with_equal_slices_and_allocatable_share_a_shape() -> None:
    other_node = {**NODE, "metadata": {"name": "n2"}}
    other_slice = {
        **SLICE,
        "metadata": {"name": "s2"},
        "spec": {**SLICE["spec"], "nodeName": "n2", "pool": {"name": "n2"}},
    }
    snapshot = build([NODE, other_slice, SLICE, other_node], Release())
    assert [set(names) for names in snapshot.node_shapes.values()] == [{"n1", "n2"}]


def test_kinds_of_other_groups_are_not_taken_for_ours() -> None:
    foreign = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": "Node", "metadata": {"name": "n1"}}
    assert filled(build([foreign], Release())) == set()


def test_knows() -> None:
    snapshot = build([POD], Release())
    assert snapshot.knows(POD)
    assert not snapshot.knows(CLAIM)


@pytest.mark.parametrize(
    "broken", [{}, {"kind": 7}, {"kind": "Pod", "metadata": []}, {"kind": "Node", "apiVersion": "v1"}]
)
def test_any_json_object_is_survived(broken: dict[str, Any]) -> None:
    assert filled(build([broken], Release()).put(broken).remove(broken)) == set()


def test_what_is_found_in_an_index_does_not_depend_on_the_order_of_arrival() -> None:
    objs = [{**obj, "metadata": {**obj["metadata"], "name": name}} for obj in (SLICE, CLAIM, POD) for name in "bdac"]
    wanted = build(objs, Release())
    for seed in range(5):
        random.Random(seed).shuffle(objs)
        assert build(objs, Release()).node_slices == wanted.node_slices
        assert build(objs, Release()).pool_claims == wanted.pool_claims
        assert build(objs, Release()).node_pods == wanted.node_pods
    assert [item.name for item in wanted.pools["d.example", "n1"]] == list("abcd")


def test_a_pod_is_gated_for_as_long_as_it_has_our_gate() -> None:
    snapshot = build([GATED], Release())
    assert [pod.name for pod in snapshot.gated_pods.values()] == ["p3"]
    lifted = snapshot.put({**GATED, "spec": {"schedulingGates": [{"name": "other"}]}})
    assert (len(lifted.gated_pods), lifted.pods["ns", "p3"].gates) == (0, ("other",))


def test_a_pod_with_claims_is_unscheduled_while_the_scheduler_may_give_it_a_node_and_has_not() -> None:
    snapshot = build([NOMINATED], Release())
    assert [pod.name for pod in snapshot.unscheduled_pods.values()] == ["p2"]
    for gone in (
        {"spec": {**NOMINATED["spec"], "nodeName": "n1"}},
        {"spec": {**NOMINATED["spec"], "schedulingGates": [{"name": "other"}]}},
        {"spec": {}},
        {"status": {"phase": "Failed"}},
    ):
        assert len(snapshot.put({**NOMINATED, **gone}).unscheduled_pods) == 0


def test_a_status_of_a_rollout_changes_nothing_that_accounts_are_made_from() -> None:
    def told(version: str, **fields: Any) -> dict[str, Any]:
        metadata = {"name": "d.example", "resourceVersion": version}
        return {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": metadata, **fields}

    first = build([*ALL, told("1")], Release())
    second = first.put(told("2", status={"duplicates": 1}))
    assert second.rollouts["d.example"].status.duplicates == 1
    assert second.rollout_specs is first.rollout_specs
    third = second.put(told("3", spec={"numaAttributes": ["z"]}))
    assert third.rollout_specs["d.example"].numa_attributes == ("z",)
    assert third.put(told("4")).rollout_specs == first.rollout_specs


def test_the_writers_that_rollouts_name_are_found_by_account() -> None:
    def told(driver, *writers):
        rows = [{"namespace": "sys", "serviceAccount": name, "profile": profile} for name, profile in writers]
        return {
            "apiVersion": "allocguard.dev/v1alpha1",
            "kind": "DriverRollout",
            "metadata": {"name": driver},
            "spec": {"writers": rows},
        }

    both = build(
        [told("a.example", ("x", "NodeLocal"), ("y", "MultiNode")), told("b.example", ("x", "Allocator"))], Release()
    )
    assert dict(both.writers) == {
        ("sys", "x"): {"a.example": "NodeLocal", "b.example": "Allocator"},
        ("sys", "y"): {"a.example": "MultiNode"},
    }
    moved = both.put(told("a.example", ("y", "NodeLocal"), ("y", "MultiNode")))
    assert dict(moved.writers) == {("sys", "x"): {"b.example": "Allocator"}, ("sys", "y"): {"a.example": "NodeLocal"}}
    assert dict(moved.remove(told("b.example")).remove(told("a.example")).writers) == {}


def test_roles_of_the_cluster_and_of_namespaces_are_apart() -> None:
    snapshot = build(RBAC, Release())
    assert {kind: snapshot.keys(kind) for kind in ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding")} == {
        "ClusterRole": {("", "same")},
        "Role": {("ns", "same")},
        "ClusterRoleBinding": {("", "same")},
        "RoleBinding": {("ns", "same")},
    }
    for obj in RBAC:
        assert snapshot.knows(obj)
        assert not snapshot.remove(obj).knows(obj)
        assert sum(map(snapshot.remove(obj).knows, RBAC)) == len(RBAC) - 1
    # Without a namespace a Role is none of the cluster.
    lost = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "same"}}
    assert set(snapshot.put(lost).roles) == {("", "same"), ("ns", "same"), ("default", "same")}


def test_a_role_or_binding_that_changes_leaves_nothing_of_the_old_one_in_an_index() -> None:
    snapshot = build(RBAC, Release())
    role = read_role({**RBAC[0], "metadata": {"name": "same", "labels": {"x": "y"}}, "aggregationRule": None})
    changed = snapshot.with_role(role)
    assert (set(changed.labelled_roles), set(changed.aggregated_roles)) == ({"x"}, set())
    subjects = [{"kind": "Group", "name": "g"}]
    bound = snapshot.with_binding(read_binding({**RBAC[2], "roleRef": {"kind": "ClusterRole"}, "subjects": subjects}))
    assert set(bound.role_bindings) == {("ClusterRole", "", ""), ("Role", "ns", "same")}
    account = Subject("ServiceAccount", "ns", "plugin")
    assert {subject: set(keys) for subject, keys in bound.subject_bindings.items()} == {
        Subject("Group", "", "g"): {("", "same")},
        account: {("ns", "same")},
    }
    assert set(snapshot.subject_bindings[account]) == {("", "same"), ("ns", "same")}
