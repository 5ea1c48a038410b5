"""YAML as Kubernetes reads it: what kubectl and the API server make of a text, with places.

They use a YAML 1.1 reader of their own kind: `no`, `on` and `y` are booleans, `017` is 15, `1_000` is 1000, dates stay
text, sixty-based numbers are text, a whole number beyond 64 bits is a float. The values here are those (checked against
vectors of sigs.k8s.io/yaml). Refused although Go takes them: keys given twice, tags beyond the plain types, a merge
that would overwrite a key written before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final, TypeAlias

import yaml

from webhook.kube.places import Place, UnparsableError

MAX_DEPTH: Final = 100
# What aliases may add to a document: enough for any file written by hand, far from a text that unfolds without end.
_MAX_ALIASED = 100_000

# The stubs give events neither the marks nor the tags and anchors that they always have here.
_Event: TypeAlias = Any

_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
}
_NO_JSON: Final = frozenset(
    sign + word for word in (".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN") for sign in ("", "+", "-")
) - {sign + word for word in (".nan", ".NaN", ".NAN") for sign in "+-"}
_FIRST_OF_NUMBER = frozenset("+-.0123456789")
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_POINT_FLOAT = re.compile(r"\.[0-9](?:_?[0-9])*(?:[eE][-+]?[0-9](?:_?[0-9])*)?")

_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS: Final = {_TAG + "str": str, _TAG + "int": int, _TAG + "float": float, _TAG + "bool": bool}
_TEXT_TAGS = frozenset(("!", _TAG + "str", _TAG + "timestamp"))


def values(text: str) -> Iterator[Any]:
    """The value of each document of a YAML stream, None for an empty one. Raises UnparsableError where it is broken;
    what came before was given already.
    """
    for value, _ in _Reader(text, with_places=False).documents():
        yield value


def places(text: str) -> Iterator[Place]:
    """The place of each document that values() gives, and its end, which may be an UnparsableError, too."""
    for _, place in _Reader(text, with_places=True).documents():
        if place is not None:
            yield place


def plain(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar without a tag."""
    if text in _WORDS:
        return _WORDS[text]
    first = text[0]
    if first not in _FIRST_OF_NUMBER:
        return text
    if first == ".":
        return _or_text(text, text) if _POINT_FLOAT.fullmatch(text) else text
    digits = text.replace("_", "")
    match = _INTEGER.fullmatch(digits)
    if match is not None and len(digits) < 100:
        sign, hexadecimal, binary, octal, decimal = match.groups()
        bases = ((16, hexadecimal), (2, binary), (8, octal), (10, decimal))
        value = next(int(part, base) for base, part in bases if part is not None)
        value = -value if sign == "-" else value
        if -(2**63) <= value < (2**63 if sign else 2**64):
            return value
    return _or_text(digits, text) if _FLOAT.fullmatch(digits) else text


def number(digits: str) -> int | float | None:
    """The value of a number with a point or an exponent as Go writes it to JSON; None beyond what a float holds."""
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        return None
    # encoding/json writes whole floats below 10**21 without point and exponent, in their shortest digits.
    return int(Fraction(repr(value))) if value.is_integer() and abs(value) < 1e21 else value


def _or_text(digits: str, text: str) -> int | float | str:
    value = number(digits)
    return text if value is None else value


class _Anchor:
    """What an alias stands for, with what it adds to the number of nodes and to the depth."""

    __slots__ = ("height", "place", "size", "value")

    def __init__(self, value: Any, place: Place | None, height: int, size: int) -> None:
        self.value = value
        self.place = place
        self.height = height
        self.size = size


class _Reader:
    """Builds values straight from the parser's events: a composer would cost twice the time and forget the styles."""

    def __init__(self, text: str, with_places: bool) -> None:
        self._events = self._marked_events(text)
        self._with_places = with_places
        self._anchors: dict[str, _Anchor] = {}
        self._nodes = 0
        self._aliased = 0

    def documents(self) -> Iterator[tuple[Any, Place | None]]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                value, place, _ = self._node(next(self._events), 0)
                yield value, place

    def _marked_events(self, text: str) -> Iterator[_Event]:
        try:
            yield from yaml.parse(text, Loader=yaml.CSafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line, mark.column) if mark else (0, 0)
            raise _syntax_error(text, error.problem or "is no YAML", line, column) from None
        except yaml.reader.ReaderError as error:
            before = text.encode("utf-8")[: error.position].decode("utf-8", "replace")
            line, column = before.count("\n"), len(before) - (before.rfind("\n") + 1)
            message = f"has the control character 0x{error.character & 0x1FFFFF:02x}"
            raise UnparsableError(message, line + 1, column + 1, "remove it") from None

    def _node(self, event: _Event, depth: int) -> tuple[Any, Place | None, int]:
        """(value, place, height) of the node that begins with the event."""
        if depth > MAX_DEPTH:
            raise _error(event, f"is nested more than {MAX_DEPTH} levels deep")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, depth)
        first = self._nodes
        self._nodes += 1
        value: Any
        inner: dict[str, Place] | list[Place] | None = None
        height = 0
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            value, inner, height = self._mapping(event, depth)
        else:
            value, inner, height = self._sequence(event, depth)
        place = _place(event, inner) if self._with_places else None
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchor(value, place, height, self._nodes - first)
        return value, place, height

    def _alias(self, event: _Event, depth: int) -> tuple[Any, Place | None, int]:
        anchor = self._anchors.get(event.anchor)
        if anchor is None:
            raise _error(event, f"has the alias *{event.anchor}, which is not defined before it")
        self._nodes += anchor.size
        self._aliased += anchor.size
        if self._aliased > _MAX_ALIASED:
            raise _error(event, f"has aliases that unfold to more than {_MAX_ALIASED} values")
        if depth + anchor.height > MAX_DEPTH:
            raise _error(event, f"is nested more than {MAX_DEPTH} levels deep")
        place = _place(event, anchor.place.inner) if anchor.place else None
        return anchor.value, place, anchor.height

    def _sequence(self, start: _Event, depth: int) -> tuple[list[Any], list[Place], int]:
        _check_tag(start, _TAG + "seq")
        items: list[Any] = []
        places: list[Place] = []
        height = 0
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            value, place, below = self._node(event, depth + 1)
            items.append(value)
            height = max(height, below)
            if place is not None:
                places.append(place)
        return items, places, height + 1

    def _mapping(self, start: _Event, depth: int) -> tuple[dict[str, Any], dict[str, Place], int]:
        _check_tag(start, _TAG + "map")
        members: dict[str, Any] = {}
        places: dict[str, Place] = {}
        merged: set[str] = set()
        height = 0
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            if _is_merge(event):
                value, place, below = self._node(next(self._events), depth + 1)
                height = max(height, below)
                self._merge(event, value, place, members, places, merged)
                continue
            key = self._key(event, depth)
            if key in members and key not in merged:
                raise _error(event, f"has the key {key!r} twice", "keep one of them")
            merged.discard(key)
            value, place, below = self._node(next(self._events), depth + 1)
            height = max(height, below)
            members[key] = value
            if place is not None:
                places[key] = _place(event, place.inner)
        return members, places, height + 1

    def _key(self, event: _Event, depth: int) -> str:
        if not isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
            raise _error(event, "has a list or map as a key", "write a text as the key")
        key, _, _ = self._node(event, depth + 1)
        if isinstance(key, str):
            return key
        if isinstance(key, bool):
            return "true" if key else "false"
        if isinstance(key, int):
            return str(key)
        raise _error(event, f"has the key {_described(key)}, which is no text", "put the key in quotes")

    def _merge(
        self,
        event: _Event,
        value: object,
        place: Place | None,
        members: dict[str, Any],
        places: dict[str, Place],
        merged: set[str],
    ) -> None:
        sources = value if isinstance(value, list) else [value]
        for number, source in reversed(list(enumerate(sources))):
            if not isinstance(source, dict):
                raise _error(event, "has a merge of something that is no map", "merge an alias of a map")
            written = next((key for key in source if key in members and key not in merged), None)
            if written is not None:
                raise _error(event, f"has a merge that overwrites the key {written!r} before it", "write << first")
            members.update(source)
            merged.update(source)
            inner = place.inner if place else None
            if isinstance(inner, list):
                inner = inner[number].inner
            if isinstance(inner, dict):
                places.update(inner)


def _scalar(event: _Event) -> str | int | float | bool | None:
    text: str = event.value
    if event.tag is None:
        if not event.implicit[0]:
            return text
        if text in _NO_JSON:
            raise _error(event, f"has {text}, which JSON cannot say", "put it in quotes if a text is meant")
        return plain(text)
    if event.tag in _TEXT_TAGS:
        return text
    value = plain(text) if text not in _NO_JSON else text
    if event.tag == _TAG + "float" and type(value) is int:
        return value
    if type(value) is _SCALAR_TAGS.get(event.tag) or (value is None and event.tag == _TAG + "null"):
        return value
    if event.tag in _SCALAR_TAGS or event.tag == _TAG + "null":
        raise _error(event, f"has {text!r} with the tag !!{event.tag.removeprefix(_TAG)}", "remove the tag")
    raise _unknown_tag(event)


def _check_tag(event: _Event, usual: str) -> None:
    if event.tag not in (None, "!", usual):
        raise _unknown_tag(event)


def _unknown_tag(event: _Event) -> UnparsableError:
    tag = event.tag.replace(_TAG, "!!")
    return _error(event, f"has the tag {tag}, which Kubernetes does not know", "remove the tag")


def _is_merge(event: _Event) -> bool:
    return (
        isinstance(event, yaml.ScalarEvent)
        and event.value == "<<"
        and (event.implicit[0] or event.tag == _TAG + "merge")
    )


def _described(key: object) -> str:
    return "null" if key is None else str(key)


def _place(event: _Event, inner: dict[str, Place] | list[Place] | None) -> Place:
    return Place(event.start_mark.line + 1, event.start_mark.column + 1, inner)


def _error(event: _Event, message: str, fix: str = "") -> UnparsableError:
    return UnparsableError(message, event.start_mark.line + 1, event.start_mark.column + 1, fix)


def _syntax_error(text: str, problem: str, line: int, column: int) -> UnparsableError:
    lines = text.splitlines()
    at = lines[line][column : column + 1] if line < len(lines) else ""
    if at == "\t":
        return UnparsableError("has a tab where YAML needs spaces", line + 1, column + 1, "indent with spaces")
    if "nesting depth" in problem:
        return UnparsableError(f"is nested more than {MAX_DEPTH} levels deep", line + 1, column + 1)
    fix = "the text may be cut off" if line >= len(lines) or "end" in problem else ""
    return UnparsableError(f"is no YAML: {problem}", line + 1, column + 1, fix)
