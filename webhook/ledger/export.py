"""The export of a ledger: what there was, what happened, and what the accounts said in the end, as one document.

Enough to fold everything again from zero, and to see whether the same comes out; without anything that may be secret.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from webhook.facts.times import instant, stamp
from webhook.kube.raw import Json, mapping, sequence, text
from webhook.kube.release import Release, parse_version
from webhook.kube.rollout import API_VERSION
from webhook.ledger.events import Event, event_json, event_of, read_event
from webhook.ledger.recorded import digest, encoded, recorded

KIND: Final = "LedgerExport"
FORMAT: Final = 1


class Export(Struct, frozen=True):
    """``objects`` are those that there were at ``begins``, raw, ``events`` what happened since; ``statement`` is what
    the accounts said at ``made`` (:func:`webhook.ledger.statement.statement`). ``gaps`` says where events were lost,
    ``journal`` is the digest over the journal that it comes from, empty for one that comes from none.
    """

    made: datetime
    release: Release
    begins: datetime
    objects: tuple[Json, ...]
    events: tuple[Event, ...]
    statement: Json
    gaps: tuple[Json, ...] = ()
    journal: str = ""

    def history(self) -> list[Event]:
        """Everything from zero on, as events. Objects that are from no journal are what there was at one moment: each
        slice was there whenever the claims were allocated, since nobody knows of one before it.
        """
        begins = [event_of(obj, self.begins) for obj in self.objects]
        if not self.journal:
            begins = [replace(each, resource_version="") if each.kind == "ResourceSlice" else each for each in begins]
        return [*begins, *self.events]


def kept_objects(objects: Iterable[Json]) -> tuple[Json, ...]:
    """Of raw objects what an export holds of them, decoded; those that no account depends on are left out."""
    return tuple(json.loads(encoded(kept)) for obj in objects if (kept := recorded(obj)) is not None)


def export_json(export: Export) -> Json:
    """The document, with the digest over all of it."""
    value: Json = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "format": FORMAT,
        "made": stamp(export.made),
        "release": {"version": str(export.release), "featureGates": dict(sorted(export.release.gates.items()))},
        "journal": export.journal,
        "gaps": list(export.gaps),
        "begins": export.begins.isoformat(),
        "objects": list(export.objects),
        "events": [event_json(event) for event in export.events],
        "statement": export.statement,
    }
    return {**value, "digest": digest(value)}


def read_export(value: Json) -> Export:
    """The export that :func:`export_json` wrote. Raises ValueError, with the path, for what is none, for another
    format, and for content that is not what the digest says.
    """
    if (value.get("apiVersion"), value.get("kind")) != (API_VERSION, KIND):
        raise ValueError(f"kind: has {text(value.get('kind'))[:60] or 'nothing'}, needs {KIND} of {API_VERSION}")
    if value.get("format") != FORMAT:
        raise ValueError(
            f"format: has {value.get('format')!r:.20}, needs {FORMAT}; read it with the release that made it"
        )
    content = {name: part for name, part in value.items() if name != "digest"}
    if value.get("digest") != digest(content):
        raise ValueError("digest: is not that of the content: the file was cut or edited; export it again")
    made, begins = (_moment(value, name) for name in ("made", "begins"))
    release = mapping(value.get("release"))
    minor = _minor(text(release.get("version")))
    gates = {str(name): on for name, on in mapping(release.get("featureGates")).items() if isinstance(on, bool)}
    objects = tuple(_object(each, f"objects[{index}]") for index, each in enumerate(_list(value, "objects")))
    events = tuple(read_event(each, f"events[{index}]") for index, each in enumerate(_list(value, "events")))
    for index, each in enumerate(objects):
        try:
            event_of(each, begins)
        except ValueError as error:
            raise ValueError(f"objects[{index}].{error}") from None
    gaps = tuple(
        {"observed": text(mapping(each).get("observed")), "lost": mapping(mapping(each).get("lost"))}
        for each in sequence(value.get("gaps"))
    )
    statement = mapping(value.get("statement"))
    return Export(made, Release(minor, gates), begins, objects, events, statement, gaps, text(value.get("journal")))


def _list(value: Json, name: str) -> list[object]:
    found = value.get(name)
    if not isinstance(found, list):
        raise ValueError(f"{name}: has {'nothing' if found is None else 'no list'}, needs a list")
    return found


def _moment(value: Json, name: str) -> datetime:
    moment = instant(text(value.get(name)))
    if moment is None:
        raise ValueError(f"{name}: has {value.get(name)!r:.40}, needs a time stamp")
    return moment


def _minor(version: str) -> int:
    try:
        return parse_version(version)
    except ValueError as error:
        raise ValueError(f"release.version: {error}") from None


def _object(value: object, path: str) -> Json:
    if not isinstance(value, dict):
        raise ValueError(f"{path}: has no map, needs an object")
    return value
