"""Writes the status of every DriverRollout: how far the driver is, what is held, what keeps it from the next stage.
Runs where the leader is.

Everything is taken from the view and from the status that is stored; a new leader goes on from there. What is told as
an event is told before the status that says so is written, under a name of its own: whoever ends in between, or writes
again, tells nothing twice. Spans are written once the status is.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Protocol

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.controllers.events import tell
from webhook.controllers.gate_probe import GateProbe
from webhook.controllers.rollout_conditions import Said, began, conditions, promotion_json, quiet, said, status
from webhook.controllers.rollout_figures import Figures, Waits, figures
from webhook.controllers.rollout_steps import step_event, steps, told, trace
from webhook.facts.gates_found import Component, GateEvidence, gate_state
from webhook.facts.promotion import Evidence, promotion
from webhook.facts.times import stamp
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.rollout import API_VERSION, DriverRollout, read_rollout
from webhook.kube.rollout import RolloutStatus as Recorded
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.telemetry.log import Log
from webhook.telemetry.tracing import Tracing

PATH = f"/apis/{API_VERSION}/driverrollouts"
# Seconds between two looks at whether a spec was edited, between two at everything, and at most while writes fail.
LOOK, EVERY, LONGEST = 0.5, 10.0, 60.0
# A look at everything may take this part of the time.
_SHARE = 20
# Seconds until figures are written that only tell how long something has been so already.
_TEXTS = 600.0
# Drivers that a status is written for.
MOST = 100

# What this replica saw an API server store of what was sent: whether costs were kept, and a slice that shows it.
Carried = Callable[[], tuple[bool | None, str]]


class World(Protocol):
    """The live view."""

    @property
    def snapshot(self) -> Snapshot:
        """What is known at this moment."""


class RolloutStatus:
    """The controller. ``carried`` is asked what this replica has seen of the API server's gate in reviews; ``tracing``
    gets the spans of the steps.
    """

    def __init__(self, api: Api, cluster: World, log: Log, clock: Callable[[], datetime]) -> None:
        self._api = api
        self._cluster = cluster
        self._log = log
        self._clock = clock
        self._probe = GateProbe(api)
        self._begin()
        self._problem = ""
        self.carried: Carried = lambda: (None, "")
        self.tracing = Tracing(None)

    def _begin(self) -> None:
        self._book = Book()
        self._seen: dict[str, DriverRollout] = {}
        self._waits: dict[str, _Waiting] = {}
        self._written: dict[str, float] = {}
        # Why the API server takes no status of a driver; others do not wait for it.
        self._invalid: dict[str, str] = {}
        self._next = 0.0

    async def run(self) -> None:
        """Write whenever there is something to say, until cancelled."""
        self._begin()
        pause = LOOK
        while True:
            trouble = await self._round(time.monotonic())
            problem = trouble or next(iter(self._invalid.values()), "")
            if problem and problem != self._problem:
                self._log.write("warning", "rollout status not written", message=problem)
            self._problem = problem
            pause = min(pause * 2, LONGEST) * random.uniform(0.8, 1.2) if trouble else LOOK
            await asyncio.sleep(pause)

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``: a status that cannot be written keeps nobody from serving."""
        told = [self._problem] if self._problem else []
        over = len(self._cluster.snapshot.rollouts) - MOST
        if over > 0:
            told.append(f"of {MOST + over} DriverRollouts the last {over} by name have no status")
        return [("rollout status", True, f"ok, but {'; '.join(told)}" if told else "ok")]

    def gate_evidence(self) -> GateEvidence:
        """What is known of the gates beside the view."""
        kept, name = self.carried()
        return GateEvidence(self._probe.kept, kept, name)

    async def _round(self, at: float) -> str:
        """Look at the drivers whose spec was edited, or at all of them when it is time; the first problem that is not
        one of its driver alone.
        """
        rollouts = self._cluster.snapshot.rollout_specs
        specs = {name: rollouts[name] for name in sorted(rollouts)[:MOST]}
        whole = at >= self._next
        due = [name for name, spec in specs.items() if whole or self._seen.get(name) != spec]
        for gone in self._waits.keys() - specs.keys():
            del self._waits[gone]
        self._invalid = {name: why for name, why in self._invalid.items() if name in specs}
        if not due:
            return ""
        begun = time.monotonic()
        problem, done = await self.look(due)
        self._seen = {name: spec for name, spec in specs.items() if name in done or name not in due}
        if whole:
            self._next = at + max(EVERY, _SHARE * (time.monotonic() - begun))
        return problem

    async def look(self, drivers: Collection[str]) -> tuple[str, set[str]]:
        """Write the status of ``drivers`` where it says something else; the first problem, and the drivers that were
        seen to the end.
        """
        done: set[str] = set()
        snapshot, now = self._cluster.snapshot, self._clock()
        await self._probe.look(snapshot.release.minor, time.monotonic())
        try:
            listed = members((await self._api.get(PATH, limit=MOST)).get("items"))
        except ApiError as error:
            # The kind is gone since the view was made.
            return ("" if error.status == HTTPStatus.NOT_FOUND else str(error)), done
        except Unreachable as error:
            return str(error), done
        objs = {text(mapping(obj.get("metadata")).get("name")): obj for obj in listed}
        shown = {name: objs[name] for name in drivers if name in objs and _shows(snapshot, name, objs[name])}
        wanted = await asyncio.to_thread(self._wanted, snapshot, shown, now)
        problem = ""
        for name, (figures_, say) in wanted.items():
            try:
                await self._write(objs[name], figures_, say, now)
                done.add(name)
                self._invalid.pop(name, None)
            except ApiError as error:
                if error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
                    # No look before the next one at everything takes it.
                    self._invalid[name] = f"{name}: {error}"
                    done.add(name)
                    continue
                # Edited or deleted meanwhile: the view shows it in a moment.
                if error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                    problem = problem or f"{name}: {error}"
            except Unreachable as error:
                return str(error), done
        return problem, done

    def _wanted(
        self, snapshot: Snapshot, objs: Mapping[str, Json], now: datetime
    ) -> dict[str, tuple[Json, list[Said]]]:
        """The figures and what the conditions say, by driver. Runs in a thread of its own: it may take a while."""
        components = gate_state(snapshot, self.gate_evidence())
        found = figures(snapshot, self._book, objs, now)
        return {
            name: self._one(obj, read_rollout(obj), found[name], components, snapshot, now)
            for name, obj in objs.items()
        }

    def _one(
        self,
        obj: Json,
        rollout: DriverRollout,
        found: Figures,
        components: Sequence[Component],
        snapshot: Snapshot,
        now: datetime,
    ) -> tuple[Json, list[Said]]:
        stored = mapping(obj.get("status"))
        since, calm = began(stored, rollout, now), quiet(stored, rollout, found.differences, now)
        anew = stored.get("stage") != rollout.stage
        waits = self._waits.get(rollout.driver)
        if waits is None or anew:
            waits = self._waits[rollout.driver] = _Waiting(Recorded() if anew else rollout.status)
        count, p99 = waits.told(found, snapshot, since)
        duplicates = 0 if anew else rollout.status.duplicates
        failures = 0 if anew else rollout.status.zone_failures
        evidence = Evidence(
            quiet_since="" if calm is None else stamp(calm),
            observed_since=stamp(since),
            pending_p99=p99,
            pending_count=count,
            drills=rollout.status.drills,
            duplicates=duplicates,
            zone_failures=failures,
            overcommitted=found.overcommitted,
        )
        report = promotion(rollout, snapshot, evidence, now, found.coverage)
        made = status(rollout, found, since, calm, (count, p99))
        made |= {"duplicates": duplicates, "zoneFailures": failures, "promotion": promotion_json(report)}
        made |= told(stored, rollout)
        return made, said(obj, rollout, found, len(snapshot.nodes), components, report, now)

    async def _write(self, obj: Json, made: Json, say: Sequence[Said], now: datetime) -> None:
        stored, rollout = mapping(obj.get("status")), read_rollout(obj)
        made = {**made, "conditions": conditions(obj, say, now)}
        at = time.monotonic()
        last = self._written.setdefault(rollout.driver, at)
        if not _news(stored, made, texts=at - last > _TEXTS):
            return
        taken = steps(stored, say, rollout)
        for step in taken:
            try:
                await tell(self._api, step_event(step, rollout, now))
            except ApiError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
        metadata = {"resourceVersion": text(mapping(obj.get("metadata")).get("resourceVersion"))}
        path = f"{PATH}/{rollout.driver}/status"
        await self._api.patch(path, {"metadata": metadata, "status": made}, "merge")
        self._written[rollout.driver] = at
        for step in taken:
            trace(self.tracing, step, rollout, now)


class _Waiting:
    """The waits of one driver, over those that the leader before had counted until there are as many."""

    def __init__(self, before: Recorded) -> None:
        self._before = before
        self._waits = Waits()

    def told(self, found: Figures, snapshot: Snapshot, since: datetime) -> tuple[int, int | None]:
        self._waits.see(found.bound, snapshot)
        count, p99 = self._waits.told(found.waiting, since)
        before = self._before
        if count >= before.pending_count or before.pending_p99 is None:
            return count, p99
        return before.pending_count, max(before.pending_p99, p99 or 0)


def _shows(snapshot: Snapshot, name: str, obj: Json) -> bool:
    """Whether the view has the spec that ``obj`` has."""
    rollout, metadata = snapshot.rollouts.get(name), mapping(obj.get("metadata"))
    seen = None if rollout is None else (rollout.uid, rollout.generation)
    return seen == (text(metadata.get("uid")), metadata.get("generation"))


def _news(stored: Json, made: Json, texts: bool) -> bool:
    """Whether ``made`` says another thing than the ``stored`` status; with ``texts``, in other words too."""
    have, want = (_bare({name: value.get(name) for name in made}) for value in (stored, made))
    return bool(have != want if texts else _wordless(have) != _wordless(want))


def _bare(value: object) -> object:
    """Without what is None."""
    if isinstance(value, dict):
        return {name: _bare(each) for name, each in value.items() if each is not None}
    return value


def _wordless(value: object) -> object:
    """Without what the gates of a promotion have: how long something is so already moves with every look."""
    fields = mapping(value)
    report = mapping(fields.get("promotion"))
    gates = [(gate.get("name"), gate.get("passed"), gate.get("needs")) for gate in members(report.get("gates"))]
    return {**fields, "promotion": {**report, "gates": gates}}
