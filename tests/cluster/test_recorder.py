"""What a view of a cluster tells its recorder."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fake_server import FakeServer
from tests.cluster.viewing import View
from webhook.cluster.files import Cluster
from webhook.cluster.kinds import KINDS
from webhook.cluster.recorder import Kept, Unrecorded

Json = dict[str, Any]


class Told(Unrecorded):
    def __init__(self):
        self.told: list[tuple[str, Any]] = []
        self.versions: list[str] = []
        self.wanting = False

    def put(self, obj):
        self.told.append(("put", obj["metadata"]["name"]))

    def gone(self, obj):
        self.told.append(("gone", obj["metadata"]["name"]))
        self.versions.append(obj["metadata"].get("resourceVersion", ""))

    def whole(self, kind, keys):
        if keys:
            self.told.append((kind, sorted(keys)))

    def judged(self, release):
        self.told.append(("judged", str(release)))

    def wants(self):
        wanting, self.wanting = self.wanting, False
        return wanting

    def take(self):
        told, self.told = self.told, []
        return told


def node(name: str, cpu: str = "8") -> Json:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}}}


def write(path: Path, *objects: Json) -> None:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))


def looked(cluster: Cluster) -> None:
    cluster.refresh()
    cluster.refresh()


def test_it_is_told_what_there_is_what_changes_and_what_goes(tmp_path):
    write(tmp_path / "a.json", node("n1"), node("n2"))
    recorder = Told()
    cluster = Cluster([str(tmp_path)], recorder=recorder)
    assert recorder.take() == [
        ("put", "n1"), ("put", "n2"), ("judged", "1.37"), ("Node", [("", "n1"), ("", "n2")])
    ]  # fmt: skip
    write(tmp_path / "a.json", node("n2", "16"), node("n3"))
    looked(cluster)
    assert recorder.take() == [("put", "n2"), ("put", "n3"), ("gone", "n1"), ("judged", "1.37")]
    looked(cluster)
    assert recorder.take() == []


def test_an_object_in_two_files_is_told_as_it_counts(tmp_path):
    write(tmp_path / "a.json", node("n1", "4"))
    write(tmp_path / "b.json", node("n1", "8"))
    kept = Kept()
    cluster = Cluster([str(tmp_path)], recorder=kept)
    assert kept.objects == [node("n1", "8")]
    (tmp_path / "b.json").unlink()
    looked(cluster)
    assert kept.objects == [node("n1", "4")]
    (tmp_path / "a.json").unlink()
    looked(cluster)
    assert kept.objects == []


def test_of_an_object_that_is_there_more_than_once_nothing_is_told_but_what_counts(tmp_path):
    # What is told before would be an earlier state, or a later one, of the same object.
    write(tmp_path / "a.json", node("n1", "1"), node("n1", "2"), node("n2", "3"))
    write(tmp_path / "b.json", node("n1", "4"), node("n1", "5"))
    recorder = Told()
    cluster = Cluster([str(tmp_path)], recorder=recorder)
    wanted = [("put", "n1"), ("put", "n2")]
    assert sorted(each for each in recorder.take() if each[0] == "put") == wanted
    recorder.wanting = True
    looked(cluster)
    assert sorted(each for each in recorder.take() if each[0] == "put") == wanted
    write(tmp_path / "a.json", node("n1", "6"), node("n1", "2"))
    write(tmp_path / "b.json", node("n1", "7"), node("n1", "8"))
    looked(cluster)
    assert recorder.take()[0] == ("put", "n1")
    (tmp_path / "b.json").unlink()
    looked(cluster)
    assert [each for each in recorder.take() if each[0] == "put"] == [("put", "n1")]


def test_everything_is_told_once_more_when_it_is_wanted(tmp_path):
    write(tmp_path / "a.json", node("n1"))
    write(tmp_path / "b.json", node("n1"), node("n2"))
    recorder = Told()
    cluster = Cluster([str(tmp_path)], recorder=recorder)
    recorder.take()
    recorder.wanting = True
    cluster.refresh()
    assert recorder.take() == [("put", "n1"), ("put", "n2"), ("Node", [("", "n1"), ("", "n2")])]


@pytest.fixture
def server():
    made = FakeServer(kind.path for kind in KINDS)
    yield made
    made.close()


@pytest.fixture
def watched(server, tmp_path):
    """A live view of ``server``, and its recorder."""
    recorder = Told()
    view = View(server.kubeconfig(tmp_path / "config"), recorder=recorder)
    yield view, recorder
    view.close()


NODES = next(kind.path for kind in KINDS if kind.name == "Node")


def eventually(ask):
    end = time.monotonic() + 20
    while not (answer := ask()):
        assert time.monotonic() < end, "not within time"
        time.sleep(0.01)
    return answer


def test_a_live_view_tells_what_there_is_what_changes_and_what_goes(server, watched):
    view, recorder = watched
    server.put(NODES, node("n1"))
    view.start()
    eventually(lambda: view.cluster.synced)
    assert {("put", "n1"), ("Node", (("", "n1"),)), ("judged", "1.36")} <= {
        (what, tuple(names) if isinstance(names, list) else names) for what, names in recorder.take()
    }
    server.put(NODES, node("n2"))
    server.delete(NODES, node("n1"))
    eventually(lambda: view.nodes() == ["n2"])
    assert recorder.take() == [("put", "n2"), ("gone", "n1")]
    assert recorder.versions[-1].isdigit()


def test_a_live_view_tells_everything_once_more_when_it_is_wanted(server, watched):
    view, recorder = watched
    server.put(NODES, node("n1"))
    view.start()
    eventually(lambda: view.cluster.synced)
    recorder.take()
    recorder.wanting = True
    server.bookmark(NODES)
    eventually(lambda: not recorder.wanting)
    server.bookmark(NODES)
    eventually(lambda: ("Node", [("", "n1")]) in recorder.told)
    assert ("put", "n1") in recorder.told
