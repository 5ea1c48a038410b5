"""What policies would have decided about the allocations of a history, each at its own moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec import Struct

from webhook.admission.action import Answer, apply
from webhook.admission.decide import Verdict, decide
from webhook.facts.placement import claim_node
from webhook.kube.admission import raw_request, read_request
from webhook.kube.claims import Claim, read_claim
from webhook.kube.raw import Json
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot
from webhook.ledger import fold
from webhook.ledger.book import Book
from webhook.ledger.events import Event, Place
from webhook.policy.revision import Revision

_SCHEDULER = "system:kube-scheduler"


class Decision(Struct, frozen=True):
    """One write that allocated ``claim`` or gave it another consumer, and what the policies say about it."""

    event: Event
    claim: Claim
    node: str
    verdict: Verdict
    answer: Answer


def decisions(history: Iterable[Event], release: Release, revision: Revision, begins: datetime) -> Iterator[Decision]:
    """The decisions of ``revision`` about every such write in ``history``, in order, each by what had been seen before
    it. An allocation that stood when the history began (``begins``) is judged as if it were written then, beside all
    others.
    """
    ledger = fold.Ledger(Snapshot(release))
    book = Book()
    claims: dict[Place, Json] = {}
    standing: dict[Place, Event] = {}
    for event in history:
        if standing and event.observed > begins:
            yield from _stood(standing.values(), ledger.snapshot, book, revision)
            standing.clear()
        before = claims.get(event.place) if event.kind == "ResourceClaim" else None
        after, effects = fold.apply(ledger, event)
        news = not any(each.kind in ("stale", "duplicate") for each in effects)
        if news and event.kind == "ResourceClaim" and event.type == "put" and event.object is not None:
            claim = read_claim(event.object)
            if before is not None and _asks(claim, read_claim(before)):
                yield _decided(event, claim, before, ledger.snapshot, book, revision)
            elif before is None and claim.allocation is not None and event.observed <= begins:
                standing[event.place] = event
            claims[event.place] = event.object
        elif news and event.kind == "ResourceClaim":
            claims.pop(event.place, None)
        ledger = after
    yield from _stood(standing.values(), ledger.snapshot, book, revision)


def _stood(events: Iterable[Event], snapshot: Snapshot, book: Book, revision: Revision) -> Iterator[Decision]:
    for event in events:
        obj = event.object or {}
        yield _decided(event, read_claim(obj), {**obj, "status": {}}, snapshot, book, revision)


def _asks(claim: Claim, before: Claim) -> bool:
    """Whether the write from ``before`` to ``claim`` takes something: what gives back is never judged."""
    if claim.id != before.id or claim.allocation is None:
        return False
    if before.allocation is None or before.allocation.identity != claim.allocation.identity:
        return True
    return bool({each.uid for each in claim.reserved_for} - {each.uid for each in before.reserved_for})


def _decided(event: Event, claim: Claim, before: Json, snapshot: Snapshot, book: Book, revision: Revision) -> Decision:
    raw = raw_request("UPDATE", event.object, before, user=_SCHEDULER, sub_resource="status")
    verdict = decide(read_request(raw), "validate", revision, snapshot, book, event.observed)
    return Decision(event, claim, claim_node(claim, snapshot), verdict, apply(verdict))
