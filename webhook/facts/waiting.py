"""Why a pod's claims have to wait: whatever could serve one of its requests is held, off, or not to be relied on now.

The texts are those that the write of an allocation would be refused with. Only what stops a driver or a whole pool is
looked at, never what is free: a pod that waits for room is the scheduler's.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from msgspec import Struct

from webhook.facts.drivers import drivers_of
from webhook.facts.pod_needs import wanted_claims
from webhook.facts.pool_survey import Reason
from webhook.facts.rollout import stopped_driver
from webhook.facts.stopped_pool import looks, stopped_pool
from webhook.kube.claims import RequestGroup
from webhook.kube.core import Pod
from webhook.kube.snapshot import Snapshot

# What a review may look at to tell that a driver is stopped: a few milliseconds, however wide its pools are.
_MOST_LOOKS = 4096


class _Answer(Struct, frozen=True):
    """Whether something takes new claims; if not, why, and no reason where there is nothing that could."""

    usable: bool
    reason: Reason | None = None


_USABLE = _Answer(True)


def waiting(pod: Pod, snapshot: Snapshot, now: datetime, most: int | None = None) -> Reason | None:
    """Why ``pod`` has to wait: everything that one of its requests could use takes no new claims now; None when it may
    go on. Claims that are allocated, drivers that have nothing published and requests that name no driver are nothing
    to wait for.

    Of a driver that is not stopped as a whole at most ``most`` pools are looked at (None: all), and fewer where they
    are wide. When all of these take no claims the pod waits, though another pool may: whoever looks at all lets it go.
    Where not one can be looked at, it goes on.
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
        reasons: list[Reason] = []
        for alternative in group.alternatives:
            drivers = drivers_of(alternative, self._snapshot)
            answers = [self._driver(driver) for driver in drivers]
            if not drivers or any(answer.usable for answer in answers):
                return None
            reasons += [answer.reason for answer in answers if answer.reason is not None]
        return reasons[0] if reasons else None

    def _driver(self, name: str) -> _Answer:
        known = self._drivers.get(name)
        if known is None:
            known = self._drivers[name] = self._judged(name)
        return known

    def _judged(self, driver: str) -> _Answer:
        stopped = stopped_driver(self._snapshot, driver, self._now)
        if stopped is not None:
            return _Answer(False, stopped)
        left = _MOST_LOOKS
        first: Reason | None = None
        for pool in self._pools(driver):
            if self._most is not None:
                left -= looks(self._snapshot, driver, pool, left)
                if left < 0:
                    break
            reason = stopped_pool(self._snapshot, driver, pool, self._now)
            if reason is None:
                return _USABLE
            first = first or reason
        return _USABLE if first is None and left < 0 else _Answer(False, first)

    def _pools(self, driver: str) -> list[str]:
        """The driver's pools, those of few slices first and no more than are looked at; where all its slices are gone
        those that claims hold.
        """
        snapshot = self._snapshot
        found: set[str] = set()
        for name in islice(snapshot.driver_slices.get(driver, ()), None if self._most is None else _MOST_LOOKS):
            found.add(snapshot.slices[name].pool)
            if len(found) == self._most:
                break
        if not found:
            found.update(islice((pool for owner, pool in snapshot.pool_claims if owner == driver), self._most))
        return sorted(found, key=lambda pool: (len(snapshot.pools.get((driver, pool), ())), pool))
