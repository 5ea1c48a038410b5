"""The phase of a pool, and whether an allocation may rely on it.

Completeness follows the allocator; what counts as fresh beyond that is the driver's ``freshness`` in its
DriverRollout. A slice has no heartbeat, so its age is no evidence unless the driver promises to rewrite it.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Literal

from msgspec import Struct

from webhook.facts.placement import claim_node
from webhook.facts.pool_survey import Reason, Survey, View, survey, view
from webhook.facts.times import age, duration, instant
from webhook.facts.verification import MOST_CLAIMS, lost_mapping, unverified
from webhook.kube.claims import Claim, Result
from webhook.kube.finding import Finding
from webhook.kube.resource import Slice
from webhook.kube.rollout import DEFAULT_WINDOW, DriverRollout
from webhook.kube.snapshot import Snapshot

Phase = Literal["Fresh", "Rebuilding", "Gone", "Invalid", "Unknown"]

# The kinds that a phase is made from, as messages call them.
_EVIDENCE = {"ResourceSlice": "slices", "ResourceClaim": "claims", "Pod": "pods", "Node": "nodes"}

WAIT = "new claims wait, bound ones stay; the driver has to finish publishing"


class PoolState(Struct, frozen=True):
    """A pool as seen from ``node`` (None: from anywhere). ``reasons`` say why it is not Fresh; ``notes`` what is
    doubtful without changing the phase; ``since`` is the newest time stamp of its current slices (RFC 3339 or empty).
    """

    driver: str
    pool: str
    node: str | None
    phase: Phase
    reasons: tuple[Reason, ...]
    notes: tuple[Reason, ...]
    survey: Survey
    since: str

    @property
    def usable(self) -> bool:
        """Whether devices of the pool may be given to new claims."""
        return self.phase == "Fresh"

    @property
    def slices(self) -> tuple[Slice, ...]:
        """The slices of the current generation."""
        return self.survey.slices

    def age(self, now: datetime) -> str:
        """How long ago the newest current slice was made; empty when unknown."""
        return age(self.since, now)


def pool_state(
    snapshot: Snapshot,
    driver: str,
    pool: str,
    node: str | None,
    now: datetime,
    besides: str = "",
) -> PoolState:
    """The phase of (driver, pool) as seen from ``node``; ``besides`` is the id of the claim under review, which is no
    evidence about the pool.
    """
    seen = view(snapshot, driver, pool, node)
    offered = survey(seen.kept)
    rollout = snapshot.rollouts.get(driver)
    notes: list[Reason] = []
    phase, reasons = _phase(snapshot, (driver, pool), node, seen, offered, besides)
    if seen.kept:
        stale, notes = _evidence(snapshot, rollout, node, seen, now)
        if phase == "Fresh" and stale:
            phase = "Rebuilding"
        reasons += stale
    behind = stale_view(snapshot, rollout, now)
    if behind is not None:
        phase, reasons = "Unknown", [behind]
    since = max((item.created for item in seen.kept), default="")
    return PoolState(driver, pool, node, phase, tuple(reasons), tuple(notes), offered, since)


def stale_view(snapshot: Snapshot, rollout: DriverRollout | None, now: datetime) -> Reason | None:
    """What is too old to say anything by: the view of a kind that phases are made from."""
    window = rollout.window if rollout is not None else DEFAULT_WINDOW
    ages = {kind: (now - seen).total_seconds() for kind in _EVIDENCE if (seen := snapshot.seen.get(kind)) is not None}
    kind = max(ages, key=lambda each: ages[each], default="")
    if not kind or ages[kind] <= window:
        return None
    has = f"{_EVIDENCE[kind]} last seen {duration(ages[kind])} ago"
    fix = "the guard's own watch is behind; the driver is not at fault"
    return Reason("view-stale", has, f"a view not older than {duration(window)}", fix)


def _phase(
    snapshot: Snapshot, key: tuple[str, str], node: str | None, seen: View, offered: Survey, besides: str
) -> tuple[Phase, list[Reason]]:
    if not seen.kept:
        where = f" for node {node}" if node and seen.elsewhere else ""
        holders = [claim for claim in snapshot.pool_claims.get(key, ()) if claim.id != besides]
        if holders:
            has = f"no slice of the pool{where}, whose devices are held by {_names(holders)}"
            fix = "restart the driver on the node; bound claims stay charged until they are released"
            return "Gone", [Reason("pool-gone", has, "the slices the driver published", fix)]
        fix = "see whether the driver runs on the node"
        return "Unknown", [
            Reason("pool-unknown", f"no slice of the pool{where}", "slices published by the driver", fix)
        ]
    wrong = _counts(seen) or list(offered.invalid)
    if wrong:
        return "Invalid", wrong
    waiting = _completeness(seen) or unverified(snapshot, key, seen, besides)
    return ("Rebuilding", waiting) if waiting else ("Fresh", [])


def published(seen: View) -> bool:
    """Whether the slices of a pool are all there, of one generation: a device that is in none is not only late."""
    return bool(seen.kept) and not _counts(seen) and not _completeness(seen)


def _counts(seen: View) -> list[Reason]:
    """Slices of one generation that disagree on how many they are: which one is right is not known (k/k#141117)."""
    newest = seen.kept[0].generation
    counts = sorted({item.count for item in seen.kept})
    if len(counts) == 1:
        return []
    listed = " and ".join(str(count) for count in counts)
    has = f"slices of generation {newest} that say resourceSliceCount {listed}"
    return [Reason("pool-invalid", has, "one count in all slices of a generation", "the driver has to publish it anew")]


def _completeness(seen: View) -> list[Reason]:
    newest, count, have = seen.kept[0].generation, seen.kept[0].count, len(seen.kept)
    if have != count:
        later = [item.generation for item in seen.elsewhere if item.generation > newest]
        if later:
            has = f"generation {newest} here and generation {max(later)} on other nodes"
            return [Reason("pool-incomplete", has, f"all slices at generation {max(later)}", WAIT)]
        have += sum(item.generation == newest for item in seen.elsewhere)
    if have != count:
        has = f"{have} of {count} slices of generation {newest}"
        return [Reason("pool-incomplete", has, "all slices of its current generation", WAIT)]
    if seen.older:
        before = ", ".join(str(number) for number in sorted({item.generation for item in seen.older}))
        has = f"slices of generation {before} beside the complete generation {newest}"
        fix = "the driver removes them when it has published; delete what it left behind"
        return [Reason("pool-rebuilding", has, "slices of one generation", fix)]
    return []


def _names(claims: list[Claim]) -> str:
    listed = ", ".join(claim.key for claim in claims[:3])
    return listed + (f" and {len(claims) - 3} more" if len(claims) > 3 else "")


def _evidence(
    snapshot: Snapshot, rollout: DriverRollout | None, node: str | None, seen: View, now: datetime
) -> tuple[list[Reason], list[Reason]]:
    """(what the configured evidence lacks, what is doubtful); only node-local slices have evidence of a node."""
    wanted = rollout.evidence if rollout is not None else ()
    stale: list[Reason] = []
    notes: list[Reason] = []
    for item in seen.kept:
        known = snapshot.nodes.get(item.owner_node or item.node)
        if item.owner_node_uid and known is not None and known.uid and known.uid != item.owner_node_uid:
            has = f"slice {item.name} owned by an earlier node {known.name} (uid {item.owner_node_uid})"
            reason = Reason("slice-owner-gone", has, f"the uid {known.uid}", "the driver has to publish it anew")
            (stale if "OwnerCurrent" in wanted else notes).append(reason)
        elif "OwnerCurrent" in wanted and item.node and (not item.owner_node_uid or known is None):
            has = f"slice {item.name} " + (
                f"of the unknown node {item.node}" if known is None else "without a Node owner"
            )
            stale.append(Reason("slice-owner-gone", has, "the current Node as its owner", "see the driver's set-up"))
    nodes = sorted({item.node for item in seen.kept if item.node})
    for name in nodes:
        known = snapshot.nodes.get(name)
        if "NodeReady" in wanted and (known is None or known.ready is not True):
            state = "not known" if known is None or known.ready is None else "not Ready"
            stale.append(Reason("pool-rebuilding", f"node {name} {state}", "a Ready node", WAIT))
        if "DriverPodReady" in wanted and rollout is not None and not _driver_ready(snapshot, rollout, name):
            has = f"no Ready driver pod of {rollout.driver} on node {name}"
            fix = f"see the pods in namespace {rollout.driver_pods_namespace}"
            stale.append(Reason("pool-rebuilding", has, "one, as freshness.driverPods says", fix))
    if rollout is not None and rollout.heartbeat:
        stale += _heartbeat(rollout, seen, now)
    return stale, notes


def _driver_ready(snapshot: Snapshot, rollout: DriverRollout, node: str) -> bool:
    wanted = rollout.driver_pods_selector
    return any(
        pod.ready
        and not pod.deleting
        and not pod.terminal
        and pod.namespace == rollout.driver_pods_namespace
        and all(pod.labels.get(key) == value for key, value in wanted.items())
        for pod in snapshot.node_pods.get(node, ())
    )


def _heartbeat(rollout: DriverRollout, seen: View, now: datetime) -> list[Reason]:
    found: list[Reason] = []
    for item in seen.kept:
        written = instant(item.written)
        late = None if written is None else (now - written).total_seconds()
        if late is None or late > rollout.heartbeat:
            has = f"slice {item.name} " + ("of unknown age" if late is None else f"last written {duration(late)} ago")
            needs = f"a write every {duration(rollout.heartbeat)}, as the driver promises"
            found.append(Reason("pool-rebuilding", has, needs, "see whether the driver is alive"))
    return found


def judged(snapshot: Snapshot, driver: str) -> bool:
    """Whether the pools of ``driver`` are judged by phase: it maps something somewhere, or its rollout is under way."""
    rollout = snapshot.rollouts.get(driver)
    return driver in snapshot.mapped_slices or (rollout is not None and rollout.stage in ("Canary", "Expanding"))


def costless(snapshot: Snapshot, result: Result, claim: Claim) -> bool:
    """Whether the driver of an allocation's result has slices and never costs a node anything: what is wrong with its
    devices is told, never refused.
    """
    if result.driver not in snapshot.driver_slices or judged(snapshot, result.driver):
        return False
    return not _had_costs(snapshot, (result.driver, result.pool), claim.id)


def needed(snapshot: Snapshot, state: PoolState, besides: str = "") -> bool:
    """Whether an allocation needs the pool to be Fresh: its driver is judged by phase, or claims (the one with the id
    ``besides`` left out) are booked for costs that its devices had.
    """
    if judged(snapshot, state.driver) or any(reason.rule == "mapping-lost" for reason in state.reasons):
        return True
    return bool(state.reasons) and _had_costs(snapshot, (state.driver, state.pool), besides)


def _had_costs(snapshot: Snapshot, pool: tuple[str, str], besides: str) -> bool:
    return any(
        other.id != besides and lost_mapping(snapshot, other, pool)
        for other in islice(snapshot.pool_claims.get(pool, ()), MOST_CLAIMS)
    )


def _all_elsewhere(claim: Claim, pool: tuple[str, str], seen: View) -> bool:
    """Whether the allocation takes devices that only other nodes have: these are wrong, their pool is not."""
    if seen.kept or claim.allocation is None:
        return False
    there = survey(seen.elsewhere).devices
    return all(r.device in there for r in claim.allocation.results if (r.driver, r.pool) == pool)


def allocation_pool_problems(claim: Claim, snapshot: Snapshot, now: datetime) -> list[Finding]:
    """Why the pools of a claim's allocation cannot be relied on; empty for drivers that never mapped anything.

    An allocation on a mapped driver needs every pool of that driver to be Fresh on the allocation's node.
    """
    if claim.allocation is None:
        return []
    node = claim_node(claim, snapshot) or None
    found: list[Finding] = []
    first = {(result.driver, result.pool): result.index for result in reversed(claim.allocation.results)}
    for (driver, pool), index in sorted(first.items(), key=lambda item: item[1]):
        state = pool_state(snapshot, driver, pool, node, now, claim.id)
        if not (state.reasons or state.notes) or not needed(snapshot, state, claim.id):
            continue
        if _all_elsewhere(claim, (driver, pool), view(snapshot, driver, pool, node)):
            continue
        path = f"status.allocation.devices.results[{index}].pool"
        label = f"pool {pool} of {driver}"
        found += [Finding(r.rule, path, f"{label}: {r.has}", r.needs, r.fix, passing=True) for r in state.reasons]
        found += [Finding(r.rule, path, f"{label}: {r.has}", r.needs, r.fix, "warning") for r in state.notes]
    return found
