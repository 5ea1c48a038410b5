"""One file of the journal: an SQLite database to which rows are only ever added, each with a digest over all before it.

A write is there once :meth:`Segment.append` has returned, whatever happens to the process or the machine then; one that
was cut off is not there at all.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

FORMAT: Final = 1
# "allg": tells a journal from other SQLite files.
_APPLICATION: Final = 0x616C6C67
_NAME: Final = re.compile(r"\d{8}\.journal")

RowKind = Literal["event", "release", "gap"]
Key = tuple[str, str, str]

_SCHEMA: Final = f"""
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {FORMAT};
CREATE TABLE segment (number INTEGER NOT NULL, begun TEXT NOT NULL, previous BLOB NOT NULL);
CREATE TABLE row (
    seq INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    carried INTEGER NOT NULL,
    data BLOB NOT NULL,
    digest BLOB NOT NULL
);
CREATE TRIGGER row_kept BEFORE UPDATE ON row BEGIN SELECT RAISE(ABORT, 'rows are only added'); END;
CREATE TRIGGER row_stays BEFORE DELETE ON row BEGIN SELECT RAISE(ABORT, 'rows are only added'); END;
CREATE TABLE latest (
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    uid TEXT NOT NULL,
    version TEXT NOT NULL,
    content BLOB NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (kind, namespace, name)
) WITHOUT ROWID;
"""


class BrokenSegmentError(Exception):
    """A file that is no journal, of a format not known here, or whose content is not what was written."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: ``data`` is JSON, ``seq`` counts from 1 in each segment; ``carried`` rows repeat an earlier segment."""

    seq: int
    kind: RowKind
    carried: bool
    data: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Latest:
    """What was last written of an object: its UID, resource version, and a digest of its content. Without content it
    is gone, and the version is that of its going.
    """

    uid: str
    version: str
    content: bytes

    @property
    def gone(self) -> bool:
        """Whether the object is there no more."""
        return not self.content


@dataclass(frozen=True, slots=True)
class Entry:
    """A row to add. ``key`` (kind, namespace, name) is the object that it is about, ``latest`` what is known of it."""

    kind: RowKind
    data: bytes
    key: Key | None = None
    latest: Latest | None = None


def segments(folder: Path) -> list[Path]:
    """The files of the journal in ``folder``, in order. Raises OSError."""
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def number_of(path: Path) -> int:
    """The number in the name of a segment."""
    return int(path.name[:8])


def size_of(path: Path) -> int:
    """Bytes on disk, with what is not yet in the main file; 0 for a segment that is gone."""
    total = 0
    for name in (path.name, f"{path.name}-wal"):
        with suppress(FileNotFoundError):
            total += path.with_name(name).stat().st_size
    return total


def remove(path: Path) -> None:
    """Delete a segment with the files beside it. Raises OSError."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-journal"):
        path.with_name(name).unlink(missing_ok=True)


class Segment:
    """An open segment. Raises BrokenSegmentError where what is read is not what was written, sqlite3.Error and OSError
    where nothing can be read or written. To be used from one thread.

    ``reading`` opens it beside a process that writes, and never writes.
    """

    def __init__(self, path: Path, reading: bool = False) -> None:
        path.stat()  # SQLite would make what is not there
        self.path = path
        self._db = _connected(path, reading)
        try:
            self._check()
            if not reading:
                # What is committed is on the disk before `append` returns.
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.execute("PRAGMA journal_mode = WAL")
            self.begun, self.previous = self._head()
            self.count, self.digest = self._last()
        except BaseException:
            self._db.close()
            raise

    @staticmethod
    def make(folder: Path, number: int, now: datetime, after: Segment | None) -> Segment:
        """A new segment of ``folder``. It begins with what ``after``, the one before, last has of every object that is
        not gone, so that it can be read without it, and holds the digest at which ``after`` ends. It knows what went
        in a segment that is there still, since that one is read with it.
        """
        path, making = folder / f"{number:08d}.journal", folder / f"{number:08d}.making"
        remove(making)
        db = sqlite3.connect(making, isolation_level=None)
        try:
            db.executescript(f"BEGIN; {_SCHEMA}")
            begun, previous = now.isoformat(), after.digest if after is not None else b""
            db.execute("INSERT INTO segment VALUES (?, ?, ?)", (number, begun, previous))
            if after is not None:
                _insert(db, 0, _first(begun, previous), after.living(), carried=True)
                oldest = number_of(segments(folder)[0])
                db.executemany("INSERT INTO latest VALUES (?, ?, ?, ?, ?, ?, ?)", after._ended(oldest))
            db.execute("COMMIT")
        finally:
            db.close()
        making.rename(path)
        _sync(folder)
        return Segment(path)

    def close(self) -> None:
        """End it; what is written stays."""
        self._db.close()

    def append(self, entries: Iterable[Entry]) -> None:
        """Add ``entries``, all or none of them."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            count, digest = _insert(self._db, self.count, self.digest, entries, carried=False)
            self._db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise
        self.count, self.digest = count, digest

    def latest(self, key: Key) -> Latest | None:
        """What was last written of the object (kind, namespace, name), or that it is gone; None where nothing was."""
        found = self._db.execute(
            "SELECT uid, version, content FROM latest WHERE kind = ? AND namespace = ? AND name = ?", key
        ).fetchone()
        return None if found is None else Latest(*found)

    def keys(self, kind: str) -> list[Key]:
        """The keys of all objects of ``kind`` that are not gone."""
        sql = "SELECT kind, namespace, name FROM latest WHERE kind = ? AND content != x''"
        return self._db.execute(sql, (kind,)).fetchall()

    def living(self) -> Iterator[Entry]:
        """What was last written of every object that is not gone, and of the release, in the order of writing."""
        rows = self._db.execute(
            "SELECT row.kind, data, latest.kind, namespace, name, uid, version, content"
            " FROM row LEFT JOIN latest ON row.seq = latest.seq AND content != x''"
            " WHERE latest.seq IS NOT NULL OR row.seq = (SELECT max(seq) FROM row WHERE kind = 'release')"
            " ORDER BY row.seq"
        )
        for kind, data, about, namespace, name, *latest in rows:
            known = about is not None
            yield Entry(kind, data, (about, namespace, name) if known else None, Latest(*latest) if known else None)

    def _ended(self, oldest: int) -> sqlite3.Cursor:
        """What went in the segments from number ``oldest`` up to this one, as the next keeps it: with the number of the
        segment, below zero, in place of a row of its own.
        """
        sql = (
            "SELECT * FROM (SELECT kind, namespace, name, uid, version, content,"
            " CASE WHEN seq > 0 THEN -(SELECT number FROM segment) ELSE seq END AS went"
            " FROM latest WHERE content = x'') WHERE went <= ?"
        )
        return self._db.execute(sql, (-oldest,))

    def rows(self) -> Iterator[Row]:
        """All rows in order, each checked against the digest of those before it."""
        digest = _first(self.begun, self.previous)
        with closing(self._read()) as rows:
            for number, (seq, kind, carried, data, given) in enumerate(rows, 1):
                digest = _chained(digest, seq, kind, bool(carried), data)
                if seq != number or given != digest:
                    raise BrokenSegmentError(f"{self.path}: row {number} is not what was written; restore the file")
                yield Row(seq, kind, bool(carried), data, digest)

    def _read(self) -> Generator[tuple[int, RowKind, int, bytes, bytes], None, None]:
        sql = "SELECT seq, kind, carried, CAST(data AS BLOB), CAST(digest AS BLOB) FROM row WHERE seq <= ? ORDER BY seq"
        try:
            yield from self._db.execute(sql, (self.count,))
        except sqlite3.DatabaseError as error:
            raise _broken(self.path, str(error)) from error

    def _check(self) -> None:
        try:
            application = self._db.execute("PRAGMA application_id").fetchone()[0]
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            intact = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            raise _broken(self.path, str(error)) from error
        if application != _APPLICATION:
            raise BrokenSegmentError(f"{self.path}: is no journal; move it out of the folder")
        if version != FORMAT:
            raise BrokenSegmentError(f"{self.path}: has format {version}, needs {FORMAT}; read it with its own release")
        if intact != "ok":
            raise _broken(self.path, intact)

    def _head(self) -> tuple[str, bytes]:
        begun, previous = self._db.execute("SELECT begun, previous FROM segment").fetchone()
        return begun, previous

    def _last(self) -> tuple[int, bytes]:
        found = self._db.execute("SELECT seq, digest FROM row ORDER BY seq DESC LIMIT 1").fetchone()
        return (0, _first(self.begun, self.previous)) if found is None else found


def _connected(path: Path, reading: bool) -> sqlite3.Connection:
    if not reading:
        return sqlite3.connect(path, isolation_level=None, timeout=5.0)
    name = f"file:{quote(str(path.absolute()))}"
    db = sqlite3.connect(f"{name}?mode=ro", uri=True, timeout=5.0)
    try:
        db.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:  # a folder that cannot be written: nobody writes there, so nothing changes
        db.close()
        return sqlite3.connect(f"{name}?mode=ro&immutable=1", uri=True)
    except sqlite3.DatabaseError:  # the check says what it is
        pass
    return db


def _insert(
    db: sqlite3.Connection, count: int, digest: bytes, entries: Iterable[Entry], carried: bool
) -> tuple[int, bytes]:
    for entry in entries:
        count += 1
        digest = _chained(digest, count, entry.kind, carried, entry.data)
        db.execute("INSERT INTO row VALUES (?, ?, ?, ?, ?)", (count, entry.kind, carried, entry.data, digest))
        if entry.key is not None and entry.latest is not None:
            known = entry.latest
            values = (*entry.key, known.uid, known.version, known.content, count)
            db.execute("INSERT OR REPLACE INTO latest VALUES (?, ?, ?, ?, ?, ?, ?)", values)
    return count, digest


def _first(begun: str, previous: bytes) -> bytes:
    return hashlib.sha256(f"allocguard journal {FORMAT} {begun} {previous.hex()}".encode()).digest()


def _chained(before: bytes, seq: int, kind: str, carried: bool, data: bytes) -> bytes:
    return hashlib.sha256(before + f"{seq} {kind} {int(carried)} ".encode() + data).digest()


def _broken(path: Path, reason: str) -> BrokenSegmentError:
    return BrokenSegmentError(f"{path}: cannot be read: {reason.lower()}; restore it, or move it out of the folder")


def _sync(folder: Path) -> None:
    """Have the names in ``folder`` on the disk too."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
