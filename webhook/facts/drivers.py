"""Which drivers can serve a request, as far as its selectors say it by name."""

from __future__ import annotations

from functools import lru_cache, reduce

from webhook.cel import ast
from webhook.facts.selectors import tree
from webhook.kube.claims import Claim, DeviceRequest
from webhook.kube.raw import mapping, members, text
from webhook.kube.snapshot import Snapshot

# Names of drivers; None where nothing is said, and any may do.
_Drivers = frozenset[str] | None


@lru_cache(maxsize=4096)
def _named(expression: str) -> _Drivers:
    """The drivers of which a device has to be for an expression to be true."""
    checked = tree(expression)
    return None if checked is None else _of(checked)


def _of(node: ast.Node) -> _Drivers:
    match node:
        case ast.Const(value=False):
            return frozenset()
        case ast.Call(function="_==_", arguments=(one, other)):
            return _names(other) if _is_driver(one) else _names(one) if _is_driver(other) else None
        case ast.Call(function="@in", arguments=(one, ast.MakeList(elements=elements, optional=optional))):
            none: _Drivers = frozenset()
            return reduce(_either, map(_names, elements), none) if _is_driver(one) and not optional else None
        # What never chooses a device is about its driver all the same.
        case ast.Call(function="_&&_", arguments=(one, ast.Const()) | (ast.Const(), one)):
            return _of(one)
        case ast.Call(function="_&&_", arguments=(one, other)):
            return _both(_of(one), _of(other))
        case ast.Call(function="_||_", arguments=(one, other)):
            return _either(_of(one), _of(other))
        case ast.Call(function="_?_:_", arguments=(test, yes, no)):
            return _either(_both(_of(test), _of(yes)), _of(no))
    return None


def _is_driver(node: ast.Node) -> bool:
    match node:
        case ast.Select(operand=ast.Ident(name="device"), field="driver", test=False):
            return True
    return False


def _names(node: ast.Node) -> _Drivers:
    return frozenset({node.value}) if isinstance(node, ast.Const) and isinstance(node.value, str) else None


def _both(one: _Drivers, other: _Drivers) -> _Drivers:
    return other if one is None else one if other is None else one & other


def _either(one: _Drivers, other: _Drivers) -> _Drivers:
    return None if one is None or other is None else one | other


def drivers_of(request: DeviceRequest, snapshot: Snapshot) -> tuple[str, ...]:
    """The drivers that the selectors of ``request`` and of its class allow, sorted; empty when they do not say."""
    spec = mapping(mapping(snapshot.classes.get(request.class_name)).get("spec"))
    expressions = [text(mapping(row.get("cel")).get("expression")) for row in members(spec.get("selectors"))]
    return _allowed((*expressions, *request.selectors))


@lru_cache(maxsize=4096)
def _allowed(expressions: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(reduce(_both, map(_named, expressions), None) or ()))


def claim_drivers(claim: Claim, snapshot: Snapshot) -> tuple[str, ...]:
    """All drivers that requests of ``claim`` name, sorted."""
    found: set[str] = set()
    for group in claim.groups:
        for alternative in group.alternatives:
            found.update(drivers_of(alternative, snapshot))
    return tuple(sorted(found))
