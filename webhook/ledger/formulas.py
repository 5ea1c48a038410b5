"""Which version of its mapping an allocation is charged by, when a whole history of slices is known.

Everything here is a set that only grows, so what it answers depends on what was seen, never on the order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from immutables import Map
from msgspec import Struct

from webhook.facts.footprint import DeviceCharge, device_charges
from webhook.facts.placement import offers
from webhook.kube.claims import Claim, Result
from webhook.kube.resource import Device, Slice
from webhook.kube.resource_version import version
from webhook.kube.rollout import DriverRollout
from webhook.ledger.events import Event

Pool = tuple[str, str]
# When a slice was seen, or was gone: its version, or a number below all of them with the time; and whether it was gone.
When = tuple[int, datetime, bool]
_Offer = tuple[Slice, Device]
T = TypeVar("T")

_ANY_TIME = datetime.min.replace(tzinfo=UTC)


class Formulas(Struct, frozen=True):
    """Every version of every slice that was seen, by pool, oldest first; when slices were gone, and the pools that they
    were of, by their names; and for each allocation (claim UID, allocation identity) the lowest resourceVersion of the
    claim that was seen with it.
    """

    slices: Map[Pool, tuple[tuple[When, Slice], ...]] = Map()
    gone: Map[str, tuple[When, ...]] = Map()
    pools: Map[str, tuple[Pool, ...]] = Map()
    allocations: Map[tuple[str, str], When] = Map()

    def with_slice(self, item: Slice, when: When) -> Formulas:
        """These formulas and the version that ``item`` is."""
        known = self.slices.get(item.key, ())
        more = _inserted(known, (when, item), _order)
        if more is known:
            return self
        pools = self.pools.get(item.name, ())
        named = self.pools if item.key in pools else self.pools.set(item.name, (*pools, item.key))
        return Formulas(self.slices.set(item.key, more), self.gone, named, self.allocations)

    def without_slice(self, name: str, when: When) -> Formulas:
        """These formulas, and that the slice of this name was there no more."""
        known = self.gone.get(name, ())
        more = _inserted(known, when, _itself)
        if more is known:
            return self
        return Formulas(self.slices, self.gone.set(name, more), self.pools, self.allocations)

    def with_allocation(self, claim: str, identity: str, when: When) -> Formulas:
        """These formulas, and that the claim of this UID had the allocation of this identity then."""
        known = self.allocations.get((claim, identity))
        if known is not None and _earliest(known) <= _earliest(when):
            return self
        return Formulas(self.slices, self.gone, self.pools, self.allocations.set((claim, identity), when))

    def first_seen(self, claim: Claim) -> str:
        """The lowest resourceVersion of ``claim`` that was seen with the allocation it has, empty if none was."""
        when = self._allocated(claim)
        return str(when[0]) if when is not None and when[0] >= 0 else ""

    def _allocated(self, claim: Claim) -> When | None:
        return self.allocations.get((claim.id, claim.allocation.identity)) if claim.allocation is not None else None

    def charges(self, claim: Claim, rollouts: Mapping[str, DriverRollout]) -> Iterator[DeviceCharge]:
        """What the devices of the claim cost: each by the slice that was there when the allocation was first seen, of
        several by that of the highest generation; where none was by the newest before, else by the oldest known. And by
        what was there later what that costs that it did not.
        """
        first = self._allocated(claim)
        node = claim.allocation.node if claim.allocation is not None else ""
        for result in claim.allocation.results if claim.allocation is not None else ():
            charged: set[str] = set()
            for item, device in self._offers(result, node, first):
                for charge in device_charges(result, item, device, rollouts.get(item.driver)):
                    if charge.resource not in charged:
                        charged.add(charge.resource)
                        yield charge

    def _offers(self, result: Result, node: str, first: When | None) -> Iterator[_Offer]:
        """What offered the device of ``result`` when its claim was ``first`` seen with it, and from then on."""
        there: dict[str, _Offer] = {}
        before: _Offer | None = None
        last: _Offer | None = None
        begun = False
        for when, name, offer in self._changes(result, node):
            if not begun and first is not None and _after(when, first):
                begun, last = True, _foremost(there) or before
                if last is not None:
                    yield last
            if offer is not None:
                there[name] = before = offer
            else:
                there.pop(name, None)
            if begun and (now := _foremost(there)) is not None and now is not last:
                last = now
                yield now
        if not begun and (found := _foremost(there) or before) is not None:
            yield found

    def _changes(self, result: Result, node: str) -> list[tuple[When, str, _Offer | None]]:
        """When what slice offered the device, or did so no more, in order."""
        found: list[tuple[When, str, _Offer | None]] = []
        place = 0
        for when, item in self.slices.get((result.driver, result.pool), ()):
            devices = item.devices
            # From one version to the next a device stays where it is, nearly always.
            if place >= len(devices) or devices[place].name != result.device:
                place = next((index for index, each in enumerate(devices) if each.name == result.device), -1)
            offer = (item, devices[place]) if place >= 0 else None
            # A pool of several nodes may call the devices of each by the same names.
            if offer is not None and node and offers(*offer) not in ("", node):
                offer = None
            found.append((when, item.name, offer))
            place = max(place, 0)
        names = {name for _, name, _ in found}
        gone = [(when, name, None) for name in names for when in self.gone.get(name, ())]
        return sorted([*found, *gone], key=_first) if gone else found


def when_seen(event: Event) -> When:
    """When ``event`` was among the others of its kind: what has a version comes after all that has none."""
    number = version(event.resource_version)
    return (number, _ANY_TIME if number >= 0 else event.observed, event.type == "gone")


def _foremost(there: Mapping[str, _Offer]) -> _Offer | None:
    """The one that the scheduler takes the device from: of the highest generation, then the first by name."""
    return min(there.values(), key=lambda each: (-each[0].generation, each[0].name), default=None)


def _inserted(known: tuple[T, ...], item: T, order: Callable[[T], Any]) -> tuple[T, ...]:
    """``known``, which is sorted, with ``item``; ``known`` itself where that is there."""
    place = bisect_left(known, order(item), key=order)
    if place < len(known) and order(known[place]) == order(item):
        return known
    return (*known[:place], item, *known[place:])


def _earliest(when: When) -> tuple[bool, When]:
    """Orders moments of one claim: by its versions as long as it has some."""
    return when[0] < 0, when


def _after(when: When, first: When) -> bool:
    """Whether a slice changed after the claim was seen: no two objects have one version, and what was observed at once
    was there together.
    """
    return when[0] >= first[0] if first[0] >= 0 else when[:2] > first[:2]


def _itself(when: When) -> When:
    return when


def _first(change: tuple[When, str, _Offer | None]) -> When:
    return change[0]


def _order(seen: tuple[When, Slice]) -> tuple[When, str, str, int, bytes]:
    when, item = seen
    return (when, item.name, item.uid, item.generation, item.shape)
