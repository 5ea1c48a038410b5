"""What devices of a driver look like to a request, without walking the cluster each time it is asked.

The devices of a driver are grouped by their capacities, since these decide what a request gets; a fleet has many
devices and few such groups. The groups are remembered until a slice of the driver changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import orjson
from immutables import Map

from webhook.facts.drivers import drivers_of
from webhook.facts.selectors import matches
from webhook.kube.claims import DeviceRequest
from webhook.kube.raw import Json, mapping, objects, text
from webhook.kube.resource import Device, Slice
from webhook.kube.snapshot import Snapshot

SLICES_SEEN = 256
EXAMPLES = 8


@dataclass(frozen=True, slots=True)
class Offer:
    """Devices of one driver with equal capacities. ``examples`` are some of them, ``whole`` tells whether all."""

    driver: str
    capacity: Json
    shared: bool
    examples: tuple[Device, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class Offers:
    """The offers of some drivers; ``complete`` is false where there were more slices than are looked at."""

    offers: tuple[Offer, ...]
    complete: bool

    @property
    def known(self) -> bool:
        """Whether there is any device at all."""
        return bool(self.offers)


class _Slices:
    """A driver's slices, compared by the identity of the index that lists them: it is replaced with every change."""

    __slots__ = ("index", "slices")

    def __init__(self, index: Map[str, None], slices: Map[str, Slice]) -> None:
        self.index = index
        self.slices = slices

    def __hash__(self) -> int:
        return id(self.index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Slices) and other.index is self.index


@lru_cache(maxsize=256)
def _driver_offers(driver: str, listed: _Slices) -> Offers:
    groups: dict[bytes, list[Device]] = {}
    seen = 0
    for name in listed.index:
        seen += 1
        if seen > SLICES_SEEN:
            break
        for device in listed.slices[name].devices:
            groups.setdefault(_content(device), []).append(device)
    offers = tuple(
        Offer(driver, group[0].capacity, group[0].multiple, tuple(group[:EXAMPLES]), len(group) <= EXAMPLES)
        for group in groups.values()
    )
    return Offers(offers, seen <= SLICES_SEEN)


def _content(device: Device) -> bytes:
    try:
        return orjson.dumps((device.multiple, device.capacity), option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):  # no JSON bytes: a group of its own
        return repr((device.multiple, device.capacity)).encode("utf-8", "backslashreplace")


def driver_offers(driver: str, snapshot: Snapshot) -> Offers:
    """All that a driver offers, chosen by no selector."""
    index = snapshot.driver_slices.get(driver)
    return Offers((), True) if index is None else _driver_offers(driver, _Slices(index, snapshot.slices))


def class_selectors(name: str, snapshot: Snapshot) -> tuple[str, ...]:
    """The CEL expressions of a DeviceClass; empty for one that is not known."""
    spec = mapping(mapping(snapshot.classes.get(name)).get("spec"))
    return tuple(text(mapping(row.get("cel")).get("expression")) for _, row in objects(spec.get("selectors")))


def candidates(request: DeviceRequest, snapshot: Snapshot) -> Offers:
    """The offers whose devices ``request`` may get, as far as the selectors of class and request say it.

    Empty when the class is not known or its selectors do not name a driver. A group with more devices than examples
    stays in, even if no example matches.
    """
    if request.class_name not in snapshot.classes:
        return Offers((), True)
    selectors = (*class_selectors(request.class_name, snapshot), *request.selectors)
    found = [driver_offers(driver, snapshot) for driver in drivers_of(request, snapshot)]
    kept = tuple(offer for part in found for offer in part.offers if _may_match(offer, selectors))
    return Offers(kept, all(part.complete for part in found))


def _may_match(offer: Offer, selectors: tuple[str, ...]) -> bool:
    return not offer.whole or any(chosen(selectors, offer.driver, device) for device in offer.examples)


def chosen(selectors: tuple[str, ...], driver: str, device: Device) -> bool:
    """Whether all selectors choose the device; an error counts as a choice, since nothing is known then."""
    return all(matches(expression, driver, device) is not False for expression in selectors)


def choices(request: DeviceRequest, offers: Offers, snapshot: Snapshot) -> Iterator[tuple[str, Device]]:
    """Driver and device of the examples in ``offers`` that the selectors choose."""
    selectors = (*class_selectors(request.class_name, snapshot), *request.selectors)
    for offer in offers.offers:
        for device in offer.examples:
            if chosen(selectors, offer.driver, device):
                yield offer.driver, device
