"""Equality, order and arithmetic of CEL values. int is 64 bits wide; nothing is ever rounded or wrapped in silence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from webhook.cel.budget import Budget
from webhook.cel.errors import EvaluationError, no_overload
from webhook.cel.times import Duration, Timestamp
from webhook.cel.values import INT_MAX, INT_MIN, UINT_MAX, Optional, Uint, to_double

NUMBERS = frozenset({int, float, Uint})
_LISTS = (list, tuple)
MAX_DEPTH = 100  # of values that are compared


def equal(left: object, right: object, budget: Budget, depth: int = 0) -> bool:
    """`left == right`: numbers by value whatever their type, bool never a number, lists and maps element by element.

    Charges one unit an element and one for ten characters. Raises EvaluationError for values nested deeper than
    MAX_DEPTH.
    """
    kind, other = type(left), type(right)
    if kind is other:
        if kind is str or kind is bytes:
            budget.spend(min(len(left), len(right)) // 10 + 1)  # type: ignore[arg-type]  # both are str or bytes
            return left == right
    elif (kind in NUMBERS and other in NUMBERS) or (isinstance(left, str) and isinstance(right, str)):
        return left == right  # two strings of different classes: a StrEnum of a fact
    if depth > MAX_DEPTH:
        raise EvaluationError(f"has values nested deeper than {MAX_DEPTH}, needs fewer to compare them")
    if isinstance(left, _LISTS):
        if not isinstance(right, _LISTS) or len(left) != len(right):
            return False
        budget.spend(len(left))
        return all(equal(one, two, budget, depth + 1) for one, two in zip(left, right, strict=True))
    if isinstance(left, dict):
        if not isinstance(right, dict) or len(left) != len(right):
            return False
        budget.spend(len(left))
        for key, value in left.items():
            if key not in right or not equal(value, right[key], budget, depth + 1):
                return False
        return True
    if isinstance(left, Optional) and isinstance(right, Optional):
        if left.empty or right.empty:
            return left.empty and right.empty
        return equal(left.value, right.value, budget, depth + 1)
    return kind is other and left == right


def contains(container: object, wanted: object, budget: Budget) -> bool:
    """`wanted in container`: an element of a list, or a key of a map."""
    if isinstance(container, dict):
        budget.spend(1)
        return has_key(container, wanted)
    if isinstance(container, _LISTS):
        if type(wanted) is str:  # the usual case: Python's own search, charged as if it went to the end
            budget.spend(len(container) + 1)
            return wanted in container
        budget.spend(len(container) + 1)
        if type(wanted) in NUMBERS and wanted not in container:  # Python finds at least what CEL finds
            return False
        for element in container:
            budget.spend(1)
            if equal(element, wanted, budget):
                return True
        return False
    raise no_overload("in", wanted, container)


def has_key(mapping: dict[object, object], key: object) -> bool:
    """Whether a map has a key; true and 1 are one key to Python and two to CEL."""
    kind = type(key)
    if kind is str:
        return key in mapping
    if key is None or kind is bool or kind in NUMBERS:
        return key in mapping and any(k == key and (type(k) is bool) == (kind is bool) for k in mapping)
    raise no_overload("in", key, mapping)


def index(container: object, key: object) -> object:
    """`container[key]`; raises EvaluationError where there is nothing."""
    if isinstance(container, dict):
        kind = type(key)
        if kind is str:
            try:
                return container[key]
            except KeyError:
                raise EvaluationError(f"no such key: {key}") from None
        if key is None or kind is bool or kind in NUMBERS:
            if has_key(container, key):
                return container[key]
            raise EvaluationError(
                f"no such key: {key if type(key) is not int or abs(key) <= INT_MAX else to_double(key)}"
            )
        raise no_overload("[]", container, key)
    if isinstance(container, _LISTS):
        position = list_position(container, key)
        if 0 <= position < len(container):
            return container[position]
        raise EvaluationError(f"index out of bounds: {position}")
    raise no_overload("[]", container, key)


def list_position(container: object, key: Any) -> int:
    """The index that a number means; a double counts when it is whole."""
    kind = type(key)
    if (kind is int or kind is Uint or (kind is float and key.is_integer())) and INT_MIN <= key <= INT_MAX:
        return int(key)
    raise no_overload("[]", container, key)


def order(name: str, left: object, right: object) -> int | None:
    """Negative, zero or positive as `left` is before, with or behind `right`; None for NaN."""
    kind, other = type(left), type(right)
    if (kind in NUMBERS and other in NUMBERS) or (kind is other and kind in _ORDERED):
        if left < right:  # type: ignore[operator]  # of one ordered class, or numbers
            return -1
        if left > right:  # type: ignore[operator]
            return 1
        return 0 if left == right else None
    raise no_overload(name, left, right)


_ORDERED = frozenset({str, bool, bytes, Timestamp, Duration})


def whole(result: int, kind: type) -> int:
    """A result of integer arithmetic when it fits 64 bits; raises EvaluationError when not."""
    if kind is Uint:
        if 0 <= result <= UINT_MAX:
            return Uint(result)
        raise EvaluationError("unsigned integer overflow")
    if INT_MIN <= result <= INT_MAX:
        return result
    raise EvaluationError("integer overflow")


def _with_doubles(operation: Callable[[Any, Any], object], name: str, left: Any, right: Any) -> object:
    """Numbers of JSON beyond 64 bits are doubles, as the API server reads them."""
    wide = [value for value in (left, right) if type(value) is int and not INT_MIN <= value <= INT_MAX]
    if not wide:
        raise no_overload(name, left, right)
    return operation(*(to_double(value) if value in wide else value for value in (left, right)))


def _add_doubles(left: Any, right: Any) -> object:
    if type(left) is float and type(right) is float:
        return left + right
    raise no_overload("+", left, right)


def add(left: Any, right: Any, budget: Budget) -> object:
    """`left + right`."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int or kind is Uint:
            return whole(left + right, kind)
        if kind is float:
            return left + right
        if kind is str or kind is bytes:
            budget.spend((len(left) + len(right)) // 10 + 1)
            return left + right
    if isinstance(left, _LISTS) and isinstance(right, _LISTS):
        budget.spend(len(left) + len(right) + 1)
        return [*left, *right]
    if kind is Timestamp and other is Duration:
        return Timestamp.of(left.nanoseconds + right.nanoseconds)
    if kind is Duration and other is Timestamp:
        return Timestamp.of(left.nanoseconds + right.nanoseconds)
    if kind is Duration and other is Duration:
        return Duration.of(left.nanoseconds + right.nanoseconds)
    return _with_doubles(_add_doubles, "+", left, right)


def subtract(left: Any, right: Any) -> object:
    """`left - right`."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int or kind is Uint:
            return whole(left - right, kind)
        if kind is float:
            return left - right
        if kind is Timestamp or kind is Duration:
            return Duration.of(left.nanoseconds - right.nanoseconds)
    if kind is Timestamp and other is Duration:
        return Timestamp.of(left.nanoseconds - right.nanoseconds)
    return _with_doubles(subtract, "-", left, right)


def multiply(left: Any, right: Any) -> object:
    """`left * right`."""
    kind = type(left)
    if kind is type(right):
        if kind is int or kind is Uint:
            return whole(left * right, kind)
        if kind is float:
            return left * right
    return _with_doubles(multiply, "*", left, right)


def divide(left: Any, right: Any) -> object:
    """`left / right`: integers towards zero, doubles as IEEE 754 says."""
    kind = type(left)
    if kind is type(right):
        if kind is int or kind is Uint:
            if right == 0:
                raise EvaluationError("division by zero")
            quotient = abs(left) // abs(right)
            return whole(quotient if (left < 0) == (right < 0) else -quotient, kind)
        if kind is float:
            return _divide_doubles(left, right)
    return _with_doubles(divide, "/", left, right)


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    if math.isnan(left) or math.isnan(right) or left == 0:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def remainder(left: Any, right: Any) -> object:
    """`left % right`, with the sign of `left`; integers only."""
    kind = type(left)
    if kind is type(right) and (kind is int or kind is Uint):
        if right == 0:
            raise EvaluationError("modulus by zero")
        if left == INT_MIN and right == -1:
            raise EvaluationError("integer overflow")
        rest = abs(left) % abs(right)
        return whole(-rest if left < 0 else rest, kind)
    raise no_overload("%", left, right)


def negate(value: Any) -> object:
    """`-value`."""
    kind = type(value)
    if kind is int:
        return whole(-value, int)
    if kind is float:
        return -value
    if kind is Duration:
        return Duration.of(-value.nanoseconds)
    raise no_overload("-", value)
