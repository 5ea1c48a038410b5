"""What a pod asks of its node, computed as the scheduler does (KEP-5517, component-helpers resource)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field

from webhook.facts.account import Amounts, add, bookable, rounded
from webhook.facts.footprint import Footprint, footprint
from webhook.facts.placement import roams
from webhook.kube.claims import Claim
from webhook.kube.core import Container, Pod
from webhook.kube.finding import Finding
from webhook.kube.quantity import Number, of_resource
from webhook.kube.resource import Entry
from webhook.kube.snapshot import Snapshot

_NONE: Amounts = {}


def pod_id(pod: Pod) -> str:
    """The UID, or ``namespace/name`` for a pod that has none (files)."""
    return pod.uid or pod.key


class Share(Struct, frozen=True):
    """A pod's request of one resource by source, base units. ``spec`` is its own part: what is left of ``total`` when
    the claims and the overhead counted for the pod are taken away, so a pod-level request of 11 with a claim of 10
    has 1. ``needed`` is the sum without the pod-level request, which must cover it.
    """

    spec: Number
    claims: Number
    overhead: Number
    total: Number
    needed: Number
    pod_level: bool


class PodRequest(Struct, frozen=True):
    """A pod's whole request, by resource."""

    resources: Mapping[str, Share]

    def spec(self) -> dict[str, Number]:
        """The pod's own part by resource, zeros left out."""
        return {name: share.spec for name, share in self.resources.items() if share.spec}

    def total(self) -> dict[str, Number]:
        """What the node is charged by resource, zeros left out."""
        return {name: share.total for name, share in self.resources.items() if share.total}


class Counted(Struct, frozen=True):
    """What the scheduler counts for a pod's claims, and the claims that cost something and are not counted.

    ``unknown`` is the part of ``claims`` and ``overhead`` whose claim nobody knows (any more).
    """

    claims: Amounts
    overhead: Amounts
    unknown: Amounts = field(default_factory=dict)
    uncounted: tuple[tuple[Claim, Footprint], ...] = ()


def _requests(pod: Pod, container: Container) -> Amounts:
    held = pod.resize.get(container.name)
    if not held:
        return container.requests
    return {name: _larger(pod, amount, held.get(name)) for name, amount in container.requests.items()}


def _larger(pod: Pod, wanted: Number, held: Number | None) -> Number:
    """While a resize is in flight the node must have room for the larger of what is wanted and what is held; for no
    more than what is held once the kubelet has refused it.
    """
    if held is None:
        return wanted
    return held if pod.infeasible else max(wanted, held)


def containers_request(pod: Pod) -> dict[str, Number]:
    """What the containers ask for together: regular ones and sidecars, or the largest moment of the initialisation."""
    running: dict[str, Number] = {}
    for container in pod.containers:
        add(running, _requests(pod, container))
    sidecars: dict[str, Number] = {}
    peak: dict[str, Number] = {}
    for container in pod.init_containers:
        requests = _requests(pod, container)
        moment = dict(sidecars)
        add(moment, requests)
        if container.sidecar:
            sidecars = moment
        for resource, amount in moment.items():
            peak[resource] = max(amount, peak.get(resource, amount))
    add(running, sidecars)
    for resource, amount in peak.items():
        running[resource] = max(amount, running.get(resource, amount))
    return running


def _pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def pod_request(pod: Pod, claims: Amounts = _NONE, overhead: Amounts = _NONE) -> PodRequest:
    """The request of a pod whose claims cost ``claims`` by mapping and ``overhead`` (1.37), base units: exact sums, the
    total then rounded up as node fit counts it (what that adds is the pod's own part).

    Claims come on top of the initialisation's largest moment; a pod-level request replaces the sum, resource by
    resource; the pod's own ``overhead`` is always added, but to what the status says of pod-level requests, where it is
    in already. Resources that claims cannot cost are left out.
    """
    base = containers_request(pod)
    level = {name: amount for name, amount in (pod.pod_requests or {}).items() if _pod_level(name)}
    resources: dict[str, Share] = {}
    for name in dict.fromkeys([*base, *level, *pod.overhead, *claims, *overhead]):
        if not bookable(name):
            continue
        by_claims, extra, fixed = claims.get(name, 0), overhead.get(name, 0), pod.overhead.get(name, 0)
        needed = base.get(name, 0) + by_claims + extra + fixed
        # Each pod is rounded up for itself, so that what is lost adds up: the node has no room for it.
        total = rounded(name, _larger(pod, level[name] + fixed, pod.held.get(name)) if name in level else needed)
        own = max(total - by_claims - extra, 0)
        resources[name] = Share(own, by_claims, extra, total, needed, name in level)
    return PodRequest(resources)


def budget_problems(request: PodRequest, path: str = "spec.resources.requests") -> list[Finding]:
    """``pod-budget-too-small`` for each pod-level request that does not cover containers, claims and overhead."""
    return [
        Finding(
            "pod-budget-too-small",
            f"{path}[{name}]",
            f"{of_resource(name, share.total)} {name} for the whole pod",
            f"{of_resource(name, share.needed)}, "
            f"of which claims cost {of_resource(name, share.claims + share.overhead)}",
            "raise the pod-level request, or leave it out",
        )
        for name, share in request.resources.items()
        if share.pod_level and share.needed > share.total
    ]


def pod_claims(pod: Pod, snapshot: Snapshot) -> list[tuple[str, Claim]]:
    """The claims a pod uses, with their pod-local names. A claim of the same name that another pod owns, or that is
    reserved for others only, is not this pod's (pods and claims are matched by UID).
    """
    found: list[tuple[str, Claim]] = []
    for local, name in pod.claim_names.items():
        claim = snapshot.claims.get((pod.namespace, name))
        if claim is not None and not _foreign(pod, claim):
            found.append((local, claim))
    return found


def _foreign(pod: Pod, claim: Claim) -> bool:
    if not pod.uid:
        return False
    owners = [owner.get("uid") for owner in claim.owners if owner.get("kind") == "Pod"]
    return bool(owners) and pod.uid not in owners


def reserved_to(pod: Pod, claim: Claim) -> bool:
    """Whether the claim is the pod's to use: reserved for it, or for nobody."""
    holders = [consumer for consumer in claim.reserved_for if consumer.is_pod]
    if not holders:
        return True
    return any(holder.uid == pod.uid if holder.uid and pod.uid else holder.name == pod.name for holder in holders)


def entry_overhead(entry: Entry) -> dict[str, Number]:
    """The overhead part of a pod status entry, for all its containers."""
    total = {name: max(amount, 0) for name, amount in entry.per_pod.items()}
    count = len(set(entry.containers))
    if count:
        add(total, {name: max(amount, 0) * count for name, amount in entry.per_container.items()})
    return total


def counted(pod: Pod, snapshot: Snapshot, cost_of: Callable[[Claim], Footprint] | None = None) -> Counted:
    """What the scheduler counts for the claims of a pod that has a node: its status entries, and nothing else.

    A claim that costs something and has no entry is ``uncounted``: allocated before the pod came (1.36), placed by
    another scheduler, or from a time when the gate was off. The node pays for it all the same. ``cost_of`` gives
    footprints that are known already.
    """
    claims: dict[str, Number] = {}
    overhead: dict[str, Number] = {}
    unknown: dict[str, Number] = {}
    for entry in pod.entries:
        mapped = {name: max(amount, 0) for name, amount in entry.amounts.items()}
        extra = entry_overhead(entry)
        add(claims, mapped)
        add(overhead, extra)
        if (pod.namespace, entry.claim) not in snapshot.claims:
            add(unknown, mapped)
            add(unknown, extra)
    entered = {entry.claim for entry in pod.entries}
    uncounted = [
        (claim, cost)
        for _, claim in pod_claims(pod, snapshot)
        if claim.name not in entered and claim.allocation is not None and reserved_to(pod, claim)
        if (cost := footprint(claim, snapshot) if cost_of is None else cost_of(claim)).costs
    ]
    return Counted(claims, overhead, unknown, tuple(uncounted))


def will_count(
    pod: Pod,
    claims: Iterable[tuple[str, Claim]],
    snapshot: Snapshot,
    node: str,
    cost_of: Callable[[Claim], Footprint] | None = None,
) -> Counted:
    """What the scheduler will count for a pod that is being placed on ``node`` with these claims, each given with its
    pod-local name; claims that are not allocated there count nothing yet, and one that roams no more than the
    overhead there. ``cost_of`` as for :func:`counted`.
    """
    amounts: dict[str, Number] = {}
    overhead: dict[str, Number] = {}
    for local, claim in claims:
        cost = footprint(claim, snapshot) if cost_of is None else cost_of(claim)
        if cost.node == node:
            add(amounts, cost.amounts)
            add(overhead, cost.overhead(len(pod.users(local))))
        elif cost.costs and roams(claim, snapshot):
            add(overhead, footprint(claim, snapshot, node).overhead(len(pod.users(local))))
    return Counted(amounts, overhead)
