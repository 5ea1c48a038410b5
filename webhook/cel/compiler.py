"""Turns a checked expression into Python closures that work on raw JSON.

A closure takes the frame of one evaluation: slot 0 holds the Budget, the next ones the root names the expression
reads, the rest its own variables (of macros). What is known at compile time is decided there: constant operands,
chains of fields, the form of a macro.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from webhook.cel import ast, operators, paths, types
from webhook.cel.calls import compile_call
from webhook.cel.comprehensions import compile_comprehension
from webhook.cel.errors import CelError, EvaluationError, no_overload
from webhook.cel.library import Implementation, Library
from webhook.cel.paths import Frame, Run
from webhook.cel.selection import select_slowly
from webhook.cel.values import Optional, TypeValue, type_name


class Compiler:
    """Compiles one expression. `slots` are the root names met, by the slot that must hold their value."""

    def __init__(
        self, library: Library, variables: Mapping[str, types.Type], structs: Mapping[str, types.StructType]
    ) -> None:
        self.slots: dict[str, int] = {}
        self.known: dict[Run, Any] = {}  # closures that always give the same value
        self.size = 1
        self._paths: dict[Run, tuple[int, tuple[str, ...], tuple[paths.Position, ...]]] = {}
        self._functions = library.functions
        self._constants = library.constants
        self._variables = variables
        self._structs = structs
        self._scope: dict[str, Run] = {}
        self._steps = 0
        self._mixing = False

    def compile(self, root: ast.Node) -> tuple[Run, int]:
        """The closure, and what one evaluation costs before sizes and macros count: one unit a step."""
        run = self.node(root)
        return run, self._steps

    # What comprehensions need.

    def slot(self) -> int:
        """A fresh slot of the frame."""
        self.size += 1
        return self.size - 1

    def within(self, names: Mapping[str, Run], node: ast.Node) -> tuple[Run, int]:
        """The closure of a part that sees further names, and its cost, which is left out of the whole's."""
        outer_scope, outer_steps = self._scope, self._steps
        self._scope, self._steps = {**outer_scope, **names}, 0
        run = self.node(node)
        steps = self._steps
        self._scope, self._steps = outer_scope, outer_steps
        return run, steps

    def count(self, steps: int) -> None:
        """Adds to the cost of the part that is being compiled."""
        self._steps += steps

    @contextmanager
    def mixing(self, allowed: bool) -> Iterator[None]:
        """Within it, list and map literals may mix types: the arguments of `format` do."""
        outer, self._mixing = self._mixing, self._mixing or allowed
        yield
        self._mixing = outer

    def _same_types(self, nodes: Iterable[tuple[ast.Node, bool]]) -> None:
        """Kubernetes wants all elements of a literal to have one type (k8s.io/apiserver's environment since 1.29)."""
        first: types.Type | None = None
        for node, optional in nodes:
            kind = node.type.parameters[0] if optional and node.type.parameters else node.type
            if first is not None and kind != first and not self._mixing:
                hint = "wrap each in dyn()"
                raise CelError(f"has {kind} among elements of type {first}", *node.position, hint)
            first = first or kind

    def node(self, node: ast.Node) -> Run:
        """The closure of one part."""
        self._steps += 1
        match node:
            case ast.Const():
                return self.always(node.value)
            case ast.Ident():
                return self._ident(node)
            case ast.Select():
                return self._has(node) if node.test else self._select(node)
            case ast.Call():
                return self._call(node)
            case ast.MakeList():
                return self._list(node)
            case ast.MakeMap():
                return self._map(node)
            case ast.Comprehension():
                return compile_comprehension(self, node)
            case ast.MakeStruct():
                raise CelError(f"has {node.name}{{}}, needs a map or a list: objects cannot be made", *node.position)
        raise CelError("has an unknown kind of expression", *node.position)

    def _ident(self, node: ast.Ident) -> Run:
        if node.name in self._scope:
            return self._scope[node.name]
        if node.is_type:
            return self.always(TypeValue(node.name))
        variable, dot, field = node.name.partition(".")
        if dot:  # see checker.field_variables
            return self._select(ast.Select(node.position, node.type, self._owner(node, variable), field, False))
        return self._at(paths.reader(slot := self._root(node.name)), slot)

    def local(self) -> tuple[int, Run]:
        """A fresh slot for a variable of a macro, and the closure that reads it."""
        slot = self.slot()
        return slot, self._at(lambda frame: frame[slot], slot)

    def _at(self, run: Run, slot: int) -> Run:
        self._paths[run] = (slot, (), ())
        return run

    def _owner(self, node: ast.Ident, variable: str) -> ast.Ident:
        return ast.Ident(node.position, self._variables[variable], variable, False)

    def _root(self, name: str) -> int:
        if name not in self.slots:
            self.slots[name] = self.slot()
        return self.slots[name]

    def _select(self, node: ast.Select) -> Run:
        struct = self.struct(node.operand.type)
        if struct is not None:
            return _struct_field(self.node(node.operand), struct.fields[node.field].attribute, node)
        operand, field, position = self.node(node.operand), node.field, node.position
        slot, fields, positions = self._paths.get(operand, (0, (), ()))
        if slot and len(fields) < 3:
            fields, positions = (*fields, field), (*positions, position)
            run = paths.path(slot, fields, positions)
            self._paths[run] = (slot, fields, positions)
            return run

        def select(frame: Frame) -> Any:
            value = operand(frame)
            try:
                return value[field]
            except (KeyError, TypeError, IndexError):
                return select_slowly(value, field, position)

        return select

    def _has(self, node: ast.Select) -> Run:
        struct = self.struct(node.operand.type)
        operand, field, position = self.node(node.operand), node.field, node.position
        if struct is not None:
            attribute = struct.fields[node.field].attribute

            def has_field(frame: Frame) -> bool:
                value = operand(frame)
                return value is not None and getattr(value, attribute) is not None

            return has_field

        def has(frame: Frame) -> bool:
            value = operand(frame)
            if type(value) is dict or isinstance(value, dict):
                return field in value
            if isinstance(value, list | tuple):
                raise EvaluationError(f"no such field: {field} of list", *position)
            if isinstance(value, Optional):
                return not value.empty and isinstance(value.value, dict) and field in value.value
            return False

        return has

    def _list(self, node: ast.MakeList) -> Run:
        self._same_types((element, number in node.optional) for number, element in enumerate(node.elements))
        elements = tuple(self.node(element) for element in node.elements)
        if node.optional:
            optional = node.optional

            def with_optional(frame: Frame) -> list[Any]:
                made = []
                for number, element in enumerate(elements):
                    value = element(frame)
                    if number not in optional:
                        made.append(value)
                    elif not isinstance(value, Optional):
                        raise no_overload("[?]", value).at(node.position)
                    elif not value.empty:
                        made.append(value.value)
                return made

            return with_optional
        if all(element in self.known for element in elements):
            return self.always([self.known[element] for element in elements])  # nothing ever changes a value
        self.count(_LIST_COST)
        return lambda frame: [element(frame) for element in elements]

    def _map(self, node: ast.MakeMap) -> Run:
        self._same_types((entry.key, False) for entry in node.entries)
        self._same_types((entry.value, entry.optional) for entry in node.entries)
        entries = tuple((self.node(e.key), self.node(e.value), e.optional, e.key.position) for e in node.entries)

        self.count(_MAP_COST)

        def make(frame: Frame) -> dict[Any, Any]:
            made: dict[Any, Any] = {}
            for key_of, value_of, optional, position in entries:
                key, value = key_of(frame), value_of(frame)
                if optional:
                    if not isinstance(value, Optional):
                        raise no_overload("{?}", value).at(position)
                    if value.empty:
                        continue
                    value = value.value
                if type(key) not in _KEYS:
                    raise EvaluationError(f"has a key of type {type_name(key)}, needs a simple one", *position)
                # true and 1 are one key to Python.
                if key in made and any(old == key and type(old) is not type(key) for old in made):
                    raise EvaluationError(
                        f"has a key of type {type_name(key)} equal to another, needs keys that differ", *position
                    )
                made[key] = value
            return made

        return make

    def _call(self, node: ast.Call) -> Run:
        return compile_call(self, node)

    def always(self, value: Any) -> Run:
        """The closure of a constant."""

        def constant(frame: Frame) -> Any:
            return value

        self.known[constant] = value
        return constant

    def struct(self, kind: types.Type) -> types.StructType | None:
        """The struct that a type of the checker's is, or None."""
        return kind if isinstance(kind, types.StructType) else self._structs.get(kind.name)

    def constant(self, name: str) -> Run | None:
        """What the global call `name()` gives, or None when there is no such function."""
        return self.always(self._constants[name]) if name in self._constants else None

    def implementations(self, name: str, member: bool, count: int) -> Mapping[type, Implementation] | None:
        """What runs for a function name, by the class of its first argument."""
        return self._functions.get((name, member, count))


# What cel-go charges for making one.
_LIST_COST, _MAP_COST = 10, 30
_KEYS = operators.NUMBERS | {str, bool, type(None)}


def _struct_field(operand: Run, attribute: str, node: ast.Select) -> Run:
    field, position = node.field, node.position

    def read(frame: Frame) -> Any:
        value = operand(frame)
        if value is None:
            raise EvaluationError(f"no such field: {field} of null", *position)
        return getattr(value, attribute)

    return read
