"""Keeps a DeviceTaintRule for every device that new claims would be refused: the scheduler then takes others, or lets
the pod wait without a write. Runs where the leader is.

Only where the API server has the rules and heeds them; without, the refusal and the gates do what they can.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.cluster.kinds import Kind
from webhook.cluster.reflector import Key, Reflector
from webhook.controllers.pace import Pace
from webhook.controllers.stopped_pools import Cluster, StoppedPools
from webhook.controllers.trouble import Once, Trouble
from webhook.facts.taints import TaintWanted, wanted_taints
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.taint_rule import (
    API_GROUP,
    GATE,
    KIND,
    PLURAL,
    REASON,
    VERSIONS,
    ours,
    put_right,
    rule_name,
    taint_rule,
)
from webhook.telemetry.log import Log

# Seconds: in which events are gathered, between two searches for the API, between two writes of one rule whose text
# changes, and at most between two tries while writes fail.
GATHER, SEARCH, AGAIN, LONGEST = 0.1, 30.0, 1.0, 30.0
# Rules written at once, and of each sort in one round, which takes half a second then: pods are not let go on in one
# crowd.
_AT_ONCE, _ROUND, _PACE = 8, 50, 0.5
# Edits and deletions that are put right at once; of more, one a second.
_REPAIRS = 10
_WITHOUT = "what is held is refused and gated only"
# Made, edited or deleted meanwhile: the watch shows it in a moment.
_OVERTAKEN = frozenset({HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND})


class Taints:
    """The controller. ``checks`` is for any thread, the rest belongs to the event loop of ``api``.

    Whoever chooses zones says with :meth:`want` which devices are in full ones, and waits until each :meth:`stands`.
    """

    def __init__(self, api: Api, cluster: Cluster, log: Log, clock: Callable[[], datetime]) -> None:
        self._api = api
        self._cluster = cluster
        self._log = log
        self._clock = clock
        self._full: Sequence[TaintWanted] = ()
        self._unwritten = Once(log, "device taints not written")
        self._problem = ""
        self._begin()
        self._running = False

    def _begin(self) -> None:
        # All rules there are, also those of others; what was last written or found right of ours, and when written.
        self._rules: dict[str, Json] = {}
        self._right: dict[str, tuple[TaintWanted, Json]] = {}
        self._written: dict[str, float] = {}
        self._repairs = Pace(1.0, _REPAIRS)
        self._heard_of = 0
        self._listed, self._served = False, True
        self._absent = f"{PLURAL} were not listed yet"
        self._wake = asyncio.Event()
        self._pools = StoppedPools(self._cluster, self._clock, self._wake.set)

    @property
    def possible(self) -> bool:
        """Whether a rule that is written is heeded, as far as can be seen."""
        return self._running and self._listed and not self._off and not self._problem

    def want(self, full: Sequence[TaintWanted]) -> None:
        """Have these devices tainted beside what is stopped, and no others of those wanted before."""
        if tuple(full) != tuple(self._full):
            self._full = full
            self._wake.set()

    def stands(self, wanted: TaintWanted) -> bool:
        """Whether the API server has the rule, or a wider one."""
        return wanted.name in self._rules or self._tainted((wanted.driver, wanted.pool))

    def _tainted(self, pool: Key) -> bool:
        """Whether the API server has a rule for all of the pool (driver, name)."""
        return rule_name(*pool) in self._rules or rule_name(pool[0]) in self._rules

    async def run(self) -> None:
        """Keep them until cancelled. They stay when this replica leads no more: the next one goes on with them."""
        self._running = True
        try:
            while True:
                self._begin()
                version = await self._version()
                if version:
                    await self._follow(Kind(KIND, API_GROUP, version, PLURAL, optional=True))
                await asyncio.sleep(SEARCH * random.uniform(0.8, 1.0))
        finally:
            self._running = False

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``: a taint that cannot be made keeps nobody from serving."""
        return [("device taints", True, self._told())]

    def _told(self) -> str:
        if not self._running:
            return "ok, made by the leader"
        if not self._listed:
            return f"ok, {self._absent}: {_WITHOUT}"
        if self._off:
            return f"ok, {GATE} is off: {_WITHOUT}"
        if self._problem:
            return f"ok, but {self._problem}"
        count = sum(map(ours, list(self._rules.values())))
        return f"ok, {count} rule{'' if count == 1 else 's'}"

    @property
    def _off(self) -> bool:
        """Whether the API server is known to have the rules and not to heed them."""
        return self._cluster.snapshot.release.gates.get(GATE) is False

    async def _version(self) -> str:
        """In which version the API server has the rules; empty where it has none."""
        try:
            for version in VERSIONS:
                try:
                    served = await self._api.get(f"/apis/{API_GROUP}/{version}")
                except ApiError as error:
                    if error.status != HTTPStatus.NOT_FOUND:
                        raise
                    continue
                if any(each.get("name") == PLURAL for each in members(served.get("resources"))):
                    return version
            self._absent = f"the API server has no {PLURAL}"
        except (ApiError, Unreachable) as error:
            self._absent = f"the API server does not tell whether it has {PLURAL}: {error}"
        return ""

    async def _follow(self, kind: Kind) -> None:
        """Keep the rules as long as the API server has the ``kind``."""
        self._cluster.on_change.append(self._pools.hear)
        reflector = asyncio.create_task(Reflector(self._api, kind, self).run())
        try:
            await self._keep(kind)
        finally:
            self._cluster.on_change.remove(self._pools.hear)
            reflector.cancel()
            await asyncio.gather(reflector, return_exceptions=True)

    async def _keep(self, kind: Kind) -> None:
        pause = 0.0
        while self._served:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pools.idle()):
                    await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(GATHER + pause)
            await self._pools.look()
            if not self._listed:
                continue
            problem, more = await self._round(kind)
            if problem:
                self._unwritten.tell(problem)
            else:
                self._unwritten.over()
            self._problem = problem
            pause = min(max(pause * 2, 1.0), LONGEST) * random.uniform(0.8, 1.2) if problem else _PACE if more else 0.0
            if more:
                self._wake.set()

    def _wanted(self) -> tuple[TaintWanted, ...]:
        if self._off:
            return ()
        stopped = self._pools.standing(self._tainted)
        return wanted_taints(self._cluster.snapshot, stopped, self._clock(), self._full)

    async def _round(self, kind: Kind) -> tuple[str, bool]:
        """Write what is not as it should be; the first problem (empty where there is none), and whether more is left.

        What is for a whole driver comes first, since it stands for rules that go; then what goes, so that nothing waits
        for longer than it has to; then the rest.
        """
        wanted = {each.name: each for each in self._wanted()}
        self._right = {name: held for name, held in self._right.items() if name in wanted}
        self._written = {name: at for name, at in self._written.items() if name in wanted}
        due = [(each, target) for each in wanted.values() if (target := self._due(kind, each)) is not None]
        # What is not known at present stays as it was.
        gone = [] if self._pools.unknown else [r for name, r in self._rules.items() if name not in wanted and ours(r)]
        whole, single = [pair for pair in due if not pair[0].pool], [pair for pair in due if pair[0].pool]
        problem = await self._all(self._write(kind, *pair) for pair in whole[:_ROUND])
        problem = await self._all(self._remove(kind, each) for each in gone[:_ROUND]) or problem
        problem = await self._all(self._write(kind, *pair) for pair in single[:_ROUND]) or problem
        return problem, max(len(whole), len(gone), len(single)) > _ROUND

    def _due(self, kind: Kind, wanted: TaintWanted) -> Json | None:
        """The rule as it is to be written now, None where it is right or was written just now. Who edits or deletes it
        again and again is answered at a bounded rate.
        """
        name, stored = wanted.name, self._rules.get(wanted.name)
        before, right = self._right.get(name, (None, None))
        if stored is not None and before == wanted and right is stored:
            return None
        made = taint_rule(kind.version, wanted.driver, wanted.pool, wanted.device, wanted.reason.rule, wanted.text)
        target = made if stored is None else put_right(stored, made)
        if stored is not None and target == stored:
            self._right[name] = wanted, stored
            return None
        if before == wanted:
            return target if self._repairs.take(1) else None
        return target if stored is None or time.monotonic() - self._written.get(name, -AGAIN) >= AGAIN else None

    async def _all(self, writes: Iterable[Coroutine[Any, Any, None]]) -> str:
        """Do all of ``writes``, some at once; the first problem."""
        problems: list[str] = []
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(write: Coroutine[Any, Any, None]) -> None:
            async with places:
                try:
                    await write
                except Unreachable as error:
                    problems.append(f"a rule cannot be written: {error}")
                except ApiError as error:
                    if error.status not in _OVERTAKEN:
                        problems.append(Trouble("a rule cannot be written", error))

        async with asyncio.TaskGroup() as group:
            for write in writes:
                group.create_task(one(write))
        return problems[0] if problems else ""

    async def _write(self, kind: Kind, wanted: TaintWanted, target: Json) -> None:
        name, told = wanted.name, self._heard_of
        there = name in self._rules
        if there:
            # With the resourceVersion of what was seen: an edit that was not seen yet is not written over.
            written = await self._api.update(f"{kind.path}/{name}", target)
        else:
            written = await self._api.create(kind.path, target)
        self._written[name] = time.monotonic()
        self._right[name] = wanted, written
        if self._heard_of == told:
            # What was told meanwhile is newer than the answer: somebody may have edited or deleted it since.
            self._rules[name] = written
        self._say("device taint put right" if there else "device taint made", target)

    async def _remove(self, kind: Kind, rule: Json) -> None:
        metadata = mapping(rule.get("metadata"))
        name = text(metadata.get("name"))
        await self._api.delete(f"{kind.path}/{name}", {"preconditions": {"uid": text(metadata.get("uid"))}})
        self._rules.pop(name, None)
        self._say("device taint removed", rule)

    def _say(self, event: str, rule: Json) -> None:
        selector = mapping(mapping(rule.get("spec")).get("deviceSelector"))
        where = {name: text(selector.get(name)) for name in ("driver", "pool", "device") if name in selector}
        metadata = mapping(rule.get("metadata"))
        why = text(mapping(metadata.get("annotations")).get(REASON))
        self._log.write("info", event, name=text(metadata.get("name")), **where, message=why)

    def put(self, kind: Kind, obj: Json) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        self._rules[text(mapping(obj.get("metadata")).get("name"))] = obj
        self._told_of()

    def drop(self, kind: Kind, key: Key, version: str = "") -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        self._rules.pop(key[1], None)
        self._told_of()

    def _told_of(self) -> None:
        self._heard_of += 1
        self._wake.set()

    def stale(self, kind: Kind) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""

    def keys(self, kind: Kind) -> set[Key]:
        """See :class:`webhook.cluster.reflector.Sink`."""
        return {("", name) for name in self._rules}

    def current(self, kind: Kind, listed: bool) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        if listed:
            self._listed = True
            self._wake.set()

    def failed(self, kind: Kind, error: ApiError | Unreachable) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        before, self._absent = self._absent, f"{kind.plural} cannot be listed: {error}"
        if isinstance(error, ApiError) and error.status == HTTPStatus.NOT_FOUND:
            # They may be there in another version.
            self.unknown(kind, self._absent)
        elif isinstance(error, ApiError) and self._absent != before:
            self._log.write("warning", "device taints not written", message=self._absent)

    def unknown(self, kind: Kind, detail: str) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        self._absent, self._served = detail, False
        self._wake.set()
