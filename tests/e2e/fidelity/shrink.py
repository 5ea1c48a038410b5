"""The smallest object that still shows what a larger one shows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from tests.e2e.fidelity.objects import Object

_TRIES = 400


def shrunk(obj: Object, shows: Callable[[Object], bool]) -> Object:
    """``obj`` without every member and item that can go, one at a time, while ``shows`` holds; 400 tries at most."""
    tries = 0
    smaller = True
    while smaller:
        smaller = False
        for path in _paths(obj):
            candidate = copy.deepcopy(obj)
            holder: Any = candidate
            for step in path[:-1]:
                holder = holder[step]
            del holder[path[-1]]
            tries += 1
            if tries > _TRIES:
                return obj
            if shows(candidate):
                obj, smaller = candidate, True
                break
    return obj


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Shallow places first: what goes with them need not be tried."""
    level = [(path, value)]
    while level:
        below: list[tuple[tuple[Any, ...], Any]] = []
        for at, each in level:
            steps = (
                list(each) if isinstance(each, dict) else reversed(range(len(each))) if isinstance(each, list) else ()
            )
            below += [((*at, step), each[step]) for step in steps]
        for at, _ in below:
            if at[0] not in ("apiVersion", "kind") and at != ("metadata", "name"):
                yield at
        level = below
