"""Replicas that run in one event loop, and waiting for what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Protocol

from webhook.telemetry.log import Log


class Replica(Protocol):
    """What runs until it is cancelled; :meth:`begun` returns once it does what it is for."""

    log: Log

    def run(self) -> Coroutine[None, None, None]: ...

    async def begun(self) -> None: ...


@asynccontextmanager
async def running(*replicas: Replica, ready: bool = True) -> AsyncIterator[None]:
    """Run them meanwhile, from the moment on at which all have begun unless not ``ready``; their logs end with it."""
    tasks = [asyncio.create_task(each.run()) for each in replicas]
    try:
        if ready:
            async with asyncio.timeout(20):
                for each in replicas:
                    await each.begun()
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for each in replicas:
            each.log.close()


async def until(true: Callable[[], object], within: float = 20) -> None:
    """Return once ``true()`` is; raises TimeoutError."""
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.005)
