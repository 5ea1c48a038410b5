"""Whether a pool takes new claims at all, whatever node they are for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice

from webhook.facts.matching import target_nodes
from webhook.facts.placement import offers
from webhook.facts.pool_survey import Reason, current
from webhook.facts.pools import needed, pool_state
from webhook.facts.rollout import barred, held
from webhook.kube.raw import Json
from webhook.kube.resource import Slice
from webhook.kube.rollout import DriverRollout
from webhook.kube.snapshot import Snapshot

# A pool that more nodes than this see differently is left to the refusal.
_MOST_VIEWS = 64


def stopped_pool(snapshot: Snapshot, driver: str, pool: str, now: datetime) -> Reason | None:
    """Why nothing of the pool may be given to a new claim, whatever node it is for; None when something may.

    ``view-stale`` tells that this is not known at present.
    """
    nodes = _nodes(snapshot, driver, pool)
    if len(nodes) > _MOST_VIEWS:
        return None
    first: Reason | None = None
    for node in nodes:
        reason = _stopped(snapshot, driver, pool, node, now)
        if reason is None:
            return None
        first = first or reason
    return first


def looks(snapshot: Snapshot, driver: str, pool: str, most: int) -> int:
    """How many looks it takes to tell that the pool is stopped: from a node at a slice, or at each device where they
    have nodes of their own, and at nodes to find those. Counted no further than beyond ``most``.
    """
    count = places = 0
    for item in snapshot.pools.get((driver, pool), ()):
        found = _places(item)
        places += len(found)
        count += sum(len(snapshot.nodes) if "nodeSelector" in place else 1 for place in found)
        # What it takes to find the nodes is bounded before they are looked for.
        if count > most:
            return count
    return count + places * min(len(_nodes(snapshot, driver, pool)), _MOST_VIEWS)


def _places(item: Slice) -> list[Json]:
    """The node fields of the slice, or those of each device."""
    if item.nodes.get("perDeviceNodeSelection") is True:
        return [device.nodes for device in item.devices]
    return [item.nodes]


def _nodes(snapshot: Snapshot, driver: str, pool: str) -> list[str | None]:
    """The nodes that a pool is looked at from; one more than are, where there are too many."""
    return list(islice(dict.fromkeys(_views(snapshot, driver, pool)), _MOST_VIEWS + 1))


def _views(snapshot: Snapshot, driver: str, pool: str) -> Iterator[str | None]:
    """Nodes that see the pool, one at least for each of its slices; None for a pool without slices."""
    slices = snapshot.pools.get((driver, pool), ())
    if not slices:
        yield None
    for item in slices:
        if item.nodes.get("perDeviceNodeSelection") is True:
            for device in item.devices:
                yield from _first(snapshot, offers(item, device), device.nodes)
        else:
            yield from _first(snapshot, item.node, item.nodes)


def _first(snapshot: Snapshot, name: str, nodes: Mapping[str, object]) -> Iterator[str]:
    if name:
        yield name
    else:
        yield from (node.name for node in islice(target_nodes("", dict(nodes), snapshot), 1))


def _stopped(snapshot: Snapshot, driver: str, pool: str, node: str | None, now: datetime) -> Reason | None:
    rollout = snapshot.rollouts.get(driver)
    hold = held(rollout, current(snapshot, driver, pool, node).digests, now)
    if hold is not None:
        return hold
    state = pool_state(snapshot, driver, pool, node, now)
    if not state.usable and state.reasons and needed(snapshot, state):
        first = state.reasons[0]
        return Reason(first.rule, f"pool {pool} of {driver}: {first.has}", first.needs, first.fix)
    return _barred(snapshot, rollout, state.slices, node or "")


def _barred(snapshot: Snapshot, rollout: DriverRollout | None, slices: tuple[Slice, ...], node: str) -> Reason | None:
    """What the driver's stage says against slices in which every device costs something: where it is Off, or they are
    all of this node.
    """
    if rollout is None or not slices or not all(device.costs for item in slices for device in item.devices):
        return None
    if rollout.stage != "Off" and not all(item.node for item in slices):
        return None
    known = snapshot.nodes.get(node)
    return barred(rollout, [] if known is None else [known], node)
