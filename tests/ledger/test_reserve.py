"""What is held for an allocation that admission allows, and what becomes of the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.ledger.builders import (
    DRIVER,
    allocated,
    container,
    device,
    new,
    node,
    old,
    pod,
    pod_in,
    result,
    slice_of,
    world,
)
from webhook.facts.fit import fit_problems
from webhook.facts.footprint import footprint
from webhook.kube.claims import read_claim
from webhook.kube.node_ledger import NodeLedger, Reservation
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.reserve import reservation, taken

Json = dict[str, Any]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
}
SLICE = slice_of(
    *(device(f"d{n}", old("3"), old("1Gi", resource="memory"), zone=n) for n in range(3)),
)


def waiting(name: str, version: int = 20) -> Json:
    claim = allocated(name)
    claim["metadata"]["resourceVersion"] = str(version)
    claim["status"] = {}
    return claim


def cluster(*objs: Json, minor: int = 36) -> Snapshot:
    return world(node(cpu="10", memory="64Gi"), CLASS, SLICE, *objs, minor=minor)


def asked(
    snapshot: Snapshot, write: Json, before: Json, pod_name: str = "p1", now: datetime = NOW
) -> Reservation | None:
    """What the write of ``write`` over ``before`` needs."""
    claim = read_claim(write)
    account = Book().account(snapshot, "n1")
    assert account is not None
    user = pod_in(snapshot, pod_name) if pod_name else None
    cost = footprint(claim, snapshot, "n1")
    fit = fit_problems(claim, user, account, snapshot, cost)
    return reservation(claim, user, fit, cost, snapshot, account, now, "replica-a", read_claim(before))


def needed(*given: Any, **more: Any) -> Reservation:
    found = asked(*given, **more)
    assert found is not None
    return found


def two_claims() -> Snapshot:
    user = pod("p1", container(cpu="2", claims=("a", "b")), claims=("a", "b"), node_name="", phase="Pending")
    return cluster(user, waiting("a"), waiting("b", 21))


def test_the_charges_and_the_request_of_the_pod_are_held_as_they_were_judged() -> None:
    user = pod("p1", container(cpu="2500m"), claims=("a",), node_name="", phase="Pending")
    held = needed(cluster(user, waiting("a")), allocated("a", result("d1"), pods=("p1",)), waiting("a"))
    assert [(row.resource, row.amount, row.zone) for row in held.charges] == [("cpu", 3, 1), ("memory", 1 << 30, 1)]
    assert (held.claim_uid, held.allocation, held.pod_uid) == ("uid-a", "2026-01-01T00:00:00Z", "uid-p1")
    assert {name: float(amount) for name, amount in held.pod_request.items()} == {"cpu": 2.5}
    assert (held.siblings, held.holder, held.seen) == ({}, "replica-a", False)
    assert held.taken == "2026-11-30T12:00:00.000000Z"


def test_only_a_later_version_of_the_claim_can_have_the_allocation() -> None:
    user = pod("p1", container(), node_name="", phase="Pending")
    held = needed(cluster(user, waiting("a")), allocated("a", result("d1"), pods=("p1",)), waiting("a", 20))
    assert held.claim_version == "21"
    assert {row.claim_version for row in held.charges} == {"21"}


def test_nothing_is_held_for_a_claim_that_costs_nothing() -> None:
    plain = slice_of(device("plain"), name="s2", pool="plain")
    user = pod("p1", container(cpu="1"), node_name="", phase="Pending")
    write = allocated("a", {**result("plain"), "pool": "plain"}, pods=("p1",))
    assert asked(cluster(plain, user, waiting("a")), write, waiting("a")) is None


def test_an_allocation_for_nobody_yet_holds_its_charges() -> None:
    held = needed(cluster(waiting("a")), allocated("a", result("d1")), waiting("a"), pod_name="")
    assert (held.pod_uid, held.pod_request) == ("", {})
    assert len(held.charges) == 2


@pytest.mark.parametrize(
    ("later", "version", "found"),
    [(0, 20, True), (29, 20, True), (30, 20, False), (-1, 20, False), (0, 22, False)],
)
def test_a_second_review_of_a_write_finds_its_own_while_that_lasts(later: int, version: int, found: bool) -> None:
    """Not one that may go before the write is done, and not one of a write over an earlier version."""
    user = pod("p1", container(cpu="1"), node_name="", phase="Pending")
    snapshot, write = cluster(user, waiting("a")), allocated("a", result("d1"), pods=("p1",))
    ledger = taken(NodeLedger("n1"), needed(snapshot, write, waiting("a")))
    again = asked(snapshot.with_ledger(ledger), write, waiting("a", version), now=NOW + timedelta(seconds=later))
    assert (again is None) is found
    if again is not None:
        assert taken(ledger, again).reservations == (again,)


def test_another_allocation_of_the_claim_takes_the_place_of_the_first() -> None:
    snapshot = two_claims()
    first = needed(snapshot, allocated("a", result("d0"), pods=("p1",)), waiting("a"))
    other = replace(first, claim_uid="uid-x", pod_uid="uid-p9", charges=())
    ledger = taken(taken(NodeLedger("n1"), other), first)
    write = allocated("a", result("d1"), pods=("p1",), at="2026-01-01T00:00:07Z")
    second = needed(snapshot.with_ledger(ledger), write, waiting("a"))
    assert taken(ledger, second).reservations == (other, second)


def test_the_request_of_a_pod_is_held_once_for_all_its_claims() -> None:
    snapshot = two_claims()
    first = needed(snapshot, allocated("a", result("d0"), pods=("p1",)), waiting("a"))
    assert dict(first.siblings) == {"cpu": 3, "memory": 1 << 30}
    ledger = taken(NodeLedger("n1"), first)
    seen = snapshot.with_ledger(ledger)
    account = Book().account(seen, "n1")
    assert account is not None
    # 3 for the claim, 2 for the pod, and 3 at least for the claim that will follow.
    assert account.resources["cpu"].reserved == 8
    second = needed(seen, allocated("b", result("d1"), pods=("p1",)), waiting("b", 21))
    assert second.siblings == {}
    both = taken(ledger, second)
    account = Book().account(snapshot.with_ledger(both), "n1")
    assert account is not None
    assert account.resources["cpu"].reserved == 8


@pytest.mark.parametrize("booked", [False, True], ids=["in flight", "booked"])
def test_the_request_of_a_pod_stays_held_when_the_claim_that_was_reserved_last_is_released(booked: bool) -> None:
    """By the leader, or by this view alone so far; the other is on its way, or booked where this view is not yet."""
    snapshot = two_claims()
    first = needed(snapshot, allocated("a", result("d0"), pods=("p1",)), waiting("a"))
    ledger = taken(NodeLedger("n1"), first)
    second = needed(snapshot.with_ledger(ledger), allocated("b", result("d1"), pods=("p1",)), waiting("b", 21))
    both = taken(ledger, second)
    if booked:
        both = replace(both, charges=first.charges, reservations=(replace(first, charges=(), seen=True), second))
    released = waiting("b", 40)
    kept = both.reservations[:1]
    for held in (kept, (*kept, replace(second, charges=(), seen=True))):
        account = Book().account(snapshot.put(released).with_ledger(replace(both, reservations=held)), "n1")
        assert account is not None
        cpu = account.resources["cpu"]
        # 3 for the claim, 2 for the pod, and 3 at least for the claim that is to be allocated again.
        assert cpu.claims + cpu.reserved == 8


def test_on_1_37_nothing_is_held_for_other_claims_of_the_pod() -> None:
    user = pod("p1", container(cpu="2"), claims=("a", "b"), node_name="", phase="Pending")
    shared = slice_of(device("d", new(mapping={"deviceMultiplier": "3"})), name="s2", pool="other")
    snapshot = world(node(cpu="10"), CLASS, shared, user, waiting("a"), waiting("b"), minor=37)
    write = allocated("a", {**result("d"), "pool": "other"}, pods=("p1",))
    assert needed(snapshot, write, waiting("a")).siblings == {}


def test_a_further_consumer_of_an_allocation_holds_what_its_pod_asks_for() -> None:
    """1.37: a claim that costs overhead only may have several."""
    shared = slice_of(device("d", new(overhead={"perPod": "1"}), capacity={"x": "8"}), name="s2", pool="other")
    users = [pod(f"p{n}", container(cpu="2"), claims=("a",), node_name="", phase="Pending") for n in (1, 2)]
    row = {**result("d", consumed={"x": "1"}), "pool": "other"}
    one, both = allocated("a", row, pods=("p1",)), allocated("a", row, pods=("p1", "p2"))
    snapshot = world(node(cpu="10"), CLASS, shared, *users, waiting("a"), minor=37)
    first = needed(snapshot, one, waiting("a"))
    assert (first.charges, dict(first.pod_request)) == ((), {"cpu": 3})
    ledger = taken(NodeLedger("n1"), first)
    second = needed(snapshot.put(one).with_ledger(ledger), both, one, pod_name="p2")
    assert dict(second.pod_request) == {"cpu": 3}
    assert [each.pod_uid for each in taken(ledger, second).reservations] == ["uid-p1", "uid-p2"]


def test_a_consumer_that_is_counted_on_its_node_needs_nothing() -> None:
    shared = slice_of(device("d", new(overhead={"perPod": "1"})), name="s2", pool="other")
    write = allocated("a", {**result("d"), "pool": "other"}, pods=("p1",))
    before = {**write, "status": {**write["status"], "reservedFor": []}}
    snapshot = world(node(cpu="10"), CLASS, shared, pod("p1", container(cpu="2"), claims=("a",)), before, minor=37)
    assert asked(snapshot, write, before) is None


@pytest.mark.parametrize(("seen_at", "counts"), [(20, True), (31, False)], ids=["behind", "released"])
def test_a_view_that_is_behind_counts_what_the_leader_has_seen(seen_at: int, counts: bool) -> None:
    """The leader has booked the allocation and counted the pod; this view has neither, or has seen the release."""
    user = pod("p1", container(cpu="2"), claims=("a",), node_name="", phase="Pending")
    snapshot = cluster(user, waiting("a"))
    held = needed(snapshot, allocated("a", result("d1"), pods=("p1",)), waiting("a"))
    ledger = NodeLedger("n1", charges=held.charges, reservations=(replace(held, charges=(), seen=True),))
    account = Book().account(snapshot.put(waiting("a", seen_at)).with_ledger(ledger), "n1")
    assert account is not None
    cpu = account.resources["cpu"]
    assert (cpu.claims, cpu.reserved) == ((3, 2) if counts else (0, 0))


def test_what_is_held_is_not_given_again() -> None:
    users = [pod(f"p{n}", container(cpu="3"), claims=(name,), node_name="") for n, name in ((1, "a"), (2, "b"))]
    snapshot = cluster(*users, waiting("a"), waiting("b"))
    ledger = taken(NodeLedger("n1"), needed(snapshot, allocated("a", result("d0"), pods=("p1",)), waiting("a")))
    seen = snapshot.with_ledger(ledger)
    account = Book().account(seen, "n1")
    second = read_claim(allocated("b", result("d1"), pods=("p2",)))
    problem = fit_problems(second, pod_in(seen, "p2"), account, seen).findings[0]
    assert (problem.rule, "6 reserved" in problem.has) == ("node-overcommit", True)
