"""How far a driver's mappings are rolled out: stages, canary nodes, holds.

A stage concerns devices with node costs; a hold concerns every new claim on the pools it names. Bound claims are
never touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from webhook.facts.drivers import drivers_of
from webhook.facts.matching import target_nodes
from webhook.facts.placement import claim_node, find_device
from webhook.facts.pool_survey import Reason, current
from webhook.facts.times import age, instant
from webhook.kube.claims import Claim
from webhook.kube.core import Node
from webhook.kube.finding import Finding, Severity
from webhook.kube.labels import matches
from webhook.kube.raw import Json, text
from webhook.kube.resource import Slice
from webhook.kube.rollout import DriverRollout
from webhook.kube.snapshot import Snapshot


def rollout_of(snapshot: Snapshot, driver: str) -> DriverRollout | None:
    """What the operator tells about ``driver``, None when nothing: stage General."""
    return snapshot.rollouts.get(driver)


def qualifies(rollout: DriverRollout, node: Node) -> bool:
    """Whether the stage lets devices with costs be used on ``node``."""
    if rollout.stage == "General":
        return True
    if rollout.stage == "Off" or rollout.canary_selector is None:
        return False
    return matches(rollout.canary_selector, node.labels)


def held(rollout: DriverRollout | None, digests: frozenset[str], now: datetime) -> Reason | None:
    """Why a pool whose devices have the mapping ``digests`` takes no new claims, None when it does.

    A hold without ``badMappings`` holds every pool, with them those that have one of the digests; ``resumeAt`` lets a
    pool go on when all its digests are listed there and none is bad; a hold ends at its ``until``.
    """
    hold = rollout.hold if rollout is not None else None
    if rollout is None or hold is None:
        return None
    end = instant(hold.until)
    if end is not None and now >= end:
        return None
    bad = digests & hold.bad_mappings
    if hold.bad_mappings and not bad:
        return None
    if digests and not bad and digests <= rollout.resume_digests:
        return None
    has = f"driver {rollout.driver} held"
    if hold.reason:
        has += f": {hold.reason}"
    if hold.by:
        has += f", by {hold.by}"
    if hold.since:
        since = age(hold.since, now)
        has += f", since {hold.since}" + (f" ({since} ago)" if since else "")
    if bad:
        has += f", mapping {sorted(bad)[0][:19]}"
    needs = f"the hold to end at {hold.until}" if end is not None else "the hold to be taken back"
    return Reason(
        "driver-held",
        has,
        needs,
        f"bound claims stay; take spec.hold out of DriverRollout {rollout.driver} when it is repaired",
    )


def standing(rollout: DriverRollout | None, now: datetime) -> bool:
    """Whether a hold stands that has not ended, for all pools or for those with bad mappings."""
    if rollout is None or rollout.hold is None:
        return False
    return held(rollout, rollout.hold.bad_mappings, now) is not None


def barred(rollout: DriverRollout, nodes: Sequence[Node], name: str = "") -> Reason | None:
    """Why the stage does not let devices with costs be used on all of ``nodes``; ``name`` is that of the node where it
    has one, known or not.
    """
    if rollout.stage == "General":
        return None
    if rollout.stage == "Off":
        fix = f"set spec.stage of DriverRollout {rollout.driver} to Canary"
        return Reason("stage-off", f"driver {rollout.driver} at stage Off", "stage Canary or later", fix)
    if name and not nodes:
        return Reason("node-not-canary", f"node {name}, which is not known", f"a node with {_wanted(rollout)}")
    outside = next((node for node in nodes if not qualifies(rollout, node)), None)
    if outside is None:
        return None
    has = f"node {outside.name}, outside the canary nodes of {rollout.driver} (stage {rollout.stage})"
    fix = f"label the node, or widen {rollout.driver}"
    return Reason("node-not-canary", has, f"a node with {_wanted(rollout)}", fix)


def _wanted(rollout: DriverRollout) -> str:
    selector = rollout.canary_selector
    if selector is None:
        return "the labels of spec.canaryNodeSelector, which is not set"
    labels = selector.get("matchLabels")
    if isinstance(labels, dict) and labels and not selector.get("matchExpressions"):
        return ", ".join(f"{key}={value}" for key, value in labels.items())
    return "the labels of spec.canaryNodeSelector"


def _no_rollout(driver: str, path: str) -> Finding:
    has = f"node costs of {driver}, which has no DriverRollout"
    fix = f"write one for {driver} to choose canary nodes and hold it"
    return Finding("driver-without-rollout", path, has, "one; stage General is taken", fix, "info")


def allocation_rollout_problems(claim: Claim, snapshot: Snapshot, now: datetime) -> list[Finding]:
    """What stages and holds say against a claim's allocation: one finding for each driver and rule."""
    if claim.allocation is None:
        return []
    name = claim_node(claim, snapshot)
    found: dict[tuple[str, str], Finding] = {}
    for result in claim.allocation.results:
        driver = result.driver
        path = f"status.allocation.devices.results[{result.index}]"
        rollout = rollout_of(snapshot, driver)
        offered = find_device(snapshot, result, name)
        # A device that nobody offers may have any cost: its driver's habits decide.
        costs = bool(offered[1].costs) if offered is not None else driver in snapshot.mapped_slices
        reasons: list[Reason] = []
        if rollout is None:
            if costs:
                found.setdefault((driver, "driver-without-rollout"), _no_rollout(driver, f"{path}.driver"))
            continue
        hold = held(rollout, current(snapshot, driver, result.pool, name or None).digests, now)
        if hold is not None:
            reasons.append(hold)
        if costs:
            nodes = _nodes(name, offered[0] if offered is not None else None, snapshot)
            stage = barred(rollout, nodes, name)
            if stage is not None:
                reasons.append(stage)
        for reason in reasons:
            finding = Finding(reason.rule, path, reason.has, reason.needs, reason.fix, passing=True)
            found.setdefault((driver, reason.rule), finding)
    return list(found.values())


def _nodes(name: str, item: Slice | None, snapshot: Snapshot) -> list[Node]:
    if name:
        node = snapshot.nodes.get(name)
        return [] if node is None else [node]
    return [] if item is None else list(target_nodes(item.node, item.nodes, snapshot))


def slice_canary_problems(item: Slice, snapshot: Snapshot) -> list[Finding]:
    """What the driver's stage says against a slice with node costs: every node it chooses, as far as known, must
    qualify. Holds do not stop slices: a repaired mapping has to get in.
    """
    if not item.mapped:
        return []
    rollout = rollout_of(snapshot, item.driver)
    if rollout is None:
        return [_no_rollout(item.driver, "spec.driver")]
    if rollout.stage == "General":
        return []
    path, nodes, unknown = _slice_nodes(item, snapshot)
    stage = barred(rollout, nodes)
    if stage is not None:
        return [Finding(stage.rule, path, stage.has, stage.needs, stage.fix)]
    stage = barred(rollout, [], unknown)
    if stage is not None:
        return [Finding(stage.rule, path, stage.has, stage.needs, stage.fix, "warning")]
    return []


def _slice_nodes(item: Slice, snapshot: Snapshot) -> tuple[str, list[Node], str]:
    """(field path, known nodes the mapped devices are for, a node that is named and not known)."""
    if item.nodes.get("perDeviceNodeSelection") is not True:
        nodes = list(target_nodes(item.node, item.nodes, snapshot))
        unknown = item.node if item.node and not nodes else ""
        return _path("spec", item.node, item.nodes), nodes, unknown
    every: dict[str, Node] = {}
    unknown, path = "", "spec.perDeviceNodeSelection"
    for device in item.devices:
        if device.costs:
            name = text(device.nodes.get("nodeName"))
            chosen = list(target_nodes(name, device.nodes, snapshot))
            unknown = unknown or (name if name and not chosen else "")
            every.update((node.name, node) for node in chosen)
    return path, list(every.values()), unknown


def _path(base: str, name: str, nodes: Json) -> str:
    return f"{base}.nodeName" if name else f"{base}.{next(iter(nodes), 'nodeName')}"


def request_hold_problems(claim: Claim, snapshot: Snapshot, now: datetime) -> list[Finding]:
    """Requests of a new claim (or template) that only held or switched-off drivers could serve: warnings, since the
    hold may be gone when the claim is allocated. Paths below ``spec.devices``.
    """
    found: list[Finding] = []
    for group in claim.groups:
        reasons: list[Reason] = []
        for alternative in group.alternatives:
            drivers = drivers_of(alternative, snapshot)
            stopped = [stopped_driver(snapshot, driver, now) for driver in drivers]
            if not stopped or None in stopped:
                reasons = []
                break
            reasons += [reason for reason in stopped if reason is not None]
        severity: Severity = "warning"
        for reason in dict.fromkeys(reasons):
            path = f"spec.devices.{group.path}"
            found.append(Finding(reason.rule, path, reason.has, reason.needs, reason.fix, severity, passing=True))
    return found


def stopped_driver(snapshot: Snapshot, driver: str, now: datetime) -> Reason | None:
    """Why no pool of ``driver`` takes new claims, whatever node it is on; None when some may."""
    rollout = rollout_of(snapshot, driver)
    if rollout is None:
        return None
    if rollout.stage == "Off" and driver in snapshot.mapped_slices and driver not in snapshot.costless_slices:
        return barred(rollout, [])
    if rollout.hold is not None and not rollout.hold.bad_mappings and not rollout.resume_digests:
        return held(rollout, frozenset(), now)
    return None
