"""A live cluster: the snapshot that a list and a watch of every kind keep up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Literal, Protocol

from msgspec.structs import replace

from webhook.cluster.api import Api, ApiError, Unreachable
from webhook.cluster.gates import served_gates
from webhook.cluster.kinds import KINDS, POLICY, Kind
from webhook.cluster.recorder import Recorder, Unrecorded
from webhook.cluster.reflector import Key, Reflector, absence
from webhook.kube.raw import Json, mapping, text
from webhook.kube.release import NODE_ALLOCATABLE, SUPPORTED, Release
from webhook.kube.snapshot import Snapshot

# How often the server is asked for its release and gates, seconds: they change when the control plane is upgraded.
ASK_RELEASE = 60.0
# How often in a row its metrics may fail to come before what is on by default counts: gates change what is refused.
_INSIST = 4
# What they are called where they cannot be read, and what then counts.
GATES, DEFAULTS = "feature gates", "those that are on by default count as on"


Level = Literal["info", "warning", "error"]


# Kind, (namespace, name), the snapshot before and the one after.
Changed = Callable[[str, Key, Snapshot, Snapshot], object]


class Tell(Protocol):
    """The log."""

    def __call__(self, level: Level, event: str, **fields: object) -> None:
        """Write one line."""


@dataclass(slots=True)
class _State:
    """What is known about the view of one kind. ``problem`` is why it does not go on at present."""

    listed: bool = False
    seen: datetime | None = None
    problem: str = ""
    unknown: str = ""


class LiveCluster:
    """The objects of a live cluster, as a snapshot: the face of :class:`webhook.cluster.files.Cluster`.

    ``run`` and everything it calls belong to one event loop, in a thread of its own. Other threads read
    :attr:`snapshot`, which is replaced by one assignment, :attr:`policies`, :attr:`synced` and :meth:`checks`.
    ``minor`` None takes the server's release; ``gates`` go before the server's own. :attr:`on_policies` is called from
    a thread of its own with all AdmissionPolicy objects by name, once before the view counts as synced and after every
    change; those in :attr:`on_change`, in that of the event loop, about every other object, with the snapshots before
    and after, and :attr:`on_stale` there with the kind of an event that came too late.
    ``recorder`` is told all other objects as they change.
    """

    def __init__(
        self,
        api: Api,
        clock: Callable[[], datetime],
        tell: Tell,
        minor: int | None = None,
        gates: Mapping[str, bool] | None = None,
        kinds: Iterable[Kind] = KINDS,
        recorder: Recorder | None = None,
    ) -> None:
        self._api = api
        self._recorder = recorder or Unrecorded()
        self._clock = clock
        self._tell = tell
        self._minor = minor
        self._gates = dict(gates or {})
        self._states = {kind.name: _State() for kind in kinds}
        self._reflectors = [Reflector(api, kind, self) for kind in kinds]
        self._told: set[tuple[str, int]] = set()
        self._unanswered: set[str] = set()
        self._server = 0
        self._served: dict[str, bool] = {}
        self._drops_costs = False
        self._silences = 0
        self._unread = False
        self._policies_changed = asyncio.Event()
        self._policies_given = False
        self.on_policies: Callable[[Mapping[str, Json]], object] = len
        self.on_stale: Callable[[str], object] = len
        self.on_change: list[Changed] = []
        self.policies: Mapping[str, Json] = {}
        self.snapshot = Snapshot()
        self.synced = False

    def snapshot_for(self, obj: Json | None) -> Snapshot:
        """The snapshot to judge ``obj`` by: the release is the server's, whatever ``obj`` carries."""
        return self.snapshot

    async def run(self) -> None:
        """Follow the cluster until cancelled; trouble is told and waited out."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_release())
            group.create_task(self._follow_policies())
            for reflector in self._reflectors:
                group.create_task(reflector.run())

    async def read(self) -> None:
        """Read everything once, instead of :meth:`run`. Raises ApiError and Unreachable; a kind that the server may do
        without is told, and left out.
        """
        await self._ask_release(once=True)
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(self._read(reflector))

    async def _read(self, reflector: Reflector) -> None:
        kind = reflector.kind
        try:
            await reflector.list()
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                detail, elsewhere = await absence(self._api, kind)
                if elsewhere or not kind.optional:
                    raise ApiError(error.status, error.reason, detail) from error
                self.unknown(kind, detail)
            elif error.status == HTTPStatus.FORBIDDEN and kind.optional:
                self.failed(kind, error)
            else:
                raise

    def ages(self, now: datetime) -> dict[str, float | None]:
        """Seconds since the view of each kind was last known to be current; None for one that never was."""
        return {
            name: None if state.seen is None else max(0.0, (now - state.seen).total_seconds())
            for name, state in self._states.items()
            if not state.unknown
        }

    def checks(self) -> list[tuple[str, bool, str]]:
        """(check, whether it is fine, what to know) of each kind and the release, for ``/readyz``.

        Nothing that fails after everything was seen once makes a check fail: the snapshot goes on serving.
        """
        now = self._clock()
        return [
            ("release", self._server > 0, self._release_told()),
            *((f"view of {name}", *self._told_of(state, now)) for name, state in list(self._states.items())),
        ]

    def _release_told(self) -> str:
        if not self._server:
            return "failed: the API server has not said its version yet"
        judged = self.snapshot.release
        told = f"{judged}" if judged.minor == self._server else f"1.{self._server}, judged as {judged}"
        if judged.drops_costs:
            return f"ok, {told}, but its {GATES} cannot be read, and a slice shows that it drops what devices cost"
        if not self._served:
            return f"ok, {told}, but its {GATES} cannot be read: {DEFAULTS}"
        if self._unread:
            told = f"{told}, but its {GATES} cannot be read any more: those read last count"
        if not judged.enabled(NODE_ALLOCATABLE):
            return f"ok, {told}, but {NODE_ALLOCATABLE} is off: the API server drops what devices cost"
        return f"ok, {told}"

    def _told_of(self, state: _State, now: datetime) -> tuple[bool, str]:
        if not state.listed:
            return False, f"failed: {state.problem or state.unknown or 'not listed yet'}"
        if state.unknown:
            return True, f"ok, but {state.unknown}"
        age = f"{(now - state.seen).total_seconds():.0f}s ago" if state.seen else "never"
        return True, f"ok, but {state.problem}; last seen {age}" if state.problem else f"ok, seen {age}"

    async def _follow_release(self) -> None:
        while True:
            try:
                await self._ask_release()
            except (ApiError, Unreachable) as error:
                self._trouble("release", error)
                await asyncio.sleep(1.0)
                continue
            self._fine("release")
            self._look_whether_synced()
            await asyncio.sleep(ASK_RELEASE)

    async def _ask_release(self, once: bool = False) -> None:
        """Judge by the server's release, or the nearest that is known here, and by its gates. Raises ApiError and
        Unreachable; metrics that do not come, while the server answers, are insisted on for a while only, or ``once``.
        """
        server = await self._api.version()
        try:
            self._served = await served_gates(self._api)
            self._silences = 0
            self._unread = False
            self._fine(GATES)
        except ApiError as error:
            self._unread = True
            self._trouble(GATES, error)
        except Unreachable as error:
            self._silences += 1
            if once or self._silences < _INSIST:
                raise
            self._unread = True
            self._trouble(GATES, error)
        minor = min(max(server, min(SUPPORTED)), max(SUPPORTED)) if self._minor is None else self._minor
        release = self._released(minor)
        if (server, release) != (self._server, self.snapshot.release):
            self._server = server
            self.snapshot = replace(self.snapshot, release=release)
            self._recorder.judged(release)
            level: Level = "info" if release.enabled(NODE_ALLOCATABLE) else "warning"
            off = sorted(name for name, on in release.gates.items() if not on)
            self._tell(level, "release", server=f"1.{self._server}", judged=f"1.{minor}", gatesOff=off)

    def stored(self, costs: bool) -> None:
        """Take in what the newest slice that tells shows of the API server: whether it stores what devices cost."""
        if costs is self._drops_costs:
            self._drops_costs = not costs
            self.snapshot = replace(self.snapshot, release=self._released(self.snapshot.release.minor))

    def _released(self, minor: int) -> Release:
        gates = {**self._served, **self._gates}
        return Release(minor, gates, self._drops_costs and NODE_ALLOCATABLE not in gates)

    async def _follow_policies(self) -> None:
        while True:
            await self._policies_changed.wait()
            self._policies_changed.clear()
            # What came in pages while the first list was read is not all of them yet.
            whole = self._states[POLICY].listed
            try:
                await asyncio.to_thread(self.on_policies, dict(self.policies))
            except Exception as error:  # noqa: BLE001 - the last good policies go on serving
                self._tell("error", "policies not taken in", message=f"{type(error).__name__}: {error}")
            self._policies_given |= whole
            self._look_whether_synced()

    def put(self, kind: Kind, obj: Json) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        if kind.name == POLICY:
            self.policies = {**self.policies, text(mapping(obj.get("metadata")).get("name")): obj}
            self._policies_changed.set()
        else:
            before, metadata = self.snapshot, mapping(obj.get("metadata"))
            self.snapshot = before.put(obj)
            key = (text(metadata.get("namespace")), text(metadata.get("name")))
            self._changed(kind, key, before)
            self._recorder.put(obj)

    def drop(self, kind: Kind, key: Key, version: str = "") -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        if kind.name == POLICY:
            self.policies = {name: obj for name, obj in self.policies.items() if name != key[1]}
            self._policies_changed.set()
            return
        metadata = {"namespace": key[0], "name": key[1], "resourceVersion": version}
        gone = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
        before = self.snapshot
        self.snapshot = before.remove(gone)
        self._changed(kind, key, before)
        self._recorder.gone(gone)

    def _changed(self, kind: Kind, key: Key, before: Snapshot) -> None:
        for hear in self.on_change:
            hear(kind.name, key, before, self.snapshot)

    def stale(self, kind: Kind) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        self.on_stale(kind.name)

    def keys(self, kind: Kind) -> set[Key]:
        """See :class:`webhook.cluster.reflector.Sink`."""
        if kind.name == POLICY:
            return {("", name) for name in self.policies}
        return self.snapshot.keys(kind.name)

    def current(self, kind: Kind, listed: bool) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        state, now = self._states[kind.name], self._clock()
        # A clock that was set back must not leave a view that seems to be from the future, and so never to be old.
        if state.seen is None or not 0 <= (now - state.seen).total_seconds() < 1 or listed:
            state.seen = now
            self.snapshot = replace(self.snapshot, seen=self.snapshot.seen.set(kind.name, now))
        if listed:
            self._listed(kind, state)
            if kind.name != POLICY:
                self._recorder.whole(kind.name, self.snapshot.keys(kind.name))
        if self._recorder.wants():
            for reflector in self._reflectors:
                reflector.again()
        if state.unknown:
            self._tell("info", "kind served", kind=kind.name)
        if state.problem or state.unknown:
            state.problem = state.unknown = ""
            self._fine(kind.name)

    def failed(self, kind: Kind, error: ApiError | Unreachable) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        self._states[kind.name].problem = self._trouble(kind.name, error)

    def unknown(self, kind: Kind, detail: str) -> None:
        """See :class:`webhook.cluster.reflector.Sink`."""
        state = self._states[kind.name]
        gone = self.keys(kind)
        for key in gone:
            self.drop(kind, key)
        if detail != state.unknown:
            state.unknown, state.problem = detail, ""
            level: Level = "error" if not kind.optional else "warning" if gone else "info"
            message = f"{detail}; it is looked for again"
            self._tell(level, "kind not served", kind=kind.name, gone=len(gone), message=message)
        if kind.optional:
            self._listed(kind, state)

    def _listed(self, kind: Kind, state: _State) -> None:
        if not state.listed:
            state.listed = True
            if kind.name == POLICY:
                self._policies_changed.set()
            self._look_whether_synced()

    def _look_whether_synced(self) -> None:
        if self.synced or not self._server or not all(state.listed for state in self._states.values()):
            return
        if POLICY in self._states and not self._policies_given:
            return
        self.synced = True
        self._tell("info", "cluster synced", release=str(self.snapshot.release), **counts(self.snapshot))

    def _trouble(self, part: str, error: ApiError | Unreachable) -> str:
        """Tell of ``error`` unless that was done since all was fine: a server that is away is one trouble, not ten."""
        if isinstance(error, ApiError):
            event, key, message = "view refused", (part, error.status), f"the API server refuses: {error}"
        else:
            self._unanswered.add(part)
            event, key, message = "API server lost", ("", 0), f"the API server does not answer: {error}"
        if key not in self._told:
            self._told.add(key)
            self._tell("warning", event, part=part, message=message)
        return message

    def _fine(self, part: str) -> None:
        self._unanswered.discard(part)
        over = {key for key in self._told if key[0] == part or (not key[0] and not self._unanswered)}
        if over:
            self._told -= over
            self._tell("info", "view restored", part=part)


def counts(snapshot: Snapshot) -> dict[str, int]:
    """How many objects of the main kinds there are."""
    return {
        "nodes": len(snapshot.nodes),
        "slices": len(snapshot.slices),
        "claims": len(snapshot.claims),
        "pods": len(snapshot.pods),
    }
