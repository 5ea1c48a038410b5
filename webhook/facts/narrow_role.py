"""The narrowest role that does the job: the reference that nothing which the guard prints is wider than."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence

from webhook.facts.rbac import (
    ARBITRARY,
    ASSOCIATED,
    BINDING,
    CLAIMS,
    DRA,
    DRIVER,
    SLICES,
    STATUS,
    STATUS_VERBS,
    names_resource,
)
from webhook.facts.rbac_profile import ALLOCATOR, NODE_LOCAL, Holder
from webhook.kube.names import driver_name
from webhook.kube.raw import Json
from webhook.kube.rbac import PolicyRule
from webhook.kube.rollout import PROFILES

_READ = ("get", "list", "watch")
_WRITE = ("create", "update", "patch", "delete")
# What YAML takes for a text without quotes, also between brackets.
_PLAIN = re.compile(r"[a-z][a-z0-9./-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def narrow_rules(profile: str, drivers: Sequence[str], verbs: Collection[str], reports: bool) -> list[Json]:
    """The rules that somebody of ``profile`` needs for ``drivers``, as a manifest has them.

    ``verbs`` are those with which it writes claim status (``update``, ``patch``), ``reports`` whether a driver does so
    at all. Names that no driver can have are left out; a driver without a name gets no right to report.
    """
    used = tuple(verb for verb in STATUS_VERBS if verb in verbs) or ("patch",)
    if profile == ALLOCATOR:
        return [_rule((CLAIMS, SLICES, "deviceclasses"), _READ), _rule((STATUS,), used), _rule((BINDING,), used)]
    local = profile == NODE_LOCAL
    rules = [_rule(("nodes",), ("get",), group="")] if local else []
    rules.append(_rule((SLICES,), (*_READ, *_WRITE)))
    rules.append(_rule((CLAIMS,), ("get",) if local else _READ))
    named = sorted(name for name in drivers if driver_name(name) is None)
    if reports and named:
        prefix = ASSOCIATED if local else ARBITRARY
        rules.append(_rule((STATUS,), used))
        rules.append(_rule((DRIVER,), [f"{prefix}{verb}" for verb in used], named))
    return rules


def holder_rules(holder: Holder, verbs: Collection[str], reports: bool = True) -> list[Json]:
    """The rules that ``holder`` needs, for each of its profiles; arguments as in :func:`narrow_rules`."""
    found: list[Json] = []
    for profile in PROFILES:
        if profile in holder.all_profiles:
            drivers = [name for name, each in holder.profiles.items() if each == profile]
            found += [rule for rule in narrow_rules(profile, drivers, verbs, reports) if rule not in found]
    return found


def within(rules: Sequence[Json], has: PolicyRule) -> list[Json]:
    """What of ``rules`` is granted by ``has`` too, whatever the names; those of which nothing is are left out."""
    found: list[Json] = []
    for rule in rules:
        [group] = rule["apiGroups"]
        resources = [each for each in rule["resources"] if names_resource(has, each)]
        verbs = [each for each in rule["verbs"] if each in has.verbs or "*" in has.verbs]
        if resources and verbs and (group in has.api_groups or "*" in has.api_groups):
            found.append({**rule, "resources": resources, "verbs": verbs})
    return found


def _rule(resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = (), group: str = DRA) -> Json:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": list(resources), **named, "verbs": list(verbs)}


def flow(rules: Sequence[Json]) -> str:
    """``rules`` in one line of YAML; one alone without the brackets of a list."""
    shown = [
        ", ".join(f"{name}: [{', '.join(map(_scalar, values))}]" for name, values in each.items()) for each in rules
    ]
    return "{" + shown[0] + "}" if len(shown) == 1 else "[" + ", ".join(f"{{{each}}}" for each in shown) + "]"


def _scalar(value: str) -> str:
    return value if _PLAIN.fullmatch(value) and value not in _WORDS else json.dumps(value)
