"""The CEL types that facts share."""

from __future__ import annotations

from webhook.cel import DYN, STRING, Field, StructType, list_of, map_of

FINDING = StructType(
    "Finding",
    fields={
        "rule": Field(STRING, "rule", "The rule's stable name, as in `pool-incomplete`."),
        "path": Field(STRING, "path", "The Kubernetes field path, as in `spec.devices[0].name`."),
        "has": Field(STRING, "has", "What was found."),
        "needs": Field(STRING, "needs", "What is wanted instead."),
        "fix": Field(STRING, "fix", "How to get there; may be empty."),
        "severity": Field(STRING, "severity", "`error`, `warning` or `info`."),
        "origin": Field(STRING, "origin", "`apiserver` where the API server refuses this itself, else `guard`."),
        "message": Field(STRING, "message", "`has X, needs Y`."),
    },
)
FINDINGS = list_of(FINDING)
# Operations of a JSON patch: op, path, value, from.
PATCH = list_of(map_of(STRING, DYN))
