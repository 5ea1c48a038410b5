"""The figures of a DriverRollout's status, taken from one snapshot for all drivers at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from heapq import nlargest
from itertools import islice
from math import ceil

from msgspec import Struct

from webhook.facts.coverage import Coverage, coverage, driver_pools, held_pools, phases
from webhook.facts.drivers import claim_drivers
from webhook.facts.pool_survey import Reason
from webhook.facts.pools import Phase
from webhook.facts.times import instant
from webhook.facts.waits import waited, waiting_for
from webhook.kube.claims import Claim
from webhook.kube.rollout import DriverRollout
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.by_driver import disagreement

# Claims whose wait is remembered for a driver: of that many the hundredth part is not one claim's accident.
MOST_WAITS = 1000
# Pools that are named as held.
_NAMED = 20


class Figures(Struct, frozen=True):
    """What one snapshot says of a driver. ``held`` are some of ``held_count`` pools; ``waiting`` are the seconds that
    each waiting claim waits already, ``bound`` the claims that hold devices.
    """

    coverage: Coverage
    phases: Counter[Phase]
    held: tuple[tuple[str, Reason], ...]
    held_count: int
    waiting: tuple[float, ...]
    bound: tuple[Claim, ...]
    digests: tuple[str, ...]
    differences: int
    overcommitted: int


def figures(snapshot: Snapshot, book: Book, drivers: Collection[str], now: datetime) -> dict[str, Figures]:
    """The figures of those of ``drivers`` that have a rollout. Looks at every node and every claim."""
    rollouts = {driver: snapshot.rollouts[driver] for driver in drivers if driver in snapshot.rollouts}
    bound, waiting = _claims(snapshot, rollouts, now)
    disagreeing = disagreement(snapshot, book)
    found: dict[str, Figures] = {}
    for driver, rollout in rollouts.items():
        pools = {*driver_pools(driver, snapshot), *_gone(driver, bound[driver])}
        held = list(held_pools(rollout, snapshot, now))
        mapped = (snapshot.slices[name] for name in snapshot.mapped_slices.get(driver, ()))
        found[driver] = Figures(
            coverage=coverage(rollout, snapshot, now),
            phases=phases(driver, sorted(pools), snapshot, now),
            held=tuple(islice(held, _NAMED)),
            held_count=len(held),
            waiting=tuple(waiting[driver]),
            bound=tuple(bound[driver]),
            digests=tuple(sorted(frozenset().union(*(item.digests for item in mapped)))),
            differences=disagreeing.differences[driver],
            overcommitted=disagreeing.overcommitted[driver],
        )
    return found


def _claims(
    snapshot: Snapshot, rollouts: Mapping[str, DriverRollout], now: datetime
) -> tuple[dict[str, list[Claim]], dict[str, list[float]]]:
    """(claims that hold devices, seconds that claims wait) by driver."""
    bound: dict[str, list[Claim]] = {driver: [] for driver in rollouts}
    waiting: dict[str, list[float]] = {driver: [] for driver in rollouts}
    for claim in snapshot.claims.values():
        if claim.allocation is not None:
            for driver in {result.driver for result in claim.allocation.results} & rollouts.keys():
                bound[driver].append(claim)
        elif (seconds := waiting_for(claim, snapshot, now)) is not None:
            for driver in {*claim_drivers(claim, snapshot)} & rollouts.keys():
                waiting[driver].append(seconds)
    return bound, waiting


def _gone(driver: str, claims: Iterable[Claim]) -> set[str]:
    """The pools that claims hold devices of, slices or none."""
    results = (result for claim in claims if claim.allocation is not None for result in claim.allocation.results)
    return {result.pool for result in results if result.driver == driver}


class Waits:
    """How long the newest claims of one driver waited, those that have gone since too."""

    def __init__(self) -> None:
        # By claim and allocation: when it was made, and the seconds until then.
        self._known: dict[tuple[str, str], tuple[str, float]] = {}

    def see(self, claims: Iterable[Claim], snapshot: Snapshot) -> None:
        """Take in ``claims``, all that hold devices of the driver at the moment."""
        for claim in nlargest(MOST_WAITS, claims, key=_made):
            assert claim.allocation is not None
            name = (claim.id, claim.allocation.identity)
            seconds = None if name in self._known else waited(claim, snapshot)
            if seconds is not None:
                self._known[name] = (claim.allocation.timestamp, seconds)
        if len(self._known) > MOST_WAITS:
            self._known = dict(nlargest(MOST_WAITS, self._known.items(), key=lambda item: item[1][0]))

    def told(self, waiting: Iterable[float], since: datetime) -> tuple[int, int | None]:
        """(of how many claims, whole seconds that 99 of 100 of them waited at most): those allocated from ``since`` on,
        and those that wait already for as long as ``waiting`` says. None of no claim.
        """
        rows = [(instant(made), seconds) for made, seconds in self._known.values()]
        waits = sorted([*(seconds for made, seconds in rows if made is not None and made >= since), *waiting])
        if not waits:
            return 0, None
        return len(waits), ceil(waits[ceil(len(waits) * 99 / 100) - 1])


def _made(claim: Claim) -> str:
    return claim.allocation.timestamp if claim.allocation is not None else ""
