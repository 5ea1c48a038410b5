from typing import Any

import pytest
from msgspec.structs import replace

from tests.ledger.booked import LATER, at, book, claim, grp, reserved, unallocated
from tests.ledger.builders import (
    allocated,
    claim_in,
    container,
    device,
    entry,
    node,
    old,
    pod,
    pod_in,
    result,
    slice_of,
    world,
)
from webhook.facts.fit import fit_problems
from webhook.kube.node_ledger import NodeLedger, node_ledger_object
from webhook.kube.quantity import of_resource
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book, NodeBook

Json = dict[str, Any]


def page(snapshot: Snapshot, *ledgers: NodeLedger) -> NodeBook:
    for ledger in ledgers:
        snapshot = snapshot.put(node_ledger_object(ledger))
    made = Book().page(snapshot, "n1")
    assert made is not None
    return made


def cpu(made: NodeBook, zone: int | None = None) -> dict[str, str]:
    """The columns of cpu that are not zero, but for what the node has."""
    if zone is None:
        amount = made.account.resources["cpu"]
        columns = {
            "pods": amount.pods,
            "claims": amount.claims,
            "overhead": amount.overhead,
            "reserved": amount.reserved,
        }
    else:
        part = made.account.zones[zone]["cpu"]
        columns = {"claims": part.claims, "reserved": part.reserved}
    return {name: of_resource("cpu", value) for name, value in columns.items() if value}


def rules(made: NodeBook) -> list[tuple[str, str, str]]:
    return [(each.finding.rule, each.category, each.name) for each in made.differences]


def states(made: NodeBook) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.name, each.state, each.pods) for each in made.charges]


BOOKED = book(node(), grp(), claim(pods=("p1",)))
ROW = BOOKED.charges[0]
USER = pod("p1", container(cpu="1", claims=("c",)), claims=("c",), entries=[entry("c", cpu="4")])
WAITING = pod("p1", container(cpu="1", claims=("c",)), claims=("c",), node_name="")


def test_a_book_with_a_ledger_that_agrees_is_the_book_without() -> None:
    snapshot = world(node(), grp(), claim(pods=("p1",)), USER)
    assert page(snapshot, BOOKED) == page(snapshot)


def test_what_is_booked_goes_before_what_the_mapping_says_now() -> None:
    snapshot = world(node(), grp("2", version=40), claim(pods=("p1",)), USER)
    made = page(snapshot, BOOKED)
    assert cpu(made) == {"pods": "1", "claims": "4"}
    assert cpu(made, 1) == {"claims": "4"}
    assert ("mapping-changed", "amount", "c") in rules(made)
    (change,) = (each.finding for each in made.differences if each.finding.rule == "mapping-changed")
    assert change.has == "4 cpu booked for device grp under version 10 of its slice"
    assert change.needs == "8 cpu, what the mapping costs since version 40; what is booked stays"
    assert (made.charges[0].resource_version, made.charges[0].state) == ("10", "bound")


def test_another_amount_under_the_same_mapping_is_a_duplicate_and_not_charged() -> None:
    made = page(world(node(), grp(), claim(consumed="6")), BOOKED)
    assert cpu(made) == {"claims": "4"}
    assert ("duplicate-charge", "surplus", "c") in rules(made)


def test_a_charge_outlives_its_slice_without_any_pod() -> None:
    made = page(world(node(), claim()), BOOKED)
    assert cpu(made) == {"claims": "4"}
    assert {rule for rule, _, _ in rules(made)} == {"device-unknown", "mapping-lost"}


def test_what_the_pods_status_books_covers_what_the_ledger_holds() -> None:
    two = device("a", old("1")), device("b", old("2"))
    holder = allocated("c", result("a", request="x"), result("b", request="y"), pods=("p1",))
    user = pod("p1", container(claims=("c",)), claims=("c",), entries=[entry("c", cpu="3")])
    ledger = book(node(), slice_of(*two), holder)
    assert cpu(page(world(node(), holder, user), ledger)) == {"claims": "3"}
    assert cpu(page(world(node(), slice_of(two[1]), holder, user), ledger)) == {"claims": "3"}
    more = pod("p1", container(claims=("c",)), claims=("c",), entries=[entry("c", cpu="5")])
    without_one = replace(ledger, charges=ledger.charges[1:])
    assert cpu(page(world(node(), holder, more), without_one)) == {"claims": "5"}


@pytest.mark.parametrize(
    ("objs", "counted", "rule"),
    [
        ([], "4", "claim-unknown"),
        ([unallocated(version=19)], "4", None),
        ([unallocated(version=21)], "", None),
        ([claim(at=LATER, version=19)], "4", None),
    ],
    ids=["not seen yet, or gone", "seen before it was allocated", "released", "an older allocation"],
)
def test_a_charge_that_the_watch_does_not_show_counts_until_it_shows_the_release(
    objs: list[Json], counted: str, rule: str | None
) -> None:
    made = page(world(node(), *objs), BOOKED)
    assert cpu(made) == ({"claims": counted} if counted else {})
    assert {name for name, _, _ in rules(made)} >= ({rule} if rule else set())


def test_a_claim_whose_node_nothing_tells_any_more_is_charged_as_booked() -> None:
    holder = claim(node_name="", pods=("p1",))
    made = page(world(node(), holder, USER), book(node(), grp(), holder))
    assert cpu(made)["claims"] == "4"
    assert states(made) == [("c", "bound", ("ns/p1",))]


def test_charges_of_the_node_before_are_not_those_of_the_new_one() -> None:
    assert cpu(page(world(node(uid="u2")), BOOKED)) == {}


def test_a_reservation_is_charged_to_node_zone_and_pod_before_anything_is_seen() -> None:
    held = NodeLedger("n1", "u1", reservations=(reserved(ROW, siblings={"cpu": 2}),))
    made = page(world(node(), grp(), unallocated(version=19), WAITING), held)
    assert cpu(made) == {"reserved": "7"}
    assert cpu(made, 1) == {"reserved": "4"}
    assert states(made) == [("c", "reserved", ("ns/p1",))]
    assert not made.differences


def test_claim_and_pod_are_held_once_from_admission_to_the_pod_on_its_node() -> None:
    held = NodeLedger("n1", "u1", reservations=(reserved(ROW),))
    steps = [
        ([unallocated(version=19), WAITING], {"reserved": "5"}),
        ([claim(pods=("p1",)), WAITING], {"claims": "4", "reserved": "1"}),
        ([claim(pods=("p1",))], {"claims": "4", "reserved": "1"}),
        ([claim(pods=("p1",)), USER], {"claims": "4", "pods": "1"}),
    ]
    for objs, wanted in steps:
        snapshot = world(node(), grp(), *objs)
        assert cpu(page(snapshot, held)) == wanted
        assert cpu(page(snapshot, book(node(), grp(), *objs, held=held))) == wanted


def test_two_reservations_of_one_pod_hold_its_request_once() -> None:
    other = replace(ROW, claim_uid="uid-d", name="d")
    first = reserved(ROW, siblings={"cpu": 3})
    second = reserved(other, claim_uid="uid-d", name="d", taken=LATER)
    made = page(world(node(), WAITING), NodeLedger("n1", "u1", reservations=(second, first)))
    assert cpu(made) == {"reserved": "9"}
    seen = world(node(), grp(), claim(pods=("p1",)), WAITING)
    assert cpu(page(seen, NodeLedger("n1", "u1", reservations=(second, first)))) == {"claims": "4", "reserved": "5"}


def test_a_reservation_for_another_allocation_of_a_claim_replaces_the_charges_of_the_one_before() -> None:
    again = reserved(replace(ROW, allocation=LATER, amount=3), allocation=LATER, claim_version="22")
    made = page(world(node(), grp(), claim()), replace(BOOKED, reservations=(again,)))
    assert cpu(made) == {"reserved": "4"}
    assert states(made) == [("c", "reserved", ("ns/p1",))]


@pytest.mark.parametrize("user", [USER, pod("p1", node_name="n2"), pod("p1", node_name="", phase="Failed")])
def test_a_pod_that_is_counted_or_over_is_not_held(user: Json) -> None:
    made = page(world(node(), user), NodeLedger("n1", "u1", reservations=(reserved(ROW),)))
    assert cpu(made)["reserved"] == "4"


def test_what_is_reserved_for_a_claim_does_not_stand_in_its_own_way() -> None:
    held = NodeLedger("n1", "u1", reservations=(reserved(ROW),))
    small = node(cpu="5", memory="1Gi")
    snapshot = world(small, grp(), unallocated(version=19), WAITING)
    account = page(snapshot, held).account
    review = snapshot.put(claim(pods=("p1",)))
    assert fit_problems(claim_in(review, "c"), pod_in(review), account, review).fits
    other = review.put(claim("d", consumed="1", pods=("p2",)))
    assert not fit_problems(claim_in(other, "d"), None, account, other).fits


def test_a_ledger_that_cannot_be_read_is_told() -> None:
    raw = node_ledger_object(BOOKED)
    raw["status"]["charges"][0]["amount"] = "lots"
    made = page(world(node(), grp(), claim(), raw))
    assert cpu(made) == {"claims": "4"}
    (problem,) = made.differences
    assert (problem.kind, problem.name, problem.finding.rule) == ("NodeLedger", "n1", "ledger-unreadable")
    assert (problem.finding.path, problem.finding.severity) == ("status.charges[0].amount", "error")


def test_a_book_that_remembers_follows_the_ledger_and_its_claims() -> None:
    kept = Book()
    held = NodeLedger("n1", "u1", reservations=(reserved(ROW),))
    base = world(node(), grp())
    steps: list[Snapshot] = [base]
    for obj in (
        node_ledger_object(held),
        unallocated(version=19),
        WAITING,
        claim(pods=("p1",)),
        node_ledger_object(book(node(), grp(), claim(pods=("p1",)), WAITING, held=held)),
        USER,
        grp("3", version=50),
        node_ledger_object(replace(BOOKED, node_uid="u0")),
        unallocated(version=40),
        at(41, node_ledger_object(NodeLedger("n1", "u1"))),
    ):
        steps.append(steps[-1].put(obj))
    steps.append(steps[-1].remove(node_ledger_object(BOOKED)))
    for snapshot in (*steps, *reversed(steps)):
        assert kept.page(snapshot, "n1") == Book().page(snapshot, "n1")
    page_now = kept.page(steps[4], "n1")
    assert (
        kept.page(steps[4].put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}), "n1") is page_now
    )


def test_two_consumers_of_one_claim_are_held_each_and_the_claim_once() -> None:
    first, second = reserved(ROW), reserved(ROW, "p2", charges=(), taken=LATER)
    made = page(world(node(), grp()), NodeLedger("n1", "u1", reservations=(first, second)))
    assert cpu(made) == {"reserved": "6"}
    assert states(made) == [("c", "reserved", ("ns/p1", "ns/p2"))]


def test_a_reservation_that_a_later_allocation_overtook_is_not_charged_beside_it() -> None:
    again = reserved(replace(ROW, allocation=LATER, amount=3), allocation=LATER, pod_request={})
    for at_version, wanted in (("22", {"reserved": "3"}), ("20", {"claims": "4"})):
        held = replace(BOOKED, reservations=(replace(again, claim_version=at_version),))
        assert cpu(page(world(node(), grp(), claim()), held)) == wanted
