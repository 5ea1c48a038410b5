"""Safe readers of raw JSON: whatever stands in the object, the caller gets the type it asked for.

The API server accepts ``null`` for any field, and files hold anything; a wrong type is reported by
:mod:`webhook.kube.schema`, so these readers only have to treat it as absent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]

_NOTHING: Json = {}
_EMPTY: list[Any] = []


def mapping(value: object) -> Json:
    """``value`` when it is a JSON object, else an empty one (never to be written to)."""
    return value if isinstance(value, dict) else _NOTHING


def sequence(value: object) -> list[Any]:
    """``value`` when it is a JSON array, else an empty one (never to be written to)."""
    return value if isinstance(value, list) else _EMPTY


def objects(value: object) -> Iterable[tuple[int, Json]]:
    """Index and value of each JSON object in the array ``value``; other members are skipped."""
    if not isinstance(value, list) or not value:
        return ()
    return [(index, item) for index, item in enumerate(value) if isinstance(item, dict)]


def indexed(items: object) -> list[tuple[int, Json]]:
    """As :func:`objects`, but null counts as an empty object, as the server decodes it."""
    return [
        (index, item if item else _NOTHING)
        for index, item in enumerate(sequence(items))
        if isinstance(item, dict) or item is None
    ]


def members(value: object) -> list[Json]:
    """The JSON objects in the array ``value``; other members are skipped."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) and value else _EMPTY


def text(value: object) -> str:
    """``value`` when it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def integer(value: object, default: int = 0) -> int:
    """``value`` when it is a whole JSON number, else ``default``."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def flag(value: object) -> bool:
    """True only for the JSON value ``true``."""
    return value is True


def child(value: object, *names: str) -> object:
    """The member reached by ``names``, or None as soon as one is missing."""
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value
