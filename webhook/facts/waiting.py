"""Why a pod's claims have to wait: whatever could serve one of its requests is held, off, or not to be relied on now.

The texts are those that the write of an allocation would be refused with. Only what stops a driver or a whole pool is
looked at, never what is free: a pod that waits for room is the scheduler's.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from webhook.facts.drivers import drivers_of
from webhook.facts.pod_needs import wanted_claims
from webhook.facts.pool_survey import Reason
from webhook.facts.pools import PoolState, needed, pool_state
from webhook.facts.rollout import barred, costing_nodes, held, qualifies, rollout_of, stopped_driver
from webhook.kube.claims import RequestGroup
from webhook.kube.core import Pod
from webhook.kube.snapshot import Snapshot


class _Answer(Struct, frozen=True):
    """Whether something takes new claims; if not, why, and no reason where there is nothing that could."""

    usable: bool
    reason: Reason | None = None


_USABLE, _NOTHING = _Answer(True), _Answer(False)


def waiting(pod: Pod, snapshot: Snapshot, now: datetime, most: int | None = None) -> Reason | None:
    """Why ``pod`` has to wait: everything that one of its requests could use takes no new claims now; None when it may
    go on. Claims that are allocated, drivers that have nothing published and requests that name no driver are nothing
    to wait for.

    A driver of more than ``most`` pools (None: of however many) is not looked at closer than its hold and its stage.
    For many pods at one moment, ask one :class:`Waiting`.
    """
    return Waiting(snapshot, now, most).pod(pod)


class Waiting:
    """What waits at one moment; each driver is looked at once, however many pods need it."""

    def __init__(self, snapshot: Snapshot, now: datetime, most: int | None = None) -> None:
        self._snapshot = snapshot
        self._now = now
        self._most = most
        self._drivers: dict[str, _Answer] = {}

    def pod(self, pod: Pod) -> Reason | None:
        """As :func:`waiting`."""
        claims = wanted_claims(pod, self._snapshot)
        groups = (group for claim in claims if claim.allocation is None for group in claim.groups)
        return next((reason for group in groups if (reason := self._group(group)) is not None), None)

    def driver(self, name: str) -> Reason | None:
        """Why no pool of the driver takes new claims, None when one does or there is none."""
        return self._driver(name).reason

    def _group(self, group: RequestGroup) -> Reason | None:
        reason: Reason | None = None
        for alternative in group.alternatives:
            drivers = drivers_of(alternative, self._snapshot)
            answers = [self._driver(driver) for driver in drivers]
            if not drivers or any(answer.usable for answer in answers):
                return None
            reason = next((each for each in (reason, *(a.reason for a in answers)) if each is not None), None)
        return reason

    def _driver(self, name: str) -> _Answer:
        known = self._drivers.get(name)
        if known is None:
            known = self._drivers[name] = self._judged(name)
        return known

    def _judged(self, driver: str) -> _Answer:
        stopped = stopped_driver(self._snapshot, driver, self._now)
        if stopped is not None:
            return _Answer(False, stopped)
        pools = self._pools(driver)
        if self._most is not None and len(pools) > self._most:
            return _USABLE
        return _first(_pool(self._snapshot, driver, pool, self._now) for pool in sorted(pools))

    def _pools(self, driver: str) -> set[str]:
        """The driver's pools, up to one more than are looked at; where all slices are gone those that claims hold."""
        pools: set[str] = set()
        for name in self._snapshot.driver_slices.get(driver, ()):
            pools.add(self._snapshot.slices[name].pool)
            if self._most is not None and len(pools) > self._most:
                return pools
        return pools or {pool for owner, pool in self._snapshot.pool_claims if owner == driver}


def pool_waiting(snapshot: Snapshot, driver: str, pool: str, now: datetime) -> Reason | None:
    """Why no node can have new claims on the pool now (hold, stage, phase); None when one can, or it has no devices."""
    return _pool(snapshot, driver, pool, now).reason


def _pool(snapshot: Snapshot, driver: str, pool: str, now: datetime) -> _Answer:
    # A pool is what a node sees of it: an allocation is judged from its own node.
    nodes = sorted({item.node for item in snapshot.pools.get((driver, pool), ()) if item.node})
    states = (pool_state(snapshot, driver, pool, node, now) for node in nodes or (None,))
    return _first(_seen(snapshot, state, now) for state in states)


def _first(answers: Iterable[_Answer]) -> _Answer:
    """Usable as soon as one is, else the first reason."""
    found = _NOTHING
    for answer in answers:
        if answer.usable:
            return answer
        found = answer if found.reason is None else found
    return found


def _seen(snapshot: Snapshot, state: PoolState, now: datetime) -> _Answer:
    reason = held(rollout_of(snapshot, state.driver), state.survey.digests, now) or _stage(snapshot, state)
    if reason is None and state.reasons and needed(snapshot, state):
        reason = replace(state.reasons[0], has=f"{state.label}: {state.reasons[0].has}")
    return _Answer(reason is None and bool(state.survey.devices), reason)


def _stage(snapshot: Snapshot, state: PoolState) -> Reason | None:
    """Why the driver's stage lets nothing of the pool be used: all of it has costs, and no node qualifies."""
    rollout, devices = rollout_of(snapshot, state.driver), state.survey.devices
    if rollout is None or rollout.stage == "General" or not devices:
        return None
    if not all(device.costs for _, device in devices.values()):
        return None
    nodes = costing_nodes(state.slices, state.node, snapshot)
    qualified = any(qualifies(rollout, node) for node in nodes)
    return None if qualified else barred(rollout, nodes, state.node or "")
