"""cel-expr-python's own evaluation, with Kubernetes' functions lent to it: a second opinion on the corpus.

An opaque value (a quantity, an address) is a message that holds a number: its place in a list of the real values.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Callable, Sequence
from typing import Any

from cel_expr_python import cel
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, struct_pb2, timestamp_pb2

from webhook.cel import Budget, Optional, checker, types
from webhook.cel.calls import apply
from webhook.cel.formats import Format
from webhook.cel.libraries import LIBRARY
from webhook.cel.library import Overload
from webhook.cel.network import CIDR, IP
from webhook.cel.quantity import Quantity
from webhook.cel.semver import Semver
from webhook.cel.urls import URL

_OPAQUE = {Quantity: types.QUANTITY, Semver: types.SEMVER, URL: types.URL, Format: types.FORMAT}
_OPAQUE |= {IP: types.IP, CIDR: types.CIDR}


# Its names of types.
_TYPES = {name.upper(): name for name in ("bool", "bytes", "double", "int", "list", "map", "string", "type", "uint")}
_TYPES["NULL"] = "null_type"


def _narrow(value: Any) -> Any:
    """It refuses whole objects for one integer beyond 64 bits."""
    if isinstance(value, dict):
        return {key: _narrow(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_narrow(each) for each in value]
    return float(value) if type(value) is int and abs(value) >= 2**63 else value


def _common(kinds: Sequence[types.Type]) -> types.Type:
    if len(set(kinds)) == 1:
        return kinds[0]
    return types.list_of(types.DYN) if all(kind.name == "list" for kind in kinds) else types.DYN


class SecondEngine:
    """Evaluates an expression from nothing; `evaluate` gives the corpus' encoding of the value, or the failed stage."""

    def __init__(self, roots: tuple[str, ...], encode: Callable[[Any], Any]) -> None:
        self._encode = encode
        self._values: list[Any] = []
        pool = self._pool()
        self._messages = {
            kind: message_factory.GetMessageClass(pool.FindMessageTypeByName(opaque.name))
            for kind, opaque in _OPAQUE.items()
        }
        extension = cel.CelExtension("kubernetes", self._functions())
        self._env = cel.NewEnv(
            descriptor_pool=pool,
            config=cel.NewEnvConfigFromYaml(checker._configuration()),
            extensions=[extension],
            variables=dict.fromkeys(roots, cel.Type.DYN),
        )
        self._env.compile("true")

    def evaluate(self, expression: str, names: dict[str, Any]) -> Any:
        self._values.clear()
        try:
            program = self._env.compile(expression)
        except RuntimeError:
            return "compile"
        try:
            value = program.eval(data=_narrow(names))
            return "evaluate" if value.type() == cel.Type.ERROR else {"value": self._encoded(value)}
        except (RuntimeError, TypeError, ValueError, KeyError, OverflowError):
            return "evaluate"

    def _pool(self) -> descriptor_pool.DescriptorPool:
        pool = descriptor_pool.DescriptorPool()
        for module in (struct_pb2, timestamp_pb2, duration_pb2):
            pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        field = descriptor_pb2.FieldDescriptorProto
        for opaque in _OPAQUE.values():
            package, name = opaque.name.split(".")
            file = descriptor_pb2.FileDescriptorProto(name=f"{opaque.name}.proto", package=package, syntax="proto3")
            message = file.message_type.add(name=name)
            message.field.add(name="place", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
            pool.AddSerializedFile(file.SerializeToString())
        return pool

    def _functions(self) -> list[Any]:
        # It tells functions apart by kinds of values only, and all messages are of one kind: overloads that differ in
        # nothing else become one, with dyn where they differ.
        shapes: dict[Any, list[Overload]] = {}
        for each in LIBRARY.overloads:
            if each.name in ("optional.unwrap", "unwrapOpt"):  # it has them, and does not declare them
                continue
            kinds = [p.name if p not in types.OPAQUE else "message" for p in each.parameters]
            shapes.setdefault((each.name, each.member, *kinds), []).append(each)
        declared: dict[str, list[Any]] = {}
        for number, ((name, member, *_), alike) in enumerate(shapes.items()):
            if name == "string":  # CEL's own string() takes dyn
                alike = alike[:1]
            parameters = [_common(each) for each in zip(*(overload.parameters for overload in alike), strict=True)]
            declared.setdefault(name, []).append(
                cel.Overload(
                    f"{name}_{number}",
                    return_type=checker._described(_common([overload.result for overload in alike])),
                    parameters=[checker._described(parameter) for parameter in parameters],
                    is_member=member,
                    impl=self._lent(name, member),
                )
            )
        return [cel.FunctionDecl(name, each) for name, each in declared.items()]

    def _lent(self, name: str, member: bool) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            if not arguments:
                return self._outwards(LIBRARY.constants[name])
            table = LIBRARY.functions[name, member, len(arguments)]
            return self._outwards(apply(table, name, [self._inwards(each) for each in arguments], Budget()))

        return run

    def _outwards(self, value: Any) -> Any:
        if isinstance(value, Optional):
            raise TypeError("a callback cannot give an optional")
        if type(value) in _OPAQUE:
            if value not in self._values:  # equal values share a place, so that their messages are equal
                self._values.append(value)
            return self._messages[type(value)](place=self._values.index(value) + 1)
        return value

    def _inwards(self, value: Any) -> Any:
        if hasattr(value, "place"):
            return self._values[value.place - 1]
        if isinstance(value, list):
            return [self._inwards(each.value() if hasattr(each, "value") else each) for each in value]
        return value

    def _encoded(self, value: Any) -> Any:
        kind, inner = value.type().name(), value.value()
        if kind == "UINT":
            return {"$uint": str(inner)}
        if kind == "TYPE":
            return {"$type": _TYPES.get(inner.name().partition("<")[0], inner.name())}
        if isinstance(inner, bytearray | bytes):
            return {"$bytes": base64.b64encode(inner).decode()}
        if isinstance(inner, datetime.datetime):
            return {"$timestamp": inner.strftime("%Y-%m-%dT%H:%M:%SZ")}  # the corpus has whole seconds mostly
        if isinstance(inner, datetime.timedelta):
            return {"$duration": str(inner // datetime.timedelta(microseconds=1) * 1000)}
        if isinstance(inner, list):
            return [self._encoded(each) for each in inner]
        if isinstance(inner, dict):
            if all(isinstance(key, str) for key in inner):
                return {key: self._encoded(each) for key, each in inner.items()}
            return {"$map": sorted(([self._encode(key), self._encoded(each)] for key, each in inner.items()), key=str)}
        return self._encode(self._inwards(inner))
