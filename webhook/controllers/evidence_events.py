"""What happens to a claim, as events about it and about the pods that wait for it. Runs on every replica, and remembers
nothing: what happened at several of them is one event, which each of them counts.

Told are refused allocations, charges, releases, what a claim waits for, and that a wait is over. That an allocation was
allowed is told by its charge. Writes that are only tried make no events, nor do refused creations: their object is none
that could be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from webhook.admission.record import Record
from webhook.admission.subject import Ref
from webhook.controllers.event_queue import Happening
from webhook.controllers.events import about_claim, about_pod
from webhook.kube.object_event import (
    ALLOCATION_REFUSED,
    CLAIM_CHARGED,
    CLAIM_PENDING,
    CLAIM_REFUSED,
    CLAIM_RELEASED,
    CLAIM_SETTLED,
)
from webhook.ledger.moments import Moment

# Pods that are told of at one write.
_MOST_PODS = 8
# Where pods run is told by their own events.
_REASONS = {
    "charged": CLAIM_CHARGED,
    "released": CLAIM_RELEASED,
    "lapsed": CLAIM_RELEASED,
    "pending": CLAIM_PENDING,
    "settled": CLAIM_SETTLED,
}


class EvidenceEvents:
    """Makes events of decisions and of moments, and gives them to ``offer``; from any thread."""

    def __init__(self, offer: Callable[[Happening], None]) -> None:
        self._offer = offer

    def record(self, record: Record) -> None:
        """Tell of a decision that refuses an allocation."""
        claim = record.claim
        refused = claim is not None and claim.uid and not record.answer.allowed and record.allocates
        if claim is not None and refused and not record.request.dry_run:
            self._refusal(record, claim)

    def moments(self, moments: Sequence[Moment]) -> None:
        """Tell what happened to claims; a wait for nothing in particular, as every claim has one, when it was long."""
        for each in moments:
            reason = _REASONS.get(each.kind)
            if reason is None or not each.uid or not each.notable:
                continue
            about = about_claim(each.namespace, each.name, each.uid)
            warning = each.kind in ("pending", "lapsed")
            mark = each.reason if each.kind == "pending" else f"{each.kind}/{each.allocation}/{each.node}"
            self._offer(Happening(about, reason, each.text, each.at, warning, mark, each.reason, each.node))

    def _refusal(self, record: Record, claim: Ref) -> None:
        rule, message, at, node = record.rule, record.answer.message, record.ended, record.node
        about = about_claim(claim.namespace, claim.name, claim.uid)
        self._offer(Happening(about, ALLOCATION_REFUSED, message, at, True, rule, rule, node))
        for pod in record.pods[:_MOST_PODS]:
            waits = about_pod(pod.namespace, pod.name, pod.uid)
            # A pod may have several claims that are refused alike.
            mark = f"{rule}/{claim.uid}"
            self._offer(
                Happening(waits, CLAIM_REFUSED, f"claim {claim.name}: {message}", at, True, mark, rule, node, about)
            )
