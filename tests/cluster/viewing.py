"""A live view in a thread of its own, for tests to look at."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from webhook.cluster.access import connect
from webhook.cluster.background import Background
from webhook.cluster.live import LiveCluster

Json = dict[str, Any]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


class View:
    """A LiveCluster in a thread of its own, with what it told."""

    def __init__(self, kubeconfig: str, **options: Any) -> None:
        self.now = NOW
        self.told: list[Json] = []
        self.background = Background()
        self.api = self.background.submit(connect(kubeconfig)).result()
        self.cluster = LiveCluster(self.api, lambda: self.now, self._tell, **options)

    def _tell(self, level: str, event: str, **fields: object) -> None:
        self.told.append({"level": level, "event": event, **fields})

    def start(self) -> View:
        self.background.submit(self.cluster.run())
        return self

    def nodes(self) -> list[str]:
        return sorted(self.cluster.snapshot.nodes)

    def events(self, event: str) -> list[Json]:
        return [each for each in self.told if each["event"] == event]

    def check(self, name: str) -> tuple[bool, str]:
        return next((fine, detail) for check, fine, detail in self.cluster.checks() if check == name)

    def close(self) -> None:
        self.background.stop(self.api.close())
