"""The API server's clock. By it certificates are found expired or not yet valid, and everything else that has a time in
the cluster was made or is to end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.facts.times import instant
from webhook.kube.raw import mapping, text
from webhook.telemetry.log import Level, Log

_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
# Seconds between two looks, and until there has been one.
EVERY, SOON = 30.0, 1.0
# A clock that differs by more is told.
SKEW = timedelta(seconds=30)


class ServerClock:
    """The API server's clock as it was told last, and how long ago that is by ``count`` (seconds), which no jump of
    ``own`` moves; ``own`` until it was told. ``look`` and ``run`` belong to one event loop, the rest to any thread.
    """

    def __init__(self, log: Log, own: Callable[[], datetime], count: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._own = own
        self._count = count
        self._told: tuple[datetime, float] | None = None
        self._differs = False

    def now(self) -> datetime:
        """The moment it is for the API server."""
        if self._told is None:
            return self._own()
        moment, at = self._told
        return moment + timedelta(seconds=self._count() - at)

    @property
    def ahead(self) -> timedelta:
        """How far our own clock is ahead of it."""
        return self._own() - self.now()

    async def look(self, api: Api) -> None:
        """Ask for it; what cannot be asked leaves it as it was."""
        begun = self.now()
        told = await server_time(api)
        if told is None:
            return
        # The server tells whole seconds, and looked at its clock at some moment between question and answer.
        ended, at = self.now(), self._count()
        least, most = told - ended, told + timedelta(seconds=1) - begun
        wrong = timedelta() if least <= timedelta() <= most else min(least, most, key=abs)
        self._told = ended + wrong, at
        ahead = self.ahead
        if (abs(ahead) > SKEW) != self._differs:
            self._differs = not self._differs
            level: Level = "warning" if self._differs else "info"
            self._log.write(level, "clock compared", behind=-round(ahead.total_seconds()))

    async def run(self, api: Api) -> None:
        """Look now and then, until cancelled."""
        while True:
            await self.look(api)
            await asyncio.sleep(SOON if self._told is None else EVERY)


async def server_time(api: Api) -> datetime | None:
    """What the API server takes for now, in whole seconds; None where it does not say, or is not reached.

    A SelfSubjectReview is free to everybody, changes nothing, and is stamped with its time.
    """
    try:
        made = await api.create(_PATH, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    except (ApiError, Unreachable):
        return None
    return instant(text(mapping(made.get("metadata")).get("creationTimestamp")))
