"""A ResourceSlice beside the other slices of its pool and the node it is for.

Only what a write can be told about: whether claims may use the pool is judged when they are allocated.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.facts.mapping_amounts import PAGES, page_size
from webhook.facts.pool_survey import counter_reasons
from webhook.facts.slice_sums import device_indexes, most_together
from webhook.kube.finding import Finding
from webhook.kube.quantity import beyond_int64, of_resource
from webhook.kube.resource import Slice
from webhook.kube.snapshot import Snapshot

SHOWN = 5


def set_problems(item: Slice, snapshot: Snapshot) -> list[Finding]:
    """What does not go together with ``item``; ``snapshot`` may hold this slice already, in an older or this state."""
    others = [
        other
        for other in snapshot.pools.get(item.key, ())
        if not other.deleting and (other.name != item.name or not item.name)
    ]
    near = [other for other in others if not (item.node and other.node) or item.node == other.node]
    same = [other for other in near if other.generation == item.generation]
    return [
        *_owner(item, snapshot),
        *_sum(item, same, snapshot),
        *_names(item, same, [other for other in others if other not in near]),
        *_generations(item, near, snapshot),
        *_counts(item, same, near),
        *_counters(item, same),
    ]


def _owner(item: Slice, snapshot: Snapshot) -> Iterator[Finding]:
    node = snapshot.nodes.get(item.owner_node)
    if node is None or not node.uid or not item.owner_node_uid or node.uid == item.owner_node_uid:
        return
    has = f"owner {item.owner_node} with uid {item.owner_node_uid}"
    fix = "the node was made anew under its name: the driver has to publish the slice again"
    where = "metadata.ownerReferences"
    yield Finding("slice-owner-gone", where, has, f"the uid {node.uid} of that node", fix, "warning")


def _sum(item: Slice, same: list[Slice], snapshot: Snapshot) -> Iterator[Finding]:
    node = snapshot.nodes.get(item.node) if item.node else None
    if node is None or not node.allocatable or not item.mapped:
        return
    for resource, total in most_together([item, *same]).items():
        if beyond_int64(resource, total) or (resource.startswith(PAGES) and page_size(resource) is None):
            continue  # no amount that can be booked at all: an error of its own
        available = node.allocatable.get(resource)
        if available is None:
            # What every node has may only be unknown here; page sizes a node does not list it does not have.
            if not resource.startswith("hugepages-") or not total:
                continue
            available = 0
        if total <= available:
            continue
        capacity = node.capacity.get(resource)
        beside = "" if capacity is None else f" and capacity {of_resource(resource, capacity)}"
        has = f"devices that can cost {of_resource(resource, total)} of {resource}"
        needs = f"at most what node {node.name} has: allocatable {of_resource(resource, available)}{beside}"
        fix = "leave out what the node reserves, or correct the mapping"
        yield Finding("sum-exceeds-node", "spec.devices", has, needs, fix, "warning")


def _names(item: Slice, same: list[Slice], away: list[Slice]) -> Iterator[Finding]:
    if not same and not away:
        return
    own = frozenset(device.name for device in item.devices)
    for other in same:
        shared = own.intersection(device.name for device in other.devices)
        if shared:
            where, names = _where(item, shared)
            has, fix = f"{names} also in slice {other.name}", "give every device of the pool a name of its own"
            yield Finding("device-name-dup-in-pool", where, has, "each device once in its pool", fix)
    for other in away:
        shared = own.intersection(device.name for device in other.devices)
        if shared:
            where, names = _where(item, shared)
            has = f"{names} also on node {other.node}, in slice {other.name}"
            fix = "name the pool after the node: driver, pool and device tell machines apart, nothing else does"
            yield Finding("device-identity-two-nodes", where, has, "one machine for each device", fix, "warning")


def _where(item: Slice, names: frozenset[str]) -> tuple[str, str]:
    found = list(device_indexes(item, names))
    shown = ", ".join(name for _, name in found[:SHOWN])
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"spec.devices[{found[0][0]}].name", f"device {shown}{more}"


def _generations(item: Slice, near: list[Slice], snapshot: Snapshot) -> Iterator[Finding]:
    where = "spec.pool.generation"
    newest = max((other.generation for other in near), default=item.generation)
    if newest > item.generation:
        has = f"generation {item.generation} beside slices of generation {newest}"
        fix = "the scheduler uses the highest generation only"
        yield Finding("pool-lower-generation", where, has, f"generation {newest} or higher", fix, "warning")
    alone = not near or newest > item.generation
    if alone and any(_older(item, stamp, snapshot) for stamp in _stamps(item, snapshot)):
        has = f"generation {item.generation}, published after claims were allocated from the pool"
        needs = "no change where the pool was wiped: it may begin again at any generation"
        yield Finding("generation-reset-ok", where, has, needs, severity="info")


def _stamps(item: Slice, snapshot: Snapshot) -> Iterator[str]:
    for claim in snapshot.pool_claims.get(item.key, ()):
        if claim.allocation is not None and claim.allocation.timestamp:
            yield claim.allocation.timestamp


def _older(item: Slice, stamp: str, snapshot: Snapshot) -> bool:
    return stamp < item.created if item.created else item.name not in snapshot.slices


def _counters(item: Slice, same: list[Slice]) -> Iterator[Finding]:
    """Counters that devices consume and a complete pool does not have: the allocator then refuses the whole pool."""
    if len(same) + 1 != item.count or not any(device.counters for device, _ in item.kinds):
        return
    sets = {name: counters for each in (item, *same) for name, counters in each.counter_sets.items()}
    for index, device in enumerate(item.devices):
        for reason in counter_reasons(device, sets) if device.counters else ():
            where = f"spec.devices[{index}].consumesCounters"
            yield Finding(reason.rule, where, reason.has, reason.needs, reason.fix, "warning")
            return


def _counts(item: Slice, same: list[Slice], near: list[Slice]) -> Iterator[Finding]:
    if item.count < 1:
        return
    where = "spec.pool.resourceSliceCount"
    counts = sorted({other.count for other in same} - {item.count})
    present = len(same) + 1
    if counts:
        listed = " and ".join(map(str, counts))
        has = f"{item.count} beside slices of the same generation that say {listed}"
        fix = "raise the generation when the number of slices changes"
        yield Finding("pool-counts-disagree", where, has, "one count in all slices of a generation", fix, "warning")
    elif present > item.count:
        has = f"{item.count} and {present} slices of this generation"
        fix = "raise the generation when the number of slices changes"
        yield Finding("pool-counts-disagree", where, has, "as many slices as it says", fix, "warning")
    elif present < item.count and all(other.generation <= item.generation for other in near):
        has = f"{present} of {item.count} slices of generation {item.generation}"
        needs, fix = "all of them before claims can use the pool", "go on publishing"
        yield Finding("pool-incomplete", where, has, needs, fix, "info")
