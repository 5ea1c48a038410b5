from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from tests.facts.builders import (
    DRIVER,
    NOW,
    claim,
    device_class,
    entry,
    grp,
    node,
    pod,
    pod_ref,
    result,
    rollout,
    slice_of,
    world,
)
from webhook.controllers.rollout_figures import MOST_WAITS, Figures, Waits, figures
from webhook.facts.times import stamp
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book

LONG_AGO = datetime(2020, 1, 1, tzinfo=NOW.tzinfo)


def born(at: datetime) -> dict[str, Any]:
    return {"creationTimestamp": stamp(at)}


def waiting(name: str = "w1", minutes: int = 5) -> list[dict[str, Any]]:
    """A claim without an allocation, and the pod that waits for it."""
    at = NOW - timedelta(minutes=minutes)
    return [claim(name, metadata=born(at)), pod(f"p-{name}", {"c": name}, metadata=born(at))]


def of(*objs: dict[str, Any]) -> Figures:
    snapshot = world(node(), slice_of(grp()), device_class(), rollout(stage="Canary"), *objs)
    return figures(snapshot, Book(), [DRIVER, "gone.example"], NOW)[DRIVER]


def test_a_driver_with_a_claim_that_holds_and_one_that_waits() -> None:
    held = claim(results=[result()], reserved=[pod_ref()])
    found = of(held, pod(where="n1", status=entry(cpu="4")), *waiting())
    assert (found.coverage.nodes, found.coverage.fresh) == (1, 1)
    assert dict(found.phases) == {"Fresh": 1}
    assert ([each.name for each in found.bound], found.waiting) == (["c1"], (300.0,))
    assert (len(found.digests), found.differences, found.held_count) == (1, 0, 0)


def test_a_pool_that_only_claims_know_is_gone() -> None:
    found = of(claim(results=[{**result(), "pool": "lost"}], reserved=[pod_ref()]))
    assert dict(found.phases) == {"Fresh": 1, "Gone": 1}


def test_what_a_driver_without_a_rollout_does_is_not_looked_at() -> None:
    assert figures(world(node(), slice_of(grp())), Book(), [DRIVER], NOW) == {}


def test_some_held_pools_are_named_and_all_are_counted() -> None:
    slices = [slice_of(grp(), name=f"s-{number}", pool=f"pool-{number:02}") for number in range(30)]
    snapshot = world(node(), *slices, rollout(hold={"reason": "r"}))
    found = figures(snapshot, Book(), [DRIVER], NOW)[DRIVER]
    assert ([pool for pool, _ in found.held], found.held_count) == ([f"pool-{n:02}" for n in range(20)], 30)


def taken(waits: Waits, *seconds: int, first: int = 0) -> Snapshot:
    """Let ``waits`` see claims that were allocated one minute after the other, each after so many seconds."""
    objs: list[dict[str, Any]] = []
    for number, each in enumerate(seconds, first):
        made = NOW + timedelta(minutes=number)
        name, asked = f"c-{number}", born(made - timedelta(seconds=each))
        objs.append(claim(name, [result()], [pod_ref(f"p-{name}")], stamp=stamp(made), metadata=asked))
        objs.append(pod(f"p-{name}", {"c": name}, where="n1", metadata=asked))
    snapshot = world(*objs)
    waits.see(snapshot.claims.values(), snapshot)
    return snapshot


def test_99_of_100_waited_no_longer() -> None:
    waits = Waits()
    assert waits.told((), LONG_AGO) == (0, None)
    taken(waits, *range(1, 101))
    assert waits.told((), LONG_AGO) == (100, 99)
    assert waits.told((500.5,), LONG_AGO) == (101, 100)
    few = Waits()
    taken(few, 3, 7)
    assert few.told((), LONG_AGO) == (2, 7)
    assert few.told((0.2,), LONG_AGO) == (3, 7)


def test_claims_that_are_gone_count_on_and_those_of_before_do_not() -> None:
    waits = Waits()
    taken(waits, 10, 20)
    taken(waits, 30, first=2)
    assert waits.told((), LONG_AGO) == (3, 30)
    assert waits.told((), NOW + timedelta(minutes=1)) == (2, 30)
    taken(waits, 10, 20)
    assert waits.told((), LONG_AGO) == (3, 30)


def test_the_newest_are_remembered() -> None:
    waits = Waits()
    taken(waits, 500, *[1] * MOST_WAITS)
    assert waits.told((), LONG_AGO) == (MOST_WAITS, 1)
    taken(waits, 600, first=MOST_WAITS + 1)
    assert waits.told((), LONG_AGO) == (MOST_WAITS, 1)
    assert 600.0 in [seconds for _, seconds in waits._known.values()]
