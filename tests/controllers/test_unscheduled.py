"""Pods that wait without a gate: who is told what, how often and how fast."""

from __future__ import annotations

import asyncio
import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.controllers.memory import Memory
from tests.controllers.playing import until
from tests.facts.builders import DRIVER, claim, device_class, grp, node, pod, rollout, slice_of
from webhook.cluster.api import ApiError
from webhook.cluster.kinds import KINDS
from webhook.cluster.live import LiveCluster
from webhook.controllers import unscheduled
from webhook.controllers.unscheduled import MOST, Unscheduled
from webhook.kube.core import GATE
from webhook.telemetry.log import Log

Json = dict[str, Any]
NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
KIND = {kind.name: kind for kind in KINDS}
TEXT = f"driver-held: has driver {DRIVER} held: books half, by me, needs the hold to be taken back"


def held(reason: str = "books half") -> Json:
    return rollout(hold={"reason": reason, "by": "me"})


def waiting(name: str = "p1", created: str = "2026-11-20T09:00:00Z", **spec: Any) -> Json:
    return pod(name, metadata={"creationTimestamp": created}, **{"nodeName": None, **spec})


class Server(Memory):
    """Refuses events as it is told."""

    refusal: ApiError | None = None

    async def create(self, path: str, obj: Json, **params: object) -> Json:
        if self.refusal is not None:
            raise self.refusal
        return await super().create(path, obj, **params)


class World:
    """A cluster, the view of it, and the controller."""

    def __init__(self, *objs: Json) -> None:
        self.api, self.said = Server(), io.StringIO()
        self.log = Log(self.said)
        self.view = LiveCluster(self.api, lambda: NOW, self.log.write)  # type: ignore[arg-type]  # the same methods
        self.see(node(), slice_of(grp()), device_class(), claim(), *objs)
        self.stops = True
        self.controller = self.begun()

    def begun(self) -> Unscheduled:
        """A controller that knows nothing of one before it."""
        return Unscheduled(self.api, self.view, lambda: self.stops, self.log, lambda: NOW)  # type: ignore[arg-type]

    def see(self, *objs: Json) -> None:
        for obj in objs:
            kind = KIND[obj["kind"]]
            self.view.put(kind, {**obj, "apiVersion": kind.api_version})

    def look(self, times: int = 2) -> list[str]:
        async def looks() -> list[str]:
            return [await self.controller.look() for _ in range(times)]

        return asyncio.run(looks())

    @property
    def events(self) -> list[Json]:
        return [obj for path, obj in self.api.objects.items() if "/events/" in path]

    @property
    def told(self) -> list[str]:
        return [each["involvedObject"]["name"] for each in self.events]

    @property
    def check(self) -> str:
        [(name, fine, detail)] = self.controller.checks()
        assert (name, fine) == ("unscheduled pods", True)
        return detail


def test_a_pod_is_told_once_why_it_waits_and_not_again_by_the_next_leader() -> None:
    world = World(held(), waiting())
    assert world.look(1) == [""]
    assert world.told == []
    assert world.look(3) == [""] * 3
    [event] = world.events
    assert (event["reason"], event["type"], event["count"]) == ("ClaimsHeld", "Warning", 1)
    assert event["message"].startswith(TEXT)
    assert world.check == "ok; 1 wait: driver-held"
    world.controller = world.begun()
    assert world.look(3) == [""] * 3
    assert world.events == [event]


def test_another_reason_is_told_too() -> None:
    world = World(held(), waiting())
    world.look()
    world.see(rollout(stage="Off"))
    world.look()
    assert [each["message"].partition(":")[0] for each in world.events] == ["driver-held", "stage-off"]


@pytest.mark.parametrize(
    "objs",
    [
        [held(), waiting(nodeName="n1")],
        [held(), waiting(schedulingGates=[{"name": GATE}])],
        [held(), waiting(schedulingGates=[{"name": "other"}])],
        [held(), pod("p1", metadata={"deletionTimestamp": "2026-11-20T09:00:00Z"}, nodeName=None)],
        [rollout(), waiting()],
        [rollout("other.example", hold={"reason": "not ours"}), waiting()],
    ],
    ids=["bound", "gated", "gated-by-others", "deleted", "not-held", "another-held"],
)
def test_who_does_not_wait_for_it_is_told_nothing(objs: list[Json]) -> None:
    world = World(*objs)
    world.look(3)
    assert world.told == []
    assert world.check == "ok"


def test_where_nothing_is_refused_or_tainted_nobody_waits() -> None:
    world = World(held(), waiting())
    world.stops = False
    world.look(3)
    assert world.told == []
    world.stops = True
    world.look(2)
    assert world.told == ["p1"]


def test_what_passes_between_two_looks_is_not_told() -> None:
    world = World(held(), waiting())
    world.look(1)
    world.see(rollout())
    world.look(1)
    world.see(held())
    world.look(1)
    assert world.told == []


def test_of_many_the_oldest_are_told_first_and_some_at_a_look() -> None:
    times = [f"2026-11-20T09:{number // 60:02}:{number % 60:02}Z" for number in range(MOST + 10)]
    world = World(held(), *(waiting(f"p{number}", created) for number, created in reversed([*enumerate(times)])))
    world.look(2)
    assert sorted(world.told) == sorted(f"p{number}" for number in range(MOST))
    world.look(1)
    assert len(world.told) == MOST + 10
    assert world.check == f"ok; {MOST + 10} wait: driver-held"


def test_what_could_not_be_told_is_told_later_and_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unscheduled, "LOOK", 0.01)
    monkeypatch.setattr(unscheduled, "LATER", 0.01)
    world = World(held(), waiting())
    world.api.refusal = ApiError(403, "Forbidden", "events is forbidden")

    async def main() -> None:
        async with asyncio.timeout(30):
            task = asyncio.create_task(world.controller.run())
            await until(lambda: "forbidden" in world.check)
            await asyncio.sleep(0.1)
            world.api.refusal = None
            await until(lambda: world.told == ["p1"])
            task.cancel()

    asyncio.run(main())
    world.log.close()
    [line] = [json.loads(line) for line in world.said.getvalue().splitlines()]
    assert (line["event"], line["level"]) == ("pods not told what they wait for", "warning")
    assert line["message"] == "events of ns/p1: 403 Forbidden: events is forbidden"


@pytest.mark.parametrize(
    "refusal",
    [
        ApiError(404, "NotFound", 'namespaces "ns" not found'),
        ApiError(403, "Forbidden", "unable to create new content in namespace ns because it is being terminated"),
    ],
)
def test_a_namespace_that_goes_takes_no_events(refusal: ApiError) -> None:
    world = World(held(), waiting())
    world.api.refusal = refusal
    assert world.look(3) == [""] * 3
