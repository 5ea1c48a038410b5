"""Charges that are booked: the same key again with another amount is never charged a second time."""

from __future__ import annotations

from webhook.facts.footprint import Footprint
from webhook.kube.claims import Claim
from webhook.kube.finding import Finding
from webhook.kube.node_ledger import BookedCharge, NodeLedger, as_stored
from webhook.kube.quantity import of_resource

# Rules that keep a charge from being made twice.
DUPLICATES = frozenset({"duplicate-charge", "shareid-duplicate"})

_RESULTS = "status.allocation.devices.results"


def booked_for(claim: Claim, ledger: NodeLedger | None) -> list[BookedCharge]:
    """The charges that ``ledger`` has for the very allocation that ``claim`` has."""
    if ledger is None or claim.allocation is None:
        return []
    uid, identity = claim.id, claim.allocation.identity
    return [charge for charge in ledger.charges if charge.claim_uid == uid and charge.allocation == identity]


def duplicate_problems(claim: Claim, cost: Footprint, ledger: NodeLedger | None) -> list[Finding]:
    """``duplicate-charge`` for each device of ``claim`` whose key is booked in ``ledger``, that of its node, with
    another amount under the very same mapping: it cannot be the allocation that was booked. What a changed mapping
    makes of a booked charge is a difference, not a duplicate.
    """
    rows = {
        (row.request, row.driver, row.pool, row.device, row.share_id, row.resource): row
        for row in booked_for(claim, ledger)
    }
    found: list[Finding] = []
    for charge in cost.charges if rows else ():
        result = charge.result
        row = rows.get((result.request, *result.identity, result.share_id, charge.resource))
        if row is not None and row.digest == charge.digest and row.amount != as_stored(charge.amount):
            has = f"{of_resource(row.resource, charge.amount)} {row.resource} of device {result.device}"
            needs = f"the {of_resource(row.resource, row.amount)} booked for this allocation, by the same mapping"
            fix = "it is not charged a second time; release the claim, so that it is allocated anew"
            found.append(Finding("duplicate-charge", f"{_RESULTS}[{result.index}]", has, needs, fix))
    return found
