"""What is left of a node for claims that are to be allocated: the limits of an assignment."""

from __future__ import annotations

from collections.abc import Callable

from webhook.facts.account import Account, Amounts, add, bookable
from webhook.facts.assignment import Choice, CounterKey, InZones, Room
from webhook.facts.fit import node_rows
from webhook.facts.node_offers import Holdings, Identity, Offer
from webhook.facts.pods import budget_problems, pod_claims, pod_request, will_count
from webhook.facts.pool_survey import current
from webhook.facts.zones import counters_of
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.quantity import Number
from webhook.kube.snapshot import Snapshot


def room_for(
    claims: tuple[Claim, ...],
    snapshot: Snapshot,
    account: Account,
    holdings: Holdings | None,
    groups: list[list[Choice]],
    pod: Pod | None,
) -> Room:
    """The room that an assignment to ``groups`` has on the node of ``account``, in which neither the claims nor the pod
    are charged. ``holdings`` None: as if no device were in use.
    """
    offers = [offer for group in groups for choice in group for offer in choice.offers]
    shared: dict[tuple[Identity, str], Number] = {}
    counters: dict[CounterKey, Number] = {}
    drawn: set[Identity] = set()
    for offer in offers:
        if offer.consumed is not None and (offer.identity, next(iter(offer.consumed), "")) not in shared:
            used = holdings.used(offer.identity) if holdings is not None else None
            if used is not None:
                drawn.add(offer.identity)
            for name in offer.consumed:
                value = offer.device.capacity_value(name) or 0
                shared[offer.identity, name] = value - (used or {}).get(name, 0)
        if offer.device.counters and not any(key[:2] == offer.slice.key for key in counters):
            counters.update(_counters_left(offer, snapshot, account.node, holdings))
    zones = {
        (zone, name): amount.free
        for zone, row in account.zones.items()
        for name, amount in row.items()
        if amount.free is not None
    }
    free = {name: amount.free for name, amount in account.resources.items()}
    return Room(free, zones, counters, drawn, shared, _acceptance(claims, snapshot, account, pod))


def _counters_left(offer: Offer, snapshot: Snapshot, node: str, holdings: Holdings | None) -> dict[CounterKey, Number]:
    driver, pool = offer.slice.key
    survey = current(snapshot, driver, pool, node)
    left: dict[CounterKey, Number] = {
        (driver, pool, name, counter): amount
        for name, counters in survey.counter_sets.items()
        for counter, amount in counters.items()
        if amount is not None
    }
    for name in holdings.devices((driver, pool)) if holdings is not None else ():
        found = survey.devices.get(name)
        for (counter_set, counter), amount in counters_of(found[1]).items() if found is not None else ():
            key = (driver, pool, counter_set, counter)
            left[key] = left.get(key, 0) - amount
    return left


def _acceptance(
    claims: tuple[Claim, ...], snapshot: Snapshot, account: Account, pod: Pod | None
) -> Callable[[Amounts, Amounts, Amounts, InZones], bool]:
    mine = {claim.id for claim in claims}
    others = [(local, claim) for local, claim in pod_claims(pod, snapshot) if claim.id not in mine] if pod else []
    shares = will_count(pod, others, snapshot, account.node) if pod else None
    users = using(claims, pod)

    def accepts(amounts: Amounts, per_pod: Amounts, per_container: Amounts, zones: InZones) -> bool:
        own: dict[str, Number] = {}
        if pod is not None and shares is not None:
            mapped, overhead = dict(shares.claims), dict(shares.overhead)
            add(mapped, amounts)
            add(overhead, per_pod)
            add(overhead, {name: amount * users for name, amount in per_container.items()})
            request = pod_request(pod, mapped, overhead)
            if budget_problems(request):
                return False
            own = {name: share.spec + share.overhead for name, share in request.resources.items()}
        else:
            add(own, per_pod)
        return all(row.fits for row in node_rows(account, amounts, own) if bookable(row.resource))

    return accepts


def using(claims: tuple[Claim, ...], pod: Pod | None) -> int:
    """How many containers of ``pod`` use one of ``claims``, at most."""
    if pod is None:
        return 0
    names = {claim.name for claim in claims}
    locals_ = [local for local, name in pod.claim_names.items() if name in names]
    return max((len(pod.users(local)) for local in locals_), default=1)
