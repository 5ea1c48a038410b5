"""Which version of its mapping an allocation is charged by, when a whole history of slices is known.

Everything here is a set that only grows, so what it answers depends on what was seen, never on the order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from sys import maxsize

from immutables import Map
from msgspec import Struct

from webhook.facts.footprint import DeviceCharge, device_charges
from webhook.facts.placement import offers
from webhook.kube.claims import Claim, Result
from webhook.kube.resource import Device, Slice
from webhook.kube.resource_version import version
from webhook.kube.rollout import DriverRollout

Pool = tuple[str, str]


class Formulas(Struct, frozen=True):
    """Every version of every slice that was seen, by pool, oldest first; and for each allocation (claim UID, allocation
    identity) the lowest resourceVersion of the claim that was seen with it.
    """

    slices: Map[Pool, tuple[Slice, ...]] = Map()
    allocations: Map[tuple[str, str], int] = Map()

    def with_slice(self, item: Slice) -> Formulas:
        """These formulas and the version that ``item`` is."""
        known = self.slices.get(item.key, ())
        order = _order(item)
        place = bisect_left(known, order, key=_order)
        if place < len(known) and _order(known[place]) == order:
            return self
        return Formulas(self.slices.set(item.key, (*known[:place], item, *known[place:])), self.allocations)

    def with_allocation(self, claim: str, identity: str, seen: int) -> Formulas:
        """These formulas, and that the claim of this UID had the allocation of this identity at version ``seen``."""
        if seen < 0 or self.allocations.get((claim, identity), maxsize) <= seen:
            return self
        return Formulas(self.slices, self.allocations.set((claim, identity), seen))

    def first_seen(self, claim: Claim) -> str:
        """The lowest resourceVersion of ``claim`` that was seen with the allocation it has, empty if none was."""
        allocation = claim.allocation
        found = self.allocations.get((claim.id, allocation.identity), -1) if allocation is not None else -1
        return str(found) if found >= 0 else ""

    def charges(self, claim: Claim, rollouts: Mapping[str, DriverRollout]) -> Iterator[DeviceCharge]:
        """What the devices of the claim cost: each by the newest version of its slice below the one at which the
        allocation was first seen, else by the oldest known; and by later versions what they cost that it did not.
        """
        first = version(self.first_seen(claim))
        for result in claim.allocation.results if claim.allocation is not None else ():
            found = self._versions(result, claim.allocation.node if claim.allocation is not None else "")
            if not found:
                continue
            below = [index for index, (item, _) in enumerate(found) if version(item.resource_version) < first]
            # Without versions there is no before and after: what was put last counts.
            start = (below[-1] if below else 0) if first >= 0 else len(found) - 1
            charged: set[str] = set()
            for item, device in found[start:]:
                for charge in device_charges(result, item, device, rollouts.get(item.driver)):
                    if charge.resource not in charged:
                        charged.add(charge.resource)
                        yield charge

    def _versions(self, result: Result, node: str) -> list[tuple[Slice, Device]]:
        found: list[tuple[Slice, Device]] = []
        place = 0
        for item in self.slices.get((result.driver, result.pool), ()):
            devices = item.devices
            # From one version to the next a device stays where it is, nearly always.
            if place >= len(devices) or devices[place].name != result.device:
                place = next((index for index, each in enumerate(devices) if each.name == result.device), -1)
                if place < 0:
                    place = 0
                    continue
            device = devices[place]
            # A pool of several nodes may call the devices of each by the same names.
            if not node or offers(item, device) in ("", node):
                found.append((item, device))
        return found


def _order(item: Slice) -> tuple[int, str, str, int, bytes]:
    number = version(item.resource_version)
    return (number if number >= 0 else maxsize, item.name, item.uid, item.generation, item.shape)
