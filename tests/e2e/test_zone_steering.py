"""NUMA zones for a scheduler that knows none: pods are let go to nodes, and kept off devices, so that they fit."""

from __future__ import annotations

from typing import Any

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver, each
from tests.e2e.guard import Guard
from tests.e2e.guarding import deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.test_gates_held import gated, told
from tests.e2e.test_scenarios import bound, guarding
from tests.e2e.test_taints import heeding, refused, rules  # noqa: F401 - heeding is a fixture
from tests.e2e.waiting import eventually, steady
from webhook.kube.core import GATE
from webhook.kube.node_ledger import PLACE, read_node_ledger

GPU_DRIVER = "gpu.example.org"
SAID = "zone-overcommit: has cpu"


def zoned(cluster: Cluster, name: str = "n1", cost: str = "5", gpus: int = 2) -> tuple[Driver, Driver]:
    """A node of two zones of 8 cpu, which a driver of CPUs describes, and in them ``gpus`` that ``cost`` this much cpu;
    those of zone 0 are the first that a scheduler takes.
    """
    cpus = shared_cpus(cluster, name, devices=2)
    driver = cluster.driver(GPU_DRIVER, cluster.name(name))
    driver.publish([driver.device(f"gpu{n}", costs={"cpu": each(cost)}, zone=2 * n // gpus) for n in range(gpus)])
    if cluster.as_admin.find(path("DeviceClass", cluster.name("gpus"))) is None:
        cluster.device_class("gpus", GPU_DRIVER)
        cluster.claim_template("gpu", "gpus")
    return cpus, driver


def choosing(cluster: Cluster) -> None:
    """Wait until a new pod with a GPU would get the gate, for its zone."""
    container = {"name": "main", "image": "registry.invalid/pause:1", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}

    def asked() -> bool:
        made = cluster.as_admin.create(cluster.path("Pod"), {"metadata": {"name": "probe"}, "spec": spec}, dryRun="All")
        return made["spec"].get("schedulingGates") == [{"name": GATE}]

    eventually(asked)
    assert any("pod-zones/zone-to-choose" in warning for warning in cluster.as_admin.warnings)


def crowded(cluster: Cluster, name: str = "n1", **gpus: Any) -> Guard:
    """A guard over the node, of whose zone 0 a pod has 4 of 8 cpu."""
    drivers = zoned(cluster, name, **gpus)
    guard = deployed(cluster)
    guarding(cluster, guard, *drivers)
    cpu_claim(cluster, "c0", 4)
    cluster.pod("p0", claims=["c0"], spec={"nodeSelector": {"kubernetes.io/hostname": cluster.name(name)}})
    cluster.scheduled("p0")
    assert device(cluster, "c0") == "group-0"
    choosing(cluster)
    return guard


def device(cluster: Cluster, claim: str) -> str:
    """The one device that the claim got."""
    [row] = cluster.allocated(claim)["status"]["allocation"]["devices"]["results"]
    given: str = row["device"]
    return given


def gpu_of(cluster: Cluster, pod: str) -> str:
    """The GPU of a pod, once it has a node."""
    [row] = cluster.scheduled(pod)["status"]["resourceClaimStatuses"]
    return device(cluster, row["resourceClaimName"])


def places(cluster: Cluster, node: str = "n1") -> list[str]:
    """The claims that have places on the node."""
    stored = cluster.as_admin.find(path("NodeLedger", cluster.name(node)))
    ledger = read_node_ledger(stored) if stored is not None else None
    return [each.name for each in ledger.reservations if each.allocation == PLACE] if ledger is not None else []


def hosts(pod: Json) -> list[Json]:
    """What the required terms of a pod say of host names."""
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [row for term in terms["nodeSelectorTerms"] for row in term["matchExpressions"]]


def tainted(cluster: Cluster) -> set[str]:
    """The GPUs that are tainted."""
    found = [rule["spec"]["deviceSelector"] for rule in cluster.as_admin.items(rules(cluster))]
    return {spec.get("device", "") for spec in found if spec.get("driver") == cluster.name(GPU_DRIVER)}


def test_a_stock_scheduler_takes_devices_of_the_zone_that_has_room(heeding: Cluster) -> None:  # noqa: F811
    """It would take those of zone 0 first, be refused, and try the same again for ever; here nothing is refused."""
    cluster = heeding
    guard = crowded(cluster)
    before = refused(guard)
    for name in ("p1", "p2"):
        cluster.pod(name, templates=["gpu"])
        assert gated(cluster, name) == [GATE]
    # One fits zone 1; for the other the node has room, and no zone has.
    first = eventually(lambda: next((name for name in ("p1", "p2") if bound(cluster, name)), ""))
    left = "p2" if first == "p1" else "p1"
    assert gpu_of(cluster, first) == "gpu1"
    narrowed = {"key": "kubernetes.io/hostname", "operator": "In", "values": [cluster.name("n1")]}
    assert hosts(cluster.get("Pod", first)) == [narrowed]
    [event] = eventually(lambda: told(cluster, left))
    assert event["message"].startswith(SAID)
    steady(lambda: gated(cluster, left) == [GATE], during=2)
    # What was held for the first is charged now, and nobody needs the taints.
    eventually(lambda: not places(cluster))
    eventually(lambda: not tainted(cluster))

    cluster.delete("Pod", "p0")
    cluster.delete("ResourceClaim", "c0")
    assert gpu_of(cluster, left) == "gpu0"
    assert refused(guard) == before
    eventually(lambda: not places(cluster) and not tainted(cluster))


def test_of_a_crowd_all_go_that_fit_and_no_other(heeding: Cluster) -> None:  # noqa: F811
    """Eight pods at once for two nodes with eight GPUs and room for seven, whose zones nobody but the guard knows."""
    cluster = heeding
    guard = crowded(cluster, cost="3", gpus=4)
    zoned(cluster, "n2", cost="3", gpus=4)
    before = refused(guard)
    names = [f"p{n}" for n in range(1, 9)]
    for name in names:
        cluster.pod(name, templates=["gpu"])
    eventually(lambda: sum(bool(bound(cluster, name)) for name in names) == 7, within=60)
    [left] = [name for name in names if not bound(cluster, name)]
    steady(lambda: gated(cluster, left) == [GATE], during=3)
    assert told(cluster, left)[0]["message"].startswith(SAID)
    assert refused(guard) == before
    ours = {cluster.name("n1"): 3, cluster.name("n2"): 4}
    assert {node: [bound(cluster, name) for name in names].count(node) for node in ours} == ours


def test_a_node_with_room_in_every_zone_goes_before_one_with_a_full_zone(cluster: Cluster) -> None:
    """Though the scheduler would have liked the other one better; a pod that may have no other waits where taints are
    not heeded, and is told why.
    """
    guard = crowded(cluster)
    before = refused(guard)
    zoned(cluster, "n2")
    cluster.pod("busy", cpu="11", spec={"nodeSelector": {"kubernetes.io/hostname": cluster.name("n2")}})
    cluster.scheduled("busy")
    cluster.pod("p1", templates=["gpu"])
    assert cluster.scheduled("p1")["spec"]["nodeName"] == cluster.name("n2")
    assert told(cluster, "p1") == []
    if cluster.minor == 36:
        cluster.pod("p2", templates=["gpu"])
        [event] = eventually(lambda: told(cluster, "p2"))
        assert event["message"].startswith(SAID)
        steady(lambda: gated(cluster, "p2") == [GATE], during=2)
        cluster.delete("Pod", "p0")
        cluster.delete("ResourceClaim", "c0")
        cluster.scheduled("p2")
    assert refused(guard) == before


def test_a_guard_that_was_killed_goes_on_with_what_it_holds(cluster: Cluster) -> None:
    """Between the place and the gate, and while nobody is let go."""
    guard = crowded(cluster)
    guard.kill()
    free = cluster.pod("early", templates=["gpu"], gates=["example.org/later"])
    assert "affinity" not in free["spec"]
    guard.start()
    choosing(cluster)
    zoned(cluster, "n2")
    cluster.pod("p1", templates=["gpu"], gates=["example.org/later"])
    eventually(lambda: gated(cluster, "p1") == ["example.org/later"])
    assert places(cluster, "n2")
    guard.kill()
    guard.start()
    steady(lambda: len(places(cluster, "n2")) == 1, during=3)
    cluster.as_admin.patch(cluster.path("Pod", "p1"), {"spec": {"schedulingGates": None}})
    assert cluster.scheduled("p1")["spec"]["nodeName"] == cluster.name("n2")
    eventually(lambda: not places(cluster, "n2"))
