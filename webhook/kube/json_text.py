"""JSON as the API server takes it, strictly: no key twice, no NaN, bounded depth, with places."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NoReturn

from webhook.kube.places import Place, UnparsableError
from webhook.kube.yaml_text import MAX_DEPTH, number

_SPACE = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(r'[ \t\r\n]*("(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+)')
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)")


class _RefusedError(Exception):
    """Something that only the slow reader can place."""


def values(text: str) -> Iterator[Any]:
    """The value of each JSON document that stands in the text, one after the other. Raises UnparsableError."""
    text = _without_lone_surrogates(text)
    end = _skip(text, 0)
    while end < len(text):
        start = end
        try:
            value, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            fix = "the text may be cut off" if error.pos >= len(text.rstrip()) else ""
            raise UnparsableError(f"is no JSON: {error.msg.lower()}", error.lineno, error.colno, fix) from None
        except (RecursionError, _RefusedError):
            _refuse(text, start)
        except ValueError:
            raise UnparsableError("has a number of more than 4300 digits", *_Reader(text).at(start)) from None
        if too_deep(value):
            _refuse(text, start)
        yield value
        end = _skip(text, end)


def places(text: str) -> Iterator[Place]:
    """The place of each document that values() gives, and its end, which may be an UnparsableError, too."""
    reader = _Reader(_without_lone_surrogates(text))
    end = _skip(text, 0)
    while end < len(text):
        place, end = reader.read(end, 0)
        yield place
        end = _skip(text, end)


def _refuse(text: str, start: int) -> NoReturn:
    _Reader(text).read(start, 0)
    raise AssertionError("the slow reader found nothing wrong")


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _without_lone_surrogates(text: str) -> str:
    """Half a surrogate pair stands for no character: Go reads U+FFFD, and Python could not print what it reads."""
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return _ESCAPE.sub(
        lambda match: "\\ufffd" if len(match.group()) == 6 and match.group()[2] in "dD" else match.group(), text
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _RefusedError
    return members


def _constant(name: str) -> NoReturn:
    raise _RefusedError(name)


def _number(text: str) -> int | float | str:
    """A number, or the text itself where a float has no such value: a quantity may still have it."""
    value = number(text)
    return text if value is None else value


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant, parse_float=_number)


def too_deep(value: object) -> bool:
    """Whether lists and maps are nested more than MAX_DEPTH levels deep in ``value``."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return False
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node)
            if type(child) is dict or type(child) is list
        ]
    return bool(level)


class _Reader:
    """Reads for places and for what the fast decoder refused without saying where; the syntax is known to be right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(self, position: int) -> tuple[int, int]:
        """Line and column, both from 1, of a position in the text."""
        line = bisect_right(self._lines, position)
        return line, position - self._lines[line - 1] + 1

    def read(self, position: int, depth: int) -> tuple[Place, int]:
        """The place of the value that begins at the position, and where it ends."""
        token, start, end = self._token(position)
        if depth > MAX_DEPTH:
            raise UnparsableError(f"is nested more than {MAX_DEPTH} levels deep", *self.at(start))
        place = Place(*self.at(start))
        if token == "{":
            place.inner, end = self._members(end, depth)
        elif token == "[":
            place.inner, end = self._items(end, depth)
        elif token in ("NaN", "Infinity", "-Infinity"):
            raise UnparsableError(f"has {token}, which is no JSON", *self.at(start))
        return place, end

    def _members(self, end: int, depth: int) -> tuple[dict[str, Place], int]:
        members: dict[str, Place] = {}
        while True:
            token, start, end = self._token(end)
            if token == "}":
                return members, end
            if token == ",":
                continue
            key = json.loads(token)
            if key in members:
                raise UnparsableError(f"has the key {key!r} twice", *self.at(start), "keep one of them")
            _, _, end = self._token(end)
            value, end = self.read(end, depth + 1)
            members[key] = Place(*self.at(start), value.inner)

    def _items(self, end: int, depth: int) -> tuple[list[Place], int]:
        items: list[Place] = []
        while True:
            token, _, after = self._token(end)
            if token == "]":
                return items, after
            if token == ",":
                end = after
                continue
            place, end = self.read(end, depth + 1)
            items.append(place)

    def _token(self, position: int) -> tuple[str, int, int]:
        match = _TOKEN.match(self._text, position)
        if match is None:
            raise UnparsableError("is no JSON", *self.at(position))
        return match.group(1), match.start(1), match.end()
