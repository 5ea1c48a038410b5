"""The policies that serve: read from files and from objects of the cluster, followed as they are edited, the last good
ones kept.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from webhook import folder
from webhook.kube.raw import Json
from webhook.policy.compile import PolicyErrors, compile_files
from webhook.policy.problem import Problem
from webhook.policy.revision import Revision, audited, placed, revision_of
from webhook.registration.configurations import unregistered
from webhook.store.objects import PolicyObject, PolicyObjects

# A condition's message has at most 32,768 characters.
_MOST_LINES, _LONGEST_LINE = 20, 1000


def shipped() -> str:
    """The folder of the policies that come with the guard: in the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_shipped" / "policies"
    return str(installed if installed.is_dir() else package.parent / "policies")


def read(paths: Sequence[str]) -> Revision:
    """The revision of all policy files that ``paths`` name. Raises PolicyErrors, also where there is no policy at all:
    a guard without one would let everything pass.
    """
    contents: dict[str, bytes] = {}
    problems: list[Problem] = []
    for root in paths:
        try:
            for path in folder.files([root]):
                root = path
                contents[path] = folder.read(path, path in paths)
        except OSError as error:
            reason = f"cannot be read: {(error.strerror or str(error)).lower()}"
            problems.append(Problem(root, 0, 0, reason, "make it readable or leave it out"))
    if problems:
        raise PolicyErrors(problems)
    revision = compile_files(contents)
    if not revision.policies:
        raise PolicyErrors([Problem(paths[0] if paths else "", 0, 0, "has no policy", "put an AdmissionPolicy there")])
    return revision


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of an ``AdmissionPolicy`` object: whether its ``generation`` serves, and the reason and message of
    the condition that says so.
    """

    uid: str
    generation: int
    ready: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Serving:
    revision: Revision
    problems: tuple[Problem, ...]
    verdicts: Mapping[str, Verdict]
    replaced: tuple[str, ...]


class PolicyStore:
    """The policies of the files that ``paths`` name and of the ``AdmissionPolicy`` objects given to it; an object
    stands in place of a file's policy of the same name. ``audit``: nothing is more than audited; ``namespace`` is that
    of the guard, whose free-claims allocates.

    Files are taken in whole or not at all, as one edit; objects one by one. Raises PolicyErrors where the files hold no
    good set to begin with. To be used from any thread; who judges reads :attr:`revision`, which never waits.
    """

    def __init__(self, paths: Sequence[str], audit: bool = False, namespace: str = "allocguard-system") -> None:
        self._paths = tuple(paths)
        self._audit, self._namespace = audit, namespace
        self._watch = folder.Watch(paths)
        with contextlib.suppress(OSError):  # reading says it better
            for path in folder.files(paths):
                self._watch.mark(path)
        self._lock = threading.Lock()
        self._files = read(paths)
        self._file_problems: tuple[Problem, ...] = ()
        self._objects = PolicyObjects()
        self._serving = self._told(self._combined())

    @property
    def revision(self) -> Revision:
        """What serves."""
        return self._serving.revision

    @property
    def enforced(self) -> Revision:
        """The same policies with the actions that they are written with, also where nothing is more than audited."""
        return self._enforced

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with the latest edit of the files, and with the objects that do not compile: what they said
        before serves.
        """
        return self._serving.problems

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """What became of each object, by name."""
        return self._serving.verdicts

    @property
    def replaced(self) -> tuple[str, ...]:
        """The names of the files' policies in whose place objects stand."""
        return self._serving.replaced

    def refresh(self) -> str:
        """Compile the files anew where one changed: ``loaded``, ``refused``, or empty where nothing changed.

        Raises OSError for a folder that cannot be listed.
        """
        changes = self._watch.look()
        if not changes.changed and not changes.gone:
            return ""
        with self._lock:
            try:
                self._files, self._file_problems = read(self._paths), ()
            except PolicyErrors as errors:
                self._file_problems = errors.problems
                self._serving = self._told(self._serving.revision)
                return "refused"
            self._serving = self._told(self._combined())
            return "loaded"

    def set_objects(self, objs: Mapping[str, Json]) -> str:
        """Make ``objs`` (raw, by name) all the objects that there are, and compile those whose content is new:
        ``refused`` where one of these does not compile, else ``loaded``, or empty where no content changed.
        """
        with self._lock:
            changed = self._objects.take(objs)
            self._serving = self._told(self._combined() if changed else self._serving.revision)
            if not changed:
                return ""
            bad = any(entry.problems for name, entry in self._objects.items() if name in changed)
            return "refused" if bad else "loaded"

    def _combined(self) -> Revision:
        objects = [entry.good for _, entry in self._objects.items() if entry.good is not None]
        policies = {compiled.name: compiled for compiled in (*self._files.policies, *objects)}
        self._enforced = placed(revision_of(policies.values()), self._namespace)
        return audited(self._enforced) if self._audit else self._enforced

    def _told(self, revision: Revision) -> _Serving:
        in_files = {compiled.name for compiled in self._files.policies}
        problems = [problem for _, entry in self._objects.items() for problem in entry.problems]
        verdicts = {name: _verdict(entry, self._audit, name in in_files) for name, entry in self._objects.items()}
        replaced = tuple(name for name, entry in self._objects.items() if entry.good is not None and name in in_files)
        return _Serving(revision, (*self._file_problems, *problems), verdicts, replaced)


def _verdict(entry: PolicyObject, audit: bool, in_files: bool) -> Verdict:
    if not entry.problems:
        # Nothing that an edit of another object changes: each edit would have all statuses written.
        lines = [f"serves{', in place of that in the files' if in_files else ''}{', audited only' if audit else ''}"]
        # A policy that is good and never asked would look like one that finds nothing.
        lines += [line.partition(": ")[2] for line in unregistered(revision_of([entry.good] if entry.good else []))]
        return Verdict(entry.uid, entry.generation, True, "Serving", "\n".join(lines))
    if entry.good is not None:
        rest = f"what it said in generation {entry.good_generation} goes on serving"
    elif in_files:
        rest = "the policy of this name in the files serves"
    else:
        rest = "left out: it has not compiled since this server started"
    # One line a problem, without the object's own name.
    lines = [replace(problem, file="").text[:_LONGEST_LINE] for problem in entry.problems[:_MOST_LINES]]
    if len(entry.problems) > len(lines):
        lines.append(f"and {len(entry.problems) - len(lines)} more problems")
    return Verdict(entry.uid, entry.generation, False, "DoesNotCompile", "\n".join([*lines, rest]))
