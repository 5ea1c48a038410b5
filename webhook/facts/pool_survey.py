"""What the slices of a pool say that a node sees: the current generation, its devices, and what contradicts itself.

The rules are the allocator's (k8s.io/dynamic-resource-allocation), made independent of the order of the slices.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from functools import lru_cache
from typing import Generic, TypeVar

from msgspec import Struct

from webhook.facts.matching import slice_applies
from webhook.kube.finding import Finding, one_line
from webhook.kube.quantity import Number
from webhook.kube.raw import mapping, text
from webhook.kube.resource import Device, Slice
from webhook.kube.snapshot import Snapshot

T = TypeVar("T")


class Reason(Struct, frozen=True, gc=False):
    """Why something is as it is: a rule's name, and what a finding says."""

    rule: str
    has: str
    needs: str
    fix: str = ""

    @property
    def text(self) -> str:
        """The line for people: ``rule: has X, needs Y; fix``, as a finding says it."""
        line = f"{self.rule}: {Finding(self.rule, '', self.has, self.needs).message}"
        return f"{line}; {one_line(self.fix)}" if self.fix else line


class Survey(Struct, frozen=True):
    """The devices and counter sets in some slices of one pool; ``invalid`` tells what no allocator can use."""

    slices: tuple[Slice, ...]
    devices: Mapping[str, tuple[Slice, Device]]
    counter_sets: Mapping[str, Mapping[str, Number | None]]
    digests: frozenset[str]
    invalid: tuple[Reason, ...]

    @property
    def mapped(self) -> bool:
        """Whether any device costs its node something."""
        return bool(self.digests)


class Same(Generic[T]):
    """Models compared by identity: they are immutable and shared between snapshots."""

    __slots__ = ("items",)

    def __init__(self, items: tuple[T, ...]) -> None:
        self.items = items

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.items)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same):
            return False
        mine, theirs = self.items, other.items
        return mine is theirs or (len(mine) == len(theirs) and all(map(operator.is_, mine, theirs)))


def survey(slices: tuple[Slice, ...]) -> Survey:
    """What ``slices`` of one pool and generation offer; remembered, so asking again is a look-up."""
    return _survey(Same(slices))


@lru_cache(maxsize=8192)
def _survey(key: Same[Slice]) -> Survey:
    devices: dict[str, tuple[Slice, Device]] = {}
    sets: dict[str, Mapping[str, Number | None]] = {}
    invalid: list[Reason] = []
    for item in key.items:
        for name, counters in item.counter_sets.items():
            if name in sets:
                invalid.append(Reason("pool-invalid", f"counter set {name} twice", "one counter set of that name"))
            sets.setdefault(name, counters)
        for device in item.devices:
            first = devices.get(device.name)
            if first is None:
                devices[device.name] = (item, device)
            else:
                where = "twice" if first[0] is item else f"in {first[0].name} and {item.name}"
                invalid.append(Reason("pool-invalid", f"device {device.name} {where}", "every device once in its pool"))
    for _, device in devices.values():
        invalid += _device_reasons(device, sets)
    return Survey(
        slices=key.items,
        devices=devices,
        counter_sets=sets,
        digests=frozenset().union(*(item.digests for item in key.items)),
        invalid=tuple(invalid[:8]),
    )


def _device_reasons(device: Device, sets: Mapping[str, Mapping[str, Number | None]]) -> list[Reason]:
    found: list[Reason] = []
    for cost in device.costs:
        if not cost.readable:
            has = f"device {device.name} with an unreadable node cost of {cost.resource or 'unknown resources'}"
            found.append(Reason("pool-invalid", has, "a mapping that can be computed", "correct the slice"))
        elif cost.capacity_key is not None and cost.capacity_key not in device.capacity:
            has = (
                f"device {device.name} whose {cost.resource} follows the capacity {cost.capacity_key} it does not have"
            )
            names = ", ".join(sorted(device.capacity)[:4])
            needs = f"one of its capacities ({names})" if names else "a capacity of that name"
            found.append(Reason("pool-invalid", has, needs, "names are compared literally; correct the slice"))
    return found + counter_reasons(device, sets)


def counter_reasons(device: Device, sets: Mapping[str, Mapping[str, Number | None]]) -> list[Reason]:
    """What ``device`` consumes of counter sets that its pool does not have; the API server looks at one slice only."""
    found: list[Reason] = []
    for consumption in device.counters:
        name = text(consumption.get("counterSet"))
        counters = sets.get(name)
        if counters is None:
            has = f"device {device.name} that consumes the unknown counter set {name}"
            found.append(Reason("pool-invalid", has, "a slice of the pool with these sharedCounters"))
            continue
        unknown = next((counter for counter in mapping(consumption.get("counters")) if counter not in counters), None)
        if unknown is not None:
            has = f"device {device.name} that consumes the counter {unknown} which set {name} lacks"
            found.append(Reason("pool-invalid", has, f"counters of {name}"))
    return found


class View(Struct, frozen=True):
    """The slices of a pool as a node sees them: ``kept`` of the highest generation there, ``older`` the rest,
    ``elsewhere`` what other nodes see.
    """

    kept: tuple[Slice, ...]
    older: tuple[Slice, ...]
    elsewhere: tuple[Slice, ...]


def view(snapshot: Snapshot, driver: str, pool: str, node: str | None) -> View:
    """The pool as seen from ``node`` (None: all of it)."""
    everything = snapshot.pools.get((driver, pool), ())
    if len(everything) == 1 and (node is None or slice_applies(everything[0], node, snapshot) is not False):
        return View(everything, (), ())
    near: list[Slice] = []
    far: list[Slice] = []
    for item in everything:
        # A node that is not known cannot be told from one that matches.
        seen = node is None or slice_applies(item, node, snapshot) is not False
        (near if seen else far).append(item)
    if not near:
        return View((), (), everything)
    newest = max(item.generation for item in near)
    kept = tuple(item for item in near if item.generation == newest)
    return View(kept, tuple(item for item in near if item.generation != newest), tuple(far))


def current(snapshot: Snapshot, driver: str, pool: str, node: str | None) -> Survey:
    """The devices of the pool's current generation as seen from ``node`` (None: from anywhere)."""
    return survey(view(snapshot, driver, pool, node).kept)
