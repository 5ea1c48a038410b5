"""The recording: decisions as lines of JSON, in a folder of files that keep a bounded size and age.

Written in a thread of its own, as the journal is. Whoever tells it of a decision never waits and never fails: what
cannot be written is counted, told once, and lost.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from webhook.admission.record import Record
from webhook.admission.recorded_line import Taken, line, take
from webhook.ledger.recorded import encoded
from webhook.policy.revision import Revision
from webhook.store.journal import MEBIBYTE, JournalInUseError, Limits, locked
from webhook.store.journal import limits as limits_of

# Decisions that may wait to be written, a few seconds of a busy server, and the bytes of their reviews. Each keeps the
# view alive that it was made on.
WAITING: Final = 2_000
WAITING_BYTES: Final = 64 * MEBIBYTE
# Beside a journal it fits the volume of the deployment.
LIMITS: Final = limits_of(mebibytes=256, days=7)
# Decisions of one write.
_BATCH: Final = 100
# Between tries where nothing can be written, seconds.
_PAUSES: Final = (0.2, 1.0, 5.0)
_NAME: Final = re.compile(r"recording-([0-9]{8,})\.json")
# A folder that nobody takes for reviews.
_POLICIES: Final = ".policies"
# For whoever runs the guard: users, names and places are in it.
_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class _Batch:
    """Lines to write, of how many decisions, and the policies by which they were made, by their hashes."""

    count: int
    lines: list[bytes]
    revisions: Mapping[str, Revision]


class Recording:
    """Writes to files of ``folder``, which is made. ``wanted`` says whether a decision is recorded, ``serving`` are the
    policies at present, as they are written, and ``tell`` writes a line of the log. Raises OSError for a folder that
    cannot be used, JournalInUseError.
    """

    def __init__(
        self,
        folder: Path,
        wanted: Callable[[Record], bool],
        serving: Callable[[], Revision],
        tell: Callable[..., object] = lambda *_, **__: None,
        limits: Limits | None = None,
    ) -> None:
        self._folder = folder
        self._wanted = wanted
        self._serving = serving
        self._tell = tell
        self._limits = limits or LIMITS
        self._lock_file = locked(folder)
        self._key = secrets.token_bytes(32)
        self._file: int | None = None
        self._size = 0
        self._begun = 0.0
        self._kept: set[str] = set()
        self._items: deque[tuple[Taken, Revision]] = deque()
        self._waiting = self._lost = self._failures = 0
        self._more = threading.Condition()
        self._accepted = self._written = 0
        self._ending = False
        self._problem = ""
        self._count: Callable[[int], object] | None = None
        self._thread = threading.Thread(target=self._work, name="recording", daemon=True)
        self._thread.start()

    def record(self, record: Record) -> None:
        """Take in a decision, where it is to be recorded."""
        if not self._wanted(record):
            return
        with self._more:
            size = len(record.request.sent)
            if self._items and (len(self._items) >= WAITING or self._waiting + size > WAITING_BYTES):
                self._lost += 1
                return
            self._items.append((take(record), self._serving()))
            self._waiting += size
            self._accepted += 1
            self._more.notify_all()

    def counted(self, count: Callable[[int], object]) -> None:
        """Have ``count`` called with how many decisions were lost and tries failed, from the beginning on."""
        with self._more:
            self._count = count
            if self._failures:
                count(self._failures)

    def check(self) -> tuple[str, bool, str]:
        """(check, whether it is fine, what to know) for ``/readyz``: a recording that fails stops nothing."""
        problem = self._problem
        return ("recording", True, f"ok, but {problem}" if problem else f"ok, {self._written} decisions told")

    def flush(self, seconds: float = 10.0) -> bool:
        """Wait until what was told up to now is written; whether it is."""
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

    def _work(self) -> None:
        tries = 0
        batch = _Batch(0, [], {})
        while True:
            if not batch.lines:
                batch = self._next()
                if not batch.lines and self._ended():
                    break
            try:
                self._write(batch)
            except (OSError, JournalInUseError) as error:
                self._failed(error)
                with self._more:
                    if self._ending:
                        self._failing(batch.count + len(self._items))
                        break
                    self._more.wait_for(lambda: self._ending, _PAUSES[min(tries, len(_PAUSES) - 1)])
                tries += 1
                continue
            if tries:
                self._tell("info", "recording written again")
            tries = 0
            self._tidy()
            with self._more:
                self._written += batch.count
                self._more.notify_all()
            batch = _Batch(0, [], {})
        self._shut()

    def _ended(self) -> bool:
        with self._more:
            return self._ending and not self._items and not self._lost

    def _next(self) -> _Batch:
        """The next lines; a decision that cannot be told is counted as lost."""
        with self._more:
            self._more.wait_for(lambda: self._items or self._lost or self._ending)
            taken = [self._items.popleft() for _ in range(min(_BATCH, len(self._items)))]
            self._waiting -= sum(len(each.record.request.sent) for each, _ in taken)
            lost, self._lost = self._lost, 0
        if lost:
            self._tell("warning", "decisions not recorded", count=lost)
        lines = []
        for each, _ in taken:
            try:
                lines.append(encoded(line(each, self._key)) + b"\n")
            except Exception as error:  # noqa: BLE001 - a mistake of ours about one decision must not end the recording
                lost += 1
                self._tell("error", "decision not recorded", message=f"{type(error).__name__}: {error}"[:500])
        with self._more:
            self._failing(lost)
        return _Batch(len(taken), lines, {revision.hash: revision for _, revision in taken})

    def _failing(self, number: int) -> None:
        """Count what was lost, or failed; to be called with the lock."""
        self._failures += number
        if self._count is not None and number:
            self._count(number)

    def _failed(self, error: OSError | JournalInUseError) -> None:
        reason = _reason(error)
        problem = f"it cannot be written: {reason}"
        if self._problem != problem:
            self._tell("error", "recording not written", message=reason, folder=str(self._folder))
        self._problem = problem
        with self._more:
            self._failing(1)
        if self._file is not None:
            # The lines of a write that was cut off are written again, whole.
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
        self._shut()

    def _write(self, batch: _Batch) -> None:
        if not batch.lines:
            return
        data = b"".join(batch.lines)
        if self._file is None:
            self._open()
        assert self._file is not None
        for revision in batch.revisions.values():
            self._keep(revision)
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self._size += len(data)

    def _open(self) -> None:
        """Begin another file: the last one may end within a line."""
        if not self._folder.exists():
            # Somebody has removed it, and our lock with it.
            self._lock_file.close()
            self._lock_file = locked(self._folder)
        known = recordings(self._folder)
        number = _number(known[-1]) + 1 if known else 1
        path = self._folder / f"recording-{number:08d}.json"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, _MODE)
        self._size, self._begun = 0, time.time()
        self._kept.clear()

    def _keep(self, revision: Revision) -> None:
        """Write the policies of a revision down, once for each file, so that they are no older than it."""
        if revision.hash in self._kept:
            return
        path = policies_of(self._folder, revision.hash)
        path.parent.mkdir(exist_ok=True)
        making = path.with_suffix(".making")
        making.touch(_MODE)
        documents = [compiled.policy.document for compiled in revision.policies]
        making.write_bytes(encoded({"apiVersion": "v1", "kind": "List", "items": documents}))
        making.rename(path)
        self._kept.add(revision.hash)

    def _shut(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None

    def _tidy(self) -> None:
        """End the file where it is large or old enough, and delete the oldest ones. What keeps that from being done is
        told: what is written stays written.
        """
        if self._file is None:
            return
        problem = ""
        try:
            for path in self._needless(self._file):
                try:
                    path.unlink()
                except OSError as error:
                    problem = problem or f"{path.name} cannot be removed: {_reason(error)}"
        except OSError as error:
            # Files or folders are removed under our hands: whatever is still there, another one is begun.
            problem = f"its files cannot be looked at: {_reason(error)}"
            self._shut()
        if problem and problem != self._problem:
            self._tell("error", "recording not tidied", message=problem, folder=str(self._folder))
        self._problem = problem

    def _needless(self, file: int) -> Iterator[Path]:
        """What is to be removed. Raises OSError."""
        limits, now = self._limits, time.time()
        removed = not os.fstat(file).st_nlink
        if removed:
            self._tell("error", "recording lost", message="its file was removed", folder=str(self._folder))
            with self._more:
                self._failing(1)
        if removed or self._size > limits.segment or now - self._begun > limits.age.total_seconds() / 10:
            self._shut()
        found = [(path, path.stat()) for path in recordings(self._folder)]
        total = sum(status.st_size for _, status in found)
        for path in (self._folder / _POLICIES).iterdir():
            if now - path.stat().st_mtime > 2 * limits.age.total_seconds():
                yield path
        for path, status in found[:-1]:
            if total > limits.total or now - status.st_mtime > limits.age.total_seconds():
                yield path
                total -= status.st_size


def _reason(error: OSError | JournalInUseError) -> str:
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)).lower()


def policies_of(folder: Path, revision: str) -> Path:
    """The file that has the policies of ``revision``, a hash, where the recording in ``folder`` was made by them."""
    return folder / _POLICIES / f"{revision}.json"


def recordings(folder: Path) -> list[Path]:
    """The files of the recording in ``folder``, in order. Raises OSError."""
    return sorted((path for path in folder.iterdir() if _NAME.fullmatch(path.name)), key=_number)


def _number(path: Path) -> int:
    return int(path.stem.partition("-")[2])
