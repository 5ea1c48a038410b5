"""The other claims of a pod, judged at the first allocation write of any of them (1.36).

A 1.36 scheduler writes the claims of a pod one after the other. When a later one is refused, the first stays allocated,
is taken for pre-allocated by the next attempt, and its pod is bound without being counted. So what can be known to
stand in a sibling's way is said before the first one is written.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from datetime import datetime

from webhook.facts.account import Account, Amount, Amounts, ZoneAmount
from webhook.facts.drivers import claim_drivers
from webhook.facts.footprint import Footprint, footprint
from webhook.facts.interval import node_fit
from webhook.facts.pods import pod_claims
from webhook.facts.pools import judged
from webhook.facts.sharing import mapped
from webhook.kube.claims import Claim, Consumer
from webhook.kube.core import Pod
from webhook.kube.finding import Finding
from webhook.kube.quantity import Number
from webhook.kube.snapshot import Snapshot

_NEEDS = "all claims of the pod to be possible there: a 1.36 scheduler would bind it without counting this one"


def sibling_problems(
    claim: Claim, snapshot: Snapshot, account: Account | None, now: datetime, cost: Footprint | None = None
) -> list[Finding]:
    """``sibling-not-possible`` for each other mapped claim of the pods that reserve ``claim``, a mapped one: not
    allocated, if nothing on the node of its allocation could serve it (stage, hold, pool phase, or what is left once
    ``claim`` is charged); allocated before, if not reserved for the pod, since that reservation would be refused.

    ``account`` is that node's (None: not known, nothing can be said), ``cost`` the footprint of ``claim``, where it is
    known already. Empty on 1.37, which counts claims that were allocated before.
    """
    if claim.allocation is None or account is None or snapshot.release.minor != 36:
        return []
    cost = footprint(claim, snapshot) if cost is None else cost
    if not cost.mapped:
        return []
    found: list[Finding] = []
    after: Snapshot | None = None
    for index, consumer in enumerate(claim.reserved_for):
        pod = snapshot.pods_by_uid.get(consumer.uid) if consumer.is_pod else None
        if pod is not None:
            found += _unreserved(claim, consumer, pod, snapshot, f"status.reservedFor[{index}]")
        siblings = _siblings(claim, pod, snapshot) if pod is not None else ()
        if not siblings:
            continue
        if after is None:
            after = snapshot.with_claim(claim)
            account = charged(account.without(claim.id), cost)
        found += _refused(siblings, after, account, now, pod, f"status.reservedFor[{index}]")
    return found


def least_of_siblings(
    claim: Claim,
    pod: Pod,
    snapshot: Snapshot,
    account: Account,
    now: datetime,
    cost: Footprint,
    held: Container[str] = (),
) -> Amounts:
    """The least that the mapped claims of ``pod`` that wait for an allocation can cost the node of ``account``, once
    ``claim`` is charged ``cost`` there, base units; without those whose UID is in ``held``. Nothing on 1.37, which
    allocates the claims of a pod at once.
    """
    if snapshot.release.minor != 36:
        return {}
    siblings = tuple(other for other in _siblings(claim, pod, snapshot) if other.id not in held)
    if not siblings:
        return {}
    return node_fit(siblings, snapshot.with_claim(claim), charged(account.without(claim.id), cost), now, pod).least


def _unreserved(claim: Claim, consumer: Consumer, pod: Pod, snapshot: Snapshot, path: str) -> list[Finding]:
    """The pod's mapped claims that are allocated, but not for it."""
    found: list[Finding] = []
    for _, other in pod_claims(pod, snapshot):
        if other.id == claim.id or consumer in other.reserved_for or not mapped(other, snapshot):
            continue
        has = f"a pod whose claim {other.name} was allocated before"
        fix = f"delete claim {other.key} (with the pod, if it is from a template) so that it is allocated anew"
        if other.reserved_for:
            has = f"a pod whose claim {other.name} is reserved for {other.reserved_for[0].name}"
            fix = "give every pod a claim of its own, for instance from a template"
        found.append(Finding("sibling-not-possible", path, has, _NEEDS, fix))
    return found


def _siblings(claim: Claim, pod: Pod, snapshot: Snapshot) -> tuple[Claim, ...]:
    return tuple(
        other
        for _, other in pod_claims(pod, snapshot)
        if other.id != claim.id
        and other.allocation is None
        and any(judged(snapshot, driver) for driver in claim_drivers(other, snapshot))
    )


def _refused(
    siblings: tuple[Claim, ...], snapshot: Snapshot, account: Account, now: datetime, pod: Pod | None, path: str
) -> list[Finding]:
    found: list[Finding] = []
    for sibling in siblings:
        fit = node_fit((sibling,), snapshot, account, now, pod)
        if not fit.fits:
            found.append(_finding(sibling.name, account.node, fit.reasons, path))
    if found or len(siblings) < 2:
        return found
    fit = node_fit(siblings, snapshot, account, now, pod)
    if fit.fits:
        return []
    return [_finding(" and ".join(sibling.name for sibling in siblings), account.node, fit.reasons, path)]


def _finding(names: str, node: str, reasons: tuple[Finding, ...], path: str) -> Finding:
    why = f"{reasons[0].rule}: {reasons[0].has}" if reasons else "no devices for it"
    has = f"a pod whose claim {names} cannot be allocated on node {node} ({why})"
    return Finding("sibling-not-possible", path, has, _NEEDS, reasons[0].fix if reasons else "", passing=True)


def charged(account: Account, cost: Footprint) -> Account:
    """``account`` with what one more claim costs it by its mappings, on the node and in the zones that are known."""
    resources = dict(account.resources)
    for resource, amount in cost.amounts.items():
        held = resources.get(resource, Amount())
        resources[resource] = Amount(held.allocatable, held.pods, held.claims + amount, held.overhead, held.reserved)
    zones: dict[int, Mapping[str, ZoneAmount]] = dict(account.zones)
    for zone, amounts in cost.zones().items():
        zones[zone] = _zone(zones.get(zone, {}), amounts)
    return Account(account.node, account.uid, resources, zones, account.claims, account.pods)


def _zone(row: Mapping[str, ZoneAmount], amounts: Mapping[str, Number]) -> dict[str, ZoneAmount]:
    changed = dict(row)
    for resource, amount in amounts.items():
        part = changed.get(resource, ZoneAmount())
        changed[resource] = ZoneAmount(part.capacity, part.claims + amount, part.reserved)
    return changed
