"""Pods that wait with our scheduling gate: who goes on and when, what they are told, and what stands in the way."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import jsonpatch
import pytest

from tests.controllers.memory import Memory
from tests.controllers.playing import until
from tests.facts.builders import claim, device_class, grp, node, pod, rollout, slice_of
from webhook.cluster.api import ApiError
from webhook.cluster.kinds import KINDS
from webhook.cluster.live import LiveCluster
from webhook.controllers import gates
from webhook.controllers.gates import Gates
from webhook.controllers.places import Places
from webhook.facts.waiting import Waiting
from webhook.kube.core import GATE
from webhook.telemetry.log import Log

Json = dict[str, Any]
NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
KIND = {kind.name: kind for kind in KINDS}
HELD = rollout(hold={"reason": "books half", "by": "me"})
TEXT = "driver-held: has driver d.example held: books half, by me, needs the hold to be taken back"


class Server(Memory):
    """With the JSON patches of pods, which the view sees at once unless it is ``behind_view``. ``refuses`` may have an
    answer for a pod, or for events, by name.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patched: list[str] = []
        self.events: dict[str, Json] = {}
        self.writes = 0
        self.refuses: Callable[[str], ApiError | None] = lambda name: None
        self.seen: Callable[[Json], None] = lambda obj: None
        self.after: Callable[[], object] = int

    async def patch(self, path: str, body: Any, kind: str, **params: object) -> Json:
        await self._answer()
        assert kind == "json"
        self.writes += 1
        name = path.rpartition("/")[2]
        if (refusal := self.refuses(name)) is not None:
            raise refusal
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path} not found")
        try:
            changed = jsonpatch.apply_patch(self.objects[path], body)
        except jsonpatch.JsonPatchException as error:
            raise ApiError(422, "Invalid", "the server rejected our request due to an error in our request") from error
        self.patched.append(name)
        self.after()
        stored = self.put(path, changed)
        self.seen(stored)
        return stored

    async def create(self, path: str, obj: Json, **params: object) -> Json:
        self.writes += 1
        if (refusal := self.refuses("events")) is not None:
            raise refusal
        made = await super().create(path, obj, **params)
        self.events[made["involvedObject"]["name"]] = made
        return made


class Untainted:
    """Where there are no taints."""

    possible = False

    def want(self, full: object) -> None:
        """No."""

    def stands(self, wanted: object) -> bool:
        return False


class World:
    """A cluster, the view of it, and the controller."""

    def __init__(self, *objs: Json) -> None:
        self.api, self.said = Server(), io.StringIO()
        self.log = Log(self.said)
        self.view = LiveCluster(self.api, lambda: NOW, self.log.write)  # type: ignore[arg-type]  # the same methods
        self.see(node(), slice_of(grp()), device_class(), *objs)
        self.holds, self.released = True, 0
        self.gates = self.begun()
        self.api.seen = self.see

    def begun(self) -> Gates:
        """A controller that knows nothing of one before it."""
        places = Places(self.api, self.view, Untainted(), lambda: NOW, "me")  # type: ignore[arg-type]  # the same methods
        made = Gates(self.api, self.view, lambda fact: self.holds, places, self.log, lambda: NOW)  # type: ignore[arg-type]
        made.on_release = self._release
        return made

    def _release(self) -> None:
        self.released += 1

    def see(self, *objs: Json) -> None:
        for obj in objs:
            kind = obj["kind"]
            self.view.put(KIND[kind], {**obj, "apiVersion": KIND[kind].api_version})
            if kind == "Pod":
                place = f"/api/v1/namespaces/ns/pods/{obj['metadata']['name']}"
                self.api.objects[place] = obj

    def gates_of(self, name: str) -> list[str]:
        stored = self.api.objects[f"/api/v1/namespaces/ns/pods/{name}"]
        return [each["name"] for each in stored["spec"].get("schedulingGates", ())]

    def lines(self) -> list[Json]:
        self.log.close()
        return [json.loads(line) for line in self.said.getvalue().splitlines()]


def gated(name: str = "p1", *others: str, created: str = "2026-11-20T09:00:00Z", **metadata: Any) -> Json:
    wanted = [{"name": each} for each in (*others, GATE)]
    return pod(name, metadata={"creationTimestamp": created, **metadata}, schedulingGates=wanted)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(limited())


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "GATHER", 0.01)
    monkeypatch.setattr(gates, "LOOK", 0.05)


def test_a_pod_waits_while_its_driver_is_held_and_is_told_once_why() -> None:
    async def test() -> None:
        world = World(claim(), HELD, gated("p1", "other"))
        for _ in range(3):
            assert await world.gates.look() == ""
        assert world.gates_of("p1") == ["other", GATE]
        event = world.api.events["p1"]
        assert (event["reason"], event["type"], event["involvedObject"]["uid"]) == ("ClaimsHeld", "Warning", "uid-p1")
        assert event["message"].startswith(TEXT)
        assert world.gates.checks() == [("gates", True, "ok; 1 wait: driver-held")]
        world.see(rollout())
        assert await world.gates.look() == ""
        # Somebody else's gate stays, and two writes are all that it took.
        assert world.gates_of("p1") == ["other"]
        assert (world.api.writes, world.released) == (2, 1)
        assert await world.gates.look() == ""
        assert world.api.writes == 2
        assert world.gates.checks() == [("gates", True, "ok")]

    run(test)


def test_who_has_waited_longest_goes_first() -> None:
    async def test() -> None:
        pods = [gated(f"p{n}", created=f"2026-11-20T09:00:{60 - n}Z") for n in range(10, 50)]
        world = World(claim(), *pods, gated("a", created="2026-11-20T09:00:20Z"))
        await world.gates.look()
        assert world.api.patched == [*(f"p{n}" for n in range(49, 40, -1)), "a", *(f"p{n}" for n in range(40, 9, -1))]

    run(test)


def test_whoever_leads_next_tells_nobody_twice_and_goes_on() -> None:
    async def test() -> None:
        world = World(claim(), HELD, gated())
        await world.gates.look()
        stored = dict(world.api.events["p1"])
        again = world.begun()
        await again.look()
        await again.look()
        assert world.api.events == {"p1": stored}
        # The one that was refused as being there already, and no third.
        assert world.api.writes == 2
        world.see(rollout())
        await again.look()
        assert world.gates_of("p1") == []

    run(test)


def test_nothing_is_written_twice_while_the_view_is_behind() -> None:
    async def test() -> None:
        world = World(claim(), gated())
        late: list[Json] = []
        world.api.seen = late.append
        for _ in range(3):
            await world.gates.look()
        assert (world.api.writes, world.released) == (1, 1)
        world.see(*late)
        await world.gates.look()
        assert world.api.writes == 1

    run(test)


@pytest.mark.parametrize("status", [404, 409, 422])
def test_a_pod_that_was_changed_or_is_gone_is_no_trouble(status: int) -> None:
    async def test() -> None:
        world = World(claim(), gated("p1"), gated("p2"))
        world.api.refuses = lambda name: ApiError(status, "Some", "overtaken") if name == "p1" else None
        assert await world.gates.look() == ""
        assert (world.gates_of("p1"), world.gates_of("p2")) == ([GATE], [])
        assert (world.released, world.gates.checks()) == (1, [("gates", True, "ok")])
        # Once it shows what was changed, it is tried again.
        world.api.refuses = lambda name: None
        await world.gates.look()
        assert world.gates_of("p1") == [GATE]
        world.see(gated("p1", "new"))
        await world.gates.look()
        assert world.gates_of("p1") == ["new"]

    run(test)


def test_another_pod_of_the_name_and_another_place_of_the_gate_are_left_to_the_next_look() -> None:
    async def test() -> None:
        world = World(claim(), gated("p1"), gated("p2", "other"))
        stored = world.api.objects
        stored["/api/v1/namespaces/ns/pods/p1"] = gated("p1", uid="another")
        stored["/api/v1/namespaces/ns/pods/p2"] = gated("p2", "first", "second")
        assert await world.gates.look() == ""
        assert (world.gates_of("p1"), world.gates_of("p2")) == ([GATE], ["first", "second", GATE])

    run(test)


def test_a_refusal_is_told_and_keeps_no_other_pod_from_going_on() -> None:
    async def test() -> None:
        world = World(claim(), *(gated(f"p{n}") for n in range(20)))
        world.api.refuses = lambda name: ApiError(403, "Forbidden", "no") if name == "p3" else None
        problem = await world.gates.look()
        assert problem == "ns/p3: 403 Forbidden: no"
        assert [name for n in range(20) if world.gates_of(name := f"p{n}")] == ["p3"]
        await world.gates.look()
        assert world.api.writes == 20

    run(test)


def test_without_the_right_not_every_pod_is_tried() -> None:
    async def test() -> None:
        world = World(claim(), *(gated(f"p{n:03}") for n in range(100)))
        world.api.refuses = lambda name: ApiError(403, "Forbidden", "cannot patch pods")
        assert await world.gates.look() == "ns/p000: 403 Forbidden: cannot patch pods"
        assert world.api.writes == gates.AT_ONCE

    run(test)


def test_what_is_wrong_is_told_once_and_in_readyz_until_it_is_right() -> None:
    async def test() -> None:
        world = World(claim(), gated())
        world.api.refuses = lambda name: ApiError(403, "Forbidden", "cannot patch pods")
        task = asyncio.create_task(world.gates.run())
        wrong = [("gates", True, "ok, but ns/p1: 403 Forbidden: cannot patch pods")]
        await until(lambda: world.gates.checks() == wrong)
        await asyncio.sleep(2.5)
        assert world.gates.checks() == wrong
        world.api.refuses = lambda name: None
        world.see(gated("p1", "other"))
        await until(lambda: world.gates.checks() == [("gates", True, "ok")])
        assert world.gates_of("p1") == ["other"]
        task.cancel()
        told = [line for line in world.lines() if line["event"] == "gates not lifted"]
        assert [line["message"] for line in told] == ["ns/p1: 403 Forbidden: cannot patch pods"]

    run(test)


def test_one_cause_is_said_once_whatever_pods_it_befalls() -> None:
    def forbidden(name: str) -> ApiError:
        return ApiError(403, "Forbidden", f'pods "{name}" is forbidden: cannot patch')

    async def test() -> None:
        world = World(claim(), gated("p1"))
        world.api.refuses = forbidden
        task = asyncio.create_task(world.gates.run())
        for name, after in (("p1", "p2"), ("p2", "p3")):
            await until(lambda name=name: f"ns/{name}: 403" in world.gates.checks()[0][2])
            # The pod goes as it is, and another one comes.
            world.view.drop(KIND["Pod"], ("ns", name))
            await until(lambda: world.gates.checks() == [("gates", True, "ok")])
            world.see(gated(after))
        await until(lambda: "ns/p3: 403" in world.gates.checks()[0][2])
        world.api.refuses = lambda name: None
        world.see(gated("p3", "other"))
        await until(lambda: world.released == 1)
        await until(lambda: world.gates.checks() == [("gates", True, "ok")])
        world.api.refuses = forbidden
        world.see(gated("p5"))
        await until(lambda: "ns/p5: 403" in world.gates.checks()[0][2])
        task.cancel()
        told = [line["message"][:7] for line in world.lines() if line["event"] == "gates not lifted"]
        assert told == ["ns/p1: ", "ns/p5: "]

    run(test)


def test_an_api_server_that_is_away_or_busy_is_asked_again_soon() -> None:
    async def test() -> None:
        world = World(claim(), gated())
        world.api.cut = True
        assert await world.gates.look() == "connection refused"
        world.api.cut = False
        world.api.refuses = lambda name: ApiError(429, "TooManyRequests", "later")
        assert await world.gates.look() == "ns/p1: 429 TooManyRequests: later"
        world.api.refuses = lambda name: None
        assert await world.gates.look() == ""
        assert world.gates_of("p1") == []

    run(test)


def test_events_that_are_refused_keep_nobody_waiting() -> None:
    async def test() -> None:
        held = pod("p2", {"c": "c2"}, schedulingGates=[{"name": GATE}])
        more = [
            claim("c2", requests=[{"name": "r", "exactly": {"deviceClassName": "e", "count": 1}}]),
            device_class("e", "e.example"),
            rollout("e.example", hold={"reason": "r"}),
        ]
        world = World(claim(), *more, gated("p1"), held)
        world.api.refuses = lambda name: (
            ApiError(403, "Forbidden", "cannot create events") if name == "events" else None
        )
        for _ in range(3):
            assert await world.gates.look() == ""
        assert world.gates_of("p1") == []
        assert (world.api.writes, world.released) == (2, 1)
        wrong = "ok, but events of ns/p2: 403 Forbidden: cannot create events; 1 wait: driver-held"
        assert world.gates.checks() == [("gates", True, wrong)]
        assert [line["event"] for line in world.lines()] == [
            "pods not told what they wait for",
            "pods released",
        ]

    run(test)


def test_a_namespace_that_is_being_removed_takes_no_events() -> None:
    async def test() -> None:
        world = World(claim(), HELD, gated())
        gone = "events is forbidden: unable to create new content in namespace ns because it is being terminated"
        world.api.refuses = lambda name: ApiError(403, "Forbidden", gone)
        for _ in range(2):
            assert await world.gates.look() == ""
        assert (world.api.writes, world.gates.checks()) == (1, [("gates", True, "ok; 1 wait: driver-held")])

    run(test)


def test_no_gate_is_left_when_no_policy_holds_pods_any_more() -> None:
    async def test() -> None:
        world = World(claim(), HELD, gated())
        world.holds = False
        await world.gates.look()
        assert world.gates_of("p1") == []

    run(test)


def test_no_gate_is_left_when_there_is_nothing_to_wait_for() -> None:
    async def test() -> None:
        nothing = pod("p3", {}, schedulingGates=[{"name": GATE}])
        world = World(gated("p1"), nothing)
        world.view.drop(KIND["ResourceSlice"], ("", "s1"))
        await world.gates.look()
        assert (world.gates_of("p1"), world.gates_of("p3")) == ([], [])

    run(test)


def test_a_pod_that_is_being_deleted_is_left_alone() -> None:
    async def test() -> None:
        going = gated("p1", deletionTimestamp="2026-11-20T09:29:00Z")
        world = World(claim(), HELD, going)
        await world.gates.look()
        world.see(rollout())
        await world.gates.look()
        assert world.api.writes == 0

    run(test)


def test_a_hold_stops_the_release_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(claim(), *(gated(f"p{n:03}") for n in range(200)))
        monkeypatch.setattr(gates, "BURST", 200)
        world.gates = world.begun()

        def hold() -> None:
            if len(world.api.patched) == 40:
                world.see(HELD)

        world.api.after = hold
        await world.gates.look()
        # What was under way is all that comes after it.
        assert 40 <= len(world.api.patched) <= 40 + gates.AT_ONCE
        before = list(world.api.patched)
        await world.gates.look()
        assert world.api.patched == before
        assert world.gates.checks() == [("gates", True, f"ok; {200 - len(before)} wait: driver-held")]

    run(test)


def test_no_more_than_the_rate_are_released_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr(gates, "RATE", 40.0)
        monkeypatch.setattr(gates, "BURST", 10)
        world = World(claim(), HELD, *(gated(f"p{n:03}") for n in range(60)))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        task = asyncio.create_task(world.gates.run())
        await until(lambda: len(world.api.events) == 60)
        assert loop.time() - begun >= 50 / 40
        world.see(rollout())
        begun = loop.time()
        await until(lambda: world.released == 60)
        assert 50 / 40 <= loop.time() - begun <= 3 * 50 / 40
        task.cancel()

    run(test)


def test_each_pod_is_looked_at_a_few_times_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    pod_waits = Waiting.pod

    def counted(self: Waiting, each: Any) -> Any:
        looked.append(each.name)
        return pod_waits(self, each)

    async def test() -> None:
        monkeypatch.setattr(gates, "RATE", 1000.0)
        monkeypatch.setattr(gates, "ROUND", 20.0)
        monkeypatch.setattr(Waiting, "pod", counted)
        world = World(claim(), *(gated(f"p{n:04}") for n in range(2000)))
        world.gates = world.begun()
        await world.gates.look()
        assert world.released == 2000
        # Once to see who goes on, and before each write; what waits for its turn is not looked at again and again.
        assert len(looked) <= 3 * 2000

    run(test)


def test_what_changes_while_many_are_told_is_looked_at_before_they_all_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "ROUND", 60.0)
    monkeypatch.setattr(gates, "BURST", 1)

    async def test() -> None:
        world = World(claim(), HELD, *(gated(f"p{n:03}") for n in range(100)))
        task = asyncio.create_task(world.gates.run())
        await until(lambda: len(world.api.events) > 2)
        world.see(rollout())
        await until(lambda: world.released > 2, 1)
        assert len(world.api.events) < 60
        task.cancel()

    run(test)


def test_it_looks_when_something_changed_and_not_while_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "LOOK", 60.0)

    async def test() -> None:
        world = World(claim(), HELD)
        task = asyncio.create_task(world.gates.run())
        await asyncio.sleep(0.05)
        world.see(gated())
        await until(lambda: world.api.events, 2)
        world.see(rollout())
        await until(lambda: world.released == 1, 2)
        assert len(world.view.on_change) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert world.view.on_change == []

    run(test)
