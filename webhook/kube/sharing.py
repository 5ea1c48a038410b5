"""Equal values kept once: what makes a snapshot of a large fleet small.

What is shared must never be written to. Memos are bounded, and what is not found in one is made anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from sys import intern
from typing import Any, TypeVar

import orjson

# Values beyond it are hardly ever equal to others, and keys of the memo are as long.
_LONGEST = 4096
_REMEMBERED = 1 << 13

T = TypeVar("T")


@lru_cache(maxsize=_REMEMBERED)
def _made(content: bytes) -> Any:
    return sharing(orjson.loads(content))


def sharing(value: Any) -> Any:
    """A JSON value equal to ``value``, itself new, whose members are shared."""
    if isinstance(value, dict):
        return {name: shared(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shared(member) for member in value]
    return value


def shared(value: Any) -> Any:
    """A JSON value equal to ``value``; the same one for equal ones, and their members likewise."""
    if isinstance(value, str):
        return intern(value)
    if not isinstance(value, (dict, list)):
        return value
    try:
        content = orjson.dumps(value)
    except (TypeError, ValueError):  # integers beyond 64 bits, lone surrogates and odd keys have no JSON bytes
        return value
    return _made(content) if len(content) <= _LONGEST else sharing(value)


def by_content(read: Callable[[Any], T]) -> Callable[[Any], T]:
    """``read``, a pure function of JSON, that remembers what it gave for equal values: results are shared."""

    @lru_cache(maxsize=_REMEMBERED)
    def known(content: bytes) -> T:
        return read(orjson.loads(content))

    def remembered(value: Any) -> T:
        try:
            return known(orjson.dumps(value))
        except (TypeError, ValueError):  # as above
            return read(value)

    return remembered
