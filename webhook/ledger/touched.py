"""Which nodes' ledgers an event can change: those of the claims that it concerns, and no other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from webhook.facts.placement import claim_node, destination
from webhook.kube.claims import Claim
from webhook.kube.core import Node, Pod
from webhook.kube.snapshot import Snapshot
from webhook.ledger.events import Event
from webhook.ledger.formulas import Pool

_NOBODY: Mapping[str, Collection[str]] = MappingProxyType({})


def touched(
    event: Event,
    before: Snapshot,
    after: Snapshot,
    published: Collection[str],
    named: Mapping[str, Collection[str]] = _NOBODY,
    pools: Iterable[Pool] = (),
) -> set[str]:
    """The nodes whose ledger may be another one now that ``event`` led from ``before`` to ``after``, which are one
    where it came late and only tells of something earlier. ``published`` are the nodes with a ledger among the events,
    ``named`` those whose ledger names a claim or a pod, by its UID; ``pools`` those that slices of the event's
    name were of.
    """
    place = (event.namespace, event.name)
    match event.kind:
        case "Node":
            same = _standing(before.nodes.get(event.name)) == _standing(after.nodes.get(event.name))
            return set() if same else {event.name}
        case "NodeLedger":
            return {event.name}
        case "ResourceClaim":
            old, new = before.claims.get(place), after.claims.get(place)
            nodes = _nodes((claim for claim in (old, new) if claim is not None), before, after)
            if after is not before and _allocated(old) == _allocated(new):
                # Which version of the claim is seen matters to what was booked elsewhere.
                nodes.intersection_update(published)
            ids = (claim.id for claim in (old, new) if claim is not None)
            return nodes.union(*(named.get(uid, ()) for uid in ids))
        case "Pod":
            pods = before.pods.get(place), after.pods.get(place)
            uids = (pod.uid for pod in pods if pod is not None)
            return _of_pod(*pods, before, after).union(*(named.get(uid, ()) for uid in uids))
        case "ResourceSlice":
            items = (snapshot.slices.get(event.name) for snapshot in (before, after))
            # One that comes late is in neither, and may be the one that a claim was allocated by.
            found = {*pools, *(item.key for item in items if item is not None)}
            return _nodes((claim for pool in found for claim in after.pool_claims.get(pool, ())), before, after)
        case "DriverRollout":
            # Not by the slices of the driver: what is held of one that is gone is charged by its versions.
            held = (claims for (driver, _), claims in after.pool_claims.items() if driver == event.name)
            return _nodes((claim for claims in held for claim in claims), before, after)
    return set()


def _nodes(claims: Iterable[Claim], before: Snapshot, after: Snapshot) -> set[str]:
    return {node for claim in claims for snapshot in (before, after) if (node := claim_node(claim, snapshot))}


def _allocated(claim: Claim | None) -> object:
    return None if claim is None else (claim.id, claim.allocation, claim.reserved_for)


def _standing(node: Node | None) -> object:
    """What of a node a charge depends on: which one it is, and which devices apply to it. Never its heartbeat."""
    return None if node is None else (node.uid, node.created, node.boot_id, node.labels)


def _of_pod(old: Pod | None, new: Pod | None, before: Snapshot, after: Snapshot) -> set[str]:
    if _consuming(old) == _consuming(new):
        return set()
    nodes: set[str] = set()
    for pod in (old, new):
        if pod is not None and (pod.claim_names or pod.entries):
            names = {*pod.claim_names.values(), *(entry.claim for entry in pod.entries)}
            known = (after.claims.get((pod.namespace, name)) for name in names)
            nodes |= {destination(pod), *_nodes((claim for claim in known if claim is not None), before, after)}
    return nodes - {""}


def _consuming(pod: Pod | None) -> object:
    """What of a pod the charges of its claims depend on."""
    if pod is None:
        return None
    return pod.uid, pod.node, pod.nominated, pod.terminal, pod.claim_names, pod.entries
