from __future__ import annotations

from itertools import combinations_with_replacement, product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger.builders import device, old, slice_of
from webhook.facts.assignment import Choice, Room, assign
from webhook.facts.constraints import attribute_values
from webhook.facts.node_offers import Offer
from webhook.kube.claims import Constraint
from webhook.kube.resource import read_slice

Json = dict[str, Any]
ZONE = "resource.kubernetes.io/numaNode"

# name, cost in cpu, zone, counters drawn, shared
DEVICE = st.tuples(st.integers(1, 3), st.sampled_from([None, 0, 1]), st.sampled_from([0, 0, 2, 4]), st.booleans())
DEVICES = st.lists(DEVICE, min_size=1, max_size=4)
REQUEST = st.tuples(st.sampled_from([1, 2, None]), st.frozensets(st.integers(0, 3), min_size=1, max_size=4))
FREE, ZONE_FREE = st.sampled_from([3, 30]), st.sampled_from([1, 2, 30])


def offer(index: int, cost: int, zone: int | None, drawn: int, shared: bool) -> Offer:
    more: Json = {"consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": str(drawn)}}}]} if drawn else {}
    item = read_slice(slice_of(device(f"d{index}", old(str(cost)), zone=zone, **more)))
    consumed = {"c": 1} if shared else None
    made = item.devices[0]
    signature = (cost, zone, drawn, shared)
    return Offer(item, made, True, False, consumed, {"cpu": cost}, {}, {}, zone, signature)


def possible(groups: list[list[Choice]], constraint: Constraint | None, room: Room) -> bool:
    """The same question answered by trying every combination."""
    picks = [
        [
            list(chosen)
            for choice in group
            for chosen in (
                [choice.offers] if choice.count is None else combinations_with_replacement(choice.offers, choice.count)
            )
        ]
        for group in groups
    ]
    for parts in product(*picks):
        chosen = [each for part in parts for each in part]
        times = {each.identity: sum(other.identity == each.identity for other in chosen) for each in chosen}
        distinct = {each.identity: each for each in chosen}
        if any(times[name] > (2 if each.consumed else 1) for name, each in distinct.items()):
            continue
        drawn = sum(
            int(each.device.counters[0]["counters"]["m"]["value"]) for each in distinct.values() if each.device.counters
        )
        zones = [sum(each.amounts["cpu"] for each in chosen if each.zone == zone) for zone in (0, 1)]
        values = [attribute_values(each.device, each.slice.driver, ZONE) for each in chosen]
        if constraint is not None and values and (None in values or not frozenset.intersection(*filter(None, values))):
            continue
        fits = sum(each.amounts["cpu"] for each in chosen) <= room.free["cpu"]
        if drawn <= 4 and zones[0] <= room.zones[0, "cpu"] and fits:
            return True
    return False


@settings(max_examples=300)
@given(DEVICES, st.lists(REQUEST, min_size=1, max_size=2), FREE, ZONE_FREE, st.booleans())
def test_the_search_finds_what_trying_everything_finds(
    devices: list[tuple[int, int | None, int, bool]],
    requests: list[tuple[int | None, frozenset[int]]],
    free: int,
    zone: int,
    together: bool,
) -> None:
    offers = [offer(index, *fields) for index, fields in enumerate(devices)]
    groups = [
        [Choice(0, (f"r{number}",), tuple(o for i, o in enumerate(offers) if i in chosen), count)]
        for number, (count, chosen) in enumerate(requests)
    ]
    constraint = Constraint("constraints[0]", (), ZONE, "") if together else None
    room = Room(
        free={"cpu": free},
        zones={(0, "cpu"): zone},
        counters={("d.example", "n1", "s", "m"): 4},
        drawn=frozenset(),
        shared={(each.identity, "c"): 2 for each in offers if each.consumed},
        accepts=lambda amounts, per_pod, per_container, zones: amounts.get("cpu", 0) <= free,
    )
    outcome = assign(groups, [(0, constraint)] if constraint else [], room)
    assert outcome.fits is possible(groups, constraint, room)
