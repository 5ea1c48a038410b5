"""Charges: what a claim costs a node, device by device, each with a key that stays the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from webhook.facts.account import ClaimPart, add
from webhook.facts.footprint import Footprint, footprint
from webhook.facts.placement import consumers
from webhook.kube.claims import Claim, Result
from webhook.kube.core import Pod
from webhook.kube.finding import Finding
from webhook.kube.node_ledger import as_stored
from webhook.kube.quantity import Number, of_resource
from webhook.kube.resource import Entry
from webhook.kube.snapshot import Snapshot

State = Literal["reserved", "allocated", "bound"]
Category = Literal["missing", "surplus", "amount", "pod-status"]

AS_BOOKED = "as booked in the pod status"


class ChargeKey(Struct, frozen=True, gc=False, cache_hash=True):
    """What makes a charge one and the same, whatever version its mapping has: seen again it is not charged again."""

    claim_uid: str
    allocation: str
    request: str
    driver: str
    pool: str
    device: str
    share_id: str
    node: str
    resource: str


class Charge(Struct, frozen=True, gc=False):
    """One amount of one resource of a node (and of a zone, if it is known), caused by one device of a claim.

    ``pods`` are the pods the claim is reserved for (``namespace/name``); the slice fields tell which version of the
    mapping gave the amount and are empty where the amount is kept as booked.
    """

    key: ChargeKey
    namespace: str
    name: str
    pods: tuple[str, ...]
    slice: str
    slice_uid: str
    generation: int
    resource_version: str
    digest: str
    amount: Number
    zone: int | None
    formula: str
    state: State
    since: str


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that does not agree with the book: about which object, and what."""

    category: Category
    api_version: str
    kind: str
    namespace: str
    name: str
    finding: Finding


@dataclass(frozen=True, slots=True)
class ClaimCharges:
    """All charges of one claim on one node, what they sum to, and what does not agree. ``pods`` and ``state`` are those
    of each charge, and known where there is none.
    """

    charges: tuple[Charge, ...]
    part: ClaimPart
    cost: Footprint
    differences: tuple[Difference, ...]
    pods: tuple[str, ...]
    state: State


def about_claim(claim: Claim, finding: Finding, category: Category = "amount") -> Difference:
    """A difference about a claim."""
    return Difference(category, "resource.k8s.io/v1", "ResourceClaim", claim.namespace, claim.name, finding)


def claim_charges(claim: Claim, snapshot: Snapshot, node: str) -> ClaimCharges:
    """The charges of an allocated claim on ``node``.

    Where a device or its mapping is gone, the amount that the pod's status entry holds stays charged until the claim
    is released, and a difference says so; without an entry the difference alone remains.
    """
    cost = footprint(claim, snapshot, node)
    pods = [pod for pod in consumers(claim, snapshot) if not pod.terminal]
    maker = _Maker(claim, node, pods)
    charges: dict[ChargeKey, Charge] = {}
    differences = [about_claim(claim, problem, _category(problem)) for problem in cost.problems]
    for charge in cost.charges:
        item = charge.slice
        made = maker.charge(
            charge.result,
            charge.resource,
            charge.amount,
            charge.formula,
            charge.zone,
            (item.name, item.uid, item.generation, item.resource_version, charge.digest),
        )
        if made.key in charges:
            differences.append(about_claim(claim, _twice(made, charge.result.index)))
        else:
            charges[made.key] = made
    kept = _kept(claim, cost, pods)
    for resource, amount in kept.items():
        result = _blamed(claim, cost)
        if result is None:
            continue
        made = maker.charge(result, resource, amount, AS_BOOKED, None, ("", "", 0, "", ""))
        if made.key not in charges:
            charges[made.key] = made
            differences.append(about_claim(claim, _lost(result, resource, amount), "surplus"))
    amounts: dict[str, Number] = {}
    zones: dict[int, dict[str, Number]] = {}
    for made in charges.values():
        add(amounts, {made.key.resource: made.amount})
        if made.zone is not None:
            add(zones.setdefault(made.zone, {}), {made.key.resource: made.amount})
    part = ClaimPart(amounts, zones)
    return ClaimCharges(tuple(charges.values()), part, cost, tuple(differences), maker.pods, maker.state)


class _Maker:
    """Makes the charges of one claim, whose pods, state and time are the same for all of them."""

    def __init__(self, claim: Claim, node: str, pods: list[Pod]) -> None:
        self.claim = claim
        self.node = node
        self.state: State = "bound" if any(pod.node == node for pod in pods) else "allocated"
        self.pods = tuple(
            dict.fromkeys(f"{claim.namespace}/{holder.name}" for holder in claim.reserved_for if holder.is_pod)
        )

    def charge(
        self,
        result: Result,
        resource: str,
        amount: Number,
        formula: str,
        zone: int | None,
        mapping: tuple[str, str, int, str, str],
    ) -> Charge:
        claim, allocation = self.claim, self.claim.allocation
        identity, since = (allocation.identity, allocation.timestamp) if allocation else ("", "")
        key = ChargeKey(claim.id, identity, result.request, *result.identity, result.share_id, self.node, resource)
        # As a ledger keeps it: what is booked and what is computed come to the same.
        kept = as_stored(amount)
        return Charge(key, claim.namespace, claim.name, self.pods, *mapping, kept, zone, formula, self.state, since)


def _kept(claim: Claim, cost: Footprint, pods: list[Pod]) -> dict[str, Number]:
    """What the claim's status entry books and its devices no longer explain."""
    entry = next((e for pod in pods for e in pod.entries if e.claim == claim.name), None)
    if entry is None:
        return {}
    return {
        resource: left
        for resource, amount in entry.amounts.items()
        if (left := amount - cost.amounts.get(resource, 0)) > 0 and _unexplained(entry, resource, cost)
    }


def _unexplained(entry: Entry, resource: str, cost: Footprint) -> bool:
    # An entry that only says more than a mapping that is there is wrong, not old: pod status never replaces the book.
    if cost.missing or any(problem.rule == "consumed-missing" for problem in cost.problems):
        return True
    return resource not in cost.amounts and not any(p.rule == "consumed-negative" for p in cost.problems)


def _blamed(claim: Claim, cost: Footprint) -> Result | None:
    results = cost.missing or (claim.allocation.results if claim.allocation else ())
    return results[0] if results else None


def _category(problem: Finding) -> Category:
    return "missing" if problem.rule == "device-unknown" else "amount"


def _twice(charge: Charge, index: int) -> Finding:
    return Finding(
        "duplicate-charge",
        f"status.allocation.devices.results[{index}]",
        f"device {charge.key.device} for request {charge.key.request} once more",
        "each device of a request once; it is charged once",
        "release the claim, its allocation is not one that a scheduler makes",
    )


def _lost(result: Result, resource: str, amount: Number) -> Finding:
    return Finding(
        "mapping-lost",
        "status.allocation",
        f"{of_resource(resource, amount)} {resource} booked by its pod, which the slices of {result.driver} no longer "
        "explain",
        "its device with the mapping it was allocated with; the amount stays charged until the claim is released",
        f"have the driver {result.driver} publish the device again, or release the claim",
        "warning",
    )
