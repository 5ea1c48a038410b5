"""What a person likely meant by a field that the API server of a release does not know, and how it is written there."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any, Final

from webhook.kube.finding import Finding, cause

Fields = Mapping[str, str]
Types = Mapping[str, Fields]

# The device field of KEP-5517 by minor release: 1.37 took another name and another shape, neither is converted.
MAPPING_FIELD: Final = {36: "nodeAllocatableResourceMappings", 37: "nodeAllocatableResources"}
MAPPING_FIELDS: Final = frozenset(MAPPING_FIELD.values())
MULTIPLIERS: Final = frozenset(("allocationMultiplier", "capacityMultiplier", "deviceMultiplier"))

_ENTRY_FIELDS = MULTIPLIERS | {"capacityKey", "mapping", "overhead"}
_ENTRY_TYPES = ("NodeAllocatableResourceMapping", "NodeAllocatableResource")
_SLICE_TYPES = frozenset(
    ("ResourceSlice", "ResourceSliceSpec", "ResourcePool", "Device", "BasicDevice", "DeviceCapacity", "DeviceAttribute")
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_YAML_WORDS = re.compile(r"(?i:y|yes|n|no|on|off|true|false|null)")
_FIX_MAX = 300
_EXAMPLE: Final = {"cpu": {"allocationMultiplier": "2"}}


def unknown_field(
    key: str, owner: str, path: str, members: Mapping[str, Any], minor: int, types: Types, other: Types
) -> Finding | None:
    """The finding for a field that the struct type `owner` does not have in the release; `path` is that of the field.

    `types` are the struct types of this release, `other` those of the other one. None when a sibling's finding says it.
    """
    release, other_release = f"1.{minor}", f"1.{_other(minor)}"
    kind = owner.rpartition(".")[2]
    value = members.get(key)
    if key in MAPPING_FIELDS and kind in ("Device", "BasicDevice") and key in other.get(owner, ()):
        return _of_other_release(path, value, minor)
    if kind in _ENTRY_TYPES and (key in _ENTRY_FIELDS):
        needs = f"the form of {release}"
        fix = f"write {flow(_entry(members, minor))}" + _lost(members, minor)
        return cause(f"field-from-{other_release}", path, "", f"the field {key} of {other_release}", needs, _cut(fix))
    if key in MAPPING_FIELDS and "basic" not in types.get(owner, ()):
        return _misplaced(path, value, minor)
    if kind in _SLICE_TYPES and _is_sketched(key, value):
        return _misplaced(path, {key: value} if isinstance(value, dict) else dict(members), minor)
    if key.lower() == "resourceslice" and kind == "ResourceSlice":
        return _sketched(path, value, minor)
    if key in other.get(owner, ()):
        mine = [name for name in types[owner] if name not in other[owner]]
        needs = f"a field of {release}" + (f" ({', '.join(mine)})" if mine else "")
        return cause(f"field-from-{other_release}", path, "", f"{key}, a field of {other_release}", needs)
    if kind == "DeviceRequest" and "exactly" in types[owner]:
        flat = [name for name in members if name in types.get(owner.replace(kind, "ExactDeviceRequest"), ())]
        if key in flat:
            return _flat_request(key, flat, path, members)
    return cause(
        "unknown-field", path, "", f"the unknown field {key}", "a field of " + kind, _nearest(key, owner, types)
    )


def sketch(obj: Mapping[str, Any], minor: int) -> Finding | None:
    """The finding for a document without a type that sketches a mapping, as in articles, None for any other."""
    spec = obj.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("devices"), list):
        return None
    for key, value in obj.items():
        if key in MAPPING_FIELDS:
            return _misplaced(key, value, minor)
        if str(key).lower() == "resourceslice" or _find_mapping(value, "", 5) is not None:
            return _sketched(str(key), value, minor)
    return None


def sketched_release(obj: Mapping[str, Any]) -> str:
    """The release (``1.36``, ``1.37``) whose field stands in the wrong place of a slice, or of a document without a
    kind; empty where there is none.
    """
    if obj.get("kind") not in (None, "", "ResourceSlice"):
        return ""
    path, _ = _find_mapping(dict(obj), "", 5) or ("", None)
    name = path.rpartition(".")[2]
    return next((f"1.{minor}" for minor, field in MAPPING_FIELD.items() if field == name), "")


def wrong_entry(key: str, value: object, path: str, minor: int) -> Finding:
    """The finding for a member of the mapping field that is no map: `cpu: 2`, or a multiplier in a resource's place."""
    if key in _ENTRY_FIELDS:
        return _misplaced(path, {key: value}, minor)
    fix = f"write {flow(key)}: {flow(_entry(value, minor))}"
    return cause("field-from-article", path, "", described(value), "a map of what the resource costs", _cut(fix))


def bare_value(value: object, spec: str, path: str) -> str:
    """The fix for an attribute or a capacity of a device that is given without the name of its type; else empty."""
    kind = spec.rpartition(".")[2]
    if not spec.startswith("#") or not path.endswith("]") or not isinstance(value, bool | int | float | str):
        return ""
    key = path[path.rindex("[") + 1 : -1]
    if kind == "DeviceAttribute":
        of = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
        return _cut(f"write {flow(key)}: {flow({of: value if of != 'string' else str(value)})}")
    if kind == "DeviceCapacity" and not isinstance(value, bool):
        return _cut(f"write {flow(key)}: {flow({'value': str(value)})}")
    return ""


def mapping_list(value: list[Any], path: str, minor: int) -> Finding:
    """The finding for a list in the place of the mapping field, as the prose of the API's own documentation has it."""
    fix = f"write {MAPPING_FIELD[minor]}: {flow(convert(value, minor))}"
    return cause("mapping-is-list", path, "", "a list", "a map from resource name to what it costs", _cut(fix))


def convert(value: object, minor: int) -> dict[str, Any]:
    """A mapping in any shape (of either release, of a list, bare numbers) in the shape of the release.

    The fields of an entry without a resource are taken for cpu; what cannot be read gives an example.
    """
    if isinstance(value, list):
        named = [item for item in value if isinstance(item, dict)]
        value = {str(item.get("resourceName") or item.get("name") or "cpu"): item for item in named}
    if not isinstance(value, dict) or not value:
        return {name: _entry(entry, minor) for name, entry in _EXAMPLE.items()}
    if _ENTRY_FIELDS.intersection(value):
        return {"cpu": _entry(value, minor)}
    return {str(name): _entry(entry, minor) for name, entry in value.items()}


def flow(value: object, depth: int = 6) -> str:
    """A value as YAML on one line, what is too deep for a message left out."""
    if isinstance(value, dict | list) and not depth:
        return "…"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(member, depth - 1)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(member, depth - 1) for member in value) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    if isinstance(value, int | float) or (_PLAIN.fullmatch(text) and not _YAML_WORDS.fullmatch(text)):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def described(value: object) -> str:
    """What stands in a field, for a message."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return flow(value)
    if isinstance(value, int) and value.bit_length() > 200:
        return "a very long number"
    text = str(value)
    text = text if len(text) <= 60 else text[:60] + "…"
    return f"the text {text!r}" if isinstance(value, str) else f"the number {text}"


def _other(minor: int) -> int:
    return 37 if minor == 36 else 36


def _of_other_release(path: str, value: object, minor: int) -> Finding:
    name = MAPPING_FIELD[minor]
    fix = f"write {name}: {flow(convert(value, minor))}" + _lost(value, minor)
    has = f"the field of 1.{_other(minor)}, which 1.{minor} drops"
    return cause(f"field-from-1.{_other(minor)}", path, "", has, name, _cut(fix))


def _misplaced(path: str, value: object, minor: int) -> Finding:
    name = MAPPING_FIELD[minor]
    mapping = convert(value, minor)
    fix = (
        "write apiVersion: resource.k8s.io/v1, kind: ResourceSlice, "
        f"spec: {{devices: [{{name: NAME, {name}: {flow(mapping)}}}]}}"
    )
    return cause(
        "field-from-article",
        path,
        "",
        "a mapping in the wrong place",
        f"it on each device, spec.devices[].{name}",
        _cut(fix),
    )


def _flat_request(key: str, flat: list[str], path: str, members: Mapping[str, Any]) -> Finding | None:
    if key != ("deviceClassName" if "deviceClassName" in flat else flat[0]):
        return None
    fix = f"write exactly: {flow({name: members[name] for name in flat})}"
    return cause("request-shape", path, "", f"{key} in the request itself (v1beta1)", "exactly:", _cut(fix))


def _is_sketched(key: str, value: object) -> bool:
    if key in _ENTRY_FIELDS:
        return True
    resource = key in ("cpu", "memory", "ephemeral-storage") or key.startswith("hugepages-")
    return resource and isinstance(value, dict) and not _ENTRY_FIELDS.isdisjoint(value)


def _sketched(path: str, value: object, minor: int) -> Finding:
    return _misplaced(*(_find_mapping(value, path, 5) or (path, value)), minor)


def _find_mapping(value: object, path: str, depth: int) -> tuple[str, object] | None:
    """Path and value of the first mapping field inside the value, not looking deeper than a sketch would be."""
    if isinstance(value, dict):
        inside = [(f"{path}.{key}", member, key in MAPPING_FIELDS) for key, member in value.items()]
    elif isinstance(value, list):
        inside = [(f"{path}[{index}]", member, False) for index, member in enumerate(value[:8])]
    else:
        return None
    for at, member, is_mapping in inside:
        if is_mapping:
            return at, member
        found = _find_mapping(member, at, depth - 1) if depth else None
        if found is not None:
            return found
    return None


def _entry(entry: object, minor: int) -> dict[str, Any]:
    """One resource's entry in the shape of the release, read from any shape."""
    capacity_key, multiplier, overhead = None, entry, None
    if isinstance(entry, dict):
        overhead = entry.get("overhead")
        inner = entry["mapping"] if isinstance(entry.get("mapping"), dict) else entry
        capacity_key = inner.get("capacityKey")
        multiplier = next((inner[name] for name in sorted(MULTIPLIERS) if inner.get(name) is not None), None)
        if multiplier is None and capacity_key is None and overhead is not None:
            return {"overhead": overhead} if minor == 37 else {}
    quantity = str(multiplier) if isinstance(multiplier, str | int | float) and type(multiplier) is not bool else "1"
    if minor == 36:
        return ({"capacityKey": capacity_key} if capacity_key else {}) | {"allocationMultiplier": quantity}
    if capacity_key:
        mapping = {"capacityKey": capacity_key, "capacityMultiplier": quantity}
    else:
        mapping = {"deviceMultiplier": quantity}
    return {"mapping": mapping} | ({"overhead": overhead} if overhead else {})


def _lost(value: object, minor: int) -> str:
    entries = value.values() if isinstance(value, dict) else ()
    given = isinstance(value, dict) and "overhead" in value
    given = given or any(isinstance(entry, dict) and "overhead" in entry for entry in entries)
    return "; overhead has no counterpart in 1.36" if given and minor == 36 else ""


def _nearest(key: str, owner: str, types: Types) -> str:
    fields = types[owner]
    for name, spec in fields.items():
        inner = spec.lstrip("[{")
        if inner.startswith("#") and key in types[inner[1:]] and name != "metadata":
            return f"move it into {name}"
    if key == "basic":
        return "leave basic out, its fields belong to the device"
    if key == "exactly":
        return "leave exactly out, its fields belong to the request"
    same = next((name for name in fields if name.lower() == key.lower()), None)
    close = [same] if same else difflib.get_close_matches(key[:80], fields, 1)
    return f"write {close[0]}" if close else "remove it"


def _cut(text: str) -> str:
    return text if len(text) <= _FIX_MAX else text[:_FIX_MAX] + " …"
