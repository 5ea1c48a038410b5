"""What several tests begin with."""

from __future__ import annotations

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver, each, per
from tests.e2e.kinds import path

CLASS = "cpus"
CPU_DRIVER = "cpu.example.org"
WRITES = (
    "resource.k8s.io/resourceclaims",
    "resource.k8s.io/resourceclaims/status",
    "/pods",
    "/pods/status",
    "/pods/binding",
)


def shared_cpus(cluster: Cluster, node: str = "n1", cpus: str = "8", devices: int = 1, **allocatable: str) -> Driver:
    """A node whose driver shares ``devices`` groups of ``cpus`` CPUs, each of which costs a cpu of the node, and 1Gi of
    memory for each group used; and a class ``cpus`` for them, wherever they are.
    """
    cluster.node(node, **allocatable)  # type: ignore[arg-type] # amounts only
    driver = cluster.driver(CPU_DRIVER, node)
    costs = {"cpu": per("cpus"), "memory": each("1Gi")}
    driver.publish([driver.device(f"group-{n}", {"cpus": cpus}, costs, zone=n) for n in range(devices)])
    cpu_class(cluster)
    return driver


def cpu_class(cluster: Cluster) -> None:
    """The class ``cpus``, where it is not there yet."""
    if cluster.as_admin.find(path("DeviceClass", cluster.name(CLASS))) is None:
        cluster.device_class(CLASS, CPU_DRIVER)


def cpu_claim(cluster: Cluster, name: str, cpus: int) -> Json:
    """A claim on ``cpus`` CPUs of one group."""
    key = f"{cluster.name(CPU_DRIVER)}/cpus"
    return cluster.claim(name, CLASS, capacity={key: str(cpus)})


def entry(cluster: Cluster, pod: Json) -> dict[str, dict[str, str]]:
    """What the scheduler wrote that the claims of ``pod`` cost, by claim and resource, in either release's words."""
    found: dict[str, dict[str, str]] = {}
    for each_entry in pod["status"].get("nodeAllocatableResourceClaimStatuses") or []:
        if cluster.minor < 37:
            amounts = each_entry["resources"]
        else:
            amounts = {each_amount["name"]: each_amount["quantity"] for each_amount in each_entry.get("mapping", [])}
        found[each_entry["resourceClaimName"]] = amounts
    return found


def refusal(error: ApiError) -> tuple[int, str, list[tuple[str, str]]]:
    """Code, reason, and the causes as (field, reason)."""
    return error.code, error.reason, [(cause.get("field", ""), cause.get("reason", "")) for cause in error.causes]
