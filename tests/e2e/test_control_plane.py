"""The control plane itself: what every other test here stands on."""

from __future__ import annotations

import pytest

from tests.e2e.client import ApiError
from tests.e2e.cluster import Cluster
from tests.e2e.driver import each, per
from tests.e2e.kinds import path
from tests.e2e.processes import Died
from tests.e2e.waiting import eventually


def test_a_claim_is_allocated_and_its_cost_booked(cluster: Cluster) -> None:
    """A pod with one claim on a mapped device is bound, and its status says what the claim costs the node."""
    node = cluster.node("n1")
    driver = cluster.driver("cpu.example.org", node)
    driver.publish([driver.device("numa0", {"cpus": "8"}, {"cpu": per("cpus"), "memory": each("1Gi")}, zone=0)])
    cluster.device_class("cpus", "cpu.example.org")
    cluster.claim("c1", "cpus", capacity={driver.key("cpus"): "3"})
    cluster.pod("p1", claims=["c1"])
    pod = cluster.scheduled("p1")
    assert pod["spec"]["nodeName"] == node
    [entry] = pod["status"]["nodeAllocatableResourceClaimStatuses"]
    assert entry["resourceClaimName"] == "c1"
    if cluster.minor == 36:
        assert entry == {"resourceClaimName": "c1", "containers": ["main"], "resources": {"cpu": "3", "memory": "1Gi"}}


def test_our_server_is_asked_and_its_refusal_arrives(cluster: Cluster) -> None:
    """A slice that our server finds malformed is refused, with its message."""
    node = cluster.node("n1")
    driver = cluster.driver("cpu.example.org", node)
    guard = cluster.guard(objects=[])
    guard.register()
    bad = driver.device("numa0", {"cpus": "8"}, {"memory": each("500m")})

    def refused() -> ApiError:
        with pytest.raises(ApiError) as raised:
            driver.client.create(path("ResourceSlice"), driver.slice([bad]), dryRun="All")
        assert raised.value.code == 403
        return raised.value

    assert "slice-mappings/" in eventually(refused).message
    assert guard.lines(event="listening on " + guard.url)
    guard.restart()
    refused()


def test_a_process_that_dies_is_told_with_its_log(cluster: Cluster) -> None:
    """A test does not wait for what a dead process will not do."""
    guard = cluster.guard("--policies=/nowhere", objects=[], start=False)
    guard.process.start()
    with pytest.raises(Died, match=r"guard-0 ended with code [12]:\n.*nowhere"):
        eventually(lambda: False, within=20)
