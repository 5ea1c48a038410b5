"""Who may change what in the status of a ResourceClaim."""

from __future__ import annotations

from webhook.facts.writers import Writer
from webhook.kube.finding import Finding
from webhook.kube.raw import Json
from webhook.kube.snapshot import Snapshot


def claim_writer_problems(writer: Writer, old: Json, new: Json, snapshot: Snapshot) -> list[Finding]:
    """What a write changes in the status of a claim and is not this writer's to change."""
    return []
