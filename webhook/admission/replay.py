"""Recorded decisions judged again: each as if it were made now, by the view that there was then, and what differs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from immutables import Map
from msgspec import Struct, ValidationError, convert
from msgspec.structs import replace

from webhook.admission.action import apply
from webhook.admission.decide import decide
from webhook.admission.decode import BadReview, read_review
from webhook.admission.record import Record
from webhook.admission.recorded_line import OURS, failures, found, operations, release_of
from webhook.admission.seen import MOST, Versions, mark, on_node, place
from webhook.facts.times import instant
from webhook.kube.admission import Request
from webhook.kube.raw import Json, mapping, text
from webhook.kube.release import SUPPORTED, Release
from webhook.kube.snapshot import KINDS, Snapshot
from webhook.ledger.book import Book
from webhook.ledger.events import Event, Place
from webhook.ledger.fold import news
from webhook.policy.revision import Revision, audited

# What no policy finds in a review that was recorded: the reservation that could not be written, and the bytes of what
# drivers keep, which are not in it.
_NOT_AGAIN = frozenset({"not-reserved", "blob-not-canonical"})
_AUDITED = "-audit"
_REVISION = re.compile(f"[0-9a-f]+({_AUDITED})?")

_NAMED = ("policy", "rule", "path", "does")


class Told(Struct, frozen=True):
    """What came of a decision, as far as it can come again; ``findings`` as a recording has them, in order."""

    outcome: str
    findings: tuple[Json, ...]
    errors: tuple[str, ...]
    patch: tuple[str, ...]

    def same(self, other: Told) -> bool:
        """Whether it is the same decision: the words of findings count for nothing, they tell ages."""
        return (self.outcome, self.errors, self.patch, self._named) == (
            other.outcome,
            other.errors,
            other.patch,
            other._named,
        )

    @property
    def _named(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(each.get(name, "") for name in _NAMED) for each in self.findings)


class Recorded(Struct, frozen=True):
    """A line of a recording. ``release``, ``seen`` and ``versions`` are those of the view that it was made on, of the
    account of ``node``.
    """

    request: Request
    endpoint: str
    at: datetime
    revision: str
    node: str
    may_hold: bool
    release: Release
    seen: Mapping[str, datetime]
    versions: Versions
    was: Told


class _Finding(Struct):
    policy: str
    rule: str
    severity: str
    path: str
    does: str


class _Response(Struct):
    patch: list[str]


class _Rest(Struct):
    """What is read of a line as it is; whoever edits one is told what is no decision any more."""

    findings: list[_Finding]
    errors: list[str]
    response: _Response
    seen: dict[str, str]
    versions: Versions


def read_recorded(value: object) -> Recorded:
    """The decision in a line, parsed. Raises ValueError, with the path of what is wrong, for what is none."""
    try:
        request = read_review(value)
    except BadReview as error:
        raise ValueError(str(error)) from error
    ours = mapping(value).get(OURS)
    if not isinstance(ours, dict):
        raise ValueError(f"{OURS}: has {'nothing' if ours is None else 'no object'}, needs what `serve --record` tells")
    at = _moment(f"{OURS}.at", ours.get("at"))
    endpoint = text(ours.get("endpoint"))
    if endpoint not in ("validate", "mutate"):
        raise ValueError(f"{OURS}.endpoint: has {ours.get('endpoint')!r:.40}, needs validate or mutate")
    release = mapping(ours.get("release"))
    if release.get("minor") not in SUPPORTED:
        raise ValueError(f"{OURS}.release.minor: has {release.get('minor')!r:.40}, needs one of {SUPPORTED}")
    for name in ("revision", "outcome"):
        if not text(ours.get(name)):
            raise ValueError(f"{OURS}.{name}: has {ours.get(name)!r:.40}, needs a text")
    # It names a file.
    if not _REVISION.fullmatch(text(ours.get("revision"))):
        raise ValueError(f"{OURS}.revision: has {ours.get('revision')!r:.40}, needs the hash of policies")
    rest = _rest(ours)
    return Recorded(
        request=request,
        endpoint=endpoint,
        at=at,
        revision=text(ours.get("revision")),
        node=text(ours.get("node")),
        may_hold=ours.get("mayHold") is not False,
        release=release_of(release),
        seen={kind: _moment(f"{OURS}.seen.{kind}", each) for kind, each in rest.seen.items()},
        versions=rest.versions,
        was=_told(text(ours.get("outcome")), ours["findings"], tuple(rest.errors), tuple(rest.response.patch)),
    )


def _rest(ours: Json) -> _Rest:
    try:
        return convert(ours, _Rest)
    except ValidationError as error:
        wrong, _, path = str(error).partition(" - at `$")
        raise ValueError(f"{OURS}{path.rstrip('`')}: {wrong[:1].lower()}{wrong[1:]}") from error


def _moment(path: str, value: object) -> datetime:
    found = instant(text(value))
    if found is None:
        raise ValueError(f"{path}: has {value!r:.40}, needs a time stamp")
    return found


def again(recorded: Recorded, revision: Revision, snapshot: Snapshot, book: Book) -> Told:
    """What the policies of ``revision`` say about a recorded write on ``snapshot``, at the time of its decision. They
    only audit where the guard that decided did.
    """
    if recorded.revision.endswith(_AUDITED):
        revision = audited(revision)
    request, endpoint, at = recorded.request, recorded.endpoint, recorded.at
    verdict = decide(request, endpoint, revision, snapshot, book, at, may_hold=recorded.may_hold)
    answer = apply(verdict)
    record = Record(verdict, answer, at, 0.0)
    told = _told(record.outcome, found(record), tuple(failures(verdict.errors)), tuple(operations(answer.patch)))
    verdict.evaluation.facts.release()
    return told


def _told(outcome: str, findings: list[Json], errors: tuple[str, ...], patch: tuple[str, ...]) -> Told:
    left = [each for each in findings if each.get("rule") not in _NOT_AGAIN]
    if len(left) < len(findings):
        does = {each.get("does") for each in left}
        graver = [each for each in left if each.get("severity") != "info" and not each.get("exception")]
        for name, action in (("denied", "Deny"), ("held", "Hold"), ("warned", "Warn")):
            if action in does:
                outcome = name
                break
        else:
            outcome = "audited" if graver else "failed" if errors else "allowed"
    return Told(outcome, tuple(left), errors, patch)


class Past:
    """A history, walked from its beginning: what the guard's view was at each moment."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events = [*news(events)]
        self._next = 0
        self._view = Snapshot()
        self._states: dict[Place, list[Event]] = {}
        for event in self._events:
            self._states.setdefault(event.place, []).append(event)

    def view(self, recorded: Recorded) -> tuple[Snapshot, tuple[str, ...]]:
        """What the decision was made on, and which objects the history has no such state of. Decisions are to be asked
        about in the order of their times.

        Time tells nearly all of it. What was just being taken in, by us or by the view, is told by the versions that
        the decision saw.
        """
        while self._next < len(self._events) and self._events[self._next].observed <= recorded.at:
            self._view = _taken(self._view, self._events[self._next])
            self._next += 1
        view = replace(self._view, release=recorded.release, seen=Map(recorded.seen))
        missing: list[str] = []
        for kind in _HELD:
            rows = recorded.versions.get(kind, {})
            for name in _unseen(kind, rows, recorded.node, view):
                rows = {**rows, name: ""}
            for name, wanted in rows.items():
                if _mark(view, kind, name, recorded.node) == wanted:
                    continue
                event = self._state(kind, name, wanted, recorded)
                if event is not None:
                    view = _taken(view, event)
                else:
                    missing.append(f"{kind} {name}")
        return view, tuple(missing)

    def _state(self, kind: str, name: str, wanted: str, recorded: Recorded) -> Event | None:
        """The event that is nearest in time of those that brought the object into the state wanted."""
        namespace, _, bare = name.rpartition("/")
        states = self._states.get((kind, namespace, bare), [])
        if not wanted:
            return replace(states[-1], type="gone", object=None)
        fitting = [
            each
            for each in states
            if each.type == "put" and _mark(_taken(Snapshot(), each), kind, name, recorded.node) == wanted
        ]
        return min(fitting, key=lambda each: abs(each.observed - recorded.at), default=None)


def before(request: Request, snapshot: Snapshot) -> Snapshot:
    """``snapshot`` as it was before the write of ``request``, as far as the request tells."""
    target = request.target
    if request.kind.name == "Binding" or text(target.get("kind")) not in KINDS:
        return snapshot
    bare = snapshot.remove(target)
    return bare if request.old_object is None else bare.put(request.old_object)


def _taken(snapshot: Snapshot, event: Event) -> Snapshot:
    if event.type == "gone" or event.object is None:
        return snapshot.remove(event.bare())
    return snapshot.put(event.object)


_HELD = {
    "Node": "nodes",
    "Pod": "pods",
    "ResourceClaim": "claims",
    "ResourceSlice": "slices",
    "DriverRollout": "rollouts",
    "NodeLedger": "ledgers",
}


def _mark(snapshot: Snapshot, kind: str, name: str, node: str) -> str:
    namespace, _, bare = name.rpartition("/")
    objects: Mapping[Any, Any] = getattr(snapshot, _HELD[kind])
    return mark(objects.get((namespace, bare) if kind in ("Pod", "ResourceClaim") else bare), node)


def _unseen(kind: str, rows: Mapping[str, str], node: str, snapshot: Snapshot) -> list[str]:
    """The objects on the node that the decision did not see."""
    if len(rows) >= MOST:
        return []
    return [name for each in on_node(snapshot, node).get(kind, ()) if (name := place(each)) not in rows]
