"""JSON patches (RFC 6902) that policies make: from the value of an expression to operations that are known to apply.

The API server answers a write with an internal error when a patch does not apply to its object, whatever the
registration's failurePolicy says. So every patch is tried here first.
"""

from __future__ import annotations

import math
from typing import Any

import jsonpatch
from msgspec import to_builtins

from webhook import cel
from webhook.kube.raw import Json

_MEMBERS = {
    "add": ("value",),
    "replace": ("value",),
    "test": ("value",),
    "remove": (),
    "move": ("from",),
    "copy": ("from",),
}
# Kubernetes objects nest about 20 deep; an answer must stay far below what JSON writers take.
_MAX_DEPTH = 64
_INT_RANGE = range(-(1 << 63), 1 << 64)


def operations(value: object, place: str) -> list[Json]:
    """The operations that the value of an expression stands for, each with its own members only; ``place`` names the
    expression in messages. Raises EvaluationError for what is no JSON patch.
    """
    if not isinstance(value, (list, tuple)):
        raise cel.EvaluationError(f"{place} has no list, needs a list of operations")
    return [_operation(each, f"{place}[{index}]") for index, each in enumerate(value)]


def _operation(value: object, place: str) -> Json:
    if not isinstance(value, dict):
        raise cel.EvaluationError(f"{place} has something else, needs a map with op and path")
    kind = value.get("op")
    members = _MEMBERS.get(kind) if isinstance(kind, str) else None
    if members is None:
        raise cel.EvaluationError(f"{place}.op has {ascii(kind)[:40]}, needs {', '.join(_MEMBERS)}")
    found = {"op": kind}
    for name in ("path", *(each for each in members if each == "from")):
        pointer = value.get(name)
        # The empty path would be another object in place of the one that is written.
        if not isinstance(pointer, str) or not pointer.startswith("/"):
            raise cel.EvaluationError(f"{place}.{name} has {ascii(pointer)[:40]}, needs a path as /spec/nodeSelector")
        found[name] = pointer
    if "value" in members:
        if "value" not in value:
            raise cel.EvaluationError(f"{place} has no value, needs one for {kind}")
        found["value"] = _json(value["value"], f"{place}.value", _MAX_DEPTH)
    return found


def _json(value: object, place: str, depth: int) -> Any:
    """A copy of a value of CEL that is JSON; what JSON has no word for is refused."""
    if not depth:
        raise cel.EvaluationError(f"{place} is nested deeper than {_MAX_DEPTH} levels")
    match value:
        case None | bool() | str():
            return value
        case int() if value in _INT_RANGE:
            return int(value)
        case float() if math.isfinite(value):
            return value
        case list() | tuple():
            return [_json(item, place, depth - 1) for item in value]
        case dict() if all(isinstance(name, str) for name in value):
            return {name: _json(item, place, depth - 1) for name, item in value.items()}
    raise cel.EvaluationError(f"{place} has a value that is no JSON, needs null, booleans, numbers, strings and so on")


def applied(obj: Json | None, patch: list[Json]) -> Json:
    """A copy of ``obj`` with the operations applied in their order. Raises EvaluationError when one does not apply."""
    if obj is None:
        raise cel.EvaluationError("there is no new object to change")
    try:
        # The library's own copy takes longer than everything else that a review does.
        changed: Json = jsonpatch.apply_patch(to_builtins(obj), patch, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise cel.EvaluationError(f"the patch does not apply: {str(error) or type(error).__name__}") from None
    return changed
