"""One look at a live cluster, for commands that answer and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from webhook.cluster.access import connect
from webhook.cluster.kinds import KINDS, Kind
from webhook.cluster.live import DEFAULTS, GATES, LiveCluster
from webhook.cluster.recorder import Recorder


async def read_live(
    kubeconfig: str | None,
    context: str | None,
    minor: int | None,
    gates: Mapping[str, bool],
    recorder: Recorder | None = None,
    kinds: Iterable[Kind] = KINDS,
) -> tuple[LiveCluster, list[str]]:
    """The objects, of these ``kinds``, of the cluster that ``kubeconfig`` and ``context`` name, and notes about what is
    not known of it.

    The release and the feature gates are the server's; ``minor`` and ``gates`` go before them. ``recorder`` is told
    the objects. Raises CannotConnect, ApiError and Unreachable.
    """
    api = await connect(kubeconfig, context)
    notes: list[str] = []

    def tell(level: str, event: str, **fields: object) -> None:
        if event == "view refused":
            consequence = DEFAULTS if fields["part"] == GATES else "none of them count"
            notes.append(f"{fields['part']}: {fields['message']}; {consequence}")

    try:
        cluster = LiveCluster(api, lambda: datetime.now(UTC), tell, minor, gates, kinds, recorder)
        await cluster.read()
    finally:
        await api.close()
    return cluster, notes
