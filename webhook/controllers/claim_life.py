"""Follows claims through their lives, and tells of each moment once: what the books of nodes became, and what a claim
waits for while pods do. Runs where the leader is.

Since when a claim waits, and why, is read from the objects: whoever leads next says the same of it. What is remembered
is only which reason was told last.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from webhook.cluster.live import Changed
from webhook.cluster.reflector import Key
from webhook.facts.pending import NOTHING_KNOWN, ORDINARY
from webhook.facts.placement import consumers
from webhook.kube.claims import Claim
from webhook.kube.snapshot import Snapshot
from webhook.ledger.awaited import because, given_up, settled, waits
from webhook.ledger.moments import WAITED, Moment

# Seconds between two looks, how often as long as a look has taken there is none, how many claims are told as waiting
# at one look, and how many are read without a pause.
LOOK, SHARE, MOST, _BREATH = 2.0, 10, 256, 64
# A wait is told when it is that old, seconds, then after twice as long each time, up to the longest.
FIRST, LONGEST = int(WAITED.total_seconds()), 300
# How long a claim may have devices and no charge until it is taken for one that costs nothing, seconds.
_COSTLESS = 30.0


class _Wait(Struct):
    """A claim that waits. ``moment`` is what was found last, ``reason`` what was told last, ``due`` when it is told
    again, ``told`` when it was, and ``left`` since when it waits no more, by the count of seconds.
    """

    moment: Moment
    reason: str
    due: float
    told: float | None = None
    left: float | None = None


class Cluster(Protocol):
    """What is read of the live view."""

    on_change: list[Changed]

    @property
    def snapshot(self) -> Snapshot:
        """The objects."""


class ClaimLife:
    """The controller. ``on_moments`` are told whatever happens to claims; they never block, and never raise.
    ``refused`` tells by claim id which rule refused its last allocation. ``clock`` is the API server's; ``count``
    counts seconds, which no jump of a clock moves.
    """

    def __init__(
        self, cluster: Cluster, clock: Callable[[], datetime], count: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._count = count
        self.refused: Callable[[], Mapping[str, str]] = dict
        self.on_moments: list[Callable[[Sequence[Moment]], None]] = []
        self._begin()

    def _begin(self) -> None:
        self._waits: dict[str, _Wait] = {}
        # The claims without an allocation, by their place.
        self._open: set[Key] = set()
        self._new = True

    async def run(self) -> None:
        """Follow them until cancelled."""
        self._begin()
        self._cluster.on_change.append(self._heard)
        self._open = {key for key, claim in self._cluster.snapshot.claims.items() if claim.allocation is None}
        try:
            while True:
                begun = self._count()
                await self.look()
                await asyncio.sleep(max(LOOK, SHARE * (self._count() - begun)))
        finally:
            self._cluster.on_change.remove(self._heard)
            # Somebody else leads, perhaps for good.
            self._begin()

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``: how many claims wait, and for what."""
        found = Counter([wait.moment.reason for wait in list(self._waits.values()) if wait.left is None])
        said = [f"{count} wait: {reason}" for reason, count in sorted(found.items())]
        return [("claims", True, "; ".join(["ok", *said]))]

    def written(self, moments: Sequence[Moment]) -> None:
        """Tell what a write of a node's ledger meant, and what those had waited for that wait no more."""
        told = []
        for each in moments:
            if each.kind == "settled":
                wait = self._waits.pop(each.uid, None)
                each = because(each, _said_last(wait)) if wait is not None else each
            told.append(each)
        self._tell(told)

    async def look(self) -> None:
        """Tell those that wait for something else than before, those that it is time to tell again, the longest waits
        first, and those that are not awaited any more.
        """
        snapshot = self._cluster.snapshot
        claims = [claim for key in self._open if (claim := snapshot.claims.get(key)) is not None]
        found: dict[str, Moment] = {}
        waiting = waits(claims, snapshot, self._clock(), self.refused(), {*self._waits})
        for number, moment in enumerate(waiting, 1):
            found[moment.uid] = moment
            if number % _BREATH == 0:
                await asyncio.sleep(0)
        for uid, moment in found.items():
            # A charge may have told of its end meanwhile.
            if self._allocated(uid) is None:
                self._found(uid, moment)
        due = [wait for uid, wait in self._waits.items() if uid in found and wait.due <= self._count()]
        due.sort(key=lambda wait: wait.moment.begun)
        self._tell([self._due(wait) for wait in due[:MOST]])
        self._tell([over for uid in [*self._waits] if uid not in found and (over := self._over(uid)) is not None])
        self._new = False

    def _found(self, uid: str, moment: Moment) -> None:
        """Note what a claim waits for now."""
        now, wait = self._count(), self._waits.get(uid)
        if wait is None:
            # Who led before has told what it was then. What is new waits for nothing in particular, until it does.
            reason = moment.reason if self._new else NOTHING_KNOWN
            told = now if self._new and moment.at - moment.begun >= WAITED else None
            wait = self._waits[uid] = _Wait(moment, reason, now + _until_told(moment), told)
        wait.moment, wait.left = moment, None
        if moment.reason != wait.reason and moment.reason not in ORDINARY:
            wait.due = min(wait.due, now if wait.told is None else wait.told + FIRST)

    def _due(self, wait: _Wait) -> Moment:
        wait.told, wait.reason = self._count(), wait.moment.reason
        # Who was told of another reason a moment ago need not be told of the time.
        wait.due = wait.told + max(_until_told(wait.moment), FIRST)
        return wait.moment

    def _over(self, uid: str) -> Moment | None:
        """The end of a wait, if it is this look's to tell: one that ended with a charge is told by that."""
        wait, now = self._waits[uid], self._count()
        claim = self._allocated(uid)
        if claim is not None:
            wait.left = now if wait.left is None else wait.left
            if now - wait.left < _COSTLESS:
                return None
        del self._waits[uid]
        if wait.told is None:
            return None
        if claim is None:
            return given_up(_said_last(wait), self._clock())
        return because(settled(claim, consumers(claim, self._cluster.snapshot), self._clock()), _said_last(wait))

    def _allocated(self, uid: str) -> Claim | None:
        """The claim if it has an allocation."""
        claim = self._cluster.snapshot.claims_by_uid.get(uid)
        return claim if claim is not None and claim.allocation is not None else None

    def _tell(self, moments: Sequence[Moment]) -> None:
        if moments:
            for told in self.on_moments:
                told(moments)

    def _heard(self, kind: str, key: Key, before: Snapshot, after: Snapshot) -> None:
        if kind == "ResourceClaim":
            claim = after.claims.get(key)
            if claim is not None and claim.allocation is None:
                self._open.add(key)
            else:
                self._open.discard(key)


def _said_last(wait: _Wait) -> Moment:
    """What is told to be over. What stopped a claim may have gone a moment before it got its devices: who was told of
    that is told of the end, too.
    """
    return (
        replace(wait.moment, reason=wait.reason)
        if wait.told is not None and wait.moment.reason in ORDINARY
        else wait.moment
    )


def _until_told(moment: Moment) -> float:
    """Seconds from a moment until its wait is told next."""
    age = (moment.at - moment.begun).total_seconds()
    due, step = FIRST, FIRST
    while due <= age and step < LONGEST:
        step = min(2 * step, LONGEST)
        due += step
    if due <= age:
        due += LONGEST * int((age - due) // LONGEST + 1)
    return due - age
