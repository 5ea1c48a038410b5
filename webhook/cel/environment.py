"""What expressions may use, and the programs that come of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from webhook.cel import types
from webhook.cel.budget import Budget
from webhook.cel.checker import STRUCT_PACKAGE, Checker
from webhook.cel.compiler import Compiler
from webhook.cel.errors import CelError, EvaluationError
from webhook.cel.libraries import LIBRARY
from webhook.cel.paths import Run
from webhook.cel.values import Lazy, type_name

_SIMPLE = frozenset({types.BOOL, types.INT, types.UINT, types.DOUBLE, types.STRING, types.BYTES})


class Environment:
    """The variables that expressions may name, with their types; all functions of Kubernetes are there, but those
    ``without``.

    For a device selector of DRA, for example:

        attribute = map_of(STRING, DYN)
        device = StructType("Device", fields={
            "driver": Field(STRING, "driver"),
            "attributes": Field(map_of(STRING, DYN), "attributes"),     # DefaultMap(by domain, {})
            "capacity": Field(map_of(STRING, DYN), "capacity"),         # DefaultMap(by domain, {}) of Quantity values
            "allowMultipleAllocations": Field(BOOL, "shared"),
        })
        selector = compile("device.driver == 'x'", Environment({"device": device}), BOOL)
        selector.evaluate({"device": Record({"driver": "x", ...})}, Budget())
    """

    def __init__(self, variables: Mapping[str, types.Type], without: frozenset[str] = frozenset()) -> None:
        self.variables = dict(variables)
        self._without = without

    def extend(self, variables: Mapping[str, types.Type]) -> Environment:
        """An environment with further variables (or other types for some)."""
        return Environment({**self.variables, **variables}, self._without)

    @cached_property
    def checker(self) -> Checker:
        """Made when the first expression is compiled (about a millisecond)."""
        return Checker(self.variables, LIBRARY.without(self._without) if self._without else LIBRARY)

    @cached_property
    def structs(self) -> dict[str, types.StructType]:
        """Every struct type in reach, by the checker's name for it."""
        return {f"{STRUCT_PACKAGE}.{each.name}": each for each in types.struct_types(*self.variables.values())}


class Program:
    """A compiled expression."""

    def __init__(
        self, source: str, kind: types.Type, expected: types.Type | None, run: Run, compiler: Compiler, cost: int
    ) -> None:
        self.source = source
        self.type = kind
        self.names = frozenset(compiler.slots)
        self._slots = tuple(compiler.slots.items())
        self._size = compiler.size
        self._run = run
        self._cost = cost
        self._demanded = expected.name if expected is not None and kind == types.DYN and expected in _SIMPLE else ""

    def evaluate(self, names: Mapping[str, object], budget: Budget) -> object:
        """The value for these root names (those in `names` of the program are read; a Lazy is computed if it is).

        Raises EvaluationError, with line and column in the expression; BudgetError when `budget` does not suffice.
        """
        frame: list[object] = [None] * self._size
        frame[0] = budget
        for name, slot in self._slots:
            try:
                frame[slot] = names[name]
            except KeyError:
                frame[slot] = _missing(name)
        try:
            budget.spend(self._cost)
            value = self._run(frame)
            if self._demanded and type_name(value) != self._demanded:
                raise EvaluationError(f"has {type_name(value)}, needs {self._demanded}")
        except EvaluationError as error:
            raise error.at((1, 1)) from None
        return value


def _missing(name: str) -> Lazy:
    def fail() -> object:
        raise EvaluationError(f"has no value for `{name}`")

    return Lazy(fail)


def compile(  # noqa: A001
    source: str, env: Environment, expected: types.Type | None = None, mixing: bool = False
) -> Program:
    """Parses, checks and compiles an expression; raises CelError.

    With `expected`, the expression must have that type, or dyn (then bool, numbers, string and bytes are checked when
    it is evaluated). With `mixing`, list and map literals may have elements of different types, as JSON has; to
    Kubernetes that is an error.
    """
    try:
        tree = env.checker.check(source)
        kind = _named(tree.type, env.structs)
        if expected is not None and not assignable(expected, kind):
            raise CelError(f"has type {kind}, needs {expected}")
        compiler = Compiler(LIBRARY, env.variables, env.structs)
        with compiler.mixing(mixing):
            run, cost = compiler.compile(tree)
    except RecursionError:
        raise CelError("has too many levels of nesting", hint="split it with variables") from None
    return Program(source, kind, expected, run, compiler, cost)


def assignable(expected: types.Type, actual: types.Type) -> bool:
    """Whether a value of type `actual` may stand where `expected` is wanted; dyn goes with everything."""
    if types.DYN in (expected, actual):
        return True
    return (
        expected.name == actual.name
        and len(expected.parameters) == len(actual.parameters)
        and all(map(assignable, expected.parameters, actual.parameters))
    )


def _named(kind: types.Type, structs: Mapping[str, types.StructType]) -> types.Type:
    if kind.name in structs:
        return structs[kind.name]
    if kind.parameters:
        return types.Type(kind.name, tuple(_named(each, structs) for each in kind.parameters))
    return kind
