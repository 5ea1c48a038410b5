import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from tests.store.journaling import NOW, claim, journal, pod, told
from webhook.kube.release import Release
from webhook.ledger.events import read_event
from webhook.store.history import read_history
from webhook.store.journal import Journal, JournalInUseError, Limits
from webhook.store.segment import Segment, segments

ROOT = Path(__file__).parents[2]
SMALL = Limits(segment=40_000, total=200_000)


def test_what_it_is_told_is_on_the_disk_in_order(tmp_path):
    with journal(tmp_path / "made" / "here") as told_to:
        told_to.judged(Release(37, {"DRANodeAllocatableResources": True}))
        told_to.put(pod("a", 1))
        told_to.put(claim("c", 2))
        told_to.put(pod("a", 3, nodeName="n1"))
        told_to.gone({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns", "name": "a"}})
        assert told_to.flush()
        assert told(tmp_path / "made" / "here") == [
            ("put", "a", "1"), ("put", "c", "2"), ("put", "a", "3"), ("gone", "a", "3")
        ]  # fmt: skip
    history = read_history(tmp_path / "made" / "here")
    assert history.release == Release(37, {"DRANodeAllocatableResources": True})
    assert history.gaps == []
    assert history.events[2].object == pod("a", 3, nodeName="n1")
    assert history.events[0].observed == NOW


def test_what_changes_nothing_is_not_written(tmp_path):
    with journal(tmp_path) as told_to:
        told_to.put(pod("a", 1))
        told_to.put(pod("a", 1))  # a list anew
        told_to.put(pod("a", 2))  # progress that no account depends on
        told_to.put(claim("c", 1))
        told_to.put(claim("c", 2))  # its version is part of charges
        told_to.put({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}})
        told_to.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "ns"}})
        told_to.gone(pod("never-there"))
    assert told(tmp_path) == [("put", "a", "1"), ("put", "c", "1"), ("put", "c", "2")]


def test_a_pod_made_anew_under_its_name_is_another_one(tmp_path):
    with journal(tmp_path) as told_to:
        told_to.put(pod("a", 1, uid="one"))
        told_to.put(pod("a", 2, uid="two"))
    assert [event.uid for event in read_history(tmp_path).events] == ["one", "two"]


def test_environment_and_secrets_are_never_written(tmp_path):
    container = {
        "name": "main", "image": "secret/image", "env": [{"name": "PASSWORD", "value": "hunter2"}],
        "args": ["--token=hunter2"], "resources": {"requests": {"cpu": "1"}},
    }  # fmt: skip
    made = pod("a", 1, containers=[container], volumes=[{"name": "v", "secret": {"secretName": "hunter2"}}])
    made["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "hunter2"}
    asked = claim("c")
    opaque = {"driver": "d", "parameters": {"password": "hunter2"}}
    asked["spec"] = {"devices": {"requests": [{"name": "r"}], "config": [{"opaque": opaque}]}}
    asked["status"] = {"devices": [{"data": "hunter2"}], "reservedFor": []}
    with journal(tmp_path) as told_to:
        told_to.put(made)
        told_to.put(asked)
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"hunter2" not in written
    assert b"image" not in written
    one, other = read_history(tmp_path).events
    assert one.object["spec"]["containers"] == [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    assert other.object["spec"] == {"devices": {"requests": [{"name": "r"}]}}


def test_what_is_not_among_all_objects_of_its_kind_is_gone(tmp_path):
    with journal(tmp_path) as told_to:
        for name in "abc":
            told_to.put(pod(name))
        told_to.put(claim("a"))
        told_to.flush()
        told_to.put(pod("d"))
        told_to.whole("Pod", [("ns", "b"), ("ns", "d")])
    assert told(tmp_path)[5:] == [("gone", "a", "1"), ("gone", "c", "1")]


def test_after_a_restart_it_goes_on_and_what_went_away_meanwhile_is_gone(tmp_path):
    with journal(tmp_path) as told_to:
        told_to.put(pod("a"))
        told_to.put(pod("b"))
    with journal(tmp_path) as told_to:
        told_to.put(pod("b"))
        told_to.put(pod("c"))
        told_to.whole("Pod", [("ns", "b"), ("ns", "c")])
    assert told(tmp_path) == [("put", "a", "1"), ("put", "b", "1"), ("put", "c", "1"), ("gone", "a", "1")]
    assert len(segments(tmp_path)) == 1


def test_segments_are_begun_by_size_and_the_oldest_deleted(tmp_path):
    with journal(tmp_path, SMALL) as told_to:
        told_to.put(pod("kept", labels={"x": "y"}))
        for number in range(300):
            told_to.put(claim(f"c{number % 7}", number + 1))
            told_to.flush()
        names = [path.name for path in segments(tmp_path)]
    assert names[0] != "00000001.journal"
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < SMALL.total + SMALL.segment
    history = read_history(tmp_path)
    assert history.segments == len(names)
    # What the first segment that is left begins with stands for all that was deleted.
    begun = {event.name for event in history.begins}
    assert begun == {"kept", *(f"c{number}" for number in range(7))}
    assert history.events[-1].resource_version == "300"
    versions = [int(event.resource_version) for event in history.events]
    assert versions == list(range(301 - len(versions), 301))


def test_segments_are_begun_by_age_and_old_ones_deleted(tmp_path):
    moment = [NOW]
    limits = Limits(age=timedelta(days=10))
    told_to = Journal(tmp_path, lambda: moment[0], limits=limits)
    told_to.put(pod("a"))
    assert told_to.flush()
    moment[0] += timedelta(hours=25)
    told_to.put(pod("b"))
    assert told_to.flush()
    assert len(segments(tmp_path)) == 2
    long_ago = NOW.timestamp() - 400 * 86_400
    os.utime(segments(tmp_path)[0], (long_ago, long_ago))
    moment[0] += timedelta(hours=25)
    told_to.put(pod("c"))
    told_to.close()
    assert [path.name for path in segments(tmp_path)] == ["00000002.journal", "00000003.journal"]
    assert [name for _, name, _ in told(tmp_path)] == ["a", "b", "c"]


def test_a_segment_that_cannot_be_deleted_keeps_nothing_from_being_written(tmp_path):
    log = []
    # A folder can be no more removed than what somebody else owns.
    old = tmp_path / "00000000.journal"
    with journal(tmp_path, log=log) as told_to:
        told_to.put(pod("a", 1))
        assert told_to.flush()
        old.mkdir()
        os.utime(old, (1, 1))
        for version in range(5):
            told_to.put(pod("b", version + 1, nodeName=f"n{version}"))
            assert told_to.flush()
        assert told_to.check() == ("journal", True, f"ok, but {old.name} cannot be removed: is a directory")
        old.rmdir()
        told_to.put(pod("c", 1))
        assert told_to.flush()
        assert told_to.check() == ("journal", True, "ok, 7 told")
    assert told(tmp_path) == [("put", "a", "1"), *(("put", "b", version) for version in "12345"), ("put", "c", "1")]
    assert [each["event"] for each in log] == ["journal not tidied"]


def test_a_segment_does_not_end_because_of_what_it_carries(tmp_path):
    with journal(tmp_path, Limits(segment=20_000)) as told_to:
        # In one batch: a segment may end after each.
        with told_to._more:
            for number in range(300):
                told_to.put(claim(f"c{number}", 1))
        told_to.flush()
        told_to.put(pod("a"))
        told_to.flush()
        told_to.put(pod("b"))
    assert len(segments(tmp_path)) == 2


def test_objects_that_alone_take_more_than_there_is_room_for_are_not_copied_again_and_again(tmp_path):
    with journal(tmp_path, Limits(segment=20_000, total=40_000)) as told_to:
        for number in range(300):
            told_to.put(claim(f"c{number}", 1))
        for number in range(100):
            told_to.put(claim("c0", 2 + number))
            told_to.flush()
        (last,) = segments(tmp_path)
    # Not with each of the hundred writes.
    assert "00000001.journal" < last.name < "00000040.journal"


def test_one_folder_has_one_writer(tmp_path):
    with journal(tmp_path), pytest.raises(JournalInUseError, match="another process writes there"):
        Journal(tmp_path, lambda: NOW)
    with journal(tmp_path) as told_to:
        told_to.put(pod("a"))
    assert told(tmp_path) == [("put", "a", "1")]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="Not a directory"):
        Journal(tmp_path / "file" / "folder", lambda: NOW)


def test_a_broken_segment_is_left_alone_and_everything_wanted_once_more(tmp_path):
    with journal(tmp_path) as told_to:
        told_to.put(pod("a"))
    (first,) = segments(tmp_path)
    first.write_bytes(b"not what it was" * 1000)
    log, counted = [], Counter()
    with journal(tmp_path, log=log) as told_to:
        told_to.counted(lambda kind, count: counted.update({kind: count}))
        told_to.put(pod("b"))
        assert told_to.flush()
        assert told_to.wants()
        assert not told_to.wants()
        assert told_to.check() == ("journal", True, "ok, 1 told")
    assert [each["event"] for each in log] == ["journal broken", "journal events lost"]
    assert counted == {"journal": 1}
    assert first.read_bytes().startswith(b"not what it was")
    history = read_history(tmp_path)
    assert [event.name for event in history.events] == ["b"]
    assert history.gaps == [{"observed": "2026-11-30T12:00:00Z", "lost": {"journal": 1}}]


def test_a_cluster_that_was_put_back_to_an_earlier_state_has_a_history_of_its_own(tmp_path):
    log = []
    with journal(tmp_path, log=log) as told_to:
        for version in (5, 9):
            told_to.put(claim("a", version))
        told_to.put(claim("b", 8))
        assert told_to.flush()
        told_to.put(claim("a", 5))
        assert told_to.flush()
        assert told_to.wants()
        told_to.put(claim("a", 6))
        told_to.whole("ResourceClaim", [("ns", "a")])
    assert told(tmp_path) == [("put", "a", "5"), ("put", "a", "6")]
    assert [gap["lost"] for gap in read_history(tmp_path).gaps] == [{"journal": 1}]
    assert [each["event"] for each in log] == ["journal begun anew", "journal events lost"]
    assert len(segments(tmp_path)) == 2


def test_a_cluster_that_is_put_back_while_the_journal_lags_has_a_history_of_its_own(tmp_path):
    log = []
    with journal(tmp_path, log=log) as told_to:
        # The writer stands still as long as this thread has the lock, and has all of it at once then.
        with told_to._more:
            for name, version in (("a", 5), ("b", 6), ("a", 3), ("a", 4), ("b", 2)):
                told_to.put(claim(name, version))
        assert told_to.flush()
        assert told_to.wants()
        assert told_to.check() == ("journal", True, "ok, 5 told")
    assert [[each.resource_version for each in events] for events in _histories(tmp_path)] == [
        ["5", "6"], ["3", "4", "2"]
    ]  # fmt: skip
    assert [each["event"] for each in log] == ["journal begun anew", "journal events lost"]


@pytest.mark.parametrize("uid", ["uid-a", "another"])
def test_an_object_of_a_file_that_has_a_version_no_more_begins_a_history_too(tmp_path, uid):
    made = claim("a")
    made["metadata"].update(resourceVersion="", uid=uid)
    log = []
    with journal(tmp_path, log=log) as told_to:
        told_to.put(claim("a", 5))
        told_to.put(made)
        told_to.put(claim("a", 3))
        told_to.gone(made)
    assert told(tmp_path) == [("put", "a", ""), ("put", "a", "3"), ("gone", "a", "3")]
    assert "ResourceClaim/ns/a without a version, after version 5" in log[0]["message"]


@pytest.mark.parametrize("back", [5, 8])
@pytest.mark.parametrize("restarted", [False, True])
def test_what_comes_back_from_before_it_was_gone_begins_a_history_too(tmp_path, back, restarted):
    log = []
    with journal(tmp_path, log=log) as told_to:
        told_to.put(claim("a", 5))
        told_to.gone(claim("a", 8))
        assert told_to.flush()
        if not restarted:
            told_to.put(claim("a", back))
    if restarted:
        with journal(tmp_path, log=log) as told_to:
            told_to.put(claim("a", back))
    assert told(tmp_path) == [("put", "a", str(back))]
    assert f"ResourceClaim/ns/a at version {back}, after it was gone at version 8" in log[0]["message"]


def test_what_is_made_again_under_its_name_goes_on(tmp_path):
    with journal(tmp_path) as told_to:
        told_to.put(claim("a", 5))
        told_to.gone(claim("a", 8))
        told_to.gone(claim("a", 8))
        told_to.put(claim("a", 9))
        told_to.whole("ResourceClaim", [])
        told_to.whole("ResourceClaim", [])
        told_to.put(claim("a", 10))
    history = read_history(tmp_path)
    assert [(each.type, each.resource_version) for each in history.events] == [
        ("put", "5"), ("gone", "8"), ("put", "9"), ("gone", "9"), ("put", "10")
    ]  # fmt: skip
    assert history.gaps == []


def _histories(folder):
    """The events of each segment."""
    for path in segments(folder):
        with closing(Segment(path, reading=True)) as segment:
            yield [read_event(json.loads(row.data)) for row in segment.rows() if row.kind == "event"]


def test_what_waits_is_bounded_and_what_was_lost_is_told_counted_and_wanted(tmp_path, monkeypatch):
    monkeypatch.setattr("webhook.store.journal.WAITING", 20)
    log, counted = [], Counter()
    with journal(tmp_path, log=log) as told_to:
        told_to.counted(lambda kind, count: counted.update({kind: count}))
        # The writer stands still as long as this thread has the lock.
        with told_to._more:
            for number in range(50):
                told_to.put(pod(f"p{number}"))
            told_to.put(claim("c"))
        assert told_to.flush()
        told_to.put(claim("later"))
        assert told_to.flush()
        assert told_to.wants()
    assert counted == {"Pod": 30, "ResourceClaim": 1}
    history = read_history(tmp_path)
    assert [event.name for event in history.events] == [*(f"p{number}" for number in range(20)), "later"]
    assert [gap["lost"] for gap in history.gaps] == [{"Pod": 30, "ResourceClaim": 1}]
    assert [each["event"] for each in log] == ["journal events lost"]


def test_an_object_that_cannot_be_written_is_left_out_and_the_others_are_not(tmp_path):
    log, counted = [], Counter()
    odd = pod("odd", nodeName=object())
    with journal(tmp_path, log=log) as told_to:
        told_to.counted(lambda kind, count: counted.update({kind: count}))
        with told_to._more:
            for each in (pod("a"), odd, pod("b")):
                told_to.put(each)
        assert told_to.flush()
        told_to.put(pod("c"))
        assert told_to.flush()
        assert told_to.wants()
    assert told(tmp_path) == [("put", "a", "1"), ("put", "b", "1"), ("put", "c", "1")]
    assert counted == {"Pod": 1}
    assert [each["event"] for each in log] == ["journal event not written", "journal events lost"]


def run_alone(module, *arguments):
    """What a module of these tests tells that has to run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_full_disk_stops_nothing_and_what_waited_is_written_when_there_is_room(tmp_path):
    log, counted, during, after = run_alone("tests.store.filling", tmp_path)
    assert log == ["journal not written", "journal written again"]
    assert counted["Pod"] > 0
    assert during[1] is True
    assert during[2].startswith("ok, but it cannot be written: ")
    assert after == ["journal", True, "ok, 3 told"]
    assert told(tmp_path) == [("put", "a", "1"), ("put", "b", "1"), ("put", "c", "1")]
    assert read_history(tmp_path).gaps == []


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(tmp_path):
    # A thousand in the full run.
    rounds = int(os.environ.get("ALLOCGUARD_KILLS", "24"))
    done = run_alone("tests.store.killing", tmp_path, rounds)
    assert done["rounds"] == rounds
    assert done["last"] >= done["acknowledged"] >= rounds
    assert done["segment"] > "00000003.journal"
