"""``ledger explain``: everything that is charged for a claim or a pod, or on a node, each with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from webhook.facts.account import Amount, PodPart
from webhook.facts.footprint import footprint
from webhook.facts.placement import claim_node, consumers, destination
from webhook.facts.pods import pod_claims, pod_id
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.node_ledger import Reservation
from webhook.kube.quantity import of_resource
from webhook.kube.raw import Json
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.charges import Charge
from webhook.ledger.differences import unplaced
from webhook.ledger.reasons import why_amount, why_nothing, why_requested, why_state, why_zone
from webhook.ledger.statement import amounts_json, entry_json
from webhook.ledger.views import charge_json, difference_json, node_json

KindName = Literal["claim", "pod", "node"]
Subject = tuple[KindName, str, str]

_KINDS: tuple[KindName, ...] = ("claim", "pod", "node")


def find(snapshot: Snapshot, given: str) -> list[Subject]:
    """(kind, namespace, name) of each object that ``given`` may mean: ``claim/NAMESPACE/NAME``, ``pod/NAMESPACE/NAME``,
    ``node/NAME``, the same without the kind, or a UID. Claims that only a ledger knows any more are among them.
    """
    kind, _, rest = given.partition("/")
    wanted = [each for each in _KINDS if each == kind and rest] or list(_KINDS)
    name = rest if len(wanted) == 1 else given
    found: list[Subject] = []
    if not name:
        return found
    if "claim" in wanted:
        claims = {(each.namespace, each.name): each.id for each in snapshot.claims.values()}
        for place, uid in _held(snapshot):
            claims.setdefault(place, uid)
        found += [("claim", *key) for key, uid in claims.items() if name in ("/".join(key), uid)]
    if "pod" in wanted:
        pods = snapshot.pods.values()
        found += [("pod", each.namespace, each.name) for each in pods if name in (each.key, each.uid)]
    if "node" in wanted:
        nodes = snapshot.nodes.values()
        found += [("node", "", each.name) for each in nodes if name in (each.name, each.uid)]
    return sorted(found)


def explained(book: Book, snapshot: Snapshot, subject: Subject, now: datetime) -> Json:
    """What is charged for the claim or pod, or on the node, that :func:`find` gave."""
    kind, namespace, name = subject
    if kind == "node":
        return _node(book, snapshot, name, now)
    if kind == "pod":
        return _pod(book, snapshot, snapshot.pods[(namespace, name)])
    return _claim(book, snapshot, namespace, name)


def _held(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], str]]:
    """(namespace, name) and UID of each claim that a ledger holds something for."""
    for ledger in snapshot.ledgers.values():
        yield from (((row.namespace, row.name), row.claim_uid) for row in ledger.charges)
        yield from (((row.namespace, row.name), row.claim_uid) for row in ledger.reservations)


def _claim(book: Book, snapshot: Snapshot, namespace: str, name: str) -> Json:
    claim = snapshot.claims.get((namespace, name))
    uid = claim.id if claim is not None else dict(_held(snapshot))[(namespace, name)]
    charges: list[Json] = []
    states: set[str] = set()
    for node in _nodes(snapshot, claim, uid):
        for charge in book.charges(snapshot, node):
            if charge.key.claim_uid == uid:
                states.add(charge.state)
                charges.append(_charge(charge, claim, snapshot))
    allocation = claim.allocation if claim is not None else None
    state = next((each for each in ("bound", "allocated", "reserved") if each in states), "")
    return {
        "kind": "claim",
        "namespace": namespace,
        "name": name,
        "uid": uid,
        "known": claim is not None,
        "allocation": allocation
        and {"identity": allocation.identity, "time": allocation.timestamp, "node": claim_node(claim, snapshot)}
        if claim is not None
        else None,
        "state": state or ("allocated" if allocation is not None else "unallocated"),
        "reason": "" if charges else why_nothing(claim, snapshot),
        "charges": charges,
        "pods": [_consumer(claim, pod, snapshot) for pod in consumers(claim, snapshot)] if claim is not None else [],
        "reservations": [
            _reservation(node, each, snapshot.pods_by_uid.get(each.pod_uid))
            for node, ledger in sorted(snapshot.ledgers.items())
            for each in ledger.reservations
            if each.claim_uid == uid
        ],
        "differences": _differences(book, snapshot, _nodes(snapshot, claim, uid), "ResourceClaim", namespace, name),
    }


def _nodes(snapshot: Snapshot, claim: Claim | None, uid: str) -> list[str]:
    """The nodes on whose pages something of the claim can stand."""
    found: dict[str, None] = {}
    if claim is not None and claim.allocation is not None:
        found[claim_node(claim, snapshot)] = None
        found |= dict.fromkeys(map(destination, consumers(claim, snapshot)))
    for node, ledger in snapshot.ledgers.items():
        if uid in {*(row.claim_uid for row in ledger.charges), *(row.claim_uid for row in ledger.reservations)}:
            found[node] = None
    return sorted(node for node in found if node in snapshot.nodes)


def _charge(charge: Charge, claim: Claim | None, snapshot: Snapshot) -> Json:
    return {
        **charge_json(charge),
        "node": charge.key.node,
        "reason": why_amount(charge, claim, snapshot),
        "zoneReason": why_zone(charge),
        "stateReason": why_state(charge),
    }


def _consumer(claim: Claim, pod: Pod, snapshot: Snapshot) -> Json:
    """What a pod that uses the claim adds by using it, and what its status says that the scheduler counts."""
    local = next((name for name, each in pod_claims(pod, snapshot) if each.key == claim.key), "")
    entry = next((each for each in pod.entries if each.claim == claim.name), None)
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "node": destination(pod),
        "overhead": amounts_json(footprint(claim, snapshot).overhead(len(pod.users(local)))),
        "status": None if entry is None else entry_json(entry),
    }


def _reservation(node: str, each: Reservation, pod: Pod | None) -> Json:
    """``over``: both its allocation and its pod are counted where they were seen, and it holds nothing any more."""
    return {
        "node": node,
        "allocation": each.allocation,
        "pod": f"{each.pod_namespace}/{each.pod_name}" if each.pod_name else "",
        "podRequest": amounts_json(each.pod_request),
        "siblings": amounts_json(each.siblings),
        "taken": each.taken,
        "holder": each.holder,
        "over": each.seen and pod is not None and bool(pod.node or pod.terminal),
    }


def _pod(book: Book, snapshot: Snapshot, pod: Pod) -> Json:
    node = destination(pod)
    account = book.account(snapshot, node)
    part = account.pods.get(pod_id(pod)) if account is not None else None
    claims = [claim for _, claim in pod_claims(pod, snapshot)]
    return {
        "kind": "pod",
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "node": node,
        "state": "uncharged" if part is None else "reserved" if part.reserved else "charged",
        "reason": _uncharged(pod, node, snapshot) if part is None else "",
        "requests": {} if part is None else _requests(pod, part),
        "claims": [_claim(book, snapshot, claim.namespace, claim.name) for claim in claims],
        "status": [entry_json(entry) for entry in pod.entries],
        "differences": _differences(book, snapshot, [node], "Pod", pod.namespace, pod.name),
    }


def _uncharged(pod: Pod, node: str, snapshot: Snapshot) -> str:
    if pod.terminal:
        return "it has ended"
    if not node:
        return "it has no node yet"
    return f"its node {node} is not known" if node not in snapshot.nodes else f"it is not on node {node} yet"


def _requests(pod: Pod, part: PodPart) -> Json:
    return {
        name: {
            "pods": of_resource(name, part.requests.get(name, 0)),
            "overhead": of_resource(name, part.overhead.get(name, 0)),
            "reason": why_requested(pod, part, name),
        }
        for name in sorted({*part.requests, *part.overhead})
    }


def _node(book: Book, snapshot: Snapshot, name: str, now: datetime) -> Json:
    page = book.page(snapshot, name)
    assert page is not None, name
    pods = {pod_id(pod): pod for pod in snapshot.pods.values() if pod_id(pod) in page.account.pods}
    claims = {claim.id: claim for claim in snapshot.claims.values()}
    return {
        "kind": "node",
        "name": name,
        **(node_json(book, snapshot, name, now) or {}),
        "sums": {resource: _sum(resource, amount) for resource, amount in sorted(page.account.resources.items())},
        "charges": [_charge(charge, claims.get(charge.key.claim_uid), snapshot) for charge in page.charges],
        "pods": [
            {"namespace": pod.namespace, "name": pod.name, "requests": _requests(pod, page.account.pods[uid])}
            for uid, pod in sorted(pods.items(), key=lambda item: item[1].key)
        ],
    }


def _sum(resource: str, amount: Amount) -> str:
    parts = ((amount.pods, "pods"), (amount.claims, "claims"), (amount.overhead, "overhead"))
    less = [f"{of_resource(resource, part)} {what}" for part, what in (*parts, (amount.reserved, "reserved"))]
    sources = " - ".join((f"{of_resource(resource, amount.allocatable)} allocatable", *less))
    return f"{sources} = {of_resource(resource, amount.free)}"


def _differences(book: Book, snapshot: Snapshot, nodes: list[str], kind: str, namespace: str, name: str) -> list[Json]:
    found = [each for node in nodes for each in book.differences(snapshot, node)]
    if kind == "ResourceClaim":
        found += unplaced(snapshot)
    about = (kind, namespace, name)
    return [difference_json(each) for each in found if (each.kind, each.namespace, each.name) == about]
