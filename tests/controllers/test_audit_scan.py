"""The scan of what is stored, against an API server in memory; reports on a real one are in tests/e2e."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.controllers.playing import running, until
from tests.ledger.booked import claim, grp
from tests.ledger.builders import node, world
from webhook.cluster.api import ApiError, Unreachable
from webhook.cluster.kinds import KINDS
from webhook.controllers import audit_reports, audit_scan
from webhook.controllers.audit_scan import AuditScan, Counts, _slowly
from webhook.kube import policy_report
from webhook.kube.policy_report import FAMILIES, MANAGED_BY, NAME, SELECTOR
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.log import Log

Json = dict[str, Any]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
PATHS = {kind.name: kind.path for kind in KINDS}
OPEN, OLDER = FAMILIES
DUPLICATE = ("claim-allocation", "shareid-duplicate", "error")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_scan, "FIRST", 0.0)
    monkeypatch.setattr(audit_reports, "_GAP", 0.0)


class Server:
    """Objects by path, whole ones to list, and the kinds of reports of ``families``."""

    def __init__(self, *objs: Json, families: tuple[Any, ...] = (OPEN,)) -> None:
        self.lists: dict[str, list[Json]] = {path: [] for path in PATHS.values()}
        for obj in objs:
            self.lists[PATHS[obj["kind"]]].append(obj)
        self.reports: dict[str, Json] = {}
        self.collections = {family.path(each) for family in families for each in (True, False)}
        self.refusal: dict[str, Exception] = {}
        self.writes: list[str] = []
        self._versions = iter(range(1, 10**6))

    def _may(self, path: str) -> None:
        for part, error in self.refusal.items():
            if part in path:
                raise error

    def _served(self, path: str) -> None:
        base, _, rest = path.partition("/namespaces/")
        if (f"{base}/{rest.split('/')[1]}" if rest else path) not in self.collections:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")

    async def get(self, path: str, **params: Any) -> Json:
        self._may(path)
        if path in self.lists:
            items = self.lists[path]
        else:
            self._served(path)
            assert params["labelSelector"] == SELECTOR
            family, _, plural = path.rpartition("/")
            items = [obj for place, obj in self.reports.items() if place.startswith(family) and f"/{plural}/" in place]
            items = [obj for obj in items if obj["metadata"].get("labels", {}).get(MANAGED_BY) == NAME]
        begin = int(params.get("continue") or 0)
        end = begin + params["limit"]
        more = {"continue": str(end)} if end < len(items) else {}
        return {"metadata": more, "items": json.loads(json.dumps(items[begin:end]))}

    async def create(self, path: str, obj: Json) -> Json:
        self._may(path)
        self._served(path)
        return self._put(f"{path}/{obj['metadata']['name']}", obj, "create")

    async def update(self, path: str, obj: Json) -> Json:
        self._may(path)
        if self.reports[path]["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        return self._put(path, obj, "update")

    async def delete(self, path: str, body: Json) -> Json:
        assert body["preconditions"]["uid"] == self.reports[path]["metadata"]["uid"]
        self.writes.append(f"delete {path}")
        return self.reports.pop(path)

    def _put(self, path: str, obj: Json, how: str) -> Json:
        self.writes.append(f"{how} {path}")
        metadata = {**obj["metadata"], "resourceVersion": str(next(self._versions)), "uid": f"uid of {path}"}
        self.reports[path] = json.loads(json.dumps({**obj, "metadata": metadata}))
        return self.reports[path]


class View:
    def __init__(self, *objs: Json) -> None:
        self.snapshot = world(*objs)


class Scanning:
    """The controller with its world: two claims on one share of a device."""

    def __init__(self, *objs: Json, audit: bool = False, **options: Any) -> None:
        self.objs = list(objs or (node(cpu="64"), grp(), claim("a", "4"), claim("b", "4")))
        self.server = Server(*self.objs, **options)
        self.view = View(*self.objs)
        self.said = io.StringIO()
        self.log = Log(self.said)
        self.now = NOW
        self.scans: list[tuple[Counts, datetime]] = []
        self.made = AuditScan(
            self.server,  # type: ignore[arg-type]  # the same methods
            self.view,
            PolicyStore([shipped()], audit),
            self.log,
            lambda: self.now,
        )
        self.made.on_scan = lambda counts, at: self.scans.append((counts, at))

    def without(self, name: str) -> None:
        """The object of this name is gone."""
        self.objs = [obj for obj in self.objs if obj["metadata"]["name"] != name]
        self.server.lists = {**self.server.lists, **Server(*self.objs).lists}
        self.view.snapshot = world(*self.objs)

    async def run(self) -> None:
        await self.made.run()

    async def begun(self) -> None:
        await until(lambda: self.scans)

    def lines(self, event: str) -> list[Json]:
        """To be asked once, at the end."""
        self.log.close()
        return [line for line in map(json.loads, self.said.getvalue().splitlines()) if line["event"] == event]

    @property
    def check(self) -> str:
        [(name, fine, told)] = self.made.checks()
        assert (name, fine) == ("audit scan", True)
        return told


def looked(scanning: Scanning, times: int = 1) -> list[bool]:
    async def look() -> list[bool]:
        return [await scanning.made.look() for _ in range(times)]

    return asyncio.run(look())


def test_what_is_found_is_counted_logged_and_reported() -> None:
    scanning = Scanning()
    assert scanning.check == "ok, no scan has ended yet"
    assert looked(scanning) == [True]
    [(counts, at)] = scanning.scans
    assert (counts[DUPLICATE], at) == (2, NOW)
    assert counts["ledger", "leftover-claims", "info"] == 1
    reports = scanning.server.reports
    assert sorted(reports) == [
        "/apis/openreports.io/v1alpha1/clusterreports/allocguard",
        "/apis/openreports.io/v1alpha1/namespaces/ns/reports/allocguard",
    ]
    named = {each["resources"][0]["name"] for each in reports[sorted(reports)[1]]["results"]}
    assert named == {"a", "b"}
    assert scanning.check.startswith(f"ok, {sum(n for key, n in counts.items() if key[2] == 'error')} errors, ")
    told = [line for line in scanning.lines("audit finding") if line["rule"] == "shareid-duplicate"]
    assert [(line["level"], line["kind"], line["namespace"], line["name"]) for line in told] == [
        ("warning", "ResourceClaim", "ns", name) for name in ("a", "b")
    ]
    assert told[0]["message"].startswith("has shareID")


def test_the_second_look_tells_and_writes_nothing_and_since_when_stays() -> None:
    scanning = Scanning()
    looked(scanning)
    before = json.dumps(scanning.server.reports)
    scanning.server.writes.clear()
    # The words of leftovers have their age in them.
    scanning.now += timedelta(minutes=10)
    assert looked(scanning) == [True]
    assert (scanning.server.writes, json.dumps(scanning.server.reports)) == ([], before)
    assert scanning.scans[-1][1] == scanning.now
    assert len(scanning.lines("audit finding")) == sum(scanning.scans[0][0].values())


def test_words_are_brought_up_to_date_once_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_reports, "REFRESH", -1.0)
    scanning = Scanning()
    looked(scanning)
    scanning.server.writes.clear()
    scanning.now += timedelta(hours=2)
    looked(scanning)
    assert scanning.server.writes == ["update /apis/openreports.io/v1alpha1/clusterreports/allocguard"]
    results = scanning.server.reports[scanning.server.writes[0].split()[1]]["results"]
    assert {each["timestamp"]["seconds"] for each in results} == {int(NOW.timestamp())}
    assert any("(333d14h)" in each["message"] for each in results)


def test_what_is_over_is_told_and_its_report_deleted() -> None:
    scanning = Scanning()
    looked(scanning)
    scanning.without("b")
    looked(scanning)
    assert scanning.scans[-1][0][DUPLICATE] == 0
    scanning.without("a")
    scanning.without("s1")
    looked(scanning)
    assert scanning.server.reports == {}
    over = scanning.lines("audit finding over")
    assert {(line["name"], line["rule"]) for line in over} >= {("a", "shareid-duplicate"), ("n1", "leftover-claims")}


def test_where_nothing_is_refused_what_would_be_is_found_all_the_same() -> None:
    scanning = Scanning(audit=True)
    looked(scanning)
    assert scanning.scans[0][0][DUPLICATE] == 2


def test_one_that_was_written_a_moment_ago_was_judged_then() -> None:
    scanning = Scanning()
    newer = claim("b", "4", version=21)
    scanning.view.snapshot = scanning.view.snapshot.put(newer)
    looked(scanning)
    assert scanning.scans[0][0][DUPLICATE] == 1


def test_a_scan_that_cannot_be_ended_says_nothing_about_what_is_stored() -> None:
    scanning = Scanning()
    looked(scanning)
    scanning.server.refusal = {PATHS["ResourceClaim"]: ApiError(500, "InternalError", "etcd is away")}
    assert looked(scanning, 2) == [False, False]
    assert len(scanning.scans) == 1
    assert "but what is stored: 500 InternalError: etcd is away" in scanning.check
    assert len(scanning.server.reports) == 2
    scanning.server.refusal = {}
    assert looked(scanning) == [True]
    assert "etcd" not in scanning.check
    assert len(scanning.lines("stored objects not scanned")) == 1


def test_reports_are_written_to_the_end_where_that_takes_longer_than_the_server_remembers_their_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_reports, "_PAGE", 2)
    scanning = Scanning()
    stale = [OPEN.path(False, namespace, NAME) for namespace in ("a", "b", "c")]
    for path in stale:
        metadata = {"name": NAME, "namespace": path.split("/")[5], "labels": {MANAGED_BY: NAME}}
        scanning.server._put(path, {"metadata": metadata}, "")
    real, expired = scanning.server.get, []

    async def get(path: str, **params: Any) -> Json:
        if path == OPEN.path(False) and params["continue"] == "2" and not expired:
            expired.append(path)
            raise ApiError(410, "Expired", "the provided continue parameter is too old", resume="0")
        return await real(path, **params)

    monkeypatch.setattr(scanning.server, "get", get)
    looked(scanning)
    assert expired
    assert "but" not in scanning.check
    assert not set(stale) & set(scanning.server.reports)
    assert OPEN.path(False, "ns", NAME) in scanning.server.reports


@pytest.mark.parametrize("families", [(), (OLDER,), (OPEN,), (OPEN, OLDER)])
def test_reports_are_of_the_newest_group_that_there_is(families: tuple[Any, ...]) -> None:
    scanning = Scanning(families=families)
    looked(scanning)
    group = families[0].group if families else "none"
    assert len(scanning.server.reports) == (2 if families else 0)
    assert all(path.startswith(f"/apis/{group}/") for path in scanning.server.reports)
    assert "but" not in scanning.check


def test_those_of_the_older_group_go_when_a_newer_comes() -> None:
    scanning = Scanning(families=(OLDER,))
    looked(scanning)
    scanning.server.collections |= {OPEN.path(each) for each in (True, False)}
    looked(scanning)
    assert {path.split("/")[2] for path in scanning.server.reports} == {"openreports.io"}
    assert len(scanning.server.reports) == 2


def test_somebody_elses_reports_stay() -> None:
    scanning = Scanning()
    theirs = OPEN.path(False, "ns", "allocguard-of-kyverno")
    scanning.server._put(theirs, {"metadata": {"name": "allocguard-of-kyverno", "labels": {MANAGED_BY: "kyverno"}}}, "")
    other = OPEN.path(False, "other", "mine")
    scanning.server._put(other, {"metadata": {"name": "mine", "namespace": "other", "labels": {MANAGED_BY: NAME}}}, "")
    for name in ("a", "b", "s1"):
        scanning.without(name)
    looked(scanning)
    assert sorted(scanning.server.reports) == sorted([theirs, other])


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ApiError(403, "Forbidden", "reports is forbidden"), "403 Forbidden"),
        (Unreachable("timed out"), "timed out"),
        # A namespace that is being removed, and somebody who was faster.
        (ApiError(403, "Forbidden", "namespace ns because it is being terminated"), ""),
        (ApiError(409, "AlreadyExists", "there is one"), ""),
    ],
)
def test_reports_that_cannot_be_written_keep_nothing_else(error: Exception, told: str) -> None:
    scanning = Scanning()
    scanning.server.refusal = {"/namespaces/ns/reports": error}
    assert looked(scanning, 2) == [True, True]
    assert len(scanning.scans) == 2
    assert (told in scanning.check) if told else ("but" not in scanning.check)
    assert "/apis/openreports.io/v1alpha1/clusterreports/allocguard" in scanning.server.reports
    assert len(scanning.lines("reports of the audit scan not written")) == bool(told)


def test_very_many_findings_are_counted_all_and_told_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_scan, "TOLD", 5)
    monkeypatch.setattr(audit_reports, "MOST", 10)
    monkeypatch.setattr(policy_report, "MOST", 10)
    scanning = Scanning(node(cpu="64"), grp(), *(claim(f"c{number:03d}", "1") for number in range(30)))
    looked(scanning)
    assert scanning.scans[0][0][DUPLICATE] == 30
    [report] = [obj for path, obj in scanning.server.reports.items() if "namespaces" in path]
    assert [each["resources"][0]["name"] for each in report["results"]] == sorted(
        each["resources"][0]["name"] for each in report["results"]
    )
    assert (len(report["results"]), report["results"][0]["severity"]) == (10, "high")
    assert report["summary"]["fail"] == sum(n for key, n in scanning.scans[0][0].items() if key[2] == "error")
    assert len(scanning.lines("audit finding")) == 5


def test_it_begins_at_once_goes_on_and_takes_its_figures_back_when_another_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_scan, "EVERY", 0.01)
    scanning = Scanning()

    async def story() -> None:
        async with running(scanning):
            await until(lambda: len(scanning.scans) > 2)

    asyncio.run(story())
    assert scanning.scans[-1] == ({}, NOW)


def test_work_is_done_in_a_thread_and_pauses_between() -> None:
    ends: list[float] = []

    def steps() -> Iterator[None]:
        for _ in range(6):
            time.sleep(0.015)
            ends.append(time.monotonic())
            yield

    async def story() -> int:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.001)
                beats += 1

        beating = asyncio.create_task(beat())
        await _slowly(steps())
        beating.cancel()
        return beats

    assert asyncio.run(story()) > 20
    gaps = [after - before for before, after in itertools.pairwise(ends)]
    # Two steps are more than one stretch of work; four times as long there is none.
    assert sum(gap > 0.1 for gap in gaps) >= 2
