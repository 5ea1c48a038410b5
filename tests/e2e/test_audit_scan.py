"""What was stored before the guard came: found, and told by metric, log, `check --live` and reports of policies."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest
from click.testing import CliRunner

from tests.e2e.client import Json
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import RELEASES
from tests.e2e.driver import per
from tests.e2e.guarding import definitions, deployed, malformed
from tests.e2e.kinds import path
from tests.e2e.report_kinds import reports_defined
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.waiting import eventually
from webhook.cli import lifting
from webhook.cli.lifting import remove_reports
from webhook.cli.program import program
from webhook.cluster.access import connect
from webhook.kube.node_ledger import PLACE, NodeLedger, Reservation, node_ledger_object, read_node_ledger
from webhook.kube.packed import packed_status
from webhook.kube.policy_report import FAMILIES, Family

OPEN, OLDER = FAMILIES


def check_live(cluster: Cluster) -> tuple[int, list[Json]]:
    """Exit code and findings of `check --live`."""
    access = cluster.plane.kubeconfig("admin", "system:masters")
    arguments = ["check", "--live", f"--kubeconfig={access}", "-o", "json"]
    ran = CliRunner(catch_exceptions=False).invoke(program, arguments)
    found: list[Json] = json.loads(ran.stdout)["findings"]
    return ran.exit_code, found


class Stored:
    """What is wrong in the cluster, before there is a guard: a slice that no scheduler can count, a claim that somebody
    keeps from being deleted, and a reservation that nobody let go.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        definitions(cluster)
        self.node = cluster.node("n1")
        cluster.device_class("cpus", "cpus.example.org")
        self.good = cluster.driver("cpus.example.org", "n1")
        self.good.publish([self.good.device("group", {"cpus": "8"}, {"cpu": per("cpus")})])
        self.bad = cluster.driver("bad.example.org", "n1")
        self.slice: str = self.bad.publish([malformed(self.bad)])["metadata"]["name"]
        cluster.claim("left", "cpus", capacity={self.good.key("cpus"): "2"})
        self.claim = cluster.path("ResourceClaim", "left")
        result = {"request": "devices", "driver": self.good.name, "pool": self.node, "device": "group"}
        result |= {"consumedCapacity": {self.good.key("cpus"): "2"}, "shareID": str(uuid.uuid4())}
        field = {"key": "metadata.name", "operator": "In", "values": [self.node]}
        allocation: Json = {"devices": {"results": [result]}, "allocationTimestamp": "2026-01-01T00:00:00Z"}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        holder = {"apiGroup": "jobs.example.org", "resource": "jobs", "name": "job", "uid": "of-the-job"}
        status = {"status": {"allocation": allocation, "reservedFor": [holder]}}
        cluster.as_scheduler.patch(f"{self.claim}/status", status)
        finalizers = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
        cluster.as_admin.patch(self.claim, finalizers)
        cluster.as_admin.delete(self.claim)
        self._reserve()

    def _reserve(self) -> None:
        taken = "2026-01-01T00:00:00Z"
        held = Reservation("no-uid", PLACE, self.cluster.ns, "never", "", "", "", (), {}, {}, taken, "a replica")
        obj = node_ledger_object(NodeLedger(self.node, reservations=(held,)))
        self.cluster.as_admin.create(path("NodeLedger"), {**obj, "status": {}})
        self.cluster.as_admin.patch(
            path("NodeLedger", self.node, sub="status"), {"status": packed_status(obj["status"])}
        )

    def release(self) -> None:
        """Have the holder leave the claim, which is cleaned up then."""
        self.cluster.as_scheduler.patch(f"{self.claim}/status", {"status": {"reservedFor": None}})
        eventually(lambda: self.cluster.as_admin.find(self.claim) is None)

    def report(self, family: Family, clustered: bool) -> Json | None:
        """The stored report of the cluster, or of the test's namespace."""
        where = "" if clustered else self.cluster.ns
        return self.cluster.as_admin.find(family.path(clustered, where, "allocguard"))

    def results(self, family: Family, clustered: bool, name: str) -> dict[str, Json]:
        """The results about the object ``name`` by rule."""
        found = (self.report(family, clustered) or {}).get("results", [])
        return {each["rule"]: each for each in found if each["resources"][0]["name"] == name}

    def check(self) -> dict[tuple[str, str], Json]:
        """What `check --live` finds, by the object's name and rule."""
        code, found = check_live(self.cluster)
        assert code == 1
        return {(each["name"], each["rule"]): each for each in found}


def test_what_was_stored_before_the_guard_came(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    if cluster.release != RELEASES[-1]:
        pytest.skip("reports are the same in all releases")
    stored = Stored(cluster)
    found = stored.check()
    assert found[stored.slice, "product-overflow"]["severity"] == "error"
    assert found["left", "leftover-reservation"]["severity"] == "info"
    assert found[stored.node, "reservation-stale"]["severity"] == "warning"
    with reports_defined(cluster, OLDER):
        # As a guard has left it that knew no newer group.
        made: Json = {"metadata": {"name": "allocguard", "labels": {"app.kubernetes.io/managed-by": "allocguard"}}}
        made |= {"apiVersion": OLDER.api_version, "kind": OLDER.kinds[True]}
        cluster.as_admin.create(OLDER.path(True), made)
        with reports_defined(cluster, OPEN):
            guard = deployed(cluster)
            left = eventually(lambda: stored.results(OPEN, False, "left"))["leftover-reservation"]
            assert (left["policy"], left["severity"], left["result"]) == ("claim-allocation", "info", "warn")
            assert left["resources"][0]["uid"] == cluster.as_admin.get(stored.claim)["metadata"]["uid"]
            overflow = stored.results(OPEN, True, stored.slice)["product-overflow"]
            told = found[stored.slice, "product-overflow"]
            # The API server dropped nothing of it, and refused no value.
            assert overflow | {"timestamp": 0, "resources": 0} == {
                "source": "allocguard",
                "policy": "slice-mappings",
                "rule": "product-overflow",
                "category": "Admission",
                "severity": "high",
                "result": "fail",
                "scored": True,
                "message": f"{told['path']}: {told['message']}",
                "properties": {"path": told["path"]},
                "timestamp": 0,
                "resources": 0,
            }
            assert stored.results(OPEN, True, stored.node)["reservation-stale"]["category"] == "Ledger"
            whole = stored.report(OPEN, False)
            assert whole is not None
            assert whole["scope"] == {"apiVersion": "v1", "kind": "Namespace", "name": cluster.ns}
            assert (whole["source"], whole["configuration"]["limits"]) == ("allocguard", {"maxResults": 250})
            metric = {"policy": "slice-mappings", "rule": "product-overflow", "severity": "error"}
            assert guard.metric("allocguard_audit_scan_findings", **metric) >= 1
            assert guard.metric("allocguard_audit_scan_timestamp_seconds") > 0
            [line] = guard.lines(event="audit finding", name=stored.slice, rule="product-overflow")
            assert line["path"] == told["path"]
            since = overflow["timestamp"]
            eventually(lambda: stored.report(OLDER, True) is None)

            # Whoever leads next goes on with them: what lasts keeps its time, what is over goes.
            guard.stop()
            stored.release()
            guard.start()
            eventually(lambda: stored.report(OPEN, False) is None)
            assert stored.results(OPEN, True, stored.slice)["product-overflow"]["timestamp"] == since
            guard.stop()
            # No guard is left that could make them again.
            monkeypatch.setattr(lifting, "SETTLE", 0.05)
            assert _removed(cluster) == 1
            assert stored.report(OPEN, True) is None
        guard.start()
        overflow = eventually(lambda: stored.results(OLDER, True, stored.slice))["product-overflow"]
        assert (overflow["severity"], overflow["result"]) == ("high", "fail")
        assert {each["severity"] for each in (stored.report(OLDER, True) or {})["results"]} >= {"high", "low"}
        guard.stop()


def test_what_the_scheduler_placed_and_the_ledger_booked_is_not_in_its_own_way(cluster: Cluster) -> None:
    deployed(cluster)
    # To the last cpu: the claim's 8, and 2 of the pod itself.
    shared_cpus(cluster, cpu="10")
    cpu_claim(cluster, "c", 8)
    cluster.pod("p", ["c"], cpu="2")
    cluster.scheduled("p")
    eventually(lambda: read_node_ledger(cluster.get("NodeLedger", "n1")).charges)
    wrong = {"c": "node-overcommit", cluster.name("n1"): "node-overcommit"}

    def errors() -> dict[str, str]:
        found = check_live(cluster)[1]
        ours = [each for each in found if each["name"] in ("c", "p", cluster.name("n1"))]
        return {each["name"]: each["rule"] for each in ours if each["severity"] == "error"}

    assert errors() == {}
    cluster.as_admin.patch(path("Node", cluster.name("n1"), sub="status"), {"status": {"allocatable": {"cpu": "9"}}})
    assert errors() == wrong


def _removed(cluster: Cluster) -> int:
    """What `uninstall` does about reports; how many they were."""
    access = cluster.plane.kubeconfig("admin", "system:masters")

    async def run() -> Any:
        api = await connect(str(access))
        try:
            return await remove_reports(api)
        finally:
            await api.close()

    found: int = asyncio.run(run())
    return found
