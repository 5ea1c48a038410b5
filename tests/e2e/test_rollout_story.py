"""A driver's mappings from three canary nodes to all five, as an operator goes there: an upgrade in the middle, a wrong
mapping, hold, export, repair, resume, promotion. Whatever is bound stays exactly as it is, at every step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import RELEASES
from tests.e2e.control_plane import API_SERVER
from tests.e2e.driver import Driver, each, per
from tests.e2e.guard import Guard
from tests.e2e.guarding import definitions, deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import CPU_DRIVER, cpu_claim, cpu_class, entry
from tests.e2e.test_gates_held import told
from tests.e2e.test_multi_node import booked
from tests.e2e.test_rollout_status import events
from tests.e2e.test_scenarios import bound, guarding
from tests.e2e.waiting import eventually, steady
from webhook.kube.core import GATE

ROOT = Path(__file__).parents[2]
LABEL = "e2e.example.org/dra-canary"
NODES = [f"n{number}" for number in range(1, 6)]
DRILLS = ["Rollback", "NodeRestart", "DriverUpgrade"]
GATES = {"minCoverage": 100, "quietDays": 0, "drills": DRILLS, "pendingP99": "10m"}
# What fills the node of the version without mappings, and what it costs once that has some.
OLD = {"old-0": "8", "old-1": "8"}
LOOKS = ("Checked", "LedgerExported")
FOREIGN = "example.org/not-yet"
# What a control plane is started with, and the version of its DeviceTaintRules that are heeded.
PLANES: dict[str, tuple[dict[str, Any], str]] = {
    "1.36-with-taints": ({"gates": {"DRADeviceTaintRules": True}}, "v1beta2"),
    "1.36-without-taints": ({"flags": {API_SERVER: ["--runtime-config=resource.k8s.io/v1beta2=false"]}}, ""),
    "1.37": ({}, "v1"),
}


class Story:
    """The cluster with its five nodes, the operator at the command line, and what is bound."""

    def __init__(self, cluster: Cluster, rules: str) -> None:
        self.cluster, self.name, self.rules = cluster, CPU_DRIVER, rules
        self.history, self.journal = cluster.folder / "history.json", cluster.folder / "journal"
        self.right = ""
        self._access = cluster.plane.kubeconfig("dana", "system:masters")
        self._bound: dict[tuple[str, str], Json] = {}
        definitions(cluster)
        for name in NODES:
            cluster.node(name, cpu="32", labels={LABEL: "on"} if name in NODES[:3] else {})
        cpu_class(cluster)
        self.drivers = {name: cluster.driver(CPU_DRIVER, name) for name in NODES}

    # The operator

    def run(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        """What ``allocguard`` prints, or complains of where it prints nothing; it ends with one of ``codes``."""
        done = self.ran(*arguments)
        assert done.returncode in codes, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stdout.strip() or done.stderr.strip()

    def ran(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``allocguard`` with these arguments, once it has ended."""
        command = [sys.executable, "-m", "webhook.cli", *arguments]
        environment = {**os.environ, "KUBECONFIG": str(self._access), "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def rollout(self, command: str, *arguments: str, code: int = 0) -> str:
        """``allocguard rollout`` about the driver."""
        return self.run("rollout", command, self.name, *arguments, codes=(code,))

    def row(self) -> Json:
        """What ``rollout status`` tells of the driver."""
        found: Json = json.loads(self.rollout("status", "-o", "json"))["drivers"][0]
        return found

    def failed(self) -> set[str]:
        """The gates of the promotion that have not passed, by ``rollout check``."""
        done = self.ran("rollout", "check", self.name, "-o", "json")
        found = {gate["name"] for gate in json.loads(done.stdout)["gates"] if gate["passed"] is False}
        assert done.returncode == bool(found), done
        return found

    def stored(self) -> Json:
        """The DriverRollout."""
        return self.cluster.as_admin.get(path("DriverRollout", self.name))

    def export(self) -> Json:
        """The history and the accounts of the cluster, once folding the one gives the other."""

        live = f"--kubeconfig={self._access}"

        def look() -> bool:
            self.history.write_text(self.run("ledger", "export", "--journal", str(self.journal), live))
            return self.run("ledger", "replay", str(self.history), codes=(0, 1)).startswith("equal: ")

        eventually(look)
        found: Json = json.loads(self.history.read_text())
        return found

    # The driver

    def devices(self, driver: Driver, costs: str = "1") -> list[Json]:
        """Two groups of 8 cpus, each of which costs ``costs`` cpus of the node; as an old version has them if empty."""
        amounts = {"cpu": per("cpus", costs), "memory": each("1Gi")} if costs else None
        return [driver.device(f"group-{zone}", {"cpus": "8"}, amounts, zone=zone) for zone in range(2)]

    def publish(self, node: str, costs: str = "1", generation: int = 1) -> Json:
        """What the driver of ``node`` has, in one slice."""
        driver = self.drivers[node]
        driver.withdraw(index=1)
        return driver.publish(self.devices(driver, costs), generation=generation)

    def phases(self, **wanted: int) -> bool:
        """Whether so many pools, that of the old version too, are in these phases, and none in another."""
        found: dict[str, int] = self.row()["pools"]
        assert {phase.lower(): count for phase, count in found.items()} == wanted
        return True

    # The users

    def ask(self, name: str, cpus: int = 2, node: str = "", gates: tuple[str, ...] = ()) -> Json:
        """A claim and a pod with it, of the same name, which may be for one node only."""
        cpu_claim(self.cluster, name, cpus)
        spec = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
        return self.cluster.pod(name, claims=[name], gates=gates, cpu="100m", spec=spec)

    def binds(self, name: str) -> Json:
        """The pod ``name``, once it has its node; it has to stay as it is from now on."""
        pod = self.cluster.scheduled(name)
        for kind in ("Pod", "ResourceClaim"):
            self._bound[kind, name] = self.cluster.get(kind, name)
        return pod

    def ends(self, name: str) -> None:
        """The user of ``name`` deletes it."""
        for kind in ("Pod", "ResourceClaim"):
            del self._bound[kind, name]
            self.cluster.delete(kind, name)

    def undisturbed(self) -> None:
        """What is bound is what it was when it was bound, down to the resourceVersion."""
        for (kind, name), before in self._bound.items():
            now = self.cluster.get(kind, name)
            for field in ("uid", "resourceVersion"):
                assert now["metadata"][field] == before["metadata"][field], (kind, name, now, before)
            assert (now["spec"], now["status"]) == (before["spec"], before["status"])

    def ours(self) -> list[Json]:
        """The guard's DeviceTaintRules."""
        if not self.rules:
            return []
        where = f"/apis/resource.k8s.io/{self.rules}/devicetaintrules"
        return self.cluster.as_admin.items(where, labelSelector="app.kubernetes.io/managed-by=allocguard")

    def gated(self) -> set[str]:
        """The pods that have our gate."""
        pods = self.cluster.as_admin.items(path("Pod"))
        return {pod["metadata"]["name"] for pod in pods if {"name": GATE} in pod["spec"].get("schedulingGates", [])}


@pytest.mark.parametrize("plane", [each for each in PLANES if each.startswith(tuple(RELEASES))])
def test_from_three_canary_nodes_to_all_five(plane: str, fresh_plane: Callable[..., Cluster]) -> None:
    options, rules = PLANES[plane]
    story = Story(fresh_plane(plane.partition("-")[0], **options), rules)
    guard = canary(story)
    upgrade(story, guard)
    wrong_mapping(story)
    held(story, guard)
    repaired(story, guard)
    promoted(story)
    over(story, guard)


def canary(story: Story) -> Guard:
    """Mapped slices are for the three canary nodes, and so are the pods that need them."""
    cluster = story.cluster
    rollout = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": story.name}}
    spec = {"stage": "Canary", "canaryNodeSelector": {"matchLabels": {LABEL: "on"}}, "promotion": GATES}
    cluster.as_admin.create(path("DriverRollout"), {**rollout, "spec": spec})
    guard = deployed(cluster, f"--journal={story.journal}")
    for node in NODES[:3]:
        story.publish(node)
    guarding(cluster, guard, story.drivers["n1"])
    with pytest.raises(ApiError, match="node-not-canary"):
        story.publish("n4")
    made = story.ask("first")
    (term,) = made["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {"matchExpressions": [{"key": LABEL, "operator": "In", "values": ["on"]}]}
    assert bound(cluster, "first") in ("", *NODES[:3])
    assert entry(cluster, story.binds("first"))["first"] == {"cpu": "2", "memory": "1Gi"}
    for node in ("n1", "n2"):
        story.ask(f"early-{node}", node=node)
        story.binds(f"early-{node}")
    # The version before, without mappings, goes on beside it and costs its node nothing.
    story.publish("n5", costs="")
    for name in OLD:
        story.ask(name, cpus=8, node="n5")
        assert entry(cluster, story.binds(name)) == {}
    with pytest.raises(ApiError, match="canary-label-editor"):
        cluster.as_kubelet("n4").patch(path("Node", "n4"), {"metadata": {"labels": {LABEL: "on"}}})
    (story.right,) = story.row()["digests"]
    assert story.row()["coverage"] == {"nodes": 3, "fresh": 3, "percent": 100, "lacking": []}
    eventually(lambda: story.failed() == {"drill-rollback", "drill-node-restart", "drill-driver-upgrade"})
    story.undisturbed()
    return guard


def upgrade(story: Story, guard: Guard) -> None:
    """The next version of the driver comes to one node after the other, and publishes in parts: only the node whose
    turn it is takes no claims meanwhile, and those that wait for it go on when it is whole.
    """
    for node in NODES[:3]:
        driver = story.drivers[node]
        first, second = story.devices(driver)
        driver.publish([first], generation=2, count=2)
        eventually(lambda: story.phases(fresh=3, rebuilding=1))
        if node == "n1":
            story.ask("upgraded", node=node)
            story.ask("elsewhere", node="n2")
            assert story.binds("elsewhere")["spec"]["nodeName"] == "n2"
            steady(lambda: not bound(story.cluster, "upgraded"), during=2)
        story.undisturbed()
        driver.publish([second], generation=2, count=2, index=1)
        eventually(lambda: story.phases(fresh=4))
    story.binds("upgraded")
    story.ends("first")
    eventually(lambda: not booked(story.cluster, "n3"))
    assert guard.metric("allocguard_rollout_hold", driver=story.name) == 0
    story.undisturbed()


def wrong_mapping(story: Story) -> None:
    """The version after books half. Where claims are bound the pool stops by itself; where none is, nobody can know."""
    cluster = story.cluster
    for node in ("n3", "n2"):
        story.publish(node, costs="500m", generation=3)
    eventually(lambda: story.phases(fresh=3, rebuilding=1))
    story.ask("half", cpus=4, node="n3")
    assert entry(cluster, story.binds("half"))["half"]["cpu"] == "2"
    assert len(story.row()["digests"]) == 2
    story.ask("kept", node="n1")
    story.binds("kept")
    story.ask("leaves", node="n3")
    story.binds("leaves")
    # Made before the hold, and looked at by the scheduler in it.
    story.ask("before", node="n1", gates=(FOREIGN,))
    story.undisturbed()


def held(story: Story, guard: Guard) -> None:
    """One command: nothing new is allocated, in any of the three ways; what ends is released."""
    cluster = story.cluster
    said = story.rollout("hold", "--reason", "v3 books half")
    assert said.startswith(f"{story.name} is held: no new claims on all pools")
    assert story.rollout("hold", "--reason", "v3 books half").strip().endswith("nothing to change")
    eventually(lambda: guard.metric("allocguard_rollout_hold", driver=story.name) == 1)
    eventually(lambda: bool(story.ours()) == bool(story.rules))
    for name, node in (("waits-1", "n1"), ("waits-2", "n2"), ("waits-3", "n3"), ("anywhere", "")):
        story.ask(name, node=node)
    names = {"waits-1", "waits-2", "waits-3", "anywhere"}
    assert story.gated() == names
    for name in names:
        [event] = eventually(lambda name=name: told(cluster, name))
        assert event["reason"] == "ClaimsHeld"
        assert f"driver-held: has driver {story.name} held: v3 books half, by dana" in event["message"]
    denials = refusals(guard)
    cluster.as_admin.patch(cluster.path("Pod", "before"), {"spec": {"schedulingGates": None}})
    expected = "cannot allocate all claims" if story.rules else "held: v3 books half, by dana"
    eventually(lambda: any(expected in each for each in cluster.events("before", "FailedScheduling")))
    steady(lambda: not bound(cluster, "before"), during=2)
    assert (refusals(guard) == denials) == bool(story.rules)
    assert [rule["spec"]["taint"]["key"] for rule in story.ours()] == ["allocguard.dev/driver-held"] * bool(story.rules)
    story.ends("leaves")
    eventually(lambda: "leaves" not in booked(cluster, "n3"))
    pools = eventually(lambda: story.stored()["status"]["heldPools"])
    assert {pool["name"] for pool in pools} == {"n1", "n2", "n3", "n5"}
    assert all("v3 books half" in pool["reason"] for pool in pools)
    assert "hold" in story.failed()
    assert "fail  hold" in story.rollout("promote", code=1)

    # The evidence is taken away, and folds to the same accounts.
    exported = story.export()
    row = next(row for row in exported["statement"]["nodes"] if row["node"] == "n3")
    assert row["resources"]["cpu"]["claims"] == "2", "four cpus, booked as two"
    markdown = story.rollout("check", "--history", str(story.history), "-o", "markdown", code=1)
    assert "| replays | pass | the same accounts after a replay | the same accounts |" in markdown
    assert "| hold | fail |" in markdown
    story.undisturbed()


def refusals(guard: Guard) -> float:
    """How many allocations the guard has refused."""
    return guard.metric("allocguard_admission_reviews_total", resource="resourceclaims/status", outcome="denied")


def repaired(story: Story, guard: Guard) -> None:
    """The repaired mapping is resumed by its digest, on the nodes that have it; where the wrong one still is, claims
    wait on. The guard dies in between, and each command may be said again.
    """
    cluster = story.cluster
    right = story.right
    (wrong,) = {*story.row()["digests"]} - {right}
    story.publish("n3", generation=4)
    nobody = story.rollout("resume", "--at-mapping", "sha256:" + "0" * 64, code=2)
    assert right in nobody
    assert wrong in nobody
    guard.kill()
    said = story.rollout("resume", "--at-mapping", right)
    assert "resumed at 1 mapping: 2 of 3 pools take claims, 1 stays held" in said
    assert story.rollout("resume", "--at-mapping", right).strip().endswith("nothing to change")
    guard.start()
    for name in ("waits-1", "waits-3", "before", "anywhere"):
        pod = story.binds(name)
        assert pod["spec"]["nodeName"] in ("n1", "n3")
        assert entry(cluster, pod)[name]["cpu"] == "2"
    steady(lambda: not bound(cluster, "waits-2"), during=2)
    story.undisturbed()
    story.publish("n2", generation=4)
    story.binds("waits-2")
    # What was booked half stays so, as long as its pod does.
    assert booked(cluster, "n3")["half"]["cpu"] == "2"
    assert "of n3" in story.rollout("resume")
    assert "hold" not in story.stored()["spec"]
    eventually(lambda: "quiet" in story.failed())
    story.ends("half")
    eventually(lambda: "half" not in booked(cluster, "n3"))
    assert "resumeAt" in story.stored()["spec"]
    story.rollout("resume")
    assert "resumeAt" not in story.stored()["spec"]
    story.undisturbed()


def promoted(story: Story) -> None:
    """Practised, checked, and on to the next stage, until all nodes have it."""
    cluster = story.cluster
    for drill in DRILLS:
        assert story.rollout("drill", drill, "--record").startswith(f"drill {drill} of {story.name}: passed")
    eventually(lambda: story.failed() == set())
    goes_on(story, "Expanding")
    story.undisturbed()

    # Wider: the operator labels a node, and its driver may publish what it costs.
    cluster.as_admin.patch(path("Node", "n4"), {"metadata": {"labels": {LABEL: "on"}}})
    assert story.failed() >= {"coverage", "pending"}
    # The guard has to have seen the label.
    eventually(lambda: story.publish("n4"))
    story.ask("wider", node="n4")
    story.binds("wider")
    eventually(lambda: story.failed() == set())
    goes_on(story, "General")
    story.undisturbed()

    # The last node had the version without mappings: what is bound there is charged and named from now on.
    story.publish("n5")
    eventually(lambda: story.phases(fresh=5))
    eventually(lambda: {name: amounts["cpu"] for name, amounts in booked(cluster, "n5").items()} == OLD)
    eventually(lambda: story.row()["differences"] == len(OLD))
    assert "uncounted: Pod test/old-0" in story.run("ledger", "show", "--node", "n5")
    eventually(lambda: "quiet" in story.failed())
    for name in OLD:
        story.ends(name)
    made = story.ask("everywhere", node="n5")
    assert "affinity" not in made["spec"]
    assert entry(cluster, story.binds("everywhere"))["everywhere"]["cpu"] == "2"
    eventually(lambda: story.failed() == set())
    assert "the last one" in story.rollout("promote")
    story.undisturbed()


def goes_on(story: Story, stage: str) -> None:
    """Promote it; the API server takes the stage once the guard has written that the gates have passed."""
    eventually(lambda: f"to {stage}" in story.run("rollout", "promote", story.name, codes=(0, 1)))
    assert story.stored()["spec"]["stage"] == stage


def over(story: Story, guard: Guard) -> None:
    """Nothing is left behind, and everything was told."""
    assert story.gated() == set()
    eventually(lambda: not story.ours())
    story.undisturbed()
    assert story.export()["gaps"] == []
    # A look that finds what the last one found is counted there, and one that is repeated is told again.
    reasons = [each["reason"] for each in events(story.cluster, story.name) if each["reason"] not in LOOKS]
    assert reasons == ["Held", "ResumedAt", "Resumed", *["DrillPassed"] * 3, "StageChanged", "StageChanged"]
    for look in LOOKS:
        assert events(story.cluster, story.name, look)
