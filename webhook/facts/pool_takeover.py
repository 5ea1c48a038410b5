"""Whether a slice takes over a pool, or devices of one, that is somebody else's.

For each node the scheduler uses the slices of a pool's highest generation only, and none while there are more or fewer
of them than they say: one slice too many stops a pool there, and nothing tells whose it was. Where slices are for
different nodes neither is so, but a device that both have is one device: it is taken for all nodes at once.
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.facts.matching import slice_applies
from webhook.facts.writers import Writer
from webhook.kube.finding import Finding, Severity
from webhook.kube.resource import Slice
from webhook.kube.snapshot import Snapshot

_SHOWN = 3
_FIX = "name pools after their nodes"


def takeover_problems(writer: Writer, new: Slice, snapshot: Snapshot) -> list[Finding]:
    """``pool-taken-over`` for a slice that makes slices of its pool obsolete or too many, or has a device of slices for
    other nodes, where those are not this writer's to write; for one that may write all of the driver's, where they are
    not of the same node (or of none, as it is).

    An error where the driver names its writers. Where it names nobody, a warning for a higher generation in a pool of
    another node: whose those slices are is not known there. Of an update, what it adds is judged.
    """
    if writer.exempt:
        return []
    stored = snapshot.slices.get(new.name)
    if stored is not None and stored.key != new.key:
        stored = None
    others = [each for each in snapshot.pools.get(new.key, ()) if each.name != new.name and not each.deleting]
    raised = stored is None or stored.generation < new.generation
    meeting = [other for other in others if raised and _meet(new, other, snapshot)]
    if not writer.named(new.driver, snapshot):
        older = [each for each in meeting if each.generation < new.generation and each.node != new.node]
        return [_stopped(new, older, "warning")] if older else []
    stopped = [each for each in meeting if each.generation <= new.generation and not _writes(writer, each, new.node)]
    found = [_stopped(new, stopped, "error")] if stopped else []
    elsewhere = [each for each in others if each.node and new.node and each.node != new.node]
    away = [each for each in elsewhere if not _writes(writer, each, new.node)]
    return [*found, *_doubled(new, stored, away)] if away else found


def _meet(one: Slice, other: Slice, snapshot: Snapshot) -> bool:
    """Whether both are for some node, as far as that is known without a look at every node."""
    if one.node and other.node:
        return one.node == other.node
    if one.node or other.node:
        bound, free = (one, other) if one.node else (other, one)
        return slice_applies(free, bound.node, snapshot) is not False
    return True


def _writes(writer: Writer, item: Slice, node: str) -> bool:
    """Whether ``item`` is one that this writer may write; of AnyNode, beside its slice of ``node``."""
    match writer.profiles.get(item.driver):
        case "NodeLocal":
            return bool(item.node) and item.node == writer.node
        case "MultiNode":
            return not item.node
        case "AnyNode":
            return item.node == node
    return False


def _stopped(new: Slice, others: list[Slice], severity: Severity) -> Finding:
    newest = max(other.generation for other in others)
    listed = ", ".join(f"{other.name} of {_where(other)}" for other in others[:_SHOWN])
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    what = "generation" if newest < new.generation else "one more slice of generation"
    has = f"{what} {new.generation} in pool {new.pool}, which has generation {newest}: {listed}{more}"
    fix = f"no pod would get a device of that pool any more, and none is told why; {_FIX}"
    return Finding("pool-taken-over", "spec.pool.generation", has, "a pool of the writer's own", fix, severity)


def _doubled(new: Slice, stored: Slice | None, away: list[Slice]) -> Iterator[Finding]:
    before = frozenset(device.name for device in stored.devices) if stored is not None else frozenset()
    added = frozenset(device.name for device in new.devices) - before
    for other in away:
        shared = sorted(added.intersection(device.name for device in other.devices))
        if shared:
            listed = ", ".join(shared[:_SHOWN])
            more = f" and {len(shared) - _SHOWN} more" if len(shared) > _SHOWN else ""
            has = f"device {listed}{more} of pool {new.pool}, which {other.name} of {_where(other)} has"
            fix = f"a claim that gets it on one node keeps it from the other; {_FIX}"
            yield Finding("pool-taken-over", "spec.pool.name", has, "a pool of the writer's own", fix)
            return


def _where(item: Slice) -> str:
    return f"node {item.node}" if item.node else "several nodes"
