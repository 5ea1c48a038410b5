"""Parsing and type checking, by cel-expr-python (Google's C++ implementation), with messages of our own shape."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from cel_expr_python import cel
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, struct_pb2, timestamp_pb2

from webhook.cel import ast, source, types
from webhook.cel.library import Library, Overload
from webhook.cel.problems import Problems

# Extensions of cel-expr-python, in the order that its configuration needs.
_EXTENSIONS = ("optional", "bindings", "strings", "math", "sets", "lists", "two-var-comprehensions")
_ORDERINGS = ("_<_", "_<=_", "_>_", "_>=_")
STRUCT_PACKAGE = "struct"

_PROTO = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    types.BOOL: _PROTO.TYPE_BOOL,
    types.INT: _PROTO.TYPE_INT64,
    types.UINT: _PROTO.TYPE_UINT64,
    types.DOUBLE: _PROTO.TYPE_DOUBLE,
    types.STRING: _PROTO.TYPE_STRING,
    types.BYTES: _PROTO.TYPE_BYTES,
}
_KEYS = (types.STRING, types.INT, types.UINT, types.BOOL)


class Checker:
    """Checks expressions against a set of variables and functions."""

    def __init__(self, variables: Mapping[str, types.Type], library: Library) -> None:
        structs = {struct.name: struct for struct in types.struct_types(*variables.values())}
        functions = {overload.name for overload in library.overloads} | {name for name, _, _ in library.functions}
        self._problems = Problems(variables, sorted(functions), structs)
        self._env = cel.NewEnv(
            descriptor_pool=_pool(structs.values()),
            config=cel.NewEnvConfigFromYaml(_configuration()),
            extensions=[_functions((*library.overloads, *_mixed_orderings()))],
            variables={name: _described(kind) for name, kind in {**variables, **field_variables(variables)}.items()},
        )
        self._env.compile("true")  # declarations that contradict each other are noticed only here

    def check(self, text: str) -> ast.Node:
        """The checked tree; raises CelError with the first problem, all others in its `others`."""
        source.check(text)
        try:
            return ast.decode(self._env.compile(text).serialize())
        except RuntimeError as error:
            raise self._problems.first(str(error), text) from None


def field_variables(variables: Mapping[str, types.Type]) -> dict[str, types.Type]:
    """`device.capacity` as a variable of its own, for fields of a variable whose type a message cannot say.

    CEL reads a dotted name as the longest variable it knows, so the checker sees the exact type.
    """
    return {
        f"{variable}.{name}": field.type
        for variable, kind in variables.items()
        if isinstance(kind, types.StructType)
        for name, field in kind.fields.items()
        if any(parameter.parameters for parameter in field.type.parameters)
    }


def _mixed_orderings() -> Iterator[Overload]:
    """`1 < 2.5` and the like, between int, uint and double: Kubernetes has had them since 1.28."""
    numeric = (types.INT, types.UINT, types.DOUBLE)
    for operator in _ORDERINGS:
        for left in numeric:
            for right in numeric:
                if left != right:
                    yield Overload(operator, (left, right), types.BOOL, False)


def _pool(structs: Iterable[types.StructType]) -> descriptor_pool.DescriptorPool:
    """Every struct and opaque type as a message without values: the checker knows fields by name only of messages."""
    pool = descriptor_pool.DescriptorPool()
    for module in (struct_pb2, timestamp_pb2, duration_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    opaque: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    for each in types.OPAQUE:
        package, name = each.name.split(".")
        file = opaque.setdefault(package, _file(package))
        file.message_type.add(name=name)
    for file in opaque.values():
        pool.AddSerializedFile(file.SerializeToString())
    file = _file(STRUCT_PACKAGE)
    file.dependency.extend(f"google/protobuf/{name}.proto" for name in ("struct", "timestamp", "duration"))
    file.dependency.extend(each.name for each in opaque.values())
    for struct in structs:
        message = file.message_type.add(name=struct.name)
        for number, (name, field) in enumerate(struct.fields.items(), 1):
            _add_field(message, number, name, field.type)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _file(package: str) -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")


def _add_field(message: descriptor_pb2.DescriptorProto, number: int, name: str, kind: types.Type) -> None:
    """Lists and maps keep their element type where a message can say it; what it cannot say is dyn."""
    repeated = kind.name == "list"
    field = message.field.add(name=name, json_name=name, number=number)
    field.label = _PROTO.LABEL_REPEATED if repeated else _PROTO.LABEL_OPTIONAL
    if kind.name == "map" and kind.parameters[0] in _KEYS:
        camel = "".join(part[:1].upper() + part[1:] for part in name.split("_"))  # protobuf insists on this name
        entry = message.nested_type.add(name=f"{camel}Entry")
        entry.options.map_entry = True
        for position, part in enumerate(kind.parameters, 1):
            of = entry.field.add(name=("key", "value")[position - 1], number=position, label=_PROTO.LABEL_OPTIONAL)
            _set_type(of, part)
        field.label = _PROTO.LABEL_REPEATED
        field.type = _PROTO.TYPE_MESSAGE
        field.type_name = f".{STRUCT_PACKAGE}.{message.name}.{entry.name}"
    else:
        _set_type(field, kind.parameters[0] if repeated else kind)


def _set_type(field: descriptor_pb2.FieldDescriptorProto, kind: types.Type) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
        return
    field.type = _PROTO.TYPE_MESSAGE
    named = isinstance(kind, types.StructType) or kind in types.OPAQUE or kind in (types.TIMESTAMP, types.DURATION)
    field.type_name = f".{_wire_name(kind)}" if named else ".google.protobuf.Value"


def _wire_name(kind: types.Type) -> str:
    return f"{STRUCT_PACKAGE}.{kind.name}" if isinstance(kind, types.StructType) else kind.name


def _configuration() -> str:
    # JSON is YAML: nothing needs quoting rules of its own.
    return json.dumps({"name": "expressions", "extensions": [{"name": name} for name in _EXTENSIONS]})


@lru_cache(maxsize=4)
def _functions(overloads: tuple[Overload, ...]) -> cel.CelExtension:
    """Our declarations; a name that CEL has already gets further overloads."""
    declared: dict[str, list[cel.Overload]] = {}
    for number, each in enumerate(overloads):
        declared.setdefault(each.name, []).append(
            cel.Overload(
                f"{each.name}_{number}",
                return_type=_described(each.result),
                parameters=[_described(parameter) for parameter in each.parameters],
                is_member=each.member,
            )
        )
    return cel.CelExtension("kubernetes", [cel.FunctionDecl(name, each) for name, each in declared.items()])


def _described(kind: types.Type) -> cel.Type:
    return cel.Type(_signature(kind))


def _signature(kind: types.Type) -> str:
    """A type in the words of cel-expr-python; what it cannot take from outside is dyn."""
    if kind in (types.A, types.B):
        return f"~{kind.name}"
    if kind.name == "map" and kind.parameters[0] not in (*_KEYS, types.DYN, types.A):
        return "dyn"
    if kind in (types.TYPE, types.NULL) or (kind.name == "optional_type" and types.A not in kind.parameters):
        return "dyn"
    inner = ",".join(_signature(parameter) for parameter in kind.parameters)
    return f"{_wire_name(kind)}<{inner}>" if inner else _wire_name(kind)
