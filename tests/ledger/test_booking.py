from typing import Any

import pytest
from msgspec.structs import replace

from tests.ledger.booked import AT, LATER, amounts, at, book, claim, grp, reserved, unallocated
from tests.ledger.builders import (
    container,
    device,
    entry,
    node,
    old,
    pod,
    slice_of,
    world,
)
from webhook.kube.node_ledger import NodeLedger, node_ledger_object, read_node_ledger
from webhook.ledger.book import Book
from webhook.ledger.booking import advance

Json = dict[str, Any]


def test_an_allocation_is_booked_with_the_version_of_its_mapping() -> None:
    (row,) = book(node(), grp(), claim()).charges
    assert (row.amount, row.zone, row.since, row.claim_version) == (4, 1, AT, "20")
    assert (row.slice, row.slice_uid, row.generation, row.resource_version) == ("s1", "uid-s1", 1, "10")
    assert row.digest.startswith("sha256:")


def test_seen_again_nothing_changes() -> None:
    objs = (node(), grp(), claim())
    first = book(*objs)
    assert advance(first, world(*objs), "n1") == first
    assert advance(read_node_ledger(node_ledger_object(first)), world(*objs), "n1") == first


@pytest.mark.parametrize(
    "slices",
    [
        [],
        [grp("2", version=40)],
        [slice_of(device("other", old("1")))],
        [at(40, slice_of(device("grp", capacity={"cpus": "8"}, zone=0)))],
        [grp("1", version=41, generation=1, name="s2")],
    ],
    ids=["vanished", "other multiplier", "device gone", "mapping and zone gone", "made again"],
)
def test_a_charge_keeps_amount_and_version_whatever_its_slice_becomes(slices: list[Json]) -> None:
    first = book(node(), grp(), claim())
    assert book(node(), *slices, claim(version=25), held=first) == first


@pytest.mark.parametrize(
    "claims", [[], [unallocated()], [claim(version=30, at=LATER)]], ids=["claim gone", "deallocated", "another one"]
)
def test_a_charge_goes_when_its_allocation_does(claims: list[Json]) -> None:
    first = book(node(), grp(), claim())
    after = book(node(), grp(), *claims, held=first)
    assert not {row.key for row in first.charges} & {row.key for row in after.charges}
    assert len(after.charges) == sum("allocation" in each["status"] for each in claims)


@pytest.mark.parametrize(("version", "stays"), [(25, False), (19, True)])
def test_an_allocation_on_another_node_in_the_same_second_is_another_one(version: int, stays: bool) -> None:
    """Not so a view from before the allocation that is booked."""
    first = book(node(), grp(), claim(version=20))
    snapshot = world(node(), grp(), claim(version=version, node_name="n2"))
    assert bool(advance(first, snapshot, "n1").charges) == stays
    account = Book().account(snapshot.with_ledger(first), "n1")
    assert account is not None
    assert account.resources["cpu"].claims == (4 if stays else 0)


def test_two_attempts_within_one_second_are_told_apart_by_their_devices() -> None:
    """What an attempt was given that came to nothing is no part of the allocation that has its time."""
    objs = node(), grp(), claim(version=20)
    first = book(*objs)
    (row,) = first.charges
    held = replace(first, charges=(row, replace(row, share_id="another")))
    assert book(*objs, held=held).charges == (row,)
    account = Book().account(world(*objs).with_ledger(held), "n1")
    assert account is not None
    assert account.resources["cpu"].claims == 4


def test_a_view_that_is_older_than_the_booking_releases_nothing() -> None:
    first = book(node(), grp(), claim(version=20))
    assert book(node(), grp(), unallocated(version=19), held=first).charges == first.charges
    assert book(node(), grp(), claim(version=19, at="2025-01-01T00:00:00Z"), held=first).charges == first.charges
    assert not book(node(), grp(), unallocated(version=21), held=first).charges


def test_a_claim_that_is_known_to_be_there_is_not_released_by_a_view_without_it() -> None:
    first = book(node(), grp(), claim())
    assert advance(first, world(node(), grp()), "n1", alive=frozenset({"uid-c"})) == first
    assert not advance(first, world(node(), grp()), "n1", alive=frozenset({"uid-d"})).charges


def test_a_charge_stays_when_nothing_tells_its_node_any_more() -> None:
    objs = (node(), claim(node_name=""))
    first = book(grp(), *objs)
    assert amounts(first) == [("c", "grp", "4")]
    assert book(*objs, held=first) == first


def test_a_claim_on_a_device_of_no_one_node_goes_where_its_pod_is_bound() -> None:
    shelf = at(10, slice_of(device("grp", old("1", "cpus"), capacity={"cpus": "8"}), allNodes=True))
    meant = pod("p1", container(claims=("c",)), claims=("c",), node_name="", phase="Pending")
    meant["status"]["nominatedNodeName"] = "n1"
    objs = (node(), node("n2", "u2"), shelf, claim(node_name="", pods=("p1",)))
    first = book(*objs, meant)
    assert amounts(first) == [("c", "grp", "4")]
    there = world(*objs, pod("p1", container(claims=("c",)), claims=("c",), node_name="n2"))
    assert advance(first, there, "n1").charges == ()
    assert amounts(advance(None, there, "n2")) == [("c", "grp", "4")]
    # Without its slices it is where it was.
    assert book(*objs[:2], objs[3], meant, held=first) == first


def test_a_node_made_again_owes_nothing_for_what_was_on_the_one_before() -> None:
    first = book(node(), grp(), claim())
    again = node(uid="u2", created=LATER)
    after = book(again, grp(), claim(), claim("d", at="2026-01-01T02:00:00Z"), held=first)
    assert (after.node_uid, amounts(after)) == ("u2", [("d", "grp", "4")])


def test_what_was_booked_on_the_node_before_is_not_taken_over() -> None:
    holder = claim(node_name="")
    first = book(node(), grp(), holder)
    assert book(node(), holder, held=first).charges == first.charges
    assert book(node(uid="u2"), holder, held=first).charges == ()


def test_a_node_that_is_not_there_keeps_what_is_allocated() -> None:
    first = book(node(), grp(), claim())
    assert book(grp(), claim(), held=first) == first
    assert not book(grp(), unallocated(), held=first).charges


def test_a_restarted_node_keeps_what_is_allocated() -> None:
    def booted(boot: str) -> Json:
        made = node()
        made["status"]["nodeInfo"] = {"bootID": boot}
        return made

    first = book(booted("a"), grp(), claim())
    after = book(booted("b"), claim(), held=first)
    assert (first.boot_id, after.boot_id, after.charges) == ("a", "b", first.charges)


def test_what_only_the_pods_status_explains_is_booked_until_the_device_is_back() -> None:
    user = pod("p1", container(claims=("c",)), claims=("c",), entries=[entry("c", cpu="4")])
    holder = claim(pods=("p1",))
    first = book(node(), holder, user)
    assert amounts(first) == [("c", "grp", "4")]
    assert first.charges[0].digest == ""
    assert amounts(book(node(), holder, held=first)) == [("c", "grp", "4")]
    assert amounts(book(node(), grp(), holder, user, held=first)) == [("c", "grp", "4")]


def test_a_reservation_becomes_charges_in_one_step() -> None:
    (row,) = book(node(), grp(), claim()).charges
    row = replace(row, formula="as admitted")
    held = NodeLedger("n1", reservations=(reserved(row),))
    waiting = book(node(), grp(), unallocated(version=19), held=held)
    assert (waiting.charges, waiting.reservations) == ((), held.reservations)
    seen = book(node(), grp(), claim(pods=("p1",)), held=held)
    assert seen.charges == (row,)
    assert seen.reservations == (replace(held.reservations[0], charges=(), seen=True),)
    counted = book(node(), grp(), claim(pods=("p1",)), pod("p1", claims=("c",)), held=seen)
    assert (counted.charges, counted.reservations) == ((row,), ())


@pytest.mark.parametrize(
    ("objs", "stays"),
    [
        ([claim(pods=("p1",)), pod("p1", claims=("c",), node_name="")], True),
        ([claim(pods=("p1",)), pod("p1", claims=("c",), node_name="n2")], False),
        ([claim(pods=("p1",)), pod("p1", claims=("c",), node_name="", phase="Failed")], False),
        ([claim(version=21)], False),
        ([unallocated()], False),
        ([], False),
    ],
    ids=["on its way", "elsewhere", "failed", "no more its consumer", "deallocated", "gone"],
)
def test_a_pod_is_held_while_it_is_on_its_way(objs: list[Json], stays: bool) -> None:
    (row,) = book(node(), grp(), claim()).charges
    held = book(node(), grp(), claim(pods=("p1",)), held=NodeLedger("n1", reservations=(reserved(row),)))
    after = book(node(), grp(), *objs, held=held)
    assert bool(after.reservations) == stays


def test_the_next_consumer_of_an_allocation_is_held_before_it_is_seen() -> None:
    first = book(node(), grp(), claim(pods=("p1",)))
    held = replace(first, reservations=(reserved(first.charges[0], "p2", charges=()),))
    before = book(node(), grp(), claim(pods=("p1",)), held=held)
    assert [(each.pod_name, each.seen) for each in before.reservations] == [("p2", False)]
    after = book(node(), grp(), claim(pods=("p1", "p2"), version=22), held=before)
    assert [(each.pod_name, each.seen) for each in after.reservations] == [("p2", True)]


def test_a_view_cannot_tell_that_a_reservation_is_dead() -> None:
    (row,) = book(node(), grp(), claim()).charges
    held = NodeLedger("n1", reservations=(reserved(row),))
    for objs in ([], [unallocated()], [claim(at=LATER, version=40)]):
        assert book(node(), grp(), *objs, held=held).reservations == held.reservations


def test_an_earlier_allocation_of_the_same_identity_is_not_the_reserved_one() -> None:
    """The time of an allocation has whole seconds: released and made again within one, it looks the same."""
    (row,) = book(node(), grp(), claim()).charges
    later = replace(row, claim_version="31")
    held = NodeLedger("n1", charges=(row,), reservations=(reserved(later, claim_version="31"),))
    stale = book(node(), grp(), claim(version=20), held=held)
    assert (stale.charges, stale.reservations) == ((row,), held.reservations)
    between = book(node(), grp(), unallocated(version=30), held=stale)
    assert (between.charges, between.reservations) == ((), held.reservations)
    arrived = book(node(), grp(), claim(version=31), held=between)
    assert [each.claim_version for each in arrived.charges] == ["31"]
    assert arrived.reservations[0].charges == ()
