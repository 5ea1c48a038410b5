"""The smallest changes that would let claims fit: releasing a claim, asking for less, a larger node; each one tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Literal

from msgspec.structs import replace

from webhook.facts.account import Account, bookable
from webhook.facts.fit import node_rows
from webhook.facts.footprint import footprint
from webhook.facts.interval import NodeFit, node_fit
from webhook.facts.node_offers import Holdings, node_offers
from webhook.facts.pods import pod_request
from webhook.kube.claims import Claim, DeviceRequest
from webhook.kube.core import Pod
from webhook.kube.quantity import Number, canonical, try_parse
from webhook.kube.raw import mapping, sequence
from webhook.kube.resource import Device
from webhook.kube.snapshot import Snapshot

Kind = Literal["release", "shrink", "node-grow"]
Accounts = Callable[[Snapshot, str], Account | None]

# Trying costs a whole judgement each time; nobody reads further.
_MOST_NODES = 32
_MOST_CLAIMS = 64


@dataclass(frozen=True, slots=True)
class Change:
    """One change: which claim to release or to shrink (``namespace/name``, empty for a node), and by how much
    of what.
    """

    kind: Kind
    node: str
    claim: str
    resource: str
    amount: Number


def smallest_changes(
    claims: tuple[Claim, ...],
    snapshot: Snapshot,
    accounts: Accounts,
    fits: tuple[NodeFit, ...],
    now: datetime,
    pod: Pod | None = None,
) -> list[Change]:
    """For claims that fit nowhere: of each kind of change the smallest one that, alone, lets them fit some node."""
    if any(fit.fits for fit in fits):
        return []
    best: dict[Kind, tuple[Fraction, Change]] = {}
    for fit in [fit for fit in fits if fit.offered][:_MOST_NODES]:
        account = accounts(snapshot, fit.node)
        if account is None:
            continue
        for change in (
            *_releases(claims, snapshot, accounts, account, fit, now, pod),
            *_shrinks(claims, snapshot, account, now, pod),
            *_growths(claims, snapshot, account, fit, now, pod),
        ):
            size = _size(change, account)
            if change.kind not in best or size < best[change.kind][0]:
                best[change.kind] = (size, change)
    return [change for _, change in sorted(best.values(), key=lambda row: (row[0], row[1].kind))]


def _size(change: Change, account: Account) -> Fraction:
    held = account.resources.get(change.resource)
    whole = held.allocatable if held is not None else 0
    return Fraction(change.amount) / Fraction(whole) if whole > 0 else Fraction(1)


def released(snapshot: Snapshot, claim: Claim) -> Snapshot:
    """The snapshot as if the claim of this namespace and name were not allocated. It stays known, so that what the
    entries of its pods book for it is not taken for their own.
    """
    held = snapshot.claims.get((claim.namespace, claim.name))
    if held is None or held.allocation is None:
        return snapshot
    return snapshot.with_claim(replace(held, allocation=None, reserved_for=()))


def _releases(
    claims: tuple[Claim, ...],
    snapshot: Snapshot,
    accounts: Accounts,
    account: Account,
    fit: NodeFit,
    now: datetime,
    pod: Pod | None,
) -> Iterator[Change]:
    mine = {claim.id for claim in claims}
    others = [claim for uid in account.claims if uid not in mine and (claim := snapshot.claims_by_uid.get(uid))]
    changes = [_release(claim, snapshot, account, fit) for claim in others]
    ordered = sorted(zip(changes, others, strict=True), key=lambda row: (_size(row[0], account), row[1].key))
    for change, claim in ordered[:_MOST_CLAIMS]:
        less = released(snapshot, claim)
        room = accounts(less, account.node)
        if room is not None and node_fit(claims, less, room, now, pod).fits:
            yield change
            return


def _release(claim: Claim, snapshot: Snapshot, account: Account, fit: NodeFit) -> Change:
    amounts = footprint(claim, snapshot, account.node).amounts
    names = [name for name in amounts if name in fit.least] or list(amounts)
    changes = [Change("release", account.node, claim.key, name, amounts[name]) for name in names]
    nothing = Change("release", account.node, claim.key, "", 0)
    return max(changes, key=lambda change: _size(change, account), default=nothing)


def _shrinks(
    claims: tuple[Claim, ...], snapshot: Snapshot, account: Account, now: datetime, pod: Pod | None
) -> Iterator[Change]:
    holdings = Holdings(snapshot, frozenset(claim.id for claim in claims))
    own = pod_request(pod).spec() if pod is not None else {}
    free = {name: amount.free - own.get(name, 0) for name, amount in account.resources.items()}
    for number, claim in enumerate(claims):
        for request in (alternative for group in claim.groups for alternative in group.alternatives):
            for name, raw in request.capacity.items():
                asked = try_parse(raw)
                # Asking for nothing chooses every device that has anything left.
                least = replace(request, capacity={**request.capacity, name: "0"})
                offers = node_offers(least, snapshot, account.node, holdings, now).offers
                rooms = {
                    _room(offer.device, name, free, holdings.used(offer.identity) or {}): offer.device
                    for offer in offers
                }
                for room in sorted((room for room in rooms if asked is not None and 0 < room < asked), reverse=True):
                    smaller = (*claims[:number], _asking(claim, request, name, room), *claims[number + 1 :])
                    if asked is not None and node_fit(smaller, snapshot, account, now, pod).fits:
                        resource, factor = _cost(rooms[room], name)
                        yield Change("shrink", account.node, claim.key, resource, (asked - room) * factor)
                        break


def _cost(device: Device, name: str) -> tuple[str, Number]:
    """What one unit of capacity ``name`` costs: resource and amount; the capacity itself where it costs nothing."""
    costs = [(cost.resource, cost.multiplier) for cost in device.costs if cost.capacity_key == name]
    return next(((resource, factor) for resource, factor in costs if factor), (name, 1))


def _room(device: Device, name: str, free: Mapping[str, Number], used: Mapping[str, Number]) -> Number:
    """The largest amount of capacity ``name`` that device and node have left, on the grid of its request policy."""
    limit = (device.capacity_value(name) or 0) - used.get(name, 0)
    for cost in device.costs:
        if cost.capacity_key == name and cost.multiplier and cost.resource in free:
            limit = min(limit, Fraction(free[cost.resource]) / cost.multiplier)
    return _on_grid(limit, device.capacity.get(name))


def _on_grid(limit: Number, entry: object) -> Number:
    policy = mapping(mapping(entry).get("requestPolicy"))
    span = mapping(policy.get("validRange"))
    low, step = try_parse(span.get("min")), try_parse(span.get("step"))
    if low is not None and step is not None and step > 0:
        return low + (limit - low) // step * step
    options = [amount for raw in sequence(policy.get("validValues")) if (amount := try_parse(raw)) is not None]
    return max((option for option in options if option <= limit), default=limit // 1)


def _asking(claim: Claim, request: DeviceRequest, name: str, amount: Number) -> Claim:
    smaller = replace(request, capacity={**request.capacity, name: canonical(amount)})
    groups = tuple(
        replace(group, alternatives=tuple(smaller if a is request else a for a in group.alternatives))
        for group in claim.groups
    )
    return replace(claim, groups=groups)


def _growths(
    claims: tuple[Claim, ...], snapshot: Snapshot, account: Account, fit: NodeFit, now: datetime, pod: Pod | None
) -> Iterator[Change]:
    own = pod_request(pod).spec() if pod is not None else {}
    short = {
        row.resource: -row.free
        for row in node_rows(account, fit.least, own)
        if row.free is not None and not row.fits and bookable(row.resource)
    }
    if short and node_fit(claims, snapshot, _grown(account, short), now, pod).fits:
        for name, amount in short.items():
            yield Change("node-grow", account.node, "", name, amount)


def _grown(account: Account, amounts: Mapping[str, Number]) -> Account:
    resources = dict(account.resources)
    for name, amount in amounts.items():
        if name in resources:
            held = resources[name]
            resources[name] = replace(held, allocatable=held.allocatable + amount)
    return replace(account, resources=resources)
