"""The devices of one node that claims may get, each claim for itself: what an assignment chooses from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from webhook.facts.account import Account, Amounts, add
from webhook.facts.assignment import Choice
from webhook.facts.fit import charged_as
from webhook.facts.node_offers import Holdings, Offer, Offers, node_offers
from webhook.facts.pods import pod_id
from webhook.kube.claims import Claim, Constraint, DeviceRequest
from webhook.kube.core import Pod
from webhook.kube.finding import Finding
from webhook.kube.quantity import Number
from webhook.kube.snapshot import Snapshot

_MOST_RESULTS = 32


@dataclass(frozen=True, slots=True)
class Candidates:
    """The choices of each request in order, and ``reasons`` why a request has none. ``account`` charges neither the
    claims nor their pod, ``holdings`` (None: nothing is in use) is what others hold. ``offered``: the node has devices
    that each request chooses; ``elsewhere``: as :class:`webhook.facts.node_offers.Offers` tells.
    """

    account: Account
    holdings: Holdings | None
    groups: list[list[Choice]]
    constraints: list[tuple[int, Constraint]]
    reasons: tuple[Finding, ...]
    offered: bool
    elsewhere: bool


def candidates(
    claims: tuple[Claim, ...], snapshot: Snapshot, account: Account, now: datetime | None, pod: Pod | None
) -> Candidates:
    """The devices that ``claims`` may get on the node of ``account``. ``now`` None: judged as an empty node."""
    node = account.node
    ids = frozenset(charged_as(claim, snapshot) for claim in claims)
    for uid in ids:
        account = account.without(uid)
    if pod is not None:
        account = account.without("", pod_id(pod))
    holdings = None if now is None else Holdings(snapshot, ids)
    groups: list[list[Choice]] = []
    reasons: list[Finding] = []
    offered, elsewhere = True, False
    for number, claim in enumerate(claims):
        for group in claim.groups:
            choices: list[Choice] = []
            refused: list[Finding] = []
            matched = 0
            for alternative in group.alternatives:
                offers = node_offers(alternative, snapshot, node, holdings, now)
                matched += offers.matched
                elsewhere = elsewhere or offers.elsewhere
                choice = _choice(number, group.name, alternative, offers)
                if choice is None:
                    refused += offers.reasons or [_too_few(alternative, offers, node)]
                else:
                    choices.append(choice)
            offered = offered and matched > 0
            if not choices:
                reasons += refused if len(claims) == 1 else [_of(claim, reason) for reason in refused]
            groups.append(choices)
    constraints = [(number, constraint) for number, claim in enumerate(claims) for constraint in claim.constraints]
    return Candidates(account, holdings, groups, constraints, tuple(reasons), offered, elsewhere)


def _of(claim: Claim, reason: Finding) -> Finding:
    return replace(reason, has=f"for claim {claim.key} {reason.has}")


def _choice(number: int, group: str, request: DeviceRequest, offers: Offers) -> Choice | None:
    names = (request.name, group)
    if request.mode == "All":
        # Every device that the selectors choose must be free, and there must be one.
        complete = 0 < len(offers.offers) == offers.matched
        return Choice(number, names, offers.offers, None) if complete else None
    if not 0 < request.count <= _MOST_RESULTS or not offers.offers:
        return None
    exclusive = [offer for offer in offers.offers if offer.consumed is None]
    if len(exclusive) == len(offers.offers) < request.count:
        return None
    return Choice(number, names, offers.offers, request.count)


def _too_few(request: DeviceRequest, offers: Offers, node: str) -> Finding:
    wanted = "all devices" if request.mode == "All" else f"{request.count} devices"
    return Finding(
        "no-device",
        f"spec.devices.{request.path}",
        f"{len(offers.offers)} free devices on node {node} that class {request.class_name} and the selectors choose",
        wanted if request.count != 1 or request.mode == "All" else "1 device",
        "choose another class or other selectors, or add a node that has such devices",
    )


def bounds(choices: Sequence[Choice], least: dict[str, Number], most: dict[str, Number]) -> None:
    """Adds what one request can cost at least and at most, with its overhead for each pod; each resource for itself, so
    that ``least`` is no more than any assignment costs.
    """
    costs = _costs(choices, _whole)
    add(least, {name: min(low for low, _ in pairs) for name, pairs in costs.items()})
    add(most, {name: max(high for _, high in pairs) for name, pairs in costs.items()})


def least_cost(choices: Sequence[Choice], cost: Callable[[Offer], Amounts]) -> dict[str, Number]:
    """The least that one request can cost, by resource, when an offer costs ``cost``."""
    return {name: min(low for low, _ in pairs) for name, pairs in _costs(choices, cost).items()}


def _whole(offer: Offer) -> Amounts:
    if not offer.per_pod:
        return offer.amounts
    total = dict(offer.amounts)
    add(total, offer.per_pod)
    return total


def _costs(choices: Sequence[Choice], cost: Callable[[Offer], Amounts]) -> dict[str, list[tuple[Number, Number]]]:
    """The least and the most of each resource, for each choice of a request."""
    found: dict[str, list[tuple[Number, Number]]] = {}
    rows = [[cost(offer) for offer in choice.offers] for choice in choices]
    names = {name for row in rows for amounts in row for name in amounts}
    for choice, row in zip(choices, rows, strict=True):
        for name in names:
            costs = sorted(amounts.get(name, 0) for amounts in row)
            if choice.count is None:
                pair = (sum(costs, 0), sum(costs, 0))
            elif len(costs) >= choice.count and all(offer.consumed is None for offer in choice.offers):
                pair = (sum(costs[: choice.count], 0), sum(costs[-choice.count :], 0))
            else:
                pair = (costs[0] * choice.count, costs[-1] * choice.count)
            found.setdefault(name, []).append(pair)
    return found
