"""Pods whose claims have to wait: held by a scheduling gate, told why, and let go by the guard, whatever befalls it."""

from __future__ import annotations

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.driver import Driver
from tests.e2e.guard import Guard
from tests.e2e.guarding import admission_policy, deployed, kubelet, reviews
from tests.e2e.kinds import path
from tests.e2e.scenes import cpu_claim, entry, shared_cpus
from tests.e2e.test_install import Installed
from tests.e2e.test_scenarios import bound, guarding
from tests.e2e.waiting import eventually, steady
from webhook.kube.core import GATE
from webhook.kube.object_event import CLAIMS_HELD

HOLD = {"reason": "books half", "by": "on-call"}
REASON = "needs the hold to be taken back"


def hold(cluster: Cluster, guard: Guard, driver: Driver) -> None:
    """Hold ``driver``; new pods with claims on it get the gate when this returns."""
    spec = {"stage": "General", "hold": HOLD}
    rollout = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "spec": spec}
    cluster.as_admin.create(path("DriverRollout"), {**rollout, "metadata": {"name": driver.name}})
    eventually(lambda: guard.metric("allocguard_rollout_hold", driver=driver.name) == 1)


def gated(cluster: Cluster, name: str) -> list[str]:
    """The scheduling gates of a pod."""
    return [gate["name"] for gate in cluster.get("Pod", name)["spec"].get("schedulingGates", [])]


def probed(cluster: Cluster, claim: str) -> Json:
    """What would become of a new pod with ``claim``; what the guard says to it are the client's warnings."""
    container = {"name": "main", "image": "registry.invalid/pause:1", "resources": {"claims": [{"name": "c"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "c", "resourceClaimName": claim}]}
    probe = {"metadata": {"name": "probe"}, "spec": spec}
    return cluster.as_admin.create(path("Pod", namespace=cluster.ns), probe, dryRun="All")


def warned(cluster: Cluster) -> bool:
    """Whether the last answer told that the driver is held."""
    return any("pod-hold/driver-held" in each and REASON in each for each in cluster.as_admin.warnings)


def holding(cluster: Cluster, claim: str) -> None:
    """Wait until a new pod with ``claim`` would get the gate: we are asked about it, and somebody may lift it."""
    eventually(lambda: probed(cluster, claim)["spec"].get("schedulingGates") == [{"name": GATE}])


def resume(cluster: Cluster, driver: Driver) -> None:
    """Take the hold back."""
    cluster.as_admin.patch(path("DriverRollout", driver.name), {"spec": {"hold": None}})


def told(cluster: Cluster, pod: str) -> list[Json]:
    """The guard's events that tell a pod what it waits for."""
    found = cluster.as_admin.items(cluster.path("Event"), fieldSelector=f"involvedObject.name={pod}")
    return [each for each in found if each["reason"] == CLAIMS_HELD]


def test_a_pod_of_a_held_driver_waits_without_a_write_and_goes_on_when_the_hold_ends(cluster: Cluster) -> None:
    """Its reason is a warning of the write, an event and a metric; two writes of ours are all that it takes."""
    driver = shared_cpus(cluster)
    guard = deployed(cluster)
    guarding(cluster, guard, driver)
    cpu_claim(cluster, "c0", 2)
    cluster.pod("p0", claims=["c0"])
    running = cluster.scheduled("p0")
    cpu_claim(cluster, "c1", 3)
    hold(cluster, guard, driver)
    holding(cluster, "c1")
    before = reviews(guard, "resourceclaims/status")
    cluster.pod("p1", claims=["c1"], cpu="1")
    assert warned(cluster)
    assert gated(cluster, "p1") == [GATE]
    [event] = eventually(lambda: told(cluster, "p1"))
    assert (event["reason"], event["type"]) == ("ClaimsHeld", "Warning")
    assert event["message"].startswith(f"driver-held: has driver {driver.name} held: books half, by on-call")
    assert REASON in event["message"]
    conditions = cluster.get("Pod", "p1")["status"]["conditions"]
    assert [each["reason"] for each in conditions if each["type"] == "PodScheduled"] == ["SchedulingGated"]
    steady(lambda: not bound(cluster, "p1"), during=2)
    assert reviews(guard, "resourceclaims/status") == before
    assert guard.metric("allocguard_pods_gated", reason="driver-held") == 1
    assert "gates ok; 1 wait: driver-held" in guard.get("/readyz?verbose").text
    resume(cluster, driver)
    assert entry(cluster, cluster.scheduled("p1", within=10))["c1"]["cpu"] == "3"
    assert gated(cluster, "p1") == []
    assert len(told(cluster, "p1")) == 1
    assert guard.metric("allocguard_pods_released_total") == 1
    assert guard.metric("allocguard_pods_gated") == 0
    now = cluster.get("Pod", "p0")
    assert (now["metadata"]["uid"], now["spec"]["nodeName"]) == (
        running["metadata"]["uid"],
        running["spec"]["nodeName"],
    )


def test_the_guard_ends_in_the_middle_and_goes_on_when_it_is_there_again(cluster: Cluster) -> None:
    """A crash leaves the gates; who starts lifts them, tells nobody twice, and takes no gate of others."""
    driver = shared_cpus(cluster)
    guard = deployed(cluster)
    guarding(cluster, guard, driver)
    hold(cluster, guard, driver)
    for name in ("c1", "c2", "c3"):
        cpu_claim(cluster, name, 1)
    holding(cluster, "c1")
    cluster.pod("p1", claims=["c1"])
    cluster.pod("p2", claims=["c2"], gates=["example.org/other"])
    eventually(lambda: told(cluster, "p1") and told(cluster, "p2"))
    guard.kill()
    # Without the guard nobody is held, nor is anybody let go.
    cluster.pod("p3", claims=["c3"], spec={"schedulerName": "nobody"})
    assert gated(cluster, "p3") == []
    guard.start()
    steady(lambda: gated(cluster, "p1") == [GATE], during=3)
    assert [len(told(cluster, name)) for name in ("p1", "p2")] == [1, 1]
    guard.kill()
    resume(cluster, driver)
    steady(lambda: gated(cluster, "p1") == [GATE], during=1)
    guard.start()
    cluster.scheduled("p1", within=40)
    eventually(lambda: gated(cluster, "p2") == ["example.org/other"])
    steady(lambda: not bound(cluster, "p2"), during=1)


def test_no_gate_outlives_the_policy_that_holds_pods_or_the_driver(cluster: Cluster) -> None:
    driver = shared_cpus(cluster)
    guard = deployed(cluster)
    guarding(cluster, guard, driver)
    hold(cluster, guard, driver)
    cpu_claim(cluster, "c1", 1)
    cpu_claim(cluster, "c2", 1)
    holding(cluster, "c1")
    cluster.pod("p1", claims=["c1"])
    assert gated(cluster, "p1") == [GATE]
    # In place of the one that comes with the guard.
    spec = {"endpoint": "mutate", "validations": [{"name": "waiting", "findings": "pod.waitingProblems"}]}
    audits = admission_policy("pod-hold", ["pods"], ["CREATE"], **{**spec, "action": "Audit"})
    cluster.as_admin.create(path("AdmissionPolicy"), audits)
    eventually(lambda: gated(cluster, "p1") == [])
    cluster.as_admin.gone(path("AdmissionPolicy", "pod-hold"))
    holding(cluster, "c2")
    cluster.pod("p2", claims=["c2"])
    assert gated(cluster, "p2") == [GATE]
    driver.withdraw()
    cluster.as_admin.gone(path("DriverRollout", driver.name))
    eventually(lambda: gated(cluster, "p2") == [])


def test_without_the_right_to_let_them_go_nobody_is_held(cluster: Cluster) -> None:
    """The binding is there and is taken away: what has the gate keeps it and that is told, what comes is not gated."""
    driver = shared_cpus(cluster)
    guard = deployed(cluster)
    guarding(cluster, guard, driver)
    hold(cluster, guard, driver)
    cpu_claim(cluster, "c1", 1)
    holding(cluster, "c1")
    cluster.pod("p1", claims=["c1"])
    eventually(lambda: told(cluster, "p1"))
    cluster.delete("ClusterRoleBinding", "allocguard-steering")
    resume(cluster, driver)

    def refused() -> bool:
        return "cannot patch resource" in guard.get("/readyz?verbose").text

    eventually(refused)
    assert guard.ready()
    assert gated(cluster, "p1") == [GATE]
    cluster.as_admin.patch(path("DriverRollout", driver.name), {"spec": {"hold": HOLD}})
    eventually(lambda: guard.metric("allocguard_rollout_hold", driver=driver.name) == 1)
    guard.restart()
    assert "none is held: this account may not patch pods" in guard.get("/readyz?verbose").text
    cpu_claim(cluster, "c2", 1)
    eventually(lambda: probed(cluster, "c2") and warned(cluster))
    cluster.pod("p2", claims=["c2"])
    assert warned(cluster)
    assert gated(cluster, "p2") == []


def test_uninstalling_leaves_no_pod_waiting_and_no_taint(cluster: Cluster) -> None:
    driver = shared_cpus(cluster)
    installed = Installed(cluster)
    installed.run("install")
    guard = installed.guard()
    guarding(cluster, guard, driver)
    hold(cluster, guard, driver)
    cpu_claim(cluster, "c1", 1)
    cpu_claim(cluster, "c2", 1)
    holding(cluster, "c1")
    cluster.pod("p1", claims=["c1"])
    cluster.pod("p2", claims=["c2"], gates=["example.org/other"])
    eventually(lambda: told(cluster, "p1"))
    assert gated(cluster, "p2") == ["example.org/other", GATE]
    rules = "/apis/resource.k8s.io/v1/devicetaintrules"
    if cluster.minor >= 37:
        eventually(lambda: cluster.as_admin.items(rules))
    with kubelet(cluster, installed.namespace):
        told_so = installed.run("uninstall")
    assert "2 pods released" in told_so
    if cluster.minor >= 37:
        assert "1 DeviceTaintRule removed" in told_so
        steady(lambda: not cluster.as_admin.items(rules), during=1)
    cluster.scheduled("p1")
    assert gated(cluster, "p2") == ["example.org/other"]
    guard.stop()
