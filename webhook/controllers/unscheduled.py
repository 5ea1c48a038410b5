"""Tells pods that no gate keeps back why they wait all the same, where everything that their claims could have is
stopped: by the scheduler they hear only that it cannot allocate. Runs where the leader is.

Nothing is remembered that has to outlive the process: an event that was written before is refused as being there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from webhook.cluster.api import Api
from webhook.controllers.events import tell_waiting
from webhook.controllers.gates import AT_ONCE
from webhook.controllers.trouble import Once
from webhook.facts.pool_survey import Reason
from webhook.facts.waiting import Waiting
from webhook.kube.core import Pod
from webhook.kube.snapshot import Snapshot
from webhook.telemetry.log import Log

# Seconds between two looks, and until pods are told again after that has failed; how often as long as a look has taken
# there is none; and how many pods are told at one look.
LOOK, LATER, SHARE, MOST = 2.0, 30.0, 10, 50


class Cluster(Protocol):
    """What is read of the live view."""

    @property
    def snapshot(self) -> Snapshot:
        """The objects."""


class Unscheduled:
    """The controller. ``stops`` tells whether anything keeps what is stopped from being allocated: without, no pod
    waits for it.
    """

    def __init__(
        self, api: Api, cluster: Cluster, stops: Callable[[], bool], log: Log, clock: Callable[[], datetime]
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._stops = stops
        self._unsaid = Once(log, "pods not told what they wait for")
        self._clock = clock
        self._problem = ""
        self._begin()

    def _begin(self) -> None:
        # By UID the rule for which each pod waited at the last look, and by UID and rule who has been told.
        self._waiting: dict[str, str] = {}
        self._told: set[tuple[str, str]] = set()
        self._pause = LOOK

    async def run(self) -> None:
        """Tell whoever waits, until cancelled."""
        self._begin()
        while True:
            problem = await self.look()
            if problem:
                self._unsaid.tell(problem)
            self._problem = problem
            await asyncio.sleep(LATER if problem else self._pause)

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``: a pod that is not told keeps nobody from serving."""
        counts = sorted(Counter(list(self._waiting.values())).items())
        said = [
            f"ok, but {self._problem}" if self._problem else "ok",
            *(f"{count} wait: {rule}" for rule, count in counts),
        ]
        return [("unscheduled pods", True, "; ".join(said))]

    async def look(self) -> str:
        """Tell those that wait for the same as at the look before, the oldest first; the first problem."""
        begun, snapshot = time.monotonic(), self._cluster.snapshot
        found = await self._held(snapshot) if self._stops() else []
        self._pause = max(LOOK, SHARE * (time.monotonic() - begun))
        before, self._waiting = self._waiting, {pod.uid: reason.rule for pod, reason in found}
        self._told = {each for each in self._told if each[0] in snapshot.pods_by_uid}
        new = [
            (pod, reason)
            for pod, reason in found
            if before.get(pod.uid) == reason.rule and (pod.uid, reason.rule) not in self._told
        ]
        for start in range(0, min(len(new), MOST), AT_ONCE):
            batch = new[start : min(start + AT_ONCE, MOST)]
            problems = await asyncio.gather(*(self._say(pod, reason) for pod, reason in batch))
            if problem := next(filter(None, problems), ""):
                return problem
        if new:
            self._unsaid.over()
        return ""

    async def _held(self, snapshot: Snapshot) -> list[tuple[Pod, Reason]]:
        """The pods that wait for what is stopped, in the order in which they were made."""
        waits = Waiting(snapshot, self._clock())
        found: list[tuple[Pod, Reason]] = []
        drivers = {*snapshot.rollouts, *snapshot.driver_slices, *(driver for driver, _ in snapshot.pool_claims)}
        if not any(map(waits.driver, drivers)):
            # To see what each pod needs takes far longer.
            return found
        for number, pod in enumerate(snapshot.unscheduled_pods.values(), 1):
            if not pod.deleting and (reason := waits.pod(pod)) is not None:
                found.append((pod, reason))
            if number % 256 == 0:
                await asyncio.sleep(0)
        return sorted(found, key=lambda each: (each[0].created, each[0].key))

    async def _say(self, pod: Pod, reason: Reason) -> str:
        """Tell ``pod`` why it waits; the problem, empty where there is none."""
        problem = await tell_waiting(self._api, pod, reason, self._clock())
        if not problem:
            self._told.add((pod.uid, reason.rule))
        return problem
