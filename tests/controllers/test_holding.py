from __future__ import annotations

import asyncio

import pytest

from tests.controllers.memory import Memory
from tests.controllers.playing import until
from webhook.controllers import holding
from webhook.controllers.holding import Holding


def test_pods_are_held_only_while_somebody_may_and_can_let_them_go() -> None:
    async def main() -> None:
        api, led = Memory(), [True]
        held = Holding(api, lambda: led[0])  # type: ignore[arg-type]  # the same methods
        assert (held.may_hold(), held.checks()) == (
            False,
            [("holding pods", True, "ok, none is held: not asked yet")],
        )
        assert await held.ask() == ""
        assert (held.may_hold(), held.checks()) == (True, [("holding pods", True, "ok")])
        led[0] = False
        assert (held.may_hold(), held.checks()[0][2]) == (False, "ok, none is held: nobody leads")
        led[0], api.allowed = True, False
        assert await held.ask() == ""
        assert (held.may_hold(), held.checks()[0][2]) == (False, "ok, none is held: this account may not patch pods")

    asyncio.run(main())


def test_what_was_known_holds_on_while_nobody_answers() -> None:
    async def main() -> None:
        api = Memory()
        held = Holding(api, lambda: True)  # type: ignore[arg-type]  # the same methods
        await held.ask()
        api.cut = True
        assert await held.ask() == "connection refused"
        assert held.may_hold()

    asyncio.run(main())


def test_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "EVERY", 0.01)
    monkeypatch.setattr(holding, "SOON", 0.01)

    async def main() -> None:
        api = Memory()
        api.fail = 3
        held = Holding(api, lambda: True)  # type: ignore[arg-type]  # the same methods
        task = asyncio.create_task(held.run())
        await until(held.may_hold)
        api.allowed = False
        await until(lambda: not held.may_hold())
        task.cancel()

    asyncio.run(main())
