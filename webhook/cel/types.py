"""Types that the checker knows: those of CEL, the opaque ones of the Kubernetes libraries, and structs of our own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Type:
    """A CEL type. `name` is CEL's word for it; `parameters` are the element types of lists, maps, optionals."""

    name: str
    parameters: tuple[Type, ...] = ()

    def __str__(self) -> str:
        inner = ", ".join(str(parameter) for parameter in self.parameters)
        return f"{self.name}({inner})" if inner else self.name


@dataclass(frozen=True)
class Field:
    """One field of a struct: its type, the Python attribute that holds it, and a sentence for the documentation."""

    type: Type
    attribute: str
    doc: str = ""


@dataclass(frozen=True, eq=False)
class StructType(Type):
    """A record with known fields. Values are Python objects, read with `getattr(value, field.attribute)` when needed.

    A field whose value is None is null in expressions, and `has(x.f)` is false. Two struct types with one name must not
    meet in one environment.
    """

    fields: Mapping[str, Field] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


DYN = Type("dyn")
NULL = Type("null_type")
BOOL = Type("bool")
INT = Type("int")
UINT = Type("uint")
DOUBLE = Type("double")
STRING = Type("string")
BYTES = Type("bytes")
TIMESTAMP = Type("google.protobuf.Timestamp")
DURATION = Type("google.protobuf.Duration")
TYPE = Type("type")

QUANTITY = Type("kubernetes.Quantity")
SEMVER = Type("kubernetes.Semver")
URL = Type("kubernetes.URL")
FORMAT = Type("kubernetes.NamedFormat")
IP = Type("net.IP")
CIDR = Type("net.CIDR")

OPAQUE = (QUANTITY, SEMVER, URL, FORMAT, IP, CIDR)

A = Type("A")  # type parameters of generic functions
B = Type("B")


def list_of(element: Type) -> Type:
    """The type of a list."""
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """The type of a map; JSON objects have string keys."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """The type of `optional.of(value)`."""
    return Type("optional_type", (value,))


def struct_types(*types: Type) -> list[StructType]:
    """Every struct type reachable from `types`, each once; raises ValueError for two with one name."""
    found: dict[str, StructType] = {}
    waiting = list(reversed(types))
    while waiting:
        current = waiting.pop()
        waiting.extend(reversed(current.parameters))
        if not isinstance(current, StructType):
            continue
        known = found.get(current.name)
        if known is None:
            found[current.name] = current
            waiting.extend(field.type for field in reversed(list(current.fields.values())))
        elif known is not current:
            raise ValueError(f"has two struct types named {current.name}, needs one")
    return list(found.values())
