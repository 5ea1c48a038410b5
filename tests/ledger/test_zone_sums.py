"""Zones never come to more than their node, whatever is booked, reserved and published."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger.builders import DRIVER, allocated, container, device, node, old, pod, result, slice_of, world
from webhook.facts.account import Account
from webhook.ledger.book import Book

Json = dict[str, Any]

ZONES = st.sampled_from([None, 0, 1, 2])
AMOUNTS = st.sampled_from(["0", "1", "1500m", "333m", "4"])


def row(name: str, resource: str, amount: str, zone: int | None, claim: str) -> Json:
    made: Json = {
        "claimUID": f"uid-{claim}",
        "allocation": "2026-01-01T00:00:00Z",
        "request": "r",
        "driver": DRIVER,
        "pool": "n1",
        "device": name,
        "resource": resource,
        "namespace": "ns",
        "name": claim,
        "amount": amount,
    }
    return made if zone is None else {**made, "zone": zone}


@st.composite
def worlds(draw: st.DrawFn) -> list[Json]:
    devices: list[Json] = []
    objs: list[Json] = [node(cpu="8", memory="8")]
    charges: list[Json] = []
    reservations: list[Json] = []
    for number in range(draw(st.integers(1, 5))):
        name, claim = f"d{number}", f"c{number}"
        costs = [old(draw(AMOUNTS.filter(lambda each: each != "0")), None, each) for each in ("cpu", "memory")]
        devices.append(device(name, *costs[: draw(st.integers(1, 2))], zone=draw(ZONES)))
        seen = draw(st.sampled_from(["no", "allocated", "bound"]))
        if seen != "no":
            objs.append(allocated(claim, result(name), pods=(f"p{number}",)))
        if seen == "bound":
            objs.append(pod(f"p{number}", container(cpu=draw(AMOUNTS), claims=(claim,)), claims=(claim,)))
        book = draw(st.sampled_from(["no", "charge", "reservation"]))
        booked = [row(name, each, draw(AMOUNTS), draw(ZONES), claim) for each in ("cpu", "memory")]
        if book == "charge":
            charges += booked
        if book == "reservation":
            held = {"claimUID": f"uid-{claim}", "allocation": "2026-01-01T00:00:00Z", "namespace": "ns", "name": claim}
            reservations.append({**held, "charges": booked, "podRequest": {"cpu": draw(AMOUNTS)}})
    status = {"charges": charges, "reservations": reservations}
    ledger = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "NodeLedger", "metadata": {"name": "n1"}}
    published = devices[draw(st.integers(0, 1)) :]
    return [*objs, slice_of(*published), {**ledger, "status": status}]


def sums(account: Account, resource: str) -> tuple[Any, Any]:
    """What zones have of ``resource`` in charges and in reservations."""
    parts = [amounts[resource] for amounts in account.zones.values() if resource in amounts]
    return sum(part.claims for part in parts), sum(part.reserved for part in parts)


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_zones_are_part_of_the_node(objs: list[Json]) -> None:
    account = Book().account(world(*objs), "n1")
    assert account is not None
    for resource, amount in account.resources.items():
        claims, reserved = sums(account, resource)
        assert claims <= amount.claims
        assert reserved <= amount.reserved
    for part in account.claims.values():
        for resource in {name for amounts in part.zones.values() for name in amounts}:
            in_zones = sum(amounts.get(resource, 0) for amounts in part.zones.values())
            assert in_zones <= part.amounts[resource]


@settings(max_examples=100, deadline=None)
@given(worlds(), st.integers(0, 4))
def test_without_a_claim_zones_are_still_part_of_the_node(objs: list[Json], number: int) -> None:
    account = Book().account(world(*objs), "n1")
    assert account is not None
    left = account.without(f"uid-c{number}", f"uid-p{number}")
    for resource, amount in left.resources.items():
        claims, reserved = sums(left, resource)
        assert 0 <= claims <= amount.claims
        assert 0 <= reserved <= amount.reserved
