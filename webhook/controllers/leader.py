"""Leader election on a Lease (coordination.k8s.io/v1).

``kubernetes.aio.leaderelection`` does not give the Lease back when it ends, ends for good at the first connection that
breaks, and writes local time as if it were UTC; hence our own.

A holder is judged by whether its Lease still changes, seen from here by a clock that only counts, never by the times it
wrote: clocks of nodes differ. Whoever cannot renew stops its work before anybody else may take over.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.kube.raw import Json, mapping, text
from webhook.telemetry.log import Log

# Seconds: a Lease that did not change for so long is free; a holder that could not renew for so long stops; and how
# often each looks. The second lets what is under way end before the first is over.
DURATION, DEADLINE, EVERY = 15.0, 10.0, 2.0
# Seconds for one request, and for giving the Lease back.
_ANSWER = 4.0
# What somebody else wrote as a duration counts within reason only.
_LONGEST = 60.0


class Leader:
    """One candidate for the Lease ``name`` in ``namespace``; ``identity`` is its own among all that ever run."""

    def __init__(self, api: Api, namespace: str, name: str, identity: str, log: Log) -> None:
        self._api = api
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._identity = identity
        self._log = log
        self._seen: tuple[str, float] = ("", 0.0)
        self._renewed = 0.0
        self.leading = False
        self.holder = ""
        self.problem = ""

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do ``work`` whenever this candidate holds the Lease; it is cancelled, and waited for, when it no longer does.

        Ends only by cancellation, which gives the Lease back, or by the error that ``work`` raises or when it returns.
        """
        try:
            while True:
                if await self._attempt():
                    await self._lead(work)
                await asyncio.sleep(EVERY * random.uniform(0.8, 1.2))
        finally:
            if self.leading:
                self.leading = False
                await _to_the_end(self._release())

    async def _lead(self, work: Callable[[], Awaitable[None]]) -> None:
        self.leading = True
        self._log.write("info", "leading", lease=self._name, identity=self._identity)
        working = asyncio.ensure_future(work())
        keeping = asyncio.create_task(self._keep())
        try:
            done, _ = await asyncio.wait({working, keeping}, return_when=asyncio.FIRST_COMPLETED)
            if working in done:
                working.result()
                raise RuntimeError("the work of the leader ended")
            keeping.result()
        finally:
            for task in (working, keeping):
                task.cancel()
            await asyncio.gather(working, keeping, return_exceptions=True)
        self.leading = False
        self._log.write("warning", "no longer leading", lease=self._name, holder=self.holder, message=self.problem)

    async def _keep(self) -> None:
        """Renew until somebody else holds the Lease, or may soon."""
        while (left := self._renewed + DEADLINE - time.monotonic()) > EVERY:
            await asyncio.sleep(EVERY)
            if not await self._attempt(min(_ANSWER, left - EVERY)) and self.holder != self._identity:
                return

    async def _attempt(self, within: float = _ANSWER) -> bool:
        """Take or renew the Lease, ``within`` seconds; whether this candidate holds it now."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(within):
                held = await self._take()
            self.problem = ""
        except (ApiError, Unreachable, TimeoutError) as error:
            # Somebody else was faster: nothing is wrong, and the next look shows who.
            conflict = isinstance(error, ApiError) and error.status == 409
            problem = "" if conflict else str(error) or "timed out"
            if problem and not self.problem:
                self._log.write("warning", "lease cannot be had", lease=self._name, message=problem)
            self.problem = problem
            return False
        if held:
            self._renewed = begun
        return held

    async def _take(self) -> bool:
        try:
            lease = await self._api.get(f"{self._collection}/{self._name}")
        except ApiError as error:
            if error.status != 404:
                raise
            await self._api.create(self._collection, self._written({}))
            self.holder = self._identity
            return True
        spec = mapping(lease.get("spec"))
        self.holder = text(spec.get("holderIdentity"))
        version = text(mapping(lease.get("metadata")).get("resourceVersion"))
        if version != self._seen[0]:
            self._seen = version, time.monotonic()
        if self.holder not in ("", self._identity) and time.monotonic() - self._seen[1] < _duration(spec):
            return False
        await self._api.update(f"{self._collection}/{self._name}", self._written(lease))
        self.holder = self._identity
        return True

    async def _release(self) -> None:
        with contextlib.suppress(ApiError, Unreachable, TimeoutError):
            async with asyncio.timeout(_ANSWER):
                lease = await self._api.get(f"{self._collection}/{self._name}")
                spec = mapping(lease.get("spec"))
                if spec.get("holderIdentity") != self._identity:
                    return
                spec = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _now()}
                await self._api.update(f"{self._collection}/{self._name}", {**lease, "spec": spec})
                self._log.write("info", "lease given back", lease=self._name)

    def _written(self, lease: Json) -> Json:
        """``lease`` with this candidate as its holder."""
        before = mapping(lease.get("spec"))
        spec = {**before, "leaseDurationSeconds": int(DURATION), "renewTime": _now()}
        if before.get("holderIdentity") != self._identity:
            changes = before.get("leaseTransitions")
            spec |= {
                "holderIdentity": self._identity,
                "acquireTime": spec["renewTime"],
                "leaseTransitions": (changes if isinstance(changes, int) else 0) + bool(before),
            }
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": mapping(lease.get("metadata")) or {"name": self._name},
            "spec": spec,
        }


async def _to_the_end(coroutine: Coroutine[Any, Any, None]) -> None:
    """Finish ``coroutine``, which takes a limited time, although the task that waits for it is cancelled again."""
    task = asyncio.create_task(coroutine)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)


def _duration(spec: Json) -> float:
    told = spec.get("leaseDurationSeconds")
    return min(max(float(told), 1.0), _LONGEST) if isinstance(told, int) else DURATION


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
