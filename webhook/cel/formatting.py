"""`"%s has %d".format([name, count])`, as the strings extension of Kubernetes 1.36 writes it (its second version)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from webhook.cel import types
from webhook.cel.budget import Budget
from webhook.cel.errors import EvaluationError
from webhook.cel.library import Library
from webhook.cel.strings import quoted
from webhook.cel.times import Duration, Timestamp
from webhook.cel.values import INT_MAX, INT_MIN, TypeValue, Uint, to_double, type_name

LIBRARY = Library()

MAX_PRECISION = 1000
MAX_DEPTH = 64
_VALUE_COST = 10  # of one value within what %s writes

_CLAUSE = re.compile(r"%(?:(%)|(?:\.([0-9]*))?(.)?)", re.DOTALL)
_INTEGERS = (int, Uint)
_TAKES = {
    "s": (
        *(types.STRING, types.BOOL, types.BYTES, types.INT, types.UINT, types.DOUBLE, types.NULL, types.TYPE),
        *(types.DURATION, types.TIMESTAMP, types.Type("list"), types.Type("map")),
    ),
    "d": (types.INT, types.UINT),
    "f": (types.DOUBLE,),
    "e": (types.DOUBLE,),
    "b": (types.INT, types.UINT, types.BOOL),
    "x": (types.INT, types.UINT, types.STRING, types.BYTES),
    "X": (types.INT, types.UINT, types.STRING, types.BYTES),
    "o": (types.INT, types.UINT),
}
_TAKEN = {verb: frozenset(kind.name for kind in kinds) for verb, kinds in _TAKES.items()}


def check(text: str, arguments: Sequence[types.Type]) -> str:
    """What is wrong with a constant format text and arguments of these types; empty when nothing is."""
    used = 0
    try:
        for _, verb, _ in _clauses(text):
            if not verb:
                continue
            if used >= len(arguments):
                return f"has {len(arguments)} arguments for the format, needs more"
            kind = arguments[used]
            if kind != types.DYN and kind.name not in _TAKEN[verb]:
                return f"has {kind} for %{verb}, needs {_list(verb)}"
            used += 1
    except EvaluationError as error:
        return error.message
    return f"has {len(arguments)} arguments for the format, needs {used}" if used < len(arguments) else ""


def _list(verb: str) -> str:
    return " or ".join(dict.fromkeys(kind.name.rpartition(".")[2].lower() for kind in _TAKES[verb]))


def _clauses(text: str) -> Iterator[tuple[str, str, int | None]]:
    """(text before, verb, precision) of every clause; the rest of the text and `%%` come without a verb."""
    at = 0
    for match in _CLAUSE.finditer(text):
        before, at = text[at : match.start()], match.end()
        if match[1]:
            yield before + "%", "", None
            continue
        if match[3] is None:
            raise EvaluationError("unexpected end of format string")
        if match[2] == "":
            raise EvaluationError("has a format precision without digits")
        if match[3] not in _TAKES:
            raise EvaluationError(f'unrecognized formatting clause "{match[3]}"')
        precision = None if match[2] is None else int(match[2][:10])
        if precision is not None and precision > MAX_PRECISION:
            raise EvaluationError(f"has the format precision {precision}, needs at most {MAX_PRECISION}")
        yield before, match[3], precision
    yield text[at:], "", None


@LIBRARY.member("format", str, list, charges=True)
def _format(budget: Budget, text: str, arguments: list[object]) -> str:
    budget.spend(len(text) // 10)
    made: list[str] = []
    used = 0
    for before, verb, precision in _clauses(text):
        made.append(before)
        if not verb:
            continue
        if used >= len(arguments):
            raise EvaluationError(f"index {used} out of range")
        made.append(_clause(budget, verb, precision, arguments[used]))
        budget.spend(len(made[-1]) // 10)
        used += 1
    return "".join(made)


def _clause(budget: Budget, verb: str, precision: int | None, value: object) -> str:
    value = _narrow(value)
    kind = type(value)
    digits = 6 if precision is None else precision
    if verb == "s":
        return "".join(_text(budget, value, 0))
    if isinstance(value, float) and verb in "fe":
        # Kubernetes groups thousands; its form of %e (powers in superscript, always six digits) is nobody's wish.
        return _special(value) or (f"{value:,.{digits}f}" if verb == "f" else f"{value:.{digits}e}")
    if kind in _INTEGERS and verb in "dbxXo":
        return f"{value:{verb}}"
    if kind is bool and verb == "b":
        return "1" if value else "0"
    if isinstance(value, str | bytes) and verb in "xX":
        raw = (value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value).hex()
        return raw if verb == "x" else raw.upper()
    raise EvaluationError(f"has {type_name(value)} for %{verb}, needs {_list(verb)}")


def _narrow(value: object) -> object:
    """An integer of JSON beyond 64 bits is a double."""
    return to_double(value) if type(value) is int and not INT_MIN <= value <= INT_MAX else value


def _special(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return ""


def _text(budget: Budget, value: object, depth: int) -> Iterator[str]:
    """What `%s` writes. Within lists and maps strings have quotes; the entries of maps are in the order of keys."""
    if depth > MAX_DEPTH:
        raise EvaluationError(f"has values nested deeper than {MAX_DEPTH}, needs fewer to format them")
    budget.spend(_VALUE_COST)
    value = _narrow(value)
    if isinstance(value, str):
        yield quoted(value) if depth else value
    elif value is None:
        yield "null"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, int):
        yield str(int(value))
    elif isinstance(value, float):
        if depth:
            yield quoted(_special(value)) if _special(value) else f"{value:,.6f}"
        else:
            yield shortest(value)
    elif isinstance(value, bytes):
        text = value.decode(errors="replace")
        yield f"b{quoted(text)}" if depth else text
    elif isinstance(value, Duration | Timestamp):
        yield f'{"duration" if isinstance(value, Duration) else "timestamp"}("{value}")' if depth else str(value)
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
        yield "{" + ", ".join(f"{key}:{element}" for key, element in entries) + "}"
    else:
        raise EvaluationError(f"has {type_name(value)} for %s, needs {_list('s')}")


def shortest(number: float) -> str:
    """A double as Go prints it: the fewest digits that read back, with an exponent below 1e-4 and from 1e6 on."""
    special = _special(number)
    if special:
        return special
    plain = repr(number)
    digits, _, power = plain.lstrip("-").partition("e")
    whole, _, fraction = digits.partition(".")
    significant = (whole + fraction).lstrip("0")
    exponent = int(power or 0) + (len(whole) - 1 if whole != "0" else len(significant) - len(fraction) - 1)
    significant = significant.rstrip("0")
    if not significant or -4 <= exponent < 6:
        return plain.removesuffix(".0")
    sign, rest = "-" if number < 0 else "", significant[1:]
    return f"{sign}{significant[0]}{'.' if rest else ''}{rest}e{exponent:+03d}"
