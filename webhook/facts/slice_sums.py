"""The most that the devices of a pool can cost a node together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from webhook.kube.quantity import Number, try_parse
from webhook.kube.raw import mapping, text
from webhook.kube.resource import Device, NodeCost, Slice

Counters = Mapping[str, Number | None]


def most_of(device: Device, cost: NodeCost) -> Number:
    """The most that ``device`` can cost by one mapping: the whole capacity times the multiplier, or the multiplier.

    A device that may be allocated any number of times counts once, overhead of 1.37 not at all.
    """
    multiplier = cost.multiplier or 0
    if cost.capacity_key is None:
        return max(multiplier, 0)
    capacity = device.capacity_value(cost.capacity_key) if device.multiple else None
    return max((capacity or 0) * multiplier, 0)


def most_together(slices: Iterable[Slice]) -> dict[str, Number]:
    """By resource, the most that the devices in ``slices`` of one pool can cost together (base units).

    Devices that consume a shared counter set exclude each other: they count as far as the set lasts.
    """
    total: dict[str, Number] = {}
    sets: dict[str, Counters] = {}
    bound: dict[str, list[Device]] = {}
    for item in slices:
        sets.update(item.counter_sets)
        for device, count in item.kinds:
            name = text(device.counters[0].get("counterSet")) if device.counters else ""
            if name:
                bound.setdefault(name, []).extend([device] * count)
                continue
            for cost in device.effective_costs:
                total[cost.resource] = total.get(cost.resource, 0) + most_of(device, cost) * count
    for name, devices in bound.items():
        for resource in dict.fromkeys(cost.resource for device in devices for cost in device.effective_costs):
            total[resource] = total.get(resource, 0) + _most_of_set(resource, devices, name, sets.get(name, {}))
    return total


def _most_of_set(resource: str, devices: list[Device], name: str, counters: Counters) -> Number:
    """A bound for the devices of one counter set: by each counter the costliest share of it, the least of these."""
    costs = [sum(most_of(d, c) for c in d.effective_costs if c.resource == resource) for d in devices]
    bounds: list[Number] = []
    for counter, amount in counters.items():
        if amount is None:
            continue
        uses = [_use(device, name, counter) for device in devices]
        if all(uses):
            bounds.append(_share(list(zip(costs, uses, strict=True)), amount))
    # Without a counter that all devices consume nothing says that they go together.
    return min(bounds, default=max(costs, default=0))


def _use(device: Device, name: str, counter: str) -> Number:
    for entry in device.counters:
        if entry.get("counterSet") == name:
            return try_parse(mapping(mapping(entry.get("counters")).get(counter)).get("value")) or 0
    return 0


def _share(rows: list[tuple[Number, Number]], amount: Number) -> Number:
    left, total = Fraction(amount), Fraction(0)
    for cost, use in sorted(rows, key=lambda row: Fraction(row[0]) / Fraction(row[1]), reverse=True):
        part = min(Fraction(1), left / use)
        if part <= 0:
            break
        total += cost * part
        left -= use * part
    return int(total) if total.denominator == 1 else total


def device_indexes(item: Slice, names: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Index and name of the devices of ``item`` that are called by one of ``names``."""
    return ((index, device.name) for index, device in enumerate(item.devices) if device.name in names)
