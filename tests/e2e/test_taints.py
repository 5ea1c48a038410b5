"""DeviceTaintRules of the guard: what is held is left alone by the scheduler, without a write, and goes on at once."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import API_SERVER
from tests.e2e.driver import Driver, each, per
from tests.e2e.guard import Guard
from tests.e2e.guarding import deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import WRITES, cpu_claim, entry, shared_cpus
from tests.e2e.test_multi_node import booked
from tests.e2e.test_scenarios import bound, guarding, hold
from tests.e2e.waiting import eventually, steady
from webhook.kube.taint_rule import rule_name

FOREIGN = "example.org/not-yet"
VERSIONS = {36: "v1beta2", 37: "v1"}


@pytest.fixture
def heeding(cluster: Cluster, fresh_plane: Callable[..., Cluster]) -> Cluster:
    """A control plane that heeds DeviceTaintRules: 1.37 does, 1.36 where its beta is switched on."""
    return fresh_plane("1.36", gates={"DRADeviceTaintRules": True}) if cluster.minor == 36 else cluster


def rules(cluster: Cluster, name: str = "") -> str:
    """The path of the rules, or of one."""
    base = f"/apis/resource.k8s.io/{VERSIONS[cluster.minor]}/devicetaintrules"
    return f"{base}/{name}" if name else base


def tainted(cluster: Cluster, driver: Driver) -> dict[str, str]:
    """What is tainted of the driver: keys of the taints by pool, all pools as an empty one."""
    found = [rule["spec"] for rule in cluster.as_admin.items(rules(cluster))]
    return {
        spec["deviceSelector"].get("pool", ""): spec["taint"]["key"]
        for spec in found
        if spec["deviceSelector"].get("driver") == driver.name
    }


def waiting(cluster: Cluster, name: str, cpus: int = 2, **spec: object) -> None:
    """A pod with a claim that no scheduler looks at before :func:`try_now`, as if it had been made long ago."""
    cpu_claim(cluster, f"claim-{name}", cpus)
    cluster.pod(name, claims=[f"claim-{name}"], gates=[FOREIGN], spec=dict(spec))


def try_now(cluster: Cluster, pod: str) -> None:
    """Have the scheduler look at the pod."""
    gates = [{"name": each} for each in gates_of(cluster, pod) if each != FOREIGN]
    cluster.as_admin.patch(cluster.path("Pod", pod), {"spec": {"schedulingGates": gates or None}})


def gates_of(cluster: Cluster, pod: str) -> list[str]:
    return [gate["name"] for gate in cluster.get("Pod", pod)["spec"].get("schedulingGates", [])]


def resume(cluster: Cluster, driver: Driver) -> None:
    """Take the hold back."""
    cluster.as_admin.patch(path("DriverRollout", driver.name), {"spec": {"hold": None}})


def told(guard: Guard) -> str:
    """What the guard says about its taints."""
    return next((line for line in guard.get("/readyz?verbose").text.splitlines() if "device taints" in line), "")


def said(rule: Json | None) -> tuple[Json, Json, int] | None:
    """What a rule says, and which it is; the controller-manager writes to its status."""
    if rule is None:
        return None
    metadata = rule["metadata"]
    names = {name: metadata.get(name) for name in ("name", "uid", "labels", "annotations")}
    return names, rule["spec"], metadata["generation"]


def refused(guard: Guard) -> float:
    """How many allocations the guard has refused."""
    return guard.metric("allocguard_admission_reviews_total", resource="resourceclaims/status", outcome="denied")


def test_a_held_driver_is_left_alone_without_a_write_and_goes_on_at_once(heeding: Cluster) -> None:
    """Its bound pods and claims are not touched; edits of the rule are put back, rules of others stay as they are."""
    cluster = heeding
    driver = shared_cpus(cluster)
    guard = deployed(cluster)
    guarding(cluster, guard, driver)
    for name in ("p0", "p1"):
        waiting(cluster, name)
    try_now(cluster, "p0")
    cluster.scheduled("p0")
    before = cluster.get("Pod", "p0"), cluster.get("ResourceClaim", "claim-p0")
    theirs = {"deviceSelector": {"driver": "else.example.org"}, "taint": {"key": "a.example/b", "effect": "NoSchedule"}}
    other = cluster.name("theirs")
    labels = {"app.kubernetes.io/managed-by": "allocguard"}
    theirs = cluster.as_admin.create(rules(cluster), {"metadata": {"name": other, "labels": labels}, "spec": theirs})

    hold(cluster, driver, "wrong mapping")
    ours = rules(cluster, rule_name(driver.name))
    rule = eventually(lambda: cluster.as_admin.find(ours))
    assert rule is not None
    assert rule["metadata"]["labels"] == labels
    assert "driver-held: has driver" in rule["metadata"]["annotations"]["allocguard.dev/reason"]
    assert "held: wrong mapping, by on-call" in rule["metadata"]["annotations"]["allocguard.dev/reason"]
    assert tainted(cluster, driver) == {"": "allocguard.dev/driver-held"}
    assert "ok, 1 rule" in told(guard)
    recorder = cluster.recorder(resources=WRITES)
    denials = refused(guard)
    try_now(cluster, "p1")
    eventually(lambda: any("cannot allocate all claims" in each for each in cluster.events("p1", "FailedScheduling")))
    steady(lambda: not bound(cluster, "p1"), during=2)
    assert not recorder.of("resourceclaims/status UPDATE")
    assert refused(guard) == denials
    edited = {"spec": {"taint": {"key": "a.example/b"}}, "metadata": {"labels": {"team": "a"}}}
    cluster.as_admin.patch(ours, edited)
    eventually(lambda: tainted(cluster, driver) == {"": "allocguard.dev/driver-held"})
    assert cluster.as_admin.get(ours)["metadata"]["labels"] == {**labels, "team": "a"}
    cluster.as_admin.delete(ours)
    eventually(lambda: cluster.as_admin.find(ours))

    resume(cluster, driver)
    assert entry(cluster, cluster.scheduled("p1"))["claim-p1"] == {"cpu": "2", "memory": "1Gi"}
    assert cluster.as_admin.find(ours) is None
    assert (cluster.get("Pod", "p0"), cluster.get("ResourceClaim", "claim-p0")) == before
    assert said(cluster.as_admin.get(rules(cluster, other))) == said(theirs)


def test_a_pool_that_is_not_fresh_is_passed_by(heeding: Cluster) -> None:
    """The scheduler takes the other node at its first try, where a refusal would have it try the same one for ever; a
    republish of a moment makes no rule.
    """
    cluster = heeding
    costs = {"cpu": per("cpus"), "memory": each("1Gi")}
    first = shared_cpus(cluster)
    guard = deployed(cluster)
    guarding(cluster, guard, first)
    cpu_claim(cluster, "c0", 2)
    cluster.pod("p0", claims=["c0"])
    cluster.scheduled("p0")
    eventually(lambda: booked(cluster, "n1"))
    before = cluster.get("Pod", "p0"), cluster.get("ResourceClaim", "c0")
    shared_cpus(cluster, "n2", cpus="2")
    devices = [first.device("group-0", {"cpus": "8"}, costs, zone=0)]
    for generation in (2, 3):
        # As drivers do: the next generation in parts.
        first.publish(devices, generation=generation, count=2)
        first.publish([], generation=generation, count=2, index=1)
        time.sleep(0.3)
        first.withdraw(index=1)
        first.publish(devices, generation=generation + 10, count=1)
    steady(lambda: not tainted(cluster, first), during=1.5)

    waiting(cluster, "p1")
    waiting(cluster, "p2")
    doubled = {"cpu": per("cpus", "2"), "memory": each("1Gi")}
    first.publish([first.device("group-0", {"cpus": "8"}, doubled, zone=0)], generation=20)
    eventually(lambda: tainted(cluster, first) == {first.node: "allocguard.dev/mapping-changed"})
    recorder = cluster.recorder(resources=WRITES)
    denials = refused(guard)
    try_now(cluster, "p1")
    assert cluster.scheduled("p1")["spec"]["nodeName"] == cluster.name("n2")
    # The other node is full now.
    try_now(cluster, "p2")
    eventually(lambda: any("cannot allocate all claims" in each for each in cluster.events("p2", "FailedScheduling")))
    steady(lambda: not bound(cluster, "p2"), during=2)
    written = [each.request["name"] for each in recorder.of("resourceclaims/status UPDATE")]
    assert set(written) == {"claim-p1"}
    assert refused(guard) == denials

    first.publish(devices, generation=21)
    assert cluster.scheduled("p2")["spec"]["nodeName"] == first.node
    assert tainted(cluster, first) == {}
    assert (cluster.get("Pod", "p0"), cluster.get("ResourceClaim", "c0")) == before


def test_who_tolerates_the_taint_is_refused_all_the_same(heeding: Cluster) -> None:
    """A taint steers; what protects is the refusal, which says the same."""
    cluster = heeding
    driver = shared_cpus(cluster)
    guard = deployed(cluster)
    guarding(cluster, guard, driver)
    request = {
        "deviceClassName": cluster.name("cpus"),
        "capacity": {"requests": {driver.key("cpus"): "2"}},
        "tolerations": [{"operator": "Exists"}],
    }
    cluster.claim("c1", requests=[{"name": "devices", "exactly": request}])
    cluster.pod("p1", claims=["c1"], gates=[FOREIGN])
    hold(cluster, driver, "wrong mapping")
    reason = eventually(lambda: cluster.as_admin.find(rules(cluster, rule_name(driver.name))))
    assert reason is not None
    try_now(cluster, "p1")
    eventually(lambda: any("driver-held: status" in each for each in cluster.events("p1", "FailedScheduling")))
    assert "held: wrong mapping, by on-call" in cluster.events("p1", "FailedScheduling")[0]
    steady(lambda: not bound(cluster, "p1"), during=2)
    resume(cluster, driver)
    cluster.scheduled("p1")


def test_rules_outlive_the_guard_and_the_next_one_takes_them_away(heeding: Cluster) -> None:
    """Killed, and ended in good order, while a driver is held: what is held stays so, and what was resumed meanwhile
    goes on with the next guard.
    """
    cluster = heeding
    driver = shared_cpus(cluster)
    guard = deployed(cluster)
    guarding(cluster, guard, driver)
    hold(cluster, driver, "wrong mapping")
    ours = rules(cluster, rule_name(driver.name))
    rule = said(eventually(lambda: cluster.as_admin.find(ours)))
    guard.kill()
    guard.start()
    eventually(lambda: "ok, 1 rule" in told(guard), within=60)
    assert said(cluster.as_admin.find(ours)) == rule, "neither written nor made again"
    assert guard.stop() == 0
    resume(cluster, driver)
    assert said(cluster.as_admin.find(ours)) == rule
    guard.start()
    eventually(lambda: cluster.as_admin.find(ours) is None, within=60)


def test_where_rules_are_not_heeded_none_is_made(cluster: Cluster, fresh_plane: Callable[..., Cluster]) -> None:
    """Served in 1.36 with the gate off, and not served at all: the refusal and the gates are what is left."""
    if cluster.minor != 36:
        pytest.skip("later releases heed them")
    driver = shared_cpus(cluster)
    guard = deployed(cluster)
    guarding(cluster, guard, driver)
    waiting(cluster, "p1")
    hold(cluster, driver, "wrong mapping")
    eventually(lambda: "ok, DRADeviceTaintRules is off: what is held is refused and gated only" in told(guard))
    try_now(cluster, "p1")
    eventually(lambda: any("driver-held" in each for each in cluster.events("p1", "FailedScheduling")))
    assert tainted(cluster, driver) == {}

    without = fresh_plane("1.36", flags={API_SERVER: ["--runtime-config=resource.k8s.io/v1beta2=false"]})
    driver = shared_cpus(without)
    guard = deployed(without)
    guarding(without, guard, driver)
    eventually(lambda: "ok, the API server has no devicetaintrules: what is held is refused" in told(guard))
    waiting(without, "p1")
    hold(without, driver, "wrong mapping")
    try_now(without, "p1")
    eventually(lambda: any("driver-held" in each for each in without.events("p1", "FailedScheduling")))
