"""The API server's own rules of a ResourceSlice (resource.k8s.io v1, v1beta1, v1beta2), node costs aside.

Field paths and error types are those of ``pkg/apis/resource/validation`` of the release that is asked for, so that an
offline check says what a write would say. Paths are those of v1: the server leaves out the ``basic`` of v1beta1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from webhook.facts.device_structure import (
    KEYS_MAX,
    LISTS,
    SELECTIONS,
    as_sent,
    attribute_problems,
    attributes_fine,
    binding_problems,
    capacity_fine,
    capacity_problems,
    consumption_problems,
    counter_problems,
    declarative,
    selection_problems,
    size_problems,
    taint_problems,
)
from webhook.facts.field_names import INVALID, REQUIRED, TOO_LONG, driver_errors, pool_errors
from webhook.facts.node_selection import node_name_problems, selector_problems
from webhook.facts.object_meta import metadata_problems, update_metadata_problems
from webhook.facts.request_policy import FRACTIONAL_GATE
from webhook.kube.finding import Finding, cause
from webhook.kube.names import DRIVER_MAX, NEEDS_DRIVER, NEEDS_LABEL, NEEDS_POOL, POOL_MAX, dns_label
from webhook.kube.raw import Json, indexed, integer, mapping, sequence, text
from webhook.kube.release import Release
from webhook.kube.resource import FIELD_136, FIELD_137

DEVICES_MAX = 128
ADVANCED_DEVICES_MAX = 64
COUNTER_SETS_MAX = 8
SELECTION = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_NONE: Json = {}
# Devices with no other field than these need none of the rarer checks.
PLAIN = frozenset(("name", "attributes", "capacity", "allowMultipleAllocations", FIELD_136, FIELD_137))


def device_list(obj: object) -> list[tuple[int, Json, Json]]:
    """Index, device and the object that holds its fields (``basic`` in v1beta1) of a raw slice's devices."""
    fields = mapping(obj)
    devices = indexed(mapping(fields.get("spec")).get("devices"))
    if fields.get("apiVersion") == "resource.k8s.io/v1beta1":
        return [(index, device, mapping(device.get("basic"))) for index, device in devices]
    return [(index, device, device) for index, device in devices]


def structure_problems(obj: object, release: Release, old: object = None) -> list[Finding]:
    """What the API server of ``release`` refuses in the raw slice ``obj``, as a create or, with ``old``, an update.

    Fields whose feature gate is off are dropped by the server before it looks, so they are not judged.
    """
    fields = mapping(obj)
    spec, metadata = mapping(fields.get("spec")), mapping(fields.get("metadata"))
    gates = _Gates(release, device_list(old) if old is not None else (), mapping(mapping(old).get("spec")))
    if old is None:
        found = metadata_problems(metadata, False, gates.newer)
    else:
        found = immutable_problems(old, obj) + update_metadata_problems(metadata, gates.newer)
    found += _spec(spec, fields.get("apiVersion") == "resource.k8s.io/v1beta1", gates)
    found += _devices(device_list(obj), spec, release, gates, _by_name(old))
    return found


class _Gates:
    """Which fields the server looks at: a gate that is off counts as on while the stored slice uses its fields."""

    __slots__ = ("conditions", "exact", "lists", "newer", "partitions", "shared", "taints")

    def __init__(self, release: Release, stored: Iterable[tuple[int, Json, Json]], spec: Json) -> None:
        on = release.enabled
        self.newer = release.minor >= 37
        self.exact = on(FRACTIONAL_GATE)
        used = [fields for _, _, fields in stored]
        self.taints = on("DRADeviceTaints") or any(f.get("taints") for f in used)
        self.partitions = on("DRAPartitionableDevices") or bool(
            spec.get("sharedCounters")
            or spec.get("perDeviceNodeSelection") is not None
            or any(f.get("consumesCounters") or any(f.get(n) is not None for n in SELECTIONS) for f in used)
        )
        self.conditions = (on("DRADeviceBindingConditions") and on("DRAResourceClaimDeviceStatus")) or any(
            f.get("bindingConditions") or f.get("bindingFailureConditions") or f.get("bindsToNode") is not None
            for f in used
        )
        self.shared = on("DRAConsumableCapacity") or any(
            f.get("allowMultipleAllocations") is not None
            or any(mapping(c).get("requestPolicy") is not None for c in mapping(f.get("capacity")).values())
            for f in used
        )
        self.lists = on("DRAListTypeAttributes") or any(_has_lists(mapping(f.get("attributes"))) for f in used)


def _has_lists(attributes: Mapping[str, object]) -> bool:
    return any(type(v) is dict and any(type(v.get(name)) is list for name in LISTS) for v in attributes.values())


def _by_name(obj: object) -> dict[str, Json]:
    named: dict[str, Json] = {}
    if obj is not None:
        for _, device, fields in device_list(obj):
            named.setdefault(text(device.get("name")), fields)
    return named


def _spec(spec: Json, flat: bool, gates: _Gates) -> Iterator[Finding]:
    driver, pool = text(spec.get("driver")), mapping(spec.get("pool"))
    for kind in driver_errors(driver):
        has = {REQUIRED: "no driver", TOO_LONG: f"{len(driver)} characters"}.get(kind, repr(driver))
        yield cause(
            "driver-invalid", "spec.driver", kind, has, NEEDS_DRIVER if kind != TOO_LONG else f"at most {DRIVER_MAX}"
        )
    name = text(pool.get("name"))
    for kind in pool_errors(name):
        has = {REQUIRED: "no pool name", TOO_LONG: f"{len(name)} characters"}.get(kind, repr(name))
        needs = NEEDS_POOL if kind != TOO_LONG else f"at most {POOL_MAX}"
        yield cause("pool-name-invalid", "spec.pool.name", kind, has, needs)
    count, generation = integer(pool.get("resourceSliceCount")), integer(pool.get("generation"))
    if count <= 0:
        fix = "write how many slices the pool has at this generation"
        yield cause("slicecount-zero", "spec.pool.resourceSliceCount", INVALID, str(count), "at least 1", fix)
    if generation < 0:
        yield cause("generation-negative", "spec.pool.generation", INVALID, str(generation), "0 or more")
    yield from _selection(spec, flat, gates)
    devices, counters = spec.get("devices"), spec.get("sharedCounters")
    if isinstance(counters, list) and gates.partitions:
        if isinstance(devices, list):
            fix = "put the counters into a slice of their own in the same pool"
            yield cause("devices-and-counters", "spec", INVALID, "devices and sharedCounters", "one of them", fix)
        yield from _counter_sets(counters)


def _selection(spec: Json, flat: bool, gates: _Gates) -> Iterator[Finding]:
    fields = SELECTION if gates.partitions else SELECTION[:3]
    chosen = [name for name in fields if spec.get(name) is not None]
    node = spec.get("nodeName")
    if node == "":
        chosen.remove("nodeName")
        if not flat:
            has, fix = "an empty name", "leave nodeName out, or name the node"
            yield cause("node-name-invalid", "spec.nodeName", INVALID, has, "a node's name", fix)
    elif isinstance(node, str):
        yield from node_name_problems(node, "spec.nodeName")
    selector = spec.get("nodeSelector")
    if isinstance(selector, dict):
        yield from selector_problems(selector, "spec.nodeSelector")
        terms = sequence(selector.get("nodeSelectorTerms"))
        if len(terms) != 1:
            where = "spec.nodeSelector.nodeSelectorTerms"
            yield cause("selector-terms", where, INVALID, f"{len(terms)} terms", "exactly one term")
    for name in fields[2:]:
        if spec.get(name) is not False:
            continue
        chosen.remove(name)
        if name != "allNodes" or not flat:
            yield cause("flag-not-true", f"spec.{name}", INVALID, "false", "true, or nothing")
    if not chosen:
        needs = f"exactly one of {', '.join(fields)}"
        yield cause("node-selection-missing", "spec", REQUIRED, "no node selection", needs)
    elif len(chosen) > 1:
        yield cause("node-selection-several", "spec", INVALID, ", ".join(chosen), "exactly one of them")


def _counter_sets(sets: list[object]) -> Iterator[Finding]:
    path = "spec.sharedCounters"
    if len(sets) > COUNTER_SETS_MAX:
        has = f"{len(sets)} counter sets"
        yield cause("too-many-countersets", path, "FieldValueTooMany", has, f"at most {COUNTER_SETS_MAX}")
        return
    seen: set[str] = set()
    for index, item in indexed(sets):
        yield from counter_problems(item, "name", f"{path}[{index}]")
        name = text(item.get("name"))
        if name in seen:
            has = f"counter set {name!r} twice"
            yield cause("counters-invalid", f"{path}[{index}]", "FieldValueDuplicate", has, "each set once")
        seen.add(name)


def _over_limit(devices: list[tuple[int, Json, Json]], gates: _Gates) -> Finding | None:
    total = devices[-1][0] + 1 if devices else 0
    if total <= ADVANCED_DEVICES_MAX:
        return None
    advanced = any(
        (gates.taints and fields.get("taints"))
        or (gates.partitions and fields.get("consumesCounters"))
        or (gates.lists and _has_lists(mapping(fields.get("attributes"))))
        for _, _, fields in devices
    )
    limit = ADVANCED_DEVICES_MAX if advanced else DEVICES_MAX
    if total <= limit:
        return None
    has, fix = f"{total} devices", "spread them over several slices of the pool"
    needs = f"at most {limit}" + (" with taints, counters or list attributes" if advanced else "")
    return cause("too-many-devices", "spec.devices", "FieldValueTooMany", has, needs, fix)


def over_limit(devices: list[tuple[int, Json, Json]], release: Release) -> bool:
    """Whether a slice has so many devices (see :func:`device_list`) that the server looks at none of them."""
    return _over_limit(devices, _Gates(release, (), {})) is not None


def _devices(
    devices: list[tuple[int, Json, Json]], spec: Json, release: Release, gates: _Gates, stored: Mapping[str, Json]
) -> list[Finding]:
    over = _over_limit(devices, gates)
    if over is not None and not gates.newer:
        return [over]
    per_device = gates.partitions and spec.get("perDeviceNodeSelection") is True
    found: list[Finding] = []
    seen: set[str] = set()
    for index, device, fields in devices:
        name = device.get("name")
        if type(name) is not str:
            name = ""
        if reason := dns_label(name):
            has = f"{name!r}, which {reason}"
            found.append(cause("device-name-invalid", f"spec.devices[{index}].name", INVALID, has, NEEDS_LABEL))
        if name in seen:
            has = f"device {name!r} a second time"
            where = f"spec.devices[{index}]"
            found.append(cause("device-name-dup-in-slice", where, "FieldValueDuplicate", has, "each device once"))
        seen.add(name)
        if not per_device and _plain(fields, gates):
            continue
        problems = _device(fields, index, per_device, release, gates, stored.get(name))
        if problems:
            found += as_sent(problems, index) if gates.newer and fields is not device else problems
    if over is not None:
        return [over, *filter(declarative, found)]
    return found


def _plain(fields: Json, gates: _Gates) -> bool:
    """True only for a device without problems and without the rarer fields, as nearly all are; false says nothing."""
    attributes, capacity = fields.get("attributes", _NONE), fields.get("capacity", _NONE)
    return (
        type(attributes) is dict
        and type(capacity) is dict
        and len(attributes) + len(capacity) <= KEYS_MAX
        and attributes_fine(attributes)
        and capacity_fine(capacity, fields.get("allowMultipleAllocations") is True, gates.newer, gates.exact)
        and PLAIN.issuperset(fields)
    )


def _device(
    fields: Json, index: int, per_device: bool, release: Release, gates: _Gates, before: Json | None
) -> list[Finding]:
    attributes, capacity = mapping(fields.get("attributes")), mapping(fields.get("capacity"))
    path = f"spec.devices[{index}]"
    found = [
        *size_problems(attributes, capacity, path, gates.lists),
        *attribute_problems(attributes, f"{path}.attributes", gates.lists, gates.newer),
    ]
    if not (before is not None and gates.newer and before.get("capacity") == fields.get("capacity")):
        known = capacity if gates.shared else dict.fromkeys(capacity)
        shared = fields.get("allowMultipleAllocations") is True
        found += capacity_problems(known, f"{path}.capacity", shared, release)
    found += _extras(fields, path, per_device, gates, before)
    return found


def _extras(fields: Json, path: str, per_device: bool, gates: _Gates, before: Json | None) -> Iterator[Finding]:
    taints, consumed = fields.get("taints"), fields.get("consumesCounters")
    if taints and gates.taints and not (before is not None and before.get("taints") == taints):
        yield from taint_problems(sequence(taints), f"{path}.taints", gates.newer)
    if consumed and gates.partitions:
        yield from consumption_problems(sequence(consumed), f"{path}.consumesCounters")
    if gates.partitions:
        yield from selection_problems(fields, path, per_device)
    if gates.conditions:
        yield from binding_problems(fields, path)


def immutable_problems(old: object, new: object) -> list[Finding]:
    """What an update of the slice ``old`` to ``new`` may not change: its driver, pool and node, and its own name."""
    before, after = mapping(mapping(old).get("spec")), mapping(mapping(new).get("spec"))
    pairs = {
        "spec.pool.name": (text(mapping(s.get("pool")).get("name")) for s in (before, after)),
        "spec.driver": (text(s.get("driver")) for s in (before, after)),
        "spec.nodeName": (s.get("nodeName") for s in (before, after)),
        "metadata.name": (text(mapping(mapping(o).get("metadata")).get("name")) for o in (old, new)),
    }
    found: list[Finding] = []
    for path, pair in pairs.items():
        first, second = pair
        if first != second:
            has, fix = f"{second!r} instead of {first!r}", "delete the slice and publish a new one"
            found.append(cause("field-immutable", path, INVALID, has, "it unchanged", fix))
    return found
