"""Pods for which somebody has to choose the NUMA zone: the scheduler knows none, and would fill one up.

A zone can come short only where the devices in it can together cost more than it has. Where they cannot, as those of
the one driver that describes the node, the scheduler's own count of devices is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice

from msgspec import Struct

from webhook.facts.account import bookable
from webhook.facts.drivers import drivers_of
from webhook.facts.pod_needs import wanted_claims
from webhook.facts.pool_survey import Reason
from webhook.facts.zones import current, described, device_zone, zone_capacities
from webhook.kube.claims import RequestGroup
from webhook.kube.core import Pod
from webhook.kube.quantity import Number, of_resource
from webhook.kube.resource import Slice
from webhook.kube.rollout import DriverRollout
from webhook.kube.snapshot import Snapshot

RULE = "zone-to-choose"
# Nodes of a driver that a review looks at: it must cost the same in any cluster.
MOST_NODES = 16

_NEEDS = "a node where they fit their zones whichever of them the scheduler takes, since it knows no zones"
_FIX = "wait: the guard chooses the node, once one has room"


class Tight(Struct, frozen=True):
    """A zone whose devices can cost more of a resource (base units) than it ``has``: ``asked``, None where there is no
    bound. ``drivers`` are those with such devices there.
    """

    node: str
    zone: int
    resource: str
    has: Number
    asked: Number | None
    drivers: tuple[str, ...]

    def __str__(self) -> str:
        """The zone, and what it can be asked for, as people read it."""
        asked = "any amount" if self.asked is None else of_resource(self.resource, self.asked)
        has = of_resource(self.resource, self.has)
        return f"zone {self.zone} of node {self.node}, which has {has} {self.resource} and can be asked for {asked}"


def must_choose(pod: Pod, snapshot: Snapshot) -> Reason | None:
    """Why the zone of a device of ``pod`` has to be chosen for the scheduler; None where none can come short, and for
    zones of which nobody tells what they hold. For many pods at one moment, ask one :class:`Choosing`.

    Looks at some nodes of each driver, which stand for all.
    """
    return Choosing(snapshot).pod(pod)


class Choosing:
    """Whose zones have to be chosen at one moment; each driver is looked at once, however many pods need it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._drivers: dict[str, Tight | None] = {}

    def pod(self, pod: Pod) -> Reason | None:
        """As :func:`must_choose`."""
        for claim in wanted_claims(pod, self._snapshot):
            for group in claim.groups if claim.allocation is None else ():
                tight = self._group(group)
                if tight is not None:
                    has = f"devices of {' and '.join(tight.drivers)} in {tight}"
                    return Reason(RULE, has, _NEEDS, _FIX)
        return None

    def _group(self, group: RequestGroup) -> Tight | None:
        for alternative in group.alternatives:
            for driver in drivers_of(alternative, self._snapshot) or self._snapshot.mapped_slices:
                if driver not in self._drivers:
                    self._drivers[driver] = next(_tight_of(driver, self._snapshot), None)
                tight = self._drivers[driver]
                if tight is not None:
                    return tight
        return None


def _tight_of(driver: str, snapshot: Snapshot) -> Iterator[Tight]:
    if driver in snapshot.mapped_slices:
        for name in islice(snapshot.driver_slices.get(driver, ()), MOST_NODES):
            yield from (t for t in tight_zones(snapshot.slices[name].node, snapshot) if driver in t.drivers)


def tight_zones(node: str, snapshot: Snapshot) -> tuple[Tight, ...]:
    """The zones of ``node`` that can come short, by resource."""
    known = snapshot.nodes.get(node)
    slices = snapshot.node_slices.get(node)
    if known is None or slices is None:
        return ()
    return _tight_zones(_Seen((known, slices, snapshot.topologies.get(node), snapshot.rollout_specs), node, snapshot))


class _Seen:
    """What the zones of a node depend on, compared by identity: it is replaced with every change."""

    __slots__ = ("node", "parts", "snapshot")

    def __init__(self, parts: tuple[object, ...], node: str, snapshot: Snapshot) -> None:
        self.parts = parts
        self.node = node
        self.snapshot: Snapshot | None = snapshot

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.parts)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Seen) and all(one is two for one, two in zip(self.parts, other.parts, strict=True))


@lru_cache(maxsize=4096)
def _tight_zones(seen: _Seen) -> tuple[Tight, ...]:
    snapshot = seen.snapshot
    # The memo keeps the question; it is not to keep a whole cluster.
    seen.snapshot = None
    if snapshot is None:
        return ()
    node, capacities = seen.node, zone_capacities(seen.node, snapshot)
    if not capacities:
        return ()
    drivers: dict[str, list[Slice]] = {}
    for item in current(snapshot.node_slices.get(node, ())):
        drivers.setdefault(item.driver, []).append(item)
    asked: dict[tuple[int, str], dict[str, Number | None]] = {}
    for driver, slices in drivers.items():
        rollout = snapshot.rollout_specs.get(driver)
        for resource, zones in described(driver, slices, rollout).items():
            for zone, amount in zones.items():
                asked.setdefault((zone, resource), {})[driver] = amount
        for key in _unbounded(driver, slices, rollout):
            asked.setdefault(key, {})[driver] = None
    found = [
        Tight(node, zone, resource, has, total, tuple(sorted(by_driver)))
        for (zone, resource), by_driver in sorted(asked.items())
        if bookable(resource)
        and (has := capacities.get(zone, {}).get(resource)) is not None
        and ((total := _sum(by_driver.values())) is None or total > has)
    ]
    return tuple(found)


def _sum(amounts: Iterable[Number | None]) -> Number | None:
    total: Number = 0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


def _unbounded(driver: str, slices: list[Slice], rollout: DriverRollout | None) -> Iterator[tuple[int, str]]:
    """Zone and resource of devices that any number of claims may share at a cost for each."""
    for item in slices:
        for device in item.devices:
            zone = device_zone(device, driver, rollout) if device.multiple else None
            if zone is not None:
                for cost in device.effective_costs:
                    if cost.capacity_key is None and cost.multiplier is not None and cost.multiplier > 0:
                        yield zone, cost.resource
