from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.builders import (
    DRIVER,
    allocated,
    container,
    device,
    entry,
    new,
    node,
    old,
    pod,
    result,
    slice_of,
    world,
)
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book

Json = dict[str, Any]

GRP = device("grp", old("1", "cpus"), capacity={"cpus": "8"})
HELD = allocated("c1", result(consumed={"cpus": "4"}), pods=("p1",))


def user(*entries: Json, name: str = "p1", phase: str = "Running") -> Json:
    return pod(name, container(claims=("c1",)), claims=("c1",), entries=list(entries), phase=phase)


def told(snapshot: Snapshot) -> list[tuple[str, str]]:
    page = Book().page(snapshot, "n1")
    assert page is not None
    return [(each.finding.rule, each.finding.has) for each in page.differences if each.category == "pod-status"]


def booked(amount: str) -> Json:
    charge = {
        "claimUID": "uid-c1",
        "allocation": "2026-01-01T00:00:00Z",
        "request": "r",
        "driver": DRIVER,
        "pool": "n1",
        "device": "grp",
        "shareID": "share-grp-r",
        "resource": "cpu",
        "namespace": "ns",
        "name": "c1",
        "amount": amount,
    }
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "NodeLedger",
        "metadata": {"name": "n1"},
        "status": {"charges": [charge]},
    }


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([entry("c1", cpu="4")], []),
        ([entry("c1", cpu="4000m")], []),
        ([entry("c1", cpu="3")], [("pod-status-disagrees", "3 cpu")]),
        ([], [("uncounted", "no entry for claim c1")]),
        ([entry("c1", cpu="4"), entry("c1", cpu="4")], [("pod-status-disagrees", "a second entry for claim c1")]),
        ([entry("c1", cpu="4"), entry("c9", cpu="1")], [("claim-unknown", "claim c9, which is not known")]),
    ],
)
def test_missing_surplus_and_other_amounts(entries: list[Json], found: list[tuple[str, str]]) -> None:
    assert told(world(node(), slice_of(GRP), HELD, user(*entries))) == found


def test_an_entry_without_a_claim_of_the_pod_is_surplus() -> None:
    free = allocated("c1", pods=())
    del free["status"]["allocation"]
    unallocated = world(node(), slice_of(GRP), free, user(entry("c1", cpu="4")))
    assert told(unallocated) == [("pod-status-disagrees", "an entry for claim c1, which is not allocated")]
    foreign = world(node(), slice_of(GRP), HELD, user(entry("c1", cpu="4")), user(entry("c1", cpu="4"), name="p2"))
    assert told(foreign) == [("pod-status-disagrees", "an entry for claim c1, which is reserved for p1")]


def test_what_no_mapping_explains_is_a_lost_mapping_that_stays_charged() -> None:
    page = Book().page(world(node(), slice_of(GRP), HELD, user(entry("c1", cpu="4", memory="1Gi"))), "n1")
    assert page is not None
    assert [(each.category, each.finding.rule) for each in page.differences] == [("surplus", "mapping-lost")]
    assert page.account.resources["memory"].claims == 2**30


def test_a_pod_that_has_ended_is_not_compared() -> None:
    assert told(world(node(), slice_of(GRP), HELD, user(entry("c1", cpu="1"), phase="Failed"))) == []


def test_the_entry_of_the_allocation_agrees_with_what_was_booked_then() -> None:
    changed = slice_of(device("grp", old("2", "cpus"), capacity={"cpus": "8"}))
    then = world(node(), changed, HELD, booked("4"), user(entry("c1", cpu="4")))
    assert told(then) == []
    wrong = world(node(), changed, HELD, booked("4"), user(entry("c1", cpu="8")))
    assert told(wrong) == [("pod-status-disagrees", "8 cpu")]


def test_quantities_are_compared_as_they_are_stored() -> None:
    fine = slice_of(device("grp", old("333m", "cpus"), capacity={"cpus": "8"}))
    held = allocated("c1", result(consumed={"cpus": "1500m"}), pods=("p1",))
    assert told(world(node(), fine, held, user(entry("c1", cpu="499500u")))) == []


def test_overhead_and_the_containers_that_pay_it() -> None:
    nic = slice_of(device("grp", new("memory", overhead={"perPod": "1Gi", "perContainer": "1Mi"})))
    held = allocated("c1", result(), pods=("p1",))
    row = {"resourceClaimName": "c1", "containers": ["main"]}
    paid = {"name": "memory", "perPod": "1Gi", "perContainer": "1Mi"}
    assert told(world(node(), nic, held, user(row | {"overhead": [paid]}), minor=37)) == []
    less = world(node(), nic, held, user(row | {"overhead": [{"name": "memory", "perPod": "1Gi"}]}), minor=37)
    assert told(less) == [("pod-status-disagrees", "0 memory a container")]
    other = world(node(), nic, held, user(row | {"overhead": [paid], "containers": ["x"]}), minor=37)
    assert told(other) == [("pod-status-disagrees", "containers x for claim c1")]
