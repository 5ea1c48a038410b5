"""`"%s has %d".format([name, count])` of the strings extension."""

from __future__ import annotations

import math
from collections.abc import Iterator

from webhook.cel.budget import Budget
from webhook.cel.errors import EvaluationError
from webhook.cel.library import Library
from webhook.cel.times import Duration, Timestamp
from webhook.cel.values import TypeValue, Uint, type_name

LIBRARY = Library()

_INTEGERS = (int, Uint)
MAX_PRECISION = 1000
MAX_DEPTH = 64


@LIBRARY.member("format", str, list, charges=True)
def _format(budget: Budget, text: str, arguments: list[object]) -> str:
    budget.spend(len(text) // 10)
    made: list[str] = []
    at, used = 0, 0
    while True:
        found = text.find("%", at)
        if found < 0:
            made.append(text[at:])
            break
        made.append(text[at:found])
        at = found + 1
        if text.startswith("%", at):
            made.append("%")
            at += 1
            continue
        precision, at = _precision(text, at)
        if at >= len(text):
            raise EvaluationError("unexpected end of format string")
        if used >= len(arguments):
            raise EvaluationError(f"index {used} out of range")
        part = _clause(budget, text[at], precision, arguments[used])
        budget.spend(len(part) // 10)
        made.append(part)
        at, used = at + 1, used + 1
    return "".join(made)


def _precision(text: str, at: int) -> tuple[int | None, int]:
    if not text.startswith(".", at):
        return None, at
    end = at + 1
    while end < len(text) and text[end] in "0123456789":
        end += 1
    if end == at + 1:
        raise EvaluationError("could not parse the precision of a formatting clause")
    precision = int(text[at + 1 : end][:10])
    if precision > MAX_PRECISION:
        raise EvaluationError(f"has the precision {precision}, needs at most {MAX_PRECISION}")
    return precision, end


def _clause(budget: Budget, verb: str, precision: int | None, value: object) -> str:
    kind = type(value)
    if verb == "s":
        return "".join(_text(budget, value, 0))
    if verb == "d":
        if kind in _INTEGERS:
            return str(int(value))  # type: ignore[call-overload]  # an integer
        if isinstance(value, float):
            return _special(value) or _refuse("decimal", "integers", value)
        return _refuse("decimal", "integers", value)
    if verb in "fe":
        if kind in _INTEGERS or isinstance(value, float):
            number = float(value)  # type: ignore[arg-type]  # a number
            digits = 6 if precision is None else precision
            return _special(number) or (f"{number:.{digits}f}" if verb == "f" else f"{number:.{digits}e}")
        return _refuse("fixed-point" if verb == "f" else "scientific", "doubles, ints, and uints", value)
    if verb == "b":
        if isinstance(value, bool):
            return "1" if value else "0"
        return f"{value:b}" if kind in _INTEGERS else _refuse("binary", "integers and bools", value)
    if verb in "xX":
        if kind in _INTEGERS:
            return f"{value:{verb}}"
        if isinstance(value, str | bytes):
            raw = (value.encode() if isinstance(value, str) else value).hex()
            return raw if verb == "x" else raw.upper()
        return _refuse("hexadecimal", "integers, byte buffers, and strings", value)
    if verb == "o":
        return f"{value:o}" if kind in _INTEGERS else _refuse("octal", "integers", value)
    raise EvaluationError(f'unrecognized formatting clause "{verb}"')


def _refuse(verb: str, allowed: str, value: object) -> str:
    raise EvaluationError(f"has {type_name(value)} for a {verb} clause, which takes {allowed}")


def _special(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return ""


def _text(budget: Budget, value: object, depth: int) -> Iterator[str]:
    """What `%s` writes: values within lists and maps as well, the entries of maps in the order of their texts."""
    if depth > MAX_DEPTH:
        raise EvaluationError(f"has values nested deeper than {MAX_DEPTH}, needs fewer to format them")
    budget.spend(1)
    if isinstance(value, str):
        yield value
    elif value is None:
        yield "null"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, int):
        yield str(int(value))
    elif isinstance(value, float):
        yield _special(value) or shortest(value)
    elif isinstance(value, bytes):
        yield value.decode(errors="replace")
    elif isinstance(value, Duration | Timestamp):
        yield str(value)
    elif isinstance(value, TypeValue):
        yield value.name
    elif isinstance(value, list | tuple):
        yield "["
        for number, element in enumerate(value):
            if number:
                yield ", "
            yield from _text(budget, element, depth + 1)
        yield "]"
    elif isinstance(value, dict):
        entries = sorted(
            ("".join(_text(budget, key, depth + 1)), "".join(_text(budget, element, depth + 1)))
            for key, element in value.items()
        )
        yield "{" + ", ".join(f"{key}: {element}" for key, element in entries) + "}"
    else:
        _refuse("string", "strings, numbers, bools, bytes, times, types, null, lists and maps", value)


def shortest(number: float) -> str:
    """A double as Go prints it with 'f' and no precision: the shortest digits that read back, never an exponent."""
    text = repr(number)
    if "e" not in text:
        return text.removesuffix(".0")
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits, point = whole + fraction, len(whole) + int(exponent)
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return sign + digits + "0" * (point - len(digits))
    return f"{sign}{digits[:point]}.{digits[point:]}"
