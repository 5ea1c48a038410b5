"""How far a driver has come on the nodes of its stage: which of them have its pools, and which pools take no claims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from webhook.facts.matching import slice_applies, target_nodes
from webhook.facts.pool_survey import Reason, current
from webhook.facts.pools import Phase, pool_state
from webhook.facts.rollout import held, qualifies, slice_canary_problems
from webhook.kube.core import Node
from webhook.kube.finding import Finding
from webhook.kube.resource import Slice
from webhook.kube.rollout import DriverRollout
from webhook.kube.snapshot import Snapshot


class Coverage(Struct, frozen=True):
    """``nodes`` of a stage, how many of them are ``fresh``: the driver has a pool with node costs there, and all its
    pools there are Fresh; ``lacking`` names some of the others.
    """

    nodes: int
    fresh: int
    lacking: tuple[str, ...] = ()

    @property
    def percent(self) -> int:
        """Whole percents, never rounded up; 0 where the stage has no nodes."""
        return self.fresh * 100 // self.nodes if self.nodes else 0


def stage_nodes(rollout: DriverRollout, snapshot: Snapshot) -> list[Node]:
    """The nodes that the stage of ``rollout`` is about, by name: those of its selector, at General those that slices of
    the driver are for, at Off none.
    """
    if rollout.stage != "General":
        return [node for _, node in sorted(snapshot.nodes.items()) if qualifies(rollout, node)]
    found: dict[str, Node] = {}
    for name in snapshot.driver_slices.get(rollout.driver, ()):
        found.update((node.name, node) for node in slice_nodes(snapshot.slices[name], snapshot))
    return [node for _, node in sorted(found.items())]


def selector_problems(rollout: DriverRollout, chosen: int, nodes: int) -> list[Finding]:
    """A warning where the canary selector of ``rollout`` chooses so many of so many ``nodes`` that it can hardly be
    meant: none, or at stage Canary all of several. Nothing where no node is known.
    """
    path = "spec.canaryNodeSelector"
    if nodes and not chosen and rollout.stage in ("Canary", "Expanding"):
        fix = "label canary nodes, or widen it"
        return [Finding("rollout-invalid", path, "no node that it chooses", "one", fix, "warning")]
    # That a selector without keys chooses all nodes is wrong with the document by itself.
    if 1 < nodes == chosen and rollout.stage == "Canary" and rollout.canary_keys:
        needs, fix = "labels that canary nodes alone have", "stage General is the one for all nodes"
        return [Finding("rollout-invalid", path, f"all {nodes} nodes", needs, fix, "warning")]
    return []


def slice_nodes(item: Slice, snapshot: Snapshot) -> Iterator[Node]:
    """The known nodes that ``item`` is for, some perhaps more than once."""
    if item.nodes.get("perDeviceNodeSelection") is True:
        for device in item.devices:
            yield from target_nodes(str(device.nodes.get("nodeName") or ""), device.nodes, snapshot)
    else:
        yield from target_nodes(item.node, item.nodes, snapshot)


def coverage(rollout: DriverRollout, snapshot: Snapshot, now: datetime, most: int = 8) -> Coverage:
    """The coverage of the stage that ``rollout`` has; at most so many lacking nodes are named. Looks at every node."""
    nodes = stage_nodes(rollout, snapshot)
    free = {snapshot.slices[name].pool for name in snapshot.free_slices.get(rollout.driver, ())}
    lacking = [node.name for node in nodes if not _covered(rollout.driver, node.name, free, snapshot, now)]
    return Coverage(len(nodes), len(nodes) - len(lacking), tuple(lacking[:most]))


def _covered(driver: str, node: str, free: set[str], snapshot: Snapshot, now: datetime) -> bool:
    pools = {item.pool for item in snapshot.node_slices.get(node, ()) if item.driver == driver}
    for pool in free - pools:
        if any(slice_applies(item, node, snapshot) for item in snapshot.pools[driver, pool]):
            pools.add(pool)
    states = [pool_state(snapshot, driver, pool, node, now) for pool in pools]
    return any(state.survey.mapped for state in states) and all(state.usable for state in states)


def driver_pools(driver: str, snapshot: Snapshot) -> list[str]:
    """The pools that ``driver`` has slices of, sorted."""
    return sorted({snapshot.slices[name].pool for name in snapshot.driver_slices.get(driver, ())})


def phases(driver: str, pools: list[str], snapshot: Snapshot, now: datetime) -> Counter[Phase]:
    """How many of the ``pools`` of ``driver`` are in which phase, each as seen from anywhere."""
    return Counter(pool_state(snapshot, driver, pool, None, now).phase for pool in pools)


def held_pools(rollout: DriverRollout, snapshot: Snapshot, now: datetime) -> Iterator[tuple[str, Reason]]:
    """The pools that take no new claims since the operator says so, and why: held, or on nodes that the stage does not
    reach (any more). A slice on a node that lost its label stays where it is, and what is bound with it.
    """
    for pool in driver_pools(rollout.driver, snapshot):
        reason = held(rollout, current(snapshot, rollout.driver, pool, None).digests, now)
        if reason is None and rollout.stage != "General":
            reason = _outside(rollout.driver, pool, snapshot)
        if reason is not None:
            yield pool, reason


def _outside(driver: str, pool: str, snapshot: Snapshot) -> Reason | None:
    for item in snapshot.pools[driver, pool]:
        for each in slice_canary_problems(item, snapshot):
            if each.severity == "error":
                return Reason(each.rule, each.has, each.needs, each.fix)
    return None
