import copy
import json
from datetime import UTC, datetime

import msgspec
import pytest

from tests.ledger.builders import allocated, container, device, node, old, pod, result, slice_of, world
from webhook.kube.release import Release
from webhook.ledger.book import Book
from webhook.ledger.events import event_of
from webhook.ledger.export import Export, export_json, kept_objects, read_export
from webhook.ledger.recorded import digest
from webhook.ledger.statement import statement

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
OBJECTS = [
    node("n1", cpu="16"),
    slice_of(device("grp", old(key="cpus"), capacity={"cpus": "16"}, zone=0)),
    allocated("c", result("grp", consumed={"cpus": "3"}), pods=("p1",)),
    pod("p1", container(cpu="2", claims=("c",), env=[{"name": "A", "value": "hunter2"}]), claims=("c",)),
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "ns"}, "data": {"a": "hunter2"}},
]
MADE = Export(
    NOW,
    Release(37, {"DRANodeAllocatableResources": True}),
    NOW,
    kept_objects(OBJECTS),
    (event_of(pod("p2", container(cpu="1")), NOW), event_of(pod("p2"), NOW, gone=True)),
    statement(Book(), world(*OBJECTS)),
    ({"observed": "2026-11-30T11:00:00Z", "lost": {"Pod": 3}},),
    "sha256:journal",
)


def written():
    return json.loads(json.dumps(export_json(MADE)))


def test_what_is_written_is_read_again():
    assert read_export(written()) == MADE


def test_nothing_secret_is_in_it():
    assert "hunter2" not in json.dumps(written())
    assert {obj["kind"] for obj in written()["objects"]} == {"Node", "ResourceSlice", "ResourceClaim", "Pod"}


def test_devices_that_were_never_decoded_are_written_like_others():
    raw = copy.deepcopy(OBJECTS[1])
    raw["spec"]["devices"] = [msgspec.Raw(json.dumps(each).encode()) for each in raw["spec"]["devices"]]
    assert kept_objects([raw]) == kept_objects([OBJECTS[1]])


def test_the_history_is_the_objects_and_then_the_events():
    assert [event.name for event in MADE.history()] == ["n1", "s1", "c", "p1", "p2", "p2"]


def sealed(**changes):
    """An export with ``changes``, by somebody who knows how to make the digest."""
    value = {**written(), **changes}
    del value["digest"]
    return {**value, "digest": digest(value)}


def test_a_changed_value_is_found_by_the_digest():
    value = copy.deepcopy(written())
    value["statement"]["nodes"][0]["resources"]["cpu"]["claims"] = "4"
    with pytest.raises(ValueError, match=r"^digest: is not that of the content: the file was cut or edited"):
        read_export(value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "List"}, "kind: has List, needs LedgerExport of allocguard.dev/v1alpha1"),
        ({"apiVersion": None}, "kind: has LedgerExport, needs"),
        ({"format": 2}, "format: has 2, needs 1; read it with the release that made it"),
        ({"made": "yesterday"}, "made: has 'yesterday', needs a time stamp"),
        ({"begins": None}, "begins: has None, needs a time stamp"),
        ({"release": {"version": "1.12"}}, "release.version: has kubernetes version '1.12'"),
        ({"release": 7}, "release.version: has kubernetes version ''"),
        ({"objects": [7]}, r"objects\[0\]: has no map, needs an object"),
        ({"objects": [{"kind": "Secret"}]}, r"objects\[0\].kind: has Secret, needs one of"),
        ({"objects": [{"kind": "Node", "apiVersion": "v1"}]}, r"objects\[0\].metadata.name: has nothing"),
        ({"events": [{"type": "put"}]}, r"events\[0\].name: has nothing, needs a name"),
        ({"objects": None}, "objects: has nothing, needs a list"),
        ({"events": {"0": {}}}, "events: has no list, needs a list"),
        ({"events": [7]}, r"events\[0\]: has no map, needs an event"),
    ],
)
def test_what_is_no_export_is_refused_with_its_place(changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        read_export(sealed(**changes))


@pytest.mark.parametrize("junk", [None, 7, [3], "text"])
@pytest.mark.parametrize("member", ["gaps", "statement", "journal"])
def test_junk_in_what_is_only_told_counts_as_nothing(member, junk):
    read_export(sealed(**{member: junk}))


def test_junk_in_a_gap_counts_as_nothing():
    assert read_export(sealed(gaps=[3, {"observed": 3, "lost": "x"}])).gaps == ({"observed": "", "lost": {}},) * 2
