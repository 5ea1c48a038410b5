"""Keeps the two webhook configurations as the loaded policies need them. Runs where the leader is.

They are made once this server can answer, follow the policies, the drivers and the certificates, and are put right when
somebody edits or deletes them; fields that are the user's stay (:mod:`webhook.registration.merge`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.cluster.kinds import Kind
from webhook.cluster.reflector import Key, Reflector
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.snapshot import Snapshot
from webhook.policy.revision import Revision
from webhook.registration.configurations import (
    MUTATING,
    NAME,
    VALIDATING,
    Address,
    configurations,
    unregistered,
)
from webhook.registration.drivers import listed_drivers, registered_drivers
from webhook.registration.merge import UNMANAGED, unmanaged, wanted
from webhook.telemetry.log import Log

_GROUP = "admissionregistration.k8s.io"
# Seconds between two looks at policies and drivers, which nothing tells of; and at most while writes fail.
EVERY, LONGEST = 1.0, 30.0
# Put right so often within so many seconds, it is a program that writes against us: from then on we are slow.
_PATIENCE, _WHILE = 5, 60.0


class Cluster(Protocol):
    """What is read of the live view."""

    @property
    def snapshot(self) -> Snapshot:
        """The objects."""

    @property
    def synced(self) -> bool:
        """Whether all of them were seen once."""


class Policies(Protocol):
    """What is read of the policies."""

    @property
    def revision(self) -> Revision:
        """Those that serve."""


class Registration:
    """The controller. ``address`` is where the API server reaches us, ``ca_bundle`` gives the authorities that it is to
    trust (PEM, empty while there are none), ``audit`` makes every entry fail open, ``namespace`` is our own.
    """

    def __init__(
        self,
        api: Api,
        cluster: Cluster,
        policies: Policies,
        address: Address,
        ca_bundle: Callable[[], bytes],
        audit: bool,
        namespace: str,
        log: Log,
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._policies = policies
        self._address = address
        self._ca_bundle = ca_bundle
        self._audit = audit
        self._namespace = namespace
        self._log = log
        kinds = [
            Kind(name, _GROUP, "v1", f"{name.lower()}s", f"metadata.name={NAME}") for name in (VALIDATING, MUTATING)
        ]
        self._kinds = {kind.name: kind for kind in kinds}
        self._reflectors = [Reflector(api, kind, self) for kind in kinds]
        self._stored: dict[str, Json] = {}
        self._heard = dict.fromkeys(self._kinds, 0)
        self._listed: set[str] = set()
        self._changed = asyncio.Event()
        self._generated: tuple[object, tuple[Json, Json]] | None = None
        self._refused_by: object = None
        self._last: dict[str, Json] = {}
        self._repairs: list[float] = []
        self._problems: dict[str, str] = {}
        self._running = False

    async def run(self) -> None:
        """Keep them until cancelled."""
        self._running = True
        try:
            async with asyncio.TaskGroup() as group:
                for reflector in self._reflectors:
                    group.create_task(reflector.run())
                group.create_task(self._keep())
        finally:
            self._running = False
            self._stored, self._listed, self._last = {}, set(), {}
            self._reflectors = [Reflector(self._api, kind, self) for kind in self._kinds.values()]

    def checks(self) -> list[tuple[str, bool, str]]:
        """For ``/readyz``: a registration that cannot be written keeps nobody from serving."""
        return [("registration", True, self._told())]

    def _told(self) -> str:
        if not self._running:
            return "ok, kept by the leader"
        off = [kind for kind, obj in sorted(dict(self._stored).items()) if unmanaged(obj)]
        told = [each for each in list(self._problems.values()) if each]
        told += [f"{kind} says {UNMANAGED}: left as it is" for kind in off]
        if not told and self._generated is None:
            return "ok, but nothing is registered before this server has seen the cluster and has a certificate"
        told += unregistered(self._policies.revision)
        return f"ok, but {'; '.join(told)}" if told else "ok"

    async def _keep(self) -> None:
        pause = EVERY
        while True:
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                pass
            else:
                # Events of one edit come together.
                await asyncio.sleep(0.05)
            self._changed.clear()
            problem = await self._round()
            self._tell("write", problem)
            pause = min(pause * 2, LONGEST) * random.uniform(0.8, 1.2) if problem else EVERY
            if slow := self._slowness():
                await asyncio.sleep(slow)

    async def _round(self) -> str:
        """Write what is not as it should be; what stands in the way, empty when nothing does."""
        if len(self._listed) < len(self._kinds) or not self._cluster.synced or not self._ca_bundle():
            return ""
        for kind, generated in zip((VALIDATING, MUTATING), self._generate(), strict=True):
            current = self._stored.get(kind)
            target = wanted(current, generated)
            if target == current:
                continue
            told = self._heard[kind]
            try:
                written = await self._write(kind, current, target)
            except ApiError as error:
                refused = error.status == HTTPStatus.UNPROCESSABLE_ENTITY and "matchConditions" in error.message
                if refused and self._narrowed():
                    self._refused_by = self._policies.revision.hash
                    self._tell("narrowing", f"registered without the policies' own match conditions: {error.message}")
                    return await self._round()
                # Edited meanwhile, made or deleted by somebody else: the watch shows it in a moment.
                if error.status in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                    continue
                return f"{kind} cannot be written: {error}"
            except Unreachable as error:
                return f"{kind} cannot be written: {error}"
            if self._heard[kind] == told:
                # What was told meanwhile is newer than the answer: somebody may have edited or deleted it since.
                self._stored[kind] = written
            self._note(kind, current, generated)
        return ""

    def _generate(self) -> tuple[Json, Json]:
        revision, ca_bundle = self._policies.revision, self._ca_bundle()
        snapshot, narrow = self._cluster.snapshot, self._narrowed()
        drivers = listed_drivers(snapshot, registered_drivers(self._stored.get(VALIDATING)))
        accounts = frozenset(snapshot.writers)
        key = (revision.hash, ca_bundle, drivers, accounts, narrow)
        if self._generated is None or self._generated[0] != key:
            made = configurations(
                revision, self._address, ca_bundle, drivers, self._audit, self._namespace, narrow, accounts
            )
            self._generated = key, made
            if narrow:
                self._tell("narrowing", "")
        return self._generated[1]

    def _narrowed(self) -> bool:
        return self._refused_by != self._policies.revision.hash

    async def _write(self, kind: str, current: Json | None, target: Json) -> Json:
        path = self._kinds[kind].path
        if current is None:
            return await self._api.create(path, target)
        # With the resourceVersion of what was seen: an edit that was not seen yet is not written over.
        return await self._api.update(f"{path}/{NAME}", target)

    def _note(self, kind: str, current: Json | None, generated: Json) -> None:
        """Log what was written, and count it where nothing of ours had changed."""
        again = self._last.get(kind) == generated
        self._last[kind] = generated
        if again:
            self._repairs.append(time.monotonic())
        entries = [text(entry.get("name")) for entry in members(generated["webhooks"])]
        event = "registration put right" if again else "registered"
        made = "created" if current is None else "updated"
        self._log.write("warning" if again else "info", event, kind=kind, done=made, entries=entries)

    def _slowness(self) -> float:
        """Seconds to wait before the next look, once the same was put right again and again."""
        self._repairs = [each for each in self._repairs if each > time.monotonic() - _WHILE]
        over = len(self._repairs) - _PATIENCE
        told = "somebody writes it back again and again; who is it?" if over > 0 else ""
        self._tell("fight", told)
        return min(2.0**over, LONGEST) if over > 0 else 0.0

    def _tell(self, topic: str, problem: str) -> None:
        """Log ``problem`` unless that was the last one of its topic."""
        if problem and problem != self._problems.get(topic):
            self._log.write("warning", "registration", message=problem)
        self._problems[topic] = problem

    def put(self, kind: Kind, obj: Json) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        self._stored[kind.name] = obj
        self._heard[kind.name] += 1
        self._changed.set()

    def drop(self, kind: Kind, key: Key, version: str = "") -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        self._stored.pop(kind.name, None)
        self._heard[kind.name] += 1
        self._changed.set()

    def stale(self, kind: Kind) -> None:
        """See :class:`webhook.cluster.reflector.Sink`: the list that follows tells how it is now."""

    def keys(self, kind: Kind) -> set[Key]:
        """See :class:`webhook.cluster.reflector.Sink`."""
        stored = self._stored.get(kind.name)
        return set() if stored is None else {("", text(mapping(stored.get("metadata")).get("name")))}

    def current(self, kind: Kind, listed: bool) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        self._tell(kind.name, "")
        if listed:
            self._listed.add(kind.name)
            self._changed.set()

    def failed(self, kind: Kind, error: ApiError | Unreachable) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        self._tell(kind.name, f"{kind.name} cannot be watched: {error}")

    def unknown(self, kind: Kind, detail: str) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        self._tell(kind.name, detail)
