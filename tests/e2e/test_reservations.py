"""What is allowed is held: the NodeLedger of a node between admission and the moment everybody sees it."""

from __future__ import annotations

from tests.e2e.cluster import Cluster
from tests.e2e.guarding import deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.waiting import eventually
from webhook.kube.node_ledger import NodeLedger, read_node_ledger


def ledger(cluster: Cluster, node: str) -> NodeLedger:
    """The ledger of the test's node."""
    return read_node_ledger(cluster.get("NodeLedger", node))


def sums(cluster: Cluster, node: str, resource: str = "cpu") -> dict[str, str]:
    """What the ledger tells people about a resource of the node."""
    found: dict[str, str] = cluster.get("NodeLedger", node)["status"]["resources"][resource]
    return found


def test_a_claim_is_reserved_charged_and_released(cluster: Cluster) -> None:
    """The scheduler's own pod, from its allocation to its end."""
    guard = deployed(cluster)
    driver = shared_cpus(cluster, cpu="16")
    cpu_claim(cluster, "c1", 3)
    eventually(lambda: sums(cluster, "n1")["free"] == "16")
    eventually(lambda: guard.metric("allocguard_pool_phase", driver=driver.name, phase="Fresh") == 1)
    cluster.pod("p1", claims=["c1"], cpu="1")
    cluster.scheduled("p1")
    assert guard.metric("allocguard_reservations_total", outcome="taken") == 1
    rows = eventually(lambda: ledger(cluster, "n1").charges)
    assert {row.resource: row.amount for row in rows} == {"cpu": 3, "memory": 1 << 30}
    assert {row.zone for row in rows} == {0}
    eventually(
        lambda: (
            sums(cluster, "n1") | {"allocatable": ""}
            == {"allocatable": "", "pods": "1", "claims": "3", "overhead": "0", "reserved": "0", "free": "12"}
        )
    )
    cluster.delete("Pod", "p1")
    eventually(lambda: sums(cluster, "n1")["free"] == "16", within=40)
    assert ledger(cluster, "n1").charges == ()
