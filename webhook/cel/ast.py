"""The checked expression as a tree: decoded from what cel-expr-python serializes (google.api.expr CheckedExpr)."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

from webhook.cel import types, wire
from webhook.cel.errors import CelError
from webhook.cel.values import Uint


@dataclass(frozen=True, slots=True)
class Node:
    """One part of an expression: where it stands (line and column from 1) and the type the checker gave it."""

    position: tuple[int, int]
    type: types.Type


@dataclass(frozen=True, slots=True)
class Const(Node):
    """A literal."""

    value: object


@dataclass(frozen=True, slots=True)
class Ident(Node):
    """A name: of a variable, or, where `is_type` is set, of a type."""

    name: str
    is_type: bool


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`operand.field`, or `has(operand.field)` where `test` is set."""

    operand: Node
    field: str
    test: bool


@dataclass(frozen=True, slots=True)
class Call(Node):
    """An operator or function; `target` is the receiver of a member call."""

    function: str
    target: Node | None
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class MakeList(Node):
    """`[a, ?b]`."""

    elements: tuple[Node, ...]
    optional: frozenset[int]  # indexes of `[?x]` elements


@dataclass(frozen=True, slots=True)
class Entry:
    """`key: value`, or `?key: value`, of a map."""

    key: Node
    value: Node
    optional: bool


@dataclass(frozen=True, slots=True)
class MakeMap(Node):
    """`{key: value}`."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class MakeStruct(Node):
    """`Name{...}`; nothing in Kubernetes' environment can be made like that, so it is only ever refused."""

    name: str


@dataclass(frozen=True, slots=True)
class Comprehension(Node):
    """A fold, as the macros expand to it; `variable2` is empty in the forms with one variable."""

    variable: str
    variable2: str
    range: Node
    accumulator: str
    start: Node
    condition: Node
    step: Node
    result: Node


_PRIMITIVE = {1: types.BOOL, 2: types.INT, 3: types.UINT, 4: types.DOUBLE, 5: types.STRING, 6: types.BYTES}
_WELL_KNOWN = {1: types.DYN, 2: types.TIMESTAMP, 3: types.DURATION}


def decode(serialized: bytes) -> Node:
    """The tree of an expression serialized by cel-expr-python (an Any with a CheckedExpr inside)."""
    payload = next(value for number, value in wire.fields(serialized) if number == 2)
    return _Decoder(_bytes(payload)).root


def _bytes(value: wire.Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("has a number, needs bytes with a length")
    return value


def _text(value: wire.Value) -> str:
    return _bytes(value).decode()


def _int(value: wire.Value) -> int:
    if not isinstance(value, int):
        raise ValueError("has bytes, needs a number")
    return value


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self._names: dict[int, str] = {}
        self._types: dict[int, types.Type] = {}
        self._known_types: dict[bytes, types.Type] = {}
        self._offsets: dict[int, int] = {}
        self._lines: list[int] = []
        root = b""
        for number, value in wire.fields(data):
            if number == 2:
                key, reference = self._map_entry(value)
                for part, content in wire.fields(_bytes(reference)):
                    if part == 1:
                        self._names[key] = _text(content)
            elif number == 3:
                key, kind = self._map_entry(value)
                encoded = _bytes(kind)
                if encoded not in self._known_types:
                    self._known_types[encoded] = _type(encoded)
                self._types[key] = self._known_types[encoded]
            elif number == 4:
                root = _bytes(value)
            elif number == 5:
                self._source(_bytes(value))
        self.root = self._node(root)

    def _map_entry(self, value: wire.Value) -> tuple[int, wire.Value]:
        parts = dict(wire.fields(_bytes(value)))
        return _int(parts.get(1, 0)), parts.get(2, b"")

    def _source(self, data: bytes) -> None:
        for number, value in wire.fields(data):
            if number == 3:
                self._lines.extend(wire.packed(value) if isinstance(value, bytes) else [value])
            elif number == 4:
                key, offset = self._map_entry(value)
                self._offsets[key] = _int(offset) if isinstance(offset, int) else 0

    def _position(self, identity: int) -> tuple[int, int]:
        offset = self._offsets.get(identity, 0)
        line = bisect.bisect_right(self._lines, offset)
        return line + 1, offset - (self._lines[line - 1] if line else 0) + 1

    def _node(self, data: bytes) -> Node:
        identity, kind, body = 0, 0, b""
        for number, value in wire.fields(data):
            if number == 2:
                identity = _int(value)
            else:
                kind, body = number, _bytes(value)
        position, node_type = self._position(identity), self._types.get(identity, types.DYN)
        if kind == 3:
            return Const(position, node_type, _constant(body, position))
        if kind == 4:
            name = self._names.get(identity) or _text(dict(wire.fields(body)).get(1, b""))
            return Ident(position, node_type, name, node_type.name == "type")
        if kind == 5:
            parts = dict(wire.fields(body))
            if identity in self._names and not parts.get(3):
                return Ident(position, node_type, self._names[identity], node_type.name == "type")
            operand = self._node(_bytes(parts[1]))
            return Select(position, node_type, operand, _text(parts.get(2, b"")), bool(parts.get(3)))
        if kind == 6:
            target, function, arguments = None, "", []
            for number, value in wire.fields(body):
                if number == 1:
                    target = self._node(_bytes(value))
                elif number == 2:
                    function = _text(value)
                elif number == 3:
                    arguments.append(self._node(_bytes(value)))
            return Call(position, node_type, function, target, tuple(arguments))
        if kind == 7:
            elements, optional = [], []
            for number, value in wire.fields(body):
                if number == 1:
                    elements.append(self._node(_bytes(value)))
                elif number == 2:
                    optional.extend(wire.packed(value) if isinstance(value, bytes) else [value])
            return MakeList(position, node_type, tuple(elements), frozenset(optional))
        if kind == 8:
            name, entries = "", []
            for number, value in wire.fields(body):
                if number == 1:
                    name = _text(value)
                elif number == 2:
                    entries.append(_bytes(value))
            if name:
                return MakeStruct(position, node_type, name)
            return MakeMap(position, node_type, tuple(self._entry(entry) for entry in entries))
        if kind == 9:
            parts = dict(wire.fields(body))
            return Comprehension(
                position,
                node_type,
                _text(parts.get(1, b"")),
                _text(parts.get(8, b"")),
                self._node(_bytes(parts[2])),
                _text(parts.get(3, b"")),
                self._node(_bytes(parts[4])),
                self._node(_bytes(parts[5])),
                self._node(_bytes(parts[6])),
                self._node(_bytes(parts[7])),
            )
        raise ValueError(f"has an expression of kind {kind}, needs 3 to 9")

    def _entry(self, data: bytes) -> Entry:
        parts = dict(wire.fields(data))
        return Entry(self._node(_bytes(parts[3])), self._node(_bytes(parts[4])), bool(parts.get(5)))


def _constant(data: bytes, position: tuple[int, int]) -> object:
    for number, value in wire.fields(data):
        if number == 2:
            return bool(value)
        if number == 3:
            return wire.signed(_int(value))
        if number == 4:
            return Uint(_int(value))
        if number == 5:
            double = wire.double(_int(value))
            if math.isinf(double):
                raise CelError("has a number beyond a double", *position)
            return double
        if number == 6:
            return _text(value)
        if number == 7:
            return _bytes(value)
    return None


def _type(data: bytes) -> types.Type:
    for number, value in wire.fields(data):
        if number == 2:
            return types.NULL
        if number in (3, 4):
            return _PRIMITIVE.get(_int(value), types.DYN)
        if number == 5:
            return _WELL_KNOWN.get(_int(value), types.DYN)
        if number in (6, 7):
            parts = dict(wire.fields(_bytes(value)))
            inner = [_type(_bytes(parts[part])) if part in parts else types.DYN for part in range(1, number - 4)]
            return types.list_of(inner[0]) if number == 6 else types.map_of(inner[0], inner[1])
        if number == 9:
            return types.Type(_text(value))
        if number == 11:
            return types.TYPE
        if number == 14:
            name, parameters = "", []
            for part, content in wire.fields(_bytes(value)):
                if part == 1:
                    name = _text(content)
                elif part == 2:
                    parameters.append(_type(_bytes(content)))
            return types.Type(name, tuple(parameters))
    return types.DYN
