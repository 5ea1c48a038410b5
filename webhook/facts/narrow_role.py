"""The narrowest role that does the job: the reference that nothing which the guard prints is wider than."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from webhook.facts.rbac import ARBITRARY, ASSOCIATED, BINDING, CLAIMS, DRA, DRIVER, SLICES, STATUS, STATUS_VERBS
from webhook.facts.rbac_profile import ALLOCATOR, NODE_LOCAL
from webhook.kube.raw import Json

_READ = ["get", "list", "watch"]
_WRITE = ["create", "update", "patch", "delete"]


def narrow_rules(profile: str, drivers: Sequence[str], verbs: Collection[str], reports: bool) -> list[Json]:
    """The rules that somebody of ``profile`` needs for ``drivers``, as a manifest has them.

    ``verbs`` are those with which it writes claim status (``update``, ``patch``), ``reports`` whether a driver does so
    at all; it needs the names of its drivers for that.
    """
    used = [verb for verb in STATUS_VERBS if verb in verbs] or ["patch"]
    if profile == ALLOCATOR:
        return [
            _rule([CLAIMS, SLICES, "deviceclasses"], _READ),
            _rule([STATUS], used),
            _rule([BINDING], used),
        ]
    local = profile == NODE_LOCAL
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}] if local else []
    rules.append(_rule([SLICES], [*_READ, *_WRITE]))
    rules.append(_rule([CLAIMS], ["get"] if local else _READ))
    if reports and drivers:
        prefix = ASSOCIATED if local else ARBITRARY
        rules.append(_rule([STATUS], used))
        rules.append(_rule([DRIVER], [f"{prefix}{verb}" for verb in used], sorted(drivers)))
    return rules


def _rule(resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()) -> Json:
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [DRA], "resources": list(resources), **named, "verbs": list(verbs)}
