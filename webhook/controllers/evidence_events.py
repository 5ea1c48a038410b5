"""What happens to a claim, as events about it and about the pods that wait for it. Runs on every replica: what happened
at several of them is one event, which each of them counts.

Told are refused allocations, those that are allowed after all, charges, releases, and what a claim waits for. Writes
that are only tried make no events, nor do refused creations: their object is none that could be looked at.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import timedelta

from webhook.admission.record import Record, Ref
from webhook.controllers.event_queue import Happening
from webhook.controllers.events import about_claim, about_pod
from webhook.facts.times import duration, instant
from webhook.kube.object_event import (
    ALLOCATION_ALLOWED,
    ALLOCATION_REFUSED,
    CLAIM_CHARGED,
    CLAIM_PENDING,
    CLAIM_REFUSED,
    CLAIM_RELEASED,
)
from webhook.kube.raw import child, mapping, members, text
from webhook.ledger.moments import Moment
from webhook.policy.evaluate import FAILED

# An allocation that comes later than this after its claim was made was waited for, whoever refused it before.
LATE = timedelta(seconds=30)
# Claims that are remembered as refused; pods and devices that are told of at one write.
_MOST, _MOST_PODS, _MOST_DEVICES = 4096, 8, 4

# What becomes an event of what the book tells: where pods run is told by their own events.
_REASONS = {
    "charged": CLAIM_CHARGED,
    "released": CLAIM_RELEASED,
    "lapsed": CLAIM_RELEASED,
    "pending": CLAIM_PENDING,
}


class EvidenceEvents:
    """Makes events of decisions and of moments, and gives them to ``offer``. ``record`` belongs to one thread,
    ``moments`` to any.
    """

    def __init__(self, offer: Callable[[Happening], None]) -> None:
        self._offer = offer
        self._refused: OrderedDict[str, int] = OrderedDict()

    def record(self, record: Record) -> None:
        """Tell of a decision, where it is about an allocation and somebody will ask."""
        claim = record.claim
        if claim is None or not claim.uid or record.request.dry_run or not record.allocates:
            return
        if not record.answer.allowed:
            self._refusal(record, claim)
        elif child(record.request.old_object, "status", "allocation") is None:
            self._allowance(record, claim)

    def moments(self, moments: Sequence[Moment]) -> None:
        """Tell what happened to claims, as far as it is no matter of their pods' own events."""
        for each in moments:
            reason = _REASONS.get(each.kind)
            if reason is None or not each.uid:
                continue
            about = about_claim(each.namespace, each.name, each.uid)
            waits = each.kind == "pending"
            mark = each.reason if waits else f"{each.kind}/{each.allocation}/{each.node}"
            self._offer(Happening(about, reason, each.text, each.at, waits, mark, each.reason, each.node))

    def _refusal(self, record: Record, claim: Ref) -> None:
        self._refused[claim.uid] = self._refused.pop(claim.uid, 0) + 1
        if len(self._refused) > _MOST:
            self._refused.popitem(last=False)
        rule, message, at, node = _rule(record), record.answer.message, record.ended, record.node
        about = about_claim(claim.namespace, claim.name, claim.uid)
        self._offer(Happening(about, ALLOCATION_REFUSED, message, at, True, rule, rule, node))
        for pod in record.pods[:_MOST_PODS]:
            waits = about_pod(pod.namespace, pod.name, pod.uid)
            told = f"claim {claim.name}: {message}"
            # A pod may have several claims that are refused alike.
            mark = f"{rule}/{claim.uid}"
            self._offer(Happening(waits, CLAIM_REFUSED, told, at, True, mark, rule, node, about))

    def _allowance(self, record: Record, claim: Ref) -> None:
        refused, waited = self._refused.pop(claim.uid, 0), _age(record)
        if not refused and (waited is None or waited < LATE):
            return
        where = f" on node {record.node}" if record.node else ""
        after = f", {duration(waited.total_seconds())} after it was made" if waited is not None else ""
        before = f"; this replica had refused {refused} before" if refused else ""
        message = f"its allocation{where} is allowed{after}: {_devices(record)}{before}"
        about = about_claim(claim.namespace, claim.name, claim.uid)
        at = child(record.request.target, "status", "allocation", "allocationTimestamp")
        self._offer(Happening(about, ALLOCATION_ALLOWED, message, record.ended, mark=text(at), node=record.node))


def _rule(record: Record) -> str:
    """The rule that the message of the refusal begins with."""
    rules = [each.finding.rule for each in record.judged if record.done(each) == "Deny"]
    return next((rule for rule in rules if rule != FAILED), FAILED)


def _age(record: Record) -> timedelta | None:
    """How old the claim was; None where it does not say."""
    made = instant(text(mapping(record.request.target.get("metadata")).get("creationTimestamp")))
    return None if made is None else max(record.ended - made, timedelta())


def _devices(record: Record) -> str:
    results = members(child(record.request.target, "status", "allocation", "devices", "results"))
    named = ["/".join(text(each.get(part)) for part in ("driver", "pool", "device")) for each in results]
    more = f" and {len(named) - _MOST_DEVICES} more" if len(named) > _MOST_DEVICES else ""
    return f"{', '.join(named[:_MOST_DEVICES])}{more}" if named else "no device"
