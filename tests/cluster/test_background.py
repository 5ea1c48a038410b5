from __future__ import annotations

import asyncio
import threading

import pytest

from webhook.cluster.background import Background


def test_coroutines_run_in_one_other_thread_until_it_is_stopped() -> None:
    told: list[str] = []

    async def name() -> str:
        return threading.current_thread().name

    async def forever() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            told.append("cleaned up")

    async def last() -> None:
        told.append("last")

    background = Background()
    assert background.submit(name()).result(5) == "background"
    waiting = background.submit(forever())
    background.submit(asyncio.sleep(0)).result(5)
    background.stop(last())
    assert told == ["cleaned up", "last"]
    assert waiting.cancelled()
    background.stop()
    assert "background" not in [thread.name for thread in threading.enumerate()]


def test_what_a_coroutine_raises_is_in_its_future() -> None:
    async def broken() -> None:
        raise KeyError("x")

    background = Background()
    with pytest.raises(KeyError):
        background.submit(broken()).result(5)
    background.stop()
