from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest

from tests.ledger.booked import AT, at, book, claim, grp
from tests.ledger.builders import device, node, old, slice_of
from tests.ledger.history import START
from webhook.kube.quantity import of_resource
from webhook.kube.snapshot import Snapshot
from webhook.ledger.events import event_of
from webhook.ledger.formulas import Formulas, when_seen

Json = dict[str, Any]


def test_the_lowest_version_of_a_claim_with_an_allocation_counts() -> None:
    made = Formulas()
    for seen in (30, 21, 25, -1):
        made = made.with_allocation("uid-c", AT, (seen, START, False))
    snapshot = Snapshot().put(claim())
    assert made.first_seen(snapshot.claims["ns", "c"]) == "21"
    assert Formulas().first_seen(snapshot.claims["ns", "c"]) == ""


def test_a_version_of_a_slice_is_kept_once() -> None:
    made = seen(Formulas(), grp())
    assert seen(made, grp()) is made
    made = seen(made, grp(), gone=True)
    assert seen(made, grp(), gone=True) is made


def seen(formulas: Formulas, obj: Json, gone: bool = False, seconds: int = 0) -> Formulas:
    """``formulas`` after a slice was put or gone, so many seconds after another one."""
    when = when_seen(event_of(obj, START + timedelta(seconds=seconds), gone))
    name = obj["metadata"]["name"]
    return formulas.without_slice(name, when) if gone else formulas.with_slice(Snapshot().put(obj).slices[name], when)


def history(*slices: Json, first: int) -> Formulas:
    made = Formulas().with_allocation("uid-c", AT, (first, START, False))
    for item in slices:
        made = seen(made, item)
    return made


def test_without_versions_what_was_put_last_counts_unless_it_is_gone() -> None:
    one, other = grp("1"), grp("2", name="s0")
    for obj in (one, other):
        del obj["metadata"]["resourceVersion"]
    put = [(one, False, 3), (other, False, 2), (grp("3"), False, 9)]
    for told, amount in ((put, "8"), ([*put, (other, True, 4)], "12"), ([*put, (other, True, 1)], "8")):
        for order in permutations(told):
            made = Formulas()
            for each in order:
                made = seen(made, *each)
            (row,) = book(node(), one, claim(), formulas=made).charges
            assert of_resource("cpu", row.amount) == amount


@pytest.mark.parametrize(
    ("first", "amount", "version"),
    [(5, "4", "10"), (10, "4", "10"), (15, "4", "10"), (21, "8", "20"), (31, "12", "30")],
)
def test_the_version_of_the_mapping_is_the_one_before_the_allocation(first: int, amount: str, version: str) -> None:
    versions = [grp("1", 10), grp("2", 20), grp("3", 30)]
    for seen in (versions, versions[::-1]):
        made = book(node(), grp("3", 30), claim(version=40), formulas=history(*seen, first=first))
        assert [(of_resource("cpu", row.amount), row.resource_version) for row in made.charges] == [(amount, version)]


def test_a_resource_that_a_later_version_adds_is_charged_from_then_on() -> None:
    both = device("grp", old("1", "cpus"), old("1Gi", "cpus", "memory"), capacity={"cpus": "8"})
    later = at(30, slice_of(both))
    made = book(node(), later, claim(), formulas=history(grp("1", 10), later, first=20))
    assert [(row.resource, row.resource_version) for row in made.charges] == [("cpu", "10"), ("memory", "30")]


def test_what_was_mapped_no_more_when_it_was_allocated_costs_nothing() -> None:
    bare = at(15, slice_of(device("grp", capacity={"cpus": "8"})))
    assert not book(node(), bare, claim(), formulas=history(grp("1", 10), bare, first=20)).charges
