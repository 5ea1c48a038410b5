"""Whether an allocation's devices exist, are what the claim asked for, and carry amounts that can be booked."""

from __future__ import annotations

import difflib

from msgspec.structs import replace

from webhook.facts.device_use import use_problems
from webhook.facts.duplicates import duplicate_problems
from webhook.facts.footprint import Footprint, footprint
from webhook.facts.matching import device_applies
from webhook.facts.placement import claim_node
from webhook.facts.pool_survey import View, survey, view
from webhook.facts.pools import costless, published
from webhook.facts.request_policy import off_policy
from webhook.kube.claims import Claim, DeviceRequest, Result
from webhook.kube.finding import Finding
from webhook.kube.quantity import canonical
from webhook.kube.resource import Device, Slice
from webhook.kube.snapshot import Snapshot

RESULTS = "status.allocation.devices.results"

Offer = tuple[Slice, Device]


def device_problems(claim: Claim, snapshot: Snapshot, cost: Footprint | None = None) -> list[Finding]:
    """Everything that is wrong with the devices of a claim's allocation: unknown, taken, overcommitted, amounts that
    cannot be booked or are booked already as others, results nobody asked for. The problems of its footprint are among
    them. Warnings alone where the device's driver never costs a node anything. ``cost`` is the footprint of ``claim``,
    where it is known already.
    """
    if claim.allocation is None:
        return []
    node = claim_node(claim, snapshot)
    requests = {alternative.name: alternative for group in claim.groups for alternative in group.alternatives}
    found: list[Finding] = []
    offers: dict[int, Offer] = {}
    for result in claim.allocation.results:
        path = f"{RESULTS}[{result.index}]"
        found += _request_problems(result, requests, path)
        offer, problems = _locate(result, node, snapshot, path)
        found += problems
        if offer is not None:
            offers[result.index] = offer
            found += _amount_problems(result, offer[1], snapshot, path)
    found += _count_problems(claim, requests)
    found += _spread_problems(claim, offers, node)
    found += use_problems(claim, offers, snapshot, node)
    # A device of another node is there, though the node that is charged has none of that name.
    seen = {("device-unknown" if f.rule == "device-of-other-node" else f.rule, f.path) for f in found}
    cost = footprint(claim, snapshot, node) if cost is None else cost
    found += [f for f in cost.problems if (f.rule, f.path) not in seen]
    found += duplicate_problems(claim, cost, snapshot.ledgers.get(node))
    spared = {f"{RESULTS}[{result.index}]" for result in claim.allocation.results if costless(snapshot, result, claim)}
    return [replace(f, severity="warning") if f"{f.path.partition(']')[0]}]" in spared else f for f in found]


def _request_problems(result: Result, requests: dict[str, DeviceRequest], path: str) -> list[Finding]:
    request = requests.get(result.request)
    if request is None:
        names = ", ".join(requests) or "none, the claim has no requests"
        has = f"request {result.request or '(empty)'}"
        fix = "an alternative of firstAvailable is named request/subrequest"
        return [Finding("request-unknown", f"{path}.request", has, f"one of the claim's requests ({names})", fix)]
    if result.admin and not request.admin:
        has = f"adminAccess for request {request.name}, which does not ask for it"
        return [Finding("admin-access-not-requested", f"{path}.adminAccess", has, "adminAccess in the request")]
    return []


def _count_problems(claim: Claim, requests: dict[str, DeviceRequest]) -> list[Finding]:
    given: dict[str, int] = {}
    for result in claim.allocation.results if claim.allocation is not None else ():
        given[result.request] = given.get(result.request, 0) + 1
    found: list[Finding] = []
    for name, count in given.items():
        request = requests.get(name)
        if request is not None and request.mode == "ExactCount" and count > request.count:
            has = f"{count} devices for request {name}"
            fix = "the node is charged for all of them"
            found.append(Finding("request-exceeded", RESULTS, has, f"{request.count} as asked", fix, "warning"))
    return found


def _locate(result: Result, node: str, snapshot: Snapshot, path: str) -> tuple[Offer | None, list[Finding]]:
    seen = view(snapshot, result.driver, result.pool, node or None)
    offered = survey(seen.kept)
    offer = offered.devices.get(result.device)
    if offer is not None:
        if not node or device_applies(*offer, node, snapshot) is not False:
            return offer, []
    else:
        offer = survey(seen.elsewhere).devices.get(result.device)
    if offer is not None:
        where = f"node {offer[0].node}" if offer[0].node else "other nodes"
        has = f"device {result.device} of pool {result.pool}, which is on {where}"
        needs = f"a device of node {node}, where the claim is allocated"
        return None, [Finding("device-of-other-node", f"{path}.device", has, needs, "release the claim")]
    older = any(result.device == device.name for item in seen.older for device in item.devices)
    return None, [_unknown(result, seen, older, f"{path}.device")]


def _unknown(result: Result, seen: View, older: bool, path: str) -> Finding:
    offered = survey(seen.kept)
    has = f"device {result.device} of pool {result.pool} ({result.driver})"
    if not offered.slices:
        has += ", which has no slice"
        needs = "a pool that its driver has published"
    else:
        generation = offered.slices[0].generation
        has += f", only in a generation before {generation}" if older else ", which is not published"
        near = difflib.get_close_matches(result.device, offered.devices, 3, 0) if len(offered.devices) <= 512 else []
        needs = f"a device of generation {generation}" + (f" ({', '.join(near)})" if near else "")
    fix = "wait until the driver has published, or release the claim"
    return Finding("device-unknown", path, has, needs, fix, passing=not published(seen))


def _amount_problems(result: Result, device: Device, snapshot: Snapshot, path: str) -> list[Finding]:
    found: list[Finding] = []
    where = f"{path}.consumedCapacity"
    keys = [cost.capacity_key for cost in device.costs if cost.capacity_key is not None]
    for key in dict.fromkeys(keys):
        if result.consumed is None or key not in result.consumed:
            has = "no consumedCapacity" if result.consumed is None else f"no readable amount of {key}"
            needs = f"what the claim consumes of {key}: the node cost of {device.name} follows it"
            fix = "let the scheduler allocate; it writes every capacity of a shared device"
            if not device.multiple:
                fix = "an exclusive device never has one: its driver must use a multiplier without capacityKey"
            found.append(Finding("consumed-missing", where, has, needs, fix))
            break
    for name in result.unreadable:
        if name not in keys:
            has = f"an amount of {name} that is no quantity"
            found.append(Finding("consumed-missing", f"{where}[{name}]", has, "a quantity"))
    for name, amount in (result.consumed or {}).items():
        entry = device.capacity.get(name)
        if amount < 0:
            needs = "zero or more: it would free what others use"
            fix = "release the claim and ask for a positive capacity"
            found.append(Finding("consumed-negative", f"{where}[{name}]", f"{canonical(amount)} of {name}", needs, fix))
        elif entry is None:
            names = ", ".join(sorted(device.capacity)[:4]) or "none"
            has = f"{name}, which device {device.name} does not have"
            needs = f"one of its capacities ({names})"
            found.append(Finding("consumed-name-unknown", f"{where}[{name}]", has, needs, "names are literal"))
        elif device.multiple and (wanted := off_policy(amount, entry, snapshot.release)):
            has = f"{canonical(amount)} of {name}"
            fix = "the scheduler rounds by the requestPolicy"
            found.append(Finding("consumed-off-policy", f"{where}[{name}]", has, wanted, fix, "warning"))
    if device.multiple and not result.share_id and not result.admin:
        has = f"no shareID for device {device.name}, which several claims share"
        needs = "the shareID that the scheduler gives every share"
        found.append(Finding("shareid-missing", f"{path}.shareID", has, needs, severity="warning"))
    return found


def _spread_problems(claim: Claim, offers: dict[int, Offer], node: str) -> list[Finding]:
    """Devices of several nodes in one allocation that names none of them."""
    if node:
        return []
    nodes = {offer[0].node: index for index, offer in reversed(offers.items()) if offer[0].node}
    if len(nodes) < 2:
        return []
    has = f"devices of {' and '.join(sorted(nodes))} in one claim"
    path = f"{RESULTS}[{max(nodes.values())}].device"
    return [Finding("device-of-other-node", path, has, "devices of one node", "release the claim")]
