"""Reservations: what the ledger of a node holds for an allocation that admission allows, until it is seen."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from webhook.facts.account import Account
from webhook.facts.bookings import allocated_as
from webhook.facts.fit import Fit
from webhook.facts.footprint import Footprint
from webhook.facts.siblings import least_of_siblings
from webhook.facts.times import instant, stamp
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.node_ledger import NodeLedger, Reservation, as_stored
from webhook.kube.resource_version import version
from webhook.kube.snapshot import Snapshot
from webhook.ledger.booked import booked_charge
from webhook.ledger.charges import claim_charges

# A reservation may go 90 seconds after it was taken. A request that finds its own may take 60 seconds more, the API
# server's limit, so that an older one is taken again.
LIFE = timedelta(seconds=90)
RENEWED = timedelta(seconds=30)


def reservation(
    claim: Claim,
    pod: Pod | None,
    fit: Fit,
    cost: Footprint,
    snapshot: Snapshot,
    account: Account,
    now: datetime,
    holder: str,
    before: Claim,
) -> Reservation | None:
    """What to hold on the node of ``account`` for ``claim``, as the object under review has it, and for ``pod``, which
    the write reserves it for: the charges of the allocation, and the pod's own request as ``fit`` judged it.

    ``before`` is the claim that the write goes over, ``cost`` the claim's footprint. None where the claim costs the
    node nothing, and where all of it is held, or counted, already.
    """
    if not cost.costs or claim.allocation is None:
        return None
    identity, node = claim.allocation.identity, account.node
    ledger = snapshot.ledgers.get(node) or NodeLedger(node)
    there = allocated_as(before, identity)
    if there and (pod is None or pod.node):
        return None
    least = version(before.resource_version)
    # The first version of the claim that can have the allocation.
    since = str(least + 1) if least >= 0 else ""
    mine = [each for each in ledger.reservations if (each.claim_uid, each.allocation) == (claim.id, identity)]
    elsewhere = any(each.charges for each in mine if pod is not None and each.pod_uid != pod.uid)
    made = () if there or elsewhere else claim_charges(claim, snapshot, node).charges
    siblings = {} if pod is None else least_of_siblings(claim, pod, snapshot, account, now, cost, _held(ledger))
    wanted = Reservation(
        claim.id,
        identity,
        claim.namespace,
        claim.name,
        pod.uid if pod is not None else "",
        pod.namespace if pod is not None else "",
        pod.name if pod is not None else "",
        tuple(booked_charge(charge, since) for charge in made),
        {row.resource: as_stored(row.pod) for row in fit.rows if row.zone is None and row.pod},
        {resource: as_stored(amount) for resource, amount in siblings.items() if amount},
        stamp(now, "microseconds"),
        holder,
        claim_version=since,
    )
    return None if any(_same(each, wanted, now) for each in mine) else wanted


def _held(ledger: NodeLedger) -> frozenset[str]:
    """The claims that are held or booked on ``ledger``."""
    return frozenset(row.claim_uid for rows in (ledger.charges, ledger.reservations) for row in rows)


def _same(held: Reservation, wanted: Reservation, now: datetime) -> bool:
    """Whether ``held`` is what an earlier review of the same write took, and lasts as long as the write may."""
    taken = instant(held.taken)
    lasts = taken is not None and timedelta(0) <= now - taken < RENEWED
    return lasts and replace(wanted, taken=held.taken, holder=held.holder) == held


def taken(ledger: NodeLedger, wanted: Reservation) -> NodeLedger:
    """``ledger`` with ``wanted`` held, in place of another allocation of its claim. The request of its pod is held with
    each of the pod's claims, and counts once: any of them may be released before the others.
    """
    kept = (
        each
        for each in ledger.reservations
        if each.claim_uid != wanted.claim_uid
        or (each.allocation == wanted.allocation and each.pod_uid != wanted.pod_uid)
    )
    return replace(ledger, reservations=(*kept, wanted))
