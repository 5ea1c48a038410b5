"""Events: every change of an object that the ledger is a fold over, as it is kept and exported."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from webhook.facts.times import instant, stamp
from webhook.kube.raw import Json, mapping, objects, text
from webhook.kube.snapshot import KINDS, group_of

Type = Literal["put", "gone"]
Place = tuple[str, str, str]


class Event(Struct, frozen=True, gc=False):
    """One object as it was seen (``put``), or that it was gone. ``resource_version`` of a gone object is the one that
    its deletion has, or else the last one that was seen of it.

    ``observed`` is when we learned of it, ``written`` when it was last written as far as its metadata tell (RFC 3339,
    empty if they do not). ``object`` is the raw object; of one that is gone it may be missing.
    """

    type: Type
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    observed: datetime
    written: str
    object: Json | None

    @property
    def place(self) -> Place:
        """(kind, namespace, name): objects with one place follow each other, whatever their UIDs."""
        return (self.kind, self.namespace, self.name)

    def bare(self) -> Json:
        """An object of this place with nothing but its name, as :meth:`Snapshot.remove` takes it."""
        group = group_of(self.kind)
        metadata = {"namespace": self.namespace, "name": self.name}
        return {"apiVersion": f"{group}/v1" if group else "v1", "kind": self.kind, "metadata": metadata}


def event_of(obj: Json, observed: datetime, gone: bool = False) -> Event:
    """The event that ``obj`` was seen at ``observed``, or, with its last known state, that it was gone.

    Raises ValueError for an object that has no name, or is of a kind that no snapshot holds.
    """
    kind, metadata = text(obj.get("kind")), mapping(obj.get("metadata"))
    _check(kind, text(obj.get("apiVersion")), "")
    name = text(metadata.get("name"))
    if not name:
        raise ValueError("metadata.name: has nothing, needs a name")
    times = [text(row.get("time")) for _, row in objects(metadata.get("managedFields"))]
    return Event(
        "gone" if gone else "put",
        kind,
        text(metadata.get("namespace")),
        name,
        text(metadata.get("uid")),
        text(metadata.get("resourceVersion")),
        observed,
        max((text(metadata.get("creationTimestamp")), *times)),
        obj,
    )


def event_json(event: Event) -> Json:
    """An event as exports hold it."""
    made: Json = {
        "type": event.type,
        "kind": event.kind,
        "namespace": event.namespace,
        "name": event.name,
        "uid": event.uid,
        "resourceVersion": event.resource_version,
        "observed": stamp(event.observed, "auto"),
        "written": event.written,
    }
    if event.object is not None:
        made["object"] = event.object
    return made


def read_event(raw: object, path: str = "event") -> Event:
    """The event that :func:`event_json` wrote. Raises ValueError, with the path, for what is none."""
    if not isinstance(raw, dict):
        raise ValueError(f"{path}: has no map, needs an event")
    change, name, written = (_text(raw, member, path) for member in ("type", "name", "written"))
    if change not in ("put", "gone"):
        raise ValueError(f"{path}.type: has {change[:40]!r}, needs put or gone")
    if not name:
        raise ValueError(f"{path}.name: has nothing, needs a name")
    observed = instant(_text(raw, "observed", path))
    if observed is None:
        raise ValueError(f"{path}.observed: has {raw.get('observed')!r:.40}, needs a time stamp")
    obj = raw.get("object")
    if obj is None and change == "put":
        raise ValueError(f"{path}.object: has nothing, needs the object that was put")
    if obj is not None and not isinstance(obj, dict):
        raise ValueError(f"{path}.object: has no map, needs an object")
    event = Event(
        "gone" if change == "gone" else "put",
        _text(raw, "kind", path),
        _text(raw, "namespace", path),
        name,
        _text(raw, "uid", path),
        _text(raw, "resourceVersion", path),
        observed,
        written,
        obj,
    )
    _check(event.kind, None, f"{path}.")
    if obj is not None:
        _agrees(event, obj, f"{path}.object")
    return event


def _agrees(event: Event, obj: Json, path: str) -> None:
    _check(text(obj.get("kind")), text(obj.get("apiVersion")), f"{path}.")
    metadata = mapping(obj.get("metadata"))
    told = {"kind": (event.kind, obj.get("kind"))}
    for member, value in (("namespace", event.namespace), ("name", event.name), ("uid", event.uid)):
        told[f"metadata.{member}"] = (value, metadata.get(member) or "")
    if event.type == "put":
        told["metadata.resourceVersion"] = (event.resource_version, metadata.get("resourceVersion") or "")
    for member, (wanted, has) in told.items():
        if wanted != has:
            raise ValueError(f"{path}.{member}: has {has!r:.80}, needs {wanted[:80]!r} as its event says")


def _check(kind: str, version: str | None, path: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"{path}kind: has {kind[:40] or 'nothing'}, needs one of {', '.join(sorted(KINDS))}")
    if version is not None and (version.partition("/")[0] if "/" in version else "") != group_of(kind):
        raise ValueError(f"{path}apiVersion: has {version[:60] or 'nothing'}, needs the group {group_of(kind) or 'v1'}")


def _text(raw: Json, member: str, path: str) -> str:
    value = raw.get(member, "")
    if not isinstance(value, str):
        raise ValueError(f"{path}.{member}: has {value!r:.40}, needs a text")
    return value
