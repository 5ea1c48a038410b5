"""Leader election among candidates that share one API server, kept in memory, which loses answers when told to."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.controllers.memory import Memory
from tests.controllers.playing import until
from webhook.controllers import leader as module
from webhook.controllers.leader import Leader
from webhook.telemetry.log import Log

LEASE = "/apis/coordination.k8s.io/v1/namespaces/guard/leases/allocguard"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rules in less time; what lies between the first two is what a busy machine may take."""
    for name, seconds in (("DURATION", 3.0), ("DEADLINE", 1.0), ("EVERY", 0.1), ("_ANSWER", 0.25)):
        monkeypatch.setattr(module, name, seconds)


class Candidate:
    """One replica; ``working`` is whether its work runs, which has to be ``alone``."""

    alone = True

    def __init__(self, api: Memory, name: str, running: list[str]) -> None:
        self.api, self.name, self._running = api, name, running
        self.said = io.StringIO()
        self.log = Log(self.said)
        self.leader = Leader(api, "guard", "allocguard", name, self.log)  # type: ignore[arg-type]  # the same methods
        self._task: asyncio.Task[None] | None = None

    @property
    def working(self) -> bool:
        return self.name in self._running

    def start(self) -> None:
        self._task = asyncio.create_task(self.leader.run(self._work))

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self.log.close()

    def events(self) -> list[str]:
        self.log.close()
        return [json.loads(line)["event"] for line in self.said.getvalue().splitlines()]

    async def _work(self) -> None:
        assert not self.alone or self._running == [], "two lead at once"
        self._running.append(self.name)
        try:
            await asyncio.Event().wait()
        finally:
            self._running.remove(self.name)


class Group:
    """Candidates at one API server, each with a connection of its own."""

    def __init__(self) -> None:
        self.api = Memory()
        self.running: list[str] = []
        self.all: list[Candidate] = []

    def add(self) -> Candidate:
        candidate = Candidate(self.api.connection(), f"replica-{len(self.all)}", self.running)
        self.all.append(candidate)
        candidate.start()
        return candidate

    async def one(self) -> Candidate:
        """The one that leads, once one does."""
        await until(lambda: bool(self.running))
        return next(each for each in self.all if each.working)

    @property
    def spec(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.objects[LEASE]["spec"]
        return found


@asynccontextmanager
async def group(count: int) -> AsyncIterator[Group]:
    made = Group()
    for _ in range(count):
        made.add()
    try:
        yield made
    finally:
        for each in made.all:
            await each.stop()


def test_one_leads_and_the_next_takes_over_as_soon_as_it_goes() -> None:
    async def main() -> None:
        async with group(3) as some:
            first = await some.one()
            assert some.spec["holderIdentity"] == first.name
            others = [each for each in some.all if each is not first]
            await until(lambda: all(each.leader.holder == first.name for each in others))
            await first.stop()
            assert some.spec["holderIdentity"] in ("", *(each.name for each in others)), "given back"
            second = await some.one()
            assert second is not first
            assert some.spec["leaseTransitions"] >= 1
            assert first.events() == ["leading", "lease given back"]

    asyncio.run(main())


def test_who_cannot_renew_stops_before_another_begins() -> None:
    async def main() -> None:
        async with group(2) as some:
            first = await some.one()
            first.api.cut = True
            await until(lambda: not first.working)
            second = await some.one()  # its work asserts that it is alone
            assert second is not first
            first.api.cut = False
            await until(lambda: first.leader.holder == second.name)
            assert not first.working
            assert "no longer leading" in first.events()

    asyncio.run(main())


def test_a_holder_that_is_gone_is_waited_for_by_our_own_clock() -> None:
    """Whatever times it wrote: its clock may have been years ahead, or behind."""

    async def main() -> None:
        for year in ("1999", "2999"):
            async with group(0) as some:
                spec = {
                    "holderIdentity": "gone",
                    "leaseDurationSeconds": 1,
                    "renewTime": f"{year}-01-01T00:00:00.000000Z",
                }
                some.api.put(LEASE, {"spec": spec})
                begun = asyncio.get_running_loop().time()
                some.add()
                await some.one()
                assert asyncio.get_running_loop().time() - begun > 0.9

    asyncio.run(main())


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None}, {"holderIdentity": 7, "leaseTransitions": "x"}])
def test_a_lease_that_nobody_holds_is_taken_at_once(spec: object) -> None:
    async def main() -> None:
        async with group(0) as some:
            some.api.put(LEASE, {"spec": spec, "metadata": {"labels": {"a": "b"}}})
            candidate = some.add()
            await some.one()
            assert some.spec["holderIdentity"] == candidate.name
            assert some.api.objects[LEASE]["metadata"]["labels"] == {"a": "b"}

    asyncio.run(main())


def test_a_lease_that_vanishes_is_made_again() -> None:
    async def main() -> None:
        async with group(2) as some:
            first = await some.one()
            # Nobody can tell the holder before it looks.
            for each in some.all:
                each.alone = False
            del some.api.objects[LEASE]
            await until(lambda: LEASE in some.api.objects)
            await until(lambda: some.running == [some.spec["holderIdentity"]])
            assert first.leader.problem == ""

    asyncio.run(main())


def test_work_that_fails_gives_the_lease_back() -> None:
    async def main() -> None:
        api = Memory()

        async def work() -> None:
            raise OSError("no")

        log = Log(io.StringIO())
        with pytest.raises(OSError, match="no"):
            await Leader(api, "guard", "allocguard", "me", log).run(work)  # type: ignore[arg-type]  # the same methods
        assert api.objects[LEASE]["spec"]["holderIdentity"] == ""
        log.close()

    asyncio.run(main())


def test_the_lease_is_given_back_although_the_end_is_told_twice() -> None:
    """Whoever ends a loop cancels every task in it, and a group of tasks its members once more."""

    async def main() -> None:
        async with group(1) as some:
            first = await some.one()
            first.api.slow = 0.05
            assert first._task is not None
            first._task.cancel()
            await asyncio.sleep(0.02)
            first._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await first._task
            assert some.spec["holderIdentity"] == ""

    asyncio.run(main())
