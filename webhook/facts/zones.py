"""NUMA zones: which zone a device is of, and what the zones of a node hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

from webhook.facts.account import ZoneAmounts
from webhook.kube.quantity import Number, try_parse
from webhook.kube.raw import mapping, sequence, text
from webhook.kube.resource import Device, NodeCost, Slice
from webhook.kube.rollout import STANDARD_NUMA, DriverRollout
from webhook.kube.snapshot import Snapshot


@lru_cache(maxsize=1024)
def _lookup_order(driver: str, own: tuple[str, ...]) -> tuple[str, ...]:
    """The names by which the zone may stand in a device; without a domain a name is of the driver's domain."""
    names = (
        *own,
        STANDARD_NUMA,
        f"{driver}/numaNode",
        "dra.memory/numaNode",
        "dra.cpu/numaNodeID",
        "dra.net/numaNode",
        f"{driver}/numa",
        f"{driver}/node",
    )
    return tuple(each for name in names for each in dict.fromkeys((name, name.removeprefix(f"{driver}/"))))


def device_zones(device: Device, driver: str, rollout: DriverRollout | None) -> tuple[int, ...]:
    """The NUMA zones of a device: one, several (any of them), or none where its zone is unknown.

    The first attribute present decides: those of the driver's rollout, then the standard one (KEP-6072), then the
    names drivers use. Negative numbers mean unknown; there is no upper bound.
    """
    attributes = device.attributes
    for name in _lookup_order(driver, rollout.numa_attributes if rollout is not None else ()):
        value = attributes.get(name)
        if value is not None:
            fields = mapping(value)
            numbers = [fields.get("int"), *sequence(fields.get("ints"))]
            return tuple(dict.fromkeys(n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and n >= 0))
    return ()


def device_zone(device: Device, driver: str, rollout: DriverRollout | None) -> int | None:
    """The one zone of a device, None where it is unknown or one of several."""
    zones = device_zones(device, driver, rollout)
    return zones[0] if len(zones) == 1 else None


def most(device: Device, cost: NodeCost) -> Number | None:
    """The most that claims on ``device`` can cost together by ``cost``; None where there is no bound (a shared device
    without a capacity key, whose cost comes with every claim) or nothing can be read.
    """
    if cost.multiplier is None or cost.multiplier < 0:
        return None
    if cost.capacity_key is None:
        return None if device.multiple else cost.multiplier
    capacity = device.capacity_value(cost.capacity_key)
    if not device.multiple or capacity is None or capacity < 0:
        return None
    return capacity * cost.multiplier


def counters_of(device: Device) -> dict[tuple[str, str], Number]:
    """What a device draws of its pool's counters, by counter set and counter."""
    return {
        (text(entry.get("counterSet")), str(name)): amount
        for entry in device.counters
        for name, counter in mapping(entry.get("counters")).items()
        if (amount := try_parse(mapping(counter).get("value"))) is not None
    }


def together(worths: list[tuple[Device, Number]], counter_sets: Mapping[str, Mapping[str, Number | None]]) -> Number:
    """The most that devices can cost together, given what each can cost alone: devices that draw on one counter set
    exclude each other, so each counter bounds their sum (an upper bound, exact where partitions divide evenly).
    """
    free: Number = 0
    groups: dict[str, list[tuple[Device, Number]]] = {}
    for device, worth in worths:
        if device.counters:
            groups.setdefault(text(device.counters[0].get("counterSet")), []).append((device, worth))
        else:
            free += worth
    for name, members in groups.items():
        best: Number = sum((worth for _, worth in members), 0)
        for counter, held in counter_sets.get(name, {}).items():
            best = min(best, _bounded(members, name, counter, held or 0))
        free += best
    return free


def _bounded(members: list[tuple[Device, Number]], name: str, counter: str, held: Number) -> Number:
    total: Number = 0
    priced: list[tuple[Fraction, Number, Number]] = []
    for device, worth in members:
        drawn = counters_of(device).get((name, counter), 0)
        if drawn > 0:
            priced.append((Fraction(worth) / drawn, worth, drawn))
        else:
            total += worth
    for rate, worth, drawn in sorted(priced, key=lambda row: row[0], reverse=True):
        if drawn <= held:
            total, held = total + worth, held - drawn
        else:
            total += rate * held
            break
    return total


def current(slices: Iterable[Slice]) -> list[Slice]:
    """Of slices of any pools, those of their pool's highest generation."""
    highest: dict[tuple[str, str], int] = {}
    items = list(slices)
    for item in items:
        highest[item.key] = max(item.generation, highest.get(item.key, item.generation))
    return [item for item in items if item.generation == highest[item.key]]


def zone_capacities(node: str, snapshot: Snapshot) -> ZoneAmounts:
    """What each NUMA zone of ``node`` holds, by resource, in base units; empty where nobody tells.

    From the node's NodeResourceTopology; else, resource by resource, from the drivers that describe the node: those
    whose devices with exactly one known zone can together cost at least the node's allocatable. Of several such
    drivers the largest figure of a zone counts, never a sum over drivers.
    """
    topology = snapshot.topologies.get(node)
    if topology is not None and topology.zones:
        return topology.zones
    known = snapshot.nodes.get(node)
    if known is None:
        return {}
    drivers: dict[str, list[Slice]] = {}
    for item in current(snapshot.node_slices.get(node, ())):
        drivers.setdefault(item.driver, []).append(item)
    found: dict[int, dict[str, Number]] = {}
    for driver, slices in drivers.items():
        if not any(item.mapped for item in slices):
            continue
        for resource, zones in described(driver, slices, snapshot.rollouts.get(driver)).items():
            if sum(zones.values(), 0) >= known.allocatable.get(resource, 0) > 0:
                for zone, amount in zones.items():
                    held = found.setdefault(zone, {})
                    held[resource] = max(amount, held.get(resource, amount))
    return found


def described(driver: str, slices: list[Slice], rollout: DriverRollout | None) -> dict[str, dict[int, Number]]:
    """What the devices of ``driver`` in ``slices``, its current ones on a node, can cost together by resource and zone:
    those with exactly one known zone, and with a bound.
    """
    sets: dict[str, dict[str, Mapping[str, Number | None]]] = {}
    worths: dict[tuple[str, int, str], list[tuple[Device, Number]]] = {}
    for item in slices:
        sets.setdefault(item.pool, {}).update(item.counter_sets)
        for device in item.devices:
            zone = device_zone(device, driver, rollout)
            if zone is None:
                continue
            for cost in device.effective_costs:
                worth = most(device, cost)
                if worth is not None:
                    worths.setdefault((cost.resource, zone, item.pool), []).append((device, worth))
    found: dict[str, dict[int, Number]] = {}
    for (resource, zone, pool), members in worths.items():
        held = found.setdefault(resource, {})
        held[zone] = held.get(zone, 0) + together(members, sets[pool])
    return found
