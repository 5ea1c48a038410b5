from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.facts.test_interval import CLASS, asking, cpus
from tests.ledger.builders import allocated, container, device, node, old, pod, pod_in, result, slice_of, world
from webhook.facts.change import Change, smallest_changes
from webhook.facts.interval import interval
from webhook.kube.claims import Claim
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book

NOW = datetime(2026, 1, 2, tzinfo=UTC)
GRP = device("grp", old("2", "cpus"), capacity={"cpus": "8"})


def changes(snapshot: Snapshot, claim: Claim, user: str | None = None) -> list[Change]:
    book = Book()
    model = pod_in(snapshot, user) if user else None
    answer = interval(claim, snapshot, lambda name: book.account(snapshot, name), None, NOW, model)
    return smallest_changes((claim,), snapshot, book.account, answer.nodes, NOW, model)


def test_nothing_to_change_where_it_fits() -> None:
    assert changes(world(CLASS, node(), slice_of(GRP)), asking(cpus("4"))) == []


def test_asking_for_less_and_releasing_the_smallest_claim_that_helps() -> None:
    held = [allocated(name, result(consumed={"cpus": amount})) for name, amount in (("a", "1"), ("b", "2"), ("d", "4"))]
    snapshot = world(CLASS, node(cpu="64"), slice_of(GRP), *held)
    assert changes(snapshot, asking(cpus("3"))) == [
        Change("release", "n1", "ns/b", "cpu", 4),
        Change("shrink", "n1", "ns/new", "cpu", 4),
    ]


def test_a_larger_node() -> None:
    user = pod("p1", container(cpu="10", claims=("new",)), claims=("new",), node_name="")
    snapshot = world(CLASS, node(cpu="16"), slice_of(GRP), user)
    assert changes(snapshot, asking(cpus("4")), "p1") == [
        Change("node-grow", "n1", "", "cpu", 2),
        Change("shrink", "n1", "ns/new", "cpu", 2),
    ]


def test_exclusive_devices_can_only_be_released() -> None:
    snapshot = world(CLASS, node(), slice_of(device("gpu", old("4"))), allocated("a", result("gpu")))
    assert changes(snapshot, asking()) == [Change("release", "n1", "ns/a", "cpu", 4)]


@pytest.mark.parametrize("count", [3, 33])
def test_what_no_single_change_helps_has_none(count: int) -> None:
    assert changes(world(CLASS, node(), slice_of(device("gpu", old("4")))), asking({"count": count})) == []
