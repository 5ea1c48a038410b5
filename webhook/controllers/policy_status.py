"""Writes into each ``AdmissionPolicy`` object whether it serves, and why it does not: its condition ``Ready``.

Runs where the leader is: replicas may differ for the moment that an edit takes, and one of them has to say.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Protocol

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.facts.times import stamp
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.rollout import API_VERSION
from webhook.store.policies import PolicyStore, Verdict
from webhook.telemetry.log import Log

READY = "Ready"
PATH = f"/apis/{API_VERSION}/admissionpolicies"
# Seconds between two looks at what the store made of the objects, and at most while writes fail.
EVERY, LONGEST = 0.5, 60.0


class Objects(Protocol):
    """What is read of the live view."""

    @property
    def policies(self) -> Mapping[str, Json]:
        """The ``AdmissionPolicy`` objects, raw, by name."""


class PolicyStatus:
    """The controller: ``cluster`` gives the objects as they are, ``policies`` what became of them."""

    def __init__(
        self, api: Api, cluster: Objects, policies: PolicyStore, log: Log, clock: Callable[[], datetime]
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._policies = policies
        self._log = log
        self._clock = clock
        # The version of each object that was written over, or refused: the view has to show another before the next.
        self._done: dict[str, str] = {}
        # What the API server takes no status of: until when, of which version and verdict, and why. Others do not wait.
        self._invalid: dict[str, tuple[float, tuple[str, Verdict], str]] = {}
        self.problem = ""

    async def run(self) -> None:
        """Write whenever there is something to say, until cancelled."""
        pause = EVERY
        while True:
            trouble = await self.write()
            problem = trouble or next((why for *_, why in self._invalid.values()), "")
            if problem and problem != self.problem:
                self._log.write("warning", "policy status not written", message=problem)
            self.problem = problem
            pause = min(pause * 2, LONGEST) * random.uniform(0.8, 1.2) if trouble else EVERY
            await asyncio.sleep(pause)

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``: a status that cannot be written keeps nobody from serving."""
        return [("policy status", True, f"ok, but {self.problem}" if self.problem else "ok")]

    async def write(self) -> str:
        """Write the conditions of all objects that lack theirs; the first problem that is not one of its object alone,
        empty where there is none.
        """
        problem = ""
        objects, at = self._cluster.policies, time.monotonic()
        self._done = {name: version for name, version in self._done.items() if name in objects}
        self._invalid = {name: each for name, each in self._invalid.items() if name in objects}
        for name, verdict in self._policies.verdicts.items():
            obj = mapping(objects.get(name))
            version = text(mapping(obj.get("metadata")).get("resourceVersion"))
            wanted = conditions(obj, verdict, self._clock())
            until, state, _ = self._invalid.get(name, (at, None, ""))
            if wanted is None or self._done.get(name) == version or (at < until and state == (version, verdict)):
                continue
            body = {"metadata": {"resourceVersion": version}, "status": {"conditions": wanted}}
            try:
                await self._api.patch(f"{PATH}/{name}/status", body, "merge")
            except ApiError as error:
                if error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
                    self._invalid[name] = at + LONGEST, (version, verdict), f"{name}: {error}"
                    continue
                # Edited meanwhile: the view shows it in a moment.
                if error.status != HTTPStatus.CONFLICT:
                    problem = problem or f"{name}: {error}"
                    continue
            except Unreachable as error:
                return str(error)
            self._done[name] = version
            self._invalid.pop(name, None)
        return problem


def conditions(obj: Json, verdict: Verdict, now: datetime) -> list[Json] | None:
    """The conditions that ``obj`` should have; None where it has them, or where ``verdict`` is about an earlier state
    of the object than this one. Conditions of others stay.
    """
    metadata = mapping(obj.get("metadata"))
    if (text(metadata.get("uid")), metadata.get("generation")) != (verdict.uid, verdict.generation):
        return None
    present = members(mapping(obj.get("status")).get("conditions"))
    before = next((each for each in present if each.get("type") == READY), {})
    said = {
        "type": READY,
        "status": "True" if verdict.ready else "False",
        "reason": verdict.reason,
        "message": verdict.message,
        "observedGeneration": verdict.generation,
    }
    since = text(before.get("lastTransitionTime")) if before.get("status") == said["status"] else ""
    wanted = {**said, "lastTransitionTime": since or stamp(now)}
    if wanted == before:
        return None
    return [*(each for each in present if each.get("type") != READY), wanted]
