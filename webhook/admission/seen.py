"""Which states of objects a decision saw, so that it can be judged again on the same ones, whatever was under way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from webhook.kube.admission import Request
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.raw import mapping, members, text
from webhook.kube.snapshot import Snapshot

# Objects of one kind that are told of: more than a node has pods.
MOST: Final = 512
# Of UIDs, which differ in it: a full node has a hundred pods.
_UID: Final = 13

Versions = dict[str, dict[str, str]]


def versions(request: Request, node: str, snapshot: Snapshot) -> Versions:
    """By kind and name, which state ``snapshot`` has of the objects that the account of ``node`` and a verdict about
    ``request`` come from, as :func:`mark` tells it; at most MOST of a kind.
    """
    obj = request.target
    name = request.name or text(mapping(obj.get("metadata")).get("name"))
    own = (request.namespace, name)
    pods, claims, slices = (list(models) for models in on_node(snapshot, node).values())
    pools: set[tuple[str, str]] = set()
    found: Versions = {"DriverRollout": {driver: mark(each, node) for driver, each in snapshot.rollouts.items()}}
    match request.kind.name:
        case "ResourceClaim":
            found["ResourceClaim"] = {"/".join(own): mark(snapshot.claims.get(own), node)}
            pods += snapshot.claim_pods.get(own, ())
            devices = mapping(mapping(mapping(obj.get("status")).get("allocation")).get("devices"))
            pools = {(text(row.get("driver")), text(row.get("pool"))) for row in members(devices.get("results"))}
        case "ResourceSlice":
            found["ResourceSlice"] = {name: mark(snapshot.slices.get(name), node)}
            spec = mapping(obj.get("spec"))
            pools = {(text(spec.get("driver")), text(mapping(spec.get("pool")).get("name")))}
        case "Pod" | "Binding":
            known = snapshot.pods.get(own)
            found["Pod"] = {"/".join(own): mark(known, node)}
            for named in known.claim_names.values() if known is not None else ():
                claims += filter(None, [snapshot.claims.get((request.namespace, named))])
    for pool in sorted(pools):
        slices += snapshot.pools.get(pool, ())
        claims += snapshot.pool_claims.get(pool, ())
    if node:
        found["Node"] = {node: mark(snapshot.nodes.get(node), node)}
        found["NodeLedger"] = {node: mark(snapshot.ledgers.get(node), node)}
    for kind, models in (("ResourceClaim", claims), ("Pod", pods), ("ResourceSlice", slices)):
        found[kind] = found.get(kind, {}) | _marks(models, node)
    return {kind: dict(list(rows.items())[:MOST]) for kind, rows in found.items() if rows}


def on_node(snapshot: Snapshot, node: str) -> dict[str, tuple[Any, ...]]:
    """The pods, claims and slices of a node, by kind; none without one."""
    if not node:
        return {"Pod": (), "ResourceClaim": (), "ResourceSlice": ()}
    return {
        "Pod": (*snapshot.node_pods.get(node, ()), *snapshot.nominated_pods.get(node, ())),
        "ResourceClaim": snapshot.node_claims.get(node, ()),
        "ResourceSlice": snapshot.node_slices.get(node, ()),
    }


def place(model: Any) -> str:
    """``namespace/name`` of a pod or claim, the name of others."""
    return str(model.key if isinstance(model, Pod | Claim) else model.name)


def mark(model: Any, node: str) -> str:
    """What tells one state of an object, as snapshots keep it, from others: its resource version; of a pod, whose
    version is not kept, the beginning of its UID, whether it is on ``node`` (``+``) or comes there, and its phase; of a
    node its UID. Empty for one that is not there.
    """
    match model:
        case None:
            return ""
        case Pod():
            return f"{model.uid[:_UID]}{'+' if node and node in (model.node, model.nominated) else '-'}{model.phase}"
    version = getattr(model, "resource_version", None)
    return str(model.uid if version is None else version)


def _marks(models: Iterable[Any], node: str) -> dict[str, str]:
    return {place(each): mark(each, node) for each in models}
