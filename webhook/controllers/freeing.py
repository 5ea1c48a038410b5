"""Frees claims that a failed attempt of a 1.36 scheduler left allocated, so that they are allocated and counted anew.

It runs as a process and under a ServiceAccount of its own: to take an allocation away one has to be allowed to
allocate, which the guard is not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Protocol

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.controllers.events import about_claim, about_pod, event, tell
from webhook.facts.stranded import stranded
from webhook.kube.claims import Claim, read_claim
from webhook.kube.core import Pod
from webhook.kube.raw import Json, mapping, text
from webhook.kube.snapshot import Snapshot
from webhook.telemetry.log import Log

# Seconds that a claim has to be left so before it is freed, and between two looks.
LEFT, LOOK = 30.0, 5.0
REASON = "AllocationFreed"
# What is no trouble: the claim was changed, or is gone, since it was looked at.
_OVERTAKEN = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY})


class World(Protocol):
    """The live view."""

    @property
    def snapshot(self) -> Snapshot:
        """What is known at this moment."""

    @property
    def synced(self) -> bool:
        """Whether everything was seen once."""


class Freeing:
    """The controller. How long a claim is left is counted here, from when it was first seen so."""

    def __init__(self, api: Api, cluster: World, log: Log, clock: Callable[[], datetime]) -> None:
        self._api = api
        self._cluster = cluster
        self._log = log
        self._clock = clock
        self._since: dict[tuple[str, str], float] = {}
        self._problem = ""

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            if self._cluster.synced:
                problem = await self.look(time.monotonic())
                if problem and problem != self._problem:
                    self._log.write("warning", "claims not freed", message=problem)
                self._problem = problem
            await asyncio.sleep(LOOK)

    async def look(self, at: float) -> str:
        """Free what has been left for long enough at ``at`` (monotonic); the first problem, empty without one."""
        problem = ""
        waiting: dict[tuple[str, str], float] = {}
        for claim, pod in stranded(self._cluster.snapshot):
            name = (claim.id, claim.allocation.identity if claim.allocation is not None else "")
            waiting[name] = self._since.get(name, at)
            if at - waiting[name] < LEFT:
                continue
            try:
                if await self._free(claim):
                    self._log.write("info", "claim freed", namespace=claim.namespace, name=claim.name, pod=pod.name)
                    await self._tell(claim, pod)
            except (ApiError, Unreachable) as error:
                problem = problem or f"{claim.key}: {error}"
        self._since = waiting
        return problem

    async def _free(self, seen: Claim) -> bool:
        """Take the allocation away, if the claim is still what was ``seen``; whether that was done."""
        path = f"/apis/resource.k8s.io/v1/namespaces/{seen.namespace}/resourceclaims/{seen.name}"
        try:
            there = await self._api.get(path)
            claim = read_claim(there)
            if claim.uid != seen.uid or claim.reserved_for or claim.allocation is None:
                return False
            if seen.allocation is None or claim.allocation.identity != seen.allocation.identity:
                return False
            await self._api.patch(f"{path}/status", _patch(there), "json")
        except ApiError as error:
            if error.status in _OVERTAKEN and "resourceclaims/binding" not in error.message:
                return False
            raise
        return True

    async def _tell(self, claim: Claim, pod: Pod) -> None:
        """Events about the claim and the pod that waits for it."""
        message = (
            f"claim {claim.name} was left allocated by an attempt that failed; its allocation is taken away, so that "
            f"it is allocated anew and counted with pod {pod.name}"
        )
        for involved in (
            about_claim(claim.namespace, claim.name, claim.uid),
            about_pod(pod.namespace, pod.name, pod.uid),
        ):
            await tell(self._api, event(involved, REASON, message, self._clock()))


def _patch(there: Json) -> list[Json]:
    """Allocation and what drivers said about it, taken away from the very version that is ``there``."""
    metadata = mapping(there.get("metadata"))
    status = mapping(there.get("status"))
    return [
        {"op": "test", "path": "/metadata/uid", "value": text(metadata.get("uid"))},
        {"op": "test", "path": "/metadata/resourceVersion", "value": text(metadata.get("resourceVersion"))},
        *({"op": "remove", "path": f"/status/{part}"} for part in ("allocation", "devices") if part in status),
    ]
