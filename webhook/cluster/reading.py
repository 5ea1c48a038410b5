"""One look at a live cluster, for commands that answer and end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime

from webhook.cluster.access import connect
from webhook.cluster.api import READ, Api, ApiError, Unreachable
from webhook.cluster.live import LiveCluster
from webhook.kube.release import KNOWN_GATES

_GATE = re.compile(rb'kubernetes_feature_enabled\{.*\bname="(\w+)".*\} ([01])')


async def read_live(
    kubeconfig: str | None, context: str | None, minor: int | None, gates: Mapping[str, bool]
) -> tuple[LiveCluster, list[str]]:
    """All objects of the cluster that ``kubeconfig`` and ``context`` name, and notes about what is not known of it.

    The release and the feature gates are the server's; ``minor`` and ``gates`` go before them. Raises CannotConnect,
    ApiError and Unreachable.
    """
    api = await connect(kubeconfig, context)
    notes: list[str] = []

    def tell(level: str, event: str, **fields: object) -> None:
        if event == "view refused":
            notes.append(f"{fields['part']}: {fields['message']}; none of them count")

    try:
        try:
            found = await served_gates(api)
        except ApiError as error:
            notes.append(f"the API server's feature gates: {error}; those that are on by default count as on")
            found = {}
        cluster = LiveCluster(api, lambda: datetime.now(UTC), tell, minor, {**found, **gates})
        await cluster.read()
    finally:
        await api.close()
    return cluster, notes


async def served_gates(api: Api) -> dict[str, bool]:
    """The feature gates of the API server, as far as they matter here, from its metrics. Raises ApiError and
    Unreachable.
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
        raise Unreachable("metrics without feature gates")
    return {name: on for name, on in found.items() if name in KNOWN_GATES}
