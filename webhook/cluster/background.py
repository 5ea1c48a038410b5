"""A thread with an event loop of its own, for what must not hold up decisions."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class Background:
    """Runs coroutines in one thread, from the first ``submit`` to ``stop``."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="background", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin ``coroutine``; the future has what becomes of it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self, last: Coroutine[Any, Any, object] | None = None, seconds: float = 5.0) -> None:
        """Cancel everything that runs, then run ``last``; wait at most ``seconds``; end the thread. Once."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(TimeoutError):
            self.submit(_end(last)).result(seconds)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(seconds)
        if not self._thread.is_alive():
            self._loop.close()


async def _end(last: Coroutine[Any, Any, object] | None) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if last is not None:
        await last
