"""The math extension of CEL (Kubernetes' own environment does not have it)."""

from __future__ import annotations

import math
from typing import Any

from webhook.cel import operators
from webhook.cel.budget import Budget
from webhook.cel.errors import EvaluationError, no_overload
from webhook.cel.library import Library
from webhook.cel.values import INT_MIN, Uint

LIBRARY = Library()

_NUMBERS = (int, Uint, float)


def _pick(name: str, values: list[Any], replace: int) -> Any:
    for value in values:
        if type(value) not in operators.NUMBERS:
            raise no_overload(name, value)
    best = values[0]
    for value in values[1:]:
        if operators.order(name, best, value) == replace:
            best = value
    return best


@LIBRARY.function("math.@max", _NUMBERS)
@LIBRARY.function("math.@min", _NUMBERS)
def _only(value: Any) -> Any:
    return value


@LIBRARY.function("math.@max", _NUMBERS, _NUMBERS)
def _greatest(left: Any, right: Any) -> Any:
    return _pick("math.greatest", [left, right], -1)


@LIBRARY.function("math.@min", _NUMBERS, _NUMBERS)
def _least(left: Any, right: Any) -> Any:
    return _pick("math.least", [left, right], 1)


@LIBRARY.function("math.@max", list, charges=True)
def _greatest_of(budget: Budget, values: list[Any]) -> Any:
    budget.spend(len(values))
    if not values:
        raise EvaluationError("math.greatest called on empty list")
    return _pick("math.greatest", values, -1)


@LIBRARY.function("math.@min", list, charges=True)
def _least_of(budget: Budget, values: list[Any]) -> Any:
    budget.spend(len(values))
    if not values:
        raise EvaluationError("math.least called on empty list")
    return _pick("math.least", values, 1)


@LIBRARY.function("math.ceil", float)
def _ceil(value: float) -> float:
    return float(math.ceil(value)) if math.isfinite(value) else value


@LIBRARY.function("math.floor", float)
def _floor(value: float) -> float:
    return float(math.floor(value)) if math.isfinite(value) else value


@LIBRARY.function("math.trunc", float)
def _trunc(value: float) -> float:
    return float(math.trunc(value)) if math.isfinite(value) else value


@LIBRARY.function("math.round", float)
def _round(value: float) -> float:
    """Halves go away from zero."""
    if not math.isfinite(value) or abs(value) >= 2**52:
        return value
    whole = math.floor(abs(value))
    return math.copysign(float(whole + (abs(value) - whole >= 0.5)), value)


@LIBRARY.function("math.abs", _NUMBERS)
def _abs(value: Any) -> Any:
    if type(value) is int and value == INT_MIN:
        raise EvaluationError("integer overflow")
    return type(value)(abs(value))


@LIBRARY.function("math.sign", _NUMBERS)
def _sign(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return value
    return type(value)((value > 0) - (value < 0))


@LIBRARY.function("math.sqrt", _NUMBERS)
def _sqrt(value: Any) -> float:
    return math.sqrt(value) if value >= 0 else math.nan


@LIBRARY.function("math.isNaN", float)
def _is_nan(value: float) -> bool:
    return math.isnan(value)


@LIBRARY.function("math.isInf", float)
def _is_inf(value: float) -> bool:
    return math.isinf(value)


@LIBRARY.function("math.isFinite", float)
def _is_finite(value: float) -> bool:
    return math.isfinite(value)


def _same(name: str, left: Any, right: Any) -> None:
    if type(left) is not type(right):
        raise no_overload(name, left, right)


_INTEGERS = (int, Uint)


@LIBRARY.function("math.bitAnd", _INTEGERS, _INTEGERS)
def _bit_and(left: Any, right: Any) -> Any:
    _same("math.bitAnd", left, right)
    return type(left)(int(left) & int(right))


@LIBRARY.function("math.bitOr", _INTEGERS, _INTEGERS)
def _bit_or(left: Any, right: Any) -> Any:
    _same("math.bitOr", left, right)
    return type(left)(int(left) | int(right))


@LIBRARY.function("math.bitXor", _INTEGERS, _INTEGERS)
def _bit_xor(left: Any, right: Any) -> Any:
    _same("math.bitXor", left, right)
    return type(left)(int(left) ^ int(right))


@LIBRARY.function("math.bitNot", _INTEGERS)
def _bit_not(value: Any) -> Any:
    return Uint(int(value) ^ ((1 << 64) - 1)) if type(value) is Uint else ~value


@LIBRARY.function("math.bitShiftLeft", _INTEGERS, int)
def _shift_left(value: Any, by: int) -> Any:
    return _wrapped(0 if _shift(by) > 63 else int(value) << by, type(value))


@LIBRARY.function("math.bitShiftRight", _INTEGERS, int)
def _shift_right(value: Any, by: int) -> Any:
    return _wrapped(0 if _shift(by) > 63 else (int(value) & ((1 << 64) - 1)) >> by, type(value))


def _shift(by: int) -> int:
    if by < 0:
        raise EvaluationError(f"math.bitShift of {by}, needs a distance of zero or more")
    return by


def _wrapped(value: int, kind: type) -> Any:
    value &= (1 << 64) - 1
    if kind is int and value >> 63:
        value -= 1 << 64
    return kind(value)
