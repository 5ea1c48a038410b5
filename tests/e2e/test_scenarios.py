"""What the guard is for, end to end: real API server, real scheduler, our server registered by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import RUN, Cluster
from tests.e2e.driver import Driver, each, per
from tests.e2e.guard import Guard
from tests.e2e.guarding import admission_policy, deployed, malformed, ready, reviews
from tests.e2e.kinds import path
from tests.e2e.scenes import CLASS, cpu_claim, entry, shared_cpus
from tests.e2e.waiting import eventually, steady

DEPLOYMENT = Path(__file__).parents[2] / "deploy" / "base" / "deployment.yaml"
COSTS = {"cpu": per("cpus"), "memory": each("1Gi")}
REVIEWS = ("resourceslices", "resourceclaims", "resourceclaims/status", "pods", "pods/status", "pods/binding", "nodes")


def gpus(cluster: Cluster, node: str = "n1", mapped: bool = True) -> Driver:
    """Another driver on the same node, with one device ``gpu-0`` of the class ``gpus``, which costs 2 cpu if mapped."""
    driver = cluster.driver("gpu.example.org", node)
    driver.publish([driver.device("gpu-0", costs={"cpu": each("2")} if mapped else None)])
    cluster.device_class("gpus", "gpu.example.org")
    return driver


def guarding(cluster: Cluster, guard: Guard, *drivers: Driver) -> None:
    """Wait until ``guard`` knows the slices of ``drivers``, and is asked with Fail about their allocations."""

    def listed() -> bool:
        found = cluster.as_admin.get(path("ValidatingWebhookConfiguration", "allocguard"))
        return all(driver.name in str(found["webhooks"]) for driver in drivers)

    eventually(listed)
    # What the server of the registration goes by is a moment behind what is stored there.
    for driver in drivers:
        eventually(lambda driver=driver: "device-unknown" in refused_allocation(cluster, driver))


def refused_allocation(cluster: Cluster, driver: Driver) -> str:
    """What is said to an allocation of a device that ``driver`` does not have; a probe that stores nothing."""
    name = f"probe-{driver.name.partition('.')[0]}"
    if cluster.as_admin.find(cluster.path("ResourceClaim", name)) is None:
        cluster.claim(name, CLASS)
    body = allocation(driver, "nowhere")
    try:
        cluster.as_scheduler.patch(cluster.path("ResourceClaim", name, "status"), body, dryRun="All")
    except ApiError as error:
        return error.message
    return ""


def allocation(driver: Driver, device: str, share: str = "", **consumed: str) -> Json:
    """A status with an allocation of ``device``, ``consumed`` of it under the share ``share``."""
    result: Json = {"request": "devices", "driver": driver.name, "pool": driver.node, "device": device}
    if consumed:
        result |= {
            "consumedCapacity": {driver.key(key): amount for key, amount in consumed.items()},
            "shareID": share,
        }
    field = {"key": "metadata.name", "operator": "In", "values": [driver.node]}
    terms = [{"matchFields": [field]}]
    return {"status": {"allocation": {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}}}


def denials(guard: Guard) -> list[str]:
    """The messages of the reviews that ``guard`` refused."""
    return [line["message"] for line in guard.lines(event="denied")]


def bound(cluster: Cluster, pod: str) -> str:
    """The node of the pod; empty while it has none."""
    node: str = cluster.get("Pod", pod)["spec"].get("nodeName", "")
    return node


def hold(cluster: Cluster, driver: Driver, reason: str) -> None:
    """Hold every new claim on ``driver``."""
    spec = {"stage": "General", "hold": {"reason": reason, "by": "on-call", "since": "2026-11-20T09:00:00Z"}}
    cluster.as_admin.create(
        path("DriverRollout"),
        {
            "apiVersion": "allocguard.dev/v1alpha1",
            "kind": "DriverRollout",
            "metadata": {"name": driver.name},
            "spec": spec,
        },
    )


def test_a_malformed_slice_is_refused_to_a_driver_with_its_own_token(cluster: Cluster) -> None:
    """A driver that publishes what no scheduler can count is told so, by its node-bound token or anybody's."""
    guard = deployed(cluster)
    node = cluster.node("n1")
    driver = cluster.driver("cpu.example.org", node)
    with pytest.raises(ApiError) as raised:
        driver.publish([malformed(driver)])
    assert (raised.value.code, raised.value.reason) == (403, "Forbidden")
    assert "slice-mappings/product-overflow: spec.devices[0]." in raised.value.message
    assert raised.value.causes[0]["field"].startswith("spec.devices[0].")
    # Written beside the answer, not before it.
    assert eventually(lambda: guard.lines(event="denied"))[-1]["user"] == driver.user
    driver.publish([driver.device("group-0", {"cpus": "8"}, COSTS)])
    with pytest.raises(ApiError, match="product-overflow"):
        driver.publish([driver.device("group-0", {"cpus": "8"}, COSTS), malformed(driver)])
    stored = cluster.as_admin.get(path("ResourceSlice", driver.slice([])["metadata"]["name"]))
    assert [device["name"] for device in stored["spec"]["devices"]] == ["group-0"]


def test_a_claim_waits_while_the_pool_is_incomplete_and_is_admitted_when_it_is_whole(cluster: Cluster) -> None:
    """With one of two slices there nobody gets a device of the pool: not the scheduler, and not one that tries."""
    guard = deployed(cluster)
    node = cluster.node("n1")
    driver = cluster.driver("cpu.example.org", node)
    cluster.device_class(CLASS, "cpu.example.org")
    first, second = (driver.device(f"group-{number}", {"cpus": "8"}, COSTS) for number in range(2))
    driver.publish([first], count=2, index=0)
    cpu_claim(cluster, "waiting", 3)
    cluster.pod("p1", claims=["waiting"])
    cpu_claim(cluster, "hasty", 3)
    hasty = cluster.get("ResourceClaim", "hasty")["metadata"]["uid"]
    body = allocation(driver, "group-0", hasty, cpus="3")

    def said() -> str:
        try:
            cluster.as_scheduler.patch(cluster.path("ResourceClaim", "hasty", "status"), body, dryRun="All")
        except ApiError as error:
            return error.message
        return ""

    eventually(lambda: "claim-allocation/pool-incomplete" in said())
    steady(lambda: not bound(cluster, "p1"), during=2)
    driver.publish([second], count=2, index=1)
    assert entry(cluster, cluster.scheduled("p1"))["waiting"]["cpu"] == "3"
    eventually(lambda: not said())
    assert any("pool-incomplete" in message for message in denials(guard))


def test_the_event_of_the_pod_explains_why_its_claim_waits(cluster: Cluster) -> None:
    """A pool that lost its mappings books nothing: its claims wait, the pod's event has our whole message, which is
    that of a refused allocation, and the pod goes on by itself when the mappings are back.
    """
    guard = deployed(cluster)
    driver = shared_cpus(cluster)
    cpu_claim(cluster, "before", 2)
    cluster.pod("p0", claims=["before"])
    cluster.scheduled("p0")
    guarding(cluster, guard, driver)
    cpu_claim(cluster, "waiting", 3)
    body = allocation(driver, "group-0", cluster.get("ResourceClaim", "waiting")["metadata"]["uid"], cpus="3")

    def refused() -> str:
        try:
            cluster.as_scheduler.patch(cluster.path("ResourceClaim", "waiting", "status"), body, dryRun="All")
        except ApiError as error:
            return error.message
        return ""

    driver.publish([driver.device("group-0", {"cpus": "8"}, zone=0)], generation=2)
    message = eventually(refused)
    assert "claim-allocation/mapping-lost: status.allocation.devices.results[0]" in message
    cluster.pod("p1", claims=["waiting"])
    [event] = eventually(lambda: cluster.events("p1", "ClaimsHeld"))
    assert event.startswith("mapping-lost: has ")
    assert event.removeprefix("mapping-lost: ") in message
    assert "; " in event, "says what to do"
    assert cluster.events("p1", "FailedScheduling") == []
    assert not bound(cluster, "p1")
    driver.publish([driver.device("group-0", {"cpus": "8"}, COSTS, zone=0)], generation=3)
    assert entry(cluster, cluster.scheduled("p1"))["waiting"]["cpu"] == "3"


def test_a_pod_of_which_one_claim_is_held_is_never_bound_uncounted(cluster: Cluster) -> None:
    """Two mapped claims, one of a driver on hold: the pod waits, and is bound with both counted once the hold ends."""
    guard = deployed(cluster)
    cpus = shared_cpus(cluster)
    gpu = gpus(cluster)
    hold(cluster, gpu, "books half")
    guarding(cluster, guard, cpus)
    eventually(lambda: "held" in refused_allocation(cluster, gpu))
    cpu_claim(cluster, "c1", 3)
    cluster.claim("c2", "gpus")
    cluster.pod("p1", claims=["c1", "c2"], cpu="1")
    eventually(lambda: any("books half" in event for event in cluster.events("p1")))
    # Time for three attempts and more.
    steady(lambda: not bound(cluster, "p1"), during=4)
    if cluster.minor == 36:
        # Judged together: not one of the two is left allocated, which would be taken for uncounted later.
        assert "allocation" not in cluster.get("ResourceClaim", "c1").get("status", {})
    cluster.as_admin.delete(path("DriverRollout", gpu.name))
    pod = cluster.scheduled("p1")
    assert entry(cluster, pod) == {"c1": {"cpu": "3", "memory": "1Gi"}, "c2": {"cpu": "2"}}


def test_a_pod_whose_second_claim_is_refused_for_a_reason_nobody_foresaw_is_never_bound_uncounted(
    cluster: Cluster,
) -> None:
    """One claim is allocated, the other refused by a rule about its very allocation: the pod is not bound with the
    first left out of the account. The message names the way out, and the way out works.
    """
    guard = deployed(cluster)
    driver = shared_cpus(cluster, devices=1)
    gpu = gpus(cluster)
    policy = admission_policy(
        cluster.name("no-gpu"),
        ["resourceclaims/status"],
        ["UPDATE"],
        "resource.k8s.io",
        matchConditions=[{"name": "allocates", "expression": f"claim.allocating && claim.namespace == '{cluster.ns}'"}],
        validations=[{"name": "no-gpu", "expression": f"!('{gpu.name}' in claim.drivers)", "message": "not today"}],
    )
    cluster.create("AdmissionPolicy", policy)
    ready(cluster, "no-gpu", 1)
    guarding(cluster, guard, driver, gpu)
    cpu_claim(cluster, "c1", 3)
    cluster.claim("c2", "gpus")
    cluster.pod("p1", claims=["c1", "c2"], cpu="1")
    eventually(lambda: any("not today" in event for event in cluster.events("p1")))
    steady(lambda: not bound(cluster, "p1"), during=4)
    cluster.delete("AdmissionPolicy", "no-gpu")
    # The scheduler writes the claims in the order of the pod: the first stays allocated, and reserved for nobody.
    assert "allocation" in cluster.get("ResourceClaim", "c1")["status"]
    if cluster.minor == 36:
        told = eventually(lambda: [text for text in cluster.events("p1") if "pre-allocated-uncounted" in text])
        assert f"delete claim {cluster.ns}/c1" in told[0]
        steady(lambda: not bound(cluster, "p1"), during=3)
        cluster.delete("Pod", "p1")
        cluster.delete("ResourceClaim", "c1")
        eventually(lambda: cluster.as_admin.find(cluster.path("ResourceClaim", "c1")) is None)
        cluster.delete("ResourceClaim", "c2")
        eventually(lambda: cluster.as_admin.find(cluster.path("ResourceClaim", "c2")) is None)
        cpu_claim(cluster, "c1", 3)
        cluster.claim("c2", "gpus")
        cluster.pod("p1", claims=["c1", "c2"], cpu="1")
    pod = cluster.scheduled("p1")
    assert entry(cluster, pod) == {"c1": {"cpu": "3", "memory": "1Gi"}, "c2": {"cpu": "2"}}


def test_with_the_webhook_killed_the_cluster_goes_on_as_the_failure_policies_say(cluster: Cluster) -> None:
    """Nobody answers: what would spoil accounts is refused, everything else passes, and when the server is back the
    pods that waited are bound and counted.
    """
    guard = deployed(cluster)
    driver = shared_cpus(cluster)
    other = gpus(cluster, mapped=False)
    guarding(cluster, guard, driver)
    guard.kill()
    with pytest.raises(ApiError, match="failed calling webhook") as raised:
        driver.publish([driver.device("group-0", {"cpus": "6"}, COSTS, zone=0)], generation=2)
    assert "mapped-slices.allocguard.dev" in raised.value.message
    with pytest.raises(ApiError, match="failed calling webhook"):
        driver.publish([driver.device("group-0", {"cpus": "8"}, zone=0)], generation=2)
    other.publish([other.device("gpu-0"), other.device("gpu-1")], generation=2)
    cpu_claim(cluster, "mapped", 3)
    cluster.claim("plain", "gpus")
    cluster.pod("p-mapped", claims=["mapped"])
    cluster.pod("p-plain", claims=["plain"])
    cluster.pod("p-none", cpu="1")
    cluster.scheduled("p-plain")
    cluster.scheduled("p-none")
    eventually(lambda: any("failed calling webhook" in event for event in cluster.events("p-mapped")))
    assert "allocation" not in cluster.get("ResourceClaim", "mapped").get("status", {})
    cluster.as_admin.patch(path("Node", driver.node), {"metadata": {"labels": {"example.org/x": "y"}}})
    guard.start()
    assert entry(cluster, cluster.scheduled("p-mapped"))["mapped"]["cpu"] == "3"
    driver.publish([driver.device("group-0", {"cpus": "6"}, COSTS, zone=0)], generation=2)


@pytest.mark.parametrize("alive", [True, False], ids=["serving", "killed"])
def test_deletes_by_kubelet_and_garbage_collector_are_never_blocked(cluster: Cluster, alive: bool) -> None:
    """Slices go with their node and with their kubelet, claims with their pod, whether the webhook answers or not."""
    guard = deployed(cluster)
    driver = shared_cpus(cluster)
    gpu = gpus(cluster)
    key = driver.key("cpus")
    cluster.claim_template("template", CLASS, capacity={key: "2"})
    cluster.pod("p1", templates=["template"])
    cluster.scheduled("p1")
    [claim] = cluster.as_admin.items(cluster.path("ResourceClaim"))
    name = claim["metadata"]["name"]
    guarding(cluster, guard, driver, gpu)
    mine, others = (each.slice([])["metadata"]["name"] for each in (driver, gpu))
    node = cluster.get("Node", "n1")
    owner = {"apiVersion": "v1", "kind": "Node", "name": driver.node, "uid": node["metadata"]["uid"]}
    cluster.as_admin.patch(path("ResourceSlice", others), {"metadata": {"ownerReferences": [owner]}})
    if not alive:
        guard.kill()
    # The claim's controller takes the consumer and the allocation away, the collector the claim itself.
    cluster.delete("Pod", "p1")
    eventually(lambda: cluster.as_admin.find(cluster.path("ResourceClaim", name)) is None)
    selector = f"spec.nodeName={driver.node},spec.driver={driver.name}"
    cluster.as_kubelet("n1").delete(path("ResourceSlice"), fieldSelector=selector)
    assert cluster.as_admin.find(path("ResourceSlice", mine)) is None
    cluster.delete("Node", "n1")
    eventually(lambda: cluster.as_admin.find(path("ResourceSlice", others)) is None)
    assert not alive or not [each for each in guard.lines(event="denied") if each["operation"] == "DELETE"]


def test_a_dry_run_has_the_same_verdict_and_no_effect(cluster: Cluster) -> None:
    """What a dry run is told is what the write is told, and it leaves nothing behind."""
    guard = deployed(cluster)
    node = cluster.node("n1", cpu="8")
    driver = cluster.driver("cpu.example.org", node)
    bad, good = [malformed(driver)], [driver.device("group-0", {"cpus": "8"}, COSTS)]

    def slice_said(devices: list[Json], **params: str) -> str:
        try:
            driver.client.create(path("ResourceSlice"), driver.slice(devices), **params)
        except ApiError as error:
            return error.message
        return ""

    assert slice_said(bad, dryRun="All") == slice_said(bad) != ""
    assert slice_said(good, dryRun="All") == ""
    assert cluster.as_admin.find(path("ResourceSlice", driver.slice([])["metadata"]["name"])) is None
    assert slice_said(good) == ""
    cluster.device_class(CLASS, "cpu.example.org")
    guarding(cluster, guard, driver)
    shares = {}
    for name in ("c1", "c2"):
        shares[name] = cpu_claim(cluster, name, 6)["metadata"]["uid"]

    def claim_said(name: str, device: str, **params: str) -> str:
        where = cluster.path("ResourceClaim", name, "status")
        try:
            cluster.as_scheduler.patch(where, allocation(driver, device, shares[name], cpus="6"), **params)
        except ApiError as error:
            return error.message
        return ""

    assert "device-unknown" in claim_said("c1", "nowhere", dryRun="All")
    assert claim_said("c1", "nowhere", dryRun="All") == claim_said("c1", "nowhere")
    # Six of eight cpus, tried dry three times, are there for the claim that takes them in earnest.
    for name in ("c1", "c1", "c2"):
        assert claim_said(name, "group-0", dryRun="All") == ""
    assert "allocation" not in cluster.get("ResourceClaim", "c1").get("status", {})
    assert claim_said("c2", "group-0") == ""
    eventually(lambda: claim_said("c1", "group-0", dryRun="All"))
    assert claim_said("c1", "group-0", dryRun="All") == claim_said("c1", "group-0")


def test_no_heartbeat_of_a_kubelet_is_delivered(cluster: Cluster) -> None:
    """A kubelet's status of its node, its lease and its pods' containers never wait for us, even where a policy is
    about nodes; what the policy is about does.
    """
    guard = deployed(cluster)
    shared_cpus(cluster)
    policy = admission_policy(
        cluster.name("nodes"),
        ["nodes", "nodes/status"],
        ["UPDATE"],
        validations=[{"name": "fine", "expression": "true"}],
    )
    cluster.create("AdmissionPolicy", policy)
    ready(cluster, "nodes", 1)
    cpu_claim(cluster, "c1", 3)
    cluster.pod("p1", claims=["c1"])
    cluster.scheduled("p1")
    node = path("Node", cluster.name("n1"))
    kubelet = cluster.as_kubelet("n1")
    labels = iter(range(1000))

    def label_arrives() -> bool:
        before = reviews(guard, "nodes")
        cluster.as_admin.patch(node, {"metadata": {"labels": {"example.org/x": f"x{next(labels)}"}}})
        return reviews(guard, "nodes") > before

    eventually(label_arrives)

    def delivered() -> float:
        return guard.metric("allocguard_admission_reviews_total")

    before = delivered()
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    kubelet.create(lease, {"metadata": {"name": cluster.name("n1")}, "spec": {"holderIdentity": cluster.name("n1")}})
    for beat in range(5):
        stamp = f"2026-11-30T12:00:0{beat}Z"
        kubelet.patch(f"{lease}/{cluster.name('n1')}", {"spec": {"renewTime": f"2026-11-30T12:00:0{beat}.000000Z"}})
        condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": stamp}
        kubelet.patch(f"{node}/status", {"status": {"conditions": [condition]}}, "strategic")
        started = {"name": "main", "ready": True, "restartCount": beat, "image": "x", "imageID": "x"}
        containers = [{**started, "state": {"running": {"startedAt": stamp}}}]
        body = {"status": {"phase": "Running", "containerStatuses": containers}}
        kubelet.patch(cluster.path("Pod", "p1", "status"), body, "strategic")
    assert delivered() == before
    assert cluster.get("Pod", "p1")["status"]["containerStatuses"][0]["restartCount"] == 4


def test_with_all_replicas_down_our_own_deployment_comes_up(cluster: Cluster) -> None:
    """Nothing in our own namespace is ever sent to us, so nothing there waits for a server that is not there."""
    guard = deployed(cluster)
    node = cluster.node("n1")
    own = cluster.name("guard")
    policy = admission_policy(
        cluster.name("no-pods"), ["pods"], ["CREATE"], validations=[{"name": "none", "expression": "false"}]
    )
    cluster.create("AdmissionPolicy", policy)

    def refused() -> bool:
        container = {"name": "main", "image": "registry.invalid/pause:1"}
        pod = {"metadata": {"name": "refused"}, "spec": {"containers": [container]}}
        try:
            cluster.as_admin.create(cluster.path("Pod"), pod, dryRun="All")
        except ApiError as error:
            return f"{cluster.name('no-pods')}/none" in error.message
        return False

    eventually(refused)
    deployments = f"/apis/apps/v1/namespaces/{own}/deployments"
    wanted = yaml.safe_load(DEPLOYMENT.read_text())
    wanted["metadata"]["namespace"] = own
    template = wanted["spec"]["template"]["spec"]
    template["nodeSelector"] = {RUN: cluster.tag}
    before = guard.metric("allocguard_admission_reviews_total")
    cluster.as_admin.create(deployments, wanted)

    def nodes() -> list[str]:
        pods = cluster.as_admin.items(path("Pod", namespace=own))
        return [pod["spec"].get("nodeName", "") for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    replicas = wanted["spec"]["replicas"]
    eventually(lambda: nodes() == [node] * replicas)
    assert guard.metric("allocguard_admission_reviews_total") == before
    guard.kill()
    for pod in cluster.as_admin.items(path("Pod", namespace=own)):
        cluster.as_admin.delete(path("Pod", pod["metadata"]["name"], own), gracePeriodSeconds="0")
    eventually(lambda: nodes() == [node] * replicas)
    cluster.as_admin.delete(f"{deployments}/{wanted['metadata']['name']}", propagationPolicy="Foreground")
    for pod in cluster.as_admin.items(path("Pod", namespace=own)):
        cluster.as_admin.gone(path("Pod", pod["metadata"]["name"], own), gracePeriodSeconds="0")
