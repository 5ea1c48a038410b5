"""One alert for each cause, claim and writer, whatever comes in which order, from how many sides."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.controllers.memory import Json, Memory
from tests.controllers.playing import until
from tests.facts.test_write_failures import recorded, snapshot_of
from webhook.controllers import write_alerts
from webhook.controllers.write_alerts import WriteAlerts, claim_writers
from webhook.facts.write_failures import CAUSES
from webhook.facts.writers import WriterParams
from webhook.kube.snapshot import Snapshot
from webhook.kube.trace import trace_id
from webhook.store.policies import PolicyStore, shipped
from webhook.telemetry.log import Log
from webhook.telemetry.metrics import AUDIT_OUTCOMES

NOW = datetime(2026, 11, 30, 13, 10, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_alerts, "SETTLE", 0)


class Replica:
    def __init__(self, snapshot: Snapshot | None = None, api: Memory | None = None) -> None:
        self.now = NOW
        self.snapshot = Snapshot() if snapshot is None else snapshot
        self.stream = io.StringIO()
        self.log = Log(self.stream)
        self.params = WriterParams()
        sources = (lambda: self.snapshot, lambda: self.params, self.log, lambda: self.now)
        self.alerts = WriteAlerts(*sources, api)  # type: ignore[arg-type]
        self.failures: Counter[tuple[str, str]] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.traces: set[str] = set()
        self.alerts.on_failure = self._failed
        self.alerts.on_events = lambda outcome, count: self.outcomes.update({outcome: count})

    def _failed(self, writer: str, cause: str, trace: str) -> None:
        self.failures.update([(writer, cause)])
        self.traces.add(trace)

    def take(self, *events: Json) -> None:
        """Look at these at once."""
        assert self.alerts.offer([json.dumps(each).encode() for each in events])
        while (raw := self.alerts._next()) is not None:
            self.alerts._take(raw)

    def told(self) -> list[Json]:
        """The alerts of the log; it ends with this."""
        self.log.close()
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        assert not [line for line in lines if line["level"] == "error"]
        return [line for line in lines if line["event"] == "status write failed"]


def event(row: str, number: int = 0, **changes: Any) -> Json:
    """A recorded event, as one of its own."""
    made = deepcopy(recorded(row)["event"])
    return {**made, "auditID": f"{row}-{number}", "stageTimestamp": "2026-11-30T13:09:00.000000Z", **changes}


def snapshot(row: str) -> Snapshot:
    return snapshot_of(recorded(row)["objects"])


def test_one_alert_names_everything() -> None:
    replica = Replica(snapshot("driver-other-verb"))
    replica.take(event("driver-other-verb"))
    [line] = replica.told()
    assert line["cause"] == "verb-mismatch"
    assert line["usual"] == "b"
    assert line["user"] == "system:serviceaccount:test-metadata:driver-other-verb"
    assert (line["node"], line["allocatedNode"]) == ("n1-metadata", "n1-metadata")
    assert (line["namespace"], line["name"]) == ("test-metadata", "driver-other-verb")
    assert line["uid"]
    assert line["drivers"] == ["cpu-metadata.example.org"]
    assert line["missing"][0] == "associated-node:patch on resourceclaims/driver"
    assert "verbs: [associated-node:patch]}" in line["message"]
    assert line["retry"].startswith("retry after 1s")
    assert replica.failures == {("system:serviceaccount:test-metadata:driver-other-verb", "verb-mismatch"): 1}


def test_again_and_again_is_one_alert_until_an_hour_is_over() -> None:
    replica = Replica(snapshot("driver-verb-missing"))
    for minute in range(0, 130, 10):
        replica.now = NOW + timedelta(minutes=minute)
        at = f"{replica.now:%Y-%m-%dT%H:%M:%SZ}"
        replica.take(event("driver-verb-missing", minute, stageTimestamp=at))
    lines = replica.told()
    assert [line["times"] for line in lines] == [1, 7]
    assert sum(replica.failures.values()) == 13


def test_a_clock_that_is_set_back_keeps_no_alert_back() -> None:
    replica = Replica(snapshot("driver-verb-missing"))
    for number, now in enumerate((NOW + timedelta(days=30), NOW, NOW + timedelta(minutes=10))):
        replica.now = now
        replica.take(event("driver-verb-missing", number, stageTimestamp=f"{now:%Y-%m-%dT%H:%M:%SZ}"))
    assert [line["times"] for line in replica.told()] == [1, 1]


def test_the_same_event_counts_once() -> None:
    """A batch that was sent again, or an API server that sends what its log has, too."""
    replica = Replica(snapshot("role-missing"))
    replica.take(event("role-missing"), event("role-missing"))
    replica.take(event("role-missing"))
    assert sum(replica.failures.values()) == 1
    assert replica.outcomes == {"failed": 1, "repeated": 2, "ignored": 0}


def test_order_does_not_matter() -> None:
    rows = ("role-missing", "both", "driver-wrong-names", "conflict", "other-node")
    told = []
    for order in (rows, rows[::-1]):
        replica = Replica(snapshot_of([each for row in rows for each in recorded(row)["objects"]]))
        replica.take(*(event(row) for row in order))
        told.append(sorted((line["cause"], line["name"], line["user"]) for line in replica.told()))
    assert told[0] == told[1]
    assert len(told[0]) == 5


def test_another_writer_claim_or_cause_is_another_alert() -> None:
    replica = Replica(snapshot("both"))
    one = event("both")
    other = event("both", 1, user={**one["user"], "username": "system:serviceaccount:other:one"})
    third = event("both", 2, objectRef={**one["objectRef"], "name": "third"})
    replica.take(one, other, third)
    causes = Counter(line["cause"] for line in replica.told())
    assert causes == {"binding-missing": 3, "driver-verb-missing": 3}


def test_a_claim_that_is_made_anew_is_another_one() -> None:
    objects = recorded("role-missing")["objects"]
    replica = Replica(snapshot_of(objects))
    replica.take(event("role-missing"))
    [claim] = [each for each in objects if each["kind"] == "ResourceClaim"]
    claim["metadata"]["uid"] = "another"
    replica.snapshot = snapshot_of(objects)
    replica.take(event("role-missing", 1))
    assert replica.traces == {trace_id(line["uid"]) for line in replica.told()}
    assert len(replica.traces) == 2


def test_what_passes_is_told_only_where_it_does_not() -> None:
    replica = Replica(snapshot("conflict"))
    written = event("conflict", 100, responseStatus={"metadata": {}, "code": 200})
    replica.take(*(event("conflict", n) for n in range(4)), written)
    replica.take(*(event("conflict", n) for n in range(10, 14)))
    assert sum(replica.failures.values()) == 8
    replica.now += timedelta(minutes=11)
    replica.take(*(event("conflict", n) for n in range(20, 24)))
    assert "status write failed" not in replica.stream.getvalue()
    replica.take(event("conflict", 30), event("conflict", 31))
    [line] = replica.told()
    assert (line["cause"], line["times"]) == ("conflict", 5)


def test_what_the_guard_refused_is_counted_only() -> None:
    replica = Replica()
    status = {"code": 403, "message": 'admission webhook "claims.allocguard.dev" denied the request: no'}
    replica.take(*(event("webhook-refused", n, responseStatus=status) for n in range(10)))
    assert replica.told() == []
    assert sum(replica.failures.values()) == 10


def test_a_role_that_was_corrected_by_half_is_another_alert() -> None:
    """What roles show is looked at again."""
    objects = recorded("driver-verb-missing")["objects"]
    replica = Replica(snapshot_of(objects))
    replica.take(event("driver-verb-missing"))
    for obj in objects:
        if obj["kind"] == "ClusterRole" and obj["metadata"]["name"].startswith("driver-verb-missing"):
            rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"]}
            obj["rules"].append({**rule, "verbs": ["associated-node:patch"], "resourceNames": ["gpu.example.org"]})
    replica.snapshot = snapshot_of(objects)
    replica.now += timedelta(minutes=1)
    replica.take(event("driver-verb-missing", 1), event("driver-verb-missing", 2))
    assert [line["cause"] for line in replica.told()] == ["driver-verb-missing", "wrong-driver-names"]


def test_what_is_left_out() -> None:
    replica = Replica()
    pods = {"apiGroup": "", "resource": "pods", "subresource": "status", "name": "p"}
    replica.take(
        event("role-missing", 1, stageTimestamp="2026-11-30T12:09:00Z"),
        event("role-missing", 2, objectRef=pods),
        event("role-missing", 3, objectRef={**pods, "resource": "resourceclaims", "apiGroup": "example.org"}),
        event("role-missing", 4, stage="RequestReceived"),
        event("dry-run"),
        event("role-missing", 5, responseStatus={"code": 200}),
    )
    assert replica.alerts.offer([b'{"resource":"resourceclaims","subresource":"status"', b"{"])
    replica.alerts._take(replica.alerts._next() or b"")
    assert replica.outcomes == {"old": 1, "ignored": 5, "written": 1, "unreadable": 1}
    assert replica.told() == []


def test_each_replica_writes_the_same_event_about_the_claim() -> None:
    api = Memory()
    place = "/api/v1/namespaces/test-metadata/events/"

    async def run() -> None:
        replicas = [Replica(snapshot("driver-wrong-names"), api.connection()) for _ in range(3)]
        tasks = [asyncio.create_task(each.alerts.run()) for each in replicas]
        for each in replicas:
            each.alerts.offer([json.dumps(event("driver-wrong-names")).encode()])
        await until(lambda: api.objects and not any(each.alerts._events for each in replicas))
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(len(each.told()) == 1 for each in replicas)

    asyncio.run(run())
    [path] = api.objects
    assert path.startswith(f"{place}driver-wrong-names.")
    made = api.objects[path]
    assert (made["reason"], made["type"]) == ("StatusWriteFailed", "Warning")
    [claim] = [each for each in recorded("driver-wrong-names")["objects"] if each["kind"] == "ResourceClaim"]
    assert made["involvedObject"]["uid"] == claim["metadata"]["uid"]
    assert "write-failures/wrong-driver-names: " in made["message"]


def test_an_event_that_cannot_be_written_is_told_once() -> None:
    api = Memory()
    api.cut = True

    async def run() -> str:
        rows = ("driver-wrong-names", "other-node")
        replica = Replica(snapshot_of([each for row in rows for each in recorded(row)["objects"]]), api)
        task = asyncio.create_task(replica.alerts.run())
        replica.alerts.offer([json.dumps(event(row)).encode() for row in rows])
        await until(lambda: sum(replica.failures.values()) == 2 and not replica.alerts._events)
        await asyncio.sleep(0.2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        replica.log.close()
        return replica.stream.getvalue()

    assert asyncio.run(run()).count("no event about a failed status write") == 1


def test_a_storm_is_told_in_parts_and_counted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_alerts, "BURST", 20)
    replica = Replica()
    for n in range(1000):
        place = {**event("role-missing")["objectRef"], "name": f"c{n}"}
        replica.take(event("role-missing", n, objectRef=place))
    replica.now += timedelta(seconds=1)
    place = {**event("role-missing")["objectRef"], "name": "c999"}
    replica.take(event("role-missing", 1000, objectRef=place))
    assert sum(replica.failures.values()) == 1001
    assert [line["name"] for line in replica.told()] == [*(f"c{n}" for n in range(20)), "c999"]


def test_nothing_grows_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MOST_KNOWN", "MOST_SEEN", "MOST_EVENTS", "MOST_LABELS"):
        monkeypatch.setattr(write_alerts, name, 10)
    replica = Replica()
    for n in range(200):
        user = {"username": f"u{n}-" + "x" * 5000}
        place = {**event("role-missing")["objectRef"], "name": f"c{n}"}
        status = {**event("other-node")["responseStatus"], "code": 422}
        replica.take(event("role-missing", n, objectRef=place, user=user, responseStatus=status))
    alerts = replica.alerts
    assert (len(alerts._known), len(alerts._seen), len(alerts._users)) == (10, 10, 10)
    assert len(alerts._events) <= 10
    assert all(len(user) <= 512 for user in alerts._users)
    assert len({writer for writer, _ in replica.failures}) == 11
    assert replica.failures["other", "not-associated"] == 190


def test_more_than_can_wait_is_turned_away_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_alerts, "MOST_WAITING", 3)
    replica = Replica()
    ours = json.dumps(event("role-missing")).encode()
    assert replica.alerts.offer([ours] * 4)
    assert not replica.alerts.offer([ours])
    assert replica.alerts.offer([b"{}"])
    assert len(replica.alerts._waiting) == 4
    monkeypatch.setattr(write_alerts, "MOST_BYTES", 10)
    assert not replica.alerts.offer([ours])


def test_a_kubelet_and_the_control_plane_as_labels() -> None:
    replica = Replica(snapshot("kubelet"))
    replica.take(event("kubelet"), event("immutable"), event("unauthorized"))
    assert {writer for writer, _ in replica.failures} == {"kubelet", "system:kube-scheduler", "unauthenticated"}


def test_an_event_waits_until_its_claim_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_alerts, "SETTLE", 60)
    replica = Replica()
    replica.take(event("role-missing"))
    assert not replica.outcomes["failed"]
    replica.snapshot = snapshot("role-missing")
    monkeypatch.setattr(write_alerts, "SETTLE", 0)
    replica.take()
    [line] = replica.told()
    assert line["uid"]


def test_who_allocates_by_a_policy(tmp_path: Path) -> None:
    """Its params are heard: an allocator that they name is told the rule, and nothing of leaving it to others."""
    file = tmp_path / "claim-writers.yaml"
    text = (Path(shipped()) / file.name).read_text()
    file.write_text(text.replace("allocators: [", "allocators: [system:serviceaccount:test-metadata:both, "))
    replica = Replica(snapshot("both"))
    replica.params = claim_writers(PolicyStore([str(file)]))
    replica.take(event("both"))
    [message] = [line["message"] for line in replica.told() if line["cause"] == "binding-missing"]
    assert "left to the scheduler" not in message
    assert "resources: [resourceclaims/binding], verbs: [patch]" in message
    file.write_text(text.replace("writer.claimProblems", "writer.blobProblems"))
    assert claim_writers(PolicyStore([str(file)])) == WriterParams()


def test_what_readyz_says() -> None:
    replica = Replica()
    assert replica.alerts.checks() == [("audit events", True, "ok, but none has come yet")]
    replica.take(event("role-missing"))
    replica.now += timedelta(seconds=12)
    assert replica.alerts.checks() == [("audit events", True, "ok, the last came 12s ago; 1 failed status writes")]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 999) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ROWS = ("both", "role-missing", "other-node", "foreign-data", "webhook-down", "immutable")
MEMBERS = ("user", "impersonatedUser", "requestObject", "responseStatus", "stageTimestamp", "auditID", "requestURI")
STATUS = ("message", "details", "reason", "code")


@settings(max_examples=100)
@given(
    st.sampled_from(ROWS), st.dictionaries(st.sampled_from(MEMBERS), json_values), st.none() | json_values, st.data()
)
def test_members_of_any_type(row: str, changes: dict[str, Any], value: object, data: st.DataObject) -> None:
    """Whatever is in them, events are taken in or left out; what they are counted by stays within what there is."""
    made = event(row, **changes)
    if isinstance(made["responseStatus"], dict):
        made["responseStatus"] = {**made["responseStatus"], data.draw(st.sampled_from(STATUS)): value}
    replica = Replica(snapshot(row))
    replica.take(made)
    replica.told()
    assert "error" not in replica.outcomes
    assert set(replica.outcomes) <= set(AUDIT_OUTCOMES)
    assert {cause for _, cause in replica.failures} <= CAUSES
