"""Lifts the scheduling gates of pods whose claims need not wait any more, those that have waited longest first, and
tells the others once what they wait for. Runs where the leader is.

Nothing is remembered that has to outlive the process: which pods have the gate is in the view, why they wait is
computed from it, and an event that was written before is refused as being there.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter, deque
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Protocol

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.cluster.live import Changed
from webhook.cluster.reflector import Key
from webhook.controllers.events import tell_waiting
from webhook.controllers.pace import Pace
from webhook.controllers.places import UNMADE, Places
from webhook.controllers.trouble import Once, Trouble
from webhook.facts.pool_survey import Reason
from webhook.facts.steering import ungate_patch
from webhook.facts.waiting import Waiting
from webhook.facts.zone_choice import RULE as CHOICE
from webhook.kube.core import GATE, Pod
from webhook.kube.raw import Json
from webhook.kube.snapshot import Snapshot
from webhook.telemetry.log import Log

# The facts for which policies hold pods.
WAITING, ZONES = "pod.waitingProblems", "pod.zoneChoiceProblems"
# Pods released a second, and at once after a while of nothing; as many are told what they wait for. Writes that are
# under way at one time.
RATE, BURST, AT_ONCE = 50.0, 50, 16
# Seconds: in which changes are gathered, between two looks without any, for which writes go on after a look, until a
# pod is tried again whose write changed nothing, and at most between two tries while writes fail.
GATHER, LOOK, ROUND, LATER, LONGEST = 0.2, 1.0, 1.0, 30.0, 30.0
# To see who waits takes a while where many do. For so many times as long it is not done again, after a change that may
# let somebody go on and without any: the rest of the time is for others.
_SOON, _SHARE = 3, 10
# What is no trouble: the pod was changed, or is gone, since it was looked at; the event is there.
_OVERTAKEN = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY})
# What says nothing about the pod: it may be tried again at the next look.
_LATER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE})

Waits = Callable[[Pod], Reason | None]


class Cluster(Protocol):
    """What is read of the live view."""

    on_change: list[Changed]

    @property
    def snapshot(self) -> Snapshot:
        """The objects."""


class Gates:
    """The controller. ``holds`` tells whether any policy holds pods for what a fact says: without one, nobody waits for
    it.

    :attr:`on_release` is called for each pod that is released.
    """

    def __init__(
        self,
        api: Api,
        cluster: Cluster,
        holds: Callable[[str], bool],
        places: Places,
        log: Log,
        clock: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._holds = holds
        self._places = places
        self._log = log
        self._clock = clock
        self.on_release: Callable[[], object] = int
        self._problem = self._untold = ""
        self._unlifted = Once(log, "gates not lifted")
        self._unsaid = Once(log, "pods not told what they wait for")
        self._begin()

    def _begin(self) -> None:
        self._wake = asyncio.Event()
        self._releasing, self._telling = Pace(RATE, BURST), Pace(RATE, BURST)
        # By UID: the pods that know what they wait for; and those that were written as they are now, when, and why that
        # changed nothing.
        self._told: set[str] = set()
        self._written: dict[str, tuple[Pod, float, str]] = {}
        self._waiting: Counter[str] = Counter()
        # Whether nodes are chosen by zones, and which pods had none at this look and at the one before.
        self._zones = False
        self._crowded, self._before = set[str](), set[str]()
        self._left = self._lifted = False
        self._took = self._soonest = self._end = self._silent = 0.0

    async def run(self) -> None:
        """Release whatever may go on, until cancelled."""
        self._begin()
        self._cluster.on_change.append(self._heard)
        pause = 0.0
        try:
            while True:
                await self._something()
                await asyncio.sleep(pause + (0.0 if self._left else max(GATHER, _SOON * self._took)))
                problem = await self.look()
                told = problem or next((each for *_, each in self._written.values() if each), "")
                if told:
                    self._unlifted.tell(told)
                elif self._lifted:
                    # That nobody is left who could not be released is no sign that it would work.
                    self._unlifted.over()
                self._problem = told
                pause = min(max(pause * 2, 1.0), LONGEST) * random.uniform(0.8, 1.2) if problem else 0.0
        finally:
            self._cluster.on_change.remove(self._heard)

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``: a gate that cannot be lifted keeps nobody from serving."""
        told = [each for each in (self._problem, self._untold) if each]
        waiting = [f"{count} wait: {rule}" for rule, count in sorted(self._waiting.items())]
        return [("gates", True, "; ".join([f"ok, but {told[0]}" if told else "ok", *told[1:], *waiting]))]

    def _heard(self, kind: str, key: Key, before: Snapshot, after: Snapshot) -> None:
        """Look at once for a pod that is new, when slices or what an operator says of drivers have changed, and when a
        pod that was let go to a zone has its devices.
        """
        new = key in after.gated_pods and key not in before.gated_pods
        edited = kind == "ResourceSlice" or before.rollout_specs is not after.rollout_specs
        awaited = edited or self._places.awaits(kind, key)
        if (kind == "Pod" and new) or (awaited and after.gated_pods):
            self._wake.set()

    async def _something(self) -> None:
        """Wait for an event, or for what becomes due without one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0 if self._left else max(LOOK, _SHARE * self._took)):
                await self._wake.wait()
        self._wake.clear()

    async def look(self) -> str:
        """See who waits, and release and tell as many as there is time for; what kept a pod from being released."""
        begun, snapshot = time.monotonic(), self._cluster.snapshot
        self._lifted = False
        gated = sorted(snapshot.gated_pods.values(), key=_since)
        present = {pod.uid for pod in gated}
        self._told &= present
        self._written = {uid: each for uid, each in self._written.items() if uid in present}
        waits = self._waits(snapshot)
        self._zones = self._holds(ZONES)
        (self._places.begin if self._zones else self._places.idle)()
        self._crowded, self._before = set(), self._crowded
        free: deque[Pod] = deque()
        held: deque[tuple[Pod, Reason]] = deque()
        counts: Counter[str] = Counter()
        for number, pod in enumerate(gated):
            if number % 256 == 255:
                await asyncio.sleep(0)
            if pod.deleting:
                continue
            reason = waits(pod)
            lasts = reason is not None
            if reason is None and self._zones:
                reason = await self._room(pod)
            if reason is None:
                free.append(pod)
                continue
            counts[reason.rule] += 1
            if not lasts and reason.rule != UNMADE:
                # What is seen once may be over in a moment, as when the pod before it gets its devices.
                self._crowded.add(pod.uid)
                lasts = pod.uid in self._before
            if lasts and pod.uid not in self._told:
                held.append((pod, reason))
        self._waiting = counts
        self._took = time.monotonic() - begun
        self._soonest, self._end = begun + max(GATHER, _SOON * self._took), begun + max(ROUND, _SHARE * self._took)
        problem, self._untold = await asyncio.gather(self._release(free, snapshot, waits), self._tell(held))
        if self._zones:
            await self._places.end()
        self._left = bool(free or held)
        return problem

    def _waits(self, snapshot: Snapshot) -> Waits:
        """What tells why a pod has to wait."""
        return Waiting(snapshot, self._clock()).pod if self._holds(WAITING) else lambda pod: None

    async def _room(self, pod: Pod) -> Reason | None:
        """Why there is no node for the pod by its zones."""
        try:
            return await self._places.reason(pod)
        except (ApiError, Unreachable) as error:
            return Reason(CHOICE, f"a pod that cannot be read: {error}", "the pod, to see which nodes it may have")

    async def _release(self, pods: deque[Pod], seen: Snapshot, waits: Waits) -> str:
        """Lift the gates of ``pods``, taken from the left, for as long as there is time or until none can be lifted;
        the first problem. ``waits`` told about ``seen`` that nothing keeps them back.
        """
        released = 0
        problem = ""
        while pods and time.monotonic() < self._end:
            now = self._cluster.snapshot
            if now.rollout_specs is not seen.rollout_specs:
                # A hold stops what was about to go on; what else has changed is seen at the next look.
                seen, waits = now, self._waits(now)
            batch: list[Pod] = []
            while pods and len(batch) < AT_ONCE:
                pod = self._current(pods.popleft(), now)
                if pod is not None and waits(pod) is None:
                    batch.append(pod)
            given = self._releasing.take(len(batch))
            pods.extendleft(reversed(batch[given:]))
            outcomes = await asyncio.gather(*map(self._lift, batch[:given]))
            released += outcomes.count("released")
            failed = [each for each in outcomes if each not in ("released", "overtaken", "waits")]
            problem = problem or next(iter(failed), "")
            if failed and len(failed) == given:
                break
            if given < len(batch):
                await asyncio.sleep(self._releasing.wait(len(batch) - given))
        if released:
            self._log.write("info", "pods released", count=released, waiting=self._waiting.total())
        return problem

    def _current(self, seen: Pod, now: Snapshot) -> Pod | None:
        """The pod as it is ``now``; None where it has no gate any more, or does not show yet what was written."""
        pod = now.gated_pods.get((seen.namespace, seen.name))
        if pod is None or pod.uid != seen.uid or pod.deleting:
            return None
        written, at, _ = self._written.get(pod.uid, (None, 0.0, ""))
        return None if pod is written and time.monotonic() - at < LATER else pod

    async def _lift(self, pod: Pod) -> str:
        """Take our gate away, and no other: ``released``, ``overtaken`` by somebody else's write, ``waits`` for a node,
        or the problem.
        """
        gates: Json = {"spec": {"schedulingGates": [{"name": name} for name in pod.gates]}}
        body = [{"op": "test", "path": "/metadata/uid", "value": pod.uid}, *ungate_patch(gates, GATE)]
        try:
            chosen = await self._places.take(pod) if self._zones else []
            if isinstance(chosen, Reason):
                self._waiting[chosen.rule] += 1
                self._crowded.add(pod.uid)
                if pod.uid not in self._told and pod.uid in self._before:
                    await self._say(pod, chosen)
                return "waits"
            body += chosen
            await self._api.patch(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}", body, "json")
        except Unreachable as error:
            return str(error)
        except ApiError as error:
            problem = "" if error.status in _OVERTAKEN else Trouble(pod.key, error)
            if error.status not in _LATER:
                self._written[pod.uid] = pod, time.monotonic(), problem
            return problem or "overtaken"
        self._written[pod.uid] = pod, time.monotonic(), ""
        self._lifted = True
        self.on_release()
        return "released"

    async def _tell(self, pods: deque[tuple[Pod, Reason]]) -> str:
        """Tell ``pods``, taken from the left, what they wait for, for as long as there is time or until the first
        problem, which it gives; then it is not tried again for a while.
        """
        if time.monotonic() < self._silent:
            pods.clear()
            return self._untold
        while pods and time.monotonic() < (self._soonest if self._wake.is_set() else self._end):
            given = self._telling.take(min(AT_ONCE, len(pods)))
            problems = await asyncio.gather(*[self._say(*pods.popleft()) for _ in range(given)])
            if problem := next(filter(None, problems), ""):
                self._unsaid.tell(problem)
                self._silent = time.monotonic() + LATER
                pods.clear()
                return problem
            if given:
                self._unsaid.over()
            else:
                await asyncio.sleep(self._telling.wait(min(AT_ONCE, len(pods))))
        return ""

    async def _say(self, pod: Pod, reason: Reason) -> str:
        """Tell ``pod`` why it waits; the problem, empty where there is none."""
        problem = await tell_waiting(self._api, pod, reason, self._clock())
        if not problem:
            self._told.add(pod.uid)
        return problem


def _since(pod: Pod) -> tuple[str, str, str]:
    """The order of waiting."""
    return pod.created, pod.name, pod.namespace
