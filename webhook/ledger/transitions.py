"""What a write of a node's ledger means for the claims in it: they wait no more, are charged, in use, released, or
never came.

A ledger is written over the very version that it was computed from, so one writer alone gets from one version to the
next, whoever leads: what is told of that step is told once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from webhook.facts.bookings import allocated_as
from webhook.facts.placement import consumers
from webhook.facts.times import instant
from webhook.facts.waits import delay
from webhook.kube.claims import Claim
from webhook.kube.finding import one_line
from webhook.kube.node_ledger import PLACE, BookedCharge, NodeLedger, Reservation
from webhook.kube.snapshot import Snapshot
from webhook.ledger.awaited import settled
from webhook.ledger.moments import Kind, Moment, costs, some, sums

# Why a charge is in the book that no review had announced: made while nobody was asked, or before there was a guard.
UNRESERVED = "not-reserved"
# What became of an allocation, and how it is said.
_ENDS = {
    "claim-gone": "the claim is gone",
    "deallocated": "the claim has no allocation any more",
    "allocated-again": "the claim has another allocation",
    "node-replaced": "the node is another one of that name",
    "allocated-elsewhere": "the claim is allocated elsewhere",
}

_Allocation = tuple[str, str]


def transitions(
    before: NodeLedger | None, after: NodeLedger, snapshot: Snapshot, begun: datetime, at: datetime
) -> list[Moment]:
    """The moments of the step from ``before`` (None: there was no ledger) to ``after``, by what ``snapshot`` shows of
    claims and pods; the write took from ``begun`` to ``at``.
    """
    return [*_Step(before or NodeLedger(after.node), after, snapshot, begun, at).moments()]


class _Step:
    def __init__(
        self, before: NodeLedger, after: NodeLedger, snapshot: Snapshot, begun: datetime, at: datetime
    ) -> None:
        self.before, self.after, self.snapshot = before, after, snapshot
        self.begun, self.at = min(begun, at), at
        self.node = after.node

    def moments(self) -> Iterator[Moment]:
        before, after = self.before.charges, self.after.charges
        for rows in _grouped(_without(before, after)):
            reason = self._end(rows[0])
            yield self._told("released", rows, f"released on node {self.node}: {sums(rows)}; {_ENDS[reason]}", reason)
        yield from self._lapsed()
        if added := _without(after, before):
            reserved, charged = set(map(_allocation, self.before.reservations)), set(map(_allocation, before))
            for rows in _grouped(added):
                name = _allocation(rows[0])
                reason = "" if name in reserved | charged else UNRESERVED
                beside = "; nothing was reserved for it" if reason else ""
                if name in reserved - charged:
                    yield from self._settled(rows[0])
                yield self._told("charged", rows, f"charged to node {self.node}: {costs(rows)}{beside}", reason)
        yield from self._bound()

    def _settled(self, row: BookedCharge) -> Iterator[Moment]:
        """That the claim waits no more, which its first charge shows to one writer alone."""
        claim = self.snapshot.claims_by_uid.get(row.claim_uid)
        if claim is not None and claim.allocation is not None:
            yield settled(claim, consumers(claim, self.snapshot), self.at)

    def _lapsed(self) -> Iterator[Moment]:
        """Reservations that went, and that nothing was ever booked for."""
        held = set(map(_allocation, self.after.reservations))
        gone = [
            each
            for each in self.before.reservations
            if each.charges and not each.seen and each.allocation != PLACE and _allocation(each) not in held
        ]
        known = {_allocation(row) for row in (*self.before.charges, *self.after.charges)} if gone else set()
        for each in gone:
            if _allocation(each) not in known:
                reason = self._end(each.charges[0])
                text = f"reserved on node {self.node} and never booked: {sums(each.charges)}; {_ENDS[reason]}"
                yield self._told("lapsed", each.charges, text, reason)

    def _bound(self) -> Iterator[Moment]:
        """The claims of pods that are counted on the node now, and were held for until then."""
        going = {(each.claim_uid, each.allocation, each.pod_uid): each for each in self.after.reservations}
        pods: dict[str, str] = {}
        for each in self.before.reservations:
            kept = going.get((each.claim_uid, each.allocation, each.pod_uid))
            over = kept.counted if kept is not None else self._runs(each)
            if each.pod_uid and over and not each.counted and each.allocation != PLACE:
                pods[each.pod_uid] = f"{each.pod_namespace}/{each.pod_name}"
        if not pods:
            return
        for rows in _grouped(self.after.charges):
            claim = self.snapshot.claims_by_uid.get(rows[0].claim_uid)
            users = [each.uid for each in (claim.reserved_for if claim is not None else ()) if each.uid in pods]
            if users:
                text = f"in use on node {self.node} by {some([pods[uid] for uid in users])}: {sums(rows)}"
                yield self._told("bound", rows, text, uids=users)

    def _runs(self, reservation: Reservation) -> bool:
        pod = self.snapshot.pods_by_uid.get(reservation.pod_uid)
        return pod is not None and pod.node == self.node and not pod.terminal

    def _end(self, row: BookedCharge) -> str:
        """What became of the allocation of ``row``."""
        claim: Claim | None = self.snapshot.claims_by_uid.get(row.claim_uid)
        if claim is None:
            return "claim-gone"
        if claim.allocation is None:
            return "deallocated"
        if not allocated_as(claim, row.allocation):
            return "allocated-again"
        return "allocated-elsewhere" if self.before.node_uid in ("", self.after.node_uid) else "node-replaced"

    def _told(
        self, kind: Kind, rows: tuple[BookedCharge, ...], text: str, reason: str = "", uids: Collection[str] = ()
    ) -> Moment:
        """The moment of the allocation of ``rows``, for those of its pods with ``uids``, or for all of them."""
        row = rows[0]
        claim = self.snapshot.claims_by_uid.get(row.claim_uid)
        pods = claim.reserved_for if claim is not None and allocated_as(claim, row.allocation) else ()
        pods = tuple([each for each in pods if each.is_pod and (not uids or each.uid in uids)])
        return Moment(
            kind=kind,
            begun=self.begun,
            at=self.at,
            uid=row.claim_uid,
            namespace=row.namespace,
            name=row.name,
            text=one_line(text),
            reason=reason,
            node=self.node,
            allocation=row.allocation,
            drivers=tuple(dict.fromkeys(each.driver for each in rows)),
            pods=tuple([f"{row.namespace}/{each.name}" for each in pods]),
            pod_uids=tuple([each.uid for each in pods if each.uid]),
            charges=rows,
            delay=delay(claim, instant(row.allocation)) if claim is not None else timedelta(),
        )


def _allocation(row: BookedCharge | Reservation) -> _Allocation:
    return row.claim_uid, row.allocation


def _without(rows: Sequence[BookedCharge], others: Sequence[BookedCharge]) -> list[BookedCharge]:
    """Those of ``rows`` whose key none of ``others`` has. What stays is mostly the same object."""
    same = set(map(id, others))
    left = [row for row in rows if id(row) not in same]
    keys = {row.key for row in others} if left else set()
    return [row for row in left if row.key not in keys]


def _grouped(rows: Iterable[BookedCharge]) -> Iterable[tuple[BookedCharge, ...]]:
    """The rows of each allocation."""
    found: dict[_Allocation, list[BookedCharge]] = {}
    for row in rows:
        found.setdefault(_allocation(row), []).append(row)
    return map(tuple, found.values())
