import shutil
import sqlite3
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from webhook.store.segment import BrokenSegmentError, Entry, Latest, Segment, segments, size_of

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def entry(name, content=b"1", data=b"{}"):
    return Entry("event", data, ("Pod", "ns", name), Latest(f"uid-{name}", "1", content))


def gone(name, version="2"):
    return Entry("event", b'{"gone":1}', ("Pod", "ns", name), Latest(f"uid-{name}", version, b""))


@pytest.fixture
def segment(tmp_path):
    made = Segment.make(tmp_path, 1, NOW, None)
    yield made
    made.close()


def test_what_was_added_is_there_when_it_is_opened_again(segment):
    segment.append([entry("a"), entry("b")])
    segment.append([gone("a")])
    segment.close()
    again = Segment(segment.path)
    assert (again.count, again.digest) == (segment.count, segment.digest)
    assert [(row.seq, row.data) for row in again.rows()] == [(1, b"{}"), (2, b"{}"), (3, b'{"gone":1}')]
    assert again.latest(("Pod", "ns", "a")) == Latest("uid-a", "2", b"")
    assert again.keys("Pod") == [("Pod", "ns", "b")]
    assert again.latest(("Pod", "ns", "b")) == Latest("uid-b", "1", b"1")
    assert again.keys("Pod") == [("Pod", "ns", "b")]
    again.close()


def test_all_of_an_append_or_none(segment):
    segment.append([entry("a")])
    before = segment.digest

    def failing():
        yield entry("b")
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        segment.append(failing())
    assert (segment.count, segment.digest) == (1, before)
    segment.append([entry("c")])
    assert len(list(segment.rows())) == 2


def test_rows_are_neither_changed_nor_deleted(segment):
    segment.append([entry("a")])
    db = sqlite3.connect(segment.path)
    for statement in ("UPDATE row SET data = x'00'", "DELETE FROM row"):
        with pytest.raises(sqlite3.IntegrityError, match="rows are only added"):
            db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    "statement",
    ["UPDATE row SET data = '{ }' WHERE seq = 2", "DELETE FROM row WHERE seq = 2", "UPDATE row SET kind = 'gap'"],
)
def test_a_row_that_was_tampered_with_is_found(segment, statement):
    segment.append([entry("a"), entry("b"), entry("c")])
    db = sqlite3.connect(segment.path, isolation_level=None)
    db.execute("DROP TRIGGER row_kept")
    db.execute("DROP TRIGGER row_stays")
    db.execute(statement)
    db.close()
    with pytest.raises(BrokenSegmentError, match="is not what was written; restore the file"):
        list(segment.rows())


def test_one_that_goes_on_begins_with_what_is_not_gone_and_the_last_release(segment, tmp_path):
    segment.append([Entry("release", b"36"), entry("a"), entry("b", data=b"old"), Entry("gap", b"lost")])
    segment.append([entry("b", b"2", b"new"), gone("a"), Entry("release", b"37"), entry("c")])
    second = Segment.make(tmp_path, 2, NOW, segment)
    assert [(row.seq, row.kind, row.carried, row.data) for row in second.rows()] == [
        (1, "event", True, b"new"), (2, "release", True, b"37"), (3, "event", True, b"{}")
    ]  # fmt: skip
    assert second.previous == segment.digest
    assert second.latest(("Pod", "ns", "b")) == Latest("uid-b", "1", b"2")
    assert segments(tmp_path) == [segment.path, second.path]
    second.append([entry("d")])
    assert [row.carried for row in second.rows()] == [True, True, True, False]
    second.close()


def test_what_went_is_known_as_long_as_the_segment_is_there_in_which_it_did(segment, tmp_path):
    segment.append([entry("a"), gone("a", "7"), entry("b")])
    made = [segment]
    for number in (2, 3, 4):
        if number == 4:
            segment.path.unlink()
        made.append(Segment.make(tmp_path, number, NOW, made[-1]))
        assert [row.data for row in made[-1].rows()] == [b"{}"] * (number - 1)
        assert made[-1].latest(("Pod", "ns", "a")) == (Latest("uid-a", "7", b"") if number < 4 else None)
        made[-1].append([entry(f"new-{number}"), entry("c"), gone("c")])
    assert [made[-1].latest(("Pod", "ns", name)) for name in ("b", "c")] == [
        Latest("uid-b", "1", b"1"),
        Latest("uid-c", "2", b""),
    ]
    for each in made[1:]:
        each.close()


def test_one_that_was_being_made_when_the_process_ended_is_no_segment(segment, tmp_path):
    (tmp_path / "00000002.making").write_bytes(b"half of it")
    assert segments(tmp_path) == [segment.path]
    second = Segment.make(tmp_path, 2, NOW, segment)
    assert list(second.rows()) == []
    second.close()


def test_reading_beside_the_writer_sees_what_was_there_when_it_was_opened(segment):
    segment.append([entry("a")])
    reader = Segment(segment.path, reading=True)
    segment.append([entry("b")])
    assert len(list(reader.rows())) == 1
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.append([entry("c")])
    reader.close()


def test_a_folder_that_cannot_be_written_is_read_all_the_same(segment, tmp_path):
    segment.append([entry("a")])
    segment.close()
    folder = tmp_path / "kept"
    folder.mkdir()
    copied = shutil.copy(segment.path, folder)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    reader = Segment(Path(copied), reading=True)
    assert len(list(reader.rows())) == 1
    reader.close()
    folder.chmod(stat.S_IRWXU)


def test_files_that_are_no_segments(tmp_path):
    text = tmp_path / "00000001.journal"
    text.write_text("nothing of the kind, but long enough to be looked at" * 100)
    with pytest.raises(BrokenSegmentError, match="cannot be read: file is not a database; restore it"):
        Segment(text)
    other = tmp_path / "00000002.journal"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE row (seq)")
    db.close()
    with pytest.raises(BrokenSegmentError, match="is no journal; move it out of the folder"):
        Segment(other)
    with pytest.raises(FileNotFoundError):
        Segment(tmp_path / "00000003.journal")


def test_a_format_of_later_is_not_guessed_at(segment):
    segment.close()
    db = sqlite3.connect(segment.path)
    db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(BrokenSegmentError, match="has format 2, needs 1; read it with its own release"):
        Segment(segment.path)


def test_a_page_that_was_overwritten_is_found(segment):
    segment.append([entry(f"p{number}", data=b"x" * 300) for number in range(200)])
    segment.close()
    with segment.path.open("r+b") as file:
        file.seek(4096 * 8)
        file.write(b"\xff" * 4096)
    with pytest.raises(BrokenSegmentError):
        list(Segment(segment.path).rows())


def test_the_size_counts_what_is_not_in_the_main_file_yet(segment):
    before = size_of(segment.path)
    segment.append([entry("a", data=b"x" * 50_000)])
    assert size_of(segment.path) - before > 50_000
