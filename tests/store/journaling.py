"""What tests of the journal tell it, and how they look at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from webhook.store.history import read_history
from webhook.store.journal import Journal, Limits

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
Json = dict[str, Any]


def pod(name: str = "p", version: int = 1, uid: str = "", **spec: Any) -> Json:
    metadata = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}


def claim(name: str = "c", version: int = 1) -> Json:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}


def told(folder: Path) -> list[tuple[str, str, str]]:
    """Type, name and version of each event, what the journal begins with first."""
    history = read_history(folder)
    return [(each.type, each.name, each.resource_version) for each in (*history.begins, *history.events)]


@contextmanager
def journal(folder: Path, limits: Limits | None = None, log: list[Json] | None = None) -> Iterator[Journal]:
    def tell(level: str, event: str, **fields: Any) -> None:
        if log is not None:
            log.append({"level": level, "event": event, **fields})

    made = Journal(folder, lambda: NOW, tell, limits)
    try:
        yield made
    finally:
        made.close()
