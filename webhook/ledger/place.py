"""Places: what is held on a node for a pod that is let go to it, before the scheduler has chosen its devices.

A place is a reservation without an allocation. The one that admission makes when it allows the allocation takes its
place; it never stands in the way of its own pod and claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from webhook.facts.account import add
from webhook.facts.assignment import Choice
from webhook.facts.candidates import least_cost
from webhook.facts.pods import pod_id, pod_request
from webhook.facts.room import using
from webhook.facts.times import stamp
from webhook.facts.zone_places import Place
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.node_ledger import ANY, PLACE, BookedCharge, NodeLedger, Reservation, as_stored
from webhook.kube.quantity import Number
from webhook.ledger.reserve import taken


def place_reservations(
    pod: Pod, claims: tuple[Claim, ...], place: Place, now: datetime, holder: str
) -> tuple[Reservation, ...]:
    """What to hold on the node of ``place``, which was found for ``claims`` or for equal ones: for each the least that
    it costs there, in a zone where all of its devices are of that zone, and once the request of ``pod``, with the least
    overhead (1.37). Nothing for a claim that may cost nothing; what else it may cost is judged when it is allocated.
    """
    charges: dict[str, list[BookedCharge]] = {claim.id: [] for claim in claims}
    mapped: dict[str, Number] = {}
    overhead: dict[str, Number] = {}
    for choices in place.groups:
        claim = claims[choices[0].claim]
        made = _charges(claim, choices)
        charges[claim.id] += made
        for row in made:
            add(mapped, {row.resource: row.amount})
        add(overhead, least_cost(choices, lambda offer: offer.per_pod))
        users = using((claim,), pod)
        for name, amount in least_cost(choices, lambda offer: offer.per_container).items():
            add(overhead, {name: amount * users})
    shares = pod_request(pod, mapped, overhead).resources.items()
    own = {name: as_stored(share.spec + share.overhead) for name, share in shares if share.spec or share.overhead}
    return tuple(
        Reservation(
            claim.id,
            PLACE,
            claim.namespace,
            claim.name,
            pod_id(pod),
            pod.namespace,
            pod.name,
            tuple(charges[claim.id]),
            own,
            {},
            stamp(now, "microseconds"),
            holder,
        )
        for claim in claims
        if charges[claim.id]
    )


def placed(ledger: NodeLedger, places: Sequence[Reservation]) -> NodeLedger:
    """``ledger`` with ``places``, those of one pod, instead of earlier ones of their claims. One whose claim is
    reserved there already, or charged, is left out: an allocation that was admitted goes before a place.
    """
    known = {each.claim_uid for each in ledger.reservations if each.allocation != PLACE}
    known |= {row.claim_uid for row in ledger.charges}
    again = {each.claim_uid for each in places}
    kept = [each for each in ledger.reservations if each.allocation != PLACE or each.claim_uid not in again]
    ledger = replace(ledger, reservations=tuple(kept))
    for each in places:
        if each.claim_uid not in known:
            ledger = taken(ledger, each)
    return ledger


def _charges(claim: Claim, choices: Sequence[Choice]) -> list[BookedCharge]:
    """What the request costs at least, by resource."""
    first = choices[0]
    zones = {offer.zone for choice in choices for offer in choice.offers}
    zone = zones.pop() if len(zones) == 1 else None
    driver, pool, _ = first.offers[0].identity
    request = first.names[-1]
    return [
        BookedCharge(
            claim.id,
            PLACE,
            request,
            driver,
            pool,
            ANY,
            "",
            resource,
            claim.namespace,
            claim.name,
            "",
            "",
            0,
            "",
            "",
            as_stored(amount),
            zone,
            f"the least for request {request}",
            "",
        )
        for resource, amount in sorted(least_cost(choices, lambda offer: offer.amounts).items())
        if amount
    ]
