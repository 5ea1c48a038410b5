"""What the guard makes of feature gates, which it reads from the API server itself."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import GATE
from tests.e2e.driver import Driver, per
from tests.e2e.guarding import reviews
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually


def publish(driver: Driver) -> list[str]:
    """Publish a device that costs cpu; the warnings of that write."""
    driver.publish([driver.device("numa0", {"cpus": "8"}, {"cpu": per("cpus")})])
    return driver.client.warnings


def test_a_driver_is_told_of_mappings_that_would_be_dropped(fresh_cluster: Callable[..., Cluster]) -> None:
    """With the gate off the API server drops mappings without a word; the guard warns the driver and names the gate."""
    cluster = fresh_cluster(gates={GATE: False})
    guard = cluster.guard()
    assert f"{GATE} is off" in guard.get("/readyz?verbose").text
    driver = cluster.driver("cpu.example.org", cluster.node("n1"))
    # The registration is live a moment after it is written.
    assert GATE in eventually(lambda: next((each for each in publish(driver) if "gate" in each), ""))


def test_a_gate_that_is_on_is_no_matter(cluster: Cluster) -> None:
    """With the gate on nothing is said about it, by a guard that is asked, and the devices keep what they cost."""
    guard = cluster.guard()
    assert GATE not in guard.get("/readyz?verbose").text
    driver = cluster.driver("cpu.example.org", cluster.node("n1"))

    def asked() -> float:
        # The endpoint that tells of gates.
        return reviews(guard, "resourceslices", endpoint="mutate/sent-mapped-slices")

    def told() -> list[list[str]]:
        """The warnings of a write that the guard was asked about; nothing while it is not."""
        driver.withdraw()
        before, warnings = asked(), publish(driver)
        return [warnings] if asked() > before else []

    [warnings] = eventually(told)
    assert not any("gate" in each for each in warnings)
    [stored] = cluster.as_admin.items(path("ResourceSlice"), fieldSelector=f"spec.driver={driver.name}")
    assert driver.device("numa0", {"cpus": "8"}, {"cpu": per("cpus")}).items() <= stored["spec"]["devices"][0].items()
