from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.controllers.memory import Memory
from webhook.cluster.api import ApiError
from webhook.controllers import event_queue
from webhook.controllers.event_queue import GATHER, MOST, OBJECT_BURST, TRIES, EventQueue, Happening
from webhook.controllers.events import about_claim, about_pod
from webhook.kube.object_event import NODE, RULE, SINCE, ObjectEvent, read_object_event

NOW = datetime(2026, 11, 30, 12, 0, 0, 250_000, tzinfo=UTC)
CLAIM = about_claim("ns", "c1", "u1")
Json = dict[str, Any]


class Lines:
    def __init__(self) -> None:
        self.written: list[Json] = []

    def write(self, level: str, event: str, **fields: object) -> None:
        self.written.append({"level": level, "event": event, **fields})


class Scene:
    """A queue on a server in memory, by a clock of the test's own; ``writes`` counts what came to the server."""

    def __init__(self) -> None:
        self.api, self.log, self.lost, self.now = Memory(), Lines(), 0, 1000.0
        self.writes = 0
        self.refuse: ApiError | None = None
        self.queue = EventQueue(self.api, self.log, self.drop, lambda: self.now)  # type: ignore[arg-type]
        create, patch = self.api.create, self.api.patch

        async def created(path: str, obj: Json, **params: object) -> Json:
            self.writes += 1
            if self.refuse is not None:
                raise self.refuse
            return await create(path, obj, **params)

        async def patched(path: str, body: Json, kind: str, **params: object) -> Json:
            self.writes += 1
            return await patch(path, body, kind, **params)

        self.api.create, self.api.patch = created, patched  # type: ignore[method-assign]

    def drop(self, count: int) -> None:
        self.lost += count

    def tell(self, seconds: float = 0.0, about: Json = CLAIM, reason: str = "AllocationRefused", **more: Any) -> None:
        fields = {"message": "m", "warning": True, "mark": "full", "rule": "full", **more}
        self.queue.offer(Happening(about, reason, at=NOW + timedelta(seconds=seconds), **fields))

    def look(self, later: float = 0.0) -> float:
        self.now += later
        return asyncio.run(self.queue.round())

    def stored(self) -> list[ObjectEvent]:
        return [read_object_event(obj) for path, obj in self.api.objects.items() if "/events/" in path]


def test_the_first_is_told_at_once_and_those_of_the_next_seconds_together() -> None:
    scene = Scene()
    scene.tell(node="n1")
    assert scene.look() == event_queue.LOOK
    [first] = scene.stored()
    assert (first.count, first.reason, first.rule, first.node, first.warning) == (
        1,
        "AllocationRefused",
        "full",
        "n1",
        True,
    )
    assert first.since == "2026-11-30T12:00:00.250000Z"
    for second in range(1, 21):
        scene.tell(second, message=f"m{second}", node="n2")
        scene.look(1)
    assert [each.count for each in scene.stored()] == [1]
    scene.look(GATHER)
    [event] = scene.stored()
    assert (event.count, event.message, event.node) == (21, "m20", "n2")
    assert (event.since, event.until) == (first.since, "2026-11-30T12:00:20Z")


def test_what_is_not_alike_is_an_event_of_its_own() -> None:
    scene = Scene()
    other = about_claim("ns", "c2", "u2")
    scene.tell()
    scene.tell(mark="other")
    scene.tell(about=other)
    scene.tell(reason="ClaimCharged", warning=False)
    scene.tell(about=about_pod("ns", "c1", "u1"), mark="pod", related=CLAIM)
    scene.look()
    assert len(scene.stored()) == 5
    assert [each.related for each in scene.stored() if each.kind == "Pod"] == ["u1"]


def test_two_replicas_count_the_same_event() -> None:
    scene, other = Scene(), Scene()
    other.api.objects = scene.api.objects
    for each, times in ((scene, 3), (other, 4)):
        for second in range(times):
            each.tell(second)
        each.look()
    [event] = scene.stored()
    assert (event.count, event.until) == (7, "2026-11-30T12:00:03Z")
    # The slower one, whose moment is the older.
    scene.tell(1)
    scene.look(GATHER)
    [event] = scene.stored()
    assert (event.count, event.until) == (8, "2026-11-30T12:00:03Z")


def test_refusals_of_a_claim_without_end_are_a_handful_of_writes_and_none_is_forgotten() -> None:
    """Each second, for a day."""
    scene = Scene()
    happening = Happening(CLAIM, "AllocationRefused", "m", NOW, True, "full", "full")
    times = 24 * 3600
    for number in range(times):
        scene.queue.offer(happening)
        if number % 60 == 59:
            scene.look(60)
    for _ in range(6):
        scene.look(60)
    [event] = scene.stored()
    assert event.count == times
    assert scene.lost == 0
    # 25 at once, then one in five minutes; each is a create that is refused and a patch.
    assert scene.writes < 2 * (OBJECT_BURST + 24 * 12 + 2)


def test_one_object_with_many_reasons_keeps_its_limit_and_is_not_in_the_way_of_others() -> None:
    scene = Scene()
    for number in range(OBJECT_BURST + 10):
        scene.tell(mark=str(number))
    scene.tell(about=about_claim("ns", "c2", "u2"))
    scene.look()
    assert len(scene.stored()) == OBJECT_BURST + 1
    assert {each.uid for each in scene.stored()} == {"u1", "u2"}
    for _ in range(10):
        scene.look(event_queue.OBJECT_EVERY)
    assert len(scene.stored()) == OBJECT_BURST + 11
    assert scene.lost == 0


def test_all_together_keep_the_limit_of_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    slept: list[float] = []
    really, here = asyncio.sleep, threading.get_ident()

    async def sleep(seconds: float) -> None:
        if threading.get_ident() != here:
            # Whatever else runs in this process, as what an earlier test has left.
            await really(seconds)
            return
        slept.append(seconds)
        scene.now += seconds

    monkeypatch.setattr("webhook.controllers.event_queue.asyncio.sleep", sleep)

    async def at_once() -> None:
        return None

    scene.api._answer = at_once  # type: ignore[method-assign]
    for number in range(500):
        scene.tell(about=about_claim("ns", f"c{number}", f"u{number}"))
    while len(scene.stored()) < 500:
        scene.look()
    assert sum(slept) == pytest.approx((500 - event_queue.BURST) / event_queue.RATE, rel=0.05)


def test_for_want_of_room_the_oldest_that_is_no_warning_goes_first() -> None:
    scene = Scene()
    for number in range(MOST - 1):
        scene.tell(about=about_claim("ns", f"c{number}", f"u{number}"))
    scene.tell(reason="ClaimCharged", warning=False, about=about_claim("ns", "n", "charged"))
    scene.tell(about=about_claim("ns", "x", "last"))
    assert scene.lost == 1
    scene.tell(about=about_claim("ns", "y", "later"))
    assert scene.lost == 2
    while scene.look(2) < event_queue.LOOK:
        pass
    told = {each.uid for each in scene.stored()}
    assert len(told) == MOST
    assert {"last", "later", f"u{MOST - 2}"} <= told
    assert not {"charged", "u0"} & told


def test_what_is_remembered_is_bounded() -> None:
    scene = Scene()
    for start in range(0, 3 * MOST, 50):
        for number in range(start, start + 50):
            scene.tell(about=about_claim("ns", f"c{number}", f"u{number}"))
        scene.look(2)
    queue = scene.queue
    assert max(len(queue._quiet), len(queue._objects), len(queue._warnings), len(queue._others)) <= MOST


def test_without_the_api_server_it_is_tried_again_and_then_dropped_and_counted_and_told_once() -> None:
    scene = Scene()
    scene.api.cut = True
    for _ in range(3):
        scene.tell()
    scene.tell(about=about_claim("ns", "c2", "u2"))
    for _ in range(TRIES):
        assert scene.look() == event_queue.PAUSE
        assert scene.look(event_queue.PAUSE) == event_queue.PAUSE
        scene.now += GATHER
    assert scene.lost == 4
    assert scene.look() == event_queue.LOOK
    assert [(each["event"], each["message"]) for each in scene.log.written] == [
        ("events not written", "connection refused")
    ]
    assert scene.queue.checks() == [("events", True, "ok, but connection refused")]
    scene.api.cut = False
    scene.tell(60)
    scene.look(GATHER)
    assert [each.count for each in scene.stored()] == [1]
    assert scene.queue.checks() == [("events", True, "ok")]


def test_what_came_while_the_api_server_was_away_is_counted_with_what_was_tried() -> None:
    scene = Scene()
    scene.api.cut = True
    scene.tell()
    scene.look()
    scene.tell(5, message="later")
    scene.api.cut = False
    scene.look(GATHER)
    [event] = scene.stored()
    assert (event.count, event.message, event.since) == (2, "later", "2026-11-30T12:00:00.250000Z")
    assert scene.lost == 0


@pytest.mark.parametrize(
    ("error", "lost", "said"),
    [
        (ApiError(404, "NotFound", "namespaces ns not found"), 0, 0),
        (ApiError(403, "Forbidden", "unable to create: ns is being terminated"), 0, 0),
        (ApiError(422, "Invalid", "involvedObject.namespace"), 0, 0),
        (ApiError(403, "Forbidden", "allocguard cannot create events"), 1, 1),
        (ApiError(429, "TooManyRequests", "slow down"), 1, 1),
        (ApiError(500, "InternalError", "etcd"), 1, 1),
    ],
    ids=["no namespace", "ending namespace", "no such object", "no right", "too many", "fails"],
)
def test_what_the_api_server_refuses(error: ApiError, lost: int, said: int) -> None:
    """An object that is gone needs no event; anything else is tried again, and counted when it comes to nothing."""
    scene = Scene()
    scene.refuse = error
    scene.tell()
    for _ in range(TRIES):
        scene.look(GATHER)
    assert (scene.lost, len(scene.log.written)) == (lost, said)
    scene.refuse = None
    scene.look(GATHER)
    assert scene.stored() == []


def test_a_namespace_that_takes_no_events_is_in_nobody_elses_way_and_told_once() -> None:
    """A quota, or a policy of somebody."""
    scene = Scene()
    create = scene.api.create

    async def created(path: str, obj: Json, **params: object) -> Json:
        if "/namespaces/full/" in path:
            raise ApiError(403, "Forbidden", "exceeded quota: none")
        return await create(path, obj, **params)

    scene.api.create = created  # type: ignore[method-assign]
    for number in range(500):
        scene.tell(about=about_claim("full", f"c{number}", f"f{number}"))
    for number in range(20):
        scene.tell(about=about_claim("ns", f"c{number}", f"u{number}"))
    looks = 0
    while len(scene.stored()) < 20:
        assert scene.look(1) != event_queue.PAUSE
        looks += 1
    assert looks <= 520 / event_queue.RATE + 1
    for _ in range(TRIES):
        scene.tell(about=about_claim("ns", "later", f"u{scene.now}"))
        for _ in range(20):
            scene.look(GATHER / 20)
    assert scene.lost == 500
    assert len(scene.log.written) == 1
    assert scene.queue.checks()[0][2].startswith("ok, but events of c")
    for _ in range(3):
        scene.tell(about=about_claim("ns", "later", f"u{scene.now}"))
        scene.look(GATHER)
    assert scene.queue.checks() == [("events", True, "ok")]


def test_when_it_ends_it_tells_what_is_gathered() -> None:
    scene = Scene()

    async def run() -> None:
        task = asyncio.create_task(scene.queue.run())
        scene.tell()
        while not scene.stored():
            await asyncio.sleep(0.01)
        scene.tell(1)
        scene.tell(2)
        for number in range(80):
            scene.tell(about=about_claim("ns", f"more{number}", f"more{number}"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert [each.count for each in scene.stored()] == [3, *[1] * 80]


def test_a_server_that_does_not_answer_keeps_the_end_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_queue, "LAST", 0.05)
    scene = Scene()
    scene.api.slow = 60

    async def run() -> float:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(scene.queue.run())
        await asyncio.sleep(0)
        scene.tell()
        begun = loop.time()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return loop.time() - begun

    assert asyncio.run(run()) < 1


def test_any_thread_may_tell() -> None:
    scene = Scene()

    def many() -> None:
        for number in range(1000):
            scene.tell(about=about_claim("ns", f"c{number % 7}", f"u{number % 7}"))

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        scene.look()
    scene.look(GATHER)
    assert sum(each.count for each in scene.stored()) == 4000
    assert len(scene.stored()) == 7


def test_names_of_objects_and_messages_are_one_line() -> None:
    scene = Scene()
    scene.tell(message="a\nb\x1b[31mc\u2028d")
    scene.look()
    assert scene.stored()[0].message == "a b [31mc d"


def test_what_is_stored_is_what_people_filter_by() -> None:
    scene = Scene()
    scene.tell(node="n1")
    scene.look()
    [obj] = [obj for path, obj in scene.api.objects.items() if path.startswith("/api/v1/namespaces/ns/events/c1.")]
    assert obj["metadata"]["annotations"] == {RULE: "full", NODE: "n1", SINCE: "2026-11-30T12:00:00.250000Z"}
    assert (obj["involvedObject"], obj["source"]) == (CLAIM, {"component": "allocguard"})
