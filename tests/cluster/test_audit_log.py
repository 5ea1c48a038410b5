"""A log that grows, is put aside, cut, and written in halves, as files on a disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from webhook.cluster import audit_log
from webhook.cluster.audit_log import AuditLog


class Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[bytes] = []
        self.told: list[str] = []
        self.full = False
        self.log = AuditLog(path, self.take, lambda level, event, **fields: self.told.append(fields["message"]))

    def take(self, lines: Sequence[bytes]) -> bool:
        if not self.full:
            self.lines += lines
        return not self.full

    async def until(self, *lines: bytes) -> None:
        async with asyncio.timeout(10):
            while self.lines != list(lines):
                await asyncio.sleep(0.005)

    async def begun(self) -> None:
        """Return once it has looked at the file, or missed it."""
        async with asyncio.timeout(10):
            while self.log._file is None and not self.told:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def reading(path: Path) -> AsyncIterator[Reader]:
    reader = Reader(path)
    task = asyncio.create_task(reader.log.run())
    try:
        await reader.begun()
        yield reader
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "LOOK", 0.005)
    monkeypatch.setattr(audit_log, "AGAIN", 0.005)


def play(path: Path, steps: Callable[[Reader], object]) -> Reader:
    async def run() -> Reader:
        async with reading(path) as reader:
            await steps(reader)  # type: ignore[misc]
        return reader

    return asyncio.run(run())


def test_what_comes_after_the_start_is_read(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("old\n")

    async def steps(reader: Reader) -> None:
        append(path, "one\ntw")
        await reader.until(b"one")
        append(path, "o\n\nthree\n")
        await reader.until(b"one", b"two", b"three")

    play(path, steps)


def test_a_line_that_was_begun_before_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("old\nhal")

    async def steps(reader: Reader) -> None:
        append(path, "f\nwhole\n")
        await reader.until(b"whole")

    play(path, steps)


def test_a_file_that_comes_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"

    async def steps(reader: Reader) -> None:
        append(path, "one\n")
        await reader.until(b"one")

    told = play(path, steps).told
    assert told == [f"{path}: cannot be read: no such file or directory"]


def test_a_file_that_is_put_aside_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("")

    async def steps(reader: Reader) -> None:
        for turn in range(5):
            append(path, f"{turn}a\n{turn}b")
            path.rename(tmp_path / f"audit-{turn}.log")
            append(path, f"{turn}c\n")
            await reader.until(*(f"{n}{part}".encode() for n in range(turn + 1) for part in "abc"))

    play(path, steps)


def test_a_file_that_is_copied_and_cut_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("x" * 100 + "\n")

    async def steps(reader: Reader) -> None:
        append(path, "one\nhal")
        await reader.until(b"one")
        os.truncate(path, 0)
        append(path, "two\n")
        await reader.until(b"one", b"two")

    play(path, steps)


def test_a_line_without_end_takes_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "CHUNK", 100)
    monkeypatch.setattr(audit_log, "LONGEST_LINE", 1000)
    path = tmp_path / "audit.log"
    path.write_text("")

    async def steps(reader: Reader) -> None:
        append(path, "x" * 50_000)
        append(path, "\nnext\n" + "y" * 900 + "\n")
        await reader.until(b"next", b"y" * 900)
        assert len(reader.log._begun) <= 1000

    play(path, steps)


def test_what_nobody_takes_is_offered_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("")

    async def steps(reader: Reader) -> None:
        reader.full = True
        append(path, "one\n")
        await asyncio.sleep(0.05)
        append(path, "two\n")
        assert reader.lines == []
        reader.full = False
        await reader.until(b"one", b"two")

    play(path, steps)


def test_what_keeps_it_from_reading_is_told_once_and_in_readyz(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()

    async def steps(reader: Reader) -> None:
        await asyncio.sleep(0.1)
        assert reader.log.checks() == [("audit log", True, f"ok, but {path}: cannot be read: is a directory")]
        path.rmdir()
        append(path, "one\n")
        async with asyncio.timeout(10):
            while "but" in reader.log.checks()[0][2]:
                await asyncio.sleep(0.005)

    assert play(path, steps).told[0] == f"{path}: cannot be read: is a directory"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_keeps_nobody_waiting(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "audit.log"
    make(path)

    async def steps(reader: Reader) -> None:
        assert reader.log.checks() == [("audit log", True, f"ok, but {path}: cannot be read: is no regular file")]
        path.unlink()
        append(path, "one\n")
        async with asyncio.timeout(10):
            while "but" in reader.log.checks()[0][2]:
                await asyncio.sleep(0.005)
        append(path, "two\n")
        await reader.until(b"two")

    play(path, steps)


def test_a_file_that_goes_is_told_and_the_next_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("")

    async def steps(reader: Reader) -> None:
        append(path, "one\n")
        path.unlink()
        await reader.until(b"one")
        async with asyncio.timeout(10):
            while not reader.told:
                await asyncio.sleep(0.005)
        append(path, "two\n")
        await reader.until(b"one", b"two")
        assert reader.log.checks() == [("audit log", True, f"ok, {path}")]

    play(path, steps)


def test_what_is_added_between_the_last_look_and_the_rotation_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    path.write_text("")
    replaced = AuditLog._replaced

    def rotated(log: AuditLog) -> bool:
        """As another process may: after nothing was read, and before it is asked whether the file is another one."""
        if not (tmp_path / "audit-1.log").exists():
            append(path, "last\nhalf")
            path.rename(tmp_path / "audit-1.log")
            path.write_text("next\n")
        return replaced(log)

    monkeypatch.setattr(AuditLog, "_replaced", rotated)

    async def steps(reader: Reader) -> None:
        await reader.until(b"last", b"half", b"next")

    play(path, steps)
