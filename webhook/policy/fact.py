"""How a fact is written down: a class whose fields are typed for CEL and computed when first read, at most once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

from webhook.cel.types import Field, StructType, Type

_T = TypeVar("_T")
_UNDERSCORE = re.compile(r"_([a-z])")


class Once(Generic[_T]):
    """An attribute that is computed when first read: ``cached_property`` without the lock that Python 3.11 takes.

    Not a data descriptor: the value, once computed, is found in the instance itself.
    """

    def __init__(self, compute: Callable[[Any], _T]) -> None:
        self._compute = compute
        self._name = compute.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | _T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


class Fact(Once[_T]):
    """A field of a fact: its CEL type and its documentation."""

    def __init__(self, kind: Type, compute: Callable[[Any], _T]) -> None:
        super().__init__(compute)
        self.type = kind
        self.doc = " ".join((compute.__doc__ or "").split())


def fact(kind: Type) -> Callable[[Callable[[Any], _T]], Fact[_T]]:
    """Decorator: the method's value is a field of the fact, of this CEL type; its docstring is the documentation."""
    return lambda compute: Fact(kind, compute)


def camel(name: str) -> str:
    """``pool_problems`` as expressions write it: ``poolProblems``."""
    return _UNDERSCORE.sub(lambda match: match[1].upper(), name)


def struct(name: str, cls: type) -> StructType:
    """The CEL type of a class with :func:`fact` fields."""
    fields = {
        camel(attribute): Field(value.type, attribute, value.doc)
        for attribute, value in vars(cls).items()
        if isinstance(value, Fact)
    }
    return StructType(name, fields=fields)


def known(instance: object) -> dict[str, object]:
    """The fields of a fact that were read so far, by the name that expressions use."""
    read, declared = vars(instance), vars(type(instance))
    return {camel(name): read[name] for name, value in declared.items() if isinstance(value, Fact) and name in read}
