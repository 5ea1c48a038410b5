"""The book as JSON: what ``ledger show`` and ``ledger fit`` print; quantities are canonical text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from webhook.facts.account import Account, Amount, ZoneAmount
from webhook.facts.change import Change, released, smallest_changes
from webhook.facts.fleet_fit import Wanted, place
from webhook.facts.interval import NodeFit, interval
from webhook.facts.pool_survey import current
from webhook.facts.pools import pool_state
from webhook.facts.rollout import held, rollout_of
from webhook.facts.times import stamp
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.finding import Finding
from webhook.kube.quantity import of_resource, unit
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.ledger.charges import Charge, Difference
from webhook.ledger.differences import unplaced
from webhook.ledger.fleet import waiting_pools
from webhook.ledger.stored import page_differences

Json = dict[str, Any]

POLICY = "ledger"


def finding_json(finding: Finding, policy: str = POLICY) -> Json:
    """A finding as every command prints it."""
    return {
        "policy": policy,
        "rule": finding.rule,
        "origin": finding.origin,
        "severity": finding.severity,
        "path": finding.path,
        "message": finding.message,
        "fix": finding.fix,
    }


def difference_json(difference: Difference) -> Json:
    """A difference: its finding, the object it is about, and ``difference``, its kind in the metrics."""
    return {
        **finding_json(difference.finding),
        "apiVersion": difference.api_version,
        "kind": difference.kind,
        "namespace": difference.namespace,
        "name": difference.name,
        "difference": difference.category,
    }


def charge_json(charge: Charge) -> Json:
    """One charge with its stable key, whom it is for and which version of the mapping gave it."""
    key = charge.key
    return {
        "key": {
            "claimUID": key.claim_uid,
            "allocation": key.allocation,
            "request": key.request,
            "driver": key.driver,
            "pool": key.pool,
            "device": key.device,
            "shareID": key.share_id,
        },
        "claim": {"namespace": charge.namespace, "name": charge.name},
        "pods": list(charge.pods),
        "mapping": {
            "slice": charge.slice,
            "sliceUID": charge.slice_uid,
            "generation": charge.generation,
            "resourceVersion": charge.resource_version,
            "digest": charge.digest,
        },
        "resource": key.resource,
        "amount": of_resource(key.resource, charge.amount),
        "unit": unit(key.resource),
        "zone": charge.zone,
        "formula": charge.formula,
        "state": charge.state,
        "since": charge.since,
    }


def _amount_json(resource: str, amount: Amount) -> Json:
    return {
        "allocatable": of_resource(resource, amount.allocatable),
        "pods": of_resource(resource, amount.pods),
        "claims": of_resource(resource, amount.claims),
        "overhead": of_resource(resource, amount.overhead),
        "reserved": of_resource(resource, amount.reserved),
        "free": of_resource(resource, amount.free),
    }


def _zone_json(resource: str, amount: ZoneAmount) -> Json:
    return {
        "capacity": None if amount.capacity is None else of_resource(resource, amount.capacity),
        "claims": of_resource(resource, amount.claims),
        "reserved": of_resource(resource, amount.reserved),
        "free": None if amount.free is None else of_resource(resource, amount.free),
    }


def account_json(account: Account) -> Json:
    """The sums of a node and of its zones."""
    return {
        "resources": {name: _amount_json(name, amount) for name, amount in sorted(account.resources.items())},
        "zones": [
            {"zone": zone, "resources": {name: _zone_json(name, amount) for name, amount in sorted(amounts.items())}}
            for zone, amounts in account.zones.items()
        ],
    }


def pools_json(snapshot: Snapshot, node: str, now: datetime, charges: Iterable[Charge] = ()) -> list[Json]:
    """The pools with slices on the node, or whose claims ``charges`` are of, and the phase of each, as seen from there;
    a hold is among the reasons.
    """
    rows: list[Json] = []
    used = {
        (result.driver, result.pool)
        for claim in snapshot.node_claims.get(node, ())
        for result in (claim.allocation.results if claim.allocation else ())
    }
    used |= {(charge.key.driver, charge.key.pool) for charge in charges}
    for driver, pool in sorted({item.key for item in snapshot.node_slices.get(node, ())} | used):
        state = pool_state(snapshot, driver, pool, node, now)
        hold = held(rollout_of(snapshot, driver), current(snapshot, driver, pool, node).digests, now)
        rows.append(
            {
                "driver": driver,
                "pool": pool,
                "phase": state.phase,
                "age": state.age(now),
                "reasons": [
                    f"has {reason.has}, needs {reason.needs}" for reason in (*state.reasons, *filter(None, (hold,)))
                ],
            }
        )
    return rows


def node_json(book: Book, snapshot: Snapshot, node: str, now: datetime) -> Json | None:
    """Everything the book knows of one node; None when there is no such node."""
    page = book.page(snapshot, node)
    if page is None:
        return None
    return {
        "node": node,
        "uid": page.account.uid,
        **account_json(page.account),
        "charges": [charge_json(charge) for charge in page.charges],
        "pools": pools_json(snapshot, node, now, page.charges),
        "differences": [difference_json(difference) for difference in page_differences(page, snapshot, now)],
    }


def show(book: Book, snapshot: Snapshot, now: datetime, nodes: Iterable[str] | None = None) -> Json:
    """``ledger show``: the nodes of the cluster (or those named), by name, each with its accounts.

    ``differences`` beside the nodes are about claims that are on no known node, and what is the same on many nodes.
    """
    names = sorted(snapshot.nodes if nodes is None else set(nodes))
    rows = [row for name in names if (row := node_json(book, snapshot, name, now)) is not None]
    beside = [*unplaced(snapshot), *waiting_pools(rows)] if nodes is None else []
    return {"at": stamp(now), "nodes": rows, "differences": [difference_json(difference) for difference in beside]}


def fit_view(book: Book, snapshot: Snapshot, claims: Sequence[Claim], now: datetime, pod: Pod | None = None) -> Json:
    """``ledger fit``: for every node whether it could take ``claims`` together, as if none of them were allocated, with
    the whole request of ``pod``; why not; and the smallest changes that would help.
    """
    for claim in claims:
        snapshot = released(snapshot, claim)
    if pod is not None and not pod.uid and (known := snapshot.pods.get((pod.namespace, pod.name))) is not None:
        pod = structs.replace(pod, uid=known.uid)
    wanted = tuple(claims)
    answer = interval(wanted, snapshot, lambda node: book.account(snapshot, node), None, now, pod)
    changes = smallest_changes(wanted, snapshot, book.account, answer.nodes, now, pod)
    return {
        "verdict": answer.verdict,
        "nodes": [_node_fit(fit, fit.reasons) for fit in answer.nodes],
        "smallestChange": [change_json(change) for change in changes],
    }


def fleet_view(book: Book, snapshot: Snapshot, wanted: Sequence[Wanted], given: Sequence[Claim], now: datetime) -> Json:
    """``ledger fit`` of several pods: whether there is room for all of them at once. ``placements`` tells where each
    was put, or why nowhere; a node that took one ``fits``; ``smallestChange`` is what would help the first that none
    took. ``sure`` is false where another order, or what could not be judged, may change the answer.
    """
    placed, after = place(wanted, given, snapshot, book.account, now)
    left = next((each for each in placed if each.fit is None), None)
    changes = []
    if left is not None:
        own = {claim.key for each in placed for claim in each.wanted.claims}
        changes = smallest_changes(left.wanted.claims, after, book.account, left.nodes, now, left.wanted.pod)
        changes = [change for change in changes if change.kind != "release" or change.claim not in own]
    took = {each.fit.node: each.fit for each in placed if each.fit is not None}
    return {
        "verdict": "somewhere" if left is None else "nowhere",
        "nodes": [
            _node_fit(took.get(name) or NodeFit(name, False, True, False, (), {}, {}), ())
            for name in sorted(snapshot.nodes)
        ],
        "placements": [
            {
                "pod": each.wanted.pod.key if each.wanted.pod is not None else "",
                "claims": [claim.key for claim in each.wanted.claims],
                "node": each.fit.node if each.fit is not None else "",
                "sure": each.fit.sure if each.fit is not None else not each.open,
                "nodes": [] if each.fit is not None else [_node_fit(fit, fit.reasons) for fit in each.nodes],
            }
            for each in placed
        ],
        "smallestChange": [change_json(change) for change in changes],
    }


def _node_fit(fit: NodeFit, reasons: Sequence[Finding]) -> Json:
    return {
        "node": fit.node,
        "fits": fit.fits,
        "sure": fit.sure,
        "reasons": [finding_json(reason) for reason in reasons],
    }


def change_json(change: Change) -> Json:
    """A change that would help, as every command prints it; the amount is canonical text."""
    return {
        "kind": change.kind,
        "node": change.node,
        "claim": change.claim,
        "resource": change.resource,
        "amount": of_resource(change.resource, change.amount),
    }


def refused_view(snapshot: Snapshot, findings: Sequence[Finding], policy: str = POLICY) -> Json:
    """``ledger fit`` for what no node takes, whatever it has, by ``findings`` of ``policy``: what no API server takes,
    or no scheduler allocates.
    """
    return {
        "verdict": "nowhere",
        "nodes": [
            {"node": name, "fits": False, "sure": True, "reasons": [finding_json(each, policy) for each in findings]}
            for name in sorted(snapshot.nodes)
        ],
        "smallestChange": [],
    }
