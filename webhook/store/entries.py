"""From what a view of the cluster tells to the rows of the journal: what changes nothing is not written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Final

from webhook.facts.times import stamp
from webhook.kube.raw import Json, mapping, sequence, text
from webhook.kube.release import Release
from webhook.kube.resource_version import version
from webhook.ledger.events import Event, event_json, event_of
from webhook.ledger.recorded import encoded, recorded
from webhook.store.segment import Entry, Key, Latest, Segment

# Of these a new version alone is no change: most of their writes are heartbeats and progress that is not recorded. The
# version of a slice or claim is part of a charge.
_BUSY: Final = frozenset({"Node", "Pod"})


class EarlierError(Exception):
    """An object is told in a state from before its last one, by its version, or from before it was gone: the store of
    the cluster was put back to an earlier one, and hands out versions a second time. Or, in files, it was removed and
    put back, or is without a version where it had one, which nobody could put in order. ``before`` is how many of what
    was told come before that.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.before = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """An object that was made or changed, or that is gone."""

    obj: Json
    observed: datetime
    gone: bool

    @property
    def kind(self) -> str:
        """Its kind."""
        return text(self.obj.get("kind"))

    @property
    def weight(self) -> int:
        """How much it holds while it waits; slices are large by their devices."""
        return 1 + len(sequence(mapping(self.obj.get("spec")).get("devices")))


@dataclass(frozen=True, slots=True)
class Whole:
    """All objects (namespace, name) of a kind that there are at a moment."""

    kind: str
    keys: frozenset[tuple[str, str]]
    observed: datetime
    weight = 1


@dataclass(frozen=True, slots=True)
class Judged:
    """The release that is judged by from a moment on."""

    release: Release
    observed: datetime
    kind = "Release"
    weight = 1


Told = Seen | Whole | Judged


def entries(
    segment: Segment, told: Sequence[Told], lost: Mapping[str, int], release: Release | None, now: datetime
) -> tuple[list[Entry], Release | None]:
    """The rows for ``told``, after those of ``segment``, which was last told ``release``; and the release told last.
    ``lost`` is how many events of each kind are missing from here on, until everything was told again. Raises
    EarlierError.
    """
    held = _Held(segment)
    made: list[Entry | None] = []
    if lost:
        made.append(Entry("gap", encoded({"observed": stamp(now, "auto"), "lost": dict(lost)})))
    for index, item in enumerate(told):
        match item:
            case Seen(obj, observed, gone=True):
                made.append(_gone(_key(obj), _version(obj), observed, held))
            case Seen(obj, observed):
                try:
                    made.append(_put(obj, observed, held))
                except EarlierError as error:
                    error.before = index
                    raise
            case Whole(kind, keys, observed):
                made += [_gone(key, "", observed, held) for key in held.keys(kind) if (key[1], key[2]) not in keys]
            case Judged(judged, observed) if judged != release:
                release = judged
                value = {"observed": stamp(observed, "auto"), "minor": release.minor, "gates": dict(release.gates)}
                made.append(Entry("release", encoded(value)))
    return [each for each in made if each is not None], release


class _Held:
    """What was last written of each object: in the segment, or in rows that are yet to come."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._new: dict[Key, Latest] = {}

    def get(self, key: Key) -> Latest | None:
        return self._new.get(key) or self._segment.latest(key)

    def set(self, key: Key, latest: Latest) -> None:
        self._new[key] = latest

    def keys(self, kind: str) -> list[Key]:
        new = {key: latest for key, latest in self._new.items() if key[0] == kind}
        keys = dict.fromkeys((*self._segment.keys(kind), *new))
        return [key for key in keys if key not in new or not new[key].gone]


def _put(obj: Json, observed: datetime, held: _Held) -> Entry | None:
    kept = recorded(obj)
    if kept is None:
        return None
    try:
        event = event_of(kept, observed)
    except ValueError:  # without a name it is no object of the cluster
        return None
    content = _content(kept)
    known = held.get(event.place)
    if known is not None:
        if known.uid == event.uid and known.content == content:
            return None
        now, then = version(event.resource_version), version(known.version)
        if now < then or (known.gone and now == then >= 0):
            said = f"at version {event.resource_version}" if event.resource_version else "without a version"
            after = f"after {'it was gone at ' if known.gone else ''}version {known.version}"
            raise EarlierError(f"{'/'.join(filter(None, event.place))} {said}, {after}")
    latest = Latest(event.uid, event.resource_version, content)
    held.set(event.place, latest)
    return Entry("event", encoded(event_json(event)), event.place, latest)


def _gone(key: Key, deleted: str, observed: datetime, held: _Held) -> Entry | None:
    known = held.get(key)
    if known is None or known.gone:
        return None
    latest = Latest(known.uid, deleted or known.version, b"")
    held.set(key, latest)
    event = Event("gone", *key, latest.uid, latest.version, observed, "", None)
    return Entry("event", encoded(event_json(event)), key, latest)


def _content(kept: Json) -> bytes:
    if kept["kind"] in _BUSY:
        metadata = {name: value for name, value in kept["metadata"].items() if name != "resourceVersion"}
        kept = {**kept, "metadata": metadata}
    return blake2b(encoded(kept), digest_size=16).digest()


def _key(obj: Json) -> Key:
    metadata = mapping(obj.get("metadata"))
    return (text(obj.get("kind")), text(metadata.get("namespace")), text(metadata.get("name")))


def _version(obj: Json) -> str:
    return text(mapping(obj.get("metadata")).get("resourceVersion"))
