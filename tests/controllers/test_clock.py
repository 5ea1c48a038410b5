"""The API server's clock, whatever becomes of our own."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.controllers.memory import Memory
from tests.controllers.playing import until
from webhook.controllers import clock as module
from webhook.controllers.clock import ServerClock
from webhook.telemetry.log import Log

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
NEAR = timedelta(seconds=5)


class Watch:
    """Our own clock, and one that counts, as the test says."""

    def __init__(self) -> None:
        self.api, self.said = Memory(), io.StringIO()
        self.log = Log(self.said)
        self.own, self.counted = NOW, 0.0
        self.clock = ServerClock(self.log, lambda: self.own, lambda: self.counted)

    def server(self, now: datetime) -> None:
        """It is ``now`` for the API server."""
        self.api.behind = datetime.now(UTC) - now

    def look(self) -> datetime:
        asyncio.run(self.clock.look(self.api))  # type: ignore[arg-type]  # the same methods
        return self.clock.now()

    def lines(self) -> list[dict[str, object]]:
        self.log.close()
        return [json.loads(line) for line in self.said.getvalue().splitlines()]


@pytest.mark.parametrize("ahead", [8 * DAY, -8 * DAY, 400 * DAY])
def test_a_clock_that_is_wrong_is_found_out_and_told_once(ahead: timedelta) -> None:
    watch = Watch()
    watch.own = datetime.now(UTC) + ahead
    assert watch.clock.now() == watch.own, "nobody has told another time yet"
    for _ in range(2):
        assert abs(watch.look() - datetime.now(UTC)) < NEAR
    assert abs(watch.clock.ahead - ahead) < NEAR
    watch.own -= ahead
    watch.look()
    levels = [(line["event"], line["level"]) for line in watch.lines()]
    assert levels == [("clock compared", "warning"), ("clock compared", "info")]


def test_a_jump_of_our_own_clock_moves_nothing() -> None:
    watch = Watch()
    watch.server(NOW + timedelta(seconds=0.5))
    before = watch.look()
    for jump in (8 * DAY, -8 * DAY):
        watch.own = NOW + jump
        assert watch.clock.now() == before
    watch.counted += 7
    assert watch.clock.now() == before + timedelta(seconds=7)
    # What is not answered changes nothing.
    watch.api.cut = True
    assert watch.look() == before + timedelta(seconds=7)
    assert abs(watch.clock.ahead + 8 * DAY) < timedelta(seconds=20)


def test_a_jump_of_the_api_servers_clock_is_followed() -> None:
    watch = Watch()
    watch.look()
    for jump in (DAY, -DAY):
        watch.server(NOW + jump)
        assert abs(watch.look() - (NOW + jump)) < NEAR


def test_an_answer_that_takes_long_is_no_difference_of_clocks() -> None:
    class Slow(Memory):
        async def create(self, path: str, obj: dict[str, object], **params: object) -> dict[str, object]:
            made = await super().create(path, obj, **params)
            watch.own += timedelta(seconds=seconds)
            return made

    watch, seconds = Watch(), 50
    watch.api = Slow()
    watch.server(NOW + timedelta(seconds=40))
    assert watch.look() == watch.own == NOW + timedelta(seconds=50)
    watch, seconds = Watch(), 1
    watch.api = Slow()
    watch.server(NOW + timedelta(seconds=90))
    assert timedelta(seconds=85) < watch.look() - watch.own < timedelta(seconds=95)
    assert [line["event"] for line in watch.lines()] == ["clock compared"]


def test_it_is_asked_soon_until_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOON", 0.01)
    asked: list[str] = []

    class Counting(Memory):
        async def create(self, path: str, obj: dict[str, object], **params: object) -> dict[str, object]:
            asked.append(path)
            return await super().create(path, obj, **params)

    async def main(done: Callable[[], bool]) -> None:
        task = asyncio.create_task(watch.clock.run(watch.api))  # type: ignore[arg-type]  # the same methods
        await until(lambda: len(asked) > 3)
        watch.api.cut = False
        await until(done)
        count = len(asked)
        await asyncio.sleep(0.2)
        assert len(asked) == count
        task.cancel()

    watch = Watch()
    watch.own += 8 * DAY
    watch.api = Counting()
    watch.api.cut = True
    asyncio.run(main(lambda: watch.clock.now() < NOW + DAY))
