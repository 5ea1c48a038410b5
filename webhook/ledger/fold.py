"""The ledger as a fold over events: whatever order they come in, however often, the same events give the same book.

What is kept are the newest state of every object, every version of a mapping and the lowest version at which each
allocation was seen; the ledgers of the nodes follow from these. All of it only ever grows by what an event adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Literal

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from webhook.facts.placement import claim_node
from webhook.kube.claims import read_allocation
from webhook.kube.node_ledger import KIND, BookedCharge, NodeLedger, Reservation, stored_node_ledger
from webhook.kube.raw import mapping, text
from webhook.kube.release import Release
from webhook.kube.resource import stored_slice
from webhook.kube.resource_version import version
from webhook.kube.snapshot import Snapshot
from webhook.ledger.booking import advance
from webhook.ledger.events import Event, Place
from webhook.ledger.formulas import Formulas, when_seen
from webhook.ledger.touched import touched

EffectKind = Literal["charged", "released", "changed", "reserved", "unreserved", "stale", "duplicate"]


class Effect(Struct, frozen=True, gc=False):
    """What an event did. ``stale`` and ``duplicate`` are about the event's own object (``kind_of``, ``namespace``,
    ``name``); the others about a claim on ``node``, with the charge (as it now is; as it was, when released) or the
    reservation.
    """

    kind: EffectKind
    kind_of: str
    namespace: str
    name: str
    node: str = ""
    charge: BookedCharge | None = None
    reservation: Reservation | None = None


class Seen(Struct, frozen=True, gc=False):
    """The newest event of one place: the order of events is the order of resourceVersions, after all that have none,
    which are in the order in which they were observed; that an object is gone comes after its last state.
    """

    uid: str
    version: int
    gone: bool
    observed: datetime


class Ledger(Struct, frozen=True):
    """Everything that the events so far say. ``snapshot`` holds the objects, and in :attr:`Snapshot.ledgers` what is
    booked; ``published`` are the ledgers that were among the events, and ``named`` their nodes by the UIDs of claims
    and pods in them; ``stale`` and ``duplicates`` count events by kind.
    """

    snapshot: Snapshot
    seen: Map[Place, Seen] = Map()
    formulas: Formulas = Formulas()
    published: Map[str, NodeLedger] = Map()
    named: Map[str, frozenset[str]] = Map()
    stale: Map[str, int] = Map()
    duplicates: Map[str, int] = Map()


def apply(ledger: Ledger, event: Event) -> tuple[Ledger, tuple[Effect, ...]]:
    """The ledger after ``event``, and what that did: to the event's object and to the nodes that it touches."""
    order = _order(event, ledger.seen.get(event.place))
    formulas = _learned(ledger.formulas, event)
    effects: list[Effect] = []
    before = ledger.snapshot
    if order != "new":
        effects.append(Effect(order, event.kind, event.namespace, event.name))
        counted = _counted(ledger, event.kind, order)
        if formulas is ledger.formulas:
            return counted, tuple(effects)
        ledger, snapshot = counted, before
    else:
        ledger = replace(ledger, seen=ledger.seen.set(event.place, _seen(event)))
        if event.kind == KIND:
            ledger, snapshot = _with_published(ledger, event), before
        else:
            snapshot = _put(before, event)
    pools = formulas.pools.get(event.name, ()) if event.kind == "ResourceSlice" else ()
    nodes = touched(event, before, snapshot, ledger.published, ledger.named, pools)
    for node in sorted(nodes):
        held = before.ledgers.get(node)
        made = _advanced(ledger.published.get(node), snapshot, node, formulas)
        if made != held:
            effects += _effects(held or NodeLedger(node), made or NodeLedger(node))
            snapshot = _with(snapshot, node, made)
    return replace(ledger, snapshot=snapshot, formulas=formulas), tuple(effects)


def fold(events: Iterable[Event], release: Release) -> Ledger:
    """What :func:`apply` gives for all ``events``, one after the other, in a fraction of the time: nothing is made of a
    state that a later event replaces.
    """
    seen: dict[Place, Seen] = {}
    latest: dict[Place, Event] = {}
    counts: dict[str, dict[str, int]] = {"stale": {}, "duplicate": {}}
    formulas = Formulas()
    for event in events:
        place = event.place
        formulas = _learned(formulas, event)
        order = _order(event, seen.get(place))
        if order == "new":
            seen[place] = _seen(event)
            latest[place] = event
        else:
            by_kind = counts[order]
            by_kind[event.kind] = by_kind.get(event.kind, 0) + 1
    snapshot = Snapshot(release)
    stale, duplicates = (Map(counts[order]) for order in ("stale", "duplicate"))
    ledger = Ledger(snapshot, Map(seen), formulas, stale=stale, duplicates=duplicates)
    for event in latest.values():
        if event.kind == KIND:
            ledger = _with_published(ledger, event)
        elif event.type == "put":
            snapshot = _put(snapshot, event)
    allocated = (claim for claim in snapshot.claims.values() if claim.allocation is not None)
    for node in {*ledger.published, *(claim_node(claim, snapshot) for claim in allocated)} - {""}:
        snapshot = _with(snapshot, node, _advanced(ledger.published.get(node), snapshot, node, formulas))
    return replace(ledger, snapshot=snapshot)


def news(events: Iterable[Event]) -> Iterator[Event]:
    """Those of ``events`` that tell something newer of their object than the ones before them."""
    seen: dict[Place, Seen] = {}
    for event in events:
        place = event.place
        if _order(event, seen.get(place)) == "new":
            seen[place] = _seen(event)
            yield event


def _order(event: Event, known: Seen | None) -> Literal["new", "stale", "duplicate"]:
    if known is None:
        return "new"
    gone, now = event.type == "gone", version(event.resource_version)
    if now != known.version:
        return "new" if now > known.version else "stale"
    if now < 0 and event.observed != known.observed:
        return "new" if event.observed > known.observed else "stale"
    if gone == known.gone:
        return "duplicate"
    return "new" if gone else "stale"


def _seen(event: Event) -> Seen:
    return Seen(event.uid, version(event.resource_version), event.type == "gone", event.observed)


def _counted(ledger: Ledger, kind: str, order: Literal["stale", "duplicate"]) -> Ledger:
    if order == "stale":
        return replace(ledger, stale=ledger.stale.set(kind, ledger.stale.get(kind, 0) + 1))
    return replace(ledger, duplicates=ledger.duplicates.set(kind, ledger.duplicates.get(kind, 0) + 1))


def _learned(formulas: Formulas, event: Event) -> Formulas:
    """What is known of mappings and allocations after ``event``, which may come late for everything else."""
    if event.kind == "ResourceSlice":
        when = when_seen(event)
        if event.object is None or event.type == "gone":
            return formulas.without_slice(event.name, when)
        return formulas.with_slice(stored_slice(event.object), when)
    if event.kind == "ResourceClaim" and event.object is not None:
        raw = mapping(event.object.get("status")).get("allocation")
        if raw is not None and event.type == "put":
            # Nearly every allocation has a time stamp, which is quicker to read than what it is of.
            identity = text(mapping(raw).get("allocationTimestamp"))
            if not identity:
                allocation = read_allocation(raw)
                identity = allocation.identity if allocation is not None else ""
            claim = event.uid or f"{event.namespace}/{event.name}"
            return formulas.with_allocation(claim, identity, when_seen(event))
    return formulas


def _put(snapshot: Snapshot, event: Event) -> Snapshot:
    return snapshot.remove(event.bare()) if event.object is None or event.type == "gone" else snapshot.put(event.object)


def _published(published: Map[str, NodeLedger], event: Event) -> Map[str, NodeLedger]:
    if event.object is None or event.type == "gone":
        return published.delete(event.name) if event.name in published else published
    return published.set(event.name, stored_node_ledger(event.object))


def _with_published(ledger: Ledger, event: Event) -> Ledger:
    published, named = _published(ledger.published, event), ledger.named
    for uid in _uids(ledger.published.get(event.name)):
        named = named.set(uid, named[uid] - {event.name})
    for uid in _uids(published.get(event.name)):
        named = named.set(uid, named.get(uid, frozenset()) | {event.name})
    return replace(ledger, published=published, named=named)


def _uids(ledger: NodeLedger | None) -> set[str]:
    if ledger is None:
        return set()
    pods = (each.pod_uid for each in ledger.reservations)
    return {row.claim_uid for row in ledger.charges} | {each.claim_uid for each in ledger.reservations} | set(pods)


def _advanced(held: NodeLedger | None, snapshot: Snapshot, node: str, formulas: Formulas) -> NodeLedger | None:
    made = advance(held, snapshot, node, formulas)
    return made if held is not None or made.charges or made.reservations else None


def _with(snapshot: Snapshot, node: str, made: NodeLedger | None) -> Snapshot:
    if made is not None:
        return snapshot.with_ledger(made)
    return replace(snapshot, ledgers=snapshot.ledgers.delete(node)) if node in snapshot.ledgers else snapshot


def _effects(before: NodeLedger, after: NodeLedger) -> Iterator[Effect]:
    old, new = ({row.key: row for row in ledger.charges} for ledger in (before, after))
    for key, row in old.items():
        if key not in new:
            yield _about("released", row, after.node)
    for key, row in new.items():
        if key not in old:
            yield _about("charged", row, after.node)
        elif row != old[key]:
            yield _about("changed", row, after.node)
    held, holds = ({(each.claim_uid, each.allocation): each for each in it.reservations} for it in (before, after))
    for one, reservation in held.items():
        if one not in holds:
            yield _holding("unreserved", reservation, after.node)
    for one, reservation in holds.items():
        if one not in held:
            yield _holding("reserved", reservation, after.node)


def _about(kind: EffectKind, row: BookedCharge, node: str) -> Effect:
    return Effect(kind, "ResourceClaim", row.namespace, row.name, node, charge=row)


def _holding(kind: EffectKind, reservation: Reservation, node: str) -> Effect:
    return Effect(kind, "ResourceClaim", reservation.namespace, reservation.name, node, reservation=reservation)
