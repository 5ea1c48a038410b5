"""Claims that pods wait for, and what they wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from webhook.facts.drivers import claim_drivers
from webhook.facts.waiting import Waiting
from webhook.kube.claims import Claim
from webhook.kube.snapshot import Snapshot

NOTHING_KNOWN = "unscheduled"


def pending_claims(snapshot: Snapshot, now: datetime, refused: Mapping[str, str]) -> Counter[tuple[str, str]]:
    """How many claims wait, by (driver, reason): those without an allocation that a pod without a node uses. Looks at
    every claim.

    The reason is what stops the driver (``driver-held``, ``stage-off``, or what its pools lack, as pods are told that
    wait for it), ``no-device-yet`` where it has published nothing, else the rule that refused the claim's last
    allocation (``refused``, by claim id), else ``unscheduled``. A claim that several drivers could serve counts for
    each; the driver is empty where its requests name none.
    """
    stops = Waiting(snapshot, now)
    found: Counter[tuple[str, str]] = Counter()
    for claim in snapshot.claims.values():
        if claim.allocation is None and not claim.deleting and _awaited(claim, snapshot):
            for driver in claim_drivers(claim, snapshot) or ("",):
                reason = _stopped(stops, snapshot, driver) if driver else ""
                found[driver, reason or refused.get(claim.id, NOTHING_KNOWN)] += 1
    return found


def _awaited(claim: Claim, snapshot: Snapshot) -> bool:
    pods = snapshot.claim_pods.get((claim.namespace, claim.name), ())
    return any(not pod.node and not pod.terminal for pod in pods)


def _stopped(stops: Waiting, snapshot: Snapshot, driver: str) -> str:
    """The rule by which no claim gets a device of ``driver`` now, whatever it asks for; empty when some may."""
    reason = stops.driver(driver)
    if reason is not None:
        return reason.rule
    return "" if driver in snapshot.driver_slices else "no-device-yet"
