"""Compiles operators and function calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from webhook.cel import ast, formatting, operators, regexes
from webhook.cel.budget import Budget
from webhook.cel.errors import BudgetError, CelError, EvaluationError, no_overload, unfit
from webhook.cel.library import Implementation
from webhook.cel.selection import select_optional
from webhook.cel.values import NONE, Optional

if TYPE_CHECKING:
    from webhook.cel.compiler import Compiler, Frame, Run

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "_-_": operators.subtract,
    "_*_": operators.multiply,
    "_/_": operators.divide,
    "_%_": operators.remainder,
}
_UNFIT = (OverflowError, ValueError)  # UnicodeError is one
_PLAIN = frozenset({int, float, str})


def compile_call(compiler: Compiler, node: ast.Call) -> Run:
    """The closure of an operator or a function call."""
    special = _OPERATORS.get(node.function)
    if special is not None and node.target is None:
        return special(compiler, node)
    if node.function in ("or", "orValue") and node.target is not None and len(node.arguments) == 1:
        return _or_value(compiler, node)
    return _function(compiler, node)


def _and(compiler: Compiler, node: ast.Call) -> Run:
    return _junction(compiler, node, False)


def _or(compiler: Compiler, node: ast.Call) -> Run:
    return _junction(compiler, node, True)


def _flatten(node: ast.Node, function: str) -> list[ast.Node]:
    if isinstance(node, ast.Call) and node.function == function:
        return [part for argument in node.arguments for part in _flatten(argument, function)]
    return [node]


def _junction(compiler: Compiler, node: ast.Call, deciding: bool) -> Run:
    """`&&` and `||` of any number of terms: a deciding term wins over errors of the others."""
    terms = tuple(compiler.node(term) for term in _flatten(node, node.function))
    symbol, position = "||" if deciding else "&&", node.position

    def undecided(frame: Frame, start: int, failure: EvaluationError) -> bool:
        for term in terms[start:]:
            try:
                value: object = term(frame)
            except BudgetError:
                raise
            except EvaluationError:
                continue
            if value is deciding:
                return deciding
        raise failure

    def junction(frame: Frame) -> bool:
        number = 0
        try:
            for term in terms:
                number += 1
                value: object = term(frame)
                if value is deciding:
                    return deciding
                if value is not (not deciding):
                    raise no_overload(symbol, value).at(position)
        except BudgetError:
            raise
        except EvaluationError as failure:
            return undecided(frame, number, failure)
        return not deciding

    return junction


def _not(compiler: Compiler, node: ast.Call) -> Run:
    operand, position = compiler.node(node.arguments[0]), node.position

    def negation(frame: Frame) -> bool:
        value = operand(frame)
        if value is True:
            return False
        if value is False:
            return True
        raise no_overload("!", value).at(position)

    return negation


def _conditional(compiler: Compiler, node: ast.Call) -> Run:
    test, yes, no = (compiler.node(argument) for argument in node.arguments)
    position = node.position

    def conditional(frame: Frame) -> Any:
        value = test(frame)
        if value is True:
            return yes(frame)
        if value is False:
            return no(frame)
        raise no_overload("?:", value).at(position)

    return conditional


def _equal(compiler: Compiler, node: ast.Call) -> Run:
    return _equality(compiler, node, True)


def _unequal(compiler: Compiler, node: ast.Call) -> Run:
    return _equality(compiler, node, False)


def _equality(compiler: Compiler, node: ast.Call, wanted: bool) -> Run:
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

    def equality(frame: Frame) -> bool:
        first, second = left(frame), right(frame)
        kind = type(first)
        if kind is type(second) and kind in _PLAIN:
            if kind is str and len(first) > 64:
                frame[0].spend(len(first) // 10)
            return bool(first == second) is wanted
        try:
            return equal(first, second, frame[0]) is wanted
        except EvaluationError as error:
            raise error.at(position) from None

    return equality


def _same_text(left: Run, text: str, wanted: bool) -> Run:
    # Nothing but the same string equals a string, so that Python's == is CEL's.
    def same(frame: Frame) -> bool:
        return bool(left(frame) == text)

    def differs(frame: Frame) -> bool:
        return bool(left(frame) != text)

    return same if wanted else differs


def _in(compiler: Compiler, node: ast.Call) -> Run:
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

    def membership(frame: Frame) -> bool:
        value, within = left(frame), right(frame)
        if type(value) is str and type(within) is dict:
            return value in within
        try:
            return operators.contains(within, value, frame[0])
        except EvaluationError as error:
            raise error.at(position) from None

    return membership


def _ordering(symbol: str, keep: Callable[[int], bool]) -> Callable[[Compiler, ast.Call], Run]:
    def compile_ordering(compiler: Compiler, node: ast.Call) -> Run:
        left, right = (compiler.node(argument) for argument in node.arguments)
        position = node.position

        def ordering(frame: Frame) -> bool:
            first, second = left(frame), right(frame)
            try:
                result = operators.order(symbol, first, second)
            except EvaluationError as error:
                raise error.at(position) from None
            return result is not None and keep(result)

        return ordering

    return compile_ordering


def _add(compiler: Compiler, node: ast.Call) -> Run:
    left, right = (compiler.node(argument) for argument in node.arguments)
    position, add = node.position, operators.add

    def addition(frame: Frame) -> Any:
        first, second = left(frame), right(frame)
        try:
            return add(first, second, frame[0])
        except EvaluationError as error:
            raise error.at(position) from None

    return addition


def _arithmetic(compiler: Compiler, node: ast.Call) -> Run:
    left, right = (compiler.node(argument) for argument in node.arguments)
    operator, position = _ARITHMETIC[node.function], node.position

    def arithmetic(frame: Frame) -> Any:
        first, second = left(frame), right(frame)
        try:
            return operator(first, second)
        except EvaluationError as error:
            raise error.at(position) from None

    return arithmetic


def _negate(compiler: Compiler, node: ast.Call) -> Run:
    operand, position = compiler.node(node.arguments[0]), node.position

    def negative(frame: Frame) -> Any:
        value = operand(frame)
        try:
            return operators.negate(value)
        except EvaluationError as error:
            raise error.at(position) from None

    return negative


def _index(compiler: Compiler, node: ast.Call) -> Run:
    container, key = (compiler.node(argument) for argument in node.arguments)
    position, index = node.position, operators.index

    def subscript(frame: Frame) -> Any:
        within, wanted = container(frame), key(frame)
        if isinstance(within, Optional):
            return select_optional(within, wanted, position)
        try:
            if type(wanted) is str and type(within) is dict and wanted in within:
                return within[wanted]
            return index(within, wanted)
        except EvaluationError as error:
            raise error.at(position) from None

    return subscript


def _optional_select(compiler: Compiler, node: ast.Call) -> Run:
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


def _or_value(compiler: Compiler, node: ast.Call) -> Run:
    """`a.or(b)` and `a.orValue(b)`: b is evaluated only when a is empty."""
    first, second = compiler.node(node.target or node), compiler.node(node.arguments[0])
    position, unwrap = node.position, node.function == "orValue"

    def alternative(frame: Frame) -> Any:
        value = first(frame)
        if not isinstance(value, Optional):
            raise no_overload(node.function, value).at(position)
        if not value.empty:
            return value.value if unwrap else value
        return second(frame)

    return alternative


_OPERATORS: dict[str, Callable[[Compiler, ast.Call], Run]] = {
    "_&&_": _and,
    "_||_": _or,
    "!_": _not,
    "_?_:_": _conditional,
    "_==_": _equal,
    "_!=_": _unequal,
    "@in": _in,
    "_in_": _in,
    "_<_": _ordering("<", lambda result: result < 0),
    "_<=_": _ordering("<=", lambda result: result <= 0),
    "_>_": _ordering(">", lambda result: result > 0),
    "_>=_": _ordering(">=", lambda result: result >= 0),
    "_+_": _add,
    "_-_": _arithmetic,
    "_*_": _arithmetic,
    "_/_": _arithmetic,
    "_%_": _arithmetic,
    "-_": _negate,
    "_[_]": _index,
    "_?._": _optional_select,
    "_[?_]": _optional_select,
}
