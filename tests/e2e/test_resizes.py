"""Resizes in place: what a pod grows by must not be what claims cost its node."""

from __future__ import annotations

import pytest

from tests.e2e.client import ApiError
from tests.e2e.cluster import Cluster
from tests.e2e.guard import Guard
from tests.e2e.guarding import deployed, reviews
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.test_scenarios import guarding
from tests.e2e.waiting import eventually


def resize(cluster: Cluster, pod: str, cpu: str, **options: str) -> None:
    """Have the pod ask for ``cpu``."""
    sized = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
    cluster.as_admin.patch(cluster.path("Pod", pod, "resize"), sized, "strategic", **options)


def refusal(cluster: Cluster, pod: str, cpu: str) -> str:
    """What would be answered to a resize to ``cpu``; empty where it would pass."""
    try:
        resize(cluster, pod, cpu, dryRun="All")
    except ApiError as error:
        return f"{error.code} {error.reason}: {error.message}"
    return ""


def asked_for(cluster: Cluster, pod: str) -> str:
    """The cpu that the stored pod asks for."""
    asked: str = cluster.get("Pod", pod)["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    return asked


def charged(cluster: Cluster, guard: Guard, source: str) -> float:
    """The cpus of the node that the ledger has for ``source``."""
    labels = {"node": cluster.name("n1"), "zone": "", "resource": "cpu", "source": source}
    return guard.metric("allocguard_ledger_used", **labels)


def test_a_pod_grows_into_what_claims_leave_and_no_further(cluster: Cluster) -> None:
    """Of 8 cpus a claim costs 3. The pod without a claim is refused on both releases; the one with it may be resized on
    1.37 only, and 1.36 refuses that before anybody is asked.
    """
    driver = shared_cpus(cluster, cpu="8")
    guard = deployed(cluster)
    guarding(cluster, guard, driver)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"], cpu="1")
    cluster.scheduled("p1")
    cluster.pod("p2", cpu="1")
    cluster.scheduled("p2")
    eventually(lambda: (charged(cluster, guard, "claims"), charged(cluster, guard, "pods")) == (3, 2))

    node = cluster.name("n1")
    assert eventually(lambda: refusal(cluster, "p2", "5")) == (
        '403 Forbidden: admission webhook "pod-resizes.allocguard.dev" denied the request: '
        f"pod-resize/node-overcommit: spec: has cpu 5 for pod {cluster.ns}/p2 on node {node} "
        "(8 allocatable - 1 pods - 3 claims - 5 this pod = -1), "
        "needs at most 4, which is what is free there; ask for less, or release a claim or move a pod there"
    )
    with pytest.raises(ApiError, match="pod-resize/node-overcommit"):
        resize(cluster, "p2", "4001m")
    assert asked_for(cluster, "p2") == "1"
    resize(cluster, "p2", "4")
    eventually(lambda: charged(cluster, guard, "pods") == 5)

    before = reviews(guard, "pods/resize")
    if cluster.minor == 36:
        with pytest.raises(ApiError) as raised:
            resize(cluster, "p1", "500m")
        assert raised.value.code == 422
        assert reviews(guard, "pods/resize") == before
        return
    assert "pod-resize/node-overcommit" in refusal(cluster, "p1", "1001m")
    resize(cluster, "p1", "500m")
    eventually(lambda: charged(cluster, guard, "pods") == 4.5)
    resize(cluster, "p1", "1")
    assert asked_for(cluster, "p1") == "1"


def test_what_a_pod_still_holds_counts_while_its_own_request_shrinks(cluster: Cluster) -> None:
    """A pod-level request of 2, of which the kubelet says that 5 are in force, is 5 for the scheduler and for us."""
    shared_cpus(cluster, cpu="8")
    guard = deployed(cluster)
    cluster.pod("p1", cpu="1", spec={"resources": {"requests": {"cpu": "2"}}})
    cluster.scheduled("p1")
    eventually(lambda: charged(cluster, guard, "pods") == 2)
    holds(cluster, "p1", "5")
    eventually(lambda: charged(cluster, guard, "pods") == 5)
    cluster.pod("p2", cpu="4")
    eventually(lambda: any("Insufficient cpu" in each for each in cluster.events("p2", "FailedScheduling")))
    holds(cluster, "p1", "2")
    cluster.scheduled("p2")
    eventually(lambda: charged(cluster, guard, "pods") == 6)


def holds(cluster: Cluster, pod: str, cpu: str) -> None:
    """The kubelet writes that ``cpu`` is in force for the whole pod."""
    status = {"allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": cpu}}}
    cluster.as_kubelet("n1").patch(cluster.path("Pod", pod, "status"), {"status": status})
