"""Device selectors: the CEL expressions of requests and device classes, over the devices of slices.

The variable ``device`` is the scheduler's own (k8s.io/dynamic-resource-allocation/cel): ``driver``,
``allowMultipleAllocations``, and ``attributes`` and ``capacity`` by domain and identifier. A key without a domain is in
the driver's domain; a domain that the device does not use is an empty map.
"""

from __future__ import annotations

from functools import lru_cache

from webhook.cel import (
    BOOL,
    DYN,
    QUANTITY,
    STRING,
    Budget,
    CelError,
    DefaultMap,
    Environment,
    EvaluationError,
    Field,
    Lazy,
    Program,
    Record,
    StructType,
    compile,  # noqa: A004  # its name in the design
    map_of,
)
from webhook.cel.ast import Node
from webhook.cel.quantity import Quantity
from webhook.cel.semver import Semver
from webhook.facts.device_structure import LISTS
from webhook.facts.field_names import length
from webhook.kube.finding import Finding, cause
from webhook.kube.quantity import try_parse
from webhook.kube.raw import mapping, text
from webhook.kube.release import Release
from webhook.kube.resource import Device

EXPRESSION_MAX = 10 * 1024
_DEVICE = StructType(
    "Device",
    fields={
        "driver": Field(STRING, "driver", "name of the driver that published the device"),
        "attributes": Field(map_of(STRING, map_of(STRING, DYN)), "attributes", "attributes by domain and identifier"),
        "capacity": Field(map_of(STRING, map_of(STRING, QUANTITY)), "capacity", "capacities by domain and identifier"),
        "allowMultipleAllocations": Field(BOOL, "allowMultipleAllocations", "whether claims may share the device"),
    },
)


@lru_cache(maxsize=1 << 2)
def _environment(lists: bool, shared: bool) -> Environment:
    """What selectors may use: the function for attributes that are lists comes with them, and whether a device is
    shared with the gate for that.
    """
    fields = {name: field for name, field in _DEVICE.fields.items() if shared or name != "allowMultipleAllocations"}
    return Environment(
        {"device": StructType("Device", fields=fields)}, frozenset() if lists else frozenset({"includes"})
    )


@lru_cache(maxsize=1 << 10)
def _compiled(expression: str, lists: bool = True, shared: bool = True) -> Program | CelError:
    try:
        return compile(expression, _environment(lists, shared), BOOL)
    except CelError as error:
        return error


def compile_problems(expression: str, path: str, release: Release) -> list[Finding]:
    """Why the API server of ``release`` would not take the selector at ``path``; its cost limit is not estimated."""
    rule = "selector-cel"
    size = length(expression)
    if size > EXPRESSION_MAX:
        return [cause(rule, path, "FieldValueTooLong", f"{size} bytes", f"at most {EXPRESSION_MAX}")]
    program = _compiled(expression, release.enabled("DRAListTypeAttributes"), release.enabled("DRAConsumableCapacity"))
    if isinstance(program, CelError):
        has = f"an expression that does not compile ({program.line}:{program.column}: {program.message})"
        needs = "a CEL expression over device that gives true or false"
        return [cause(rule, path, "FieldValueInvalid", has, needs, program.hint)]
    return []


def tree(expression: str) -> Node | None:
    """The selector as a tree, as far as any API server takes it; None where none does."""
    try:
        return _environment(lists=True, shared=True).checker.check(expression)
    except CelError:
        return None


def matches(expression: str, driver: str, device: Device) -> bool | None:
    """Whether the selector chooses the device; None when it ends in an error, as for an attribute that is not there.

    An error is not a "no": the scheduler gives up the whole attempt.
    """
    program = _compiled(expression)
    if isinstance(program, CelError):
        return None
    try:
        answer = program.evaluate({"device": _value(driver, device)}, Budget())
    except EvaluationError:
        return None
    return answer if isinstance(answer, bool) else None


def _value(driver: str, device: Device) -> Record:
    return Record(
        {
            "driver": driver,
            "allowMultipleAllocations": device.multiple,
            "attributes": Lazy(lambda: _by_domain(driver, {k: _attribute(v) for k, v in device.attributes.items()})),
            "capacity": Lazy(lambda: _by_domain(driver, {k: _amount(v) for k, v in device.capacity.items()})),
        }
    )


def _by_domain(driver: str, values: dict[str, object]) -> DefaultMap:
    domains: dict[str, dict[str, object]] = {}
    for key, value in values.items():
        domain, slash, name = key.partition("/")
        domains.setdefault(domain if slash else driver, {})[name if slash else key] = value
    return DefaultMap(domains, {})


def _attribute(raw: object) -> object:
    fields = mapping(raw)
    for name in LISTS:
        items = fields.get(name)
        if isinstance(items, list):
            return [Semver.parse(text(item)) for item in items] if name == "versions" else items
    for name in ("int", "bool", "string"):
        if fields.get(name) is not None:
            return fields[name]
    version = fields.get("version")
    if version is None:
        raise EvaluationError("has an attribute without a value")
    return Semver.parse(text(version))


def _amount(raw: object) -> Quantity:
    amount = mapping(raw).get("value")
    value = 0 if amount is None else try_parse(amount)
    if value is None:
        raise EvaluationError("has a capacity that is no quantity")
    return Quantity(value)
