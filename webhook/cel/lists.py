"""Functions of lists: Kubernetes' own, the lists extension and the sets extension."""

from __future__ import annotations

import itertools
from typing import Any

from webhook.cel import operators, types
from webhook.cel.budget import Budget
from webhook.cel.errors import EvaluationError, no_overload
from webhook.cel.library import Library
from webhook.cel.times import Duration
from webhook.cel.values import Uint

LIBRARY = Library()

MAX_INCLUDES = 64  # resource.k8s.io ResourceSliceMaxAttributeValuesPerDevice

_COMPARABLE = (
    types.INT, types.UINT, types.DOUBLE, types.BOOL, types.DURATION, types.TIMESTAMP, types.STRING, types.BYTES,
)  # fmt: skip
_SUMMABLE = (types.INT, types.UINT, types.DOUBLE, types.DURATION)

for _kind in _COMPARABLE:
    LIBRARY.declare("isSorted", types.BOOL, types.list_of(_kind), member=True)
    LIBRARY.declare("min", _kind, types.list_of(_kind), member=True)
    LIBRARY.declare("max", _kind, types.list_of(_kind), member=True)
for _kind in _SUMMABLE:
    LIBRARY.declare("sum", _kind, types.list_of(_kind), member=True)
for _name in ("indexOf", "lastIndexOf"):
    LIBRARY.declare(_name, types.INT, types.list_of(types.A), types.A, member=True)


@LIBRARY.member("isSorted", list, charges=True)
def _is_sorted(budget: Budget, values: list[Any]) -> bool:
    budget.spend(len(values))
    for left, right in itertools.pairwise(values):
        if (operators.order("isSorted", left, right) or 0) > 0:
            return False
    if len(values) == 1:
        operators.order("isSorted", values[0], values[0])
    return True


@LIBRARY.member("min", list, charges=True)
def _min(budget: Budget, values: list[Any]) -> Any:
    return _extreme(budget, values, "min", 1)


@LIBRARY.member("max", list, charges=True)
def _max(budget: Budget, values: list[Any]) -> Any:
    return _extreme(budget, values, "max", -1)


def _extreme(budget: Budget, values: list[Any], name: str, replace: int) -> Any:
    budget.spend(len(values))
    if not values:
        raise EvaluationError(f"{name} called on empty list")
    best = values[0]
    for value in values:
        if operators.order(name, best, value) == replace:
            best = value
    return best


@LIBRARY.member("sum", list, charges=True)
def _sum(budget: Budget, values: list[Any]) -> Any:
    budget.spend(len(values))
    if not values:
        return 0
    if type(values[0]) not in _ADDABLE:
        raise no_overload("sum", values[0])
    total = values[0]
    for value in values[1:]:
        total = operators.add(total, value, budget)
    return total


_ADDABLE = frozenset({int, Uint, float, Duration})


@LIBRARY.member("indexOf", list, object, charges=True)
def _index_of(budget: Budget, values: list[Any], wanted: Any) -> int:
    return next((number for number, each in enumerate(values) if operators.equal(each, wanted, budget)), -1)


@LIBRARY.member("lastIndexOf", list, object, charges=True)
def _last_index_of(budget: Budget, values: list[Any], wanted: Any) -> int:
    for number in range(len(values) - 1, -1, -1):
        if operators.equal(values[number], wanted, budget):
            return number
    return -1


@LIBRARY.function("lists.range", int, charges=True)
def _range(budget: Budget, count: int) -> list[int]:
    budget.spend(max(count, 0))
    return list(range(count))


@LIBRARY.member("slice", list, int, int, charges=True)
def _slice(budget: Budget, values: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(values):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(values)}")
    budget.spend(end - start)
    return list(values[start:end])


@LIBRARY.member("flatten", list, charges=True)
def _flatten(budget: Budget, values: list[Any]) -> list[Any]:
    return _flatten_to(budget, values, 1)


@LIBRARY.member("flatten", list, int, charges=True)
def _flatten_to(budget: Budget, values: list[Any], depth: int) -> list[Any]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    found = list(values)
    for _ in range(min(depth, operators.MAX_DEPTH)):
        if not any(isinstance(each, list | tuple) for each in found):
            break
        flat: list[Any] = []
        for each in found:
            inner = each if isinstance(each, list | tuple) else (each,)
            budget.spend(len(inner) + 1)
            flat.extend(inner)
        found = flat
    return found


@LIBRARY.member("distinct", list, charges=True)
def _distinct(budget: Budget, values: list[Any]) -> list[Any]:
    found: list[Any] = []
    others: list[Any] = []  # lists, maps, opaque values: compared one by one
    simple: set[tuple[bool, Any]] = set()
    budget.spend(len(values) * 3)
    for value in values:
        if isinstance(value, str | int | float) and value == value:  # NaN equals nothing
            key = (type(value) is bool, value)
            if key in simple:
                continue
            simple.add(key)
        else:
            budget.spend(len(others))
            if any(operators.equal(value, other, budget) for other in others):
                continue
            others.append(value)
        found.append(value)
    return found


@LIBRARY.member("reverse", list, charges=True)
def _reverse(budget: Budget, values: list[Any]) -> list[Any]:
    budget.spend(len(values))
    return list(values[::-1])


@LIBRARY.member("sort", list, charges=True)
def _sort(budget: Budget, values: list[Any]) -> list[Any]:
    return _sorted(budget, values, values)


@LIBRARY.member("@sortByAssociatedKeys", list, list, charges=True)
def _sort_by(budget: Budget, values: list[Any], keys: list[Any]) -> list[Any]:
    return _sorted(budget, values, keys)


def _sorted(budget: Budget, values: list[Any], keys: list[Any]) -> list[Any]:
    budget.spend(len(values) * (len(values).bit_length() + 1))
    for key in keys:
        if type(key) is not type(keys[0]):
            raise EvaluationError("list elements must have the same type")
        operators.order("sort", key, key)
    return [values[number] for number in sorted(range(len(values)), key=keys.__getitem__)]


def _within(budget: Budget, values: Any, wanted: Any) -> bool:
    return operators.contains(values, wanted, budget)


LIBRARY.declare("includes", types.BOOL, types.DYN, types.DYN, member=True)


@LIBRARY.member("includes", object, object, charges=True)
def _includes(budget: Budget, value: Any, wanted: Any) -> bool:
    """DRA's function for attributes that are one value or a list of at most 64."""
    if not isinstance(value, list | tuple):
        return operators.equal(value, wanted, budget)
    if len(value) > MAX_INCLUDES:
        raise EvaluationError(f"includes() of {len(value)} values, needs at most {MAX_INCLUDES}")
    return _within(budget, value, wanted)


@LIBRARY.function("sets.contains", list, list, charges=True)
def _sets_contains(budget: Budget, values: list[Any], others: list[Any]) -> bool:
    return all(_within(budget, values, each) for each in others)


@LIBRARY.function("sets.equivalent", list, list, charges=True)
def _sets_equivalent(budget: Budget, values: list[Any], others: list[Any]) -> bool:
    return _sets_contains(budget, values, others) and _sets_contains(budget, others, values)


@LIBRARY.function("sets.intersects", list, list, charges=True)
def _sets_intersects(budget: Budget, values: list[Any], others: list[Any]) -> bool:
    return any(_within(budget, values, each) for each in others)
