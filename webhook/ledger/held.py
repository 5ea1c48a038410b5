"""What the ledger of a node holds, as the book asks for it: charges by claim, reservations by claim and by pod."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.facts.account import ClaimPart, PodPart, add
from webhook.facts.bookings import allocated_as, made_for, released
from webhook.facts.placement import consumers, moved
from webhook.kube.claims import Claim
from webhook.kube.core import Node
from webhook.kube.finding import Finding
from webhook.kube.node_ledger import KIND, PLACE, BookedCharge, NodeLedger, Reservation
from webhook.kube.quantity import Number
from webhook.kube.resource_version import version
from webhook.kube.rollout import API_VERSION
from webhook.kube.snapshot import Snapshot
from webhook.ledger.booked import (
    Booked,
    arrived,
    by_key,
    earlier,
    left,
    outdated,
    part_of,
    shown,
)
from webhook.ledger.charges import Charge, ChargeKey, Difference

_NOTHING: dict[ChargeKey, BookedCharge] = {}


class Held:
    """A NodeLedger (None: the node has none) by what is asked for. ``claims`` and ``pods`` are the UIDs that it names;
    of several reservations for one pod the one that was taken last, and still holds, says what it asks for. What is
    equal in the one ``before`` it is the very same object here.
    """

    def __init__(self, ledger: NodeLedger | None, node: str, before: Held | None = None) -> None:
        self.ledger = ledger
        self.node = node
        self.reservations: dict[str, list[Reservation]] = {}
        for each in ledger.reservations if ledger is not None else ():
            self.reservations.setdefault(each.claim_uid, []).append(each)
        self._rows: dict[str, dict[ChargeKey, BookedCharge]] = {}
        for key, row in by_key(ledger.charges if ledger is not None else (), node).items():
            self._rows.setdefault(row.claim_uid, {})[key] = row
        for uid, rows in self._rows.items():
            if before is not None and before._rows.get(uid) == rows:
                self._rows[uid] = before._rows[uid]
        self.claims = tuple(dict.fromkeys((*self._rows, *self.reservations)))
        taken = sorted(ledger.reservations if ledger is not None else (), key=lambda each: (each.taken, each.claim_uid))
        self.pods: dict[str, list[Reservation]] = {}
        for each in reversed(taken):
            if each.pod_uid:
                self.pods.setdefault(each.pod_uid, []).append(each)

    def booked(self, claim: Claim) -> Booked:
        """What is booked for the allocation that ``claim`` has; that of a reservation too, now that it is seen."""
        rows = self._rows.get(claim.id, _NOTHING)
        for each in self.reservations.get(claim.id, ()):
            if each.charges and arrived(each, claim):
                rows = {**by_key(each.charges, self.node), **rows}
        if all(made_for(row, claim) for row in rows.values()):
            return rows
        return {key: row for key, row in rows.items() if made_for(row, claim)}

    def outdated(self, claim: Claim) -> bool:
        """Whether a later allocation of ``claim`` is booked or reserved here than the one that it is seen with."""
        for each in self.reservations.get(claim.id, ()):
            if each.allocation == PLACE:
                continue
            # Only a claim that was released is given another allocation.
            before = version(claim.resource_version) < 0 or earlier(each, claim)
            if before and not each.seen and not arrived(each, claim) and _counts(each, claim):
                return True
        rows = self._rows.get(claim.id)
        return rows is not None and outdated(claim, rows.values(), self.node)

    def unseen(self, snapshot: Snapshot) -> dict[str, list[Reservation]]:
        """The reservations whose allocation the snapshot does not show yet, by claim."""
        found: dict[str, list[Reservation]] = {}
        for uid, reservations in self.reservations.items():
            claim = snapshot.claims_by_uid.get(uid)
            waiting = [
                each
                for each in reservations
                if not each.seen and not arrived(each, claim) and not left(each, claim) and _counts(each, claim)
            ]
            if waiting:
                found[uid] = waiting
        return found

    def others(self, known: set[str], snapshot: Snapshot, node: Node) -> Iterator[tuple[Claim | None, list[Charge]]]:
        """What is booked for claims that are not among ``known``: the watch does not show them here, and does not show
        either that they are released.
        """
        if self.ledger is None or (self.ledger.node_uid and self.ledger.node_uid != node.uid):
            return
        for uid, rows in self._rows.items():
            claim = snapshot.claims_by_uid.get(uid)
            if uid in known or (claim is not None and moved(claim, self.node, snapshot)):
                continue
            kept = [row for row in rows.values() if not released(row, claim, self.node)]
            if kept:
                names = claim.reserved_for if claim is not None else ()
                pods = tuple(dict.fromkeys(f"{kept[0].namespace}/{each.name}" for each in names if each.is_pod))
                users = consumers(claim, snapshot) if claim is not None else ()
                bound = any(pod.node == self.node and not pod.terminal for pod in users)
                yield claim, [shown(row, self.node, pods, "bound" if bound else "allocated") for row in kept]

    def expected(self, reservations: list[Reservation]) -> tuple[list[Charge], ClaimPart]:
        """The charges of one claim's reservations whose allocation is not seen yet."""
        pods = tuple(f"{each.pod_namespace}/{each.pod_name}" for each in reservations if each.pod_name)
        rows = by_key((row for each in reservations for row in each.charges), self.node)
        charges = [shown(row, self.node, pods, "reserved") for row in rows.values()]
        return charges, part_of(charges, reserved=True)

    def coming(self, snapshot: Snapshot, computed: dict[str, PodPart]) -> Iterator[tuple[str, PodPart]]:
        """The parts of pods that are held and not counted anywhere; ``computed`` are those that the objects give."""
        for uid, reservations in self.pods.items():
            pod = snapshot.pods_by_uid.get(uid)
            if pod is not None and (pod.node or pod.terminal):
                continue
            each = next((each for each in reservations if _holds(each, snapshot)), None)
            if each is None:
                continue
            seen = arrived(each, snapshot.claims_by_uid.get(each.claim_uid))
            known = computed.get(uid) if seen else None
            # What was judged with the claims that are on their way, until they are seen.
            requests: dict[str, Number] = dict(each.pod_request if known is None else known.requests)
            add(requests, each.siblings)
            yield uid, PodPart(requests, {} if known is None else known.overhead, reserved=True)

    def problem(self) -> Difference | None:
        """That the ledger cannot be read."""
        if self.ledger is None or not self.ledger.problem:
            return None
        path, _, reason = self.ledger.problem.partition(": ")
        finding = Finding(
            "ledger-unreadable",
            path,
            f"a value that cannot be read ({reason})",
            "what the guard writes; nothing can be reserved on the node",
            "delete the NodeLedger: it is made again from what is allocated",
        )
        return Difference("amount", API_VERSION, KIND, "", self.node, finding)


def _holds(reservation: Reservation, snapshot: Snapshot) -> bool:
    """Whether a reservation still says that its pod is on its way: its allocation is to come, or is there."""
    claim = snapshot.claims_by_uid.get(reservation.claim_uid)
    if left(reservation, claim):
        return False
    gone = claim is not None and not arrived(reservation, claim) and not earlier(reservation, claim)
    return not (reservation.seen and gone)


def _counts(reservation: Reservation, claim: Claim | None) -> bool:
    """Whether a reservation that has not arrived stands for the charges of ``claim``; one for a further consumer of an
    allocation that is there does not.
    """
    return bool(reservation.charges) or not allocated_as(claim, reservation.allocation)


def unknown_claim(charges: list[Charge]) -> Difference:
    """The difference about charges whose claim nobody knows."""
    first = charges[0]
    finding = Finding(
        "claim-unknown",
        "status.charges",
        f"charges for claim {first.namespace}/{first.name}, which is not known",
        "a claim with this UID; they stay until it is certain that there is none",
        "give the claim too, or wait until the ledger has seen its release",
        "warning",
    )
    return Difference("surplus", API_VERSION, KIND, "", first.key.node, finding)
