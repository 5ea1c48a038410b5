"""Compiles operators and function calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from webhook.cel import ast, formatting, logic, operations, regexes
from webhook.cel.budget import Budget
from webhook.cel.errors import CelError, EvaluationError, no_overload, unfit
from webhook.cel.library import Implementation

if TYPE_CHECKING:
    from webhook.cel.compiler import Compiler
    from webhook.cel.paths import Frame, Run

_UNFIT = (OverflowError, ValueError)  # UnicodeError is one
_OPERATORS: dict[str, Callable[[Compiler, ast.Call], Run]] = {
    "_&&_": logic.junction,
    "_||_": logic.junction,
    "!_": logic.negation,
    "_?_:_": logic.conditional,
    "_==_": operations.equality,
    "_!=_": operations.equality,
    "@in": operations.membership,
    "_<_": operations.ordering,
    "_<=_": operations.ordering,
    "_>_": operations.ordering,
    "_>=_": operations.ordering,
    "_+_": operations.addition,
    "_-_": operations.arithmetic,
    "_*_": operations.arithmetic,
    "_/_": operations.arithmetic,
    "_%_": operations.arithmetic,
    "-_": operations.negative,
    "_[_]": operations.subscript,
    "_?._": operations.optional_select,
    "_[?_]": operations.optional_select,
}


def compile_call(compiler: Compiler, node: ast.Call) -> Run:
    """The closure of an operator or a function call."""
    special = _OPERATORS.get(node.function)
    if special is not None and node.target is None:
        return special(compiler, node)
    if node.function in ("or", "orValue") and node.target is not None and len(node.arguments) == 1:
        return logic.alternative(compiler, node)
    return _function(compiler, node)


# What the API server folds when it compiles, and therefore refuses there.
_CONVERSIONS = frozenset({"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"})
_PATTERNS = frozenset({"matches", "find", "findAll"})


def _check_pattern(pattern: object, node: ast.Call) -> None:
    try:
        regexes.compiled(str(pattern))
    except EvaluationError as error:
        raise CelError(error.message, *node.position) from None


def _qualified(node: ast.Node) -> str:
    """`a.b` of a namespace in front of a function, or nothing when it is an ordinary receiver."""
    if isinstance(node, ast.Ident):
        return node.name
    if isinstance(node, ast.Select) and not node.test:
        inner = _qualified(node.operand)
        return f"{inner}.{node.field}" if inner else ""
    return ""


def _function(compiler: Compiler, node: ast.Call) -> Run:
    name, operands = node.function, node.arguments
    table = None
    if node.target is not None:
        namespace = _qualified(node.target)
        if namespace and not operands:
            constant = compiler.constant(f"{namespace}.{name}")
            if constant is not None:
                return constant
        if namespace:
            table = compiler.implementations(f"{namespace}.{name}", False, len(operands))
        if table is None:
            operands = (node.target, *operands)
            table = compiler.implementations(name, True, len(operands))
    else:
        table = compiler.implementations(name, False, len(operands))
    if table is None and not operands:
        constant = compiler.constant(name)
        if constant is not None:
            return constant
    if table is None:
        raise CelError(f"has the function `{name}`, which is not supported here", *node.position)
    with compiler.mixing(name == "format"):
        runs = tuple(compiler.node(operand) for operand in operands)
    if name == "format" and runs[0] in compiler.known and isinstance(operands[1], ast.MakeList):
        problem = formatting.check(str(compiler.known[runs[0]]), [element.type for element in operands[1].elements])
        if problem:
            raise CelError(problem, *node.position)
    if runs and all(run in compiler.known for run in runs):
        try:
            return compiler.always(apply(table, name, [compiler.known[run] for run in runs], Budget()))
        except (EvaluationError, *_UNFIT) as error:
            if name in _CONVERSIONS and node.target is None:
                raise CelError(str(error), *node.position) from None
            # Others fail where and when they are evaluated, as in the API server.
    if name in _PATTERNS and runs[1] in compiler.known:
        _check_pattern(compiler.known[runs[1]], node)
    return _dispatch(table, runs, name, node.position)


def _dispatch(
    table: Mapping[type, Implementation], operands: tuple[Run, ...], name: str, position: tuple[int, int]
) -> Run:
    get, fallback = table.get, table.get(object)
    if len(operands) == 1:
        only = operands[0]

        def call_one(frame: Frame) -> Any:
            value = only(frame)
            found = get(type(value), fallback)
            if found is None:
                raise no_overload(name, value).at(position)
            try:
                return found.run(frame[0], value) if found.charges else found.run(value)
            except EvaluationError as error:
                raise error.at(position) from None
            except _UNFIT as error:
                raise unfit(name, error).at(position) from None

        return call_one
    if len(operands) == 2:
        one, two = operands

        def call_two(frame: Frame) -> Any:
            first, second = one(frame), two(frame)
            found = get(type(first), fallback)
            if found is None or not (found.others[0] is None or type(second) in found.others[0]):
                raise no_overload(name, first, second).at(position)
            try:
                return found.run(frame[0], first, second) if found.charges else found.run(first, second)
            except EvaluationError as error:
                raise error.at(position) from None
            except _UNFIT as error:
                raise unfit(name, error).at(position) from None

        return call_two

    def call(frame: Frame) -> Any:
        values = [operand(frame) for operand in operands]
        try:
            return apply(table, name, values, frame[0])
        except EvaluationError as error:
            raise error.at(position) from None
        except _UNFIT as error:
            raise unfit(name, error).at(position) from None

    return call


def apply(table: Mapping[type, Implementation], name: str, values: list[Any], budget: Budget) -> Any:
    """Runs a function on values."""
    found = table.get(type(values[0]), table.get(object)) if values else table.get(object)
    if found is None:
        raise no_overload(name, *values)
    for value, allowed in zip(values[1:], found.others, strict=False):
        if allowed is not None and type(value) not in allowed:
            raise no_overload(name, *values)
    return found.run(budget, *values) if found.charges else found.run(*values)
