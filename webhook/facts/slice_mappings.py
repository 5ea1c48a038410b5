"""Node costs in a raw ResourceSlice: the rules of the API server of each release, and what it lets pass (KEP-5517).

1.36 reads ``nodeAllocatableResourceMappings``, 1.37 ``nodeAllocatableResources``; either drops the other's field in
silence, and then nothing is booked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from webhook.facts.device_structure import as_sent, declarative
from webhook.facts.field_names import shown
from webhook.facts.mapping_amounts import (
    Grid,
    Problem,
    fixed_problems,
    key_problem,
    product_problems,
    tiny_problems,
)
from webhook.facts.slice_structure import ADVANCED_DEVICES_MAX, device_list, over_limit
from webhook.kube.finding import Finding, cause
from webhook.kube.quantity import Number, beyond_int64, of_resource, try_parse
from webhook.kube.raw import Json, mapping, sequence
from webhook.kube.release import NODE_ALLOCATABLE, Release
from webhook.kube.resource import FIELD_136, FIELD_137, Slice

Verdict = tuple[tuple[Problem, ...], Number]
Judge = Callable[[str, object, Json], Verdict]
INVALID, REQUIRED, NOT_FOUND = "FieldValueInvalid", "FieldValueRequired", "FieldValueNotFound"
_FINE: Verdict = ((), 0)
_MISSING = "\0missing"  # in place of a capacity that the device does not have
_NO_KEY = (None, None, None, None, None)
_NAMES_SHOWN = 4
_EMPTY: Json = {}
_WRONG = "\0wrong"  # in place of a list or map where a quantity should be


def mapping_problems(obj: object, release: Release, item: Slice | None = None) -> list[Finding]:
    """What is wrong with the node costs of the raw slice ``obj`` for ``release``; empty with the gate off, since the
    server then drops them unseen. ``item`` is its model, where there is one: it saves looking at every device.
    """
    if not release.enabled(NODE_ALLOCATABLE):
        return []
    newer = release.minor >= 37
    own, foreign, judge = (FIELD_137, FIELD_136, _judge_137) if newer else (FIELD_136, FIELD_137, _judge_136)
    found = sketch_problems(obj, own)
    fine = _fine_totals(obj, item, own, foreign, judge) if item is not None and not found else None
    totals, devices = ({}, device_list(obj)) if fine is None else (fine, [])
    for index, device, fields in devices:
        if fields is not device and (own in device or foreign in device):
            found += _misplaced(
                device, f"spec.devices[{index}]", f"below basic: spec.devices[{index}].basic.{own}", own
            )
        costs = fields.get(own)
        if fields.get(foreign) is not None:
            found.append(_foreign(index, own, foreign, both=costs is not None))
        if type(costs) is not dict:
            if costs is not None:
                path, fix = f"spec.devices[{index}].{own}", "write a map: cpu: {…}, memory: {…}"
                kind = "a list" if isinstance(costs, list) else f"the value {costs!r}"
                found.append(cause("mapping-is-list", path, "", kind, "a map from resource to cost", fix))
            continue
        for resource, entry in costs.items():
            problems, most = judge(resource, entry, fields)
            if problems:
                path = f"spec.devices[{index}].{own}[{resource}]"
                made = [problem.at(path) for problem in problems]
                found += as_sent(made, index) if newer and fields is not device else made
            if most:
                totals[resource] = totals.get(resource, 0) + most
    if found and len(devices) > ADVANCED_DEVICES_MAX and over_limit(devices, release):
        return [finding for finding in found if newer and declarative(finding)]
    for resource, total in totals.items():
        if beyond_int64(resource, total) and not any(f.rule == "product-overflow" for f in found):
            has = f"devices that cost {of_resource(resource, total)} of {resource} together"
            needs = "a sum of at most 2^63-1 in the scheduler's unit: beyond that it counts as zero"
            found.append(Finding("product-overflow", "spec.devices", has, needs))
    return found


def _fine_totals(obj: object, item: Slice, own: str, foreign: str, judge: Judge) -> dict[str, Number] | None:
    """By resource, the most that the devices cost together, looked at by kind; None when there is anything to say, or
    when it depends on the version where a device has its fields.
    """
    fields = mapping(obj)
    devices = sequence(mapping(fields.get("spec")).get("devices"))
    if fields.get("apiVersion") == "resource.k8s.io/v1beta1" or any(
        type(device) is not dict or "basic" in device for device in devices
    ):
        return None
    totals: dict[str, Number] = {}
    for device, count in item.kinds:
        costs = device.fields.get(own, _EMPTY)
        if type(costs) is not dict or device.fields.get(foreign) is not None:
            return None
        for resource, entry in costs.items():
            problems, most = judge(resource, entry, device.fields)
            if problems:
                return None
            if most:
                totals[resource] = totals.get(resource, 0) + most * count
    return totals


def sketch_problems(document: object, own: str = FIELD_136) -> list[Finding]:
    """Findings for node costs that stand where articles sketch them: in no object at all, or in the slice instead of
    its devices.
    """
    fields = mapping(document)
    places = {"": fields, "resourceSlice": mapping(fields.get("resourceSlice")), "spec": mapping(fields.get("spec"))}
    where = f"in the device of a resource.k8s.io/v1 ResourceSlice: spec.devices[].{own}"
    return [finding for path, place in places.items() for finding in _misplaced(place, path, where, own)]


def _misplaced(place: Json, path: str, where: str, own: str) -> list[Finding]:
    example = "deviceMultiplier" if own == FIELD_137 else "allocationMultiplier"
    form = f'{{cpu: {{mapping: {{{example}: "2"}}}}}}' if own == FIELD_137 else f'{{cpu: {{{example}: "2"}}}}'
    return [
        Finding(
            "field-from-article",
            f"{path}.{name}".strip("."),
            f"{name} outside a device",
            f"it {where}",
            f"write {form}",
        )
        for name in (FIELD_136, FIELD_137)
        if name in place
    ]


def _foreign(index: int, own: str, foreign: str, both: bool) -> Finding:
    path, needs = f"spec.devices[{index}].{foreign}", f"{own}, which this release reads"
    if both:
        has, fix = f"{own} and {foreign}", f"remove {foreign}: each release reads its own field and drops the other"
        return Finding("mapping-both-releases", path, has, f"{own} alone", fix)
    rule = "field-from-1.37" if foreign == FIELD_137 else "field-from-1.36"
    fix = "write the cost in the form of this release: its API server drops the field, and nothing is booked"
    return Finding(rule, path, foreign, needs, fix)


def _grid_of(fields: Json, key: object) -> tuple[object, ...]:
    """The raw parts of the capacity that ``key`` names: value, and default, min, step and values of its policy."""
    if key is None:
        return _NO_KEY
    capacity = fields.get("capacity")
    if type(capacity) is not dict or not isinstance(key, str) or key not in capacity:
        return (_MISSING, None, None, None, tuple(mapping(capacity))[:_NAMES_SHOWN])
    entry = capacity[key]
    if type(entry) is not dict:
        return _NO_KEY
    policy = entry.get("requestPolicy")
    if type(policy) is not dict:
        return (entry.get("value"), None, None, None, None)
    span, values = policy.get("validRange"), policy.get("validValues")
    listed = tuple(values) if type(values) is list else None
    if type(span) is not dict:
        return (entry.get("value"), policy.get("default"), None, None, listed)
    return (entry.get("value"), policy.get("default"), span.get("min"), span.get("step"), listed)


def _number(given: object) -> object:
    """``given``, or a mark for a boolean: to a memo ``true`` and 1 are the same."""
    return _WRONG if given is True or given is False else given


def _without_nests(parts: tuple[object, ...]) -> tuple[object, ...]:
    """``parts`` fit for a memo: lists and maps, where quantities should be, give way to a mark."""
    return tuple(_WRONG if isinstance(part, list | dict | tuple) else part for part in parts)


def _amounts(grid: tuple[object, ...]) -> Grid:
    value, default, low, step, values = grid
    listed = values if isinstance(values, tuple) else ()
    points = [try_parse(point) for point in (default, low, step, *listed)]
    return Grid(
        0 if value is None else try_parse(value),
        tuple(point for point in points if point is not None),
        bool(listed) or step is not None,
    )


def _judge_136(resource: str, entry: object, fields: Json) -> Verdict:
    if type(entry) is not dict and entry is not None:
        return _FINE  # does not decode; the schema says so
    parts = entry or _EMPTY
    key, multiplier = parts.get("capacityKey"), parts.get("allocationMultiplier")
    if key is None and type(multiplier) is str:
        return _fixed_136(resource, multiplier)
    given = (key, _number(multiplier))
    grid, shared = _grid_of(fields, key), fields.get("allowMultipleAllocations") is True
    try:
        return _cost_136(resource, given, shared, grid)
    except TypeError:
        return _cost_136(resource, _without_nests(given), shared, _without_nests(grid))


def _judge_137(resource: str, entry: object, fields: Json) -> Verdict:
    if type(entry) is not dict and entry is not None:
        return _FINE
    form, overhead = mapping(entry).get("mapping"), mapping(entry).get("overhead")
    parts, extra = mapping(form), mapping(overhead)
    key = parts.get("capacityKey")
    given = (
        form is not None,
        key,
        _number(parts.get("capacityMultiplier")),
        _number(parts.get("deviceMultiplier")),
        overhead is not None,
        extra.get("perPod"),
        extra.get("perContainer"),
    )
    grid, shared = _grid_of(fields, key), fields.get("allowMultipleAllocations") is True
    try:
        return _cost_137(resource, given, shared, grid)
    except TypeError:
        return _cost_137(resource, _without_nests(given), shared, _without_nests(grid))


@lru_cache(maxsize=1 << 12)
def _fixed_136(resource: str, multiplier: str) -> Verdict:
    """The commonest cost, found by the little that it depends on."""
    return _cost_136(resource, (None, multiplier), False, _NO_KEY)


@lru_cache(maxsize=1 << 14)
def _cost_136(resource: str, parts: tuple[object, ...], shared: bool, grid: tuple[object, ...]) -> Verdict:
    key, given = parts
    found: list[Problem] = []
    if problem := key_problem(resource, 36):
        found.append(problem)
    suffix = ".allocationMultiplier"
    multiplier: Number | None = 1
    if given is not None:
        multiplier = _multiplier(given, suffix, found)
    found += _key_problems(key, grid, shared, "")
    if multiplier is None or multiplier <= 0:
        return tuple(found), 0
    return _products(resource, key, multiplier, grid, shared, suffix, found)


@lru_cache(maxsize=1 << 14)
def _cost_137(resource: str, parts: tuple[object, ...], shared: bool, grid: tuple[object, ...]) -> Verdict:
    has_mapping, key, by_capacity, by_device, has_overhead, per_pod, per_container = parts
    found: list[Problem] = []
    if problem := key_problem(resource, 37):
        found.append(problem)
    if not has_mapping and not has_overhead:
        found.append(_refused("mapping-missing", "", REQUIRED, "no mapping and no overhead", "one of them"))
    most: Number = 0
    if has_mapping:
        found += _key_problems(key, grid, shared, ".mapping")
        capacity_path, device_path = ".mapping.capacityMultiplier", ".mapping.deviceMultiplier"
        amount = _multiplier(by_capacity, capacity_path, found, key is not None) if by_capacity is not None else None
        fixed = _multiplier(by_device, device_path, found) if by_device is not None else None
        if key is not None and by_capacity is None:
            found.append(
                _refused(
                    "multiplier-missing", capacity_path, REQUIRED, "no capacityMultiplier", "one beside capacityKey"
                )
            )
        if key is None and by_capacity is not None:
            has = "capacityMultiplier without capacityKey"
            found.append(
                _refused("capacitykey-empty", ".mapping.capacityKey", REQUIRED, has, "the capacity to multiply")
            )
        if (key is None) == (by_device is None):
            rule = "mapping-missing" if key is None else "mapping-both"
            has = "neither capacityKey nor deviceMultiplier" if key is None else "capacityKey and deviceMultiplier"
            found.append(_refused(rule, ".mapping", INVALID, has, "exactly one of capacityKey and deviceMultiplier"))
        elif key is not None and amount is not None and amount > 0:
            _, most = _products(resource, key, amount, grid, shared, capacity_path, found)
        elif fixed is not None and fixed > 0:
            _, most = _products(resource, None, fixed, grid, shared, device_path, found)
    if has_overhead:
        _overhead(resource, per_pod, per_container, found)
    return tuple(found), most


def _refused(rule: str, suffix: str, kind: str, has: str, needs: str, fix: str = "") -> Problem:
    return Problem(rule, suffix, has, needs, fix, "error", "apiserver", kind)


def _multiplier(given: object, suffix: str, found: list[Problem], judged: bool = True) -> Number | None:
    """The multiplier, None when it is no quantity; its problems go to ``found`` (sign only when ``judged``)."""
    value = try_parse(given)
    if value is None:
        has = "no number and no text" if given == _WRONG else repr(given)
        found.append(_refused("multiplier-not-quantity", suffix, "", has, 'a quantity ("2", "500m", "4Gi")'))
    elif value <= 0 and judged:
        rule = "multiplier-negative" if value < 0 else "multiplier-zero"
        found.append(_refused(rule, suffix, INVALID, shown(value), "a multiplier greater than zero"))
    return value


def _key_problems(key: object, grid: tuple[object, ...], shared: bool, below: str) -> list[Problem]:
    suffix = f"{below}.capacityKey"
    if not isinstance(key, str):
        return []
    if not key:
        return [
            _refused(
                "capacitykey-empty", suffix, INVALID, "an empty name", "a capacity of the device, or no capacityKey"
            )
        ]
    if grid[0] == _MISSING:
        names = ", ".join(map(str, grid[4])) if isinstance(grid[4], tuple) else ""
        needs = f"a capacity of the same device ({names or 'it has none'})"
        fix = "names are compared as written, domain included"
        return [_refused("capacitykey-unknown", suffix, NOT_FOUND, f"capacity {key!r}", needs, fix)]
    if not shared:
        has = "capacityKey on a device that is allocated as a whole"
        needs, fix = (
            "a multiplier alone, or allowMultipleAllocations: true",
            "no consumed capacity is recorded for such a device",
        )
        return [Problem("capacitykey-exclusive", suffix, has, needs, fix)]
    return []


def _products(
    resource: str,
    key: object,
    multiplier: Number,
    grid: tuple[object, ...],
    shared: bool,
    suffix: str,
    found: list[Problem],
) -> Verdict:
    """Adds the problems of the products to ``found``; gives them all and the most that one device can cost."""
    most: Number = 0
    if key is None:
        found += tiny_problems(resource, multiplier, "")
        found += fixed_problems(resource, multiplier, suffix, "multiplier")
        most = multiplier
    elif grid[0] != _MISSING and shared:
        amounts = _amounts(grid)
        found += tiny_problems(resource, (amounts.value or 0) * multiplier, "at most ")
        found += product_problems(resource, multiplier, amounts, suffix)
        most = max(amounts.value or 0, 0) * multiplier
    return tuple(found), most


def _overhead(resource: str, per_pod: object, per_container: object, found: list[Problem]) -> None:
    if per_pod is None and per_container is None:
        has, needs = "an empty overhead", "perPod, perContainer, or no overhead"
        found.append(_refused("overhead-empty", ".overhead", INVALID, has, needs))
    for name, given in (("perPod", per_pod), ("perContainer", per_container)):
        suffix = f".overhead.{name}"
        if given is None:
            continue
        value = try_parse(given)
        if value is None:
            _multiplier(given, suffix, found)
        elif value < 0:
            found.append(_refused("overhead-negative", suffix, INVALID, shown(value), "zero or more"))
        else:
            found += fixed_problems(resource, value, suffix, name)
