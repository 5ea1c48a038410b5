"""A cluster that is kept in files: ``--cluster``, read once or watched."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b

from msgspec.structs import replace

from webhook import folder
from webhook.cluster.recorder import Recorder, Unrecorded
from webhook.facts.rollout_document import document_problems
from webhook.kube import schema
from webhook.kube.documents import Document, Unreadable, load
from webhook.kube.field_hints import sketched_release
from webhook.kube.node_ledger import KIND as LEDGER
from webhook.kube.node_ledger import stored_node_ledger
from webhook.kube.raw import Json, mapping, text
from webhook.kube.release import SUPPORTED, Release
from webhook.kube.resource import carries
from webhook.kube.rollout import GROUP
from webhook.kube.snapshot import KINDS, Snapshot

Key = tuple[str, str, str]

# Rules of the schema about values that have a wrong type, not about fields of another release.
_UNDECODED = frozenset({"decode", "multiplier-not-quantity", "mapping-is-list"})


def read(path: str, named: bool = False) -> list[Document | Unreadable]:
    """The documents of one file, or of standard input for ``-``. A file that cannot be read is one Unreadable.

    A pipe is read only where it was ``named``.
    """
    try:
        data = folder.read(path, named)
    except OSError as error:
        reason = f"cannot be read: {(error.strerror or str(error)).lower()}"
        return [Unreadable(path, 1, 1, reason, "make it readable or leave it out", 1)]
    return load(data, path)


def documents(paths: Sequence[str]) -> Iterator[Document | Unreadable]:
    """The documents of all files that ``paths`` name, in order. Raises OSError for a path that is not there."""
    for path in folder.files(paths):
        yield from read(path, path in paths)


def choose_release(shapes: Mapping[str, int], minor: int | None, gates: Mapping[str, bool]) -> Release:
    """The release to judge by: the one asked for, else the newest whose fields fit most objects.

    ``shapes`` counts the objects that carry the field of a release (``1.36``, ``1.37``).
    """
    return Release(max(SUPPORTED, key=lambda m: (shapes.get(f"1.{m}", 0), m)) if minor is None else minor, gates)


def shapes_of(objects: Iterable[Json]) -> Counter[str]:
    """How many of ``objects`` carry the field of each release, be it in the wrong place."""
    return Counter(shape for obj in objects for shape in carries([obj]) or filter(None, [sketched_release(obj)]))


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the cycle collector: it would visit, over and over, the millions of values that are being read."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


@dataclass(slots=True)
class _File:
    keys: dict[Key, int] = field(default_factory=dict)
    shapes: Counter[str] = field(default_factory=Counter)


class Cluster:
    """The objects of the files that ``paths`` name, as a snapshot.

    An object given twice (kind, namespace, name) counts as the later path, file or document has it; ``notes`` says so,
    and what is wrong with a DriverRollout.
    ``problems`` is what could not be read. ``minor`` None chooses the release by the objects. ``recorder`` is told
    what changes. Raises OSError for a path that is not there.
    """

    def __init__(
        self,
        paths: Sequence[str],
        minor: int | None = None,
        gates: Mapping[str, bool] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._recorder = recorder or Unrecorded()
        self._minor = minor
        self._gates = dict(gates or {})
        self._watch = folder.Watch(paths)
        self._order: dict[str, int] = {}
        self._files: dict[str, _File] = {}
        self._holders: dict[Key, list[str]] = {}
        self._problems: dict[str, tuple[Unreadable, ...]] = {}
        self._shapes: Counter[str] = Counter()
        self._even = True
        self._other: tuple[Snapshot, Snapshot] | None = None
        self._decoded: set[bytes] = set()
        self.notes: list[str] = []
        self._next = self.snapshot = Snapshot()
        with _uncollected():
            found = list(folder.files(paths))
            self._order = {path: index for index, path in enumerate(found)}
            notes: list[str] = []
            # From the last on: of what a later file has too nothing is told.
            for path in reversed(found):
                self._watch.mark(path)
                self._take(path, read(path, path in paths))
                self.notes, notes = [], [*self.notes, *notes]
            self.notes = notes
        self._settle()
        self._tell_whole()

    @property
    def problems(self) -> tuple[Unreadable, ...]:
        """What could not be read, by file."""
        return tuple(problem for path in sorted(self._problems) for problem in self._problems[path])

    @property
    def synced(self) -> bool:
        """Whether everything has been seen once."""
        return True

    def checks(self) -> list[tuple[str, bool, str]]:
        """(check, whether it is fine, what to know) for ``/readyz``."""
        broken = self.problems
        first = f"{broken[0].file}:{broken[0].line}:{broken[0].column}: {broken[0].message}" if broken else ""
        return [("cluster", True, f"ok, but {len(broken)} cannot be read: {first}" if broken else "ok")]

    @property
    def shapes(self) -> Counter[str]:
        """How many of the objects carry the field of each release."""
        return self._shapes

    def snapshot_for(self, obj: Json | None) -> Snapshot:
        """The snapshot to judge ``obj`` by: its release is chosen with ``obj`` counted too."""
        snapshot = self.snapshot
        # One object more changes nothing unless the two releases are as good as equal.
        if self._minor is not None or obj is None or not self._even:
            return snapshot
        shapes = carries([obj])
        if not shapes:
            return snapshot
        release = choose_release(self._shapes + Counter(shapes), None, self._gates)
        if release.minor == snapshot.release.minor:
            return snapshot
        other = self._other
        if other is None or other[0] is not snapshot:
            # Kept, as what is remembered about a snapshot hangs on the identity of its parts.
            other = self._other = (snapshot, replace(snapshot, release=release))
        return other[1]

    def refresh(self) -> list[str]:
        """Read what changed since the last look; gives the files whose state is another one now.

        A file that cannot be read whole any more keeps the objects it had, and is among ``problems`` until it can.
        The snapshot is replaced once everything is in. Raises OSError for a folder that cannot be listed.
        """
        if self._recorder.wants():
            self._tell_again()
        changes = self._watch.look()
        if not changes.changed and not changes.gone:
            return []
        self.notes = []
        self._order = {path: index for index, path in enumerate(changes.files)}
        for path in changes.gone:
            self._take(path, [])
            del self._files[path]
        for path in reversed(changes.changed):
            found = read(path)
            broken = tuple(item for item in found if isinstance(item, Unreadable))
            if broken and path in self._files and self._files[path].keys:
                self._problems[path] = broken
            else:
                self._take(path, found)
        self._settle()
        return [*changes.gone, *changes.changed]

    def _take(self, path: str, found: Iterable[Document | Unreadable]) -> None:
        """Make ``found`` what the file at ``path`` holds."""
        before = self._files.get(path, _File())
        now = _File()
        puts: dict[Key, Json] = {}
        broken: list[Unreadable] = []
        for item in found:
            if isinstance(item, Unreadable):
                broken.append(item)
                continue
            key = _key(item.value)
            if not key[2]:
                self.notes.append(f"{path}: document {item.index}: has no metadata.name, is left out")
                continue
            doubts = _DOUBTS.get(key[0], self._undecoded)
            self.notes += doubts(item)
            now.shapes.update(carries([item.value]))
            if key in now.keys:
                self.notes.append(_twice(key, f"{path}: document {item.index}", f"document {now.keys[key]}"))
            now.keys[key] = item.index
            if self._last_holder(key, path):
                puts[key] = item.value
        for obj in puts.values():
            self._put(obj)
        self._files[path] = now
        self._problems.pop(path, None)
        if broken:
            self._problems[path] = tuple(broken)
        self._shapes = self._shapes - before.shapes + now.shapes
        for key in before.keys.keys() - now.keys.keys():
            self._drop(key, path)

    def _undecoded(self, document: Document) -> Iterator[str]:
        """What no API server can have stored, a value of a wrong type: it counts as absent, and is not passed over in
        silence. Types are the same in both releases.
        """
        obj = document.value
        # The nodes of a fleet publish the same devices: equal lists are looked at once.
        devices = mapping(obj.get("spec")).get("devices")
        digest = b""
        if isinstance(devices, list):
            digest = blake2b(repr(devices).encode("utf-8", "backslashreplace"), digest_size=16).digest()
        looked = {**obj, "spec": {**obj["spec"], "devices": []}} if digest in self._decoded else obj
        wrong = [each for each in schema.problems(looked, Release(max(SUPPORTED))) if each.rule in _UNDECODED]
        if digest and not wrong:
            self._decoded.add(digest)
        name = text(mapping(obj.get("metadata")).get("name"))
        for each in wrong:
            line, column = document.position(each.path)
            told = f"{text(obj.get('kind'))} {name}: {each.path}: {each.message}"
            yield f"{document.file}:{line}:{column}: {told}; it counts as absent"

    def _last_holder(self, key: Key, path: str) -> bool:
        """Note that ``path`` holds ``key``; whether no later file does."""
        holders = self._holders.get(key)
        if holders is None:
            self._holders[key] = [path]
            return True
        if path not in holders:
            holders.append(path)
            holders.sort(key=lambda name: self._order.get(name, -1))
            self.notes.append(_twice(key, holders[-1], holders[-2]))
        return holders[-1] == path

    def _drop(self, key: Key, path: str) -> None:
        """Note that ``path`` no longer holds ``key``; an earlier file that does comes into its own again."""
        holders = self._holders[key]
        was_last = holders[-1] == path
        holders.remove(path)
        if not holders:
            del self._holders[key]
            self._next = self._next.remove(_stub(key))
            self._recorder.gone(_stub(key))
        elif was_last:
            items = [item for item in read(holders[-1]) if isinstance(item, Document) and _key(item.value) == key]
            for item in items[-1:]:
                self._put(item.value)

    def _put(self, obj: Json) -> None:
        self._next = self._next.put(obj)
        self._recorder.put(obj)

    def _settle(self) -> None:
        counts = sorted(self._shapes.get(f"1.{minor}", 0) for minor in SUPPORTED)
        self._even = counts[-1] - counts[-2] <= 1
        release = choose_release(self._shapes, self._minor, self._gates)
        self.snapshot = self._next = replace(self._next, release=release)
        self._recorder.judged(release)

    def _tell_again(self) -> None:
        for path in self._order:
            items = [item for item in read(path) if isinstance(item, Document)] if path != folder.STDIN else []
            # What was edited since it was taken in is told when that is.
            for key, obj in {_key(item.value): item.value for item in items}.items():
                if self._holders.get(key, [""])[-1] == path:
                    self._recorder.put(obj)
        self._tell_whole()

    def _tell_whole(self) -> None:
        for kind in sorted(KINDS):
            self._recorder.whole(kind, self.snapshot.keys(kind))


def _key(obj: Json) -> Key:
    metadata = mapping(obj.get("metadata"))
    group = text(obj.get("apiVersion")).rpartition("/")[0]
    return (f"{group}/{text(obj.get('kind'))}", text(metadata.get("namespace")), text(metadata.get("name")))


def _stub(key: Key) -> Json:
    group, _, kind = key[0].rpartition("/")
    return {
        "apiVersion": f"{group}/v1" if group else "v1",
        "kind": kind,
        "metadata": {"namespace": key[1], "name": key[2]},
    }


def _doubts(document: Document) -> Iterator[str]:
    """What is wrong with a DriverRollout. It is taken nevertheless, each value that cannot be read on its safe side."""
    name = text(mapping(document.value.get("metadata")).get("name"))
    for each in document_problems(document.value):
        line, column = document.position(each.path)
        told = f"DriverRollout {name}: {each.path}: {each.message}"
        yield f"{document.file}:{line}:{column}: " + "; ".join(filter(None, (told, each.fix)))


def _unread(document: Document) -> Iterator[str]:
    """What is wrong with a NodeLedger, which then holds nothing."""
    ledger = stored_node_ledger(document.value)
    if ledger.problem:
        path = ledger.problem.partition(": ")[0]
        line, column = document.position(path)
        told = f"NodeLedger {ledger.node}: {ledger.problem}"
        yield f"{document.file}:{line}:{column}: {told}; it counts as empty"


_DOUBTS = {f"{GROUP}/DriverRollout": _doubts, f"{GROUP}/{LEDGER}": _unread}


def _twice(key: Key, later: str, earlier: str) -> str:
    name = "/".join(filter(None, key[1:]))
    return f"{later}: {key[0].rpartition('/')[2]} {name} stands in {earlier} too, the later one counts"
