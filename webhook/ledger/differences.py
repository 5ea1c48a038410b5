"""Differences: what in the cluster does not agree with the book, said about the object that has to change."""

from __future__ import annotations

from collections.abc import Iterable

from webhook.facts.account import Account, Amounts, bookable, rounded
from webhook.facts.footprint import footprint
from webhook.facts.placement import claim_node
from webhook.facts.pods import pod_claims
from webhook.facts.times import instant
from webhook.facts.waits import allocated_at
from webhook.kube.claims import Claim
from webhook.kube.core import Node
from webhook.kube.finding import Finding
from webhook.kube.quantity import of_resource
from webhook.kube.snapshot import Snapshot
from webhook.ledger.charges import ClaimCharges, Difference, about_claim


def said(amounts: Amounts) -> str:
    """Amounts as people read them."""
    return ", ".join(f"{of_resource(name, amounts[name])} {name}" for name in sorted(amounts)) or "nothing"


def concerned(differences: Iterable[Difference], snapshot: Snapshot) -> set[str]:
    """The UIDs of the claims and pods that ``differences`` are about, notes left out; with a pod go the claims that it
    uses or has entries for. One about a whole node is about no claim in particular.
    """
    found: set[str] = set()
    for each in differences:
        place = each.namespace, each.name
        if each.finding.severity == "info":
            continue
        if each.kind == "ResourceClaim" and (claim := snapshot.claims.get(place)) is not None:
            found.add(claim.uid)
        elif each.kind == "Pod" and (pod := snapshot.pods.get(place)) is not None:
            entered = [snapshot.claims.get((pod.namespace, entry.claim)) for entry in pod.entries]
            used = [claim for _, claim in pod_claims(pod, snapshot)]
            found |= {pod.uid, *(claim.uid for claim in (*used, *entered) if claim is not None)}
    return found - {""}


def sharing_differences(claim: Claim, made: ClaimCharges, snapshot: Snapshot) -> list[Difference]:
    """Exclusive devices that an older claim holds too; the older one keeps its right, the younger is reported."""
    found: list[Difference] = []
    exclusive = {charge.result.index for charge in made.cost.charges if not charge.device.multiple}
    for result in claim.allocation.results if claim.allocation else ():
        if result.index not in exclusive or result.admin:
            continue
        holders = [
            other
            for other in snapshot.device_claims.get(result.identity, ())
            if other.key != claim.key and _age(other) < _age(claim) and _holds(other, result.identity)
        ]
        if holders:
            finding = Finding(
                "exclusive-device-taken",
                f"status.allocation.devices.results[{result.index}].device",
                f"device {result.device}, which claim {min(holders, key=_age).key} holds",
                "a device of its own",
                "release the younger claim",
            )
            found.append(about_claim(claim, finding, "surplus"))
    return found


def _age(claim: Claim) -> tuple[str, str]:
    return (claim.allocation.timestamp if claim.allocation else "", claim.key)


def _holds(claim: Claim, identity: tuple[str, str, str]) -> bool:
    results = claim.allocation.results if claim.allocation else ()
    return any(result.identity == identity and not result.admin for result in results)


def same_uid(claim: Claim) -> Difference:
    """A claim with the UID of another one: its charges have the other one's keys, so they are not charged."""
    finding = Finding(
        "duplicate-charge",
        "metadata.uid",
        f"the UID {claim.id} of another claim",
        "a UID of its own; it is charged once",
        "remove one of the two copies",
    )
    return about_claim(claim, finding, "surplus")


def left_behind(claim: Claim, made: ClaimCharges, node: Node) -> bool:
    """Whether the claim was allocated on an earlier node of the same name, and no pod on this one uses it."""
    created = instant(node.created) if node.created else None
    if created is None or made.state == "bound":
        return False
    allocated = allocated_at(claim)
    return allocated is not None and allocated < created


def node_replaced(claim: Claim, node: Node) -> Difference:
    """The difference about a claim that :func:`left_behind`."""
    when = claim.allocation.timestamp if claim.allocation else ""
    finding = Finding(
        "node-replaced",
        "status.allocation",
        f"an allocation of {when} on {node.name}, which was made again at {node.created}",
        "an allocation on the node as it is now; nothing is charged",
        "release the claim",
        "warning",
    )
    return about_claim(claim, finding, "surplus")


def unplaced(snapshot: Snapshot) -> list[Difference]:
    """Claims that cost something and are on no known node, so that no account has them. Looks at every claim."""
    return [each for key in sorted(snapshot.claims) for each in claim_unplaced(snapshot.claims[key], snapshot)]


def claim_unplaced(claim: Claim, snapshot: Snapshot) -> list[Difference]:
    """The difference about a claim that costs something and is on no known node, where it is one."""
    if claim.allocation is None or claim.allocation.node in snapshot.nodes:
        return []
    node = claim_node(claim, snapshot)
    # Overhead alone is charged with its pods.
    if node in snapshot.nodes or not (cost := footprint(claim, snapshot, node)).mapped:
        return []
    finding = Finding(
        "node-unknown",
        "status.allocation",
        f"{said(cost.amounts)} on {f'node {node}, which is not known' if node else 'no one node'}",
        "a known node, whose account can be charged",
        "give the node too, or release the claim",
        "warning",
    )
    return [about_claim(claim, finding, "missing")]


def account_differences(account: Account) -> list[Difference]:
    """What is overcommitted on the node or in a zone, and amounts charged for what no scheduler books."""
    found: list[Finding] = []
    for name, amount in account.resources.items():
        if bookable(name) and rounded(name, -amount.free) > 0:
            parts = ((amount.pods, "pods"), (amount.claims, "claims"), (amount.overhead, "overhead"))
            sources = [f"{of_resource(name, part)} {what}" for part, what in (*parts, (amount.reserved, "reserved"))]
            found.append(
                Finding(
                    "node-overcommit",
                    f"status.allocatable[{name}]",
                    f"{of_resource(name, amount.allocatable)} {name} for {', '.join(sources)}",
                    f"{of_resource(name, -amount.free)} more",
                    "release a claim or move a pod",
                )
            )
    found += [
        Finding(
            "key-unknown",
            f"status.allocatable[{name}]",
            f"claims that cost {of_resource(name, amount.claims + amount.reserved)} {name}",
            "cpu, memory, ephemeral-storage or hugepages-*; no scheduler books anything else",
            "correct the mapping of the driver",
            "warning",
        )
        for name, amount in account.resources.items()
        if not bookable(name)
    ]
    for zone, amounts in account.zones.items():
        for name, held in amounts.items():
            if held.free is not None and held.capacity is not None and rounded(name, -held.free) > 0:
                found.append(
                    Finding(
                        "zone-overcommit",
                        f"zone {zone} {name}",
                        f"{of_resource(name, held.capacity)} for "
                        f"{of_resource(name, held.claims + held.reserved)} of claims",
                        f"{of_resource(name, -held.free)} more",
                        "release a claim of that zone",
                    )
                )
    return [Difference("amount", "v1", "Node", "", account.node, finding) for finding in found]
