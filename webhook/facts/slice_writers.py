"""Who may write which ResourceSlice: its driver's accounts, each on its own node or on none."""

from __future__ import annotations

from webhook.facts.writers import Writer
from webhook.kube.finding import Finding
from webhook.kube.resource import Slice
from webhook.kube.snapshot import Snapshot


def slice_writer_problems(
    writer: Writer, old: Slice | None, new: Slice | None, operation: str, snapshot: Snapshot
) -> list[Finding]:
    """Why a slice is not this writer's to write: ``slice-of-other-node`` and so on."""
    return []
