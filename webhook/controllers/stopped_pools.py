"""Which pools are stopped at present, in a fleet that has very many: those that something was heard of are looked at
again, and all of them now and then, since time alone changes what is said of some.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Protocol

from webhook.cluster.live import Changed
from webhook.cluster.reflector import Key
from webhook.facts.pool_survey import Reason
from webhook.facts.stopped_pool import stopped_pool
from webhook.facts.times import instant
from webhook.kube.snapshot import Snapshot

# Seconds for which a pool has to be out of order until that counts, since one that is just published anew is so for a
# moment; between two looks at those whose driver has promised to write now and then; and between two at everything.
SETTLED, LOOK, SWEEP = 1.0, 5.0, 60.0
# Pools after which other work of the event loop has its turn.
_BREATH = 50
# What an operator has decided does not pass in a moment.
_DECIDED = frozenset({"driver-held", "stage-off", "node-not-canary"})


class Cluster(Protocol):
    """What is read of the live view."""

    on_change: list[Changed]

    @property
    def snapshot(self) -> Snapshot:
        """The objects."""


class StoppedPools:
    """Belongs to the event loop of ``cluster``. ``wake`` is called when there is something to :meth:`look` at.

    :attr:`unknown` are pools of which nothing can be said at present, since the view is behind.
    """

    def __init__(self, cluster: Cluster, clock: Callable[[], datetime], wake: Callable[[], object]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._wake = wake
        self._changed: set[Key] = set()
        # Why each pool is stopped, and since when that is known here.
        self._stopped: dict[Key, tuple[Reason, float]] = {}
        self._look = self._sweep = 0.0
        # By driver the end of a hold that was noticed.
        self._over: dict[str, str] = {}
        self.unknown: set[Key] = set()

    def standing(self, already: Callable[[Key], bool]) -> dict[Key, Reason]:
        """Why pools are stopped, those that have been for long enough, and those that ``already`` count."""
        at = time.monotonic()
        return {
            key: reason
            for key, (reason, since) in self._stopped.items()
            if reason.rule in _DECIDED or at - since >= SETTLED or already(key)
        }

    def idle(self) -> float:
        """Seconds until the next pool has been stopped for long enough, or a second."""
        at = time.monotonic()
        return min([1.0, *(since + SETTLED - at for _, since in self._stopped.values() if since + SETTLED > at)])

    async def look(self) -> None:
        """Look again at the pools that were heard of, and at those that time may have changed."""
        snapshot, at = self._cluster.snapshot, time.monotonic()
        if at >= self._sweep:
            self._sweep = at + SWEEP
            self._changed |= {*snapshot.pools, *snapshot.pool_claims, *self._stopped}
        for driver in self._due(snapshot, at):
            self._changed |= _pools(snapshot, driver)
        changed, self._changed = sorted(self._changed | self.unknown), set()
        for count, key in enumerate(changed, 1):
            self._note(key, stopped_pool(self._cluster.snapshot, *key, self._clock()))
            if count % _BREATH == 0:
                await asyncio.sleep(0)

    def _due(self, snapshot: Snapshot, at: float) -> Iterator[str]:
        """The drivers whose pools may have changed with time: a promised heartbeat did not come, a hold has ended."""
        beats = at >= self._look
        if beats:
            self._look = at + LOOK
        for driver, rollout in snapshot.rollouts.items():
            until = rollout.hold.until if rollout.hold is not None else ""
            end = instant(until) if until != self._over.get(driver) else None
            over = end is not None and self._clock() >= end
            if over:
                self._over[driver] = until
            if over or (beats and rollout.heartbeat):
                yield driver

    def _note(self, key: Key, reason: Reason | None) -> None:
        self.unknown.discard(key)
        if reason is None:
            self._stopped.pop(key, None)
        elif reason.rule == "view-stale":
            self.unknown.add(key)
        else:
            _, since = self._stopped.get(key, (reason, time.monotonic()))
            self._stopped[key] = reason, since

    def hear(self, kind: str, key: Key, before: Snapshot, after: Snapshot) -> None:
        """Note the pools that a change concerns; see :attr:`webhook.cluster.live.LiveCluster.on_change`."""
        pools: set[Key] = set()
        name = key[1]
        match kind:
            case "ResourceSlice":
                pools = {item.key for item in (before.slices.get(name), after.slices.get(name)) if item is not None}
            case "ResourceClaim":
                for claim in (before.claims.get(key), after.claims.get(key)):
                    if claim is not None and claim.allocation is not None:
                        pools |= {(each.driver, each.pool) for each in claim.allocation.results}
            case "DriverRollout":
                pools = _pools(after, name) | {each for each in self._stopped if each[0] == name}
                # A hold of the whole driver concerns no pool that has to be there.
                self._wake()
            case "NodeLedger":
                pools = _on(after, name)
                for ledger in (before.ledgers.get(name), after.ledgers.get(name)):
                    pools |= {(each.driver, each.pool) for each in (ledger.charges if ledger is not None else ())}
            case "Node":
                pools = _on(after, name)
            case "Pod":
                pods = (before.pods.get(key), after.pods.get(key))
                pools = set().union(*(_on(after, pod.node) for pod in pods if pod is not None))
        if pools:
            self._changed |= pools
            self._wake()


def _pools(snapshot: Snapshot, driver: str) -> set[Key]:
    return {snapshot.slices[name].key for name in snapshot.driver_slices.get(driver, ())}


def _on(snapshot: Snapshot, node: str) -> set[Key]:
    """The pools with slices of ``node``."""
    return {item.key for item in snapshot.node_slices.get(node, ())}
