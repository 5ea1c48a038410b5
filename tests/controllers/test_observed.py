from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

from tests.controllers.memory import Memory
from tests.facts.builders import DRIVER, NOW, grp, rollout, slice_of
from webhook.cluster.api import ApiError, Unreachable
from webhook.controllers.observed import Observed
from webhook.controllers.rollout_status import PATH
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.telemetry.log import Log

Json = dict[str, Any]
EVENTS = "/api/v1/namespaces/default/events/"
BEGUN = {"observedSince": "2026-11-20T09:00:00Z"}


class World:
    """A view of what is stored."""

    def __init__(self, api: Memory, *more: Json) -> None:
        self.api, self.more = api, more
        self.shown: list[bool] = []

    def stored(self, costs: bool) -> None:
        self.shown.append(costs)

    @property
    def snapshot(self) -> Snapshot:
        rollouts = [obj for path, obj in self.api.objects.items() if path.startswith(PATH)]
        return build([*rollouts, *self.more], Release(36))


def observed(api: Memory, *more: Json) -> Observed:
    return Observed(api, World(api, *more), Log(io.StringIO()), lambda: NOW)  # type: ignore[arg-type]


def looks(controller: Observed, times: int = 1) -> list[str]:
    async def all_of_them() -> list[str]:
        return [await controller.look() for _ in range(times)]

    return asyncio.run(all_of_them())


def events(api: Memory) -> list[tuple[str, str, str]]:
    found = [obj for path, obj in api.objects.items() if path.startswith(EVENTS)]
    return [(each["involvedObject"]["kind"], each["involvedObject"]["name"], each["message"]) for each in found]


def with_rollout(status: Json | None = None) -> Memory:
    api = Memory()
    put(api, status or {})
    return api


def put(api: Memory, status: Json, uid: str = "u") -> None:
    made = rollout(DRIVER, stage="Canary")
    api.put(f"{PATH}/{DRIVER}", {**made, "metadata": {"name": DRIVER, "uid": uid}, "status": status})


@pytest.mark.parametrize(
    ("api", "about"),
    [(with_rollout(), ("DriverRollout", DRIVER)), (Memory(), ("ResourceSlice", "s1"))],
    ids=["rollout", "slice"],
)
def test_dropped_costs_are_an_event_about_the_rollout_or_else_the_slice(api: Memory, about: tuple[str, str]) -> None:
    controller = observed(api, slice_of(grp()))
    controller.dropped = lambda snapshot: {DRIVER: "s1"}
    assert looks(controller, 3) == [""] * 3
    [(kind, name, message)] = events(api)
    assert (kind, name) == about
    assert "slice s1 is stored without the costs" in message
    assert "DRANodeAllocatableResources is off" in message


def test_what_could_not_be_told_is_told_later() -> None:
    api = with_rollout()
    drops = [{DRIVER: "s1"}]
    controller = observed(api, slice_of(grp()))
    controller.dropped = lambda snapshot: drops.pop() if drops else {}
    api.fail = 1
    assert looks(controller, 2) == [f"{DRIVER}: connection refused", ""]
    assert len(events(api)) == 1


def test_refusals_are_added_to_what_is_counted_for_the_stage() -> None:
    api = with_rollout({**BEGUN, "duplicates": 1})
    counts = {DRIVER: (2, 0), "other.example": (9, 9)}
    replicas = [observed(api), observed(api)]
    for each in replicas:
        each.refusals = lambda: counts
        assert looks(each, 2) == ["", ""]
    status = api.objects[f"{PATH}/{DRIVER}"]["status"]
    assert (status["duplicates"], status["zoneFailures"]) == (5, 0)
    counts[DRIVER] = (2, 3)
    looks(replicas[0], 2)
    assert api.objects[f"{PATH}/{DRIVER}"]["status"]["zoneFailures"] == 3


def test_nothing_is_counted_before_the_leader_looks_at_the_stage() -> None:
    api = with_rollout()
    controller = observed(api)
    controller.refusals = lambda: {DRIVER: (1, 0)}
    looks(controller)
    assert api.objects[f"{PATH}/{DRIVER}"]["status"] == {}
    api.put(f"{PATH}/{DRIVER}", {**api.objects[f"{PATH}/{DRIVER}"], "status": {**BEGUN}})
    looks(controller)
    assert api.objects[f"{PATH}/{DRIVER}"]["status"]["duplicates"] == 1


def test_what_was_refused_before_the_rollout_was_made_is_none_of_its() -> None:
    api, counts = Memory(), {DRIVER: (1, 7)}
    controller = observed(api)
    controller.refusals = lambda: counts
    looks(controller)
    put(api, BEGUN)
    looks(controller)
    assert api.objects[f"{PATH}/{DRIVER}"]["status"] == BEGUN
    counts[DRIVER] = (1, 9)
    looks(controller, 2)
    assert api.objects[f"{PATH}/{DRIVER}"]["status"] == {**BEGUN, "duplicates": 0, "zoneFailures": 2}


@pytest.mark.parametrize("seen_gone", [True, False])
def test_a_rollout_that_is_made_anew_begins_with_none(seen_gone: bool) -> None:
    api, counts = with_rollout(), {DRIVER: (0, 3)}
    controller = observed(api)
    controller.refusals = lambda: counts
    # None is written of these: the leader has not begun.
    looks(controller)
    del api.objects[f"{PATH}/{DRIVER}"]
    if seen_gone:
        looks(controller)
    put(api, BEGUN, uid="another")
    looks(controller, 2)
    assert api.objects[f"{PATH}/{DRIVER}"]["status"] == BEGUN
    counts[DRIVER] = (0, 4)
    looks(controller)
    assert api.objects[f"{PATH}/{DRIVER}"]["status"]["zoneFailures"] == 1


def test_nothing_is_written_to_one_that_the_view_does_not_know() -> None:
    api = Memory()
    put(api, BEGUN, uid="another")
    controller = Observed(api, World(with_rollout(BEGUN)), Log(io.StringIO()), lambda: NOW)  # type: ignore[arg-type]
    controller.refusals = lambda: {DRIVER: (0, 2)}
    looks(controller)
    assert api.objects[f"{PATH}/{DRIVER}"]["status"] == BEGUN


class Refusing(Memory):
    """Refuses the next patches."""

    errors: list[Exception]

    async def patch(self, path: str, body: Json, kind: str, **params: object) -> Json:
        if self.errors:
            raise self.errors.pop()
        return await super().patch(path, body, kind, **params)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ApiError(409, "Conflict", "modified"), ""),
        (ApiError(403, "Forbidden", "no"), f"{DRIVER}: 403 Forbidden: no"),
        (Unreachable("lost"), f"{DRIVER}: lost"),
    ],
)
def test_a_count_that_was_not_written_is_written_later(error: Exception, problem: str) -> None:
    api = Refusing(with_rollout(dict(BEGUN)))
    api.errors = [error]
    controller = observed(api)
    controller.refusals = lambda: {DRIVER: (1, 0)}
    assert looks(controller, 3) == [problem, "", ""]
    assert api.objects[f"{PATH}/{DRIVER}"]["status"]["duplicates"] == 1


def test_what_the_newest_slice_shows_is_taken_in_by_the_view() -> None:
    world = World(Memory())
    controller = Observed(world.api, world, Log(io.StringIO()), lambda: NOW)  # type: ignore[arg-type]
    seen = iter([None, False, None, True])
    controller.carried = lambda: (next(seen), "s1")
    assert looks(controller, 4) == [""] * 4
    assert world.shown == [False, True]
