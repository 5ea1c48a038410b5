"""Why an account holds what it holds, in sentences for people."""

from __future__ import annotations

from webhook.facts.account import PodPart
from webhook.facts.footprint import footprint
from webhook.facts.placement import find_device
from webhook.facts.pods import containers_request
from webhook.kube.claims import Claim, Result
from webhook.kube.core import Pod
from webhook.kube.node_ledger import PLACE
from webhook.kube.quantity import of_resource
from webhook.kube.resource import NodeCost
from webhook.kube.snapshot import Snapshot
from webhook.ledger.charges import AS_BOOKED, Charge


def why_amount(charge: Charge, claim: Claim | None, snapshot: Snapshot) -> str:
    """Where the amount of ``charge`` comes from."""
    key = charge.key
    if key.allocation == PLACE:
        return f"request {key.request} has a place, whichever device it will get; its pod was let go to this node"
    given = f"request {key.request} got device {key.device} of pool {key.pool}"
    if charge.formula == AS_BOOKED:
        return f"{given}; its mapping is not known any more, the status of its pod has booked the amount"
    result = _result(charge, claim)
    found = find_device(snapshot, result, key.node) if result is not None else None
    if result is None or found is None:
        return f"{given}; booked by version {charge.resource_version or 'unknown'} of slice {charge.slice}"
    item, device = found
    if device.digest != charge.digest:
        version = f"{charge.resource_version or 'unknown'} of slice {charge.slice}"
        return f"{given}; booked by version {version}, since when its mapping has changed"
    cost = next((each for each in device.effective_costs if each.resource == key.resource), None)
    return f"{given}; slice {item.name}: {_cost(cost, result)}" if cost is not None else given


def _result(charge: Charge, claim: Claim | None) -> Result | None:
    key = charge.key
    wanted = (key.request, key.driver, key.pool, key.device, key.share_id)
    results = claim.allocation.results if claim is not None and claim.allocation is not None else ()
    return next((each for each in results if (each.request, *each.identity, each.share_id) == wanted), None)


def _cost(cost: NodeCost, result: Result) -> str:
    each = f"{of_resource(cost.resource, cost.multiplier or 0)} {cost.resource}"
    if cost.capacity_key is None:
        return f"{each} for an allocation of it"
    consumed = (result.consumed or {}).get(cost.capacity_key, 0)
    used = of_resource(cost.resource, consumed)
    return f"{each} for each unit of its capacity {cost.capacity_key}, of which the claim consumes {used}"


def why_zone(charge: Charge) -> str:
    """Which account of a zone has ``charge`` too."""
    if charge.zone is None:
        return "its device is of no one known zone: on the account of the node alone"
    return f"its device is of zone {charge.zone}"


def why_state(charge: Charge) -> str:
    """How far ``charge`` is in its life, and what ends it."""
    if charge.key.allocation == PLACE:
        return "its pod was let go, and its claim has no allocation that is seen yet; it goes with one, or after a time"
    if charge.state == "reserved":
        return "its allocation was admitted and is not seen yet; it goes once it is certain that there is none"
    if charge.state == "allocated":
        return "its claim is allocated, and no pod uses it on the node yet; it goes with the allocation"
    return "a pod uses its claim on the node; it goes with the allocation"


def why_requested(pod: Pod, part: PodPart, resource: str) -> str:
    """How the pod's own part of ``resource`` comes about, from its containers to what its claims cost already."""
    base = containers_request(pod)
    said = [f"containers {of_resource(resource, base.get(resource, 0))}"]
    level = (pod.pod_requests or {}).get(resource)
    if level is not None:
        said.append(f"pod-level request {of_resource(resource, level)} with all that its claims cost")
    if resource in pod.overhead:
        said.append(f"overhead of its runtime class {of_resource(resource, pod.overhead[resource])}")
    if part.reserved:
        said.append("on its way to the node")
    return ", ".join(said)


def why_nothing(claim: Claim | None, snapshot: Snapshot) -> str:
    """Why no node is charged for ``claim``."""
    if claim is None or claim.allocation is None:
        return "it has no allocation"
    cost = footprint(claim, snapshot)
    if cost.mapped:
        return f"node {cost.node} is not known" if cost.node else "it is on no one node"
    if cost.missing:
        return "its devices are in no slice, and no ledger has booked them"
    return "none of its devices costs a node anything by a mapping"
