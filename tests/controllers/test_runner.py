"""The controllers of one replica: which run where, and what becomes of one that fails."""

from __future__ import annotations

import asyncio
import io
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from certs.files import ensure
from tests.controllers.memory import Memory
from tests.controllers.playing import running, until
from webhook.cluster.kinds import KINDS
from webhook.cluster.live import LiveCluster
from webhook.controllers import certificates, leader, runner
from webhook.controllers.clock import ServerClock
from webhook.controllers.gates import WAITING
from webhook.controllers.runner import REFUSED, Check, Controllers, asks
from webhook.facts.times import stamp
from webhook.server.settings import Settings
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.log import Log

LEASE = "/apis/coordination.k8s.io/v1/namespaces/allocguard-system/leases/allocguard"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_TAKEN_IN", 0.0)
    monkeypatch.setattr(leader, "EVERY", 0.1)
    monkeypatch.setattr(runner, "_FIRST", 0.05)


class Shared:
    """A controller that fails as often as it is told, and then runs."""

    def __init__(self, failures: int = 0, ends: bool = False) -> None:
        self.failures, self.ends, self.begun, self.running = failures, ends, 0, False

    async def run(self) -> None:
        self.begun += 1
        if self.begun <= self.failures:
            raise RuntimeError("no luck")
        self.running = True
        try:
            if not self.ends:
                await asyncio.Event().wait()
        finally:
            self.running = False

    def checks(self) -> list[Check]:
        return [("shared", True, "ok")]


class Replica:
    def __init__(self, api: Memory, folder: Path, ahead: timedelta = timedelta(), **shared: Shared) -> None:
        ensure(folder, ["localhost"], datetime.now(UTC))
        self.said = io.StringIO()
        self.log = Log(self.said)
        settings = Settings(certs=folder, secret="allocguard-system/certificates")
        self.clock = ServerClock(self.log, lambda: datetime.now(UTC) + ahead)
        self.cluster = LiveCluster(api, self.clock.now, self.log.write)  # type: ignore[arg-type]  # the same methods
        self.cluster.synced = True
        policies = PolicyStore([shipped()])
        self.controllers = Controllers(
            settings,
            api,  # type: ignore[arg-type]  # the same methods
            self.cluster,
            policies,
            self.log,
            self.clock,
            self.clock.now,
        )
        if shared:
            self.controllers._shared = dict(shared)

    async def run(self) -> None:
        await self.controllers.run()

    async def begun(self) -> None:
        """At once: tests look at how it begins."""

    @property
    def checks(self) -> dict[str, str]:
        found = self.controllers.checks()
        assert all(fine for name, fine, _ in found if name != "certificate renewal")
        return {name: detail for name, _, detail in found}

    def lines(self) -> list[dict[str, str]]:
        self.log.close()
        return [json.loads(line) for line in self.said.getvalue().splitlines()]


def test_what_is_shared_runs_on_one_replica_and_moves_when_that_goes(tmp_path: Path) -> None:
    async def main() -> None:
        api = Memory()
        shared = [Shared(), Shared()]
        some = [Replica(api.connection(), tmp_path / str(n), work=each) for n, each in enumerate(shared)]
        async with running(some[1]):
            async with running(some[0]):
                await until(lambda: any(each.running for each in shared))
                first = [each.running for each in shared].index(True)
                assert shared[1 - first].begun == 0
                assert some[first].checks["leader"] == "ok, leading"
                assert some[first].checks["shared"] == "ok"
                holder = api.objects[LEASE]["spec"]["holderIdentity"]
                await until(lambda: some[1 - first].checks["leader"] == f"ok, {holder} leads")
            assert not shared[0].running
            await until(lambda: shared[1].running)
        assert api.objects[LEASE]["spec"]["holderIdentity"] == ""

    asyncio.run(main())


def test_nothing_shared_runs_before_the_cluster_was_seen_and_certificates_serve(tmp_path: Path) -> None:
    async def main() -> None:
        api = Memory()
        shared = Shared()
        replica = Replica(api, tmp_path, work=shared)
        replica.cluster.synced = False
        api.cut = True
        async with running(replica):
            await until(lambda: "connection refused" in replica.checks["certificate renewal"])
            assert LEASE not in api.objects
            api.cut = False
            await until(replica.controllers._certificates.ready.is_set)
            await asyncio.sleep(0.3)
            assert shared.begun == 0
            assert LEASE not in api.objects, "it is for those who can do something with it"
            replica.cluster.synced = True
            await until(lambda: shared.running)

    asyncio.run(main())


def test_a_controller_that_fails_is_started_again_and_told_once(tmp_path: Path) -> None:
    async def main() -> None:
        failing, other = Shared(failures=3), Shared()
        replica = Replica(Memory(), tmp_path, failing=failing, other=other)
        async with running(replica):
            await until(lambda: failing.running)
            assert (failing.begun, other.begun) == (4, 1)
            assert replica.checks["failing"] == "ok, but started again after: RuntimeError: no luck"
            assert "other" not in replica.checks
        told = [line for line in replica.lines() if line["event"] == "controller failed"]
        assert [(line["controller"], line["message"]) for line in told] == [("failing", "RuntimeError: no luck")]

    asyncio.run(main())


def test_a_failure_is_forgotten_once_it_runs_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_SOUND", 0.3)

    async def main() -> None:
        replica = Replica(Memory(), tmp_path, failing=Shared(failures=1))
        async with running(replica):
            await until(lambda: "failing" in replica.checks)
            await until(lambda: "failing" not in replica.checks)

    asyncio.run(main())


def test_a_controller_that_ends_is_started_again_too(tmp_path: Path) -> None:
    async def main() -> None:
        ending = Shared(ends=True)
        replica = Replica(Memory(), tmp_path, ending=ending)
        async with running(replica):
            await until(lambda: ending.begun > 1)
            assert replica.checks["ending"] == "ok, but started again after: it ended"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("service", "url", "client"),
    [
        (None, "https://10.0.0.1:8443", {"url": "https://10.0.0.1:8443/x"}),
        ("guard/one", None, {"service": {"namespace": "guard", "name": "one", "port": 443, "path": "/x"}}),
        ("guard/one:8443", None, {"service": {"namespace": "guard", "name": "one", "port": 8443, "path": "/x"}}),
    ],
)
def test_the_address_to_register(service: str | None, url: str | None, client: dict[str, object]) -> None:
    assert runner._address(service, url).client("/x", b"") == {**client, "caBundle": ""}


def test_pods_are_held_once_somebody_leads_who_may_let_them_go(tmp_path: Path) -> None:
    async def main() -> None:
        api = Memory()
        replica = Replica(api, tmp_path / "certs", work=Shared())
        assert not replica.controllers.may_hold()
        async with running(replica):
            await until(replica.controllers.may_hold)
            assert replica.checks["holding pods"] == "ok"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("action", "says", "held"),
    [
        ("Hold", "findings: pod.waitingProblems", True),
        ("Hold", "findings: variables.v", True),
        ("Hold", 'expression: "false", message: wait', False),
        ("Warn", "findings: pod.waitingProblems", False),
    ],
)
def test_whether_any_policy_holds_pods_for_a_fact(tmp_path: Path, action: str, says: str, held: bool) -> None:
    rule = '{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}'
    variables = "variables: [{name: v, expression: pod.waitingProblems}], " if "variables" in says else ""
    judged = f"{variables}validations: [{{name: a, {says}}}]"
    spec = f"endpoint: mutate, matchConstraints: {{resourceRules: [{rule}]}}, action: {action}, {judged}"
    head = "apiVersion: allocguard.dev/v1alpha1\nkind: AdmissionPolicy\nmetadata: {name: p}\n"
    (tmp_path / "p.yaml").write_text(f"{head}spec: {{{spec}}}\n")
    assert asks(PolicyStore([str(tmp_path)]), "Hold", "pod.waitingProblems") is held
    assert not asks(PolicyStore([str(tmp_path)], audit=True), "Hold", "pod.waitingProblems")


def test_the_shipped_policies_hold_pods() -> None:
    assert asks(PolicyStore([shipped()]), "Hold", WAITING)
    assert asks(PolicyStore([shipped()]), "Deny", REFUSED)
    assert not asks(PolicyStore([shipped()], audit=True), "Deny", REFUSED)


@pytest.mark.parametrize("days", [8, -8])
def test_controllers_judge_by_the_clock_of_the_api_server(tmp_path: Path, days: int) -> None:
    """Neither a hold nor quiet days end for the leader whose own clock is ahead, nor do they begin late."""

    async def main() -> None:
        api = Memory()
        until_, begun = (stamp(datetime.now(UTC) + timedelta(days=each)) for each in (1, -1))
        asked = {"quietDays": 2, "drills": ["Rollback"]}
        spec = {"stage": "Canary", "hold": {"reason": "r", "until": until_}, "promotion": asked}
        done = {"name": "Rollback", "at": begun, "passed": True}
        status = {"stage": "Canary", "observedSince": begun, "quietSince": begun, "drills": [done]}
        path = "/apis/allocguard.dev/v1alpha1/driverrollouts/d.example"
        kind = next(each for each in KINDS if each.name == "DriverRollout")
        made = {"apiVersion": kind.api_version, "kind": kind.name, "spec": spec, "status": status}
        stored = api.put(path, {**made, "metadata": {"uid": "u", "generation": 1}})
        replica = Replica(api, tmp_path, timedelta(days=days))
        replica.cluster.put(kind, stored)
        async with running(replica):
            await until(lambda: api.objects[path]["status"].get("conditions"))
        found = api.objects[path]["status"]
        conditions = {each["type"]: each for each in found["conditions"]}
        assert (conditions["Held"]["status"], conditions["Promotable"]["status"]) == ("True", "False")
        now = datetime.now(UTC)
        for each in conditions.values():
            assert abs(datetime.fromisoformat(each["lastTransitionTime"]) - now) < timedelta(minutes=1)
        gates = {gate["name"]: gate for gate in found["promotion"]["gates"]}
        # A day and as long as it took to begin.
        assert re.fullmatch(rf"no difference for 1d(\d+s)?, since {begun}", gates["quiet"]["has"])
        assert gates["drill-rollback"]["passed"] is True

    asyncio.run(main())
