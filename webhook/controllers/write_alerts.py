"""Alerts about refused writes of claim status: a line of the log, a count, and an event about the claim.

Audit events come from anybody who reaches the port, or from a file that somebody else writes, to any replica, repeated
and in any order. What is kept of them, told, and written to the cluster is bounded, whatever comes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

import orjson
from msgspec import Struct

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.controllers.events import about_claim, needless, tell
from webhook.controllers.events import event as made_event
from webhook.controllers.trouble import Once, Trouble
from webhook.facts.times import duration, instant
from webhook.facts.write_failure_advice import POLICY, explained, retry
from webhook.facts.write_failure_causes import refusals
from webhook.facts.write_failures import LASTING, OWN, PASSING, Failure, failures, known_claim
from webhook.facts.writers import CONTROLLERS, SCHEDULER, WriterParams, account_of
from webhook.kube.audit import AuditEvent, names_claim_status, read_event
from webhook.kube.raw import Json
from webhook.kube.rollout import KUBELET
from webhook.kube.snapshot import Snapshot
from webhook.kube.trace import trace_id
from webhook.store.policies import PolicyStore
from webhook.telemetry.log import Log

REASON = "StatusWriteFailed"

# What may wait to be looked at, and how much of it, before more is turned away until later.
MOST_WAITING, MOST_BYTES = 20_000, 32 * 1024 * 1024
# Writers of claims, and events, that are remembered; the oldest are forgotten.
MOST_KNOWN, MOST_SEEN = 8192, 16_384
# Events about claims that wait to be written; each tells again what the log has.
MOST_EVENTS = 2048
# Of the labels of one metric: users that the guard does not know from elsewhere.
MOST_LABELS = 64

# Told again where it goes on, and not looked at any more once as old.
AGAIN = timedelta(hours=1)
# How often roles are looked at again for the same writer, claim and refusal.
_STALE = timedelta(seconds=30)
# What passes by itself is told when it happened so often within this time, and no write went well meanwhile.
OFTEN, WITHIN = 5, timedelta(minutes=10)
# Refusals that are explained and told in a row, and then in a second.
BURST, RATE = 200, 10

# Seconds until an event is looked at: the claim, and the role that was just bound, are seen by then.
SETTLE = 1.0
# Seconds: between looks at what waits, and a pause for whom the interpreter has something better to do for.
_LOOK, _PAUSE = 0.1, 0.002
_AT_ONCE = 10
# Of a message in the log.
_LONGEST = 4096


class _Told(Struct):
    """One cause: how often it was met since it was last told, or since ``since``."""

    since: datetime
    count: int = 0
    told: datetime | None = None


class _Known(Struct):
    """One writer of one claim: what its refusals, as the API server words them, came to and when, and its causes."""

    explained: dict[int, tuple[tuple[str, ...], datetime]] = {}
    causes: dict[str, _Told] = {}


class WriteAlerts:
    """Looks at audit events, and alerts about the refused writes among them: once for each cause, claim and writer, and
    again after an hour where it goes on.

    ``snapshot`` gives what is known of the cluster, ``params`` what policies say of writers, ``now`` the API server's
    clock. Without ``api`` no events are written. ``on_failure`` is called with writer and cause of each failure, both
    as labels, and the trace of the claim, empty where that is not known; ``on_events`` with what became of audit
    events, and of how many. ``offer`` and ``checks`` belong to any thread, ``run`` to one event loop.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        params: Callable[[], WriterParams],
        log: Log,
        now: Callable[[], datetime],
        api: Api | None = None,
    ) -> None:
        self._snapshot, self._params, self._log, self._now, self._api = snapshot, params, log, now, api
        self.on_failure: Callable[[str, str, str], object] = lambda writer, cause, trace: None
        self.on_events: Callable[[str, int], object] = lambda outcome, count: None
        self._lock = threading.Lock()
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._known: OrderedDict[tuple[str, ...], _Known] = OrderedDict()
        self._users: set[str] = set()
        self._events: deque[Json] = deque(maxlen=MOST_EVENTS)
        self._credit, self._credited = float(BURST), now()
        self._last: datetime | None = None
        self._failed = 0
        self._trouble = Once(log, "no event about a failed status write")

    def offer(self, events: Sequence[bytes]) -> bool:
        """Take audit events, each as JSON, to be looked at; False, and none is taken, while too much waits."""
        ours = [each for each in events if names_claim_status(each)]
        with self._lock:
            if ours and (len(self._waiting) >= MOST_WAITING or self._bytes >= MOST_BYTES):
                return False
            self._waiting.extend((time.monotonic(), each) for each in ours)
            self._bytes += sum(map(len, ours))
        if events:
            self._last = self._now()
            self.on_events("ignored", len(events) - len(ours))
        return True

    def checks(self) -> list[tuple[str, bool, str]]:
        """Name, whether it is fine and what there is to say, for ``/readyz``."""
        last = self._last
        if last is None:
            return [("audit events", True, "ok, but none has come yet")]
        ago = duration((self._now() - last).total_seconds())
        return [("audit events", True, f"ok, the last came {ago} ago; {self._failed} failed status writes")]

    async def run(self) -> None:
        """Look at what is offered, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look())
            if self._api is not None:
                group.create_task(self._write(self._api))

    async def _look(self) -> None:
        while True:
            done = 0
            while (raw := self._next()) is not None:
                self._take(raw)
                done += 1
                if done % _AT_ONCE == 0:
                    await asyncio.sleep(_PAUSE)
            await asyncio.sleep(_LOOK)

    def _next(self) -> bytes | None:
        with self._lock:
            if not self._waiting or self._waiting[0][0] > time.monotonic() - SETTLE:
                return None
            _, raw = self._waiting.popleft()
            self._bytes -= len(raw)
            return raw

    def _take(self, raw: bytes) -> None:
        try:
            outcome = self._outcome(raw)
        except Exception as error:  # noqa: BLE001 - a mistake of ours about one event must not keep the others
            outcome = "error"
            self._log.write("error", "audit event not taken in", error=f"{type(error).__name__}: {error}"[:500])
        self.on_events(outcome, 1)

    def _outcome(self, raw: bytes) -> str:
        """What became of one event, one of ``AUDIT_OUTCOMES``."""
        try:
            event = read_event(orjson.loads(raw))
        except orjson.JSONDecodeError:
            return "unreadable"
        if event is None or event.dry_run:
            return "ignored"
        if event.id and event.id in self._seen:
            return "repeated"
        if event.id:
            _remember(self._seen, event.id, None, MOST_SEEN)
        now, at = self._now(), instant(event.at)
        if at is not None and at < now - AGAIN:
            return "old"
        snapshot = self._snapshot()
        claim = known_claim(event, snapshot)
        key = (event.namespace, event.name, claim.uid if claim is not None else event.uid, event.user)
        if not event.failed:
            self._written(key)
            return "written"
        self._failed += 1
        self._refused(event, key, snapshot, now)
        return "failed"

    def _written(self, key: tuple[str, ...]) -> None:
        """A write went well: what passes by itself has passed."""
        known = self._known.get(key)
        if known is not None:
            known.causes = {cause: told for cause, told in known.causes.items() if cause in LASTING}

    def _refused(self, event: AuditEvent, key: tuple[str, ...], snapshot: Snapshot, now: datetime) -> None:
        found = refusals(event)
        sign = hash(tuple((each.cause, each.driver) for each in found))
        known = self._known.get(key) or _Known()
        _remember(self._known, key, known, MOST_KNOWN)
        causes, at = known.explained.get(sign) or (tuple(dict.fromkeys(each.cause for each in found)), None)
        stale = at is None or abs(now - at) > _STALE
        made: dict[str, Failure] = {}
        if any(_due(known, each, now) or (stale and each in LASTING) for each in causes) and self._may(now):
            made = {each.cause: each for each in failures(event, snapshot, self._params())}
            causes = tuple(made)
            if len(known.explained) >= _AT_ONCE:
                known.explained.clear()
            known.explained[sign] = (causes, now)
        writer, uid = self._label(event.user, snapshot), key[2]
        for cause in causes:
            self.on_failure(writer, cause, trace_id(uid) if uid else "")
            due, told = _due(known, cause, now), known.causes[cause]
            told.count += 1
            if due and cause in made:
                self._alert(made[cause], told.count)
                known.causes[cause] = _Told(now, 0, now)

    def _may(self, now: datetime) -> bool:
        """Whether one more refusal may be explained and told by now."""
        passed = max(0.0, (now - self._credited).total_seconds())
        self._credit = min(float(BURST), self._credit + passed * RATE)
        self._credited = now
        if self._credit < 1:
            return False
        self._credit -= 1
        return True

    def _label(self, user: str, snapshot: Snapshot) -> str:
        """The user as a label: by name those that the cluster knows to write, and some of the others."""
        if user.startswith(KUBELET):
            return "kubelet"
        if user == SCHEDULER or user in CONTROLLERS or account_of(user) in snapshot.writers:
            return user
        shown = user or "unauthenticated"
        if shown not in self._users and len(self._users) >= MOST_LABELS:
            return "other"
        self._users.add(shown)
        return shown

    def _alert(self, failure: Failure, times: int) -> None:
        event, claim = failure.event, failure.claim
        message = explained(failure).text(POLICY)
        self._log.write(
            "warning",
            "status write failed",
            cause=failure.cause,
            usual=failure.usual,
            times=times,
            user=event.user,
            impersonator=event.impersonator,
            node=failure.writer.node,
            namespace=event.namespace,
            name=event.name,
            uid=failure.uid,
            allocatedNode=failure.allocated_node,
            drivers=failure.drivers,
            missing=failure.missing,
            verb=event.verb,
            code=event.code,
            retry=retry(failure),
            message=message[:_LONGEST],
        )
        if self._api is not None and claim is not None:
            about = about_claim(claim.namespace, claim.name, claim.uid)
            once = f"{failure.cause}/{event.user}"
            self._events.append(made_event(about, REASON, message, self._now(), "Warning", once))

    async def _write(self, api: Api) -> None:
        """Write the events about claims. Each replica that hears of a failure writes the same one, by its name."""
        while True:
            await asyncio.sleep(_LOOK)
            while self._events:
                problem = await self._tell(api, self._events.popleft())
                if problem:
                    self._trouble.tell(problem)
                else:
                    self._trouble.over()

    async def _tell(self, api: Api, made: Json) -> str:
        """Write one event; what is wrong, empty where nothing is."""
        try:
            await tell(api, made)
        except Unreachable as error:
            return str(error)
        except ApiError as error:
            if not needless(error):
                return Trouble(f"events of claim {made['involvedObject']['name']}", error)
        return ""


def _due(known: _Known, cause: str, now: datetime) -> bool:
    """Whether ``cause``, met once more, has to be told now. A time ahead of now is of a clock that has been set back
    since, and counts as so long ago.
    """
    told = known.causes.setdefault(cause, _Told(now))
    if told.told is not None:
        return abs(now - told.told) > AGAIN and cause != OWN
    if cause not in PASSING:
        return cause != OWN
    if abs(now - told.since) > WITHIN:
        told.since, told.count = now, 0
    return told.count + 1 >= OFTEN


def claim_writers(policies: PolicyStore) -> WriterParams:
    """What the policy that serves says of who writes claims, where there is one."""
    for compiled in policies.revision.policies:
        asked = any("writer.claimProblems" in each.program.source for each in compiled.validations)
        if compiled.writers is not None and asked:
            return compiled.writers
    return WriterParams()


K = TypeVar("K")
V = TypeVar("V")


def _remember(held: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    """Keep ``value`` as the latest of ``most``."""
    held[key] = value
    held.move_to_end(key)
    if len(held) > most:
        held.popitem(last=False)
