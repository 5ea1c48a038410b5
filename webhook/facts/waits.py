"""How long claims waited for their devices: from when a pod first wanted one to when it was allocated."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from webhook.facts.placement import consumers
from webhook.facts.times import instant
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.snapshot import Snapshot


def waited(claim: Claim, snapshot: Snapshot) -> float | None:
    """The seconds that ``claim`` waited for the allocation that it has; None where nothing tells. A claim that was made
    ahead of its pods waits from the first of them on that is known.
    """
    end = allocated_at(claim)
    begin = wanted_since(claim, consumers(claim, snapshot))
    # Clocks differ: what came before it was wanted did not wait.
    return None if end is None or begin is None else max(0.0, (end - begin).total_seconds())


def allocated_at(claim: Claim) -> datetime | None:
    """When ``claim`` got the allocation that it has; None without one, and where that does not tell. Who allocates says
    when, by a clock that may be behind: no claim is allocated before the API server made it.
    """
    told = instant(claim.allocation.timestamp) if claim.allocation is not None else None
    made = instant(claim.created)
    return told if told is None or made is None else max(told, made)


def delay(claim: Claim, allocated: datetime | None) -> timedelta:
    """How long after it was made ``claim`` got an allocation that it has, or had; none where its times do not tell."""
    made = instant(claim.created)
    return timedelta() if made is None or allocated is None else max(timedelta(), allocated - made)


def waiting_for(claim: Claim, snapshot: Snapshot, now: datetime) -> float | None:
    """The seconds that ``claim``, which is not allocated, waits already; None while no pod without a node wants it."""
    if claim.allocation is not None or claim.deleting:
        return None
    pods = snapshot.claim_pods.get((claim.namespace, claim.name), ())
    begin = wanted_since(claim, [pod for pod in pods if not pod.node and not pod.terminal])
    return None if begin is None else max(0.0, (now - begin).total_seconds())


def wanted_since(claim: Claim, pods: Iterable[Pod]) -> datetime | None:
    """Since when there are ``claim`` and one of ``pods``, which want it; None where their times do not tell."""
    made = instant(claim.created)
    asked = [moment for pod in pods if (moment := instant(pod.created)) is not None]
    if made is None or not asked:
        return None
    return max(made, min(asked))
