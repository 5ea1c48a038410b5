"""What the status of a DriverRollout tells of a driver, and what is found of the feature gate in each component."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import GATE, SCHEDULER
from tests.e2e.driver import Driver, per
from tests.e2e.guard import Guard
from tests.e2e.guarding import asked, definitions, deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import CPU_DRIVER, cpu_claim, entry, shared_cpus
from tests.e2e.waiting import eventually, steady
from webhook.cli.deploying import files
from webhook.registration.manifests import Target, manifests

CANARY = {"e2e.example.org/canary": "yes"}
SELECTED = {"stage": "Canary", "canaryNodeSelector": {"matchLabels": CANARY}}
PROBE = Path(__file__).parents[2] / "deploy" / "components" / "gate-probe" / "clusterrole.yaml"


class Rollout:
    """The DriverRollout of the test's cpu driver, as an operator edits and reads it."""

    def __init__(self, cluster: Cluster, **spec: object) -> None:
        self.cluster, self.name = cluster, cluster.name(CPU_DRIVER)
        self.path = path("DriverRollout", self.name)
        body = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": self.name}}
        cluster.as_admin.create(path("DriverRollout"), {**body, "spec": spec})

    def edit(self, **spec: object) -> None:
        """Merge ``spec`` into what is there; None takes a field away."""
        self.cluster.as_admin.patch(self.path, {"spec": spec})

    def status(self) -> Json:
        found: Json = self.cluster.as_admin.get(self.path).get("status", {})
        return found

    def condition(self, kind: str) -> Json:
        """The condition, once it is about the spec as it is."""
        obj = self.cluster.as_admin.get(self.path)
        found = next(each for each in obj["status"]["conditions"] if each["type"] == kind)
        assert found["observedGeneration"] == obj["metadata"]["generation"]
        return dict(found)

    def wait(self, kind: str, status: str) -> Json:
        """The condition, once it has this status."""

        def look() -> Json | None:
            try:
                found = self.condition(kind)
            except (KeyError, StopIteration):
                return None
            assert found["status"] == status, found
            return found

        got = eventually(look)
        assert got is not None
        return got

    def wait_for(self, **fields: object) -> Json:
        """The status, once it has these fields."""

        def look() -> Json:
            found = self.status()
            assert {name: found.get(name) for name in fields} == fields
            return found

        return eventually(look)


def events(cluster: Cluster, name: str, reason: str = "") -> list[Json]:
    """The events about the object ``name`` of the cluster, in order."""
    where = path("Event", namespace="default")
    found = cluster.as_admin.items(where, fieldSelector=f"involvedObject.name={name}")
    found.sort(key=lambda each: (each["firstTimestamp"], int(each["metadata"]["resourceVersion"])))
    return [each for each in found if reason in ("", each["reason"])]


@pytest.fixture
def told(cluster: Cluster) -> Iterator[Cluster]:
    """The shared control plane, where events about objects of the cluster are left in the default namespace."""
    yield cluster
    for each in events(cluster, cluster.name(CPU_DRIVER)):
        cluster.as_admin.gone(path("Event", each["metadata"]["name"], "default"))


def canary(cluster: Cluster) -> Driver:
    """A driver on the canary node n1, and another canary node n2 without one."""
    driver = shared_cpus(cluster, labels=CANARY)  # type: ignore[arg-type] # amounts and labels alike
    cluster.node("n2", labels=CANARY)
    return driver


def test_the_status_goes_with_the_driver_and_with_what_the_operator_does(told: Cluster) -> None:
    """Figures, conditions and events, written by the ServiceAccount of the installation."""
    cluster = told
    driver = canary(cluster)
    definitions(cluster)
    rollout = Rollout(cluster, **SELECTED, promotion={"minCoverage": 100})
    guard = deployed(cluster)
    whole = {"nodes": 2, "fresh": 1, "percent": 50}
    found = rollout.wait_for(stage="Canary", coverage=whole, claims={"waiting": 0, "bound": 0}, differences=0)
    assert found["pools"] == {"fresh": 1, "rebuilding": 0, "gone": 0, "invalid": 0, "unknown": 0, "held": 0}
    assert len(found["digests"]) == 1
    assert found["quietSince"] >= found["observedSince"]
    all_nodes = rollout.wait("Valid", "True")["message"]
    assert all_nodes == "spec.canaryNodeSelector: has all 2 nodes, needs labels that canary nodes alone have"
    cluster.node("n3")
    eventually(lambda: rollout.wait("Valid", "True")["message"] == "")
    assert "coverage" in rollout.wait("Promotable", "False")["message"]
    assert found["promotion"]["passed"] is False
    cpu_claim(cluster, "c1", 2)
    cluster.pod("p1", claims=["c1"])
    assert entry(cluster, cluster.scheduled("p1")) == {"c1": {"cpu": "2", "memory": "1Gi"}}
    found = rollout.wait_for(claims={"waiting": 0, "bound": 1}, differences=0)
    assert found["pending"]["count"] == 1
    assert rollout.wait("GateEnabled", "True")["reason"] == "GateOn"

    rollout.edit(hold={"reason": "books half", "by": "on-call"})
    assert "books half, by on-call" in rollout.wait("Held", "True")["message"]
    held = rollout.wait_for(pools={**found["pools"], "held": 1})["heldPools"]
    assert [each["name"] for each in held] == [driver.node]
    assert "books half" in held[0]["reason"]
    rollout.edit(hold=None)
    rollout.wait("Held", "False")
    cluster.as_admin.patch(path("Node", cluster.name("n1")), {"metadata": {"labels": {next(iter(CANARY)): None}}})
    held = rollout.wait_for(pools={**found["pools"], "held": 1})["heldPools"]
    assert "node-not-canary" in held[0]["reason"]
    assert cluster.get("ResourceSlice", f"{driver.name}-{driver.node}-0")
    reasons = [each["reason"] for each in events(cluster, driver.name)]
    assert reasons == ["Held", "Resumed"]

    version = cluster.as_admin.get(rollout.path)["metadata"]["resourceVersion"]
    steady(lambda: cluster.as_admin.get(rollout.path)["metadata"]["resourceVersion"] == version, during=12)
    assert "orbidden" not in guard.process.log.read_text()
    guard.restart()
    steady(lambda: cluster.as_admin.get(rollout.path)["metadata"]["resourceVersion"] == version, during=12)
    assert [each["reason"] for each in events(cluster, driver.name)] == reasons


WRONG = """
import sys
from datetime import timedelta
from webhook.cli import main
from webhook.server import run, serve
right, wrong = run._now, timedelta(days=float(sys.argv.pop(1)))
run._now = serve._now = lambda: right() + wrong
main()
"""


@pytest.mark.parametrize("days", ["8", "-8"])
def test_a_guard_whose_clock_is_wrong_ends_no_hold_and_promotes_nobody(told: Cluster, days: str) -> None:
    """It goes by the clock of the API server: in the status, and where it answers."""
    cluster = told
    driver = canary(cluster)
    definitions(cluster)
    until = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    hold = {"reason": "books half", "until": until}
    guard = deployed(cluster)
    guard.stop()
    module = guard.process.command.index("-m")
    guard.process.command[module : module + 2] = ["-c", WRONG, days]
    guard.start()
    rollout = Rollout(cluster, **SELECTED, hold=hold, promotion={"minCoverage": 50, "quietDays": 2})
    [line] = guard.lines(event="clock compared", level="warning")
    assert abs(line["behind"] + int(days) * 86400) < 5
    assert rollout.wait("Held", "True")["reason"] == "Held"
    assert "quiet" in rollout.wait("Promotable", "False")["message"]
    assert "view" not in str(rollout.status()["heldPools"])
    begun = datetime.fromisoformat(rollout.status()["observedSince"])
    assert abs(begun - datetime.now(UTC)) < timedelta(minutes=5)
    cpu_claim(cluster, "c1", 2)
    cluster.pod("p1", claims=["c1"])
    steady(lambda: not cluster.get("Pod", "p1")["spec"].get("nodeName"), during=3)
    rollout.edit(hold=None)
    assert cluster.scheduled("p1")["spec"]["nodeName"] == driver.node


def test_a_stage_goes_up_when_its_gates_have_passed_or_somebody_says_so(told: Cluster) -> None:
    """The API server refuses what the status does not allow, whoever asks."""
    cluster = told
    definitions(cluster)
    rollout = Rollout(cluster, stage="Off", canaryNodeSelector={"matchLabels": CANARY}, promotion={"minCoverage": 100})

    def refused(**spec: object) -> None:
        with pytest.raises(ApiError) as caught:
            rollout.edit(**spec)
        assert caught.value.code == 422
        assert "needs status.promotion passed for the present one" in caught.value.message

    refused(stage="General")
    rollout.edit(stage="Canary")
    refused(stage="Expanding")
    # Neither without the gates, in one write, nor with the word of somebody about another stage.
    refused(stage="Expanding", promotion=None)
    refused(stage="Expanding", promotion={"override": {"by": "me", "reason": "r", "stage": "Off"}})
    for nobody in ({"by": " ", "reason": "r"}, {"by": "me", "reason": "\n"}):
        with pytest.raises(ApiError, match="should match"):
            rollout.edit(stage="Expanding", promotion={"override": {**nobody, "stage": "Canary"}})
    passed = {"stage": "Canary", "passed": True}
    cluster.as_admin.patch(f"{rollout.path}/status", {"status": {"promotion": {**passed, "passed": False}}})
    refused(stage="Expanding")
    cluster.as_admin.patch(f"{rollout.path}/status", {"status": {"promotion": passed}})
    refused(stage="General")
    rollout.edit(stage="Expanding")
    refused(stage="General")
    rollout.edit(stage="Canary")
    word = {"by": "me", "reason": "demo", "stage": "Canary"}
    rollout.edit(stage="General", promotion={"override": word})
    cluster.as_admin.patch(f"{rollout.path}/status", {"status": {"promotion": {**passed, "passed": False}}})
    # A word counts once: back, and up again, takes another one, or the same at another time.
    rollout.edit(stage="Canary")
    refused(stage="Expanding")
    refused(stage="Expanding", promotion={"override": word})
    with pytest.raises(ApiError, match="date-time"):
        rollout.edit(stage="Expanding", promotion={"override": {**word, "at": "now"}})
    rollout.edit(stage="Expanding", promotion={"override": {**word, "at": "2026-11-20T09:00:00Z"}})
    rollout.edit(stage="Canary")
    refused(stage="Expanding", promotion={"override": {**word, "at": "2026-11-20T09:00:00Z"}})
    # Nor does one that was said before the write that goes up.
    rollout.edit(promotion={"override": {**word, "at": "2026-11-20T09:00:01Z"}})
    refused(stage="Expanding")
    rollout.edit(stage="Expanding", promotion={"override": {**word, "at": "2026-11-20T09:00:02Z"}})
    rollout.edit(stage="Off")
    # Who asks for no gates moves as they like.
    rollout.edit(promotion=None)
    rollout.edit(stage="General")


def test_stage_general_is_shown_where_it_is_left_out(told: Cluster) -> None:
    """A rollout without a spec has the stage that it counts as."""
    definitions(told)
    name = told.name(CPU_DRIVER)
    body = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": name}}
    assert told.as_admin.create(path("DriverRollout"), body)["spec"] == {"stage": "General"}


def test_a_scheduler_without_the_gate_is_found_and_named(fresh_cluster: Callable[..., Cluster]) -> None:
    """It binds pods without an entry, and nobody counts them; a kubelet that declares nothing is named too."""
    cluster = fresh_cluster(component_gates={SCHEDULER: {GATE: False}})
    canary(cluster)
    cpu_claim(cluster, "c1", 2)
    cluster.pod("p1", claims=["c1"])
    assert entry(cluster, cluster.scheduled("p1")) == {}
    definitions(cluster)
    rollout = Rollout(cluster, **SELECTED)
    guard = deployed(cluster)
    found = rollout.wait("GateEnabled", "False")
    assert found["reason"] == "GatesDiffer"
    assert (
        f"on in kube-apiserver{' and kubelet' if cluster.minor > 36 else ''}, off in kube-scheduler" in found["message"]
    )
    assert f"pod {cluster.ns}/p1, bound without an entry for claim c1" in found["message"]
    assert state(guard, "kube-scheduler") == "off"
    assert state(guard, "kube-apiserver") == "on"
    assert [each["reason"] for each in events(cluster, CPU_DRIVER)] == ["GateOff"]
    if cluster.minor >= 37:
        cluster.node("n3", labels=CANARY, declares=False)
        eventually(lambda: "not declared by 1 of 3 nodes: n3" in rollout.condition("GateEnabled")["message"])
        assert state(guard, "kubelet") == "off"


def state(guard: Guard, component: str) -> str:
    """What the metric says of the gate in ``component``."""
    states = ("on", "off", "unknown")
    return ", ".join(
        each for each in states if guard.metric("allocguard_feature_gate", component=component, state=each)
    )


def publish(driver: Driver) -> None:
    driver.publish([driver.device("numa0", {"cpus": "8"}, {"cpu": per("cpus")})])


def test_an_api_server_without_the_gate_is_told_of_with_what_it_drops(fresh_cluster: Callable[..., Cluster]) -> None:
    """A driver that publishes mappings gets an event about its rollout, or about its slice where it has none."""
    cluster = fresh_cluster(gates={GATE: False})
    definitions(cluster)
    known, stranger = (
        cluster.driver(name, cluster.node(node)) for name, node in ((CPU_DRIVER, "n1"), ("b.example", "n2"))
    )
    rollout = Rollout(cluster, stage="General")
    guard = deployed(cluster)
    publish(known)
    publish(stranger)
    assert rollout.wait("GateEnabled", "False")["message"].startswith("kube-apiserver off by its metrics")
    assert state(guard, "kube-apiserver") == "off"
    slices = {driver.name: f"{driver.name}-{driver.node}-0" for driver in (known, stranger)}
    [dropped] = eventually(lambda: events(cluster, CPU_DRIVER, "MappingsDropped"))
    assert f"slice {slices[CPU_DRIVER]} is stored without the costs" in dropped["message"]
    [other] = eventually(lambda: events(cluster, slices["b.example"], "MappingsDropped"))
    assert other["involvedObject"]["kind"] == "ResourceSlice"
    assert sorted(each["reason"] for each in events(cluster, CPU_DRIVER)) == ["GateOff", "MappingsDropped"]
    for driver in slices:
        assert guard.metric("allocguard_mappings_dropped_total", driver=driver) == 1


def test_a_driver_whose_costs_were_dropped_is_warned_the_next_time_also_without_metrics(
    fresh_cluster: Callable[..., Cluster],
) -> None:
    """Nothing but the slice that was stored tells that the gate is off."""
    cluster = fresh_cluster(gates={GATE: False})
    guard = deployed(cluster)
    role = path("ClusterRole", cluster.name("allocguard"))
    readable = [each for each in cluster.as_admin.get(role)["rules"] if each.get("nonResourceURLs") != ["/metrics"]]
    cluster.as_admin.patch(role, {"rules": readable})
    guard.restart()
    assert "its feature gates cannot be read: those that are on" in guard.get("/readyz?verbose").text
    driver = cluster.driver(CPU_DRIVER, cluster.node("n1"))
    asked(cluster, guard)
    publish(driver)
    assert not dropped(driver)

    def warned() -> bool:
        driver.withdraw()
        publish(driver)
        return dropped(driver)

    eventually(warned, within=40, every=4)
    assert "a slice shows that it drops what devices cost" in guard.get("/readyz?verbose").text


def dropped(driver: Driver) -> bool:
    """Whether the last write was warned that its costs are lost."""
    return any("slice-gate/gate-off-fields-dropped" in each for each in driver.client.warnings)


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
def test_without_its_metrics_the_gate_is_found_by_a_write_that_is_tried(
    fresh_cluster: Callable[..., Cluster], on: bool
) -> None:
    """With the right of the component the guard tries it; its own hook, and the admission of 1.37, let that pass."""
    cluster = fresh_cluster(gates={GATE: on})
    definitions(cluster)
    cluster.node("n1", declares=on)
    rules = [
        rule
        for obj in [*manifests(files(), Target(namespace=cluster.ns)), *yaml.safe_load_all(PROBE.read_text())]
        if obj["kind"] in ("ClusterRole", "Role")
        for rule in obj["rules"]
        if rule.get("nonResourceURLs") != ["/metrics"]
    ]
    cluster.service_account("probing", rules)
    rollout = Rollout(cluster, stage="General")
    guard = cluster.guard(user=("probing",), token=cluster.token("probing"))
    found = rollout.wait("GateEnabled", str(on))
    assert state(guard, "kube-apiserver") == ("on" if on else "off")
    if not on:
        assert found["message"] == "kube-apiserver off by a dry-run write of a slice"
    assert not cluster.as_admin.items(path("ResourceSlice"))
    assert guard.metric("allocguard_admission_reviews_total", resource="resourceslices", outcome="denied") == 0
