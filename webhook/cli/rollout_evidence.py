"""What speaks for or against a promotion: taken from the cluster as it is, from what the guard wrote into the status,
and from an export of the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import structs

from webhook.controllers.rollout_figures import Waits, figures
from webhook.facts.promotion import Evidence, recorded
from webhook.facts.times import instant, stamp
from webhook.kube.raw import Json, mapping, text
from webhook.kube.rollout import DriverRollout
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.by_driver import disagreement
from webhook.ledger.events import Event, event_of
from webhook.ledger.fold import apply, fold
from webhook.ledger.replay import replay
from webhook.ledger.touched import touched

if TYPE_CHECKING:
    from webhook.ledger.export import Export

# How long what happens belongs together: a claim and the slice it is allocated from come one after the other.
_MOMENT = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Day:
    """The most differences that there were at once on one day (UTC)."""

    day: date
    differences: int


def of_status(rollout: DriverRollout, document: Json, export: Export, snapshot: Snapshot, now: datetime) -> Evidence:
    """The evidence of the driver's status (``document`` is raw), with what the cluster says now, which ``export`` has.

    Figures of another stage than the present one do not count; drills do.
    """
    status, stage = rollout.status, mapping(document.get("status")).get("stage")
    seen = recorded(status)
    if stage is not None and stage != rollout.stage:
        seen = Evidence(drills=status.drills)
    here = figures(snapshot, Book(), [rollout.driver], now)[rollout.driver]
    return structs.replace(
        seen,
        quiet_since="" if here.differences else seen.quiet_since,
        replays_equal=not replay(export).differences,
        overcommitted=here.overcommitted,
    )


def of_history(rollout: DriverRollout, export: Export, snapshot: Snapshot) -> tuple[Evidence, tuple[Day, ...]]:
    """The evidence of the history in ``export``, and its days; the drills and what was refused are those of the status.
    A node counts as overcommitted that was so at some time in it, or is now.

    What was lost of a history was not seen: it begins after the last gap.
    """
    driver, seen = rollout.driver, _Seen(rollout.driver, export)
    gaps = [moment for gap in export.gaps if (moment := instant(str(gap.get("observed")))) is not None]
    begins = max((export.begins, *gaps))
    quiet: datetime | None = begins
    days: dict[date, int] = {}
    over: set[str] = set()
    for moment, standing in seen.moments():
        quiet = None if standing else moment if quiet is None else quiet
        day = moment.astimezone(UTC).date()
        days[day] = max(days.get(day, 0), standing)
        # What stood when it begins is in it, what was over by then is not.
        over = {*seen.overcommitted} | (over if moment > begins else set())
    book = Book()
    over |= {node for node in snapshot.nodes if disagreement(snapshot, book, [node]).overcommitted[driver]}
    known = structs.replace(seen.snapshot, rollouts=seen.snapshot.rollouts.set(driver, rollout))
    waiting = figures(known, Book(), [driver], export.made)[driver].waiting
    count, p99 = seen.waits.told(waiting, begins)
    status = recorded(rollout.status)
    evidence = structs.replace(
        status,
        quiet_since="" if quiet is None else stamp(max(quiet, begins)),
        observed_since=stamp(begins),
        observed_until=stamp(export.made),
        pending_p99=p99,
        pending_count=count,
        replays_equal=not replay(export).differences,
        overcommitted=len(over),
    )
    return evidence, tuple(Day(day, days[day]) for day in sorted(days))


class _Seen:
    """A history as it went on, as far as it is about ``driver``."""

    def __init__(self, driver: str, export: Export) -> None:
        self._driver, self._export = driver, export
        self._ledger = fold([event_of(obj, export.begins) for obj in export.objects], export.release)
        self._book = Book()
        self._standing: dict[str, int] = {}
        self.overcommitted: set[str] = set()
        self._look(self.snapshot.nodes)
        self.waits = Waits()

    @property
    def snapshot(self) -> Snapshot:
        """What there is by now."""
        return self._ledger.snapshot

    def moments(self) -> Iterator[tuple[datetime, int]]:
        """How many differences there were whenever events had come to rest, at each midnight (UTC) and at both ends."""
        before = since = self._export.begins
        yield before, self._differences
        unseen: set[str] = set()
        for event in self._export.events:
            if unseen and event.observed - since >= _MOMENT:
                self._look(unseen)
                unseen.clear()
                yield before, self._differences
            yield from ((midnight, self._differences) for midnight in _midnights(before, event.observed))
            since = since if unseen else event.observed
            before = max(before, event.observed)
            unseen |= self._take(event)
        self._look(unseen)
        yield before, self._differences
        yield from ((midnight, self._differences) for midnight in _midnights(before, self._export.made))
        yield max(before, self._export.made), disagreement(self.snapshot, self._book).differences[self._driver]

    @property
    def _differences(self) -> int:
        return sum(self._standing.values())

    def _look(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            found = disagreement(self.snapshot, self._book, [node])
            self._standing[node] = found.differences[self._driver]
            (self.overcommitted.add if found.overcommitted[self._driver] else self.overcommitted.discard)(node)

    def _take(self, event: Event) -> set[str]:
        """Go on to ``event``; the nodes whose accounts may be other ones then."""
        before, (self._ledger, _) = self._ledger, apply(self._ledger, event)
        claim = self.snapshot.claims.get((event.namespace, event.name)) if event.kind == "ResourceClaim" else None
        results = claim.allocation.results if claim is not None and claim.allocation is not None else ()
        if claim is not None and any(result.driver == self._driver for result in results):
            self.waits.see([claim], self.snapshot)
        pools = self._ledger.formulas.pools.get(event.name, ()) if event.kind == "ResourceSlice" else ()
        nodes = touched(event, before.snapshot, self.snapshot, self._ledger.published, self._ledger.named, pools)
        spec = mapping(mapping(event.object).get("spec"))
        nodes.add(text(spec.get("nodeName")) if event.kind in ("Pod", "ResourceSlice") else event.name)
        return {node for node in nodes if node in self._standing or node in self.snapshot.nodes}


def _midnights(begin: datetime, end: datetime) -> Iterator[datetime]:
    day = begin.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    while day <= end:
        yield day
        day += timedelta(days=1)
