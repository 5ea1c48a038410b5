"""The feature gates of an API server, as far as they matter here."""

from __future__ import annotations

import re
from contextlib import aclosing

from webhook.cluster.api import READ, Api, ApiError
from webhook.kube.release import KNOWN_GATES

_GATE = re.compile(rb'kubernetes_feature_enabled\{.*\bname="(\w+)".*\} ([01])')


async def served_gates(api: Api) -> dict[str, bool]:
    """The feature gates of the API server, as far as they matter here, from its metrics. Raises ApiError, also
    where they have none, and Unreachable.
    """
    found: dict[str, bool] = {}
    async with aclosing(api.lines("/metrics", READ)) as lines:
        async for line in lines:
            gate = _GATE.match(line)
            if gate is not None:
                found[gate[1].decode()] = gate[2] == b"1"
            elif found:
                break
    if not found:
        raise ApiError(404, "NotFound", "its metrics have no feature gates")
    return {name: on for name, on in found.items() if name in KNOWN_GATES}
