"""Claims on devices that are of no one node: where the real scheduler puts them, and which account has them."""

from __future__ import annotations

import pytest

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver, each, per
from tests.e2e.guard import Guard
from tests.e2e.guarding import deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import CLASS, CPU_DRIVER, cpu_claim, entry
from tests.e2e.test_scenarios import allocation, refused_allocation
from tests.e2e.waiting import eventually
from webhook.kube.node_ledger import read_node_ledger
from webhook.kube.quantity import of_resource

HOSTNAME = "kubernetes.io/hostname"


def shelf(cluster: Cluster, driver: Driver, *nodes: str, count: int = 1, index: int = 0, **costs: Json) -> Json:
    """A slice of the pool ``shelf`` whose one device can be used on ``nodes``."""
    device = driver.device(f"group-{index}", {"cpus": "8"}, {"cpu": per("cpus"), "memory": each("1Gi")})
    made = driver.slice([{**device, **costs}], cluster.name("shelf"), count=count, index=index)
    del made["spec"]["nodeName"]
    expression = {"key": HOSTNAME, "operator": "In", "values": [cluster.name(node) for node in nodes]}
    made["spec"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return made


def shelved(cluster: Cluster, *nodes: str, **costs: Json) -> tuple[Guard, Driver]:
    """Nodes of 8 cpu, a driver with a shelf for all of them, and our server, which is asked about it."""
    guard = deployed(cluster)
    made = [cluster.node(node, cpu="8") for node in nodes]
    driver = cluster.driver(CPU_DRIVER, made[0])
    cluster.device_class(CLASS, CPU_DRIVER)
    cluster.as_admin.create(path("ResourceSlice"), shelf(cluster, driver, *nodes, **costs))
    eventually(lambda: refused_allocation(cluster, driver))
    return guard, driver


def only_on(cluster: Cluster, node: str) -> Json:
    """Fields of a pod that may go to ``node`` and nowhere else."""
    return {"nodeSelector": {HOSTNAME: cluster.name(node)}}


def booked(cluster: Cluster, node: str) -> dict[str, dict[str, str]]:
    """What the NodeLedger of ``node`` holds for claims, reserved or charged: amounts by claim and resource."""
    stored = cluster.as_admin.find(path("NodeLedger", cluster.name(node)))
    if stored is None:
        return {}
    ledger = read_node_ledger(stored)
    found: dict[str, dict[str, str]] = {}
    for row in (*ledger.charges, *(row for held in ledger.reservations for row in held.charges)):
        found.setdefault(row.name, {})[row.resource] = of_resource(row.resource, row.amount)
    return found


def test_a_claim_is_charged_where_its_pod_goes(cluster: Cluster) -> None:
    """The allocation names no one node; the scheduler has told it by then, and there it is judged and held."""
    shelved(cluster, "n1", "n2")
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"], cpu="1", spec=only_on(cluster, "n2"))
    pod = cluster.scheduled("p1")
    assert pod["spec"]["nodeName"] == cluster.name("n2")
    assert entry(cluster, pod)["c1"] == {"cpu": "3", "memory": "1Gi"}
    made = cluster.get("ResourceClaim", "c1")["status"]["allocation"]
    assert [row["pool"] for row in made["devices"]["results"]] == [cluster.name("shelf")]
    assert "metadata.name" not in str(made["nodeSelector"])
    assert eventually(lambda: booked(cluster, "n2")) == {"c1": {"cpu": "3", "memory": "1Gi"}}
    assert booked(cluster, "n1") == {}


def test_what_no_account_could_have_is_refused(cluster: Cluster) -> None:
    """Somebody allocates a device of the shelf for a pod that goes nowhere yet: refused, and nothing is stored."""
    _, driver = shelved(cluster, "n1")
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"], gates=["example.org/wait"])
    pod = cluster.get("Pod", "p1")["metadata"]["uid"]
    claim = cluster.get("ResourceClaim", "c1")
    result = {
        "request": "devices",
        "driver": driver.name,
        "pool": cluster.name("shelf"),
        "device": "group-0",
        "shareID": claim["metadata"]["uid"],
        "consumedCapacity": {driver.key("cpus"): "3"},
    }
    claim["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p1", "uid": pod}],
    }

    def said() -> str:
        with pytest.raises(ApiError) as raised:
            cluster.as_scheduler.update(cluster.path("ResourceClaim", "c1", "status"), claim)
        return raised.value.message

    assert eventually(lambda: "no one node (pod p1 has none yet)" in said())
    assert "allocation" not in cluster.get("ResourceClaim", "c1").get("status", {})


def test_the_pool_is_fresh_as_a_whole(cluster: Cluster) -> None:
    """One of two slices is there: claims wait on the node that sees it, until the other one, for another node, is."""
    deployed(cluster)
    nodes = [cluster.node(node, cpu="8") for node in ("n1", "n2")]
    driver = cluster.driver(CPU_DRIVER, nodes[0])
    cluster.device_class(CLASS, CPU_DRIVER)
    cluster.as_admin.create(path("ResourceSlice"), shelf(cluster, driver, "n1", count=2))
    eventually(lambda: refused_allocation(cluster, driver))
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    cpu_claim(cluster, "hasty", 3)
    hasty = allocation(driver, "group-0", cluster.get("ResourceClaim", "hasty")["metadata"]["uid"], cpus="3")
    hasty["status"]["allocation"]["devices"]["results"][0]["pool"] = cluster.name("shelf")

    def said() -> str:
        try:
            cluster.as_scheduler.patch(cluster.path("ResourceClaim", "hasty", "status"), hasty, dryRun="All")
        except ApiError as error:
            return error.message
        return ""

    eventually(lambda: "pool-incomplete" in said())
    cluster.as_admin.create(path("ResourceSlice"), shelf(cluster, driver, "n2", count=2, index=1))
    eventually(lambda: not said())
    pod = cluster.scheduled("p1")
    assert entry(cluster, pod)["c1"]["cpu"] == "3"
    name = next(node for node in ("n1", "n2") if cluster.name(node) == pod["spec"]["nodeName"])
    assert eventually(lambda: booked(cluster, name))["c1"]["cpu"] == "3"


def test_overhead_alone_is_paid_by_each_pod_on_its_own_node(cluster: Cluster) -> None:
    """1.37: two pods on two nodes share a claim; each node is charged for its own."""
    if cluster.minor < 37:
        pytest.skip("1.36 has no overhead")
    costly = {"nodeAllocatableResources": {"memory": {"overhead": {"perPod": "1Gi", "perContainer": "500Mi"}}}}
    guard, _ = shelved(cluster, "n1", "n2", **costly)
    cpu_claim(cluster, "c1", 3)
    for pod, node in (("p1", "n1"), ("p2", "n2")):
        cluster.pod(pod, claims=["c1"], spec=only_on(cluster, node))
        assert cluster.scheduled(pod)["spec"]["nodeName"] == cluster.name(node)
    for node in ("n1", "n2"):
        labels = {"node": cluster.name(node), "zone": "", "resource": "memory", "source": "overhead"}
        eventually(lambda labels=labels: guard.metric("allocguard_ledger_used", **labels) == (1024 + 500) * 1024**2)
