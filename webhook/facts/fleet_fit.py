"""Whether a set of pods, each with its claims, fits a fleet: one after the other is placed, the hardest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from msgspec.structs import replace

from webhook.facts.account import Account
from webhook.facts.change import Accounts
from webhook.facts.footprint import footprint
from webhook.facts.interval import Interval, NodeFit, interval
from webhook.facts.placement import claim_node
from webhook.facts.pods import pod_request
from webhook.facts.sharing import mapped
from webhook.kube.claims import Allocation, Claim, Consumer, Result
from webhook.kube.core import Pod
from webhook.kube.finding import Finding
from webhook.kube.resource import Entry
from webhook.kube.snapshot import Snapshot

# Another order may fit where one does not; a proof takes exponential time.
_MOST_ORDERS = 8


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod with the claims that it uses, ``claim_names`` filled in; or a claim that no pod of the set names."""

    pod: Pod | None
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of ``wanted``: where it was put (None: no node could take it after the others), what each node said
    then, and whether it may fit after all (``open``): some node could take it if it came first.
    """

    wanted: Wanted
    fit: NodeFit | None
    nodes: tuple[NodeFit, ...]
    open: bool


class UnknownClaimError(Exception):
    """A pod names a claim or template that is neither given nor known."""


def wanted_of(
    pods: Sequence[Pod], claims: Iterable[Claim], templates: Iterable[Claim], snapshot: Snapshot
) -> list[Wanted]:
    """Each of ``pods`` with its claims: of ``claims``, made of ``templates``, or known already; then each claim and
    template that no pod names. Raises UnknownClaimError.
    """
    given = {(claim.namespace, claim.name): claim for claim in claims}
    patterns = {(template.namespace, template.name): template for template in templates}
    named: set[tuple[str, str]] = set()
    used: set[tuple[str, str]] = set()
    found: list[Wanted] = []
    for pod in pods:
        mine: list[Claim] = []
        names: dict[str, str] = {}
        for entry in pod.claims:
            name = entry.claim_name or pod.claim_names.get(entry.name, "")
            key, pattern = (pod.namespace, name), (pod.namespace, entry.template_name)
            claim = given.get(key) or snapshot.claims.get(key)
            template = patterns.get(pattern) or snapshot.templates.get(pattern)
            if claim is None and template is not None:
                claim = replace(template, name=f"{pod.name}-{entry.name}", uid="")
                used.add(pattern)
            if claim is None:
                kind, what = ("claim", name) if entry.claim_name else ("template", entry.template_name)
                raise UnknownClaimError(f"pod {pod.key}: has {kind} {what}, which is neither given nor in the cluster")
            named.add((claim.namespace, claim.name))
            names[entry.name] = claim.name
            mine.append(claim)
        found.append(Wanted(replace(pod, claim_names=names), tuple(mine)))
    rest = [claim for key, claim in given.items() if key not in named]
    rest += [template for key, template in patterns.items() if key not in used]
    return found + [Wanted(None, (claim,)) for claim in rest]


def place(
    wanted: Sequence[Wanted], given: Iterable[Claim], snapshot: Snapshot, accounts: Accounts, now: datetime
) -> tuple[list[Placed], Snapshot]:
    """``wanted`` placed on the nodes of ``snapshot``, each where the least is left of what it asks for, in the order in
    which they were placed, and the snapshot with them. Claims that are ``given`` are judged as if they were not
    allocated, pods as if they had no node. What does not fit is tried again as the first, a few times; the order that
    places most counts.
    """
    for claim in given:
        if (known := snapshot.claims.get((claim.namespace, claim.name))) is not None:
            snapshot = snapshot.with_claim(replace(claim, uid=known.uid, allocation=None, reserved_for=()))
    for pod in (each.pod for each in wanted if each.pod is not None):
        if (pod.namespace, pod.name) in snapshot.pods:
            snapshot = snapshot.with_pod(replace(pod, node="", nominated="", entries=()))
    first = {number: _answer(each, snapshot, accounts, now) for number, each in enumerate(wanted)}
    order = sorted(first, key=lambda number: (sum(fit.fits for fit in first[number].nodes), -_size(wanted[number])))
    best: tuple[list[Placed], Snapshot] = ([], snapshot)
    for _ in range(_MOST_ORDERS):
        placed, after = _in_order([(wanted[number], first[number]) for number in order], snapshot, accounts, now)
        if not best[0] or _failed(placed) < _failed(best[0]):
            best = placed, after
        left = [number for number, each in zip(order, placed, strict=True) if each.open]
        if not left:
            break
        order = left + [number for number in order if number not in left]
    return best


def _failed(placed: Sequence[Placed]) -> int:
    return sum(each.fit is None for each in placed)


def _in_order(
    rows: Sequence[tuple[Wanted, Interval]], snapshot: Snapshot, accounts: Accounts, now: datetime
) -> tuple[list[Placed], Snapshot]:
    placed: list[Placed] = []
    for each, alone in rows:
        answer = _answer(each, snapshot, accounts, now)
        found = [
            (not fit.sure, *_left(fit, each, accounts(snapshot, fit.node)), fit) for fit in answer.nodes if fit.fits
        ]
        if found:
            *_, fit = min(found, key=lambda row: row[:3])
            snapshot = _with(each, fit, snapshot)
            placed.append(Placed(each, fit, answer.nodes, False))
        else:
            placed.append(Placed(each, None, answer.nodes, any(fit.fits for fit in alone.nodes)))
    return placed, snapshot


def _answer(each: Wanted, snapshot: Snapshot, accounts: Accounts, now: datetime) -> Interval:
    """Where ``each`` could go; to the node of those of its claims that are allocated already, where some are."""
    known = [_known(claim, snapshot) for claim in each.claims]
    held = [claim for claim in known if claim.allocation is not None]
    free = tuple(claim for claim in known if claim.allocation is None)
    places = sorted({claim_node(claim, snapshot) for claim in held} & set(snapshot.nodes))
    taken = [_taken(claim, each.pod) for claim in held if mapped(claim, snapshot) and not _own(claim, each.pod)]
    if taken or len(places) > 1:
        reasons = tuple(taken or [_apart(held, places)])
        return Interval("nowhere", tuple(NodeFit(name, False, True, True, reasons, {}, {}) for name in places))
    return interval(free, snapshot, lambda node: accounts(snapshot, node), places if held else None, now, each.pod)


def _own(claim: Claim, pod: Pod | None) -> bool:
    return pod is not None and all(consumer.name == pod.name for consumer in claim.reserved_for)


def _taken(claim: Claim, pod: Pod | None) -> Finding:
    holder = claim.reserved_for[0].name if claim.reserved_for else "nobody"
    has = f"claim {claim.key}, whose devices cost the node and which {holder} has"
    needs = "a claim of its own: the node is charged for one pod only"
    return Finding("shared-mapped-claim", "spec.resourceClaims", has, needs, "use a ResourceClaimTemplate")


def _apart(held: Sequence[Claim], places: Sequence[str]) -> Finding:
    has = f"claims {', '.join(claim.key for claim in held)}, which are allocated on nodes {', '.join(places)}"
    return Finding(
        "claims-apart", "spec.resourceClaims", has, "claims of one node", "let one of them be allocated anew"
    )


def _known(claim: Claim, snapshot: Snapshot) -> Claim:
    return snapshot.claims.get((claim.namespace, claim.name), claim)


def _size(each: Wanted) -> Fraction:
    return Fraction(sum(pod_request(each.pod).spec().values(), 0)) if each.pod is not None else Fraction(0)


def _left(fit: NodeFit, each: Wanted, account: Account | None) -> tuple[Fraction, str]:
    """What the node has left of what is asked for, as the smallest part of what it has."""
    asked = {**fit.least, **(pod_request(each.pod).spec() if each.pod is not None else {})}
    held = account.resources if account is not None else {}
    parts = [
        Fraction(held[name].free) / held[name].allocatable for name in asked if name in held and held[name].allocatable
    ]
    return min(parts, default=Fraction(1)), fit.node


def _with(each: Wanted, fit: NodeFit, snapshot: Snapshot) -> Snapshot:
    """The snapshot once the scheduler has put ``each`` there: claims allocated, the pod bound with its entries."""
    pod = each.pod
    holders = () if pod is None else (Consumer("", "pods", pod.name, pod.uid),)
    picks: dict[int, list[Result]] = {}
    for choice, offer in fit.picks:
        results = picks.setdefault(choice.claim, [])
        share = f"{choice.claim}-{len(results)}" if offer.consumed is not None else ""
        results.append(Result(len(results), choice.names[0], *offer.identity, offer.admin, share, offer.consumed))
    free = [claim for claim in each.claims if _known(claim, snapshot).allocation is None]
    for number, claim in enumerate(free):
        allocation = Allocation(tuple(picks.get(number, ())), fit.node, {}, "", "")
        snapshot = snapshot.with_claim(replace(claim, allocation=allocation, reserved_for=holders))
    if pod is None:
        return snapshot
    entries = tuple(_entries(pod, {claim.name: claim for claim in each.claims}, snapshot, fit.node))
    return snapshot.with_pod(replace(pod, node=fit.node, nominated="", entries=entries))


def _entries(pod: Pod, claims: Mapping[str, Claim], snapshot: Snapshot, node: str) -> Iterator[Entry]:
    for local, name in pod.claim_names.items():
        cost = footprint(_known(claims[name], snapshot), snapshot, node)
        if cost.costs:
            yield Entry(name, pod.users(local), cost.amounts, cost.per_pod, cost.per_container)
