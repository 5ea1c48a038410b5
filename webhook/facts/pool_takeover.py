"""Whether a slice takes a pool over that is somebody else's.

The scheduler uses the slices of a pool's highest generation only, and none while there are more or fewer of them than
they say: one slice too many stops a pool, and nothing tells whose slice it was.
"""

from __future__ import annotations

from webhook.facts.writers import Writer
from webhook.kube.finding import Finding, Severity
from webhook.kube.resource import Slice
from webhook.kube.snapshot import Snapshot

_SHOWN = 3


def takeover_problems(writer: Writer, new: Slice, snapshot: Snapshot) -> list[Finding]:
    """``pool-taken-over`` for a slice that makes slices of its pool obsolete, or too many, which are not this writer's
    to write.

    An error where the driver names its writers. Where it names nobody, a warning for a higher generation in a pool of
    another node: whose those slices are is not known there.
    """
    stored = snapshot.slices.get(new.name)
    if writer.exempt or (stored is not None and stored.key == new.key and stored.generation >= new.generation):
        return []
    named = bool(writer.named(new.driver, snapshot))
    others = [
        other
        for other in snapshot.pools.get(new.key, ())
        if other.name != new.name
        and not other.deleting
        and (
            other.generation <= new.generation and not _writes(writer, other)
            if named
            else other.generation < new.generation and other.node not in ("", new.node)
        )
    ]
    return [_problem(new, others, named)] if others else []


def _writes(writer: Writer, item: Slice) -> bool:
    """Whether ``item`` is one that this writer may write."""
    match writer.profiles.get(item.driver):
        case "NodeLocal":
            return bool(item.node) and item.node == writer.node
        case "MultiNode":
            return not item.node
    return False


def _problem(new: Slice, others: list[Slice], named: bool) -> Finding:
    newest = max(other.generation for other in others)
    listed = ", ".join(f"{other.name} of {_where(other)}" for other in others[:_SHOWN])
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    what = "generation" if newest < new.generation else "one more slice of generation"
    has = f"{what} {new.generation} in pool {new.pool}, which has generation {newest}: {listed}{more}"
    fix = "no pod would get a device of that pool any more, and none is told why; name pools after their nodes"
    severity: Severity = "error" if named else "warning"
    return Finding("pool-taken-over", "spec.pool.generation", has, "a pool of the writer's own", fix, severity)


def _where(item: Slice) -> str:
    return f"node {item.node}" if item.node else "several nodes"
