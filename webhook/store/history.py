"""The journal, read: what there was when it begins, and every event since; beside the process that writes it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from webhook.kube.raw import Json, mapping, text
from webhook.kube.release import SUPPORTED, Release
from webhook.ledger.events import Event, read_event
from webhook.store.segment import BrokenSegmentError, Row, Segment, segments

# The writer may delete the oldest segment while it is being read.
_TRIES = 3


class UnreadableJournalError(Exception):
    """A folder without a journal, or with one that is not what was written."""


@dataclass(slots=True)
class History:
    """``begins`` are the objects that there were at first, as events, ``events`` what happened since; ``release`` is
    the one judged by last. ``gaps`` says when events were lost, and how many; ``digest`` is over all rows.
    """

    begins: list[Event] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    release: Release = field(default_factory=Release)
    gaps: list[Json] = field(default_factory=list)
    digest: str = ""
    segments: int = 0


def read_history(folder: Path) -> History:
    """The journal in ``folder``, every row checked against its digest. Raises UnreadableJournalError."""
    for number in range(_TRIES):
        try:
            return _read(folder)
        except FileNotFoundError:
            if number == _TRIES - 1 or not folder.is_dir():
                raise UnreadableJournalError(
                    f"{folder}: has no journal; name the folder of `serve --journal`"
                ) from None
        except BrokenSegmentError as error:
            raise UnreadableJournalError(str(error)) from error
        except (sqlite3.Error, OSError) as error:
            reason = (getattr(error, "strerror", None) or str(error)).lower()
            raise UnreadableJournalError(f"{folder}: cannot be read: {reason}; check the path") from error
    raise AssertionError


def _read(folder: Path) -> History:
    found = History()
    digest = b""
    for path in _since_whole(folder):
        with _opened(path) as segment:
            if found.segments and segment.previous != digest:
                raise BrokenSegmentError(f"{path}: does not go on where the one before ends; restore what is missing")
            for row in segment.rows():
                _take(found, row, first=not found.segments, place=f"{path}: row {row.seq}")
            digest = segment.digest
            found.segments += 1
    found.digest = f"sha256:{digest.hex()}"
    return found


def _since_whole(folder: Path) -> list[Path]:
    """The segments that can be read one after the other: those from the last on that begins with nothing, be it the
    first of all or one that was begun because the one before could not be read any more.
    """
    paths = segments(folder)
    if not paths:
        raise FileNotFoundError(folder)
    for index in reversed(range(len(paths))):
        with _opened(paths[index]) as segment:
            if not segment.previous:
                return paths[index:]
    return paths


@contextmanager
def _opened(path: Path) -> Iterator[Segment]:
    segment = Segment(path, reading=True)
    try:
        yield segment
    finally:
        segment.close()


def _take(found: History, row: Row, first: bool, place: str) -> None:
    if row.carried and not first:
        return
    value = mapping(orjson.loads(row.data))
    if row.kind == "release":
        minor = value.get("minor")
        found.release = Release(minor if minor in SUPPORTED else max(SUPPORTED), mapping(value.get("gates")))
    elif row.kind == "gap":
        found.gaps.append({"observed": text(value.get("observed")), "lost": mapping(value.get("lost"))})
    else:
        try:
            event = read_event(value, place)
        except ValueError as error:
            raise BrokenSegmentError(f"{error}; it is of another release of allocguard") from error
        (found.begins if row.carried else found.events).append(event)
