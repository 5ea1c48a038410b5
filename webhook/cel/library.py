"""How a function library is written down: what the checker is told, and what runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from webhook.cel.types import Type
from webhook.cel.values import DefaultMap

_F = TypeVar("_F", bound=Callable[..., Any])
Classes = type | tuple[type, ...]

_KIN: dict[type, tuple[type, ...]] = {list: (list, tuple), dict: (dict, DefaultMap)}


@dataclass(frozen=True, slots=True)
class Implementation:
    """A Python function behind a CEL function, for one class of first argument.

    `others` are the classes allowed for each further argument (None: any); `charges` tells that the function wants the
    budget before its arguments, because its cost depends on their size.
    """

    run: Callable[..., Any]
    others: tuple[frozenset[type] | None, ...]
    charges: bool


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature for the checker; the receiver of a member function is the first parameter."""

    name: str
    parameters: tuple[Type, ...]
    result: Type
    member: bool


@dataclass(slots=True)
class Library:
    """Functions by (name, called as a member, number of arguments with the receiver), then by class of the first.

    The class `object` stands for any.
    """

    functions: dict[tuple[str, bool, int], dict[type, Implementation]] = field(default_factory=dict)
    overloads: list[Overload] = field(default_factory=list)
    constants: dict[str, object] = field(default_factory=dict)

    def declare(self, name: str, result: Type, *parameters: Type, member: bool = False) -> None:
        """Tell the checker a signature that it does not have of its own."""
        self.overloads.append(Overload(name, parameters, result, member))

    def constant(self, name: str, value: object) -> None:
        """The global call `name()` gives this value."""
        self.constants[name] = value

    def without(self, names: frozenset[str]) -> Library:
        """This library, the functions ``names`` not declared: an expression that calls one does not compile."""
        kept = [overload for overload in self.overloads if overload.name not in names]
        functions = {key: table for key, table in self.functions.items() if key[0] not in names}
        return Library(functions, kept, self.constants)

    def function(self, name: str, *classes: Classes, charges: bool = False) -> Callable[[_F], _F]:
        """Decorator: the Python function runs for the global call `name(...)` with arguments of these classes."""
        return self._adder(name, False, classes, charges)

    def member(self, name: str, *classes: Classes, charges: bool = False) -> Callable[[_F], _F]:
        """Decorator: the Python function runs for `receiver.name(...)`; `classes` begin with the receiver's."""
        return self._adder(name, True, classes, charges)

    def _adder(self, name: str, member: bool, classes: tuple[Classes, ...], charges: bool) -> Callable[[_F], _F]:
        first, *others = [_classes(each) for each in classes]
        allowed = tuple(None if object in each else each for each in others)

        def add(run: _F) -> _F:
            table = self.functions.setdefault((name, member, len(classes)), {})
            for each in first:
                if each in table:
                    raise ValueError(f"has {name} for {each.__name__} twice, needs it once")
                table[each] = Implementation(run, allowed, charges)
            return run

        return add


def _classes(given: Classes) -> frozenset[type]:
    listed = given if isinstance(given, tuple) else (given,)
    return frozenset(kin for each in listed for kin in _KIN.get(each, (each,)))


def merge(*libraries: Library) -> Library:
    """One library with everything that the given ones have; functions of one name join when their classes differ."""
    merged = Library()
    for library in libraries:
        merged.overloads.extend(library.overloads)
        merged.constants.update(library.constants)
        for key, table in library.functions.items():
            into = merged.functions.setdefault(key, {})
            if into.keys() & table.keys():
                raise ValueError(f"has {key[0]} for one class twice, needs it once")
            into.update(table)
    return merged
