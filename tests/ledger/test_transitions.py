"""What the step from one version of a ledger to the next tells of the claims in it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from tests.ledger.booked import LATER, at, book, claim, grp, reserved, unallocated
from tests.ledger.builders import allocated, container, device, node, old, pod, result, slice_of, world
from webhook.facts.times import stamp
from webhook.kube.node_ledger import PLACE, NodeLedger
from webhook.kube.snapshot import Snapshot
from webhook.ledger.booking import advance
from webhook.ledger.moments import Moment
from webhook.ledger.transitions import transitions

Json = dict[str, Any]
BEGUN, AT = datetime(2026, 11, 30, 12, tzinfo=UTC), datetime(2026, 11, 30, 12, 0, 1, tzinfo=UTC)


def step(before: NodeLedger | None, snapshot: Snapshot) -> tuple[list[Moment], NodeLedger]:
    after = advance(before, snapshot, "n1")
    return transitions(before, after, snapshot, BEGUN, AT), after


def said(moments: list[Moment]) -> list[tuple[str, str, str]]:
    return [(each.kind, each.name, each.reason) for each in moments]


def test_a_charge_tells_what_it_is_and_where_from() -> None:
    [charged], after = step(None, world(node(), grp(), claim(pods=("p1",))))
    assert (charged.kind, charged.key, charged.uid, charged.node) == ("charged", "ns/c", "uid-c", "n1")
    assert (charged.begun, charged.at, charged.drivers, charged.pods) == (BEGUN, AT, ("d.example",), ("ns/p1",))
    assert charged.charges == after.charges
    assert charged.amounts == {"cpu": "4"}
    digest = after.charges[0].digest[:19]
    assert charged.text == (
        f"charged to node n1: 4 cpu; d.example/n1/grp: 4 cpu = {after.charges[0].formula} (slice s1, generation 1, "
        f"resourceVersion 10, {digest}); nothing was reserved for it"
    )


def test_what_was_reserved_is_charged_as_such() -> None:
    """And waits no more: from when it and its pod were there to the allocation."""
    uses = at(0, pod("p1", container(claims=("c",)), claims=("c",)), creationTimestamp="2025-12-31T23:59:50Z")
    made = claim(pods=("p1",))
    made["metadata"]["creationTimestamp"] = "2025-12-31T23:59:00Z"
    objs = node(), grp(), made, uses
    row = book(*objs).charges[0]
    before = NodeLedger("n1", "u1", reservations=(reserved(row),))
    moments, after = step(before, world(*objs))
    assert said(moments)[:2] == [("settled", "c", "unscheduled"), ("charged", "c", "")]
    assert "nothing was reserved" not in moments[1].text
    over = moments[0]
    assert (stamp(over.begun), stamp(over.at)) == ("2025-12-31T23:59:50Z", "2026-01-01T00:00:00Z")
    assert (over.node, over.pods, over.pod_uids) == ("n1", ("ns/p1",), ("uid-p1",))
    assert over.text == "has its devices, after 10s"
    assert [each.delay.total_seconds() for each in moments[:2]] == [60, 60]
    # One more charge of the allocation, whose device was not seen before, says nothing of that again.
    again = transitions(replace(after, charges=()), after, world(*objs), BEGUN, AT)
    assert said(again) == [("charged", "c", "not-reserved")]
    # A scheduler whose clock is ahead has not allocated it later than we saw it.
    early = transitions(before, after, world(*objs), over.begun, over.begun)[0]
    assert (early.begun, early.at) == (over.begun, over.begun)


def test_how_late_the_allocation_came_is_told_of_each_step_as_long_as_the_claim_tells() -> None:
    made = claim(pods=("p1",))
    made["metadata"]["creationTimestamp"] = "2025-12-31T23:59:00Z"
    freed = unallocated()
    freed["metadata"]["creationTimestamp"] = made["metadata"]["creationTimestamp"]
    [charged], after = step(None, world(node(), grp(), made))
    [released], _ = step(after, world(node(), grp(), freed))
    [gone], _ = step(after, world(node(), grp()))
    assert [each.kind for each in (charged, released, gone)] == ["charged", "released", "released"]
    assert [each.delay.total_seconds() for each in (charged, released, gone)] == [60, 60, 0]


def test_what_has_not_changed_is_not_told() -> None:
    snapshot = world(node(), grp(), claim(pods=("p1",)), pod("p1", container(claims=("c",)), claims=("c",)))
    before = advance(None, snapshot, "n1")
    assert step(before, snapshot)[0] == []


@pytest.mark.parametrize(
    ("objs", "told"),
    [
        ([node()], [("released", "c", "claim-gone")]),
        ([node(), unallocated()], [("released", "c", "deallocated")]),
        (
            [node(), claim(version=30, at=LATER)],
            [("released", "c", "allocated-again"), ("charged", "c", "not-reserved")],
        ),
        ([node(), node("n2", "u2"), claim(version=30, node_name="n2")], [("released", "c", "allocated-elsewhere")]),
        ([node(uid="u9", created="2026-06-01T00:00:00Z"), claim()], [("released", "c", "node-replaced")]),
        ([unallocated()], [("released", "c", "deallocated")]),
    ],
    ids=["claim gone", "deallocated", "another one", "on another node", "node made again", "node gone"],
)
def test_what_became_of_a_charge(objs: list[Json], told: list[tuple[str, str, str]]) -> None:
    before = book(node(), grp(), claim())
    moments, _ = step(before, world(grp(), *objs))
    assert said(moments) == told
    assert moments[0].charges == before.charges
    assert moments[0].text.startswith("released on node n1: 4 cpu; the ")


def test_the_claims_of_a_pod_are_in_use_once_it_is_counted() -> None:
    """The pod is held in one reservation for all its claims."""
    claims = [at(20, allocated(name, result(name), pods=("p1",))) for name in ("a", "b", "other")]
    claims[2]["status"]["reservedFor"] = []
    slices = slice_of(device("a", old("1")), device("b", old("2")), device("other", old("3")))
    waits = pod("p1", container(claims=("a", "b")), claims=("a", "b"), node_name="")
    runs = pod("p1", container(claims=("a", "b")), claims=("a", "b"))
    before = advance(None, world(node(), slices, *claims, waits), "n1")
    held = reserved(before.charges[0], charges=(), seen=True)
    before = replace(before, reservations=(held,))
    moments, _ = step(before, world(node(), slices, *claims, waits))
    assert moments == []
    snapshot = world(node(), slices, *claims, runs)
    moments, after = step(before, snapshot)
    assert said(moments) == [("bound", "a", ""), ("bound", "b", "")]
    assert [(each.pods, each.amounts) for each in moments] == [(("ns/p1",), {"cpu": "1"}), (("ns/p1",), {"cpu": "2"})]
    # Held on for those who do not see it yet, it is told already.
    kept = replace(after, reservations=(replace(held, counted=True),))
    assert transitions(before, kept, snapshot, BEGUN, AT) == moments
    assert transitions(kept, after, snapshot, BEGUN, AT) == []


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ([], [("lapsed", "c", "claim-gone")]),
        ([unallocated()], [("lapsed", "c", "deallocated")]),
        ([claim(version=30, at=LATER)], [("lapsed", "c", "allocated-again"), ("charged", "c", "not-reserved")]),
    ],
    ids=["claim gone", "not allocated", "another one"],
)
def test_a_reservation_whose_allocation_never_came(claims: list[Json], told: list[tuple[str, str, str]]) -> None:
    row = book(node(), grp(), claim()).charges[0]
    before = NodeLedger("n1", "u1", reservations=(reserved(row),))
    snapshot = world(node(), grp(), *claims)
    after = replace(advance(before, snapshot, "n1"), reservations=())
    assert said(transitions(before, after, snapshot, BEGUN, AT)) == told


@pytest.mark.parametrize("more", [{"allocation": PLACE}, {"seen": True}, {"charges": ()}], ids=["place", "seen", "pod"])
def test_what_else_is_reserved_goes_without_a_word(more: Json) -> None:
    row = book(node(), grp(), claim()).charges[0]
    before = NodeLedger("n1", "u1", reservations=(reserved(row, **more),))
    assert transitions(before, NodeLedger("n1", "u1"), world(node(), grp()), BEGUN, AT) == []


def test_no_moment_ends_before_it_begins() -> None:
    """The clock of the API server was set back meanwhile."""
    snapshot = world(node(), grp(), claim())
    [charged] = transitions(None, advance(None, snapshot, "n1"), snapshot, AT, BEGUN)
    assert (charged.begun, charged.at) == (BEGUN, BEGUN)


def test_of_many_devices_the_line_tells_the_first_few() -> None:
    devices = [device(f"d{number}", old("1")) for number in range(7)]
    wide = at(20, allocated("c", *(result(each["name"], request=each["name"]) for each in devices)))
    [charged], _ = step(None, world(node(), slice_of(*devices), wide))
    assert charged.text.startswith("charged to node n1: 7 cpu; d.example/n1/d0: 1 cpu = 1")
    assert "d.example/n1/d3" in charged.text
    assert "d.example/n1/d4" not in charged.text
    assert "; and 3 devices more" in charged.text
