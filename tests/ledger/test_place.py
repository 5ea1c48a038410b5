"""Places: what is held for a pod that is let go to a node, and how it gives way to what the scheduler then chooses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from tests.ledger.builders import (
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
from tests.ledger.test_reserve import CLASS, asked, waiting
from webhook.facts.account import Account
from webhook.facts.fit import fit_problems
from webhook.facts.pod_needs import wanted_claims
from webhook.facts.zone_places import Place, place_on
from webhook.kube.claims import read_claim
from webhook.kube.node_ledger import PLACE, NodeLedger, Reservation, node_ledger_object, read_node_ledger
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.booking import advance
from webhook.ledger.explained import explained
from webhook.ledger.place import place_reservations, placed
from webhook.ledger.reserve import taken

Json = dict[str, Any]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def coming(*claims: str, **more: Any) -> Json:
    return pod("p1", container(cpu="2", claims=claims), claims=claims, node_name="", phase="Pending", **more)


def cluster(*claims: str, devices: list[Json] | None = None, cpu: str = "16", minor: int = 36) -> Snapshot:
    given = devices or [device(f"d{n}", old("3"), zone=n % 2) for n in range(4)]
    objs = [waiting(name, 20 + n) for n, name in enumerate(claims)]
    return world(node(cpu=cpu), CLASS, slice_of(*given), coming(*claims), *objs, minor=minor)


def account(snapshot: Snapshot) -> Account:
    found = Book().account(snapshot, "n1")
    assert found is not None
    return found


def places(snapshot: Snapshot) -> tuple[Reservation, ...]:
    user = pod_in(snapshot)
    claims = wanted_claims(user, snapshot)
    found = place_on(user, claims, snapshot, account(snapshot), NOW)
    assert isinstance(found, Place)
    return place_reservations(user, claims, found, NOW, "leader")


def held(snapshot: Snapshot, version: str = "9") -> Snapshot:
    """With the places in the ledger of the node, as it is stored."""
    ledger = placed(snapshot.ledgers.get("n1") or NodeLedger("n1", "u1", version), places(snapshot))
    stored = read_node_ledger(node_ledger_object(ledger))
    assert stored == replace(ledger, node_uid=stored.node_uid)
    return snapshot.with_ledger(stored)


def reserved(snapshot: Snapshot) -> object:
    return account(snapshot).resources["cpu"].reserved


def test_the_claim_and_its_pod_are_held_before_there_is_an_allocation() -> None:
    (place,) = places(cluster("a"))
    assert (place.claim_uid, place.allocation, place.pod_uid, place.holder) == ("uid-a", PLACE, "uid-p1", "leader")
    assert [(row.request, row.device, row.amount, row.zone) for row in place.charges] == [("r", "*", 3, None)]
    assert place.pod_request == {"cpu": 2}
    assert reserved(held(cluster("a"))) == 5


def test_a_zone_that_is_certain_is_held_too() -> None:
    snapshot = held(cluster("a", devices=[device(f"d{n}", old("3"), zone=1) for n in range(2)]))
    assert account(snapshot).zones[1]["cpu"].reserved == 3
    assert account(held(cluster("a"))).zones == {}


def test_of_unequal_devices_the_least_is_held() -> None:
    (place,) = places(cluster("a", devices=[device("d0", old("3")), device("d1", old("2"))]))
    assert [row.amount for row in place.charges] == [2]


def test_the_overhead_of_1_37_is_held_with_the_pod() -> None:
    cost = new(mapping={"deviceMultiplier": "3"}, overhead={"perPod": "500m", "perContainer": "250m"})
    snapshot = cluster("a", devices=[device("d0", cost)], minor=37)
    (place,) = places(snapshot)
    assert ([row.amount for row in place.charges], float(place.pod_request["cpu"])) == ([3], 2.75)


def test_a_claim_that_may_cost_nothing_needs_no_place() -> None:
    assert places(cluster("a", devices=[device("d0", old("3")), device("free")])) == ()


def test_the_pod_is_held_once_for_all_its_claims() -> None:
    snapshot = held(cluster("a", "b"))
    ledger = snapshot.ledgers["n1"]
    assert [(each.claim_uid, each.pod_uid, dict(each.pod_request)) for each in ledger.reservations] == [
        ("uid-a", "uid-p1", {"cpu": 2}),
        ("uid-b", "uid-p1", {"cpu": 2}),
    ]
    assert reserved(snapshot) == 8
    # Held once more, as after a restart in between, it is the same.
    again = held(snapshot).ledgers["n1"]
    assert again == ledger


def test_it_stands_in_nobodys_way_but_that_of_others() -> None:
    """The node has room for one pod with both of its claims."""
    snapshot = held(cluster("a", "b", cpu="8"))
    for name in ("a", "b"):
        write = read_claim(allocated(name, result("d0"), pods=("p1",)))
        assert fit_problems(write, pod_in(snapshot), account(snapshot), snapshot).fits
    other = pod("p2", container(cpu="1", claims=("c",)), claims=("c",), node_name="", phase="Pending")
    crowded = snapshot.put(other).put(waiting("c"))
    write = read_claim(allocated("c", result("d0"), pods=("p2",)))
    fit = fit_problems(write, pod_in(crowded, "p2"), account(crowded), crowded)
    assert [each.rule for each in fit.findings if each.severity == "error"] == ["node-overcommit"]


def test_what_admission_then_reserves_takes_its_place() -> None:
    snapshot = held(cluster("a", "b"))
    first = asked(snapshot, allocated("a", result("d0"), pods=("p1",)), waiting("a"))
    assert first is not None
    # The other claim has its own place still.
    assert first.siblings == {}
    after = snapshot.with_ledger(taken(snapshot.ledgers["n1"], first))
    assert [(each.claim_uid, each.allocation) for each in after.ledgers["n1"].reservations] == [
        ("uid-b", PLACE),
        ("uid-a", "2026-01-01T00:00:00Z"),
    ]
    assert reserved(after) == 8
    second = asked(after, allocated("b", result("d1"), pods=("p1",)), waiting("b", 21))
    assert second is not None
    both = taken(after.ledgers["n1"], second)
    assert {each.allocation for each in both.reservations} == {"2026-01-01T00:00:00Z"}
    assert reserved(after.with_ledger(both)) == 8


def test_a_place_takes_nothing_from_what_was_admitted() -> None:
    """Not even of a claim whose allocation the view does not show yet, of another pod that shares it."""
    snapshot = cluster("a")
    real = asked(snapshot, allocated("a", result("d0"), pods=("p1",)), waiting("a"))
    assert real is not None
    ledger = taken(NodeLedger("n1", "u1", "9"), real)
    assert placed(ledger, places(snapshot)) == ledger
    charged = NodeLedger("n1", "u1", "9", charges=real.charges)
    assert placed(charged, places(snapshot)) == charged


def test_it_goes_with_an_allocation_that_is_seen_there_or_elsewhere() -> None:
    for where in ("n1", "n2"):
        snapshot = held(cluster("a").put(node("n2", uid="u2")))
        given = allocated("a", result("d0"), pods=("p1",), node_name=where)
        given["metadata"]["resourceVersion"] = "30"
        seen = snapshot.put(given)
        # On another node its claim counts nowhere here from that moment on, and its pod neither.
        assert reserved(seen) == (2 if where == "n1" else 0)
        assert [each.allocation for each in advance(seen.ledgers["n1"], seen, "n1").reservations] == []


def test_it_goes_with_its_pod() -> None:
    snapshot = held(cluster("a"))
    ledger = snapshot.ledgers["n1"]
    assert advance(ledger, snapshot, "n1").reservations == ledger.reservations
    for changed in (
        snapshot.remove(coming("a")),
        snapshot.put(pod("p1", container(cpu="2", claims=("a",)), claims=("a",), node_name="n1")),
        snapshot.put(pod("p1", container(cpu="2", claims=("a",)), claims=("a",), node_name="", phase="Failed")),
    ):
        assert advance(ledger, changed, "n1").reservations == ()


def test_a_view_without_versions_sees_the_allocation_all_the_same() -> None:
    """As of files."""
    seen = held(cluster("a")).put(allocated("a", result("d0"), pods=("p1",)))
    assert account(seen).resources["cpu"].claims == 3


def test_it_is_explained() -> None:
    told = explained(Book(), held(cluster("a")), ("claim", "ns", "a"), NOW)
    assert told["state"] == "reserved"
    [charge] = told["charges"]
    assert charge["reason"] == "request r has a place, whichever device it will get; its pod was let go to this node"
    assert [(each["node"], each["holder"], each["pod"]) for each in told["reservations"]] == [("n1", "leader", "ns/p1")]
