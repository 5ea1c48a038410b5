"""What keeps a pod from being placed, and what lets it go on: taints, gates, pools that are not whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import API_SERVER, CONTROLLERS, GATE, SCHEDULER
from tests.e2e.kinds import path
from tests.e2e.recorder import refuse
from tests.e2e.scenes import WRITES, cpu_claim, entry, shared_cpus
from tests.e2e.waiting import eventually, steady

FIELD = {36: "nodeAllocatableResourceMappings", 37: "nodeAllocatableResources"}


def waits(cluster: Cluster, pod: str) -> str:
    """The pod's event, when it is refused for want of devices."""
    [message] = eventually(lambda: cluster.events(pod, "FailedScheduling"))
    assert "cannot allocate all claims" in message
    return message


def test_a_device_taint_rule_holds_pods_back(cluster: Cluster, fresh_plane: Callable[..., Cluster]) -> None:
    """A DeviceTaintRule (NoSchedule) on a driver or a pool lets pods wait without a write, leaves bound claims alone,
    steers to other nodes, and lets the pods go on when it is deleted. In 1.36 its gate is off unless it is set.
    """
    version = "v1"
    if cluster.minor == 36:
        cluster, version = fresh_plane("1.36", gates={"DRADeviceTaintRules": True}), "v1beta2"
    driver = shared_cpus(cluster)
    cpu_claim(cluster, "c0", 1)
    cluster.pod("p0", claims=["c0"])
    cluster.scheduled("p0")
    rules = f"/apis/resource.k8s.io/{version}/devicetaintrules"

    def rule(name: str, **selector: str) -> str:
        taint = {"key": "allocguard.dev/hold", "value": "yes", "effect": "NoSchedule"}
        spec = {"deviceSelector": selector, "taint": taint}
        cluster.as_admin.create(rules, {"metadata": {"name": cluster.name(name)}, "spec": spec})
        return f"{rules}/{cluster.name(name)}"

    whole = rule("driver", driver=driver.name)
    recorder = cluster.recorder(resources=WRITES)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    waits(cluster, "p1")
    steady(lambda: not recorder.of("resourceclaims/status UPDATE"), during=1)
    assert cluster.get("ResourceClaim", "c0")["status"]["allocation"]
    cluster.as_admin.delete(whole)
    assert entry(cluster, cluster.scheduled("p1")) == {"c1": {"cpu": "3", "memory": "1Gi"}}
    rule("pool", driver=driver.name, pool=driver.node)
    cpu_claim(cluster, "c2", 3)
    cluster.pod("p2", claims=["c2"])
    waits(cluster, "p2")
    other = shared_cpus(cluster, "n2")
    assert cluster.scheduled("p2")["spec"]["nodeName"] == other.node


def test_device_taint_rules_are_off_in_1_36(cluster: Cluster) -> None:
    """With default gates nothing in 1.36 heeds a rule, which can be made wherever the beta API is served; in 1.37 it is
    an API of version v1.
    """
    rules = "/apis/resource.k8s.io/{}/devicetaintrules"
    if cluster.minor > 36:
        assert cluster.as_admin.find(rules.format("v1")) is not None
        return
    assert cluster.as_admin.find(rules.format("v1")) is None
    driver = shared_cpus(cluster)
    taint = {"key": "allocguard.dev/hold", "value": "yes", "effect": "NoSchedule"}
    spec = {"deviceSelector": {"driver": driver.name}, "taint": taint}
    cluster.as_admin.create(rules.format("v1beta2"), {"metadata": {"name": cluster.name("hold")}, "spec": spec})
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    cluster.scheduled("p1")


def test_a_gated_pod_is_released_and_steered_in_one_patch(cluster: Cluster) -> None:
    """A pod with a scheduling gate is not tried; one patch can take the gate away and narrow the nodes; no gate can be
    added afterwards.
    """
    for node in ("n1", "n2", "n3"):
        shared_cpus(cluster, node)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"], gates=["allocguard.dev/wait"])
    condition = eventually(lambda: next(iter(cluster.get("Pod", "p1")["status"].get("conditions", [])), None))
    assert condition is not None
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    there = cluster.path("Pod", "p1")
    hosts = {"key": "kubernetes.io/hostname", "operator": "In", "values": [cluster.name("n2"), cluster.name("n3")]}
    nodes = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [hosts]}]}}
    cluster.as_admin.patch(there, {"spec": {"schedulingGates": [], "affinity": {"nodeAffinity": nodes}}})
    assert cluster.scheduled("p1")["spec"]["nodeName"] in (cluster.name("n2"), cluster.name("n3"))
    cluster.pod("p2", gates=["allocguard.dev/wait"])
    gates = [{"name": "allocguard.dev/wait"}, {"name": "allocguard.dev/more"}]
    with pytest.raises(ApiError) as raised:
        cluster.as_admin.patch(cluster.path("Pod", "p2"), {"spec": {"schedulingGates": gates}})
    assert raised.value.code == 422
    name = {"key": "metadata.name", "operator": "In", "values": [cluster.name("n1")]}
    nodes = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [name]}]}}
    cluster.as_admin.patch(
        cluster.path("Pod", "p2"), {"spec": {"schedulingGates": [], "affinity": {"nodeAffinity": nodes}}}
    )
    assert cluster.scheduled("p2")["spec"]["nodeName"] == cluster.name("n1")


def test_a_pool_that_is_not_whole_gives_nothing(cluster: Cluster) -> None:
    """No device is allocated from a pool of which a slice is missing; it goes on when the slice comes."""
    driver = shared_cpus(cluster)
    devices = driver.publish([driver.device("d0")], count=2)["spec"]["devices"]
    assert devices
    cpu_claim(cluster, "c1", 0)
    cluster.claim("c2", "cpus")
    cluster.pod("p1", claims=["c2"])
    waits(cluster, "p1")
    driver.publish([driver.device("d1")], count=2, index=1)
    cluster.scheduled("p1")


def test_a_refused_finalizer_or_allocation_leaves_nothing_behind(cluster: Cluster) -> None:
    """A claim whose finalizer is refused stays as it was and is booked properly later: settles 1.37."""
    shared_cpus(cluster)
    refusing = [True]
    recorder = cluster.recorder(resources=WRITES)
    recorder.answer = lambda request: (
        refuse()
        if refusing
        and request["resource"]["resource"] == "resourceclaims"
        and not request.get("subResource")
        and request["operation"] == "UPDATE"
        else None
    )
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    eventually(lambda: cluster.events("p1", "FailedScheduling"))
    claim = cluster.get("ResourceClaim", "c1")
    assert not claim["metadata"].get("finalizers")
    assert not claim.get("status")
    refusing.clear()
    assert entry(cluster, cluster.scheduled("p1")) == {"c1": {"cpu": "3", "memory": "1Gi"}}


def test_a_node_that_does_not_declare_it(cluster: Cluster) -> None:
    """1.37 refuses a mapped slice for a node whose kubelet does not declare that it knows such, or is not there."""
    driver = cluster.driver("cpu.example.org", cluster.node("n1", declares=False))
    mapped = driver.slice([driver.device("d0", costs={"cpu": (None, "1")})])
    if cluster.minor == 36:
        driver.client.create(path("ResourceSlice"), mapped)
        return
    with pytest.raises(ApiError, match="does not support DRANodeAllocatableResources") as raised:
        driver.client.create(path("ResourceSlice"), mapped)
    assert (raised.value.code, raised.value.causes) == (403, [])
    mapped["spec"]["nodeName"] = "nowhere"
    with pytest.raises(ApiError) as raised:
        driver.client.create(path("ResourceSlice"), mapped)
    assert raised.value.code == 403


def mapped_pod(cluster: Cluster) -> Json:
    """A pod with a mapped claim, bound."""
    shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    return cluster.scheduled("p1")


def devices(cluster: Cluster) -> list[Json]:
    [found] = cluster.as_admin.items(path("ResourceSlice"))
    given: list[Json] = found["spec"]["devices"]
    return given


def test_the_gate_is_off(fresh_cluster: Callable[..., Cluster]) -> None:
    """With the gate off mappings are dropped without a word; mutating webhooks see them, validating ones do not."""
    cluster = fresh_cluster(gates={GATE: False})
    recorder = cluster.recorder(resources=("resource.k8s.io/resourceslices",), endpoints=("mutate", "validate"))
    assert entry(cluster, mapped_pod(cluster)) == {}
    mutating, validating = (recorder.of("resourceslices CREATE", endpoint)[0] for endpoint in ("mutate", "validate"))
    assert FIELD[cluster.minor] in mutating.request["object"]["spec"]["devices"][0]
    assert FIELD[cluster.minor] not in validating.request["object"]["spec"]["devices"][0]
    assert FIELD[cluster.minor] not in devices(cluster)[0]
    metrics = cluster.as_admin.text("/metrics")
    assert f'kubernetes_feature_enabled{{name="{GATE}",stage="ALPHA"}} 0' in metrics


def test_the_gate_is_on_in_one_component_only(fresh_cluster: Callable[..., Cluster]) -> None:
    """With the scheduler's gate off a mapped claim is bound without an entry. With the API server's gate off, stored
    mappings stay, and the scheduler's entries are dropped without an error.
    """
    cluster = fresh_cluster(component_gates={SCHEDULER: {GATE: False}, CONTROLLERS: {GATE: False}})
    assert entry(cluster, mapped_pod(cluster)) == {}
    assert FIELD[cluster.minor] in devices(cluster)[0]
    cluster.plane.restart({API_SERVER: {GATE: False}})
    assert FIELD[cluster.minor] in devices(cluster)[0]
    cpu_claim(cluster, "c2", 1)
    cluster.pod("p2", claims=["c2"])
    assert entry(cluster, cluster.scheduled("p2")) == {}
