"""Whether a set of pods, each with its claims, fits a fleet: one after the other is placed, the hardest first."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from itertools import chain, count
from typing import TypeVar

from msgspec.structs import replace

from webhook.facts.account import Account
from webhook.facts.change import Accounts
from webhook.facts.footprint import footprint
from webhook.facts.interval import NodeFit, interval
from webhook.facts.matching import node_selected
from webhook.facts.node_offers import Offer
from webhook.facts.placement import claim_node, offers, roams
from webhook.facts.pods import pod_request
from webhook.facts.sharing import mapped
from webhook.kube.claims import Allocation, Claim, Consumer, Result
from webhook.kube.core import Pod, PodClaim
from webhook.kube.finding import Finding
from webhook.kube.raw import Json, mapping
from webhook.kube.resource import Entry
from webhook.kube.snapshot import Snapshot

T = TypeVar("T", Pod, Claim)

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


@dataclass(frozen=True, slots=True)
class _Answer:
    """What nodes say, by name; ``ranks`` of those that fit: the sure ones first, then by what they would have left."""

    nodes: Mapping[str, NodeFit]
    ranks: Mapping[str, tuple[bool, Fraction, str]]

    def beside(self, newer: _Answer) -> _Answer:
        """This one where ``newer`` says nothing of a node."""
        kept = {name: rank for name, rank in self.ranks.items() if name not in newer.nodes}
        return _Answer({**self.nodes, **newer.nodes}, {**kept, **newer.ranks})


def wanted_of(
    pods: Sequence[Pod], claims: Iterable[Claim], templates: Iterable[Claim], snapshot: Snapshot
) -> list[Wanted]:
    """Each of ``pods`` with its claims: of ``claims``, made of ``templates``, or known already; then each claim and
    template that no pod names. Pods have no node yet, whatever they have been through, and get a name where they have
    none, as do claims; of those that have one no two have the same. Raises UnknownClaimError.
    """
    given = {(claim.namespace, claim.name): _as_known(claim, snapshot.claims) for claim in _named(claims, "claim")}
    patterns = {(template.namespace, template.name): template for template in _named(templates, "template")}
    named: set[tuple[str, str]] = set()
    used: set[tuple[str, str]] = set()
    found: list[Wanted] = []
    for pod in _named(pods, "pod"):
        mine: dict[str, Claim] = {}
        names: dict[str, str] = {}
        there = snapshot.pods.get((pod.namespace, pod.name))
        made = {**(there.claim_names if there is not None else {}), **pod.claim_names}
        for entry in pod.claims:
            name = entry.claim_name or made.get(entry.name, "")
            key, pattern = (pod.namespace, name), (pod.namespace, entry.template_name)
            claim = given.get(key) or (snapshot.claims.get(key) if pattern not in patterns else None)
            template = patterns.get(pattern) or snapshot.templates.get(pattern)
            if claim is None and template is not None:
                # The claim that the pod has of the template is this one.
                if key not in snapshot.claims:
                    name = _free(f"{pod.name}-{entry.name}", pod.namespace, (named, given, snapshot.claims))
                claim = _as_known(replace(template, name=name), snapshot.claims)
                used.add(pattern)
            if claim is None:
                raise UnknownClaimError(f"pod {pod.key}: {_unknown(entry, pod.namespace)}")
            named.add((claim.namespace, claim.name))
            names[entry.name] = claim.name
            mine[claim.name] = claim
        pod = replace(_as_known(pod, snapshot.pods), claim_names=names)
        pod = replace(pod, node="", nominated="", phase="Pending", entries=(), resize={}, held={}, infeasible=False)
        found.append(Wanted(pod, tuple(mine.values())))
    rest = [claim for key, claim in given.items() if key not in named]
    for key, template in patterns.items():
        if key not in used:
            free = _free(template.name, template.namespace, (named, given, snapshot.claims))
            rest.append(replace(template, name=free, uid=""))
    return found + [Wanted(None, (claim,)) for claim in rest]


def _unknown(entry: PodClaim, namespace: str) -> str:
    kind, name = ("claim", entry.claim_name) if entry.claim_name else ("template", entry.template_name)
    if not name:
        return f"has claim {entry.name} of no name and no template, needs one of them"
    return f"has {kind} {namespace}/{name}, which is neither given nor in the cluster"


def _named(items: Iterable[T], kind: str) -> list[T]:
    """``items``, those without a name (``generateName``) called as no object can be."""
    return [each if each.name else replace(each, name=f"<{kind} {number}>") for number, each in enumerate(items, 1)]


def _as_known(item: T, known: Mapping[tuple[str, str], T]) -> T:
    """``item`` with the UID that it has in the cluster: those of manifests are often copies."""
    found = known.get((item.namespace, item.name))
    return replace(item, uid="" if found is None else found.uid)


def _free(name: str, namespace: str, taken: Sequence[Container[tuple[str, str]]]) -> str:
    """``name``, or with a number where it is taken: the names of claims that are made of templates end at random."""
    numbered = (f"{name}-{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if not any((namespace, each) in names for names in taken))


def place(
    wanted: Sequence[Wanted], given: Iterable[Claim], snapshot: Snapshot, accounts: Accounts, now: datetime
) -> tuple[list[Placed], Snapshot]:
    """``wanted`` placed on the nodes of ``snapshot``, each where the least is left of what it asks for, in the order in
    which they were placed, and the snapshot with them. Claims that are ``given``, or made of given templates, are
    judged as if they were not allocated. What does not fit is tried again as the first, a few times; the order that
    places most counts.
    """
    anew = (claim for each in wanted for claim in each.claims if claim.allocation is None)
    for claim in chain(given, anew):
        if (known := snapshot.claims.get((claim.namespace, claim.name))) is not None:
            snapshot = snapshot.with_claim(replace(claim, uid=known.uid, allocation=None, reserved_for=()))
    for pod in (each.pod for each in wanted if each.pod is not None):
        if (pod.namespace, pod.name) in snapshot.pods:
            snapshot = snapshot.with_pod(pod)
    alike: dict[Hashable, _Answer] = {}
    first: dict[int, _Answer] = {}
    for number, each in enumerate(wanted):
        kind = _kind(each, snapshot)
        answer = alike.get(kind) if kind is not None else None
        first[number] = answer if answer is not None else _answer(each, snapshot, accounts, now)
        if kind is not None:
            alike[kind] = first[number]
    order = sorted(first, key=lambda number: (len(first[number].ranks), -_size(wanted[number])))
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


def _kind(each: Wanted, snapshot: Snapshot) -> Hashable | None:
    """What those have alike of which each node says the same; None where its answer names the claims, or is about
    allocations that there are.
    """
    if len(each.claims) > 1 or any((claim.namespace, claim.name) in snapshot.claims for claim in each.claims):
        return None
    pod = each.pod
    asked = [(claim.groups, claim.constraints) for claim in each.claims]
    if pod is None:
        return repr(asked)
    containers = [
        [(each.requests, each.limits, each.sidecar) for each in group]
        for group in (pod.containers, pod.init_containers)
    ]
    users = [len(pod.users(entry.name)) for entry in pod.claims]
    return repr((asked, containers, pod.overhead, pod.pod_requests, users))


def _in_order(
    rows: Sequence[tuple[Wanted, _Answer]], snapshot: Snapshot, accounts: Accounts, now: datetime
) -> tuple[list[Placed], Snapshot]:
    placed: list[Placed] = []
    # Nodes that are as they were say what they said; ``whole`` once something was taken that others have, too.
    used: set[str] = set()
    given: set[str] = set()
    unsure: set[str] = set()
    whole = False
    for each, alone in rows:
        again = whole or not given.isdisjoint(claim.key for claim in each.claims)
        answer = _answer(each, snapshot, accounts, now, None if again else used & alone.nodes.keys())
        answer = answer if again else alone.beside(answer)
        nodes = tuple(answer.nodes[name] for name in sorted(answer.nodes))
        if answer.ranks:
            fit = answer.nodes[min(answer.ranks, key=lambda name: answer.ranks[name])]
            whole = whole or any(not _of_one(offer, snapshot) for _, offer in fit.picks)
            snapshot = _with(each, fit, snapshot)
            used.add(fit.node)
            given.update(claim.key for claim in each.claims)
            if not fit.sure:
                unsure.add(fit.node)
            # Beside one of which nobody knows what it takes there, or whether it comes, nothing is sure.
            placed.append(Placed(each, dataclasses.replace(fit, sure=fit.node not in unsure), nodes, False))
        else:
            placed.append(Placed(each, None, nodes, bool(alone.ranks)))
    return placed, snapshot


def _of_one(offer: Offer, snapshot: Snapshot) -> bool:
    """Whether the whole pool of ``offer`` belongs to one node."""
    return all(item.node and item.node == offer.slice.node for item in snapshot.pools.get(offer.slice.key, ()))


def _answer(
    each: Wanted, snapshot: Snapshot, accounts: Accounts, now: datetime, only: Collection[str] | None = None
) -> _Answer:
    """What nodes say of ``each``, all or ``only`` these; of those alone where claims of it that are allocated can be
    used, where some are.
    """
    known = [_known(claim, snapshot) for claim in each.claims]
    held = [claim for claim in known if claim.allocation is not None]
    free = tuple(claim for claim in known if claim.allocation is None)
    places = [_usable(claim, snapshot) for claim in held]
    common = places[0].intersection(*places) if places else set(snapshot.nodes)
    taken = [_taken(claim, each.pod) for claim in held if mapped(claim, snapshot) and not _own(claim, each.pod)]
    if taken or (held and not common):
        reasons = tuple(taken or [_apart(held)])
        told = common or set().union(*places) or {claim_node(claim, snapshot) for claim in held}
        return _Answer({name: NodeFit(name, False, True, True, reasons, {}, {}) for name in told}, {})
    names = common if only is None else common.intersection(only)
    found = interval(free, snapshot, lambda node: accounts(snapshot, node), sorted(names), now, each.pod)
    ranks = {
        fit.node: (not fit.sure, _left(fit, each, accounts(snapshot, fit.node)), fit.node)
        for fit in found.nodes
        if fit.fits
    }
    return _Answer({fit.node: fit for fit in found.nodes}, ranks)


def _usable(claim: Claim, snapshot: Snapshot) -> set[str]:
    """The nodes on which a claim that is allocated can be used."""
    if not roams(claim, snapshot):
        return {claim_node(claim, snapshot)} & set(snapshot.nodes)
    selector = claim.allocation.node_selector if claim.allocation is not None else {}
    return {name for name, node in snapshot.nodes.items() if not selector or node_selected(selector, node)}


def _own(claim: Claim, pod: Pod | None) -> bool:
    return pod is not None and all(consumer.name == pod.name for consumer in claim.reserved_for)


def _taken(claim: Claim, pod: Pod | None) -> Finding:
    holder = claim.reserved_for[0].name if claim.reserved_for else "nobody"
    has = f"claim {claim.key}, whose devices cost the node and which {holder} has"
    needs = "a claim of its own: the node is charged for one pod only"
    return Finding("shared-mapped-claim", "spec.resourceClaims", has, needs, "use a ResourceClaimTemplate")


def _apart(held: Sequence[Claim]) -> Finding:
    has = f"claims {', '.join(claim.key for claim in held)}, whose devices no node can use together"
    return Finding(
        "claims-apart", "spec.resourceClaims", has, "claims of one node", "let one of them be allocated anew"
    )


def _known(claim: Claim, snapshot: Snapshot) -> Claim:
    return snapshot.claims.get((claim.namespace, claim.name), claim)


def _size(each: Wanted) -> Fraction:
    return Fraction(sum(pod_request(each.pod).spec().values(), 0)) if each.pod is not None else Fraction(0)


def _left(fit: NodeFit, each: Wanted, account: Account | None) -> Fraction:
    """What the node has left of what is asked for, as the smallest part of what it has."""
    asked = {**fit.least, **(pod_request(each.pod).spec() if each.pod is not None else {})}
    held = account.resources if account is not None else {}
    parts = [
        Fraction(held[name].free) / held[name].allocatable for name in asked if name in held and held[name].allocatable
    ]
    return min(parts, default=Fraction(1))


def _with(each: Wanted, fit: NodeFit, snapshot: Snapshot) -> Snapshot:
    """The snapshot once the scheduler has put ``each`` there: claims allocated, the pod bound with its entries."""
    pod = each.pod
    holders = () if pod is None else (Consumer("", "pods", pod.name, pod.uid),)
    picks: dict[int, list[Result]] = {}
    for choice, offer in fit.picks:
        results = picks.setdefault(choice.claim, [])
        share = f"{choice.claim}-{len(results)}" if offer.consumed is not None else ""
        results.append(Result(len(results), choice.names[0], *offer.identity, offer.admin, share, offer.consumed))
    free = [claim for claim in (_known(claim, snapshot) for claim in each.claims) if claim.allocation is None]
    for number, claim in enumerate(free):
        node, selector = _where([offer for choice, offer in fit.picks if choice.claim == number], fit.node)
        # Who roams is charged where its pod is.
        node = node if pod is not None else fit.node
        allocation = Allocation(tuple(picks.get(number, ())), node, selector, "", "")
        snapshot = snapshot.with_claim(replace(claim, allocation=allocation, reserved_for=holders))
    if pod is None:
        return snapshot
    entries = tuple(_entries(pod, {claim.name: claim for claim in each.claims}, snapshot, fit.node))
    return snapshot.with_pod(replace(pod, node=fit.node, nominated="", entries=entries))


def _where(taken: Iterable[Offer], node: str) -> tuple[str, Json]:
    """What an allocation of these devices for ``node`` says of where they can be used: there, or where a selector
    says; everywhere without one.
    """
    selectors: list[Json] = []
    for offer in taken:
        fields = offer.device.nodes if offer.slice.nodes.get("perDeviceNodeSelection") is True else offer.slice.nodes
        if offers(offer.slice, offer.device):
            return node, {}
        if (selector := mapping(fields.get("nodeSelector"))) and selector not in selectors:
            selectors.append(selector)
    return ("", selectors[0] if selectors else {}) if len(selectors) < 2 else (node, {})


def _entries(pod: Pod, claims: Mapping[str, Claim], snapshot: Snapshot, node: str) -> Iterator[Entry]:
    for name, claim in claims.items():
        cost = footprint(_known(claim, snapshot), snapshot, node)
        if cost.costs:
            users = [user for local, used in pod.claim_names.items() if used == name for user in pod.users(local)]
            yield Entry(name, tuple(dict.fromkeys(users)), cost.amounts, cost.per_pod, cost.per_container)
