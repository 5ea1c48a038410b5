from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from tests.ledger.builders import allocated, node, pod
from webhook.kube.release import Release
from webhook.kube.snapshot import KINDS, build, group_of
from webhook.ledger.events import Event, event_json, event_of, read_event

AT = datetime(2026, 1, 1, 12, 0, 0, 5000, UTC)


def claim(**metadata: Any) -> dict[str, Any]:
    made = allocated("c")
    made["metadata"].update(resourceVersion="7", creationTimestamp="2026-01-01T00:00:00Z", **metadata)
    return made


def test_an_event_tells_which_object_and_when() -> None:
    event = event_of(claim(managedFields=[{"time": "2026-01-01T00:00:09Z"}, {"time": "2026-01-01T00:00:05Z"}]), AT)
    assert event.place == ("ResourceClaim", "ns", "c")
    assert (event.type, event.uid, event.resource_version) == ("put", "uid-c", "7")
    assert (event.observed, event.written) == (AT, "2026-01-01T00:00:09Z")
    assert event_of(claim(), AT).written == "2026-01-01T00:00:00Z"
    assert event_of(claim(), AT, gone=True).type == "gone"


@pytest.mark.parametrize("gone", [False, True])
def test_what_is_written_is_read_again(gone: bool) -> None:
    event = event_of(claim(), AT, gone)
    assert read_event(orjson.loads(orjson.dumps(event_json(event)))) == event


def test_an_object_that_is_gone_need_not_be_there() -> None:
    event = Event("gone", "Node", "", "n1", "u1", "3", AT, "", None)
    assert read_event(event_json(event)) == event
    snapshot = build([node()], Release())
    assert not snapshot.remove(event.bare()).nodes


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_bare_object_is_the_one_of_its_place(kind: str) -> None:
    group = group_of(kind)
    version = f"{group}/v1alpha1" if group else "v1"
    obj = {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "ns"}}
    snapshot = build([obj], Release())
    assert snapshot.knows(obj)
    assert not snapshot.remove(event_of(obj, AT).bare()).knows(obj)


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        ({"kind": "Pod", "apiVersion": "v1"}, "metadata.name: has nothing"),
        ({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "x"}}, "kind: has Secret, needs one of"),
        ({"kind": "Pod", "apiVersion": "x/v1", "metadata": {"name": "x"}}, "apiVersion: has x/v1, needs the group v1"),
    ],
)
def test_what_is_no_object_of_ours_makes_no_event(obj: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        event_of(obj, AT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "moved"}, r"^event.type: has 'moved', needs put or gone"),
        ({"name": ""}, r"^event.name: has nothing"),
        ({"uid": 3}, r"^event.uid: has 3, needs a text"),
        ({"observed": "yesterday"}, r"^event.observed: has 'yesterday', needs a time stamp"),
        ({"kind": "Secret"}, r"^event.kind: has Secret, needs one of"),
        ({"object": None}, r"^event.object: has nothing"),
        ({"object": []}, r"^event.object: has no map"),
        ({"object": pod()}, r"^event.object.kind: has 'Pod', needs 'ResourceClaim'"),
        ({"resourceVersion": "8"}, r"^event.object.metadata.resourceVersion: has '7', needs '8'"),
        ({"uid": "other"}, r"^event.object.metadata.uid: has 'uid-c', needs 'other'"),
    ],
)
def test_a_bad_event_is_refused_with_its_place(change: dict[str, Any], message: str) -> None:
    raw = {**event_json(event_of(claim(), AT)), **change}
    with pytest.raises(ValueError, match=message):
        read_event(raw)


def test_a_list_is_no_event() -> None:
    with pytest.raises(ValueError, match=r"^events\[3\]: has no map, needs an event"):
        read_event([], "events[3]")
