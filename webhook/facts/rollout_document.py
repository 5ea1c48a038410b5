"""What is wrong with a DriverRollout document, with the nearest right name for a misspelt one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from webhook.facts.canary_labels import OWN_LABELS
from webhook.facts.times import instant
from webhook.kube import labels
from webhook.kube.finding import Finding
from webhook.kube.names import device_fully_qualified_name, device_qualified_name, driver_name
from webhook.kube.raw import Json, mapping, members, text
from webhook.kube.rollout import (
    API_VERSION,
    DRILLS,
    EVIDENCE,
    KUBELET,
    KUBELETS,
    PROFILES,
    STAGES,
    seconds,
    selector_keys,
)

LEAST_WINDOW = 75

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class _Shape:
    """The fields of a map, each with its own shape: a type, a list of a shape, or a further map."""

    fields: dict[str, object] = field(default_factory=dict)


_NAMES = [str]
_SPEC = _Shape(
    {
        "stage": str,
        "canaryNodeSelector": dict,
        "writers": [_Shape({"namespace": str, "serviceAccount": str, "profile": str})],
        "canaryLabelEditors": _Shape({"groups": _NAMES, "users": _NAMES}),
        "freshness": _Shape(
            {
                "window": str,
                "heartbeat": str,
                "evidence": _NAMES,
                "driverPods": _Shape({"namespace": str, "selector": dict}),
            }
        ),
        "numaAttributes": _NAMES,
        "hold": _Shape({"reason": str, "by": str, "since": str, "until": str, "badMappings": _NAMES}),
        "resumeAt": _Shape({"mappingDigests": _NAMES}),
        "promotion": _Shape(
            {
                "minCoverage": int,
                "quietDays": int,
                "drills": _NAMES,
                "pendingP99": str,
                "override": _Shape({"by": str, "reason": str, "stage": str, "at": str}),
            }
        ),
    }
)
_DOCUMENT = _Shape({"apiVersion": str, "kind": str, "metadata": dict, "spec": _SPEC, "status": dict})
_KINDS = {str: "a string", int: "a whole number", dict: "a map"}


def document_problems(obj: Json) -> list[Finding]:
    """Everything that is wrong with a raw DriverRollout: unknown fields and wrong types (``unknown-field``,
    ``decode``), then values (``rollout-invalid``) with their field paths.
    """
    found = list(_shape_problems(obj, _DOCUMENT, ""))
    version = mapping(obj).get("apiVersion")
    if isinstance(version, str) and version != API_VERSION:
        found.append(_bad("apiVersion", repr(version), API_VERSION))
    name = text(mapping(mapping(obj).get("metadata")).get("name"))
    reason = driver_name(name) if name else "is empty"
    if reason:
        found.append(_bad("metadata.name", f"the name {name}, which {reason}", "the name of the driver it is about"))
    spec = mapping(mapping(obj).get("spec"))
    found += _stage_problems(spec)
    found += _editor_problems(mapping(spec.get("canaryLabelEditors")))
    found += _freshness_problems(mapping(spec.get("freshness")))
    found += _hold_problems(spec)
    seen: set[tuple[str, str]] = set()
    for index, writer in enumerate(_list(spec.get("writers"))):
        found += _writer_problems(mapping(writer), f"spec.writers[{index}]", seen)
    for index, attribute in enumerate(_strings(spec.get("numaAttributes"))):
        reason = device_fully_qualified_name(attribute) if "/" in attribute else device_qualified_name(attribute)
        if reason:
            needs = "an attribute's name, domain/identifier"
            found.append(_bad(f"spec.numaAttributes[{index}]", f"{attribute!r}, which {reason}", needs))
    found += _promotion_problems(mapping(spec.get("promotion")))
    return found


def _shape_problems(value: object, shape: object, path: str) -> Iterable[Finding]:
    if value is None:
        return
    if isinstance(shape, list):
        if not isinstance(value, list):
            yield Finding("decode", path, _kind(value), "a list")
            return
        for index, item in enumerate(value):
            yield from _shape_problems(item, shape[0], f"{path}[{index}]")
    elif isinstance(shape, _Shape):
        if not isinstance(value, dict):
            yield Finding("decode", path or "(document)", _kind(value), "a map")
            return
        for name, member in value.items():
            where = f"{path}.{name}" if path else str(name)
            if name in shape.fields:
                yield from _shape_problems(member, shape.fields[name], where)
            else:
                near = difflib.get_close_matches(str(name), shape.fields, 1)
                fix = f"did you mean {near[0]}?" if near else ""
                yield Finding("unknown-field", where, f"the unknown field {name}", _one_of(shape.fields), fix)
    elif isinstance(shape, type) and (not isinstance(value, shape) or isinstance(value, bool)):
        yield Finding("decode", path, _kind(value), _KINDS[shape])


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    names = {dict: "a map", list: "a list", str: "a string", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)


def _one_of(names: Iterable[str]) -> str:
    return f"one of {', '.join(names)}"


def _bad(path: str, has: str, needs: str, fix: str = "") -> Finding:
    return Finding("rollout-invalid", path, has, needs, fix)


def _doubt(path: str, has: str, needs: str, fix: str = "") -> Finding:
    return Finding("rollout-invalid", path, has, needs, fix, "warning")


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _blank(value: object) -> bool:
    return not (value.strip() if isinstance(value, str) else value)


def _strings(value: object) -> list[str]:
    return [item for item in _list(value) if isinstance(item, str)]


def _chosen(value: object, allowed: tuple[str, ...], path: str) -> list[Finding]:
    if not isinstance(value, str) or value in allowed:
        return []
    near = difflib.get_close_matches(value.capitalize(), allowed, 1) or difflib.get_close_matches(value, allowed, 1)
    return [_bad(path, f"{value!r}", _one_of(allowed), f"did you mean {near[0]}?" if near else "")]


def _stage_problems(spec: Json) -> list[Finding]:
    found = [
        replace(each, needs=f"{each.needs}; until then it counts as Off")
        for each in _chosen(spec.get("stage"), STAGES, "spec.stage")
    ]
    selector = spec.get("canaryNodeSelector")
    if selector is None:
        if spec.get("stage") in ("Canary", "Expanding"):
            has = f"stage {spec['stage']} without canaryNodeSelector"
            found.append(_bad("spec.canaryNodeSelector", has, "a label selector: no node qualifies without one"))
    elif isinstance(selector, dict):
        path = "spec.canaryNodeSelector"
        found += list(labels.problems(selector, path)) or _wide(selector, path)
    return found


def _wide(selector: Json, path: str) -> list[Finding]:
    """What a selector that can be read is doubtful for."""
    keys = selector_keys(selector)
    if not keys:
        fix = "stage General is the one for all nodes"
        return [_doubt(path, "no requirement, which every node meets", "labels that canary nodes alone have", fix)]
    rows = members(selector.get("matchExpressions"))
    if not selector.get("matchLabels") and all(row.get("operator") in ("NotIn", "DoesNotExist") for row in rows):
        return [_doubt(path, "only what a node must not have, which every new node meets", "a label of canary nodes")]
    own = sorted(keys & OWN_LABELS)
    if not own:
        return []
    needs = "a label that only canaryLabelEditors set"
    return [_doubt(path, f"{own[0]}, which kubelets and cloud providers set themselves", needs)]


def _editor_problems(editors: Json) -> list[Finding]:
    return [
        _bad(f"spec.canaryLabelEditors.{member}[{index}]", name, "no kubelet: none makes its own node a canary node")
        for member in ("users", "groups")
        for index, name in enumerate(_strings(editors.get(member)))
        if (name == KUBELETS if member == "groups" else name.startswith(KUBELET))
    ]


def _duration(value: object, least: int, path: str) -> list[Finding]:
    if not isinstance(value, str):
        return []
    given = seconds(value)
    if given is None:
        return [_bad(path, f"{value!r}", "a duration such as 90s or 2m")]
    return [_bad(path, value, f"at least {least}s")] if given < least else []


def _freshness_problems(fresh: Json) -> list[Finding]:
    # A quiet watch gets a bookmark about once a minute: a shorter window would call every pool stale.
    found = _duration(fresh.get("window"), LEAST_WINDOW, "spec.freshness.window")
    found += _duration(fresh.get("heartbeat"), 1, "spec.freshness.heartbeat")
    evidence = _strings(fresh.get("evidence"))
    for index, name in enumerate(evidence):
        found += _chosen(name, EVIDENCE, f"spec.freshness.evidence[{index}]")
    pods = mapping(fresh.get("driverPods"))
    if "DriverPodReady" in evidence:
        for member in ("namespace", "selector"):
            if not pods.get(member):
                has = f"evidence DriverPodReady without driverPods.{member}"
                found.append(_bad(f"spec.freshness.driverPods.{member}", has, "where the driver's pods are"))
    selector = pods.get("selector")
    if isinstance(selector, dict):
        where = "spec.freshness.driverPods.selector"
        wanted = selector if "matchLabels" in selector or "matchExpressions" in selector else {"matchLabels": selector}
        found += labels.problems(wanted, where)
        if selector.get("matchExpressions"):
            found.append(_bad(f"{where}.matchExpressions", "expressions", "plain labels"))
    return found


def _digests(value: object, path: str) -> list[Finding]:
    return [
        _bad(f"{path}[{index}]", f"{digest!r}", "sha256: and 64 hexadecimal digits, as ledger explain shows it")
        for index, digest in enumerate(_strings(value))
        if not _DIGEST.fullmatch(digest)
    ]


def _hold_problems(spec: Json) -> list[Finding]:
    found = _digests(mapping(spec.get("resumeAt")).get("mappingDigests"), "spec.resumeAt.mappingDigests")
    hold = spec.get("hold")
    if not isinstance(hold, dict):
        return found
    if _blank(hold.get("reason")):
        found.append(_bad("spec.hold.reason", "no reason", "what people read while their claims wait"))
    for member in ("since", "until"):
        found += _time(hold.get(member), f"spec.hold.{member}")
    since, until = instant(text(hold.get("since"))), instant(text(hold.get("until")))
    if since is not None and until is not None and until <= since:
        has = f"{hold['until']}, not after since ({hold['since']})"
        found.append(_bad("spec.hold.until", has, "a later one: a hold stands until it ends, whenever it began"))
    both = set(_strings(hold.get("badMappings"))) & set(_strings(mapping(spec.get("resumeAt")).get("mappingDigests")))
    if both:
        has = f"{min(both)}, which spec.hold.badMappings lists too"
        needs = "a digest in one of them: it stays held"
        found.append(_doubt("spec.resumeAt.mappingDigests", has, needs))
    return found + _digests(hold.get("badMappings"), "spec.hold.badMappings")


def _writer_problems(writer: Json, path: str, seen: set[tuple[str, str]]) -> list[Finding]:
    found = [
        _bad(f"{path}.{member}", f"no {member}", "the ServiceAccount that writes for the driver")
        for member in ("namespace", "serviceAccount")
        if not writer.get(member)
    ]
    account = (text(writer.get("namespace")), text(writer.get("serviceAccount")))
    if all(account) and account in seen:
        found.append(
            _bad(path, f"the account {'/'.join(account)} again", "one entry, with one profile: the first counts")
        )
    seen.add(account)
    return found + _chosen(writer.get("profile"), PROFILES, f"{path}.profile")


def _promotion_problems(promotion: Json) -> list[Finding]:
    found: list[Finding] = []
    coverage, quiet = promotion.get("minCoverage"), promotion.get("quietDays")
    if isinstance(coverage, int) and not 0 <= coverage <= 100:
        found.append(_bad("spec.promotion.minCoverage", str(coverage), "a percentage from 0 to 100"))
    if isinstance(quiet, int) and quiet < 0:
        found.append(_bad("spec.promotion.quietDays", str(quiet), "zero or more days"))
    for index, name in enumerate(_strings(promotion.get("drills"))):
        found += _chosen(name, DRILLS, f"spec.promotion.drills[{index}]")
    found += _duration(promotion.get("pendingP99"), 1, "spec.promotion.pendingP99")
    override = promotion.get("override")
    return found + _override_problems(override) if isinstance(override, dict) else found


def _override_problems(override: Json) -> list[Finding]:
    path = "spec.promotion.override"
    needs = {
        "by": "who takes it upon them",
        "reason": "why the gates need not pass",
        "stage": "the stage to move on from",
    }
    found = [_bad(f"{path}.{name}", f"no {name}", needs[name]) for name in needs if _blank(override.get(name))]
    found += _chosen(override.get("stage") or None, STAGES[:-1], f"{path}.stage")
    return found + _time(override.get("at"), f"{path}.at")


def _time(value: object, path: str) -> list[Finding]:
    if not isinstance(value, str) or instant(value) is not None:
        return []
    return [_bad(path, f"{value!r}", "a time such as 2026-11-20T09:00:00Z")]
