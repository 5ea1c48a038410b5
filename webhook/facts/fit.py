"""Node fit and zone fit: whether an allocation, with the whole request of its pod, has room where it is put."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from webhook.facts.account import Account, Amounts, bookable, rounded
from webhook.facts.footprint import Footprint, footprint
from webhook.facts.placement import roams
from webhook.facts.pods import PodRequest, budget_problems, pod_claims, pod_id, pod_request, will_count
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.finding import Finding
from webhook.kube.quantity import Number, of_resource
from webhook.kube.snapshot import Snapshot

WHERE = "status.allocation"


class FitRow(Struct, frozen=True, dict=True):
    """The equation of one resource, of the node or (``zone`` given) of a zone, base units: ``has`` minus what is
    charged to others by source, minus this claim and this pod, leaves ``free``. ``has`` is None where the zone's
    capacity is not known, and then there is no ``free``.
    """

    resource: str
    zone: int | None
    has: Number | None
    pods: Number
    claims: Number
    overhead: Number
    reserved: Number
    claim: Number
    pod: Number

    @property
    def before(self) -> Number | None:
        """What is free for this claim and this pod."""
        return None if self.has is None else self.has - self.pods - self.claims - self.overhead - self.reserved

    @cached_property
    def free(self) -> Number | None:
        """What is left after them, rounded as node fit rounds; negative when they do not fit."""
        if self.has is None:
            return None
        parts = (self.pods, self.claims, self.overhead, self.reserved, self.claim, self.pod)
        used = sum(part for part in parts if part)  # adding nothing to a fraction is no less work than adding something
        return self.has - rounded(self.resource, used)

    @property
    def fits(self) -> bool:
        """Whether they fit (an exact fit does); true where nothing is known or nothing is asked."""
        free = self.free
        return free is None or free >= 0 or not (self.claim or self.pod)

    def equation(self) -> str:
        """The sum as people read it."""
        named = (
            ("pods", self.pods),
            ("claims", self.claims),
            ("overhead", self.overhead),
            ("reserved", self.reserved),
            ("this claim", self.claim),
            ("this pod", self.pod),
        )
        parts = "".join(f" - {of_resource(self.resource, amount)} {name}" for name, amount in named if amount)
        free = self.free
        if self.has is None or free is None:
            return f"unknown{parts}"
        has = f"{of_resource(self.resource, self.has)} {'allocatable' if self.zone is None else 'in the zone'}"
        return f"{has}{parts} = {of_resource(self.resource, free)}"


class Fit(Struct, frozen=True):
    """The answer: ``findings`` (an error means it does not fit) and the sums they come from."""

    findings: tuple[Finding, ...]
    rows: tuple[FitRow, ...]

    @property
    def fits(self) -> bool:
        """Whether nothing refuses."""
        return not any(finding.severity == "error" for finding in self.findings)


def fit_problems(
    claim: Claim | None,
    pod: Pod | None,
    account: Account | None,
    snapshot: Snapshot,
    cost: Footprint | None = None,
) -> Fit:
    """Whether ``claim`` (as allocated in the object under review) and ``pod`` fit the node of ``account``.

    Charged are all others, this claim, and the whole request of the pod with everything its claims on this node cost;
    the account may hold the claim and the pod already or not. Without a claim it is the fit of the pod alone (binding,
    resize). A pod's claims that are allocated are judged, not those that still wait. ``account`` None: the node is
    not known. ``cost`` is the footprint of ``claim``, where it is known already.
    """
    if cost is None:
        cost = Footprint("") if claim is None else footprint(claim, snapshot)
    if claim is not None and not cost.costs:
        return Fit((), ())
    findings = [
        problem
        for problem in cost.problems
        if problem.rule in ("product-overflow", "product-too-fine", "device-ambiguous")
    ]
    if account is None:
        if claim is not None:
            findings.append(_nowhere(claim, cost, pod, snapshot))
        return Fit(tuple(findings), ())
    if claim is not None and pod is None:
        findings.append(_podless(claim))
    others = account.without(charged_as(claim, snapshot) if claim is not None else "", pod_id(pod) if pod else "")
    request = None
    if pod is not None:
        request = _whole_request(claim, cost, pod, account, snapshot)
        findings += budget_problems(request)
    own = _own(request)
    rows = [*node_rows(others, cost.amounts, own), *_zone_rows(others, cost.zones())]
    findings += [_refusal(row, claim, pod, account.node) for row in rows if not row.fits and bookable(row.resource)]
    findings += _unknown_zones(cost, others)
    return Fit(tuple(findings), tuple(rows))


def charged_as(claim: Claim, snapshot: Snapshot) -> str:
    """The id under which an account charges ``claim``: its own, or for an object without UID (a file) that of the known
    claim of its namespace and name.
    """
    known = None if claim.uid else snapshot.claims.get((claim.namespace, claim.name))
    return claim.id if known is None else known.id


def _whole_request(claim: Claim | None, cost: Footprint, pod: Pod, account: Account, snapshot: Snapshot) -> PodRequest:
    claims = pod_claims(pod, snapshot)
    if claim is not None:
        claims = [(local, claim if other.key == claim.key else other) for local, other in claims]
        if not any(other.key == claim.key for _, other in claims):
            claims += [(local, claim) for local, name in pod.claim_names.items() if name == claim.name]
    shares = will_count(
        pod, claims, snapshot, account.node, lambda each: cost if each is claim else footprint(each, snapshot)
    )
    return pod_request(pod, shares.claims, shares.overhead)


def _own(request: PodRequest | None) -> dict[str, Number]:
    """The pod's part with its overhead: what its claims cost by mapping is in the account or is this claim's."""
    if request is None:
        return {}
    shares = request.resources.items()
    return {name: share.spec + share.overhead for name, share in shares if share.spec or share.overhead}


def node_rows(others: Account, amounts: Amounts, own: Amounts) -> Iterator[FitRow]:
    """The equation of each resource that a claim (``amounts``) or its pod (``own``) asks of the node of ``others``."""
    for name in dict.fromkeys([*amounts, *own]):
        held = others.resources.get(name)
        claim, pod = amounts.get(name, 0), own.get(name, 0)
        if held is None:
            yield FitRow(name, None, 0, 0, 0, 0, 0, claim, pod)
        else:
            yield FitRow(name, None, held.allocatable, held.pods, held.claims, held.overhead, held.reserved, claim, pod)


def _zone_rows(others: Account, zones: Mapping[int, Mapping[str, Number]]) -> Iterator[FitRow]:
    for zone in sorted(zones):
        for name, amount in zones[zone].items():
            held = others.zones.get(zone, {}).get(name)
            if held is None:
                yield FitRow(name, zone, None, 0, 0, 0, 0, amount, 0)
            else:
                yield FitRow(name, zone, held.capacity, 0, held.claims, 0, held.reserved, amount, 0)


def _refusal(row: FitRow, claim: Claim | None, pod: Pod | None, node: str) -> Finding:
    asked = []
    if row.claim and claim is not None:
        asked.append(f"{of_resource(row.resource, row.claim)} for claim {claim.key}")
    if row.pod and pod is not None:
        asked.append(f"{of_resource(row.resource, row.pod)} for pod {pod.key}")
    room = of_resource(row.resource, max(row.before or 0, 0))
    place = f"node {node}" if row.zone is None else f"zone {row.zone} of node {node}"
    return Finding(
        "node-overcommit" if row.zone is None else "zone-overcommit",
        WHERE if claim is not None else "spec",
        f"{row.resource} {' and '.join(asked)} on {place} ({row.equation()})",
        f"at most {room}, which is what is free there",
        "release a claim or move a pod there, or allocate elsewhere",
    )


def _unknown_zones(cost: Footprint, others: Account) -> Iterator[Finding]:
    unknown = dict.fromkeys(charge.resource for charge in cost.charges if charge.zone is None and charge.amount)
    for zone, amounts in cost.zones().items():
        known = others.zones.get(zone, {})
        unknown.update((name, None) for name in amounts if name not in known or known[name].capacity is None)
    if unknown:
        yield Finding(
            "zone-unknown",
            WHERE,
            f"{', '.join(unknown)} whose NUMA zone, or what that zone holds, is not known",
            "a device with one NUMA node and a node whose zones are described, to judge zone fit",
            "",
            "info",
        )


def _podless(claim: Claim) -> Finding:
    holders = ", ".join(holder.name for holder in claim.reserved_for if holder.is_pod)
    return Finding(
        "pod-unknown",
        "status.reservedFor",
        f"pod {holders}, which is not known" if holders else "no pod",
        "the pod that uses the claim, to judge its own request too",
        "",
        "info",
    )


def _nowhere(claim: Claim, cost: Footprint, pod: Pod | None, snapshot: Snapshot) -> Finding:
    if cost.node:
        has, needs = f"node {cost.node}, which is not known", "a known node, to judge whether the claim fits"
        return Finding("node-unknown", WHERE, has, needs, "wait until the node is registered", "warning")
    holder = next((holder for holder in claim.reserved_for if holder.is_pod), None)
    why = "nobody it is reserved for" if holder is None else f"pod {holder.name} is not known"
    if pod is not None:
        why = f"pod {pod.name} has none yet"
    # Devices of several nodes are refused as such; a 1.37 overhead without a pod costs no node anything.
    charged = roams(claim, snapshot) and (cost.mapped or holder is not None)
    return Finding(
        "node-unknown",
        WHERE,
        f"no one node ({why})",
        "one node, whose account is charged for the claim and its pod",
        "reserve the claim in the write that allocates it, for a pod whose status.nominatedNodeName tells its node",
        "error" if charged else "info",
    )
