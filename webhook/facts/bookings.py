"""What is booked or reserved for a claim, against the claim as it is seen: whether it is there, or over."""

from __future__ import annotations

from webhook.kube.claims import Claim
from webhook.kube.node_ledger import BookedCharge
from webhook.kube.resource_version import version


def allocated_as(claim: Claim | None, allocation: str) -> bool:
    """Whether ``claim`` is there and has the allocation of that identity."""
    return claim is not None and claim.allocation is not None and claim.allocation.identity == allocation


def made_for(row: BookedCharge, claim: Claim | None) -> bool:
    """Whether ``row`` is booked for the allocation that ``claim`` has: for one of its devices, too, since two
    allocations within one second are told apart by nothing else.
    """
    if claim is None or claim.allocation is None or claim.allocation.identity != row.allocation:
        return False
    device = row.request, row.driver, row.pool, row.device, row.share_id
    return any((each.request, *each.identity, each.share_id) == device for each in claim.allocation.results)


def released(row: BookedCharge, claim: Claim | None, node: str) -> bool:
    """Whether ``claim``, as it is seen, shows that what ``row`` is booked for on ``node`` is over: it has another
    allocation, or none, and is no older view than the one that was booked. One that names another node is another one,
    made in the same second. Of a claim that is not there (None) this says nothing.
    """
    if claim is None:
        return False
    place = claim.allocation.node if claim.allocation is not None else ""
    if made_for(row, claim) and place in ("", node):
        return False
    now, then = version(claim.resource_version), version(row.claim_version)
    return now < 0 or now >= then
