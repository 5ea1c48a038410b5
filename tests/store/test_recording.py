from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from tests.admission.recordings import REVISION, RecordingGuard, taken
from webhook.admission import recorded_line
from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.record import Record
from webhook.kube.admission import raw_request, read_request
from webhook.kube.quantity import parse
from webhook.ledger.book import Book
from webhook.policy.revision import revision_of
from webhook.store import policies
from webhook.store import recording as module
from webhook.store.journal import JournalInUseError, Limits
from webhook.store.recording import Recording, policies_of, recordings

Json = dict[str, Any]


def decision(uid: str = "u", sent: bytes = b"") -> Record:
    """An allocation that fits, judged; its review came in the bytes ``sent``."""
    guard = RecordingGuard()
    before = guard.sees({**taken("a", "1"), "status": {}})
    raw = raw_request("UPDATE", taken("a", "1"), before, sub_resource="status", uid=uid)
    verdict = decide(
        replace(read_request(raw), sent=sent), "validate", guard.revision, guard.snapshot, Book(), guard.now
    )
    return Record(verdict, apply(verdict), guard.now, 0.001)


@contextmanager
def recording(
    folder: Path, limits: Limits | None = None, log: list[Json] | None = None, **options: Any
) -> Iterator[Recording]:
    def tell(level: str, event: str, **fields: Any) -> None:
        if log is not None:
            log.append({"level": level, "event": event, **fields})

    made = Recording(
        folder, options.get("wanted", lambda _: True), options.get("serving", lambda: REVISION), tell, limits
    )
    try:
        yield made
    finally:
        made.close()


def written(folder: Path) -> list[str]:
    """The UIDs of the reviews in it, in order."""
    return [json.loads(line)["request"]["uid"] for path in recordings(folder) for line in path.read_text().splitlines()]


def test_decisions_are_lines_in_order(tmp_path: Path) -> None:
    with recording(tmp_path) as made:
        for number in range(250):
            made.record(decision(str(number)))
        assert made.flush()
        assert made.check() == ("recording", True, "ok, 250 decisions told")
    assert written(tmp_path) == [str(number) for number in range(250)]
    [path] = recordings(tmp_path)
    for each in (path, policies_of(tmp_path, REVISION.hash)):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


def test_only_what_is_wanted_is_recorded(tmp_path: Path) -> None:
    with recording(tmp_path, wanted=lambda record: record.request.uid == "b") as made:
        for uid in "abc":
            made.record(decision(uid))
    assert written(tmp_path) == ["b"]


def test_what_it_needs_of_a_decision_it_takes_at_once(tmp_path: Path) -> None:
    with recording(tmp_path) as made:
        record = decision()
        made.record(record)
        record.verdict.evaluation.facts.release()
    assert written(tmp_path) == ["u"]


def test_one_process_writes_to_a_folder(tmp_path: Path) -> None:
    with recording(tmp_path), pytest.raises(JournalInUseError, match="another process writes there"):
        Recording(tmp_path, lambda _: True, lambda: REVISION)


def test_each_start_begins_a_file_and_what_was_cut_off_stays_alone(tmp_path: Path) -> None:
    with recording(tmp_path) as made:
        made.record(decision("a"))
    [path] = recordings(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:100])
    with recording(tmp_path) as made:
        made.record(decision("b"))
    one, other = recordings(tmp_path)
    assert one.read_bytes() == whole + whole[:100]
    assert json.loads(other.read_text())["request"]["uid"] == "b"


def test_files_are_begun_by_size_and_the_oldest_deleted(tmp_path: Path) -> None:
    limits = Limits(segment=10_000, total=50_000)
    with recording(tmp_path, limits) as made:
        for number in range(100):
            made.record(decision(str(number)))
            made.flush()
    paths = recordings(tmp_path)
    assert len(paths) > 2
    assert paths[0].name != "recording-00000001.json"
    assert sum(path.stat().st_size for path in paths) <= limits.total + 2 * limits.segment
    left = written(tmp_path)
    assert left == [str(number) for number in range(100 - len(left), 100)]


def test_files_older_than_they_may_be_go(tmp_path: Path) -> None:
    with recording(tmp_path) as made:
        made.record(decision("a"))
    [path] = recordings(tmp_path)
    old = time.time() - timedelta(days=8).total_seconds()
    os.utime(path, (old, old))
    with recording(tmp_path) as made:
        made.record(decision("b"))
    assert written(tmp_path) == ["b"]


def test_a_full_disk_is_told_once_and_nothing_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is full in the middle of a line; once there is room again, every line is there, whole and once."""
    full, real, log, failures = threading.Event(), os.write, list[Json](), list[int]()

    def half(file: int, data: memoryview) -> int:
        if threading.current_thread().name == "recording" and full.is_set():
            real(file, data[:50])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data)

    monkeypatch.setattr(module.os, "write", half)
    monkeypatch.setattr(module, "_PAUSES", (0.01,))
    with recording(tmp_path, log=log) as made:
        made.counted(failures.append)
        made.record(decision("a"))
        assert made.flush()
        full.set()
        # It would wait for ever here.
        made.record(decision("b"))
        assert not made.flush(0.2)
        assert made.check() == ("recording", True, "ok, but it cannot be written: no space left on device")
        full.clear()
        made.record(decision("c"))
        assert made.flush()
        assert made.check()[2] == "ok, 3 decisions told"
    assert written(tmp_path) == ["a", "b", "c"]
    assert [each["event"] for each in log] == ["recording not written", "recording written again"]
    assert failures
    assert set(failures) == {1}


def removed(folder: Path) -> None:
    recordings(folder)[-1].unlink()


def without_policies(folder: Path) -> None:
    shutil.rmtree(folder / ".policies")


def undeletable(folder: Path) -> None:
    """An old file that cannot be removed, as a folder cannot."""
    (folder / "recording-00000000.json").mkdir()
    os.utime(folder / "recording-00000000.json", (1, 1))


@pytest.mark.parametrize(
    ("harm", "event", "left"),
    [
        (removed, "recording lost", "cd"),
        (shutil.rmtree, "recording lost", "cd"),
        (without_policies, "recording not tidied", "abcd"),
        (undeletable, "recording not tidied", "abcd"),
    ],
)
def test_who_removes_files_or_keeps_them_neither_stops_nor_doubles_what_is_written(
    tmp_path: Path, harm: Callable[[Path], None], event: str, left: str
) -> None:
    """What comes in the same batch as the harm is lost with its file; everything after it is there, once."""
    folder, log = tmp_path / "recording", list[Json]()
    with recording(folder, log=log) as made:
        made.record(decision("a"))
        made.flush()
        harm(folder)
        for uid in "bcd":
            made.record(decision(uid))
            assert made.flush()
    files = [path for path in recordings(folder) if path.is_file()]
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert [line["request"]["uid"] for line in lines] == list(left)
    assert policies_of(folder, REVISION.hash).exists()
    assert log[0]["event"] == event
    assert [each["event"] for each in log].count(event) == 1


def test_a_batch_of_which_nothing_can_be_told_does_not_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(taken: Any, key: bytes) -> Json:
        raise KeyError("no such thing")

    with recording(tmp_path) as made:
        with monkeypatch.context() as patched:
            patched.setattr(module, "line", broken)
            made.record(decision("a"))
            assert made.flush()
        made.record(decision("b"))
        assert made.flush()
    assert written(tmp_path) == ["b"]


def test_files_are_in_the_order_of_their_numbers_however_long_these_are(tmp_path: Path) -> None:
    (tmp_path / "recording-99999999.json").write_text("")
    for uid in "ab":
        with recording(tmp_path) as made:
            made.record(decision(uid))
    assert [path.name for path in recordings(tmp_path)][1:] == [
        "recording-100000000.json",
        "recording-100000001.json",
    ]
    assert written(tmp_path) == ["a", "b"]


def test_what_is_still_unwritten_at_the_end_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    failures: list[int] = []
    with recording(tmp_path) as made:
        made.counted(failures.append)
        monkeypatch.setattr(module.os, "write", full)
        for uid in "abc":
            made.record(decision(uid))
    # Them, and the try that failed.
    assert sum(failures) >= 4


@pytest.mark.parametrize(("name", "most"), [("WAITING", 5), ("WAITING_BYTES", 500)])
def test_more_than_can_wait_is_lost_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    held, log, failures = threading.Event(), list[Json](), list[int]()
    real = recorded_line.line

    def slow(*arguments: Any) -> Json:
        assert held.wait(10)
        return real(*arguments)

    monkeypatch.setattr(module, "line", slow)
    monkeypatch.setattr(module, name, most)
    with recording(tmp_path, log=log) as made:
        made.counted(failures.append)
        made.record(decision("first"))
        eventually(lambda: not made._items)
        for number in range(8):
            made.record(decision(str(number), sent=b"x" * 100))
        held.set()
        assert made.flush()
    assert written(tmp_path) == ["first", *"01234"]
    assert sum(failures) == 3
    assert [(each["event"], each["count"]) for each in log] == [("decisions not recorded", 3)]


def eventually(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end, "not within time"
        time.sleep(0.01)


def test_a_decision_that_cannot_be_told_does_not_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, failures, real = list[Json](), list[int](), recorded_line.line

    def broken(taken: Any, key: bytes) -> Json:
        if taken.record.request.uid == "b":
            raise KeyError("no such thing")
        return real(taken, key)

    monkeypatch.setattr(module, "line", broken)
    with recording(tmp_path, log=log) as made:
        made.counted(failures.append)
        for uid in "abc":
            made.record(decision(uid))
    assert written(tmp_path) == ["a", "c"]
    assert failures == [1]
    assert log[0]["event"] == "decision not recorded"


def test_the_policies_by_which_it_was_decided_are_beside_it(tmp_path: Path) -> None:
    """Also those of an edit, and again with each file, so that they are there as long as it is."""
    other = revision_of(REVISION.policies[:1])
    serving = [REVISION]
    with recording(tmp_path, serving=lambda: serving[-1]) as made:
        made.record(decision("a"))
        serving.append(other)
        made.record(decision("b"))
    for revision in (REVISION, other):
        path = policies_of(tmp_path, revision.hash)
        assert policies.read([str(path)]).hash == revision.hash
        os.utime(path, (1, 1))
    with recording(tmp_path) as made:
        made.record(decision("c"))
    assert policies.read([str(policies_of(tmp_path, REVISION.hash))]).hash == REVISION.hash
    # No file is left that was made by it.
    assert not policies_of(tmp_path, other.hash).exists()


def test_beside_a_journal_it_fits_the_volume_of_the_deployment() -> None:
    manifest = yaml.safe_load((Path(__file__).parents[2] / "deploy" / "base" / "deployment.yaml").read_text())
    volumes = manifest["spec"]["template"]["spec"]["volumes"]
    [size] = [each["emptyDir"]["sizeLimit"] for each in volumes if each["name"] == "journal"]
    both = sum(each.total + each.segment for each in (Limits(), module.LIMITS))
    assert both < parse(size)
