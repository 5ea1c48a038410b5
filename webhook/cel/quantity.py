"""Kubernetes' quantity library, on exact numbers: `quantity("4Gi").isGreaterThan(quantity("1000M"))`."""

from __future__ import annotations

from fractions import Fraction
from functools import total_ordering
from typing import ClassVar

from webhook.cel import types
from webhook.cel.errors import EvaluationError
from webhook.cel.library import Library
from webhook.cel.values import INT_MAX, INT_MIN, to_double
from webhook.kube import quantity

LIBRARY = Library()


@total_ordering
class Quantity:
    """A quantity in expressions; `number` is its exact value in base units (cores, bytes, a count)."""

    __slots__ = ("number",)
    cel_type: ClassVar[str] = types.QUANTITY.name

    def __init__(self, number: quantity.Number) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.number == other.number

    def __lt__(self, other: Quantity) -> bool:
        return self.number < other.number

    def __hash__(self) -> int:
        return hash((Quantity, self.number))

    def __str__(self) -> str:
        return quantity.canonical(self.number)

    def __repr__(self) -> str:
        return f"Quantity({self})"


LIBRARY.declare("quantity", types.QUANTITY, types.STRING)
LIBRARY.declare("isQuantity", types.BOOL, types.STRING)
LIBRARY.declare("sign", types.INT, types.QUANTITY)
LIBRARY.declare("isGreaterThan", types.BOOL, types.QUANTITY, types.QUANTITY, member=True)
LIBRARY.declare("isLessThan", types.BOOL, types.QUANTITY, types.QUANTITY, member=True)
LIBRARY.declare("compareTo", types.INT, types.QUANTITY, types.QUANTITY, member=True)
LIBRARY.declare("asApproximateFloat", types.DOUBLE, types.QUANTITY, member=True)
LIBRARY.declare("asInteger", types.INT, types.QUANTITY, member=True)
LIBRARY.declare("isInteger", types.BOOL, types.QUANTITY, member=True)
for _name in ("add", "sub"):
    LIBRARY.declare(_name, types.QUANTITY, types.QUANTITY, types.QUANTITY, member=True)
    LIBRARY.declare(_name, types.QUANTITY, types.QUANTITY, types.INT, member=True)


def _unspaced(text: str) -> str:
    """Spaces around a quantity are taken from a manifest, and not from an expression; none is taken for a quantity."""
    return "" if text != text.strip() else text


@LIBRARY.function("quantity", str)
def _quantity(text: str) -> Quantity:
    try:
        return Quantity(quantity.parse(_unspaced(text)))
    except quantity.QuantityError as error:
        raise EvaluationError(f"has the quantity {text[:40]!r}, which {error}") from None


@LIBRARY.function("isQuantity", str)
def _is_quantity(text: str) -> bool:
    return quantity.try_parse(_unspaced(text)) is not None


@LIBRARY.function("sign", Quantity)
def _sign(value: Quantity) -> int:
    return (value.number > 0) - (value.number < 0)


@LIBRARY.member("isGreaterThan", Quantity, Quantity)
def _is_greater(value: Quantity, other: Quantity) -> bool:
    return value.number > other.number


@LIBRARY.member("isLessThan", Quantity, Quantity)
def _is_less(value: Quantity, other: Quantity) -> bool:
    return value.number < other.number


@LIBRARY.member("compareTo", Quantity, Quantity)
def _compare(value: Quantity, other: Quantity) -> int:
    return (value.number > other.number) - (value.number < other.number)


@LIBRARY.member("asApproximateFloat", Quantity)
def _as_float(value: Quantity) -> float:
    return to_double(value.number)  # the name says that it is not exact


@LIBRARY.member("isInteger", Quantity)
def _is_integer(value: Quantity) -> bool:
    return isinstance(value.number, int) and INT_MIN <= value.number <= INT_MAX


@LIBRARY.member("asInteger", Quantity)
def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise EvaluationError(f"has the quantity {value}, needs a whole number of 64 bits")
    return int(value.number)


@LIBRARY.member("add", Quantity, (Quantity, int))
def _add(value: Quantity, other: Quantity | int) -> Quantity:
    return Quantity(_exact(value.number + (other.number if isinstance(other, Quantity) else other)))


@LIBRARY.member("sub", Quantity, (Quantity, int))
def _sub(value: Quantity, other: Quantity | int) -> Quantity:
    return Quantity(_exact(value.number - (other.number if isinstance(other, Quantity) else other)))


def _exact(number: quantity.Number) -> quantity.Number:
    return int(number) if isinstance(number, Fraction) and number.denominator == 1 else number
