"""Series whose labels others choose: no more of them than there may be, whatever comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from prometheus_client import Counter, Histogram

from webhook.telemetry.lines import showable

# Of one family: several times what a cluster with many drivers and policies has.
MAX_CHILDREN = 1_000
OTHER = "other"

F = TypeVar("F", Counter, Histogram)


class Bounded(Generic[F]):
    """The series of ``family`` by the values of its labels, the first ``theirs`` of which others choose. What is beyond
    the limit, or cannot be shown, counts under ``other``, and ``dropped`` is called each time. For any thread.
    """

    def __init__(self, family: F, theirs: int, dropped: Callable[[], object]) -> None:
        self._family: F = family
        self._theirs, self._dropped = theirs, dropped
        self._children: dict[tuple[str, ...], F] = {}

    def of(self, *values: str) -> F:
        """The series of ``values``."""
        child = self._children.get(values)
        if child is not None:
            return child
        if len(self._children) >= MAX_CHILDREN or not all(map(showable, values)):
            self._dropped()
            values = (*[OTHER] * self._theirs, *values[self._theirs :])
            other: F = self._family.labels(*values)
            return other
        made: F = self._family.labels(*values)
        self._children[values] = made
        return made
