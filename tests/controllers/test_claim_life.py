"""Claims are followed: what they wait for is told in time, once for each reason, and that it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.controllers.memory import Memory
from tests.facts.builders import claim, device_class, grp, node, pod, pod_ref, result, rollout, slice_of
from webhook.cluster.kinds import KINDS
from webhook.cluster.live import LiveCluster
from webhook.controllers import claim_life
from webhook.controllers.claim_life import ClaimLife
from webhook.facts.zone_choice import RULE
from webhook.kube.claims import read_claim
from webhook.kube.release import Release
from webhook.ledger.awaited import settled
from webhook.ledger.moments import WAITED, Moment

Json = dict[str, Any]
KIND = {kind.name: kind for kind in KINDS}
MADE = {"creationTimestamp": "2026-11-20T09:00:00Z"}
BEGUN = datetime(2026, 11, 20, 9, tzinfo=UTC)
WAITS = (node(), device_class(), slice_of(grp()), claim(metadata=MADE), pod(metadata=MADE))


class World:
    """A view that a test makes see things, a clock that it moves, and the controller."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.jump = timedelta()
        self.refused: dict[str, str] = {}
        self.view = LiveCluster(Memory(), self.now, lambda *_, **__: None)  # type: ignore[arg-type]  # the same methods
        self.view.snapshot = replace(self.view.snapshot, release=Release(36))
        self.moments: list[Moment] = []
        self.controller = self.led()

    def now(self) -> datetime:
        return BEGUN + timedelta(seconds=self.seconds) + self.jump

    def led(self) -> ClaimLife:
        """A controller of its own, as that of a new leader."""
        made = ClaimLife(self.view, self.now, lambda: self.seconds)
        made.refused = lambda: self.refused
        made.on_moments.append(self.moments.extend)
        self.view.on_change[:] = [made._heard]
        made._open = {key for key, each in self.view.snapshot.claims.items() if each.allocation is None}
        return made

    def see(self, *objs: Json) -> None:
        for obj in objs:
            kind = KIND[obj["kind"]]
            self.view.put(kind, {**obj, "apiVersion": kind.api_version})

    def gone(self, kind: str, name: str) -> None:
        self.view.drop(KIND[kind], ("ns", name))

    def told(self, until: float | None = None, every: float = 1.0) -> list[tuple[float, str, str]]:
        """When, what and why, of the looks until then (seconds), or of one look now."""
        self.moments.clear()
        asyncio.run(self.controller.look())
        while until is not None and self.seconds < until:
            self.seconds += every
            asyncio.run(self.controller.look())
        return [((each.at - BEGUN).total_seconds(), each.kind, each.reason) for each in self.moments]


@pytest.fixture
def world() -> World:
    made = World()
    # It leads for a while already.
    assert made.told() == []
    made.see(*WAITS)
    return made


def allocated(stamp: str = "2026-11-20T09:00:20Z") -> Json:
    return claim(results=[result()], reserved=[pod_ref()], stamp=stamp, metadata=MADE)


def test_a_wait_is_told_in_time_and_then_ever_more_rarely(world: World) -> None:
    assert [at for at, *_ in world.told(until=1400)] == [15, 45, 105, 225, 465, 765, 1065, 1365]
    assert {(each.kind, each.begun, each.reason) for each in world.moments} == {("pending", BEGUN, "unscheduled")}


def test_whoever_leads_next_goes_on_where_it_was(world: World) -> None:
    assert [at for at, *_ in world.told(until=50)] == [15, 45]
    world.controller = world.led()
    assert [at for at, *_ in world.told(until=230)] == [105, 225]
    assert {each.begun for each in world.moments} == {BEGUN}


@pytest.mark.parametrize(("waited", "over"), [(50, [(52, "settled", "unscheduled")]), (5, [])], ids=["told", "young"])
def test_whoever_leads_next_ends_what_the_last_one_has_begun(
    world: World, waited: int, over: list[tuple[float, str, str]]
) -> None:
    world.told(until=waited)
    world.controller = world.led()
    assert world.told(until=waited + 2) == []
    world.gone("Pod", "p1")
    assert world.told() == over


def test_another_reason_is_told_at_once_and_one_that_changes_all_the_time_now_and_then(world: World) -> None:
    assert world.told(until=3) == []
    world.refused["uid-c1"] = "node-overcommit"
    assert world.told() == [(3, "pending", "node-overcommit")]
    world.see(rollout(hold={"reason": "repair"}))
    assert world.told(until=17) == []
    assert world.told(until=20) == [(18, "pending", "driver-held")]
    # And goes on in time.
    assert [at for at, *_ in world.told(until=110)] == [45, 105]
    told = []
    for second in range(600):
        world.refused["uid-c1"] = f"rule-{second}"
        world.see(rollout())
        told += world.told(until=world.seconds + 1)
    assert len(told) <= 600 / claim_life.FIRST + 1


def test_what_every_claim_may_wait_for_a_moment_is_told_when_it_is_more_than_that(world: World) -> None:
    world.refused["uid-c1"] = RULE
    assert world.told(until=16) == [(15, "pending", RULE)]
    short = replace(settled(read_claim(allocated()), [], world.now()), reason=RULE)
    long = replace(short, at=short.begun + WAITED)
    assert (long.notable, short.notable, replace(short, reason="node-overcommit").notable) == (True, False, True)


def test_a_claim_that_gets_its_devices_is_told_with_its_charge(world: World) -> None:
    world.refused["uid-c1"] = "node-overcommit"
    assert world.told(until=16)[0] == (0, "pending", "node-overcommit")
    world.see(allocated())
    world.seconds = 21
    assert world.told() == []
    snapshot = world.view.snapshot
    world.controller.written([settled(snapshot.claims["ns", "c1"], [*snapshot.pods.values()], world.now())])
    [over] = world.moments
    assert (over.kind, over.begun, over.at, over.reason) == (
        "settled",
        BEGUN,
        BEGUN + timedelta(seconds=20),
        "node-overcommit",
    )
    assert world.told(until=100) == []
    assert world.controller.checks() == [("claims", True, "ok")]


@pytest.mark.parametrize("allocates", [True, False])
def test_what_was_told_to_stop_a_claim_is_told_to_be_over_when_the_claim_waited_for_nothing_else_in_between(
    world: World, allocates: bool
) -> None:
    world.refused["uid-c1"] = "node-overcommit"
    assert world.told(until=1) == [(0, "pending", "node-overcommit")]
    world.refused.clear()
    assert world.told(until=3) == []
    if allocates:
        world.see(allocated("2026-11-20T09:00:04Z"))
        snapshot = world.view.snapshot
        world.moments.clear()
        world.controller.written([settled(snapshot.claims["ns", "c1"], [*snapshot.pods.values()], world.now())])
    else:
        world.gone("Pod", "p1")
        world.told()
    [over] = world.moments
    assert (over.kind, over.reason, over.notable) == ("settled", "node-overcommit", True)


def test_one_that_costs_nothing_is_told_all_the_same_by_the_time_of_its_allocation(world: World) -> None:
    world.told(until=16)
    world.see(allocated())
    assert world.told(until=45) == []
    assert world.told(until=60) == [(20, "settled", "unscheduled")]
    assert world.told(until=200) == []


def test_one_that_is_not_told_as_waiting_is_not_told_to_wait_no_more(world: World) -> None:
    assert world.told(until=5) == []
    world.see(allocated("2026-11-20T09:00:05Z"))
    assert world.told(until=100) == []


@pytest.mark.parametrize("kind", ["Pod", "ResourceClaim"])
def test_one_that_nobody_waits_for_any_more(world: World, kind: str) -> None:
    world.told(until=16)
    world.gone(kind, "p1" if kind == "Pod" else "c1")
    assert world.told() == [(16, "settled", "unscheduled")]
    assert "is not awaited any more, after 16s" in world.moments[0].text
    assert world.told(until=40) == []


def test_a_driver_that_takes_its_slices_back_leaves_its_claims_waiting(world: World) -> None:
    world.told(until=16)
    world.view.drop(KIND["ResourceSlice"], ("", "s1"))
    assert world.told(until=35) == [(30, "pending", "no-device-yet")]


def test_a_clock_that_is_set_back_makes_nobody_wait_longer_and_no_span_end_before_it_begins(world: World) -> None:
    world.told(until=16)
    world.jump = timedelta(hours=-2)
    told = world.told(until=200)
    assert told
    assert all(each.begun <= each.at for each in world.moments)
    world.see(allocated())
    world.told(until=300)
    assert [each.kind for each in world.moments] == ["settled"]
    assert world.moments[0].begun <= world.moments[0].at


def test_many_claims_are_told_one_part_after_the_other_the_longest_waits_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_life, "MOST", 4)
    monkeypatch.setattr(claim_life, "_BREATH", 3)
    world = World()
    world.told()
    for number in range(10):
        made = {"creationTimestamp": f"2026-11-20T09:00:{9 - number:02}Z"}
        world.see(claim(f"c{number}", metadata=made), pod(f"p{number}", {"c": f"c{number}"}, metadata=made))
    world.see(*WAITS[:3])
    world.seconds = 60
    world.told()
    world.seconds = 120
    parts = []
    for _ in range(4):
        world.told()
        parts.append([each.name for each in world.moments])
    assert parts == [["c9", "c8", "c7", "c6"], ["c5", "c4", "c3", "c2"], ["c1", "c0"], []]
    assert world.controller.checks() == [("claims", True, "ok; 10 wait: unscheduled")]


def test_it_follows_the_view_until_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_life, "LOOK", 0.01)

    async def test() -> None:
        world = World()
        world.see(*WAITS)
        world.view.on_change.clear()
        world.controller = ClaimLife(world.view, world.now, lambda: world.seconds)
        told: list[Sequence[Moment]] = []
        world.controller.on_moments.append(told.append)
        running = asyncio.create_task(world.controller.run())
        await asyncio.sleep(0.05)
        world.seconds = 16
        async with asyncio.timeout(5):
            while not told:
                await asyncio.sleep(0.01)
        assert [each.name for each in told[0]] == ["c1"]
        assert world.controller.checks() == [("claims", True, "ok; 1 wait: unscheduled")]
        assert world.controller._open
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert world.view.on_change == []
        # Who leads no more remembers nothing.
        assert world.controller.checks() == [("claims", True, "ok")]
        assert not world.controller._open

    asyncio.run(test())
