"""Events that wait to be written: alike ones are gathered into one that counts them, and no more of them are written
than an API server wants to have, whatever happens how often.

The figures are those of Kubernetes' own components: an object may have 25 events of one source at once, and then one in
five minutes (client-go), a source writes 50 a second, and 100 at once (kubelet), and 4096 are remembered (client-go).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from typing import TypeVar

from msgspec import Struct

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.controllers.events import event, needless, tell_again
from webhook.controllers.pace import Pace
from webhook.controllers.trouble import Once, Trouble
from webhook.facts.times import stamp
from webhook.kube.object_event import NODE, RULE, SINCE
from webhook.kube.raw import Json
from webhook.telemetry.log import Log

# Events of one object at once, and seconds until it may have another; of all objects a second, and at once.
OBJECT_BURST, OBJECT_EVERY, RATE, BURST = 25, 300.0, 50.0, 100
# What waits, and of what is remembered that it was told.
MOST = 4096
# Seconds in which what is alike is gathered after it was told.
GATHER = 30.0
# How often one that cannot be written is tried, seconds until all are tried again after that where none can be, how
# long none must have failed until it is over, and what the last look, when the process ends, may take.
TRIES, PAUSE, CALM, LAST = 4, 5.0, 2 * GATHER, 1.0
# Seconds between two looks, and events that are written at one; the least that is worth waiting for.
LOOK, _AT_ONCE, _LEAST = 0.25, 50, 0.001

# UID, reason, and what tells it apart from others of that reason.
_Key = tuple[str, str, str]

K = TypeVar("K")
V = TypeVar("V")


class Happening(Struct, frozen=True):
    """What is to be told about the object ``about`` (as of :func:`webhook.controllers.events.event`): alike is what has
    the same object, reason and ``mark``. ``rule``, ``node`` and ``related``, another object, are told where given.
    """

    about: Json
    reason: str
    message: str
    at: datetime
    warning: bool = False
    mark: str = ""
    rule: str = ""
    node: str = ""
    related: Json | None = None


class _Waiting(Struct):
    """Alike happenings, not yet told: the latest, when the first was, how many, and when they may be told."""

    last: Happening
    since: datetime
    count: int
    due: float
    tries: int = 0


class EventQueue:
    """``offer`` belongs to any thread, ``run`` to one event loop. ``dropped`` is called, in any of them, with how many
    happenings will never be told; ``clock`` counts seconds.
    """

    def __init__(
        self, api: Api, log: Log, dropped: Callable[[int], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api, self._dropped, self._clock = api, dropped, clock
        self._lock = threading.Lock()
        self._warnings: OrderedDict[_Key, _Waiting] = OrderedDict()
        self._others: OrderedDict[_Key, _Waiting] = OrderedDict()
        self._quiet: OrderedDict[_Key, float] = OrderedDict()
        self._objects: OrderedDict[str, Pace] = OrderedDict()
        self._pace = Pace(RATE, BURST, clock)
        self._unwritten = Once(log, "events not written")
        self._problem, self._failed = "", float("-inf")

    def offer(self, happening: Happening) -> None:
        """Take ``happening``; for want of room the oldest are dropped, warnings last."""
        self._take(_Waiting(happening, happening.at, 1, 0.0))

    async def run(self) -> None:
        """Write what is due, until cancelled; then what there is, as far as it goes at once."""
        try:
            while True:
                await asyncio.sleep(await self.round())
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST):
                    await self._write(list(self._due(float("inf"), MOST)))

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``: events that are not written keep nobody from serving."""
        return [("events", True, f"ok, but {self._problem}" if self._problem else "ok")]

    async def round(self) -> float:
        """Write some of what is due; the seconds until there may be more."""
        due = list(self._due(self._clock()))
        problem, stopped = await self._write(due)
        if problem:
            self._unwritten.tell(problem)
            # What stops all of them is over with the first that is written.
            self._failed = self._failed if stopped else self._clock()
        if problem or (due and self._clock() - self._failed > CALM):
            self._problem = problem
        if not self._problem:
            self._unwritten.over()
        return PAUSE if stopped else 0.0 if len(due) == _AT_ONCE else LOOK

    def _take(self, new: _Waiting) -> None:
        happening = new.last
        key = (happening.about["uid"], happening.reason, happening.mark)
        lost = 0
        with self._lock:
            waiting = self._warnings if happening.warning else self._others
            there = waiting.get(key)
            if there is not None:
                there.count += new.count
                there.since = min(there.since, new.since)
                there.tries = max(there.tries, new.tries)
                if happening.at >= there.last.at:
                    there.last = happening
                return
            if len(self._warnings) + len(self._others) >= MOST:
                _, oldest = (self._others or self._warnings).popitem(last=False)
                lost = oldest.count
            new.due = max(new.due, self._quiet.get(key, 0.0))
            waiting[key] = new
        if lost:
            self._dropped(lost)

    def _due(self, now: float, most: int = _AT_ONCE) -> Iterator[_Key]:
        """What may be told by ``now``, warnings first; ``most`` of it where it is much."""
        with self._lock:
            found = [
                key for waiting in (self._warnings, self._others) for key, each in waiting.items() if each.due <= now
            ]
        return iter(found[:most])

    async def _write(self, keys: list[_Key]) -> tuple[str, bool]:
        """Tell these. The first problem, empty without one, and whether it ended that: a namespace that takes no events
        is in nobody else's way.
        """
        first = ""
        for key in keys:
            with self._lock:
                waiting = self._warnings if key in self._warnings else self._others
                due = waiting.get(key)
                if due is not None and (wait := self._wait(key[0])):
                    due.due = self._clock() + wait
                    due = None
                elif due is not None:
                    del waiting[key]
            if due is None:
                continue
            while not self._pace.take(1):
                await asyncio.sleep(max(self._pace.wait(1), _LEAST))
            problem, stops = await self._told(due)
            first = first or problem
            if stops:
                return first, True
            if not problem:
                with self._lock:
                    _remember(self._quiet, key, self._clock() + GATHER)
        return first, False

    def _wait(self, uid: str) -> float:
        """Seconds until one more event of the object may be written; none, and it counts as written, if it may now."""
        pace = self._objects.get(uid) or Pace(1 / OBJECT_EVERY, OBJECT_BURST, self._clock)
        _remember(self._objects, uid, pace)
        return 0.0 if pace.take(1) else pace.wait(1)

    async def _told(self, due: _Waiting) -> tuple[str, bool]:
        """Write it; what is wrong, empty where nothing is, and whether others would fare the same. It is kept for later
        where that may help.
        """
        try:
            await tell_again(self._api, _event(due))
            return "", False
        except Unreachable as error:
            problem, stops = str(error), True
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT and needless(error):
                return "", False
            problem = Trouble(f"events of {due.last.about['name']}", error)
            stops = error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        except asyncio.CancelledError:
            self._take(due)
            raise
        except Exception as error:  # noqa: BLE001 - a mistake of ours about one must not keep the others
            self._dropped(due.count)
            return f"{type(error).__name__}: {error}", False
        due.tries += 1
        if due.tries < TRIES:
            due.due = self._clock() + GATHER
            self._take(due)
        else:
            self._dropped(due.count)
        return problem, stops


def _event(due: _Waiting) -> Json:
    last = due.last
    made = event(last.about, last.reason, last.message, last.at, "Warning" if last.warning else "Normal", last.mark)
    notes = {RULE: last.rule, NODE: last.node, SINCE: stamp(due.since, "microseconds")}
    made["metadata"]["annotations"] = {key: value for key, value in notes.items() if value}
    made |= {"count": due.count, "firstTimestamp": stamp(due.since)}
    return made if last.related is None else {**made, "related": last.related}


def _remember(held: OrderedDict[K, V], key: K, value: V) -> None:
    """Keep ``value`` as the latest of as many as are remembered."""
    held[key] = value
    held.move_to_end(key)
    if len(held) > MOST:
        held.popitem(last=False)
