"""The end of an audit log file, as an API server writes it: an event a line, and a new file now and then."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from webhook.folder import regular

# Seconds between looks, and until what nobody takes is offered again.
LOOK, AGAIN = 0.5, 0.5
# Read at once, and the longest line: an event has one request and one answer, each below the API server's own limit.
CHUNK, LONGEST_LINE = 1024 * 1024, 16 * 1024 * 1024


class AuditLog:
    """Gives the lines that come to the file ``path`` to ``take``, which says whether it took them, from now on: what is
    in it already, somebody has told. ``tell`` writes a line of the log. A file that is not there yet is waited for, and
    read from its beginning.

    A file that takes its place is read from its beginning too, once the old one is read to its end; one that was made
    shorter, from its new beginning.
    """

    def __init__(self, path: Path, take: Callable[[Sequence[bytes]], bool], tell: Callable[..., None]) -> None:
        self._path, self._take, self._log = path, take, tell
        self._file: BinaryIO | None = None
        self._begun = b""
        self._skipping = False
        self._problem = ""
        self._first = True

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            while True:
                try:
                    more = await self._look()
                except OSError as error:
                    more = False
                    # What is made from now on has nothing that was told before.
                    self._first &= not isinstance(error, FileNotFoundError)
                    self._tell(f"{self._path}: cannot be read: {(error.strerror or str(error)).lower()}")
                if not more:
                    await asyncio.sleep(LOOK)
        finally:
            self._close()

    def checks(self) -> list[tuple[str, bool, str]]:
        """Name, whether it is fine and what there is to say, for ``/readyz``."""
        told = f"ok, but {self._problem}" if self._problem else f"ok, {self._path}"
        return [("audit log", True, told)]

    async def _look(self) -> bool:
        """Take in what there is next; whether there may be more at once."""
        if self._file is None:
            self._file = await asyncio.to_thread(self._open)
            self._first = False
            self._tell("")
            return True
        data = await asyncio.to_thread(self._read)
        if data:
            self._tell("")
            await self._lines(data)
            return True
        if await asyncio.to_thread(self._replaced):
            # Nothing is added to it any more, but something may have been since the last look; and then what it ends
            # with is whole, or never will be.
            while data := await asyncio.to_thread(self._read):
                await self._lines(data)
            await self._lines(b"\n")
            self._close()
            return True
        return False

    def _open(self) -> BinaryIO:
        # Not buffered: the end of the file moves.
        file = regular(self._path, buffering=0)
        self._begun, self._skipping = b"", False
        if self._first and (size := os.fstat(file.fileno()).st_size):
            file.seek(size - 1)
            self._skipping = file.read(1) != b"\n"
        return file

    def _read(self) -> bytes:
        assert self._file is not None
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)
            self._begun, self._skipping = b"", False
        return self._file.read(CHUNK)

    def _replaced(self) -> bool:
        assert self._file is not None
        there, held = os.stat(self._path), os.fstat(self._file.fileno())
        return (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino)

    async def _lines(self, data: bytes) -> None:
        """Give on the lines that are whole with ``data``, and keep what the last one begins with."""
        first, *rest = data.split(b"\n")
        whole: list[bytes] = []
        if rest:
            if not self._skipping:
                whole.append(self._begun + first)
            whole += rest[:-1]
            self._begun, self._skipping = rest[-1], False
        elif not self._skipping:
            self._begun += first
        if len(self._begun) > LONGEST_LINE:
            self._begun, self._skipping = b"", True
        lines = [line for line in whole if line.strip()]
        while lines and not self._take(lines):
            await asyncio.sleep(AGAIN)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            self._log("warning", "audit log not read", message=problem)
        self._problem = problem
