from __future__ import annotations

from typing import Any

import pytest

from tests.facts.builders import DRIVER, claim, entry, gpu, grp, node, pod, pod_ref, result, rollout, slice_of, world
from webhook.facts import verification
from webhook.facts.pool_survey import view
from webhook.facts.verification import acknowledged, booked, lost_mapping, unverified
from webhook.kube.snapshot import Snapshot

Json = dict[str, Any]

KEY = (DRIVER, "n1")
HELD = claim(results=[result()], reserved=[pod_ref()])


def digest(device: Json) -> str:
    snapshot = world(slice_of(device))
    return snapshot.slices["s1"].devices[0].digest


def ledger(*charges: Json, name: str = "n1") -> Json:
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "NodeLedger",
        "metadata": {"name": name},
        "status": {"charges": list(charges)},
    }


def charge(device: str = "grp", amount: str = "4", resource: str = "cpu", of: str = "", **more: Any) -> Json:
    return {
        "claimUID": "uid-c1",
        "allocation": "2026-11-20T09:00:00Z",
        "request": "r",
        "driver": DRIVER,
        "pool": "n1",
        "device": device,
        "shareID": f"share-{device}",
        "resource": resource,
        "namespace": "ns",
        "name": "c1",
        "digest": of or digest(grp()),
        "amount": amount,
        **more,
    }


def reasons(snapshot: Snapshot, where: str | None = "n1", besides: str = "") -> list[tuple[str, str]]:
    found = unverified(snapshot, KEY, view(snapshot, *KEY, where), besides)
    return [(reason.rule, reason.has) for reason in found]


def times(multiplier: str) -> Json:
    return grp(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "cpus", "allocationMultiplier": multiplier}})


def test_what_is_as_booked_is_verified() -> None:
    assert reasons(world(node(), slice_of(grp()), HELD, ledger(charge()))) == []


def test_a_pool_that_no_claim_holds_is_verified_and_takes_no_place_in_what_is_remembered() -> None:
    snapshot = world(node(), slice_of(grp()), claim(), ledger(charge("gone", "4")))
    remembered = verification._holdings.cache_info()
    assert reasons(snapshot) == []
    assert verification._holdings.cache_info() == remembered


@pytest.mark.parametrize(
    ("device", "now"),
    [
        (times("2"), "cpu 8"),
        (times("500m"), "cpu 2"),
        (grp(nodeAllocatableResourceMappings={"memory": {"allocationMultiplier": "1Gi"}}), "memory 1Gi"),
    ],
)
def test_a_changed_mapping_is_told_with_both_amounts(device: Json, now: str) -> None:
    snapshot = world(node(), slice_of(device), HELD, ledger(charge()))
    assert reasons(snapshot) == [
        ("mapping-changed", f"device grp of claim ns/c1, booked with cpu 4 and now {now}"),
    ]


def test_resources_of_one_device_are_told_together() -> None:
    both = {"cpu": {"capacityKey": "cpus", "allocationMultiplier": "1"}, "memory": {"allocationMultiplier": "1Gi"}}
    old = grp(nodeAllocatableResourceMappings=both)
    held = ledger(charge(of=digest(old)), charge(amount="1Gi", resource="memory", of=digest(old)))
    assert reasons(world(node(), slice_of(old), HELD, held)) == []
    assert reasons(world(node(), slice_of(grp()), HELD, held)) == [
        ("mapping-changed", "device grp of claim ns/c1, booked with cpu 4, memory 1Gi and now cpu 4"),
    ]


def test_a_reservation_whose_allocation_is_seen_is_booked_already() -> None:
    held = {name: value for name, value in charge().items() if name in ("claimUID", "allocation", "namespace", "name")}
    reserved = ledger()
    reserved["status"]["reservations"] = [{**held, "charges": [charge()]}]
    changed = slice_of(times("2"))
    assert [rule for rule, _ in reasons(world(node(), changed, HELD, reserved))] == ["mapping-changed"]
    assert reasons(world(node(), changed, claim(), reserved)) == []


def test_a_mapping_is_acknowledged_by_its_version() -> None:
    new = digest(times("2"))
    good = rollout(resumeAt={"mappingDigests": [new]})
    snapshot = world(node(), slice_of(times("2")), HELD, ledger(charge()), good)
    assert acknowledged(snapshot.rollouts, DRIVER, new)
    assert reasons(snapshot) == []
    other = world(node(), slice_of(times("3")), HELD, ledger(charge()), good)
    assert not acknowledged(other.rollouts, DRIVER, digest(times("3")))
    assert [rule for rule, _ in reasons(other)] == ["mapping-changed"]


def test_what_was_taken_from_a_pods_status_has_no_version_to_compare() -> None:
    assert reasons(world(node(), slice_of(times("2")), HELD, ledger(charge() | {"digest": ""}))) == []


def test_a_released_claim_and_another_allocation_hold_nothing() -> None:
    changed = slice_of(times("2"))
    assert reasons(world(node(), changed, claim(), ledger(charge()))) == []
    assert reasons(world(node(), changed, ledger(charge()))) == []
    again = claim(results=[result()], reserved=[pod_ref()], stamp="2026-11-20T09:05:00Z")
    assert reasons(world(node(), changed, again, ledger(charge()))) == []


def test_a_claim_under_review_is_no_evidence() -> None:
    snapshot = world(node(), slice_of(times("2")), HELD, ledger(charge()))
    assert reasons(snapshot, besides="uid-c1") == []


def test_a_device_that_is_gone_is_missed_by_book_or_reservation() -> None:
    other = slice_of(grp("other"))
    unused = claim(results=[result()])
    gone = [("pool-rebuilding", "no device grp, which claim ns/c1 holds")]
    assert reasons(world(node(), other, HELD)) == gone
    assert reasons(world(node(), other, unused, ledger(charge()))) == gone
    assert reasons(world(node(), other, unused)) == []


def test_a_mapping_that_is_gone_is_missed_by_book_or_pod_status() -> None:
    free = slice_of(gpu("grp", allowMultipleAllocations=True, capacity={"cpus": {"value": "8"}}))
    lost = [("mapping-lost", "no node cost any more, though claim ns/c1 was booked by one")]
    assert reasons(world(node(), free, HELD, ledger(charge()))) == lost
    counted = world(node(), free, HELD, pod(where="n1", status=entry(cpu="4")))
    assert reasons(counted) == lost
    held = counted.claims[("ns", "c1")]
    assert booked(counted, held)
    assert lost_mapping(counted, held)
    assert reasons(world(node(), free, HELD)) == []


@pytest.mark.parametrize(("size", "short"), [("6", False), ("5", True), ("0", True)])
def test_capacity_has_to_cover_what_claims_hold(size: str, short: bool) -> None:
    second = claim("c2", results=[result(cpus="2", share="b")], reserved=[pod_ref("p2")])
    found = reasons(world(node(), slice_of(grp(size=size)), HELD, second))
    has = f"{size} of cpus on device grp, of which claims hold 6 (ns/c1 4, ns/c2 2)"
    assert found == ([("capacity-short", has)] if short else [])


def test_without_the_claim_under_review_capacity_may_do() -> None:
    second = claim("c2", results=[result(cpus="2", share="b")], reserved=[pod_ref("p2")])
    snapshot = world(node(), slice_of(grp(size="4")), HELD, second)
    assert [rule for rule, _ in reasons(snapshot)] == ["capacity-short"]
    assert reasons(snapshot, besides="uid-c2") == []


def test_admin_access_and_negative_amounts_take_no_capacity() -> None:
    admin = claim("c2", results=[result(cpus="8", share="b", adminAccess=True)])
    odd = claim("c3", results=[result(cpus="-8", share="c")])
    assert reasons(world(node(), slice_of(grp(size="4")), HELD, admin, odd)) == []


def parts(*names: str) -> Json:
    draw = [{"counterSet": "card", "counters": {"units": {"value": "3"}}}]
    return slice_of(
        *(gpu(name, {"cpu": {"allocationMultiplier": "1"}}, consumesCounters=draw) for name in names), count=2
    )


def card(units: str) -> Json:
    sets = [{"name": "card", "counters": {"units": {"value": units}}}]
    return slice_of(name="card", count=2, sharedCounters=sets)


@pytest.mark.parametrize(("units", "short"), [("6", False), ("5", True)])
def test_counters_have_to_cover_the_devices_that_are_held(units: str, short: bool) -> None:
    first = claim(results=[result("half-a", cpus=None)])
    second = claim("c2", results=[result("half-b", cpus=None)])
    found = reasons(world(node(), parts("half-a", "half-b", "half-c"), card(units), first, second))
    has = "5 of counter units in set card, of which claims hold 6 (ns/c1 3, ns/c2 3)"
    assert found == ([("capacity-short", has)] if short else [])


def test_the_ledgers_of_all_nodes_that_use_a_shared_pool_are_asked() -> None:
    shelf = slice_of(times("2"), where="", pool="n1", allNodes=True)
    there = claim(results=[result()], reserved=[pod_ref()], where="n2")
    snapshot = world(node(), node("n2", "u2"), shelf, there, ledger(charge(), name="n2"))
    assert [rule for rule, _ in reasons(snapshot, "n1")] == ["mapping-changed"]
    assert [rule for rule, _ in reasons(snapshot, None)] == ["mapping-changed"]


def test_of_many_only_some_are_told() -> None:
    held = [claim(f"c{n}", results=[result(f"d{n}", cpus=None)], reserved=[pod_ref()]) for n in range(9)]
    assert len(reasons(world(node(), slice_of(grp()), *held))) == 3
