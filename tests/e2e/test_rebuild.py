"""What a driver publishes anew under claims that are bound, and pods that no scheduler counts: on the real thing."""

from __future__ import annotations

import re

from tests.e2e.cluster import Cluster
from tests.e2e.driver import each, per
from tests.e2e.guarding import deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import cpu_claim, entry, shared_cpus
from tests.e2e.test_multi_node import booked
from tests.e2e.test_scenarios import bound, guarding
from tests.e2e.waiting import eventually, steady

DIGEST = re.compile(r"acknowledge (sha256:[0-9a-f]{64})")


def test_a_changed_mapping_waits_until_it_is_acknowledged_and_what_is_booked_stays(cluster: Cluster) -> None:
    """The driver comes back with another mapping: the bound claim keeps its amount, new ones wait, and the message
    names claim, device, both amounts and the version with which the operator lets them go on.
    """
    guard = deployed(cluster)
    driver = shared_cpus(cluster)
    guarding(cluster, guard, driver)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    cluster.scheduled("p1")
    before = eventually(lambda: booked(cluster, "n1"))
    assert before == {"c1": {"cpu": "3", "memory": "1Gi"}}
    doubled = {"cpu": per("cpus", "2"), "memory": each("1Gi")}
    driver.publish([driver.device("group-0", {"cpus": "8"}, doubled, zone=0)])
    eventually(lambda: guard.metric("allocguard_pool_phase", driver=driver.name, phase="Rebuilding") == 1)
    cpu_claim(cluster, "c2", 2)
    cluster.pod("p2", claims=["c2"])

    def told() -> str:
        return next((event for event in cluster.events("p2") if "mapping-changed" in event), "")

    message = eventually(told)
    claim = f"{cluster.ns}/c1"
    assert f"device group-0 of claim {claim}, booked with cpu 3, memory 1Gi and now cpu 6, memory 1Gi" in message
    steady(lambda: not bound(cluster, "p2"), during=2)
    found = DIGEST.search(message)
    assert found is not None
    spec = {"stage": "General", "resumeAt": {"mappingDigests": [found[1]]}}
    rollout = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "spec": spec}
    cluster.as_admin.create(path("DriverRollout"), {**rollout, "metadata": {"name": driver.name}})
    assert entry(cluster, cluster.scheduled("p2"))["c2"]["cpu"] == "4"
    after = eventually(lambda: held if len(held := booked(cluster, "n1")) == 2 else None)
    assert after == {**before, "c2": {"cpu": "4", "memory": "1Gi"}}


def test_a_pod_that_the_scheduler_does_not_count_is_charged_named_and_counted(cluster: Cluster) -> None:
    """Bound without an entry before the guard came: its claim is charged, a new one is fitted beside it."""
    driver = shared_cpus(cluster, cpus="16", cpu="8")
    cpu_claim(cluster, "c1", 6)
    cluster.pod("p1", claims=["c1"], node="n1")
    cluster.allocate("c1", driver, "group-0", pod="p1", cpus="6")
    guard = deployed(cluster)
    guarding(cluster, guard, driver)
    eventually(lambda: guard.metric("allocguard_ledger_differences", kind="pod-status") == 1)
    used = {"node": cluster.name("n1"), "zone": "", "resource": "cpu", "source": "claims"}
    assert guard.metric("allocguard_ledger_used", **used) == 6
    cpu_claim(cluster, "c2", 6)
    cluster.pod("p2", claims=["c2"])
    # The scheduler would: it counts nothing of p1.
    eventually(lambda: any("node-overcommit" in event for event in cluster.events("p2")))
    steady(lambda: not bound(cluster, "p2"), during=2)
    waiting = {"driver": driver.name, "reason": "node-overcommit"}
    assert guard.metric("allocguard_claims_pending", **waiting) == 1
