"""CEL's own functions of many types: size, type, dyn, and the conversions between types."""

from __future__ import annotations

import math
import re
from typing import Any

from webhook.cel import operators, types
from webhook.cel.budget import Budget
from webhook.cel.errors import EvaluationError, no_overload
from webhook.cel.formatting import shortest
from webhook.cel.library import Library
from webhook.cel.network import CIDR, IP
from webhook.cel.times import SECOND, Duration, Timestamp
from webhook.cel.values import INT_MAX, INT_MIN, NONE, Optional, TypeValue, Uint, to_double, type_name

LIBRARY = Library()

_DECIMAL = re.compile(r"[+-]?[0-9]{1,30}")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)
_TRUE, _FALSE = ("1", "t", "true", "TRUE", "True"), ("0", "f", "false", "FALSE", "False")


@LIBRARY.function("size", (list, dict))
@LIBRARY.member("size", (list, dict))
def _size(value: Any) -> int:
    return len(value)


@LIBRARY.function("size", (str, bytes))
@LIBRARY.member("size", (str, bytes))
def _length(value: str | bytes) -> int:
    return len(value)


@LIBRARY.function("type", object)
def _type(value: object) -> TypeValue:
    return TypeValue(type_name(value))


@LIBRARY.function("dyn", object)
def _dyn(value: object) -> object:
    return value


@LIBRARY.function("int", int)
def _int(value: int) -> int:
    return operators.whole(value, int)


@LIBRARY.function("int", Uint)
def _int_of_uint(value: int) -> int:
    return operators.whole(int(value), int)


@LIBRARY.function("int", float)
def _int_of_double(value: float) -> int:
    # 2**63 itself is a double, and the nearest below it is far from the largest int.
    if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
        raise EvaluationError("integer overflow")
    return int(value)


@LIBRARY.function("int", str)
def _int_of_string(value: str) -> int:
    if not _DECIMAL.fullmatch(value):
        raise EvaluationError(f"has {value[:40]!r}, needs a whole number")
    return operators.whole(int(value), int)


@LIBRARY.function("int", Timestamp)
def _int_of_timestamp(value: Timestamp) -> int:
    return value.nanoseconds // SECOND


@LIBRARY.function("int", Duration)
def _int_of_duration(value: Duration) -> int:
    return value.nanoseconds


@LIBRARY.function("uint", (int, Uint))
def _uint(value: int) -> int:
    return operators.whole(value, Uint)


@LIBRARY.function("uint", float)
def _uint_of_double(value: float) -> int:
    if math.isnan(value) or not 0 <= value < 2.0**64:
        raise EvaluationError("unsigned integer overflow")
    return operators.whole(int(value), Uint)


@LIBRARY.function("uint", str)
def _uint_of_string(value: str) -> int:
    if not _DECIMAL.fullmatch(value) or value[0] in "+-":
        raise EvaluationError(f"has {value[:40]!r}, needs a whole number without a sign")
    return operators.whole(int(value), Uint)


@LIBRARY.function("double", (int, Uint, float))
def _double(value: float) -> float:
    return to_double(value)


@LIBRARY.function("double", str)
def _double_of_string(value: str) -> float:
    if len(value) > 400 or not (_DOUBLE.fullmatch(value) or _SPECIAL.fullmatch(value)):
        raise EvaluationError(f"has {value[:40]!r}, needs a number")
    result = float(value)
    if math.isinf(result) and not _SPECIAL.fullmatch(value):
        raise EvaluationError(f"has {value[:40]!r}, which is beyond a double")
    return result


@LIBRARY.function("string", str)
def _string(value: str) -> str:
    return value


@LIBRARY.function("string", bool)
def _string_of_bool(value: bool) -> str:
    return "true" if value else "false"


@LIBRARY.function("string", int)
def _string_of_int(value: int) -> str:
    return str(value) if INT_MIN <= value <= INT_MAX else shortest(to_double(value))


@LIBRARY.function("string", Uint)
def _string_of_uint(value: int) -> str:
    return str(int(value))


@LIBRARY.function("string", float)
def _string_of_double(value: float) -> str:
    return shortest(value)


@LIBRARY.function("string", bytes)
def _string_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("has bytes that are not UTF-8, needs text") from None


@LIBRARY.function("string", (Timestamp, Duration, IP, CIDR))
def _string_of_value(value: object) -> str:
    return str(value)


@LIBRARY.function("bytes", str, charges=True)
def _bytes(budget: Budget, value: str) -> bytes:
    budget.spend(len(value) // 10)
    return value.encode("utf-8", "surrogatepass")


@LIBRARY.function("bytes", bytes)
def _bytes_of_bytes(value: bytes) -> bytes:
    return value


@LIBRARY.function("bool", bool)
def _bool(value: bool) -> bool:
    return value


@LIBRARY.function("bool", str)
def _bool_of_string(value: str) -> bool:
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise EvaluationError(f"has {value[:40]!r}, needs true or false")


@LIBRARY.function("timestamp", str)
def _timestamp(value: str) -> Timestamp:
    return Timestamp.parse(value)


@LIBRARY.function("timestamp", int)
def _timestamp_of_int(value: int) -> Timestamp:
    return Timestamp.of(value * SECOND)


@LIBRARY.function("timestamp", Timestamp)
def _timestamp_of_timestamp(value: Timestamp) -> Timestamp:
    return value


@LIBRARY.function("duration", str)
def _duration(value: str) -> Duration:
    return Duration.parse(value)


@LIBRARY.function("duration", Duration)
def _duration_of_duration(value: Duration) -> Duration:
    return value


LIBRARY.constant("optional.none", NONE)


@LIBRARY.function("optional.of", object)
def _optional_of(value: object) -> Optional:
    return Optional(value)


@LIBRARY.function("optional.ofNonZeroValue", object)
def _optional_of_non_zero(value: object) -> Optional:
    zero = (
        value is None
        or value is False
        or (isinstance(value, int | float | str | bytes | list | tuple | dict) and not value)
    )
    zero = zero or (isinstance(value, Duration) and not value.nanoseconds)
    return NONE if zero else Optional(value)


LIBRARY.declare("optional.unwrap", types.list_of(types.A), types.list_of(types.optional_of(types.A)))
LIBRARY.declare("unwrapOpt", types.list_of(types.A), types.list_of(types.optional_of(types.A)), member=True)


@LIBRARY.function("optional.unwrap", list, charges=True)
@LIBRARY.member("unwrapOpt", list, charges=True)
def _unwrap(budget: Budget, values: list[object]) -> list[object]:
    budget.spend(len(values))
    for value in values:
        if not isinstance(value, Optional):
            raise no_overload("optional.unwrap", value)
    return [value.value for value in values if isinstance(value, Optional) and not value.empty]


@LIBRARY.member("first", list)
def _first(values: list[object]) -> Optional:
    return Optional(values[0]) if values else NONE


@LIBRARY.member("last", list)
def _last(values: list[object]) -> Optional:
    return Optional(values[-1]) if values else NONE


@LIBRARY.member("hasValue", Optional)
def _has_value(optional: Optional) -> bool:
    return not optional.empty


@LIBRARY.member("value", Optional)
def _value(optional: Optional) -> object:
    if optional.empty:
        raise EvaluationError("optional.none() dereference")
    return optional.value
