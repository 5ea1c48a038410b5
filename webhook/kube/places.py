"""Where each part of a document stands in its text, found by Kubernetes field path."""

from __future__ import annotations

import re
from collections.abc import Iterator

_INDEX = re.compile(r"\[(\d+)\]")


class UnparsableError(ValueError):
    """A text that is no YAML or JSON document as Kubernetes takes it: what is wrong, where (from 1), what to do."""

    def __init__(self, message: str, line: int, column: int, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.fix = fix


class Place:
    """A line and a column (both from 1) and the places of what is inside; a member's place is that of its key."""

    __slots__ = ("column", "inner", "line")

    def __init__(self, line: int, column: int, inner: dict[str, Place] | list[Place] | None = None) -> None:
        self.line = line
        self.column = column
        self.inner = inner

    def find(self, path: str) -> Place:
        """The place of a field path (`spec.devices[3].capacity[cpu.x/cpus].value`), or of its nearest parent here.

        The API server leaves the steps `basic` (v1beta1) out of its paths and `exactly` in them, whatever the version
        of the object, so both may be missing on either side.
        """
        place = self
        rest = path
        while rest:
            step = next(place._steps(rest), None)
            if step is None and rest.startswith((".exactly", "exactly")):
                rest = rest.removeprefix(".").removeprefix("exactly")
                continue
            if step is None and isinstance(place.inner, dict) and "basic" in place.inner:
                step = (place.inner["basic"], rest)
            if step is None:
                break
            place, rest = step
        return place

    def _steps(self, path: str) -> Iterator[tuple[Place, str]]:
        """The members that the path can begin with, longest name first: keys may hold dots and brackets."""
        if isinstance(self.inner, list):
            match = _INDEX.match(path)
            if match and int(match.group(1)) < len(self.inner):
                yield self.inner[int(match.group(1))], path[match.end() :]
        elif isinstance(self.inner, dict):
            bare = path.removeprefix(".")
            for key in sorted(self.inner, key=len, reverse=True):
                for text, form in ((path, f"[{key}]"), (bare, key)):
                    if text.startswith(form) and text[len(form) : len(form) + 1] in ("", ".", "["):
                        yield self.inner[key], text[len(form) :]
