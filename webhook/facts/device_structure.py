"""The API server's rules of one device in a ResourceSlice, its node costs aside.

Everything here is asked for every device of every slice write, so that paths and texts are made only for findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from webhook.facts.field_names import (
    INVALID,
    KEY_LIMIT,
    REQUIRED,
    TOO_LONG,
    is_semver,
    length,
    qualified_errors,
    shortened,
)
from webhook.facts.node_selection import node_name_problems, selector_problems
from webhook.facts.request_policy import policy_fine, policy_problems
from webhook.kube.finding import Finding, cause
from webhook.kube.names import (
    LABEL_MAX,
    NEEDS_DEVICE_QUALIFIED,
    NEEDS_LABEL,
    NEEDS_LABEL_KEY,
    dns_label,
    label_key,
    label_value,
)
from webhook.kube.quantity import try_parse
from webhook.kube.raw import Json, mapping, sequence, text
from webhook.kube.release import Release

KEYS_MAX = 32
VALUES_MAX = 48
VALUE_LENGTH_MAX = 64
TAINTS_MAX = 16
COUNTER_SETS_PER_DEVICE_MAX = 2
COUNTERS_MAX = 32
CONDITIONS_MAX = 4
SCALARS = ("int", "bool", "string", "version")
LISTS = ("ints", "bools", "strings", "versions")
EFFECTS = ("NoSchedule", "NoExecute", "None")
SELECTIONS = ("nodeName", "nodeSelector", "allNodes")


def attributes_fine(attributes: Mapping[str, object]) -> bool:
    """True only for attributes without problems that are scalars; false says nothing."""
    for key, value in attributes.items():
        if qualified_errors(key) or type(value) is not dict or len(value) != 1:
            return False
        if "int" in value:
            fine = type(value["int"]) is int
        elif "string" in value:
            given = value["string"]
            fine = type(given) is str and len(given) <= VALUE_LENGTH_MAX and given.isascii()
        elif "bool" in value:
            fine = type(value["bool"]) is bool
        else:
            given = value.get("version")
            fine = type(given) is str and len(given) <= VALUE_LENGTH_MAX and is_semver(given)
        if not fine:
            return False
    return True


def attribute_problems(attributes: Mapping[str, object], path: str, lists: bool, newer: bool) -> list[Finding]:
    """Problems of a device's attributes at ``path``; without ``lists`` the server drops list values first.

    ``newer``: by 1.37, for which an empty list is no value.
    """
    found: list[Finding] = []
    for key, value in attributes.items():
        if qualified_errors(key):
            found += bad_key(key, path, "attribute-name-invalid")
        if value is None or isinstance(value, dict):
            # The declarative rules of 1.37 do not shorten keys.
            found += _attribute(mapping(value), f"{path}[{shortened(key, KEY_LIMIT)}]", f"{path}[{key}]", lists, newer)
    return found


def bad_key(key: str, path: str, rule: str) -> Iterator[Finding]:
    """Findings for a key of ``attributes`` or ``capacity`` that is no qualified name."""
    for kind in qualified_errors(key):
        # Each kind in words of its own: what is said twice is told once.
        has = f"key {key!r}, a part of which is too long" if kind == TOO_LONG else f"key {key!r}"
        yield cause(rule, path, kind, has, NEEDS_DEVICE_QUALIFIED)


def _attribute(value: Json, path: str, whole: str, lists: bool, newer: bool) -> Iterator[Finding]:
    given = [name for name in SCALARS if value.get(name) is not None]
    arrays = [name for name in LISTS if isinstance(value.get(name), list)] if lists else []
    if text(value.get("string")):
        yield from _string(value["string"], f"{path}.string")
    if "version" in given:
        yield from _version(text(value["version"]), f"{path}.version")
    for name in arrays:
        items = value[name]
        if not items:
            needs = "at least one value, or no list at all"
            yield cause("list-empty", f"{path}.{name}", INVALID, "an empty list", needs)
        for index, item in enumerate(items):
            if name == "strings":
                yield from _string(text(item), f"{path}.{name}[{index}]")
            elif name == "versions":
                yield from _version(text(item), f"{path}.{name}[{index}]")
    count = len(given) + len(arrays)
    if count != 1 or (newer and not given and not value[arrays[0]]):
        has = f"{', '.join(given + arrays)}" if count else "no value"
        fix = ""
        if not count and any(value.get(name) is not None for name in LISTS):
            has, fix = "a list value", "switch the feature gate DRAListTypeAttributes on, or publish one value"
        rule = (
            "list-empty"
            if count > 1 and len(given) + sum(bool(value[name]) for name in arrays) == 1
            else "attribute-value"
        )
        yield cause(rule, whole if newer else path, INVALID, has, "exactly one value", fix)
        if newer and whole != path:
            # It says so twice, once with the key whole and once shortened.
            yield cause("attribute-name-invalid", path, INVALID, has, "exactly one value", fix)


def _string(value: str, path: str) -> Iterator[Finding]:
    if length(value) > VALUE_LENGTH_MAX:
        has, needs = f"{length(value)} bytes", f"at most {VALUE_LENGTH_MAX} bytes"
        yield cause("attribute-too-long", path, TOO_LONG, has, needs, "shorten the value, or leave the attribute out")


def _version(value: str, path: str) -> Iterator[Finding]:
    if not is_semver(value):
        yield cause("version-invalid", path, INVALID, repr(value), "a version by semver.org (1.2.3)")
    yield from _string(value, path)


def size_problems(
    attributes: Mapping[str, object], capacity: Mapping[str, object], path: str, lists: bool
) -> Iterator[Finding]:
    """Problems of how many attributes, values in ``lists`` counted, and capacities a device carries."""
    keys = len(attributes) + len(capacity)
    if keys > KEYS_MAX:
        has = f"{keys} attributes and capacities"
        yield cause("too-many-attributes", path, INVALID, has, f"at most {KEYS_MAX}")
    counted = LISTS if lists else ()
    values = sum(max(1, sum(len(sequence(mapping(v).get(n))) for n in counted)) for v in attributes.values())
    if values > VALUES_MAX:
        yield cause("too-many-attributes", path, INVALID, f"{values} attribute values", f"at most {VALUES_MAX}")


def capacity_fine(capacity: Mapping[str, object], shared: bool, newer: bool, exact: bool) -> bool:
    """True only for capacities without problems; false says nothing. For the last two see :func:`policy_fine`."""
    for key, value in capacity.items():
        if qualified_errors(key) or type(value) is not dict:
            return False
        if "requestPolicy" in value:
            policy = value["requestPolicy"]
            if not shared or type(policy) is not dict or not policy_fine(value.get("value"), policy, newer, exact):
                return False
    return True


def capacity_problems(capacity: Mapping[str, object], path: str, shared: bool, release: Release) -> list[Finding]:
    """Problems of a device's capacities at ``path``; ``shared`` is the device's ``allowMultipleAllocations``."""
    found: list[Finding] = []
    for key, value in capacity.items():
        if qualified_errors(key):
            found += bad_key(key, path, "capacity-name-invalid")
        if type(value) is not dict:
            continue
        policy = value.get("requestPolicy")
        if type(policy) is not dict:
            continue
        where = f"{path}[{shortened(key, KEY_LIMIT)}].requestPolicy"
        if not shared:
            has, fix = "a policy on an exclusive device", "set allowMultipleAllocations: true, or drop the policy"
            needs = "allowMultipleAllocations: true"
            found.append(cause("requestpolicy-forbidden", where, "FieldValueForbidden", has, needs, fix))
        elif policy:
            amount = value.get("value")
            parsed = 0 if amount is None else try_parse(amount)
            if parsed is not None:
                found += policy_problems(parsed, policy, where, release)
    return found


def taint_problems(taints: list[object], path: str, newer: bool) -> Iterator[Finding]:
    """Problems of a device's taints at ``path``; of too many, 1.37 (``newer``) still sees the effects."""
    rule = "taint-invalid"
    many = len(taints) > TAINTS_MAX
    if many:
        yield cause(rule, path, "FieldValueTooMany", f"{len(taints)} taints", f"at most {TAINTS_MAX}")
    for index, item in enumerate(taints if newer or not many else ()):
        taint, where = mapping(item), f"{path}[{index}]"
        key, value, effect = text(taint.get("key")), text(taint.get("value")), text(taint.get("effect"))
        if not effect:
            yield cause(rule, f"{where}.effect", REQUIRED, "no effect", f"one of {', '.join(EFFECTS)}")
        elif effect not in EFFECTS:
            needs = f"one of {', '.join(EFFECTS)}"
            yield cause(rule, f"{where}.effect", "FieldValueNotSupported", repr(effect), needs)
        if many:
            continue
        if reason := label_key(key):
            yield cause(rule, f"{where}.key", INVALID, f"{key!r}, which {reason}", NEEDS_LABEL_KEY)
        if reason := label_value(value):
            yield cause(rule, f"{where}.value", INVALID, f"{value!r}, which {reason}", "a label value")


def counter_problems(item: Json, name_field: str, path: str) -> Iterator[Finding]:
    """Problems of one counter set (``name``) or of one entry that consumes from a set (``counterSet``)."""
    rule = "counters-invalid"
    name, counters = text(item.get(name_field)), mapping(item.get("counters"))
    if not name:
        yield cause(rule, f"{path}.{name_field}", REQUIRED, f"no {name_field}", "the name of a counter set")
    elif reason := dns_label(name):
        yield cause(rule, f"{path}.{name_field}", INVALID, f"{name!r}, which {reason}", NEEDS_LABEL)
    if not counters:
        yield cause("counterset-empty", f"{path}.counters", REQUIRED, "no counters", "at least one counter")
    elif len(counters) > COUNTERS_MAX:
        has = f"{len(counters)} counters"
        yield cause(rule, f"{path}.counters", "FieldValueTooMany", has, f"at most {COUNTERS_MAX}")
    else:
        for key in counters:
            if reason := dns_label(key):
                yield cause(rule, f"{path}.counters", INVALID, f"{key[:LABEL_MAX]!r}, which {reason}", NEEDS_LABEL)


def consumption_problems(entries: list[object], path: str) -> Iterator[Finding]:
    """Problems of a device's ``consumesCounters`` at ``path``."""
    rule = "counters-invalid"
    if len(entries) > COUNTER_SETS_PER_DEVICE_MAX:
        needs = f"at most {COUNTER_SETS_PER_DEVICE_MAX}"
        yield cause(rule, path, "FieldValueTooMany", f"{len(entries)} counter sets", needs)
        return
    seen: set[str] = set()
    for index, item in enumerate(entries):
        yield from counter_problems(mapping(item), "counterSet", f"{path}[{index}]")
        name = text(mapping(item).get("counterSet"))
        if name in seen:
            has = f"counter set {name!r} twice"
            yield cause(rule, f"{path}[{index}]", "FieldValueDuplicate", has, "each set once")
        seen.add(name)


def selection_problems(fields: Json, path: str, expected: bool) -> Iterator[Finding]:
    """Problems of a device's own node selection; ``expected`` is the slice's ``perDeviceNodeSelection``."""
    rule = "device-node-selection"
    given = [name for name in SELECTIONS if fields.get(name) is not None]
    if not expected:
        if given:
            fix = "set perDeviceNodeSelection: true in the slice, or select nodes in the slice"
            yield cause(rule, path, INVALID, ", ".join(given), "no node selection of its own", fix)
        return
    chosen = list(given)
    name, every = fields.get("nodeName"), fields.get("allNodes")
    if name == "":
        chosen.remove("nodeName")
        yield cause("node-name-invalid", f"{path}.nodeName", INVALID, "an empty name", "a node's name")
    elif isinstance(name, str):
        yield from node_name_problems(name, f"{path}.nodeName")
    if isinstance(fields.get("nodeSelector"), dict):
        yield from selector_problems(fields["nodeSelector"], f"{path}.nodeSelector")
    if every is False:
        chosen.remove("allNodes")
        yield cause("flag-not-true", f"{path}.allNodes", INVALID, "false", "true, or nothing")
    if len(chosen) != 1:
        kind, has = (INVALID, ", ".join(chosen)) if chosen else (REQUIRED, "no node selection")
        yield cause(rule, path, kind, has, f"exactly one of {', '.join(SELECTIONS)}")


def binding_problems(fields: Json, path: str) -> Iterator[Finding]:
    """Problems of binding conditions and binding failure conditions."""
    rule = "binding-conditions"
    wanted, failing = sequence(fields.get("bindingConditions")), sequence(fields.get("bindingFailureConditions"))
    for name, items in (("bindingConditions", wanted), ("bindingFailureConditions", failing)):
        where = f"{path}.{name}"
        if len(items) > CONDITIONS_MAX:
            yield cause(rule, where, "FieldValueTooMany", f"{len(items)} conditions", f"at most {CONDITIONS_MAX}")
        else:
            for index, item in enumerate(items):
                if reason := label_key(text(item)):
                    has = f"{text(item)!r}, which {reason}"
                    yield cause(rule, f"{where}[{index}]", INVALID, has, NEEDS_LABEL_KEY)
        for index, item in enumerate(items):
            if item in items[:index]:
                yield cause(rule, f"{where}[{index}]", "FieldValueDuplicate", f"{item!r} twice", "each once")
            if items is failing and item in wanted:
                yield cause(rule, f"{where}[{index}]", INVALID, f"{item!r} in both lists", "it in one of them")
    if bool(wanted) != bool(failing):
        missing = "bindingFailureConditions" if wanted else "bindingConditions"
        yield cause(rule, f"{path}.{missing}", INVALID, "one list without the other", "both lists, or none")


def declarative(finding: Finding) -> bool:
    """Whether 1.37 finds this by its declarative rules: they see the object as it was sent (with the ``basic`` of
    v1beta1 in paths), and devices beyond the limit too.
    """
    rule, path, kind = finding.rule, finding.path, finding.error_type
    if rule == "counters-invalid":
        return kind != "FieldValueTooMany" or not path.endswith(".counters")
    if rule == "binding-conditions":
        return kind == "FieldValueTooMany"
    if rule in ("mapping-missing", "mapping-both"):
        return path.endswith(".mapping")
    return rule in ("attribute-value", "counterset-empty") or (rule == "taint-invalid" and path.endswith(".effect"))


def as_sent(findings: list[Finding], index: int) -> list[Finding]:
    """The findings of device ``index`` of a v1beta1 slice, with the paths that 1.37 gives them."""
    plain, nested = f"spec.devices[{index}].", f"spec.devices[{index}].basic."
    return [replace(f, path=f.path.replace(plain, nested, 1)) if declarative(f) else f for f in findings]
