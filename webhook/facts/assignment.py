"""A bounded search for devices that serve all requests of claims together and fit their node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from webhook.facts.account import Amounts, bookable, rounded
from webhook.facts.constraints import Values, attribute_values
from webhook.facts.node_offers import Identity, Offer
from webhook.facts.zones import counters_of
from webhook.kube.claims import Constraint
from webhook.kube.quantity import Number

# A proof that nothing fits can take exponential time; real claims need a few dozen steps.
MOST_STEPS = 2000

Pick = tuple["Choice", Offer]
CounterKey = tuple[str, str, str, str]
InZones = Mapping[tuple[int, str], Number]


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to serve a request: ``count`` of the offers, or all of them (``count`` None). ``names`` are what the
    constraints of claim number ``claim`` may call the request.
    """

    claim: int
    names: tuple[str, ...]
    offers: tuple[Offer, ...]
    count: int | None


@dataclass(slots=True)
class Room:
    """What limits an assignment: what each resource has free on the node and in its zones (absent: not known), the
    counters left, the shared capacities left, and the last word on the whole sum: what it costs, the overhead of each
    pod and of each container, and what it costs in zones. ``drawn`` are devices that others share already: their
    counters are paid for.
    """

    free: Mapping[str, Number]
    zones: InZones
    counters: Mapping[CounterKey, Number]
    drawn: Set[Identity]
    shared: Mapping[tuple[Identity, str], Number]
    accepts: Callable[[Amounts, Amounts, Amounts, InZones], bool]


@dataclass(slots=True)
class Outcome:
    """``fits`` is None when the search gave up; ``sure`` is false where an unsure offer was needed; ``blocked`` tells
    what stood in the way: ``node``, ``zone``, ``constraint``, ``device``; ``short`` the least that was too much for a
    resource of a zone. ``picks`` are the devices of an assignment that fits, each with the choice that it serves.
    """

    fits: bool | None
    sure: bool = True
    blocked: frozenset[str] = frozenset()
    short: Mapping[tuple[int, str], Number] = field(default_factory=dict)
    picks: tuple[Pick, ...] = ()


def assign(groups: list[list[Choice]], constraints: list[tuple[int, Constraint]], room: Room) -> Outcome:
    """Whether one choice of every group can be served at once, within ``room`` and the constraints."""
    search = _Search(groups, constraints, room)
    found = search.group(0)
    if search.steps > MOST_STEPS:
        return Outcome(None, False, frozenset(search.blocked))
    return Outcome(found, search.unsure == 0, frozenset(search.blocked), search.short, tuple(search.picks))


class _Search:
    """Depth first over the groups; devices of equal worth are tried once."""

    def __init__(self, groups: list[list[Choice]], constraints: list[tuple[int, Constraint]], room: Room) -> None:
        self.groups = groups
        self.constraints = constraints
        self.room = room
        self.steps = 0
        self.unsure = 0
        self.blocked: set[str] = set()
        self.short: dict[tuple[int, str], Number] = {}
        self.picks: list[Pick] = []
        self.taken: dict[Identity, int] = {}
        self.shares: dict[tuple[Identity, str], Number] = {}
        self.counters: dict[CounterKey, Number] = {}
        self.amounts: dict[str, Number] = {}
        self.zones: dict[tuple[int, str], Number] = {}
        self.per_pod: dict[str, Number] = {}
        self.per_container: dict[str, Number] = {}
        self.values: list[list[Values]] = [[] for _ in constraints]
        # Devices of equal worth stand in for each other only where the same requests may get them.
        self.wanted: dict[Identity, list[int]] = {}
        for number, choice in enumerate(choice for group in groups for choice in group):
            for offer in choice.offers:
                self.wanted.setdefault(offer.identity, []).append(number)

    def group(self, index: int) -> bool:
        """Whether the groups from ``index`` on can be served with what is left."""
        if index == len(self.groups):
            if self.room.accepts(self.amounts, self.per_pod, self.per_container, self.zones):
                return True
            self.blocked.add("node")
            return False
        return any(
            self._all(index, choice, 0) if choice.count is None else self._pick(index, choice, choice.count, 0)
            for choice in self.groups[index]
        )

    def _all(self, index: int, choice: Choice, position: int) -> bool:
        if position == len(choice.offers):
            return self.group(index + 1)
        if not self._take(choice, choice.offers[position]):
            return False
        if self._all(index, choice, position + 1):
            return True
        self._drop(choice, choice.offers[position])
        return False

    def _pick(self, index: int, choice: Choice, missing: int, start: int) -> bool:
        self.steps += 1
        if self.steps > MOST_STEPS:
            return True
        if not missing:
            return self.group(index + 1)
        failed: set[object] = set()
        for position in range(start, len(choice.offers)):
            offer = choice.offers[position]
            values = (self._values(number, choice, offer) for number in range(len(self.constraints)))
            worth = (offer.signature, *self.wanted[offer.identity], *values)
            if offer.consumed is None and worth in failed:
                continue
            if not self._take(choice, offer):
                continue
            # A shared device may serve the same request again.
            if self._pick(index, choice, missing - 1, position + (offer.consumed is None)):
                return True
            self._drop(choice, offer)
            failed.add(worth)
        return False

    def _values(self, number: int, choice: Choice, offer: Offer) -> Values | bool | None:
        claim, constraint = self.constraints[number]
        name = constraint.match_attribute or constraint.distinct_attribute
        covered = not constraint.requests or any(request in constraint.requests for request in choice.names)
        if claim != choice.claim or not name or not covered:
            return False
        return attribute_values(offer.device, offer.slice.driver, name)

    def _take(self, choice: Choice, offer: Offer) -> bool:
        reason = self._obstacle(choice, offer)
        if reason:
            self.blocked.add(reason)
            return False
        self.picks.append((choice, offer))
        self._count(choice, offer, 1)
        for number in range(len(self.constraints)):
            values = self._values(number, choice, offer)
            if isinstance(values, frozenset):
                held = self.values[number]
                match = bool(self.constraints[number][1].match_attribute)
                held.append(values if not held else held[-1] & values if match else held[-1] | values)
        return True

    def _drop(self, choice: Choice, offer: Offer) -> None:
        self.picks.pop()
        self._count(choice, offer, -1)
        for number in range(len(self.constraints)):
            if isinstance(self._values(number, choice, offer), frozenset):
                self.values[number].pop()

    def _count(self, choice: Choice, offer: Offer, sign: int) -> None:
        self.unsure += sign * (not offer.sure)
        first = self.taken.get(offer.identity, 0) == (0 if sign > 0 else 1)
        self.taken[offer.identity] = self.taken.get(offer.identity, 0) + sign
        if not offer.admin:
            for name, amount in (offer.consumed or {}).items():
                key = (offer.identity, name)
                self.shares[key] = self.shares.get(key, 0) + sign * amount
            if first and offer.identity not in self.room.drawn:
                for counter, amount in drawn(offer):
                    self.counters[counter] = self.counters.get(counter, 0) + sign * amount
        for resource, amount in offer.amounts.items():
            self.amounts[resource] = self.amounts.get(resource, 0) + sign * amount
            if offer.zone is not None:
                zone = (offer.zone, resource)
                self.zones[zone] = self.zones.get(zone, 0) + sign * amount
        for total, part in ((self.per_pod, offer.per_pod), (self.per_container, offer.per_container)):
            for resource, amount in part.items():
                total[resource] = total.get(resource, 0) + sign * amount

    def _obstacle(self, choice: Choice, offer: Offer) -> str:
        if offer.consumed is None and self.taken.get(offer.identity):
            return "device"
        if not offer.admin and (self._shares_short(offer) or self._counters_short(offer)):
            return "device"
        for number, (_, constraint) in enumerate(self.constraints):
            values = self._values(number, choice, offer)
            if values is None:
                return "constraint"
            if isinstance(values, frozenset) and self.values[number]:
                common = self.values[number][-1] & values
                if bool(common) is not bool(constraint.match_attribute):
                    return "constraint"
        for resource, amount in offer.amounts.items():
            total = self.amounts.get(resource, 0) + amount
            if bookable(resource) and rounded(resource, total) > self.room.free.get(resource, 0):
                return "node"
            if offer.zone is not None:
                zone = (offer.zone, resource)
                limit = self.room.zones.get(zone)
                total = rounded(resource, self.zones.get(zone, 0) + amount)
                if limit is not None and total > limit:
                    self.short[zone] = min(self.short.get(zone, total), total)
                    return "zone"
        return ""

    def _shares_short(self, offer: Offer) -> bool:
        return any(
            self.shares.get((offer.identity, name), 0) + amount > self.room.shared.get((offer.identity, name), amount)
            for name, amount in (offer.consumed or {}).items()
        )

    def _counters_short(self, offer: Offer) -> bool:
        if self.taken.get(offer.identity) or offer.identity in self.room.drawn:
            return False
        return any(
            self.counters.get(counter, 0) + amount > self.room.counters.get(counter, 0)
            for counter, amount in drawn(offer)
        )


def drawn(offer: Offer) -> Iterator[tuple[CounterKey, Number]]:
    """What one allocation of a device draws of its pool's counters; a device draws once, however many share it."""
    for (counter_set, name), amount in counters_of(offer.device).items():
        yield (offer.slice.driver, offer.slice.pool, counter_set, name), amount
