"""The fleet: one note for what is the same on many nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from webhook.kube.finding import Finding
from webhook.kube.raw import Json
from webhook.kube.rollout import API_VERSION
from webhook.ledger.charges import Difference

_MOST_NAMES = 3


def waiting_pools(nodes: Iterable[Json]) -> list[Difference]:
    """Of ``nodes``, as :func:`webhook.ledger.views.node_json` tells them, the drivers with two pools or more that are
    not Fresh: one note for each driver, with how many in which phase, where, and the most frequent reason.
    """
    pools: Counter[str] = Counter()
    waiting: dict[str, list[tuple[str, Json]]] = {}
    for node in nodes:
        for pool in node["pools"]:
            pools[pool["driver"]] += 1
            if pool["phase"] != "Fresh":
                waiting.setdefault(pool["driver"], []).append((node["node"], pool))
    return [
        Difference("amount", API_VERSION, "DriverRollout", "", driver, _finding(rows, pools[driver]))
        for driver, rows in sorted(waiting.items())
        if len(rows) > 1
    ]


def _finding(rows: list[tuple[str, Json]], count: int) -> Finding:
    phases = Counter(pool["phase"] for _, pool in rows)
    told = ", ".join(f"{phases[phase]} {phase}" for phase in sorted(phases, key=lambda each: (-phases[each], each)))
    names = sorted({node for node, _ in rows})
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    reasons = Counter(reason for _, pool in rows for reason in pool["reasons"])
    why = min(reasons, key=lambda each: (-reasons[each], each)) if reasons else ""
    return Finding(
        "pools-waiting",
        "pools",
        f"{len(rows)} of {count} pools that are not Fresh: {told} (on {', '.join(names[:_MOST_NAMES])}{more})",
        "pools that are; new claims on them wait, bound ones stay charged",
        f"{reasons[why]} of them: {why}" if why else "",
        "info",
    )
