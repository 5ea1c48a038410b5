"""The devices of one node that claims may get, each claim for itself: what an assignment chooses from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from webhook.facts.account import Account, add
from webhook.facts.assignment import Choice
from webhook.facts.fit import charged_as
from webhook.facts.node_offers import Holdings, Offers, node_offers
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


def bounds(choices: list[Choice], least: dict[str, Number], most: dict[str, Number]) -> None:
    """Adds what one request can cost at least and at most; each resource for itself, so that ``least`` is no more than
    any assignment costs.
    """
    lows: list[dict[str, Number]] = []
    highs: list[dict[str, Number]] = []
    for choice in choices:
        names = {name for offer in choice.offers for name in (*offer.amounts, *offer.per_pod)}
        low: dict[str, Number] = {}
        high: dict[str, Number] = {}
        for name in names:
            costs = sorted(offer.amounts.get(name, 0) + offer.per_pod.get(name, 0) for offer in choice.offers)
            if choice.count is None:
                low[name] = high[name] = sum(costs, 0)
            elif len(costs) >= choice.count and all(offer.consumed is None for offer in choice.offers):
                low[name], high[name] = sum(costs[: choice.count], 0), sum(costs[-choice.count :], 0)
            else:
                low[name], high[name] = costs[0] * choice.count, costs[-1] * choice.count
        lows.append(low)
        highs.append(high)
    for name in {name for high in highs for name in high}:
        add(least, {name: min(low.get(name, 0) for low in lows)})
        add(most, {name: max(high.get(name, 0) for high in highs)})
