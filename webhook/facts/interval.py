"""Whether a claim that is not allocated could be: on which nodes, at what cost, and why not on the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Literal

import orjson

from webhook.facts.account import Account, Amounts, account_of, bookable
from webhook.facts.assignment import Outcome, Pick, assign
from webhook.facts.candidates import bounds, candidates
from webhook.facts.drivers import claim_drivers
from webhook.facts.fit import node_rows
from webhook.facts.pods import pod_request
from webhook.facts.room import room_for
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.finding import Finding
from webhook.kube.quantity import Number, of_resource
from webhook.kube.snapshot import Snapshot

Verdict = Literal["everywhere", "somewhere", "nowhere"]

# How many kinds of nodes a new claim is tried on: its review must cost the same in any cluster.
MOST_SHAPES = 32


@dataclass(frozen=True, slots=True)
class NodeFit:
    """One node's answer. ``sure`` is false where a selector could not be evaluated or the search was cut short: it may
    fit. ``least`` and ``most`` are what the claim can cost there, by resource, each resource for itself; ``offered``
    tells whether the node has devices that the requests choose at all; ``picks`` are devices that fit together, each
    with the choice that it serves.
    """

    node: str
    fits: bool
    sure: bool
    offered: bool
    reasons: tuple[Finding, ...]
    least: Amounts
    most: Amounts
    picks: tuple[Pick, ...] = ()


@dataclass(frozen=True, slots=True)
class Interval:
    """The answer for a set of nodes: ``everywhere`` all of them, ``nowhere`` none of them."""

    verdict: Verdict
    nodes: tuple[NodeFit, ...]


def interval(
    claims: Claim | Sequence[Claim],
    snapshot: Snapshot,
    accounts: Callable[[str], Account | None] | None,
    nodes: Iterable[str] | None,
    now: datetime,
    pod: Pod | None = None,
) -> Interval:
    """Where ``claims`` (one, or those of one pod together) could be allocated, with the whole request of ``pod``.

    ``accounts`` gives what the nodes have left; None judges empty nodes: nothing in use, every pool Fresh, no driver
    held. ``nodes`` None means every node of the snapshot, in order of name.
    """
    wanted = (claims,) if isinstance(claims, Claim) else tuple(claims)
    names = sorted(snapshot.nodes) if nodes is None else list(nodes)
    fits: list[NodeFit] = []
    for name in names:
        account = empty_account(snapshot, name) if accounts is None else accounts(name)
        if account is not None:
            fits.append(node_fit(wanted, snapshot, account, None if accounts is None else now, pod))
    return Interval(_verdict(fits), tuple(fits))


def _verdict(fits: Sequence[NodeFit]) -> Verdict:
    good = sum(fit.fits for fit in fits)
    return "nowhere" if not good else "everywhere" if good == len(fits) else "somewhere"


def empty_account(snapshot: Snapshot, node: str) -> Account | None:
    """The account of a node on which nothing is charged; None when there is no such node."""
    known = snapshot.nodes.get(node)
    return None if known is None else account_of(node, known.uid, known.allocatable, {}, {}, {})


def node_fit(
    claims: tuple[Claim, ...], snapshot: Snapshot, account: Account, now: datetime | None, pod: Pod | None
) -> NodeFit:
    """Whether ``claims`` could be allocated on the node of ``account``. ``now`` None: judged as an empty node."""
    found = candidates(claims, snapshot, account, now, pod)
    node, offered = account.node, found.offered
    least: dict[str, Number] = {}
    most: dict[str, Number] = {}
    for choices in found.groups:
        bounds(choices, least, most)
    if found.elsewhere and found.reasons:
        return NodeFit(node, True, False, offered, (), least, most)
    if found.reasons:
        return NodeFit(node, False, True, offered, found.reasons, least, most)
    room = room_for(claims, snapshot, found.account, found.holdings, found.groups, pod)
    outcome = assign(found.groups, found.constraints, room)
    if outcome.fits is False:
        why = misfits(outcome, found.account, least, claims, pod)
        return NodeFit(node, False, True, offered, tuple(why), least, most)
    return NodeFit(node, True, outcome.sure and outcome.fits is True, offered, (), least, most, outcome.picks)


def misfits(
    outcome: Outcome, account: Account, least: Amounts, claims: tuple[Claim, ...], pod: Pod | None
) -> list[Finding]:
    """Why no assignment fits the node of ``account``, as ``outcome`` says; ``least`` is the least that ``claims`` can
    cost.
    """
    path = f"spec.devices.{claims[0].groups[0].path}" if claims and claims[0].groups else "spec.devices"
    own = pod_request(pod).spec() if pod is not None else {}
    found: list[Finding] = []
    for row in node_rows(account, least, own):
        if not row.fits and bookable(row.resource):
            asked = of_resource(row.resource, row.claim + row.pod)
            room = of_resource(row.resource, max(row.before or 0, 0))
            found.append(
                Finding(
                    "node-overcommit",
                    path,
                    f"{row.resource} at least {asked} on node {account.node} ({row.equation()})",
                    f"at most {room}, which is what is free there",
                    "release a claim or move a pod there, or ask for less",
                )
            )
    if found:
        return found
    if "node" in outcome.blocked:
        rule, has = "node-overcommit", "devices whose costs together are more than what is free"
    elif outcome.short:
        return [_zone_short(path, account, zone, name, total) for (zone, name), total in sorted(outcome.short.items())]
    elif "constraint" in outcome.blocked:
        rule, has = "constraint-unmet", "no devices that meet the claim's constraints together"
    else:
        rule, has = "device-overcommit", "requests that cannot all have their devices at once"
    return [Finding(rule, path, f"{has} on node {account.node}", "a set of devices that fits", "ask for less")]


def _zone_short(path: str, account: Account, zone: int, resource: str, total: Number) -> Finding:
    room = of_resource(resource, max(account.zones[zone][resource].free or 0, 0))
    return Finding(
        "zone-overcommit",
        path,
        f"{resource} at least {of_resource(resource, total)} on zone {zone} of node {account.node}",
        f"at most {room}, which is what is free there",
        "release a claim there, or ask for less",
    )


class _Question:
    """A claim on a kind of node: equal keys have equal answers, whichever node stands for the kind."""

    __slots__ = ("claim", "key", "node", "snapshot")

    def __init__(self, key: tuple[object, ...], claim: Claim, snapshot: Snapshot, node: str) -> None:
        self.key = key
        self.claim = claim
        self.snapshot: Snapshot | None = snapshot
        self.node = node

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self.key == other.key


@lru_cache(maxsize=1024)
def _answer(question: _Question) -> tuple[bool, bool]:
    """Whether such a node could take the claim, and whether it has devices that the requests choose."""
    snapshot = question.snapshot
    account = empty_account(snapshot, question.node) if snapshot is not None else None
    if snapshot is None or account is None:
        return True, False
    fit = node_fit((question.claim,), snapshot, account, None, None)
    # The memo keeps the question; it is not to keep a whole cluster.
    question.snapshot = None
    return fit.fits, fit.offered


def interval_problems(claim: Claim, snapshot: Snapshot, now: datetime) -> list[Finding]:
    """What to tell about a claim (or template) at its creation, judged against **empty** nodes: ``fits-nowhere``
    (warning), ``fits-somewhere`` (info: some nodes with such devices could never take it), ``no-device-yet`` (info).

    Looks at kinds of nodes, not at nodes; a cluster of more than ``MOST_SHAPES`` kinds is not judged, so that the
    answer costs the same everywhere. Never about what is free now, so ``now`` changes nothing.
    """
    del now
    if not claim.groups or any(
        alternative.class_name not in snapshot.classes for group in claim.groups for alternative in group.alternatives
    ):
        return []
    drivers = claim_drivers(claim, snapshot)
    if drivers and not any(driver in snapshot.driver_slices for driver in drivers):
        return [_none_yet(drivers)]
    if not drivers or len(snapshot.node_shapes) > MOST_SHAPES or any(d in snapshot.free_slices for d in drivers):
        return []
    asked, gates = _signature(claim, snapshot), tuple(sorted(snapshot.release.gates.items()))
    counts: dict[tuple[bool, bool], int] = {}
    for shape, names in snapshot.node_shapes.items():
        if any(driver in drivers for driver, _ in shape[1]):
            key = (asked, shape, snapshot.release.minor, gates)
            answer = _answer(_Question(key, claim, snapshot, next(iter(names))))
            counts[answer] = counts.get(answer, 0) + len(names)
    good = sum(count for (fits, _), count in counts.items() if fits)
    if not counts:
        return []
    if not good:
        return [_nowhere(drivers, sum(counts.values()), any(offered for _, offered in counts))]
    short = counts.get((False, True), 0)
    return [_somewhere(good, short)] if short else []


def _signature(claim: Claim, snapshot: Snapshot) -> bytes:
    classes = {a.class_name: snapshot.classes.get(a.class_name) for g in claim.groups for a in g.alternatives}
    parts = [repr(claim.groups), repr(claim.constraints), repr(classes)]
    return orjson.dumps([part.encode("utf-8", "backslashreplace").decode() for part in parts])


def _none_yet(drivers: tuple[str, ...]) -> Finding:
    return Finding(
        "no-device-yet",
        "spec.devices.requests",
        f"no device of {', '.join(drivers)} in the cluster",
        "a node with such devices; the claim waits for one",
        "",
        "info",
    )


def _nowhere(drivers: tuple[str, ...], nodes: int, capable: bool) -> Finding:
    some = f"none of {nodes} nodes" if nodes > 1 else "the only node"
    could = "could" if nodes > 1 else "could not"
    has = f"a request that {some} with devices of {', '.join(drivers)} {could} serve, even if it were empty"
    needs = "less capacity, fewer devices, or other selectors" if capable else "selectors that some device meets"
    return Finding(
        "fits-nowhere",
        "spec.devices.requests",
        has,
        needs,
        "ask for less, or add a node that is large enough",
        "warning",
    )


def _nodes(count: int) -> str:
    return f"{count} node" if count == 1 else f"{count} nodes"


def _somewhere(good: int, short: int) -> Finding:
    return Finding(
        "fits-somewhere",
        "spec.devices.requests",
        f"a request that {_nodes(good)} could serve and {short} with such devices could not, even if empty",
        "nothing; it may wait longer for a node",
        "",
        "info",
    )
