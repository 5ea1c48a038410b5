"""Compiles operators that evaluate both their sides: equality, order, `in`, arithmetic, indexing."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from webhook.cel import ast, operators
from webhook.cel.errors import EvaluationError
from webhook.cel.selection import select_optional
from webhook.cel.values import NONE, Optional

if TYPE_CHECKING:
    from webhook.cel.compiler import Compiler
    from webhook.cel.paths import Frame, Run

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "_-_": operators.subtract,
    "_*_": operators.multiply,
    "_/_": operators.divide,
    "_%_": operators.remainder,
}
_ORDERINGS: dict[str, Callable[[Any, Any], bool]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
_PLAIN = frozenset({int, float, str})


def equality(compiler: Compiler, node: ast.Call) -> Run:
    """`==` and `!=`."""
    wanted = node.function == "_==_"
    one, two = node.arguments
    if isinstance(one, ast.Const):
        one, two = two, one
    left, position = compiler.node(one), node.position
    right = compiler.node(two)
    if right in compiler.known:
        constant = compiler.known[right]
        if constant is None or isinstance(constant, bool):
            return lambda frame: (left(frame) is constant) is wanted
        if isinstance(constant, str):
            return _same_text(left, constant, wanted)
    equal = operators.equal

    def equal_values(frame: Frame) -> bool:
        first, second = left(frame), right(frame)
        kind = type(first)
        if kind is type(second) and kind in _PLAIN and (kind is not str or len(first) < 64):
            return bool(first == second) is wanted
        try:
            return equal(first, second, frame[0]) is wanted
        except EvaluationError as error:
            raise error.at(position) from None

    return equal_values


def _same_text(left: Run, text: str, wanted: bool) -> Run:
    # Nothing but the same string equals a string, so that Python's == is CEL's.
    def same(frame: Frame) -> bool:
        equal: bool = left(frame) == text
        return equal

    def differs(frame: Frame) -> bool:
        unequal: bool = left(frame) != text
        return unequal

    return same if wanted else differs


def membership(compiler: Compiler, node: ast.Call) -> Run:
    """`a in b`."""
    wanted, container = node.arguments
    left, position = compiler.node(wanted), node.position
    right = compiler.node(container)
    if right in compiler.known:
        values = compiler.known[right]
        if isinstance(values, list) and all(isinstance(value, str) for value in values):
            strings = frozenset(values)

            def among(frame: Frame) -> bool:
                value = left(frame)
                return isinstance(value, str) and value in strings

            return among

    def within(frame: Frame) -> bool:
        value, within = left(frame), right(frame)
        if type(value) is str and type(within) is dict:
            return value in within
        try:
            return operators.contains(within, value, frame[0])
        except EvaluationError as error:
            raise error.at(position) from None

    return within


def ordering(compiler: Compiler, node: ast.Call) -> Run:
    """`<`, `<=`, `>`, `>=`."""
    left, right = (compiler.node(argument) for argument in node.arguments)
    compare, symbol, position = _ORDERINGS[node.function], node.function.strip("_"), node.position

    def slowly(first: Any, second: Any) -> bool:
        try:
            result = operators.order(symbol, first, second)
        except EvaluationError as error:
            raise error.at(position) from None
        return result is not None and compare(result, 0)

    if type(compiler.known.get(right)) is int:
        limit = compiler.known[right]

        def against_limit(frame: Frame) -> bool:
            value = left(frame)
            return compare(value, limit) if type(value) is int else slowly(value, limit)

        return against_limit

    def compared(frame: Frame) -> bool:
        first, second = left(frame), right(frame)
        kind = type(first)
        return compare(first, second) if kind is type(second) and kind in _PLAIN else slowly(first, second)

    return compared


def addition(compiler: Compiler, node: ast.Call) -> Run:
    """`a + b`."""
    left, right = (compiler.node(argument) for argument in node.arguments)
    position, add = node.position, operators.add

    def summed(frame: Frame) -> Any:
        first, second = left(frame), right(frame)
        try:
            return add(first, second, frame[0])
        except EvaluationError as error:
            raise error.at(position) from None

    return summed


def arithmetic(compiler: Compiler, node: ast.Call) -> Run:
    """`-`, `*`, `/` and `%`."""
    left, right = (compiler.node(argument) for argument in node.arguments)
    compute, position = _ARITHMETIC[node.function], node.position

    def computed(frame: Frame) -> Any:
        first, second = left(frame), right(frame)
        try:
            return compute(first, second)
        except EvaluationError as error:
            raise error.at(position) from None

    return computed


def negative(compiler: Compiler, node: ast.Call) -> Run:
    """`-a`."""
    operand, position = compiler.node(node.arguments[0]), node.position

    def negated(frame: Frame) -> Any:
        value = operand(frame)
        try:
            return operators.negate(value)
        except EvaluationError as error:
            raise error.at(position) from None

    return negated


def subscript(compiler: Compiler, node: ast.Call) -> Run:
    """`a[b]`."""
    container, key = (compiler.node(argument) for argument in node.arguments)
    position, index = node.position, operators.index

    def element(frame: Frame) -> Any:
        within, wanted = container(frame), key(frame)
        if isinstance(within, Optional):
            return select_optional(within, wanted, position)
        try:
            if type(wanted) is str and type(within) is dict and wanted in within:
                return within[wanted]
            return index(within, wanted)
        except EvaluationError as error:
            raise error.at(position) from None

    return element


def optional_select(compiler: Compiler, node: ast.Call) -> Run:
    """`a.?b` and `a[?b]`."""
    operand, field = node.arguments
    struct = compiler.struct(operand.type)
    container, key, position = compiler.node(operand), compiler.node(field), node.position
    if struct is not None and isinstance(field, ast.Const):
        attribute = struct.fields[str(field.value)].attribute

        def read(frame: Frame) -> Optional:
            value = container(frame)
            value = None if value is None else getattr(value, attribute)
            return NONE if value is None else Optional(value)

        return read
    return lambda frame: select_optional(container(frame), key(frame), position)
