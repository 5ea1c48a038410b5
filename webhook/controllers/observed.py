"""Tells all replicas what the reviews that came to one of them showed of drivers: costs that the API server dropped, as
an event, and refusals that a promotion asks about, as counts in the status of the DriverRollout. Runs on each of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Protocol

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.controllers.events import event, tell
from webhook.controllers.rollout_status import PATH, Carried
from webhook.kube.raw import Json, integer, mapping, text
from webhook.kube.release import NODE_ALLOCATABLE
from webhook.kube.rollout import API_VERSION, DriverRollout
from webhook.kube.snapshot import Snapshot
from webhook.telemetry.log import Log

# Seconds between two looks.
EVERY = 5.0
DROPPED = "MappingsDropped"

# Of one driver: charges refused as a second one, and allocations that did not fit a zone.
Refusals = tuple[int, int]


class World(Protocol):
    """The live view."""

    @property
    def snapshot(self) -> Snapshot:
        """What is known at this moment."""

    def stored(self, costs: bool) -> None:
        """Take in whether the API server stores what devices cost."""


class Observed:
    """The controller. ``dropped`` gives, once, a slice by driver that was stored without its costs, ``carried`` what
    the newest slice shows that tells; ``refusals`` counts by driver since this replica began.
    """

    def __init__(self, api: Api, cluster: World, log: Log, clock: Callable[[], datetime]) -> None:
        self._api = api
        self._cluster = cluster
        self._log = log
        self._clock = clock
        self._untold: dict[str, str] = {}
        self._written: dict[str, Refusals] = {}
        # By driver the DriverRollout, by UID, and the refusals of the last look.
        self._seen: dict[str, tuple[str, Refusals]] = {}
        self._problem = ""
        self.carried: Carried = lambda: (None, "")
        self.dropped: Callable[[Snapshot], Mapping[str, str]] = lambda _: {}
        self.refusals: Callable[[], Mapping[str, Refusals]] = dict

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            problem = await self.look()
            if problem and problem != self._problem:
                self._log.write("warning", "what was observed is not told", message=problem)
            self._problem = problem
            await asyncio.sleep(EVERY)

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``: what is not told to others keeps nobody from serving."""
        return [("observed", True, f"ok, but {self._problem}" if self._problem else "ok")]

    async def look(self) -> str:
        """Tell what is new; the first problem, empty without one. What could not be told is told later."""
        problem = ""
        # In this order: what is refused of a DriverRollout that is made in between is its.
        refusals, snapshot = self.refusals(), self._cluster.snapshot
        self._untold.update(self.dropped(snapshot))
        kept, _ = self.carried()
        if kept is not None:
            self._cluster.stored(kept)
        for driver, name in list(self._untold.items()):
            try:
                await self._tell(driver, name, snapshot)
                del self._untold[driver]
            except (ApiError, Unreachable) as error:
                problem = problem or f"{driver}: {error}"
        for driver, counted in refusals.items():
            rollout = snapshot.rollouts.get(driver)
            uid = "" if rollout is None else rollout.uid
            known, last = self._seen.get(driver, (uid, (0, 0)))
            if uid != known:
                # What was refused before a DriverRollout was made is none of its.
                self._written[driver] = last
            self._seen[driver] = uid, counted
            before = self._written.get(driver, (0, 0))
            if rollout is None or counted == before:
                continue
            try:
                if await self._count(rollout, counted[0] - before[0], counted[1] - before[1]):
                    self._written[driver] = counted
            except (ApiError, Unreachable) as error:
                problem = problem or f"{driver}: {error}"
        return problem

    async def _tell(self, driver: str, name: str, snapshot: Snapshot) -> None:
        """The event about the DriverRollout, or the slice where there is none; once as long as it is kept."""
        rollout, stored = snapshot.rollouts.get(driver), snapshot.slices.get(name)
        if rollout is not None:
            about: Json = {"apiVersion": API_VERSION, "kind": "DriverRollout", "name": driver, "uid": rollout.uid}
        elif stored is not None:
            about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "name": name, "uid": stored.uid}
        else:
            return
        message = (
            f"slice {name} is stored without the costs that {driver} sent: {NODE_ALLOCATABLE} is off in the API "
            "server, its devices book nothing; turn the gate on in API server, scheduler and kubelets, then let the "
            "driver publish again"
        )
        try:
            await tell(self._api, event(about, DROPPED, message, self._clock(), "Warning", once=True))
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise

    async def _count(self, rollout: DriverRollout, duplicates: int, failures: int) -> bool:
        """Add to what is counted for the present stage; False when that is to be tried again."""
        path = f"{PATH}/{rollout.driver}"
        try:
            obj = await self._api.get(path)
            status, metadata = mapping(obj.get("status")), mapping(obj.get("metadata"))
            if not status.get("observedSince") or metadata.get("uid") != rollout.uid:
                # The leader begins to count for a stage; and the view soon shows what has another one's name.
                return False
            made = {
                "duplicates": integer(status.get("duplicates")) + duplicates,
                "zoneFailures": integer(status.get("zoneFailures")) + failures,
            }
            version = {"resourceVersion": text(metadata.get("resourceVersion"))}
            await self._api.patch(f"{path}/status", {"metadata": version, "status": made}, "merge")
        except ApiError as error:
            if error.status in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                return False
            raise
        return True
