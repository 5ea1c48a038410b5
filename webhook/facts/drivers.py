"""Which drivers can serve a request, as far as its selectors say it by name."""

from __future__ import annotations

import re
from functools import lru_cache

from webhook.kube.claims import Claim, DeviceRequest
from webhook.kube.raw import mapping, members, text
from webhook.kube.snapshot import Snapshot

_DRIVER = re.compile(r"device\.driver\s*==\s*(?:\"([^\"\\]*)\"|'([^'\\]*)')")


@lru_cache(maxsize=4096)
def _named(expression: str) -> frozenset[str] | None:
    """The drivers an expression compares ``device.driver`` with; None where it does not narrow the driver."""
    found = frozenset(double or single for double, single in _DRIVER.findall(expression))
    # A negation or another alternative may let other drivers in: then nothing is known.
    loose = "!(" in expression.replace(" ", "") or expression.count("||") != max(0, len(found) - 1)
    return None if loose or not found else found


def drivers_of(request: DeviceRequest, snapshot: Snapshot) -> tuple[str, ...]:
    """The drivers that the selectors of ``request`` and of its class allow, sorted; empty when they do not say."""
    spec = mapping(mapping(snapshot.classes.get(request.class_name)).get("spec"))
    expressions = [text(mapping(row.get("cel")).get("expression")) for row in members(spec.get("selectors"))]
    return _allowed((*expressions, *request.selectors))


@lru_cache(maxsize=4096)
def _allowed(expressions: tuple[str, ...]) -> tuple[str, ...]:
    allowed: frozenset[str] | None = None
    for expression in expressions:
        named = _named(expression)
        if named is not None:
            allowed = named if allowed is None else allowed & named
    return tuple(sorted(allowed or ()))


def claim_drivers(claim: Claim, snapshot: Snapshot) -> tuple[str, ...]:
    """All drivers that requests of ``claim`` name, sorted."""
    found: set[str] = set()
    for group in claim.groups:
        for alternative in group.alternatives:
            found.update(drivers_of(alternative, snapshot))
    return tuple(sorted(found))
