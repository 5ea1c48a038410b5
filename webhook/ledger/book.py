"""The book: the account, the charges and the differences of every node, computed from a snapshot."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from webhook.facts.account import Account, Amounts, ClaimPart, PodPart, account_of, add
from webhook.facts.footprint import Footprint, footprint
from webhook.facts.placement import claim_node, consumers, destination, roams
from webhook.facts.pods import counted, entry_overhead, pod_claims, pod_id, pod_request, reserved_to
from webhook.facts.zones import zone_capacities
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.quantity import Number
from webhook.kube.snapshot import Snapshot
from webhook.ledger.booked import as_booked, part_of
from webhook.ledger.charges import Charge, ChargeKey, ClaimCharges, Difference, claim_charges
from webhook.ledger.cross_check import pod_differences
from webhook.ledger.differences import (
    account_differences,
    left_behind,
    node_replaced,
    same_uid,
    sharing_differences,
)
from webhook.ledger.held import Held, unknown_claim

_MOST_NODES = 20_000
_NOTHING: tuple[object, ...] = ()

Inputs = tuple[object, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeBook:
    """One node's page: its account, the charges in stable order, and what does not agree."""

    account: Account
    charges: tuple[Charge, ...]
    differences: tuple[Difference, ...]


class Book:
    """Accounts by node. A page is kept as long as the objects it was made from are the very same ones, and so is each
    claim's and pod's part of it: asking again costs a comparison, a changed object costs its own part.

    The answers depend on the snapshot alone, never on what was asked before.
    """

    def __init__(self) -> None:
        self._pages: dict[str, tuple[Inputs, NodeBook, _Parts]] = {}
        self._held: dict[str, Held] = {}
        self._current: tuple[Snapshot | None, dict[str, NodeBook]] = (None, {})

    def account(self, snapshot: Snapshot, node: str) -> Account | None:
        """The account of ``node``, None when no such node is known."""
        page = self.page(snapshot, node)
        return None if page is None else page.account

    def charges(self, snapshot: Snapshot, node: str) -> tuple[Charge, ...]:
        """The charges on ``node``, claims in order of namespace and name."""
        page = self.page(snapshot, node)
        return () if page is None else page.charges

    def differences(self, snapshot: Snapshot, node: str) -> tuple[Difference, ...]:
        """What on ``node`` does not agree with the book."""
        page = self.page(snapshot, node)
        return () if page is None else page.differences

    def page(self, snapshot: Snapshot, node: str) -> NodeBook | None:
        """The whole page of ``node``, None when no such node is known."""
        if node not in snapshot.nodes:
            return None
        seen, pages = self._current
        if seen is not snapshot:
            pages = {}
            self._current = (snapshot, pages)
        page = pages.get(node)
        if page is None:
            page = pages[node] = self._checked(snapshot, node)
        return page

    def _checked(self, snapshot: Snapshot, node: str) -> NodeBook:
        ledger = snapshot.ledgers.get(node)
        held = self._held.get(node)
        if held is None or held.ledger is not ledger:
            held = Held(ledger, node, held)
        inputs = tuple(_inputs(snapshot, node, held))
        before = self._pages.get(node)
        if before is not None and _same(before[0], inputs):
            return before[1]
        parts = _Parts(before[2] if before is not None else None)
        page = _node_book(snapshot, node, held, parts)
        if len(self._pages) >= _MOST_NODES:
            oldest = next(iter(self._pages), "")
            self._pages.pop(oldest, None)
            self._held.pop(oldest, None)
        self._pages[node] = (inputs, page, parts)
        self._held[node] = held
        return page


class _Parts:
    """Values by key, each kept from the parts before as long as what it was made from is identical."""

    def __init__(self, before: _Parts | None = None) -> None:
        self._before = before._held if before is not None else {}
        self._held: dict[object, tuple[Inputs, Any]] = {}

    def get(self, key: object, inputs: Inputs, make: Callable[[], T]) -> T:
        held = self._before.get(key)
        if held is None or not _same(held[0], inputs):
            held = (inputs, make())
        self._held[key] = held
        made: T = held[1]
        return made


def _same(one: Inputs, other: Inputs) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _inputs(snapshot: Snapshot, node: str, held: Held) -> Iterator[object]:
    """Every object that a page is made from, in an order that depends on these objects only."""
    yield held.ledger
    yield snapshot.release
    yield snapshot.rollout_specs
    yield snapshot.nodes.get(node)
    yield snapshot.topologies.get(node)
    slices = snapshot.node_slices.get(node, _NOTHING)
    pods = snapshot.node_pods.get(node, ())
    nominated = snapshot.nominated_pods.get(node, ())
    claims = snapshot.node_claims.get(node, ())
    yield from (slices, pods or _NOTHING, nominated or _NOTHING, claims or _NOTHING)
    pools = dict.fromkeys(item.key for item in snapshot.node_slices.get(node, ()))
    for pool in pools:
        yield snapshot.pools.get(pool, _NOTHING)
    # Many pods may name one claim.
    used = {id(claim): claim for claim in claims}
    placed = {claim.id for claim in claims} if held.claims else ()
    for uid in held.claims:
        if uid not in placed:
            claim = snapshot.claims_by_uid.get(uid)
            yield claim
            if claim is not None:
                used[id(claim)] = claim
    for uid in held.pods:
        yield snapshot.pods_by_uid.get(uid)
    for pod in (*pods, *nominated):
        for claim in _claims_of(pod, snapshot):
            yield claim
            if claim is not None:
                used[id(claim)] = claim
    for pool in pools:
        used.update((id(claim), claim) for claim in snapshot.pool_claims.get(pool, ()) if not _named(claim))
    for claim in [*used.values()]:
        for pod in consumers(claim, snapshot):
            if not pod.node and pod.nominated != node:
                # It comes with all of its claims; those that have devices are among the holders of these.
                used.update((id(other), other) for other in _claims_of(pod, snapshot) if other is not None)
    for claim in used.values():
        if claim.allocation is not None:
            for result in claim.allocation.results:
                if (result.driver, result.pool) not in pools:
                    yield snapshot.pools.get((result.driver, result.pool), _NOTHING)
                yield snapshot.device_claims.get(result.identity, _NOTHING)
            place = claim_node(claim, snapshot)
            if place != node:
                # Whether its devices apply there is a matter of the labels.
                yield snapshot.nodes.get(place)
        for holder in claim.reserved_for:
            yield snapshot.pods_by_uid.get(holder.uid)
            yield snapshot.pods.get((claim.namespace, holder.name))


def _claims_of(pod: Pod, snapshot: Snapshot) -> Iterator[Claim | None]:
    """The claims that a pod uses, and those that its status has entries for."""
    for name in (*pod.claim_names.values(), *(entry.claim for entry in pod.entries)):
        yield snapshot.claims.get((pod.namespace, name))


def _named(claim: Claim) -> bool:
    return claim.allocation is not None and bool(claim.allocation.node)


def node_claims(snapshot: Snapshot, node: str) -> list[Claim]:
    """The claims allocated on ``node``, in order of namespace and name: by their node selector, else by where their
    devices are, else by where their pods are.
    """
    found: dict[str, Claim] = {claim.key: claim for claim in snapshot.node_claims.get(node, ())}
    pools = dict.fromkeys(item.key for item in snapshot.node_slices.get(node, ()))
    unnamed = [claim for pool in pools for claim in snapshot.pool_claims.get(pool, ()) if not _named(claim)]
    for pod in (*snapshot.node_pods.get(node, ()), *snapshot.nominated_pods.get(node, ())):
        unnamed += [claim for _, claim in pod_claims(pod, snapshot) if not _named(claim)]
    for claim in unnamed:
        if claim.key not in found and claim_node(claim, snapshot) == node:
            found[claim.key] = claim
    return [found[key] for key in sorted(found)]


def _node_book(snapshot: Snapshot, node: str, held: Held, memo: _Parts) -> NodeBook:
    known = snapshot.nodes[node]
    charges: dict[ChargeKey, Charge] = {}
    parts: dict[str, ClaimPart] = {}
    costs: dict[str, ClaimCharges] = {}
    problem = held.problem()
    differences: list[Difference] = [] if problem is None else [problem]
    coming: dict[str, Pod] = {}
    reserved = held.unseen(snapshot)
    settled = set(reserved)
    for claim in node_claims(snapshot, node):
        if held.outdated(claim):
            continue
        settled.add(claim.id)
        made = _as_booked(claim, _charged(claim, snapshot, node, memo), held, snapshot, memo)
        if left_behind(claim, made, known):
            differences.append(node_replaced(claim, known))
            continue
        differences += made.differences
        differences += sharing_differences(claim, made, snapshot)
        if claim.id in parts:
            differences.append(same_uid(claim))
            continue
        parts[claim.id] = made.part
        costs[claim.key] = made
        charges.update((charge.key, charge) for charge in made.charges)
        on_their_way = [pod for pod in consumers(claim, snapshot) if not pod.node and not pod.terminal]
        if on_their_way and roams(claim, snapshot):
            on_their_way = [pod for pod in on_their_way if destination(pod) == node]
        coming.update((pod_id(pod), pod) for pod in on_their_way)
    for pod in snapshot.nominated_pods.get(node, ()):
        claims = [claim for _, claim in pod_claims(pod, snapshot)]
        if any(roams(claim, snapshot) and pod in consumers(claim, snapshot) for claim in claims):
            coming[pod_id(pod)] = pod
    for uncertain, rows in held.others(settled, snapshot, known):
        parts[rows[0].key.claim_uid] = part_of(rows)
        charges.update((charge.key, charge) for charge in rows)
        if uncertain is None:
            differences.append(unknown_claim(rows))
    for uid, reservations in reserved.items():
        if uid not in parts:
            rows, parts[uid] = held.expected(reservations)
            charges.update((charge.key, charge) for charge in rows)
    pods: dict[str, PodPart] = {}
    for pod in sorted(snapshot.node_pods.get(node, ()), key=_key):
        if not pod.terminal and pod_id(pod) not in pods:
            pods[pod_id(pod)], found = _bound(pod, snapshot, costs, memo)
            differences += found
    for name in sorted(coming):
        if name not in pods:
            pods[name] = _coming(coming[name], snapshot, costs)
    pods.update(held.coming(snapshot, pods))
    slices = tuple(snapshot.pools.get(item.key, _NOTHING) for item in snapshot.node_slices.get(node, ()))
    inputs = (known, snapshot.topologies.get(node), snapshot.rollout_specs, *slices)
    capacities = memo.get("zones", inputs, lambda: zone_capacities(node, snapshot))
    account = account_of(node, known.uid, known.allocatable, capacities, parts, pods)
    differences += account_differences(account)
    return NodeBook(account, tuple(charges.values()), tuple(differences))


def _key(pod: Pod) -> str:
    return pod.key


def _charged(claim: Claim, snapshot: Snapshot, node: str, memo: _Parts) -> ClaimCharges:
    results = claim.allocation.results if claim.allocation is not None else ()
    pools = dict.fromkeys((result.driver, result.pool) for result in results)
    inputs: Inputs = (
        claim,
        snapshot.release,
        snapshot.rollout_specs,
        snapshot.nodes.get(node),
        # On 1.36 any slice of the node may have a device of the same pool and device name.
        snapshot.node_slices.get(node),
        *(snapshot.pools.get(pool, _NOTHING) for pool in pools),
        *consumers(claim, snapshot),
    )
    return memo.get(("claim", claim.key), inputs, lambda: claim_charges(claim, snapshot, node))


def _as_booked(claim: Claim, made: ClaimCharges, held: Held, snapshot: Snapshot, memo: _Parts) -> ClaimCharges:
    booked = held.booked(claim)
    if not booked:
        return made
    inputs = (claim, made, booked, snapshot.rollout_specs)
    return memo.get(("booked", claim.key), inputs, lambda: as_booked(claim, made, booked, held.node, snapshot.rollouts))


def _bound(
    pod: Pod, snapshot: Snapshot, costs: dict[str, ClaimCharges], memo: _Parts
) -> tuple[PodPart, list[Difference]]:
    claims = [snapshot.claims.get((pod.namespace, name)) for name in pod.claim_names.values()]
    entered = [snapshot.claims.get((pod.namespace, entry.claim)) for entry in pod.entries]
    inputs: list[object] = [pod, *claims, *entered]
    for claim in (*claims, *entered):
        made = costs.get(claim.key) if claim is not None else None
        # A claim that is not charged here has its cost from its own slices, which may change without it.
        inputs.append(made if claim is None or made is not None else object())
    return memo.get(("pod", pod.key), tuple(inputs), lambda: _bound_parts(pod, snapshot, costs))


def _bound_parts(pod: Pod, snapshot: Snapshot, costs: dict[str, ClaimCharges]) -> tuple[PodPart, list[Difference]]:
    if not pod.claim_names and not pod.entries:
        return PodPart(pod_request(pod).spec(), {}), []

    def cost_of(claim: Claim) -> Footprint:
        made = costs.get(claim.key)
        return footprint(claim, snapshot) if made is None else made.cost

    shares = counted(pod, snapshot, cost_of)
    own = pod_request(pod, shares.claims, shares.overhead).spec()
    # An entry whose claim nobody knows is charged to the pod: the scheduler counts it, and no claim does.
    add(own, {name: amount for name, amount in shares.unknown.items() if amount})
    part = PodPart(own, _overhead(pod, snapshot, costs))

    def charged(claim: Claim) -> Amounts:
        made = costs.get(claim.key)
        return cost_of(claim).amounts if made is None else made.part.amounts

    return part, pod_differences(pod, snapshot, shares, cost_of, charged)


def _coming(pod: Pod, snapshot: Snapshot, costs: dict[str, ClaimCharges]) -> PodPart:
    mapped: dict[str, Number] = {}
    for _, claim in pod_claims(pod, snapshot):
        if claim.key in costs:
            add(mapped, costs[claim.key].part.amounts)
    overhead = _overhead(pod, snapshot, costs)
    return PodPart(pod_request(pod, mapped, overhead).spec(), overhead, reserved=True)


def _overhead(pod: Pod, snapshot: Snapshot, costs: dict[str, ClaimCharges]) -> dict[str, Number]:
    total: dict[str, Number] = {}
    for local, claim in pod_claims(pod, snapshot):
        made = costs.get(claim.key)
        if not reserved_to(pod, claim):
            continue
        if made is not None:
            cost = made.cost
        elif roams(claim, snapshot):
            cost = footprint(claim, snapshot, destination(pod))
        else:
            continue
        entries = [entry_overhead(entry) for entry in pod.entries if cost.missing and entry.claim == claim.name]
        add(total, entries[0] if entries else cost.overhead(len(pod.users(local))))
    return total
