"""A machine that takes the name of another: the ledger is the new one's, and is not written for ever."""

from __future__ import annotations

from tests.e2e.cluster import Cluster
from tests.e2e.guarding import deployed
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.waiting import eventually, steady
from webhook.kube.node_ledger import NodeLedger, read_node_ledger


def ledger(cluster: Cluster) -> NodeLedger:
    """The ledger of n1."""
    return read_node_ledger(cluster.get("NodeLedger", "n1"))


def test_the_ledger_of_a_node_made_again_is_written_for_the_new_one_and_then_no_more(cluster: Cluster) -> None:
    guard = deployed(cluster)
    driver = shared_cpus(cluster, cpu="16")
    cpu_claim(cluster, "c1", 3)
    eventually(lambda: guard.metric("allocguard_pool_phase", driver=driver.name, phase="Fresh") == 1)
    cluster.pod("p1", claims=["c1"], cpu="1")
    cluster.scheduled("p1")
    eventually(lambda: ledger(cluster).charges)
    cluster.delete("Node", "n1")
    cluster.node("n1", cpu="16")
    uid = cluster.get("Node", "n1")["metadata"]["uid"]
    eventually(lambda: ledger(cluster).node_uid == uid)
    # Sums may follow within ten seconds.
    versions: set[str] = set()

    def quiet() -> bool:
        versions.add(ledger(cluster).resource_version)
        return len(versions) <= 3

    steady(quiet, during=6)
