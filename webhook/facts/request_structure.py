"""The API server's own rules of the spec of ResourceClaims and ResourceClaimTemplates, paths and error types too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson
from msgspec.structs import replace

from webhook.facts.device_structure import EFFECTS
from webhook.facts.field_names import INVALID, REQUIRED, TOO_LONG, driver_errors, qualified_errors
from webhook.facts.object_meta import metadata_problems, template_metadata_problems
from webhook.facts.selectors import compile_problems
from webhook.kube.finding import Finding, cause
from webhook.kube.names import (
    NEEDS_DEVICE_QUALIFIED,
    NEEDS_DRIVER,
    NEEDS_LABEL,
    NEEDS_LABEL_KEY,
    NEEDS_SUBDOMAIN,
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
)
from webhook.kube.raw import Json, indexed, integer, mapping, sequence, text
from webhook.kube.release import Release

REQUESTS_MAX = 32
ALTERNATIVES_MAX = 8
PARAMETERS_MAX = 10 * 1024
TOO_MANY, DUPLICATE, NOT_SUPPORTED = "FieldValueTooMany", "FieldValueDuplicate", "FieldValueNotSupported"
# What counts as left out of a v1beta1 request; everything else is a pointer or a list, which is there when it is given.
_UNSET = {"deviceClassName": ("",), "allocationMode": ("",), "count": (0,)}
FLAT = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")
SHAPE = "request-shape"
NO_MODE = "no mode"


def claim_structure_problems(obj: object, release: Release) -> list[Finding]:
    """What the API server of ``release`` refuses in a new raw ResourceClaim or ResourceClaimTemplate of any version."""
    fields = mapping(obj)
    found = metadata_problems(mapping(fields.get("metadata")), True, release.minor >= 37)
    spec, path = mapping(fields.get("spec")), "spec"
    if fields.get("kind") == "ResourceClaimTemplate":
        found += template_metadata_problems(mapping(spec.get("metadata")), "spec.metadata")
        spec, path = mapping(spec.get("spec")), "spec.spec"
    flat = fields.get("apiVersion") == "resource.k8s.io/v1beta1"
    return found + devices_problems(mapping(spec.get("devices")), f"{path}.devices", flat, release)


def immutable_spec_problems(old: object, new: object) -> list[Finding]:
    """What an update of a claim or template may not change: anything in its spec."""
    if mapping(old).get("spec") == mapping(new).get("spec"):
        return []
    fix = "delete the object and create it with the other spec"
    return [cause("field-immutable", "spec", INVALID, "another spec than the stored one", "it unchanged", fix)]


def devices_problems(devices: Json, path: str, flat: bool, release: Release) -> list[Finding]:
    """Problems of ``spec.devices`` at ``path``; ``flat``: the requests of v1beta1, which have no ``exactly``."""
    requests = sequence(devices.get("requests"))
    names = _names(requests)
    found = [*_requests(requests, f"{path}.requests", flat, release)]
    found += _constraints(sequence(devices.get("constraints")), f"{path}.constraints", names, release)
    config = sequence(devices.get("config"))
    if len(config) > REQUESTS_MAX:
        found.append(_many("config-invalid", f"{path}.config", len(config), REQUESTS_MAX))
    else:
        for index, item in indexed(config):
            where = f"{path}.config[{index}]"
            found += _references(sequence(item.get("requests")), f"{where}.requests", names)
            found += config_problems(item, where)
    return found


def _many(rule: str, path: str, count: int, limit: int) -> Finding:
    return cause(rule, path, TOO_MANY, f"{count} entries", f"at most {limit}")


def _names(requests: list[object]) -> dict[str, frozenset[str]]:
    return {
        text(item.get("name")): frozenset(text(sub.get("name")) for _, sub in indexed(item.get("firstAvailable")))
        for _, item in indexed(requests)
    }


def _requests(requests: list[object], path: str, flat: bool, release: Release) -> Iterator[Finding]:
    if len(requests) > REQUESTS_MAX:
        yield _many(SHAPE, path, len(requests), REQUESTS_MAX)
        return
    seen: set[str] = set()
    for index, item in indexed(requests):
        where, name = f"{path}[{index}]", text(item.get("name"))
        yield from _name(name, where, seen)
        yield from _request(item, where, flat, release)


def _name(name: str, path: str, seen: set[str]) -> Iterator[Finding]:
    if reason := dns_label(name):
        yield cause("request-name-invalid", f"{path}.name", INVALID, f"{name!r}, which {reason}", NEEDS_LABEL)
    if name in seen:
        yield cause("request-name-invalid", path, DUPLICATE, f"request {name!r} a second time", "each name once")
    seen.add(name)


def _request(item: Json, path: str, flat: bool, release: Release) -> Iterator[Finding]:
    first = sequence(item.get("firstAvailable")) if release.enabled("DRAPrioritizedList") else []
    exactly = item.get("exactly")
    if flat:
        known = FLAT if release.minor < 37 else (*FLAT, "derivedAttributes")
        given = [name for name in known if item.get(name) is not None and item[name] not in _UNSET.get(name, ())]
        exactly = {name: item.get(name) for name in FLAT} if given else None
    if exactly is not None and first:
        yield cause(SHAPE, path, INVALID, "exactly and firstAvailable", "one of them")
        if release.minor >= 37:
            inner = [*_first(first, path, release), *_exactly(mapping(exactly), path, flat, release)]
            yield from filter(_declarative, inner)
    elif first:
        yield from _first(first, path, release)
    elif exactly is not None:
        yield from _exactly(mapping(exactly), path, flat, release)
    elif not flat and any(item.get(name) is not None for name in FLAT):
        has, fix = "the fields of a v1beta1 request", "move deviceClassName and the fields beside it below exactly:"
        yield cause(SHAPE, path, REQUIRED, has, "exactly: or firstAvailable:", fix)
    else:
        yield cause(SHAPE, path, REQUIRED, "no device", "exactly: or firstAvailable:")


def _exactly(fields: Json, path: str, flat: bool, release: Release) -> Iterator[Finding]:
    inner = f"{path}.exactly"
    for finding in _alternative(fields, inner, flat, release):
        # The declarative rules of 1.37 see a v1beta1 request as it was sent; that a mode is missing they do not see.
        if flat and release.minor >= 37 and _declarative(finding):
            finding = replace(finding, path=finding.path.replace(inner, path, 1))
        yield finding


def _first(first: list[object], path: str, release: Release) -> Iterator[Finding]:
    if len(first) > ALTERNATIVES_MAX:
        yield _many(SHAPE, f"{path}.firstAvailable", len(first), ALTERNATIVES_MAX)
        return
    seen: set[str] = set()
    for index, sub in indexed(first):
        where = f"{path}.firstAvailable[{index}]"
        yield from _name(text(sub.get("name")), where, seen)
        yield from _alternative(sub, where, False, release)


def _declarative(finding: Finding) -> bool:
    """Whether 1.37 finds this by its declarative rules, which look into both forms of a request that has both."""
    rule, path = finding.rule, finding.path
    if rule == "class-name-invalid":
        return ".firstAvailable[" in path
    if rule == "toleration-invalid":
        return not path.endswith(".value")
    return finding.error_type in (TOO_MANY, DUPLICATE, NOT_SUPPORTED) and finding.has != NO_MODE


def _alternative(fields: Json, path: str, flat: bool, release: Release) -> Iterator[Finding]:
    name = text(fields.get("deviceClassName"))
    if not name:
        yield cause("class-name-invalid", f"{path}.deviceClassName", REQUIRED, "no device class", "its name")
    elif reason := dns_subdomain(name):
        has = f"{name!r}, which {reason}"
        yield cause("class-name-invalid", f"{path}.deviceClassName", INVALID, has, NEEDS_SUBDOMAIN)
    yield from selectors_problems(sequence(fields.get("selectors")), f"{path}.selectors", release)
    # v1beta1 fills in mode and count only for a request that names a class.
    given = text(fields.get("allocationMode"))
    mode = given or ("" if flat and not name else "ExactCount")
    count = integer(fields.get("count"))
    if mode == "All" and count:
        yield cause("count-invalid", f"{path}.count", INVALID, f"count {count} with mode All", "no count")
    elif mode == "ExactCount" and (count < 0 or (count == 0 and flat and not name)):
        yield cause("count-invalid", f"{path}.count", INVALID, f"count {count}", "at least 1")
    elif mode not in ("All", "ExactCount"):
        has = f"mode {mode!r}" if mode else NO_MODE
        yield cause("count-invalid", f"{path}.allocationMode", NOT_SUPPORTED, has, "ExactCount or All")
    if release.enabled("DRADeviceTaints"):
        for index, item in indexed(fields.get("tolerations")):
            yield from _toleration(item, f"{path}.tolerations[{index}]")


def selectors_problems(selectors: list[object], path: str, release: Release) -> Iterator[Finding]:
    """Problems of the selectors of a request or a class at ``path``."""
    if len(selectors) > REQUESTS_MAX:
        yield _many("selector-cel", path, len(selectors), REQUESTS_MAX)
        return
    for index, item in indexed(selectors):
        cel = item.get("cel")
        if cel is None:
            yield cause("selector-cel", f"{path}[{index}].cel", REQUIRED, "no cel", "cel: {expression: …}")
        else:
            yield from compile_problems(
                text(mapping(cel).get("expression")), f"{path}[{index}].cel.expression", release
            )


def _toleration(item: Json, path: str) -> Iterator[Finding]:
    rule = "toleration-invalid"
    key, value, effect = text(item.get("key")), text(item.get("value")), text(item.get("effect"))
    operator = text(item.get("operator")) or "Equal"
    if key and (reason := label_key(key)):
        yield cause(rule, f"{path}.key", INVALID, f"{key!r}, which {reason}", NEEDS_LABEL_KEY)
    if operator == "Exists" and value:
        yield cause(rule, f"{path}.value", INVALID, f"value {value!r}", "no value with operator Exists")
    elif operator == "Equal" and (reason := label_value(value)):
        yield cause(rule, f"{path}.value", INVALID, f"{value!r}, which {reason}", "a label value")
    elif operator not in ("Exists", "Equal"):
        yield cause(rule, f"{path}.operator", NOT_SUPPORTED, repr(operator), "Exists or Equal")
    if effect and effect not in EFFECTS:
        yield cause(rule, f"{path}.effect", NOT_SUPPORTED, repr(effect), f"one of {', '.join(EFFECTS)}, or nothing")


def _constraints(
    constraints: list[object], path: str, names: Mapping[str, frozenset[str]], release: Release
) -> Iterator[Finding]:
    rule = "constraint-invalid"
    if len(constraints) > REQUESTS_MAX:
        yield _many(rule, path, len(constraints), REQUESTS_MAX)
        return
    fields = ("matchAttribute", "distinctAttribute")[: 2 if release.enabled("DRAConsumableCapacity") else 1]
    for index, item in indexed(constraints):
        where = f"{path}[{index}]"
        yield from _references(sequence(item.get("requests")), f"{where}.requests", names)
        given = [name for name in fields if item.get(name) is not None]
        for field in given if release.minor >= 37 else given[:1]:
            yield from _attribute(text(item[field]), f"{where}.{field}", release)
        if given:
            continue
        if len(fields) == 2:
            yield cause(rule, where, REQUIRED, "no attribute", "matchAttribute or distinctAttribute")
        else:
            yield cause(rule, f"{where}.matchAttribute", REQUIRED, "no attribute", "matchAttribute")


def _attribute(name: str, path: str, release: Release) -> Iterator[Finding]:
    kinds = list(qualified_errors(name))
    domain, slash, rest = name.partition("/")
    # The declarative rules of 1.37 do not take upper case in the domain.
    upper = release.minor >= 37 and "/" not in rest and dns_subdomain(domain) is not None
    if (not slash or upper) and INVALID not in kinds:
        kinds.append(INVALID)
    for kind in kinds:
        has = repr(name) if "/" in name else f"{name!r} without a domain"
        has = f"{name!r}, a part of which is too long" if kind == TOO_LONG else has
        yield cause("constraint-invalid", path, kind, has, f"{NEEDS_DEVICE_QUALIFIED}, the domain is not optional")


def _references(refs: list[object], path: str, names: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    rule = "request-unknown"
    if len(refs) > REQUESTS_MAX:
        yield _many(rule, path, len(refs), REQUESTS_MAX)
        return
    seen: set[str] = set()
    for index, ref in enumerate(refs):
        name = text(ref)
        main, slash, sub = name.partition("/")
        known = main in names and (not slash or sub in names[main])
        if not known or "/" in sub or any(dns_label(part) for part in name.split("/")):
            has, needs = f"request {name!r}", f"one of {', '.join(names) or 'its requests (there are none)'}"
            yield cause(rule, f"{path}[{index}]", INVALID, has, needs)
        if name in seen:
            yield cause(rule, f"{path}[{index}]", DUPLICATE, f"request {name!r} twice", "it once")
        seen.add(name)


def config_problems(item: Json, path: str) -> Iterator[Finding]:
    """Problems of one entry of ``config`` of a claim or a class: a driver's opaque parameters."""
    rule, opaque = "config-invalid", item.get("opaque")
    if opaque is None:
        yield cause(rule, f"{path}.opaque", REQUIRED, "no opaque", "opaque: {driver: …, parameters: …}")
        return
    driver = text(mapping(opaque).get("driver"))
    for kind in driver_errors(driver):
        has = f"{len(driver)} characters" if kind == TOO_LONG else repr(driver)
        yield cause(rule, f"{path}.opaque.driver", kind, has, NEEDS_DRIVER)
    parameters, where = mapping(opaque).get("parameters"), f"{path}.opaque.parameters"
    if parameters is None:
        yield cause(rule, where, REQUIRED, "no parameters", "a JSON object")
    elif (size := _size(parameters)) > PARAMETERS_MAX:
        yield cause(rule, where, TOO_LONG, f"{size} bytes", f"at most {PARAMETERS_MAX}")
    elif not isinstance(parameters, dict):
        yield cause(rule, where, INVALID, "another value than an object", "a JSON object")


def _size(value: object) -> int:
    try:
        return len(orjson.dumps(value))
    except (TypeError, ValueError):  # no JSON bytes: nothing that a server could have been sent
        return 0
