"""Which devices the scheduler is to leave alone, since the guard would refuse them: what a taint steers away from.

A taint is on devices, whatever node asks for them. So it stands only where the answer is the same for all nodes; where
it depends on the node or the device, the refusal of the allocation decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice

from msgspec import Struct

from webhook.facts.matching import target_nodes
from webhook.facts.placement import offers
from webhook.facts.pool_survey import Reason, current
from webhook.facts.pools import needed, pool_state
from webhook.facts.rollout import barred, held
from webhook.kube.resource import Slice
from webhook.kube.rollout import DriverRollout
from webhook.kube.snapshot import Key, Snapshot
from webhook.kube.taint_rule import rule_name

# A pool that more nodes than this see differently is left to the refusal.
_MOST_VIEWS = 64
_AGE = r"(?:\d+[dhms]){1,2} ago"
_ASIDE, _AGO = re.compile(rf" \({_AGE}\)"), re.compile(_AGE)


class TaintWanted(Struct, frozen=True):
    """Devices to taint: those of ``driver``, of its ``pool`` (empty: of all pools), the ``device`` (empty: all)."""

    driver: str
    pool: str
    device: str
    reason: Reason

    @property
    def name(self) -> str:
        """The name of the rule, the same whatever the reason is."""
        return rule_name(self.driver, self.pool, self.device)

    @property
    def text(self) -> str:
        """What a refusal says, without the ages in it: it stays as long as the reason does."""
        return _AGO.sub("too long ago", _ASIDE.sub("", self.reason.text))


def stopped_pool(snapshot: Snapshot, driver: str, pool: str, now: datetime) -> Reason | None:
    """Why nothing of the pool may be given to a new claim, whatever node it is for; None when something may.

    ``view-stale`` tells that this is not known at present.
    """
    nodes = list(islice(dict.fromkeys(_views(snapshot, driver, pool)), _MOST_VIEWS + 1))
    if not 0 < len(nodes) <= _MOST_VIEWS:
        return None
    reasons = [_stopped(snapshot, driver, pool, node, now) for node in nodes]
    return None if None in reasons else reasons[0]


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


def wanted_taints(
    snapshot: Snapshot,
    stopped: Mapping[Key, Reason],
    now: datetime,
    full: Sequence[TaintWanted] = (),
) -> tuple[TaintWanted, ...]:
    """The taints for pools that are ``stopped`` (driver and pool; see :func:`stopped_pool`) and for devices in zones
    that are ``full``: one for the driver where it is held as a whole, or all of its pools are stopped.
    """
    whole = {driver: reason for driver in snapshot.rollouts if (reason := _held(snapshot, driver, now)) is not None}
    by_driver: dict[str, dict[str, Reason]] = {}
    for (driver, pool), reason in sorted(stopped.items(), key=lambda item: item[0]):
        by_driver.setdefault(driver, {})[pool] = reason
    for driver, pools in by_driver.items():
        if len(pools) > 1 and driver not in whole and _pools(snapshot, driver) <= pools.keys():
            whole[driver] = next(iter(pools.values()))
    found = [TaintWanted(driver, "", "", reason) for driver, reason in sorted(whole.items())]
    for driver, pools in by_driver.items():
        if driver not in whole:
            found += [TaintWanted(driver, pool, "", reason) for pool, reason in pools.items()]
    found += [each for each in full if each.driver not in whole and (each.driver, each.pool) not in stopped]
    return tuple(found)


def _held(snapshot: Snapshot, driver: str, now: datetime) -> Reason | None:
    """Why every pool of ``driver`` is held, whatever mappings it has; None when some may not be."""
    rollout = snapshot.rollouts.get(driver)
    if rollout is None or rollout.hold is None or rollout.hold.bad_mappings or rollout.resume_digests:
        return None
    return held(rollout, frozenset(), now)


def _pools(snapshot: Snapshot, driver: str) -> set[str]:
    return {snapshot.slices[name].pool for name in snapshot.driver_slices.get(driver, ())}
