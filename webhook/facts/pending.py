"""Claims that pods wait for, and what they wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache

from webhook.facts.drivers import claim_drivers
from webhook.facts.pools import judged, pool_state
from webhook.facts.rollout import stopped_driver
from webhook.kube.claims import Claim
from webhook.kube.snapshot import Snapshot

NOTHING_KNOWN = "unscheduled"


def pending_claims(snapshot: Snapshot, now: datetime, refused: Mapping[str, str]) -> Counter[tuple[str, str]]:
    """How many claims wait, by (driver, reason): those without an allocation that a pod without a node uses. Looks at
    every claim.

    The reason is that of the driver (``driver-held``, ``stage-off``, ``no-device-yet``, ``pool-rebuilding``: none of
    its pools takes claims), else the rule that refused the claim's last allocation (``refused``, by claim id), else
    ``unscheduled``. A claim that several drivers could serve counts for each; the driver is empty where its requests
    name none.
    """
    of_driver = cache(lambda driver: _stopped(snapshot, driver, now))
    found: Counter[tuple[str, str]] = Counter()
    for claim in snapshot.claims.values():
        if claim.allocation is None and not claim.deleting and _awaited(claim, snapshot):
            for driver in claim_drivers(claim, snapshot) or ("",):
                found[driver, _reason(claim, driver, of_driver, refused)] += 1
    return found


def _awaited(claim: Claim, snapshot: Snapshot) -> bool:
    pods = snapshot.claim_pods.get((claim.namespace, claim.name), ())
    return any(not pod.node and not pod.terminal for pod in pods)


def _reason(claim: Claim, driver: str, of_driver: Callable[[str], str], refused: Mapping[str, str]) -> str:
    return (of_driver(driver) if driver else "") or refused.get(claim.id, NOTHING_KNOWN)


def _stopped(snapshot: Snapshot, driver: str, now: datetime) -> str:
    """Why no claim gets a device of ``driver`` now, whatever it asks for; empty when some may."""
    stopped = stopped_driver(snapshot, driver, now)
    if stopped is not None:
        return stopped.rule
    slices = snapshot.driver_slices.get(driver)
    if slices is None:
        return "no-device-yet"
    pools = dict.fromkeys(snapshot.slices[name].pool for name in slices)
    if judged(snapshot, driver) and not any(pool_state(snapshot, driver, pool, None, now).usable for pool in pools):
        return "pool-rebuilding"
    return ""
