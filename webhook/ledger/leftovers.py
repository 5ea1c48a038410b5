"""Leftovers: claims that are charged and that no living pod uses. Nothing disagrees; somebody has to clean up."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from webhook.facts.account import add
from webhook.facts.sharing import ended, settled
from webhook.facts.times import age
from webhook.kube.claims import Claim
from webhook.kube.finding import Finding
from webhook.kube.quantity import Number
from webhook.kube.snapshot import Snapshot
from webhook.ledger.charges import Charge, Difference
from webhook.ledger.differences import said

_MOST_NAMES = 3

_FIXES = {
    "waiting for deletion": "see why the resource claim controller does not release them",
    "reserved for pods that have ended or are gone": "see why the resource claim controller does not release them",
    "held by somebody else than a pod": "have that holder leave reservedFor; until then nothing cleans up",
    "reserved for nobody": "delete them, so that they are allocated anew when a pod needs them",
}


def leftovers(node: str, charges: Iterable[Charge], snapshot: Snapshot, now: datetime) -> list[Difference]:
    """The claims of ``charges``, which are those of ``node``, that no living pod uses: one note for each reason, with
    what they take and since when the oldest does.
    """
    groups: dict[str, dict[str, Claim]] = {}
    amounts: dict[str, dict[str, Number]] = {}
    for charge in charges:
        claim = snapshot.claims_by_uid.get(charge.key.claim_uid)
        why = _why(claim, snapshot, now) if claim is not None else ""
        if claim is not None and why:
            groups.setdefault(why, {})[claim.key] = claim
            add(amounts.setdefault(why, {}), {charge.key.resource: charge.amount})
    return [
        Difference("surplus", "v1", "Node", "", node, _finding(why, groups[why], said(amounts[why]), now))
        for why in sorted(groups)
    ]


def _why(claim: Claim, snapshot: Snapshot, now: datetime) -> str:
    """Why nobody uses the claim; empty when somebody does, or may do in a moment."""
    if claim.allocation is None:
        return ""
    pods = [consumer for consumer in claim.reserved_for if consumer.is_pod]
    if any(not ended(consumer, claim, snapshot) for consumer in pods):
        return ""
    if len(pods) < len(claim.reserved_for):
        return "held by somebody else than a pod" if pods or claim.deleting else ""
    if claim.deleting:
        return "waiting for deletion"
    if pods:
        return "reserved for pods that have ended or are gone"
    return "reserved for nobody" if settled(claim, now) else ""


def _finding(why: str, claims: dict[str, Claim], amounts: str, now: datetime) -> Finding:
    names = sorted(claims)
    listed = ", ".join(names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    since = min(each.deleted or (each.allocation.timestamp if each.allocation else "") for each in claims.values())
    how_long = f", since {since} ({age(since, now)})" if since and age(since, now) else ""
    count = "1 claim" if len(names) == 1 else f"{len(names)} claims"
    return Finding(
        "leftover-claims",
        "claims",
        f"{count}, {why} ({listed}{more}), with {amounts}{how_long}",
        "claims that pods use; these stay charged until their allocation is gone",
        _FIXES[why],
        "info",
    )
