"""Replay: an export folded again from zero, and what of it is not what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from webhook.kube.node_ledger import KIND as NODE_LEDGER
from webhook.kube.raw import Json, mapping
from webhook.ledger.book import Book
from webhook.ledger.charges import Difference
from webhook.ledger.events import Event, event_of
from webhook.ledger.export import Export
from webhook.ledger.fold import Ledger, fold
from webhook.ledger.statement import compared, statement


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came out of a replay of ``events`` events: the ledger, and the ``differences`` to what was recorded."""

    events: int
    ledger: Ledger
    differences: tuple[Difference, ...]


def replay(export: Export, events: Sequence[Event] | None = None) -> Replayed:
    """The history of ``export``, or ``events`` in its place, folded from zero and compared with its accounts."""
    history = export.history() if events is None else events
    ledger = fold(history, export.release)
    found = compared(export.statement, statement(Book(), ledger.snapshot), ("as recorded", "after the replay"))
    return Replayed(len(history), ledger, tuple(found))


def edited(export: Export, edits: Sequence[Json]) -> list[Event]:
    """The history of ``export`` as it would have been with ``edits``: wherever an object of the same kind, namespace
    and name was put, it is the edited one, with its own metadata and, of a slice, its own pool. An object that was
    never there is there from the beginning. What ledgers had booked by the mappings of then is left out.

    Raises ValueError for an edit of a kind that no account depends on, or without a name.
    """
    wanted = {event.place: event for event in (event_of(obj, export.begins) for obj in edits)}
    history = [event for event in export.history() if event.kind != NODE_LEDGER]
    known = {event.place for event in history if event.type == "put"}
    made = [event for place, event in wanted.items() if place not in known]
    for event in history:
        edit = wanted.get(event.place)
        if edit is not None and edit.object is not None and event.object is not None:
            event = _with(event, event.object, edit.object)
        made.append(event)
    return made


def _with(event: Event, obj: Json, edit: Json) -> Event:
    content = {name: part for name, part in edit.items() if name not in ("apiVersion", "kind", "metadata")}
    if event.kind == "ResourceSlice":
        content["spec"] = {**mapping(edit.get("spec")), "pool": mapping(obj.get("spec")).get("pool")}
    elif event.kind == "Pod" or event.kind == "ResourceClaim":
        # Only what was asked for: what became of it is what the history tells.
        content.pop("status", None)
    return replace(event, object={**obj, **content})
