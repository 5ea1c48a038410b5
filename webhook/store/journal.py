"""The journal: what was seen of the cluster, event by event, in a folder of segments that keep a bounded size and age.

Written in a thread of its own. Whoever tells it something never waits and never fails: what cannot be written is
counted, told once, and made good by having everything told again.
"""

from __future__ import annotations

import fcntl
import sqlite3
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TextIO

from webhook.kube.raw import Json
from webhook.kube.release import Release
from webhook.store.entries import EarlierError, Judged, Seen, Told, Whole, entries
from webhook.store.segment import BrokenSegmentError, Segment, number_of, remove, segments, size_of

MEBIBYTE: Final = 1024 * 1024
# What may wait to be written: about a hundred thousand small objects, or as many devices of slices.
WAITING: Final = 100_000
# Events of one transaction: each waits for the disk.
_BATCH: Final = 2_000
# Between tries where nothing can be written, seconds.
_PAUSES: Final = (0.2, 1.0, 5.0)


class JournalInUseError(Exception):
    """Another process writes to the folder."""


@dataclass(frozen=True, slots=True)
class Limits:
    """``segment`` and ``total`` in bytes, ``age`` of what is kept. A segment also ends after a tenth of ``age``. Each
    begins with what there is of every object: ``total`` should be several times that.
    """

    segment: int = 64 * MEBIBYTE
    total: int = 512 * MEBIBYTE
    age: timedelta = timedelta(days=7)


def limits(mebibytes: int, days: int) -> Limits:
    """The limits of a journal that takes ``mebibytes`` at most and is kept for ``days``."""
    total = mebibytes * MEBIBYTE
    return Limits(total // 8, total, timedelta(days=days))


class Journal:
    """Writes to the segments of ``folder``, which is made. ``tell`` writes a line of the log. Raises OSError for a
    folder that cannot be used, JournalInUseError.
    """

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], datetime],
        tell: Callable[..., object] = lambda *_, **__: None,
        limits: Limits | None = None,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._tell = tell
        self._limits = limits or Limits()
        self._lock_file = locked(folder)
        self._segment: Segment | None = None
        self._carried = 0
        self._release: Release | None = None
        self._items: deque[Told] = deque()
        self._weight = 0
        self._lost: Counter[str] = Counter()
        self._more = threading.Condition()
        self._accepted = self._written = self._singly = 0
        self._ending = False
        self._wanting = self._anew = False
        self._problem = ""
        self._failures: Counter[str] = Counter()
        self._count: Callable[[str, int], object] | None = None
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def put(self, obj: Json) -> None:
        """``obj`` was made or changed."""
        self._add(Seen(obj, self._clock(), gone=False))

    def gone(self, obj: Json) -> None:
        """The object of this kind, namespace and name is there no more; its resource version, where it has one, is that
        of its deletion.
        """
        self._add(Seen(obj, self._clock(), gone=True))

    def whole(self, kind: str, keys: Iterable[tuple[str, str]]) -> None:
        """There are these objects (namespace, name) of ``kind`` at this moment, and no others."""
        self._add(Whole(kind, frozenset(keys), self._clock()))

    def judged(self, release: Release) -> None:
        """Reviews are judged by ``release`` from now on."""
        self._add(Judged(release, self._clock()))

    def wants(self) -> bool:
        """Whether something was lost, so that everything has to be told once more; true once for each such time."""
        wanting, self._wanting = self._wanting, False
        return wanting

    def counted(self, count: Callable[[str, int], object]) -> None:
        """Have ``count`` called with kind and number of what could not be written, from the beginning on."""
        with self._more:
            self._count = count
            for kind, number in self._failures.items():
                count(kind, number)

    def check(self) -> tuple[str, bool, str]:
        """(check, whether it is fine, what to know) for ``/readyz``: a journal that fails stops nothing."""
        problem = self._problem
        return ("journal", True, f"ok, but {problem}" if problem else f"ok, {self._written} told")

    def flush(self, seconds: float = 10.0) -> bool:
        """Wait until what was told up to now is on the disk; whether it is."""
        with self._more:
            wanted = self._accepted
            return self._more.wait_for(lambda: self._written >= wanted, seconds)

    def close(self, seconds: float = 5.0) -> None:
        """Write what waits, for ``seconds`` at most, and end."""
        with self._more:
            self._ending = True
            self._more.notify_all()
        self._thread.join(seconds)
        if not self._thread.is_alive():
            self._lock_file.close()

    def _add(self, item: Told) -> None:
        with self._more:
            if self._items and self._weight + item.weight > WAITING:
                self._lost[item.kind] += 1
                return
            self._items.append(item)
            self._weight += item.weight
            self._accepted += 1
            self._more.notify_all()

    def _work(self) -> None:
        tries = 0
        batch: list[Told] = []
        while True:
            if not batch:
                batch = self._next()
            if not batch and not self._lost:
                break
            try:
                untidy = self._write(batch)
            except (sqlite3.Error, OSError, BrokenSegmentError) as error:
                self._failed(batch, error)
                if self._ending:
                    break
                with self._more:
                    self._more.wait_for(lambda: self._ending, _PAUSES[min(tries, len(_PAUSES) - 1)])
                tries += 1
                continue
            except EarlierError as error:
                if error.before:
                    # What comes before it belongs to the history that ends here.
                    self._put_back(batch[error.before :])
                    batch = batch[: error.before]
                else:
                    self._tell("warning", "journal begun anew", message=f"the cluster was put back: {error}")
                    self._anew = True
                continue
            except Exception as error:  # noqa: BLE001 - a mistake of ours about one object must not end the journal
                batch = self._singled(batch, error)
                continue
            if tries:
                self._tell("info", "journal written again")
            tries, self._problem = 0, untidy
            with self._more:
                self._written += len(batch)
                self._more.notify_all()
            batch = []
        if self._segment is not None:
            with suppress(sqlite3.Error):
                self._segment.close()

    def _next(self) -> list[Told]:
        with self._more:
            self._more.wait_for(lambda: self._items or self._lost or self._ending)
            size = 1 if self._singly else _BATCH
            batch = [self._items.popleft() for _ in range(min(size, len(self._items)))]
            self._weight -= sum(item.weight for item in batch)
            self._singly = max(self._singly - 1, 0)
            return batch

    def _put_back(self, items: list[Told]) -> None:
        """Have ``items`` come next."""
        with self._more:
            self._items.extendleft(reversed(items))
            self._weight += sum(item.weight for item in items)

    def _singled(self, batch: list[Told], error: Exception) -> list[Told]:
        """What to write next of a batch of which one item cannot be written: each alone, without that one."""
        if len(batch) > 1:
            self._put_back(batch)
            self._singly = len(batch)
            return []
        self._tell("error", "journal event not written", message=f"{type(error).__name__}: {error}"[:500])
        with self._more:
            self._lost += Counter(item.kind for item in batch)
            self._written += len(batch)
            self._more.notify_all()
        return []

    def _write(self, batch: list[Told]) -> str:
        """Write ``batch``; what keeps old segments from being deleted, empty where nothing does."""
        segment = self._open()
        with self._more:
            lost, self._lost = self._lost, Counter()
        try:
            made, release = entries(segment, batch, lost, self._release, self._clock())
            segment.append(made)
        except BaseException:
            with self._more:
                self._lost += lost
            raise
        self._release = release
        if lost:
            self._failing(lost)
            self._tell("warning", "journal events lost", **lost)
            self._wanting = True
        return self._tidy(segment)

    def _failed(self, batch: list[Told], error: Exception) -> None:
        self._failing(Counter({item.kind: 1 for item in batch}))
        if not self._problem:
            self._tell("error", "journal not written", message=str(error), folder=str(self._folder))
        self._problem = f"it cannot be written: {error}"
        if self._segment is not None:
            # Whether the last write is there is not known; what is there is seen when the segment is opened again.
            with suppress(sqlite3.Error):
                self._segment.close()
            self._segment = None

    def _failing(self, numbers: Counter[str]) -> None:
        with self._more:
            self._failures += numbers
            if self._count is not None:
                for kind, number in numbers.items():
                    self._count(kind, number)

    def _open(self) -> Segment:
        """The segment to write to: the last of the folder where that is whole and goes on, else a new one."""
        if self._segment is not None and not self._anew:
            return self._segment
        self._release = None
        known = segments(self._folder)
        if self._segment is None and known and not self._anew:
            try:
                self._segment = Segment(known[-1])
            except BrokenSegmentError as error:
                # It is left as it is, for whoever can make something of it.
                self._tell("error", "journal broken", message=str(error))
            else:
                return self._segment
        if self._segment is not None:
            self._segment.close()
        number = number_of(known[-1]) + 1 if known else 1
        self._segment = Segment.make(self._folder, number, self._clock(), None)
        self._carried, self._anew = 0, False
        if known:
            self._lost["journal"] += 1
        return self._segment

    def _tidy(self, segment: Segment) -> str:
        """Begin another segment where this one is large or old enough, and delete the oldest ones. What keeps one from
        being deleted is told, and given: what is written stays written.
        """
        limits, now = self._limits, self._clock()
        # What is carried over may be large itself: a segment is worth beginning only once as much came in, or, where
        # there is no room for that, at least a quarter of it.
        worth = max(limits.segment, min(2 * self._carried, limits.total), self._carried * 5 // 4)
        large = size_of(segment.path) > worth
        old = now - datetime.fromisoformat(segment.begun) > limits.age / 10
        if large or old:
            self._segment = Segment.make(self._folder, number_of(segment.path) + 1, now, segment)
            segment.close()
            self._carried = size_of(self._segment.path)
        *closed, current = segments(self._folder)
        sizes = {path: size_of(path) for path in closed}
        total = sum(sizes.values()) + size_of(current)
        problem = ""
        for path in closed:
            ended = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            if total > limits.total or datetime.now(UTC) - ended > limits.age:
                total -= sizes[path]
                try:
                    remove(path)
                except OSError as error:
                    problem = problem or f"{path.name} cannot be removed: {(error.strerror or str(error)).lower()}"
        if problem and problem != self._problem:
            self._tell("error", "journal not tidied", message=problem, folder=str(self._folder))
        return problem


def locked(folder: Path) -> TextIO:
    """The lock of ``folder``, which is made: as long as it is open, nobody else writes there. Raises OSError,
    JournalInUseError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = open(folder / "lock", "a")  # noqa: SIM115 - held until the end
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise JournalInUseError(f"{folder}: another process writes there; give each its own folder") from error
    return file
