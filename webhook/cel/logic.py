"""Compiles `&&`, `||`, `!`, `?:` and the alternatives of optionals: what does not evaluate all its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from webhook.cel import ast
from webhook.cel.budget import ERROR_COST
from webhook.cel.errors import BudgetError, EvaluationError, no_overload
from webhook.cel.values import Optional

if TYPE_CHECKING:
    from webhook.cel.compiler import Compiler
    from webhook.cel.paths import Frame, Position, Run


def junction(compiler: Compiler, node: ast.Call) -> Run:
    """`&&` and `||` of any number of terms: a deciding term wins over errors of the others."""
    deciding, symbol = (True, "||") if node.function == "_||_" else (False, "&&")
    terms = tuple(compiler.node(term) for term in _flatten(node, node.function))

    def undecided(frame: Frame, start: int, failure: EvaluationError) -> bool:
        frame[0].spend(ERROR_COST)
        for term in terms[start:]:
            try:
                value: object = term(frame)
                if value is deciding:
                    return deciding
            except BudgetError:
                raise
            except EvaluationError:
                continue
        raise failure

    if len(terms) == 2:
        return _pair(terms, deciding, symbol, node.position, undecided)

    def many(frame: Frame) -> bool:
        number = 0
        try:
            for term in terms:
                number += 1
                value: object = term(frame)
                if value is deciding:
                    return deciding
                if value is not (not deciding):
                    raise no_overload(symbol, value).at(node.position)
        except BudgetError:
            raise
        except EvaluationError as failure:
            return undecided(frame, number, failure)
        return not deciding

    return many


def _pair(
    terms: tuple[Run, ...],
    deciding: bool,
    symbol: str,
    position: Position,
    undecided: Callable[[Frame, int, EvaluationError], bool],
) -> Run:
    first, second = terms
    other = not deciding

    def pair(frame: Frame) -> bool:
        try:
            value: object = first(frame)
            if value is deciding:
                return deciding
            if value is not other:
                raise no_overload(symbol, value).at(position)
        except BudgetError:
            raise
        except EvaluationError as failure:
            return undecided(frame, 1, failure)
        value = second(frame)
        if value is deciding:
            return deciding
        if value is not other:
            raise no_overload(symbol, value).at(position)
        return other

    return pair


def _flatten(node: ast.Node, function: str) -> list[ast.Node]:
    if isinstance(node, ast.Call) and node.function == function:
        return [part for argument in node.arguments for part in _flatten(argument, function)]
    return [node]


def negation(compiler: Compiler, node: ast.Call) -> Run:
    """`!a`."""
    operand, position = compiler.node(node.arguments[0]), node.position

    def opposite(frame: Frame) -> bool:
        value = operand(frame)
        if value is True:
            return False
        if value is False:
            return True
        raise no_overload("!", value).at(position)

    return opposite


def conditional(compiler: Compiler, node: ast.Call) -> Run:
    """`a ? b : c`."""
    test, yes, no = (compiler.node(argument) for argument in node.arguments)
    position = node.position

    def choice(frame: Frame) -> Any:
        value = test(frame)
        if value is True:
            return yes(frame)
        if value is False:
            return no(frame)
        raise no_overload("?:", value).at(position)

    return choice


def alternative(compiler: Compiler, node: ast.Call) -> Run:
    """`a.or(b)` and `a.orValue(b)`: b is evaluated only when a is empty."""
    first, second = compiler.node(node.target or node), compiler.node(node.arguments[0])
    position, unwrap = node.position, node.function == "orValue"

    def either(frame: Frame) -> Any:
        value = first(frame)
        if not isinstance(value, Optional):
            raise no_overload(node.function, value).at(position)
        if not value.empty:
            return value.value if unwrap else value
        return second(frame)

    return either
