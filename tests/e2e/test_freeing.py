"""The optional controller that frees claims which a failed attempt of a 1.36 scheduler left allocated."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver
from tests.e2e.guarding import deployed
from tests.e2e.kinds import path
from tests.e2e.processes import Process
from tests.e2e.scenes import cpu_claim, entry, shared_cpus
from tests.e2e.test_scenarios import guarding
from tests.e2e.waiting import eventually, steady

ACCOUNT = "allocguard-free-claims"
COMPONENT = Path(__file__).parents[2] / "deploy" / "components" / "free-claims"
# The command, which waits for two seconds instead of thirty.
COMMAND = (
    "from webhook.controllers import freeing; freeing.LEFT = 2.0; from webhook.cli.program import program; program()"
)


def role() -> Json:
    """The ClusterRole of the component."""
    objects: list[Json] = list(yaml.safe_load_all((COMPONENT / "clusterrole.yaml").read_text()))
    return next(obj for obj in objects if obj["kind"] == "ClusterRole")


@contextmanager
def freeing(cluster: Cluster, rules: list[Json], namespace: str = "") -> Iterator[Process]:
    """The controller by the component's account in ``namespace``, with the rights of ``rules`` and no other."""
    cluster.service_account(ACCOUNT, rules, namespace)
    token = cluster.token(ACCOUNT, namespace=namespace)
    kubeconfig = cluster.plane.kubeconfig(f"free-claims-{cluster.tag}", token=token)
    command = [sys.executable, "-c", COMMAND, "free", f"--kubeconfig={kubeconfig}"]
    cluster.folder.mkdir(parents=True, exist_ok=True)
    process = Process("free-claims", command, cluster.folder / "free-claims.log")
    process.start()
    try:
        yield process
    finally:
        assert process.stop() == 0


def named(cluster: Cluster, driver: Driver) -> None:
    """Name the writers of ``driver``, and wait until the guard goes by them: nobody else frees its claims."""
    metadata, writers = {"name": driver.name}, [{"namespace": cluster.ns, "serviceAccount": driver.account}]
    document = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": metadata}
    cluster.as_admin.create(path("DriverRollout"), {**document, "spec": {"writers": writers}})
    cluster.service_account(ACCOUNT, role()["rules"])
    stranger = cluster.token_client(cluster.token(ACCOUNT))

    def said() -> str:
        try:
            stranger.patch(
                cluster.path("ResourceClaim", "c1", "status"), {"status": {"allocation": None}}, dryRun="All"
            )
        except ApiError as error:
            return error.message
        return ""

    eventually(lambda: "allocation-by-stranger" in said())


def test_a_claim_that_was_left_allocated_is_freed_and_its_pod_bound_and_counted(cluster: Cluster) -> None:
    """The guard refuses the pod its claim, which would be bound uncounted; freed, it is allocated anew, and counted.
    Both are in a namespace of their own, and the driver's writers are named.
    """
    if cluster.minor != 36:
        pytest.skip("later releases count such a claim")
    driver = shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    left = cluster.allocate("c1", driver, "group-0", cpus="3")["status"]["allocation"]
    guard = deployed(cluster)
    guarding(cluster, guard, driver)
    named(cluster, driver)
    cluster.pod("p1", claims=["c1"])
    eventually(lambda: any("pre-allocated-uncounted" in event for event in cluster.events("p1")))
    with freeing(cluster, role()["rules"], cluster.name("guard")):
        pod = cluster.scheduled("p1", within=60)
        assert entry(cluster, pod) == {"c1": {"cpu": "3", "memory": "1Gi"}}
        anew = cluster.get("ResourceClaim", "c1")["status"]["allocation"]
        assert anew["devices"]["results"][0]["shareID"] != left["devices"]["results"][0]["shareID"]
        assert any("left allocated" in event for event in cluster.events("p1", "AllocationFreed"))
        assert cluster.events("c1", "AllocationFreed")
        # What is in use stays.
        steady(lambda: cluster.get("ResourceClaim", "c1")["status"]["allocation"] == anew, during=3)


def test_without_the_right_to_allocate_nothing_is_freed(cluster: Cluster) -> None:
    """What takes an allocation away is the right to allocate, which the guard's own account does not have."""
    if cluster.minor != 36:
        pytest.skip("later releases count such a claim")
    driver = shared_cpus(cluster)
    cpu_claim(cluster, "c1", 3)
    cluster.allocate("c1", driver, "group-0", cpus="3")
    # Nothing may bind it meanwhile: a pod that no scheduler looks at.
    cluster.pod("p1", claims=["c1"], spec={"schedulerName": "nobody"})
    rules = [
        {**rule, "resources": [name for name in rule["resources"] if name != "resourceclaims/binding"]}
        if "resources" in rule
        else rule
        for rule in role()["rules"]
    ]
    with freeing(cluster, rules) as process:
        eventually(lambda: "resourceclaims/binding" in process.log.read_text())
        assert "allocation" in cluster.get("ResourceClaim", "c1")["status"]
