from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from webhook.cluster.files import Cluster, choose_release, documents
from webhook.kube.documents import Document, Unreadable


def node(name: str, cpu: str = "8") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}}}


def resource_slice(name: str, **device: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "d.example",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "dev", **device}],
        },
    }


OLD = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}
NEW = {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}}}


def write(path: Path, *objects: dict[str, Any]) -> str:
    path.write_text("\n---\n".join(json.dumps(obj) for obj in objects))
    return str(path)


def cpu(cluster: Cluster, name: str) -> Any:
    known = cluster.snapshot.nodes.get(name)
    return known and known.allocatable["cpu"]


def looked(cluster: Cluster) -> list[str]:
    cluster.refresh()
    return cluster.refresh()


def test_reads_folders_files_and_lists(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", node("n1"), node("n2"))
    write(tmp_path / "b.json", {"apiVersion": "v1", "kind": "List", "items": [node("n3"), resource_slice("s")]})
    cluster = Cluster([str(tmp_path)])
    assert sorted(cluster.snapshot.nodes) == ["n1", "n2", "n3"]
    assert list(cluster.snapshot.slices) == ["s"]
    assert (cluster.problems, cluster.notes) == ((), [])


def test_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.TextIOWrapper(io.BytesIO(json.dumps(node("n1")).encode()))
    monkeypatch.setattr(sys, "stdin", text)
    assert list(Cluster(["-"]).snapshot.nodes) == ["n1"]


def test_the_later_of_two_counts_and_is_told(tmp_path: Path) -> None:
    first = write(tmp_path / "z.yaml", node("n1", "1"), node("n1", "2"))
    second = write(tmp_path / "a.yaml", node("n1", "3"))
    cluster = Cluster([first, second])
    assert cpu(cluster, "n1") == 3
    assert cluster.notes == [
        f"{second}: Node n1 stands in {first} too, the later one counts",
        f"{first}: document 2: Node n1 stands in document 1 too, the later one counts",
    ]
    assert cpu(Cluster([second, first]), "n1") == 2


def test_a_broken_file_is_named_and_the_others_serve(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", node("n1"))
    (tmp_path / "b.yaml").write_text("kind: Node\nmetadata: {name: [\n")
    (tmp_path / "c.json").write_bytes(b'{"kind": "\xff"}')
    cluster = Cluster([str(tmp_path)])
    assert list(cluster.snapshot.nodes) == ["n1"]
    assert [Path(problem.file).name for problem in cluster.problems] == ["b.yaml", "c.json"]
    assert all(problem.line >= 1 and problem.column >= 1 for problem in cluster.problems)


def test_an_object_without_a_name_is_left_out_and_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", {"apiVersion": "v1", "kind": "Node", "metadata": None}, node("n1"))
    cluster = Cluster([path])
    assert list(cluster.snapshot.nodes) == ["n1"]
    assert cluster.notes == [f"{path}: document 1: has no metadata.name, is left out"]


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Cluster([str(tmp_path / "none.yaml")])


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "dir.yaml").symlink_to("nowhere")
    found = list(documents([str(tmp_path)]))
    assert isinstance(found[0], Unreadable)
    assert "cannot be read: no such file" in found[0].message


def test_documents_come_with_their_place(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", node("n1"), node("n2"))
    found = [item for item in documents([path]) if isinstance(item, Document)]
    assert [(item.file, item.index, item.position("metadata.name")[0]) for item in found] == [
        (path, 1, 1),
        (path, 2, 3),
    ]


@pytest.mark.parametrize(
    ("shapes", "minor"),
    [
        ({}, 37),
        ({"1.36": 1}, 36),
        ({"1.37": 1}, 37),
        ({"1.36": 2, "1.37": 1}, 36),
        ({"1.36": 1, "1.37": 2}, 37),
        ({"1.36": 1, "1.37": 1}, 37),
    ],
)
def test_the_release_is_the_newest_that_fits_most_objects(shapes: dict[str, int], minor: int) -> None:
    assert choose_release(shapes, None, {}).minor == minor
    assert choose_release(shapes, 36, {"A": True}).minor == 36


def test_the_object_under_review_counts_for_the_release(tmp_path: Path) -> None:
    cluster = Cluster([write(tmp_path / "a.yaml", node("n1"))])
    assert cluster.snapshot_for(None) is cluster.snapshot
    assert cluster.snapshot_for(resource_slice("s")) is cluster.snapshot
    assert cluster.snapshot_for(resource_slice("s", **NEW)) is cluster.snapshot
    other = cluster.snapshot_for(resource_slice("s", **OLD))
    assert (other.release.minor, other.nodes is cluster.snapshot.nodes) == (36, True)
    assert cluster.snapshot_for(resource_slice("t", **OLD)) is other
    assert Cluster([str(tmp_path)], minor=37).snapshot_for(resource_slice("s", **OLD)).release.minor == 37


def test_edits_come_in(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", node("n1", "1"), node("n2"))
    cluster = Cluster([str(tmp_path)])
    assert looked(cluster) == []
    before = cluster.snapshot
    write(tmp_path / "a.yaml", node("n1", "16"))
    new = write(tmp_path / "b.yaml", resource_slice("s", **OLD))
    assert looked(cluster) == [path, new]
    assert (cpu(cluster, "n1"), cpu(cluster, "n2")) == (16, None)
    assert cluster.snapshot.release.minor == 36
    assert before.nodes["n1"].allocatable["cpu"] == 1
    (tmp_path / "b.yaml").unlink()
    assert looked(cluster) == [new]
    assert (list(cluster.snapshot.slices), cluster.snapshot.release.minor) == ([], 37)


@pytest.mark.parametrize("text", ["", '{"kind": "Node", "metadata": {"na', "a: [\n"])
def test_a_half_written_file_keeps_its_objects_and_is_told(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.yaml", node("n1", "1"))
    cluster = Cluster([path])
    (tmp_path / "a.yaml").write_text(text)
    assert looked(cluster) == [path]
    assert cpu(cluster, "n1") == 1
    assert [problem.file for problem in cluster.problems] == [path]
    write(tmp_path / "a.yaml", node("n1", "2"))
    looked(cluster)
    assert (cpu(cluster, "n1"), cluster.problems) == (2, ())


def test_a_file_that_now_is_an_empty_list_holds_nothing_and_a_pipe_among_files_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.yaml", node("n1"))
    os.mkfifo(tmp_path / "b.yaml")
    cluster = Cluster([str(tmp_path)])
    assert [problem.message for problem in cluster.problems] == ["cannot be read: is no regular file"]
    Path(path).write_text("apiVersion: v1\nkind: List\nitems: []\n")
    assert looked(cluster) == [path]
    assert cpu(cluster, "n1") is None


def test_an_earlier_file_comes_into_its_own_when_the_later_one_goes(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", node("n1", "1"))
    last = write(tmp_path / "b.yaml", node("n1", "2"))
    cluster = Cluster([str(tmp_path)])
    write(tmp_path / "a.yaml", node("n1", "3"))
    looked(cluster)
    assert cpu(cluster, "n1") == 2
    Path(last).unlink()
    looked(cluster)
    assert cpu(cluster, "n1") == 3


def test_what_is_wrong_with_a_rollout_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    head = "apiVersion: allocguard.dev/v1alpha1\nkind: DriverRollout\nmetadata: {name: d.example}\n"
    path.write_text(f"{head}spec:\n  stage: Generall\n")
    cluster = Cluster([str(path)])
    told = "spec.stage: has 'Generall', needs one of Off, Canary, Expanding, General; until then it counts as Off"
    assert cluster.notes == [f"{path}:5:3: DriverRollout d.example: {told}; did you mean General?"]
    assert cluster.snapshot.rollouts["d.example"].stage == "Off"


def test_a_ledger_that_cannot_be_read_is_told(tmp_path):
    path = tmp_path / "ledger.yaml"
    head = "apiVersion: allocguard.dev/v1alpha1\nkind: NodeLedger\nmetadata: {name: n1}\n"
    path.write_text(head + "status:\n  charges:\n  - {claimUID: u, allocation: a, driver: [d]}\n")
    cluster = Cluster([str(path)])
    told = "status.charges[0].driver: has a list, needs some text; it counts as empty"
    assert cluster.notes == [f"{path}:6:34: NodeLedger n1: {told}"]
    assert cluster.snapshot.ledgers["n1"].problem


def test_a_value_of_a_wrong_type_is_told_and_counts_as_absent(tmp_path):
    (tmp_path / "objects.yaml").write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus:\n  allocatable: {cpu: lots, memory: 1Gi}\n"
        "---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c, namespace: ns}\nstatus: [7]\n"
        "---\napiVersion: v1\nkind: Node\nmetadata: {name: n2}\nstatus: {allocatable: {cpu: '4'}, unknown: 1}\n"
    )
    cluster = Cluster([str(tmp_path)])
    assert [note.partition(": ")[0].rpartition("/")[2] for note in cluster.notes] == [
        "objects.yaml:5:17",
        "objects.yaml:10:1",
    ]
    assert all(note.endswith("; it counts as absent") for note in cluster.notes)
    assert "cpu" not in cluster.snapshot.nodes["n1"].allocatable
    assert cluster.snapshot.nodes["n2"].allocatable == {"cpu": 4}
