"""A decision as one line of a recording: the review that it was about, redacted, what came of it, and what was seen
then, so that it can be judged again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from webhook.admission.decode import API_VERSION, KIND
from webhook.admission.record import Record
from webhook.admission.redact import redacted, visible
from webhook.admission.seen import versions
from webhook.facts.times import stamp
from webhook.kube.raw import Json, mapping, text
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot

OURS: Final = "allocguard"
"""The member of a line beside those of an AdmissionReview."""


class Taken(Struct, frozen=True):
    """A record whose facts are forgotten, with the view that it was made on."""

    record: Record
    snapshot: Snapshot


def take(record: Record) -> Taken:
    """What :func:`line` needs of ``record``, before the facts behind it are forgotten."""
    for each in ("outcome", "trace", "node", "sums"):
        getattr(record, each)
    return Taken(record, record.verdict.evaluation.facts.snapshot)


def line(taken: Taken, key: bytes) -> Json:
    """The line; ``key`` as for :func:`webhook.admission.redact.redacted`."""
    record, snapshot = taken.record, taken.snapshot
    verdict, reserved, release = record.verdict, record.reserved, snapshot.release
    told: Json = {
        "at": stamp(record.at, "microseconds"),
        "ended": stamp(record.ended, "microseconds"),
        "seconds": record.seconds,
        "endpoint": record.endpoint,
        "revision": record.revision,
        "trace": record.trace,
        "outcome": record.outcome,
        "response": {
            "allowed": record.answer.allowed,
            "held": record.answer.held,
            "patch": operations(record.answer.patch),
        },
        "findings": found(record),
        "errors": failures(verdict.errors),
        "sums": list(record.sums),
        "node": record.node,
        "mayHold": verdict.may_hold,
        "release": {"minor": release.minor, "gates": dict(release.gates), "dropsCosts": release.drops_costs},
        "seen": {kind: stamp(at, "microseconds") for kind, at in sorted(snapshot.seen.items())},
        "versions": versions(record.request, record.node, snapshot),
    }
    if reserved is not None:
        told["reservation"] = {
            "node": reserved.node,
            "seconds": reserved.seconds,
            "conflicts": reserved.conflicts,
            "taken": reserved.taken,
            "problem": reserved.problem,
        }
    return {"apiVersion": API_VERSION, "kind": KIND, "request": redacted(dict(record.request.raw), key), OURS: told}


def found(record: Record) -> list[Json]:
    """The findings of a decision. What one says is left out where it is about something that is not recorded, and where
    a policy says it in its own words, which may quote anything.
    """
    rows = []
    for judged in record.judged:
        finding = judged.finding
        path = visible(dict(record.request.raw), finding.path)
        row = {
            "policy": judged.policy,
            "rule": finding.rule,
            "severity": finding.severity,
            "path": path,
            "does": record.done(judged),
            "exception": judged.exception,
        }
        if path == finding.path and finding.needs:
            row |= {"message": finding.message, "fix": finding.fix}
        rows.append(row)
    return rows


def failures(errors: Iterable[str]) -> list[str]:
    """``policy/rule`` of each evaluation that failed; why may quote what is not recorded."""
    return [error.partition(": ")[0] for error in errors]


def operations(patch: Iterable[Json]) -> list[str]:
    """The operations of a patch and their places, without their values."""
    return [f"{text(each.get('op'))} {text(each.get('path'))}" for each in patch]


def release_of(raw: Json) -> Release:
    """The release in a line, as :func:`line` wrote it."""
    gates = {str(name): on is True for name, on in mapping(raw.get("gates")).items()}
    return Release(raw["minor"], gates, raw.get("dropsCosts") is True)
