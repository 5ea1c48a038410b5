"""Compiles macros. The parser expands them to folds; each fold has the form of one macro, which runs as a plain loop.

A loop takes the cost of all its rounds from the budget before it starts (so that a budget ends it at the right round
without a check in each), and gives back what it did not use when it ends early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import length_hint
from typing import TYPE_CHECKING, Any

from webhook.cel import ast
from webhook.cel.budget import ERROR_COST, Budget
from webhook.cel.errors import BudgetError, CelError, EvaluationError, no_overload

if TYPE_CHECKING:
    from webhook.cel.compiler import Compiler
    from webhook.cel.paths import Frame, Run

Rounds = list[Any]
_UNREAD = object()


def compile_comprehension(compiler: Compiler, node: ast.Comprehension) -> Run:
    """The closure of a macro: all, exists, existsOne, map, filter, transform..., cel.bind and those built on them."""
    if _is_constant(node.condition, False):
        return _bind(compiler, node)
    for form in (_quantifier, _exactly_one, _collector):
        run = form(compiler, node)
        if run is not None:
            return run
    raise CelError("has a macro that is not supported here", *node.position)


def _is_constant(node: ast.Node, value: object) -> bool:
    return isinstance(node, ast.Const) and node.value is value


def _is_accumulator(node: ast.Node, of: ast.Comprehension) -> bool:
    return isinstance(node, ast.Ident) and node.name == of.accumulator


def _bind(compiler: Compiler, node: ast.Comprehension) -> Run:
    """`cel.bind`: the value is computed when the body first reads it, so that its error may never happen."""
    value, slot = compiler.node(node.start), compiler.slot()

    def bound(frame: Frame) -> Any:
        if frame[slot] is _UNREAD:
            frame[slot] = value(frame)
        return frame[slot]

    body, steps = compiler.within({node.accumulator: bound}, node.result)
    compiler.count(steps)

    def bind(frame: Frame) -> Any:
        frame[slot] = _UNREAD
        return body(frame)

    return bind


class _Loop:
    """What the forms share: the range, the variables, and the parts evaluated in each round with their cost."""

    def __init__(self, compiler: Compiler, node: ast.Comprehension, *parts: ast.Node) -> None:
        self.position = node.range.position
        self.range = compiler.node(node.range)
        self.first, read = compiler.local()
        self.second, names = 0, {node.variable: read}
        if node.variable2:
            self.second, names[node.variable2] = compiler.local()
        compiled = [compiler.within(names, part) for part in parts]
        self.parts = [run for run, _ in compiled]
        self.cost = 1 + sum(steps for _, steps in compiled)

    def rounds(self, frame: Frame) -> tuple[Rounds, bool]:
        """The values to go through, paid for; and whether the budget cut them short."""
        value = self.range(frame)
        if isinstance(value, dict):
            rounds = list(value.items()) if self.second else list(value)
        elif isinstance(value, (list, tuple)):
            rounds = list(enumerate(value)) if self.second else value  # type: ignore[assignment]  # tuples do as well
        else:
            raise no_overload("comprehension", value).at(self.position)
        budget: Budget = frame[0]
        cost = len(rounds) * self.cost
        if cost <= budget.left:
            budget.left -= cost
            return rounds, False
        affordable = max(budget.left, 0) // self.cost
        budget.left -= affordable * self.cost
        return rounds[:affordable], True

    def each(self, frame: Frame, rounds: Rounds) -> Iterable[Any]:
        """Goes through the rounds, setting the variables, for forms that never end early."""
        first, second = self.first, self.second
        if second:
            for frame[first], frame[second] in rounds:
                yield None
        else:
            for frame[first] in rounds:
                yield None


def _quantifier(compiler: Compiler, node: ast.Comprehension) -> Run | None:
    """`all` and `exists`: a deciding round wins over errors of other rounds."""
    step = node.step
    if not (isinstance(step, ast.Call) and len(step.arguments) == 2 and isinstance(node.start, ast.Const)):
        return None
    if step.function not in ("_&&_", "_||_") or not _is_accumulator(step.arguments[0], node):
        return None
    deciding = step.function == "_||_"
    other = not deciding
    loop = _Loop(compiler, node, step.arguments[1])
    first, second, body, cost, position = loop.first, loop.second, loop.parts[0], loop.cost, step.position

    def quantifier(frame: Frame) -> bool:
        rounds, cut = loop.rounds(frame)
        left, failure = iter(rounds), None
        while True:
            try:
                for item in left:  # goes on behind a round that failed
                    if second:
                        frame[first], frame[second] = item
                    else:
                        frame[first] = item
                    value: object = body(frame)
                    if value is deciding:
                        frame[0].left += length_hint(left) * cost
                        return deciding
                    if value is not other:
                        raise no_overload("||" if deciding else "&&", value).at(position)
                break
            except BudgetError:
                raise
            except EvaluationError as error:
                failure = failure or error
                frame[0].spend(ERROR_COST)
        if cut:
            raise frame[0].exceeded().at(loop.position)
        if failure is not None:
            raise failure
        return other

    return quantifier


def _exactly_one(compiler: Compiler, node: ast.Comprehension) -> Run | None:
    """`exists_one`: an error of any round is the error of the whole."""
    step = node.step
    if not (isinstance(node.start, ast.Const) and isinstance(step, ast.Call) and step.function == "_?_:_"):
        return None
    loop = _Loop(compiler, node, step.arguments[0])
    test, position = loop.parts[0], step.position

    def exactly_one(frame: Frame) -> bool:
        rounds, cut = loop.rounds(frame)
        count = 0
        for _ in loop.each(frame, rounds):
            value = test(frame)
            if value is True:
                count += 1
            elif value is not False:
                raise no_overload("?:", value).at(position)
        if cut:
            raise frame[0].exceeded().at(loop.position)
        return count == 1

    return exactly_one


def _collector(compiler: Compiler, node: ast.Comprehension) -> Run | None:
    """`map`, `filter` and the transform macros: a filter may stand before what is added in each round."""
    step, filter_by = node.step, None
    if isinstance(step, ast.Call) and step.function == "_?_:_":
        filter_by, step = step.arguments[0], step.arguments[1]
    if not (isinstance(step, ast.Call) and step.arguments and _is_accumulator(step.arguments[0], node)):
        return None
    if step.function == "_+_" and isinstance(step.arguments[1], ast.MakeList):
        added: tuple[ast.Node, ...] = step.arguments[1].elements
        make: Callable[[], Any] = list
    elif step.function == "cel.@mapInsert":
        added, make = step.arguments[1:], dict
    else:
        return None
    parts = added if filter_by is None else (filter_by, *added)
    loop = _Loop(compiler, node, *parts)
    test = None if filter_by is None else loop.parts[0]
    values = loop.parts if filter_by is None else loop.parts[1:]
    position = step.position
    value_of, insert = values[-1], _inserter(values, make is list)

    def collect(frame: Frame) -> Any:
        rounds, cut = loop.rounds(frame)
        made = make()
        for _ in loop.each(frame, rounds):
            if test is not None:
                wanted = test(frame)
                if wanted is False:
                    continue
                if wanted is not True:
                    raise no_overload("?:", wanted).at(position)
            try:
                insert(frame, made)
            except EvaluationError as error:
                raise error.at(position) from None
        if cut:
            raise frame[0].exceeded().at(loop.position)
        return made

    if test is None and make is list and not loop.second:
        first = loop.first

        def map_only(frame: Frame) -> list[Any]:
            rounds, cut = loop.rounds(frame)
            made = []
            for frame[first] in rounds:
                made.append(value_of(frame))
            if cut:
                raise frame[0].exceeded().at(loop.position)
            return made

        return map_only
    return collect


def _inserter(values: list[Run], into_list: bool) -> Callable[[Frame, Any], None]:
    if into_list:
        value_of = values[0]

        def append(frame: Frame, made: list[Any]) -> None:
            made.append(value_of(frame))

        return append
    if len(values) == 2:
        key_of, value_of = values

        def insert(frame: Frame, made: dict[Any, Any]) -> None:
            _set_new(made, key_of(frame), value_of(frame))

        return insert
    entries_of = values[0]

    def update(frame: Frame, made: dict[Any, Any]) -> None:
        entries = entries_of(frame)
        if not isinstance(entries, dict):
            raise no_overload("transformMapEntry", entries)
        frame[0].spend(len(entries))
        for key, value in entries.items():
            _set_new(made, key, value)

    return update


def _set_new(made: dict[Any, Any], key: Any, value: Any) -> None:
    if key in made:
        raise EvaluationError(f"duplicate key: {key}")
    made[key] = value
