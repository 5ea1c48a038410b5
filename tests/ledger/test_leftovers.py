from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.ledger.builders import allocated, container, device, node, old, pod, result, slice_of, world
from webhook.ledger.book import Book
from webhook.ledger.leftovers import leftovers

Json = dict[str, Any]

NOW = datetime(2026, 1, 1, 10, tzinfo=UTC)
SLICE = slice_of(device("grp", old("1", "cpus"), capacity={"cpus": "64"}))
LIVING = pod("p1", container(claims=("c1",)), claims=("c1",))
JOB = {"apiGroup": "batch.example", "resource": "jobs", "name": "j", "uid": "uid-j"}


def held(name: str = "c1", pods: tuple[str, ...] = ("p1",), deleted: str = "", **status: Any) -> Json:
    made = allocated(name, result(consumed={"cpus": "2"}, shareID=name), pods=pods)
    if deleted:
        made["metadata"]["deletionTimestamp"] = deleted
    made["status"] |= status
    return made


def notes(*objs: Json, now: datetime = NOW) -> list[str]:
    snapshot = world(node(), SLICE, *objs)
    page = Book().page(snapshot, "n1")
    assert page is not None
    found = leftovers("n1", page.charges, snapshot, now)
    assert {(each.kind, each.name, each.finding.severity) for each in found} <= {("Node", "n1", "info")}
    return [each.finding.has for each in found]


def test_a_claim_that_is_used_is_none() -> None:
    assert notes(held(), LIVING) == []
    assert notes(held(deleted="2026-01-01T09:00:00Z"), LIVING) == []


@pytest.mark.parametrize(
    ("claim", "pods", "why"),
    [
        (held(pods=("gone",)), [LIVING], "reserved for pods that have ended or are gone"),
        (held(), [pod("p1", container(), claims=("c1",), phase="Failed")], "reserved for pods that have ended or"),
        (held(pods=()), [], "reserved for nobody"),
        (held(deleted="2026-01-01T09:00:00Z"), [], "waiting for deletion"),
        (held(pods=(), deleted="2026-01-01T09:00:00Z"), [], "waiting for deletion"),
        (held(reservedFor=[JOB], deleted="2026-01-01T09:00:00Z"), [], "held by somebody else than a pod"),
    ],
)
def test_why_nobody_uses_it(claim: Json, pods: list[Json], why: str) -> None:
    (note,) = notes(claim, *pods)
    assert note.startswith(f"1 claim, {why}")
    assert "(ns/c1), with 2 cpu" in note


def test_others_than_pods_may_use_a_claim() -> None:
    assert notes(held(reservedFor=[JOB]), LIVING) == []


def test_an_allocation_of_this_minute_may_still_be_reserved() -> None:
    assert notes(held(pods=()), now=datetime(2026, 1, 1, 0, 1, tzinfo=UTC)) == []
    assert len(notes(held(pods=()), now=datetime(2026, 1, 1, 0, 1, 1, tzinfo=UTC))) == 1


def test_many_are_one_note_a_reason_with_the_oldest() -> None:
    unused = [held(f"u{n}", pods=()) for n in range(4)]
    leaving = [held(f"d{n}", pods=(), deleted=f"2026-01-01T0{n + 1}:00:00Z") for n in range(3)]
    assert notes(*unused, *leaving) == [
        "4 claims, reserved for nobody (ns/u0, ns/u1, ns/u2 and 1 more), with 8 cpu, since 2026-01-01T00:00:00Z (10h)",
        "3 claims, waiting for deletion (ns/d0, ns/d1, ns/d2), with 6 cpu, since 2026-01-01T01:00:00Z (9h)",
    ]
