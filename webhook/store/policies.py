"""The policies that serve: read from files, followed as they are edited, the last good set kept."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from webhook import folder
from webhook.policy.compile import PolicyErrors, compile_files
from webhook.policy.problem import Problem
from webhook.policy.revision import Revision


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


class PolicyStore:
    """The revision of the files that ``paths`` name. ``problems`` is what is wrong with the latest edit, while an
    earlier revision serves. Raises PolicyErrors where the files hold no good set to begin with.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._watch = folder.Watch(paths)
        self.problems: tuple[Problem, ...] = ()
        with contextlib.suppress(OSError):  # reading says it better
            for path in folder.files(paths):
                self._watch.mark(path)
        self.revision = read(paths)

    def refresh(self) -> str:
        """Compile the set anew where a file changed: ``loaded``, ``refused``, or empty where nothing changed.

        Raises OSError for a folder that cannot be listed.
        """
        changes = self._watch.look()
        if not changes.changed and not changes.gone:
            return ""
        try:
            self.revision, self.problems = read(self._paths), ()
        except PolicyErrors as errors:
            self.problems = errors.problems
            return "refused"
        return "loaded"
