"""The figures of the ledger: replay, journal, and what charges take of memory. ``python -m tests.bench.ledger``.

Nothing here passes or fails; the goals stand beside the figures.
"""

from __future__ import annotations

import gc
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.bench import fleet
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.ledger.book import Book
from webhook.ledger.booking import advance
from webhook.ledger.events import Event, event_of
from webhook.ledger.fold import Ledger, apply, fold
from webhook.ledger.recorded import recorded
from webhook.store.history import read_history
from webhook.store.journal import Journal

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
NODES, LIVES = 300, 40
CROWD, CLAIMS = 500, 8
Json = dict[str, Any]


def row(what: str, figure: str, goal: str = "") -> None:
    print(f"{what:<58} {figure:>26}  {goal}", flush=True)  # noqa: T201


@contextmanager
def rate(what: str, count: int, goal: str = "") -> Iterator[None]:
    """Print how many a second the body does; of the processor's time too, for machines that have other things to do."""
    begun, spent = time.perf_counter(), time.process_time()
    yield
    wall, busy = time.perf_counter() - begun, time.process_time() - spent
    row(what, f"{count / wall:,.0f} a second", goal)
    row("  of processor time", f"{count / busy:,.0f} a second")


def life(number: int, on: int) -> Iterator[tuple[Json, bool]]:
    """A claim and its pod from their creation to their end, as (object, whether it is gone)."""
    waiting, allocated = fleet.claim(number), fleet.claim(number, on)
    allocated["status"]["allocation"]["allocationTimestamp"] = (
        f"2026-11-29T10:{number % 3600 // 60:02d}:{number % 60:02d}Z"
    )
    pending, bound = fleet.pod(number, f"claim-{number}"), fleet.pod(number, f"claim-{number}")
    bound["spec"]["nodeName"] = fleet.name(on)
    running = {**bound, "status": {"phase": "Running", "startTime": fleet.CREATED}}
    yield from ((each, False) for each in (waiting, pending, allocated, bound, running))
    yield from ((running, True), (waiting, False), (waiting, True))


def objects() -> Iterator[tuple[Json, bool]]:
    """What happens in a fleet, one object after the other: first the nodes, then the lives of many claims at once."""
    yield from ((each, False) for each in (*fleet.classes(), fleet.rollout()))
    for number in range(NODES):
        yield from ((each, False) for each in (fleet.node(number), *fleet.slices(number)))
    for turn in range(LIVES):
        lives = [life(turn * NODES + number, number) for number in range(NODES)]
        while lives:
            for each in list(lives):
                found = next(each, None)
                if found is None:
                    lives.remove(each)
                else:
                    yield found


def versioned() -> Iterator[tuple[Json, bool]]:
    """The same with ascending versions, as an API server gives them, and no more than a journal keeps."""
    for number, (obj, gone) in enumerate(objects(), 1):
        kept = recorded(obj)
        assert kept is not None
        yield {**kept, "metadata": {**kept["metadata"], "resourceVersion": str(number)}}, gone


def events() -> list[Event]:
    return [event_of(obj, NOW + timedelta(milliseconds=number), gone) for number, (obj, gone) in enumerate(versioned())]


def replaying() -> None:
    """Events a second, folded at once and one by one."""
    history = events()
    gc.collect()
    gc.freeze()
    with rate(f"replay of {len(history):,} events on {NODES} nodes, at once", len(history), "100,000"):
        fold(history, Release(36))
    some = history[: len(history) // 8]
    moving = Ledger(Snapshot(Release(36)))
    with rate(f"{len(some):,} events, a ledger after each", len(some)):
        for event in some:
            moving, _ = apply(moving, event)


def journaling() -> None:
    """Events a second into the journal and out of it, and what they take on disk."""
    told = list(versioned())
    with tempfile.TemporaryDirectory(prefix="allocguard-bench-") as name:
        journal = Journal(Path(name), lambda: NOW)
        with rate(f"journal: {len(told):,} events written", len(told)):
            for number, (obj, gone) in enumerate(told):
                (journal.gone if gone else journal.put)(obj)
                if number % 10_000 == 0:  # what comes faster than it can be written would be dropped and counted
                    journal.flush(60)
            journal.flush(60)
        journal.close()
        size = sum(path.stat().st_size for path in Path(name).iterdir())
        with rate("journal: read again, every digest checked", len(told)):
            found = read_history(Path(name))
        row("  on disk", f"{size / (len(found.begins) + len(found.events)):,.0f} bytes an event")


def memory() -> None:
    """What 1,000 charges take: as they are booked, and with the pages of the book that show them."""
    made: list[Json] = []
    for number in range(CROWD):
        made += [fleet.node(number), *fleet.slices(number)]
        for each in range(CLAIMS):
            made.append(fleet.claim(number * CLAIMS + each, number))
    snapshot = build(made, Release(36))
    names = [fleet.name(number) for number in range(CROWD)]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    ledgers = [advance(None, snapshot, node) for node in names]
    gc.collect()
    booked = tracemalloc.get_traced_memory()[0] - before
    count = sum(len(ledger.charges) for ledger in ledgers)
    for ledger in ledgers:
        snapshot = snapshot.with_ledger(ledger)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    book = Book()
    for node in names:
        book.page(snapshot, node)
    gc.collect()
    pages = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    row(f"memory of 1,000 charges (of {count:,} on {CROWD} nodes), booked", f"{booked / count:,.0f} KB")
    row("  and in the pages that show them, accounts included", f"{pages / count:,.0f} KB")


def main() -> None:
    replaying()
    journaling()
    memory()


if __name__ == "__main__":
    main()
