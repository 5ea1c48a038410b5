"""Patches of pods, taken by the API server and heeded by the scheduler."""

from __future__ import annotations

import jsonpatch
import pytest

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from webhook.facts.steering import affinity_patch, gate_patch, hostnames_patch, ungate_patch
from webhook.kube.core import GATE

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _made(cluster: Cluster, name: str, spec: Json, terms: list[list[Json]]) -> Json:
    """The stored pod that was made steered and gated."""
    sent = {"spec": {"containers": [], **spec}}
    steered = jsonpatch.apply_patch(sent, affinity_patch(sent, terms) + gate_patch(sent, GATE))
    del steered["spec"]["containers"]
    cluster.pod(name, spec=steered["spec"])
    return cluster.get("Pod", name)


def test_a_pod_is_made_steered_and_gated_then_narrowed_and_let_go_in_one_patch(cluster: Cluster) -> None:
    """The server takes what is added to required terms of every kind, of a pod that is made and of one that is gated;
    what it stored needs no further patch, and the scheduler uses the nodes that are left.
    """
    for node, ring in (("n1", "one"), ("n2", "one"), ("n3", "two"), ("n4", "none")):
        cluster.node(node, labels={"example.org/ring": ring})
    alternatives: list[list[Json]] = [
        [{"key": "example.org/ring", "operator": "In", "values": ["one"]}],
        [{"key": "example.org/ring", "operator": "In", "values": ["two"]}],
    ]
    named = {"key": "metadata.name", "operator": "NotIn", "values": [cluster.name("n2")]}
    rows: list[Json] = [
        {},
        {"matchFields": [named]},
        {"matchExpressions": [{"key": "example.org/ring", "operator": "Exists"}]},
    ]
    affinity = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": rows}}}
    for pod, spec, hosts in (
        ("p1", {"affinity": affinity}, ["n2", "n4"]),
        ("p2", {"affinity": affinity}, ["n3", "n4"]),
        ("p3", {"schedulingGates": [{"name": "example.org/wait"}]}, ["n4", "n1"]),
    ):
        stored = _made(cluster, pod, spec, alternatives)
        assert affinity_patch(stored, alternatives) == gate_patch(stored, GATE) == []
        narrowed = hostnames_patch(stored, [cluster.name(host) for host in hosts]) + ungate_patch(stored, GATE)
        cluster.as_admin.patch(cluster.path("Pod", pod), narrowed, "json")
        if pod == "p3":
            # Somebody else's gate stays, and ours is not found in its place when the patch is sent again.
            assert cluster.get("Pod", pod)["spec"]["schedulingGates"] == spec["schedulingGates"]
            with pytest.raises(ApiError):
                cluster.as_admin.patch(cluster.path("Pod", pod), ungate_patch(stored, GATE), "json")
            cluster.as_admin.patch(cluster.path("Pod", pod), {"spec": {"schedulingGates": []}})
        (chosen,) = [host for host in hosts if host != "n4"]
        assert cluster.scheduled(pod)["spec"]["nodeName"] == cluster.name(chosen)
