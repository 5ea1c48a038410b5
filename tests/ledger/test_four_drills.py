"""The four drills: after each step node account, zone account and pod status say the same, in whatever order it is
heard of, and at the end nothing is left.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.ledger.history import History
from webhook.facts.account import Account
from webhook.kube.quantity import Number
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.events import Event
from webhook.ledger.fold import Ledger, apply, fold

RELEASES = pytest.mark.parametrize("minor", [36, 37])


def orders(events: list[Event]) -> Iterator[list[Event]]:
    """The events as they came, backwards, and shuffled with every third of them twice."""
    yield events
    yield events[::-1]
    for seed in range(3):
        mixed = [*events, *events[::3]]
        random.Random(seed).shuffle(mixed)
        yield mixed


def account(history: History) -> Account:
    """The account of n1, the same for every order, folded at once or applied event by event."""
    found: list[Account] = []
    for events in orders(history.events):
        ledger = Ledger(Snapshot(Release(history.minor)))
        for event in events:
            ledger, _ = apply(ledger, event)
        for each in (ledger, fold(events, Release(history.minor))):
            made = Book().account(each.snapshot, "n1")
            assert made is not None
            found.append(made)
    assert all(each == found[0] for each in found)
    return found[0]


def agrees(history: History, claims: Number, zones: dict[int, Number], status: Number | None = None) -> Account:
    """Node account, zone account and, where a pod is bound, its status say ``claims``."""
    made = account(history)
    assert made.resources["cpu"].claims == claims
    assert {zone: row["cpu"].claims for zone, row in made.zones.items() if row["cpu"].claims} == zones
    assert sum(zones.values()) == claims
    if status is not None:
        snapshot = fold(history.events, Release(history.minor)).snapshot
        pods = [pod for pod in snapshot.node_pods.get("n1", ()) if not pod.terminal]
        assert sum(entry.amounts["cpu"] for pod in pods for entry in pod.entries) == status == claims
        assert not [each for each in Book().differences(snapshot, "n1") if each.category == "pod-status"]
    return made


def started(minor: int) -> History:
    history = History(minor)
    history.node(cpu="16")
    history.slice()
    history.claim()
    history.pod()
    return history


def released(history: History) -> None:
    history.end()
    history.leave()
    history.deallocate()
    history.delete("Pod", "p1")
    history.delete("ResourceClaim", "c")
    last = agrees(history, 0, {})
    assert (last.resources["cpu"].pods, last.resources["cpu"].reserved) == (0, 0)


@RELEASES
def test_an_allocation_across_two_zones(minor: int) -> None:
    history = started(minor)
    history.allocate("c", (0, "2"), (1, "3"), pod_name="p1")
    waiting = agrees(history, 5, {0: 2, 1: 3})
    assert waiting.resources["cpu"].reserved == 1
    history.bind(cpu="5")
    bound = agrees(history, 5, {0: 2, 1: 3}, status=5)
    assert (bound.resources["cpu"].pods, bound.resources["cpu"].reserved) == (1, 0)
    released(history)


@RELEASES
def test_an_allocation_in_one_zone(minor: int) -> None:
    history = started(minor)
    history.allocate("c", (1, "2"), (1, "3"), pod_name="p1")
    agrees(history, 5, {1: 5})
    history.bind(cpu="5")
    agrees(history, 5, {1: 5}, status=5)
    released(history)


@RELEASES
def test_a_release_that_fails_and_is_tried_again(minor: int) -> None:
    history = started(minor)
    history.allocate("c", (0, "2"), (1, "3"), pod_name="p1")
    history.bind(cpu="5")
    history.end()
    charged = {0: 2, 1: 3}
    agrees(history, 5, charged)
    # The claim controller's write was refused: somebody else had written the claim meanwhile.
    touched = history.get("ResourceClaim", "c")
    touched["metadata"]["labels"] = {"by": "somebody"}
    history.put(touched)
    agrees(history, 5, charged)
    # Nobody uses it any more, and it is to go; the next write, which takes the allocation away, fails too.
    history.leave()
    marked = history.get("ResourceClaim", "c")
    marked["metadata"]["deletionTimestamp"] = history.now
    history.put(marked)
    agrees(history, 5, charged)
    history.deallocate()
    agrees(history, 0, {})
    history.deallocate()
    agrees(history, 0, {})
    history.delete("Pod", "p1")
    history.delete("ResourceClaim", "c")
    agrees(history, 0, {})


@RELEASES
def test_a_node_that_restarts_in_the_middle(minor: int) -> None:
    history = started(minor)
    history.allocate("c", (0, "2"), (1, "3"), pod_name="p1")
    charged = {0: 2, 1: 3}
    history.node(boot="boot-2", cpu="16")
    history.delete("ResourceSlice", "s1")
    agrees(history, 5, charged)
    history.bind(cpu="5")
    agrees(history, 5, charged, status=5)
    history.slice("2", name="s2", generation=1)
    agrees(history, 5, charged, status=5)
    history.slice("1", name="s2", generation=1)
    agrees(history, 5, charged, status=5)
    history.claim("d")
    history.allocate("d", (1, "1"))
    agrees(history, 6, {0: 2, 1: 4})
    history.deallocate("d")
    history.delete("ResourceClaim", "d")
    released(history)
