from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from tests.ledger.booked import book, claim, grp, reserved, unallocated
from tests.ledger.builders import node, world
from webhook.facts.times import stamp
from webhook.kube.node_ledger import PLACE, NodeLedger, Reservation
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.stored import STALE, stale_reservations, stored_differences

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def reservation(age: timedelta, **more: object) -> Reservation:
    row = book(node(), grp(), claim()).charges[0]
    return reserved(row, taken=stamp(NOW - age), **more)


def stale(each: Reservation, snapshot: Snapshot) -> list[str]:
    found = stale_reservations(NodeLedger("n1", reservations=(each,)), snapshot, NOW)
    assert all((row.kind, row.name, row.finding.severity) == ("NodeLedger", "n1", "warning") for row in found)
    return [f"{row.finding.path}: {row.finding.message}" for row in found]


@pytest.mark.parametrize("late", [timedelta(), timedelta(seconds=1)])
def test_a_reservation_whose_allocation_never_came_is_stale_after_a_while(late: timedelta) -> None:
    found = stale(reservation(STALE + late), world(node(), grp(), unallocated()))
    assert len(found) == (1 if late else 0)
    if found:
        assert found[0].startswith(
            "status.reservations[0]: has room for claim ns/c and pod ns/p1, taken at 2026-11-30T11:5"
        )
        assert "(6m1s)" in found[0]


def test_one_that_was_seen_is_not() -> None:
    snapshot = world(node(), grp(), claim())
    assert stale(reservation(10 * STALE), snapshot) == []
    assert stale(reservation(10 * STALE, seen=True), world(node(), grp(), unallocated())) == []


def test_a_place_that_nobody_took_is() -> None:
    [told] = stale(reservation(10 * STALE, allocation=PLACE), world(node(), grp(), unallocated()))
    assert "has a place for claim ns/c" in told


@pytest.mark.parametrize("taken", ["", "yesterday", stamp(NOW + timedelta(hours=1))])
def test_one_without_a_time_that_can_be_is_not_kept_for_ever_in_silence(taken: str) -> None:
    each = replace(reservation(timedelta()), taken=taken)
    assert len(stale(each, world(node(), grp(), unallocated()))) == 1


def test_the_whole_cluster_is_looked_at_node_by_node_and_nodes_without_devices_are_passed_by() -> None:
    snapshot = world(node("n1"), node("n2"), node("n3"), grp(), claim())
    found = list(stored_differences(Book(), snapshot, NOW))
    assert len(found) == 2
    [leftover] = [each for each in found[0] if each.finding.rule == "leftover-claims"]
    assert (leftover.kind, leftover.name) == ("Node", "n1")


def test_a_claim_on_no_known_node_comes_last() -> None:
    snapshot = world(grp(), claim())
    assert [[each.finding.rule for each in one] for one in stored_differences(Book(), snapshot, NOW)] == [
        ["node-unknown"]
    ]
