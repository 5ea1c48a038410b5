from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.ledger.builders import allocated, container, pod, result, slice_of
from tests.ledger.history import History
from webhook.ledger.events import Event, event_of
from webhook.ledger.incidents import incidents

Json = dict[str, Any]

START = datetime(2026, 1, 1, tzinfo=UTC)
RUNNING = pod("p1", container(claims=("c",)), claims=("c",))
HELD = allocated("c", result("gpu"), pods=("p1",))
NEXT = allocated("d", result("gpu"), pods=("p2",), at="2026-01-01T00:00:09Z")
FREE = {**HELD, "status": {}}


def deleted(obj: Json, grace: int = 0) -> Json:
    marks = {"deletionTimestamp": "2026-01-01T00:00:09Z", "deletionGracePeriodSeconds": grace}
    return {**obj, "metadata": {**obj["metadata"], **marks}}


def at(seconds: float, obj: Json, gone: bool = False) -> Event:
    """``obj`` as it was seen so many seconds from the start, in the version that it had then."""
    metadata = {**obj["metadata"], "resourceVersion": str(int(seconds * 1000) + 1)}
    return event_of({**obj, "metadata": metadata}, START + timedelta(seconds=seconds), gone)


def told(*events: Event) -> list[tuple[str, str, str]]:
    found = incidents(events)
    assert incidents(events[::-1]) == found
    assert incidents([*events, *events]) == found
    return [(each.finding.rule, each.name, each.finding.has) for each in found]


def rules(*events: Event) -> list[str]:
    return [rule for rule, _, _ in told(*events)]


BEFORE = (at(0, RUNNING), at(1, HELD))
FORCED, RELEASED = at(9.9, deleted(RUNNING)), at(11, FREE)
GONE = at(10, RUNNING, gone=True)


def test_a_device_that_is_given_on_after_a_deletion_without_grace() -> None:
    assert told(*BEFORE, FORCED, GONE, RELEASED, at(12, NEXT)) == [
        (
            "device-given-early",
            "d",
            "device gpu at 2026-01-01T00:00:12.000Z, which claim ns/c had until 2026-01-01T00:00:11.000Z; its pod "
            "ns/p1 was deleted without grace",
        )
    ]


@pytest.mark.parametrize(
    "events",
    [
        (FORCED, GONE, at(11, HELD, gone=True), at(12, NEXT)),
        (at(10, FREE), at(12, NEXT), at(13, deleted(RUNNING)), at(14, RUNNING, gone=True)),
        (FORCED, GONE, at(11, allocated("c", result("gpu"))), at(12, FREE), at(13, NEXT)),
        (at(9, deleted(RUNNING, 30)), FORCED, GONE, RELEASED, at(12, NEXT)),
        (FORCED, GONE, at(12, {**NEXT, "metadata": {**NEXT["metadata"], "name": "c"}})),
        (FORCED, GONE, at(12, allocated("c", result("gpu"), pods=("p2",), at="2026-01-01T00:00:09Z"))),
        (FORCED, GONE, RELEASED, at(41, NEXT)),
    ],
    ids=[
        "the claim was deleted", "the release was seen first", "reserved no more, then released",
        "it had some grace first", "the claim was replaced", "the same claim again", "half a minute later",
    ],
)  # fmt: skip
def test_however_it_comes_about(events: tuple[Event, ...]) -> None:
    assert rules(*BEFORE, *events) == ["device-given-early"]


@pytest.mark.parametrize(
    "events",
    [
        (GONE, RELEASED, at(12, NEXT)),
        (at(9, deleted(RUNNING, 30)), GONE, RELEASED, at(12, NEXT)),
        (at(9.9, deleted({**RUNNING, "status": {"phase": "Failed"}})), GONE, RELEASED, at(12, NEXT)),
        (RELEASED, at(12, NEXT)),
        (FORCED, GONE, RELEASED, at(41.5, NEXT)),
        (FORCED, GONE, RELEASED, at(12, allocated("d", result("other"), pods=("p2",)))),
        (FORCED, GONE, RELEASED, at(12, allocated("d", {**result("gpu"), "pool": "n2"}, pods=("p2",)))),
        (FORCED, GONE, RELEASED, at(12, allocated("d", result("gpu"), pods=("p2",), node_name="n2"))),
        (FORCED, GONE, RELEASED, at(12, allocated("d", {**result("gpu"), "adminAccess": True}, pods=("p2",)))),
        (FORCED, GONE, RELEASED, at(12, allocated("d", result("gpu", shareID="s"), pods=("p2",)))),
        (FORCED, GONE, RELEASED),
    ],
    ids=[
        "it ended",
        "it was stopped",
        "deleted once it had ended",
        "it runs on",
        "later",
        "another",
        "pool",
        "node",
        "admin access",
        "a share",
        "given to nobody",
    ],
)
def test_what_is_no_overlap(events: tuple[Event, ...]) -> None:
    assert rules(*BEFORE, *events) == []


def test_a_pod_that_had_no_node_ran_nowhere() -> None:
    waiting = pod("p1", container(claims=("c",)), claims=("c",), node_name="", phase="Pending")
    forced = (at(9.9, deleted(waiting)), at(10, waiting, gone=True))
    assert rules(at(0, waiting), at(1, HELD), *forced, RELEASED, at(12, NEXT)) == []


def test_a_device_is_told_of_once_and_each_time_anew() -> None:
    third = allocated("e", result("gpu"), pods=("p3",), at="2026-01-01T00:00:15Z")
    again = (at(13, NEXT, gone=True), at(14, third))
    assert rules(*BEFORE, FORCED, GONE, RELEASED, at(12, NEXT), *again) == ["device-given-early"]
    second = pod("p2", container(claims=("d",)), claims=("d",))
    both = (at(12.5, deleted(second)), at(12.8, second, gone=True))
    assert rules(*BEFORE, FORCED, GONE, RELEASED, at(12, NEXT), *both, *again) == ["device-given-early"] * 2


def reserving(*moments: float, claim: Json = HELD) -> list[Event]:
    nobody = {**claim, "status": {**claim["status"], "reservedFor": []}}
    return [each for moment in moments for each in (at(moment, nobody), at(moment + 1, claim))]


def test_a_reservation_that_comes_and_goes() -> None:
    ended = at(0, {**RUNNING, "status": {"phase": "Succeeded"}})
    assert told(ended, at(1, HELD), *reserving(10, 20, 30)) == [
        (
            "reservation-flapping",
            "c",
            "pod p1, which has ended, added 3 times from 2026-01-01T00:00:11Z to 2026-01-01T00:00:31Z",
        )
    ]


def test_how_often_and_how_fast() -> None:
    assert rules(at(1, HELD), *reserving(10, 20)) == []
    assert rules(at(1, HELD), *reserving(10, 20, 3610)) == ["reservation-flapping"]
    assert rules(at(1, HELD), *reserving(10, 20, 3611)) == []
    ((_, _, has),) = told(at(1, HELD), *reserving(10, 4000, 8000, 8010, 8020, 20000))
    assert has == "pod p1 added 3 times from 2026-01-01T02:13:21Z to 2026-01-01T02:13:41Z"


def test_each_consumer_for_itself() -> None:
    shared = allocated("c", result("gpu"), pods=("p1", "p2"))
    assert rules(at(1, shared), *reserving(10, 20, 30, claim=shared)) == ["reservation-flapping"] * 2
    assert (
        rules(at(1, HELD), *reserving(10, 20), *reserving(30, claim=allocated("c", result("gpu"), pods=("p2",)))) == []
    )


def wiping(*moments: float, item: Json | None = None) -> list[Event]:
    item = item or slice_of()
    return [at(0, item), *(e for moment in moments for e in (at(moment, item, gone=True), at(moment + 5, item)))]


def test_a_pool_that_comes_and_goes() -> None:
    assert told(*wiping(10, 50, 90, 130)) == [
        (
            "pool-flapping",
            "s1",
            "pool n1 of d.example on node n1 without any slice 4 times from 2026-01-01T00:00:10Z to "
            "2026-01-01T00:02:10Z",
        )
    ]
    assert rules(*wiping(10, 50)) == []
    assert rules(*wiping(10, 2000, 3700)) == []


def test_a_pool_is_gone_with_its_last_slice() -> None:
    other = slice_of(name="s2")
    assert rules(at(0, other), *wiping(10, 50, 90)) == []
    (note,) = told(*wiping(10, 50, 90, item=slice_of(allNodes=True)))
    assert "pool n1 of d.example without any slice 3 times" in note[2]


def test_an_ordinary_life_has_no_incident() -> None:
    world = History()
    world.node()
    world.slice()
    world.claim()
    world.pod()
    for _ in range(3):
        world.allocate("c", pod_name="p1")
        world.bind()
        world.end()
        world.deallocate()
        world.delete("Pod", "p1")
        world.pod()
    world.slice("2")
    assert incidents(world.events) == []
    assert incidents([]) == []
