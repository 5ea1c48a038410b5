"""Values that expressions work on and that Python has no class for; everything else is plain JSON.

null, bool, int, double, string, bytes, list and map are None, bool, int, float, str, bytes, list (or tuple) and dict.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from msgspec import Struct

INT_MIN, INT_MAX = -(1 << 63), (1 << 63) - 1
UINT_MAX = (1 << 64) - 1


class Uint(int):
    """An unsigned 64-bit number (`1u`)."""

    __slots__ = ()


def to_double(number: float | Fraction) -> float:
    """A number as a double; an integer of JSON may be beyond every double, and is infinite then."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


class TypeValue:
    """What `type(x)` gives: the name of a type."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeValue) and other.name == self.name

    def __hash__(self) -> int:
        return hash((TypeValue, self.name))

    def __repr__(self) -> str:
        return f"type({self.name})"


class Optional:
    """An optional value of CEL, `optional.of(value)`; `NONE` is the empty one."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    @property
    def empty(self) -> bool:
        """Whether it is `optional.none()`."""
        return self is NONE

    def __repr__(self) -> str:
        return "optional.none()" if self is NONE else f"optional.of({self.value!r})"


NONE = Optional(None)


class Lazy(Struct, eq=False):  # a struct, as every review makes many and reads few
    """A value that is computed when an expression first reads it, and at most once."""

    _compute: Callable[[], object] | None
    _value: object = None
    _error: Exception | None = None

    def get(self) -> object:
        """The value; an exception of the computation is kept and raised again on every read."""
        if self._compute is not None:
            compute, self._compute = self._compute, None
            try:
                self._value = compute()
            except Exception as error:  # noqa: BLE001  # kept and raised again, never swallowed
                self._error = error
        if self._error is not None:
            raise self._error
        return self._value


class Record:
    """A struct value with named members, each of which may be Lazy: what `variables` needs.

    Its struct type maps every field to the attribute of the same name.
    """

    __slots__ = ("_members",)

    def __init__(self, members: Mapping[str, object]) -> None:
        self._members = members

    def __getattr__(self, name: str) -> object:
        try:
            value = self._members[name]
        except KeyError:
            raise AttributeError(name) from None
        return value.get() if isinstance(value, Lazy) else value


class DefaultMap(dict[Any, Any]):
    """A map that gives `default` for a key it does not have, as DRA's `device.attributes["no.such.domain"]` does."""

    __slots__ = ("default",)

    def __init__(self, members: Mapping[Any, Any], default: object) -> None:
        super().__init__(members)
        self.default = default

    def __missing__(self, key: object) -> object:
        return self.default


_NAMES: dict[type, str] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    tuple: "list",
    dict: "map",
    DefaultMap: "map",
    TypeValue: "type",
    Optional: "optional_type",
}


def type_name(value: object) -> str:
    """CEL's name for the type of a value: opaque values carry it as `cel_type`, structs are called by their class."""
    kind = type(value)
    if kind is int and not INT_MIN <= value <= INT_MAX:  # type: ignore[operator]  # an int
        return "double"  # what the API server reads such a number as
    return _NAMES.get(kind) or str(getattr(kind, "cel_type", kind.__name__))
