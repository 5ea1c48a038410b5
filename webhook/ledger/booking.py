"""Booking: what the ledger of a node becomes when the snapshot moves on."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from webhook.facts.bookings import made_for, released
from webhook.facts.placement import moved
from webhook.kube.node_ledger import PLACE, BookedCharge, NodeLedger, Reservation
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import node_claims
from webhook.ledger.booked import (
    arrived,
    as_booked,
    booked_charge,
    by_key,
    device_booked,
    earlier,
    left,
    outdated,
)
from webhook.ledger.charges import ChargeKey, claim_charges
from webhook.ledger.differences import left_behind
from webhook.ledger.formulas import Formulas


def advance(
    held: NodeLedger | None,
    snapshot: Snapshot,
    node: str,
    formulas: Formulas | None = None,
    alive: frozenset[str] = frozenset(),
) -> NodeLedger:
    """The ledger of ``node`` after what ``snapshot`` shows; ``held`` is the one before (None: there is none yet).

    Allocations that are seen are booked once, under keys that stay, and keep amount and mapping version until they are
    seen no more. A reservation whose allocation is seen becomes these charges, and goes when its pod is counted, or
    with the allocation. One whose allocation was never seen stays: that it is dead a view cannot tell.

    With ``formulas`` (a fold over a history) an allocation is booked by the version of its mapping that was there when
    it was made, else by the one that is there now. ``alive`` are the UIDs of claims that are known to be there although
    the snapshot does not have them.
    """
    before = held or NodeLedger(node)
    known = snapshot.nodes.get(node)
    booked: dict[ChargeKey, BookedCharge] = {}
    if known is None:
        # A node that is gone, or not seen yet: what it holds is released with the claims.
        booked = _kept(before.charges, snapshot, node, alive)
        return replace(before, charges=_ordered(booked), reservations=_waiting(before.reservations, snapshot, alive))
    seen = by_key(before.charges, node)
    for reservation in before.reservations:
        if arrived(reservation, snapshot.claims_by_uid.get(reservation.claim_uid)):
            seen = {**by_key(reservation.charges, node), **seen}
    rows = _by_claim(seen)
    settled: set[str] = set()
    for claim in node_claims(snapshot, node):
        held_rows = rows.get(claim.id, {})
        if claim.id in settled or outdated(claim, held_rows.values(), node):
            continue
        settled.add(claim.id)
        made = claim_charges(claim, snapshot, node)
        mine = {key: row for key, row in held_rows.items() if made_for(row, claim)}
        first = claim.resource_version
        if formulas is not None:
            first = formulas.first_seen(claim)
            history = (device_booked(claim, each, first) for each in formulas.charges(claim, snapshot.rollouts))
            mine = {**by_key(history, node), **mine}
        made = as_booked(claim, made, mine, node)
        if not left_behind(claim, made, known):
            for charge in made.charges:
                booked[charge.key] = mine.get(charge.key) or booked_charge(charge, first)
    if before.node_uid in ("", known.uid):
        others = (row for row in seen.values() if row.claim_uid not in settled)
        booked |= _kept(others, snapshot, node, alive)
    return replace(
        before,
        node_uid=known.uid,
        charges=_ordered(booked),
        reservations=_waiting(before.reservations, snapshot, alive),
        boot_id=known.boot_id,
    )


def _by_claim(seen: dict[ChargeKey, BookedCharge]) -> dict[str, dict[ChargeKey, BookedCharge]]:
    found: dict[str, dict[ChargeKey, BookedCharge]] = {}
    for key, row in seen.items():
        found.setdefault(row.claim_uid, {})[key] = row
    return found


def _kept(
    rows: Iterable[BookedCharge], snapshot: Snapshot, node: str, alive: frozenset[str]
) -> dict[ChargeKey, BookedCharge]:
    """Those that no view shows to be released: the devices that would tell the node of a claim may be gone."""
    kept = (
        row
        for row in rows
        if (
            (claim := snapshot.claims_by_uid.get(row.claim_uid)) is not None
            and not released(row, claim, node)
            and not moved(claim, node, snapshot)
        )
        or (claim is None and row.claim_uid in alive)
    )
    return by_key(kept, node)


def _ordered(booked: dict[ChargeKey, BookedCharge]) -> tuple[BookedCharge, ...]:
    return tuple(sorted(booked.values(), key=lambda row: (row.namespace, row.name, row.key)))


def _waiting(reservations: Iterable[Reservation], snapshot: Snapshot, alive: frozenset[str]) -> tuple[Reservation, ...]:
    """The reservations that go on: of allocations not seen yet, of pods not counted yet, and places of pods that go on
    waiting.
    """
    waiting: list[Reservation] = []
    for each in reservations:
        claim, pod = snapshot.claims_by_uid.get(each.claim_uid), snapshot.pods_by_uid.get(each.pod_uid)
        over = pod is None or pod.node or pod.terminal
        if left(each, claim) or (each.allocation == PLACE and each.pod_uid and over):
            continue
        if claim is not None and arrived(each, claim):
            consumed = any(holder.uid == each.pod_uid for holder in claim.reserved_for)
            counted = pod is not None and (pod.node or pod.terminal)
            # An allocation may be there already when its next consumer is added.
            if each.pod_uid and not counted and (consumed or not each.seen):
                waiting.append(replace(each, charges=(), seen=consumed))
        elif not each.seen or earlier(each, claim) or (claim is None and each.claim_uid in alive):
            waiting.append(each)
    return tuple(waiting)
