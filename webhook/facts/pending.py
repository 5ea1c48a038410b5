"""Claims that pods wait for, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from msgspec import Struct

from webhook.facts.drivers import claim_drivers
from webhook.facts.pool_survey import Reason
from webhook.facts.waiting import Waiting
from webhook.facts.waits import wanted_since
from webhook.facts.zone_choice import RULE, Choosing
from webhook.kube.claims import Claim
from webhook.kube.core import GATE, Pod
from webhook.kube.snapshot import Snapshot

NOTHING_KNOWN = "unscheduled"
NO_DEVICE = "no-device-yet"
# What any claim may wait for, most of them a moment: the scheduler, and the guard's own look for room in a zone.
ORDINARY = frozenset({NOTHING_KNOWN, RULE})


class Pending(Struct, frozen=True, gc=False):
    """A claim that ``pods`` wait for, since when as far as their times tell, and why it has no device of ``driver``
    (empty where its requests name none): a rule, and the line for people.
    """

    claim: Claim
    pods: tuple[Pod, ...]
    since: datetime | None
    driver: str
    reason: str
    text: str


def pending(
    claims: Iterable[Claim], snapshot: Snapshot, now: datetime, refused: Mapping[str, str]
) -> Iterator[Pending]:
    """Those of ``claims``, which are of ``snapshot``, that wait: those without an allocation that a pod without a node
    uses. A claim that several drivers could serve comes once for each.

    The reason is what stops the driver (``driver-held``, ``stage-off``, or what its pools lack, as pods are told that
    wait for it), ``no-device-yet`` where it has published nothing, else the rule that refused the claim's last
    allocation (``refused``, by claim id), else ``zone-to-choose`` where our gate keeps all of its pods until there is
    room in a zone, else ``unscheduled``.
    """
    stops, zones = Waiting(snapshot, now), Choosing(snapshot)
    for claim in claims:
        if claim.allocation is not None or claim.deleting:
            continue
        users = snapshot.claim_pods.get((claim.namespace, claim.name), ())
        pods = tuple([pod for pod in users if not pod.node and not pod.terminal])
        if not pods:
            continue
        since, rule = wanted_since(claim, pods), refused.get(claim.id, "")
        otherwise = _refused(rule) if rule else _gated(pods, zones) or _UNKNOWN
        for driver in claim_drivers(claim, snapshot) or ("",):
            reason = (_stopped(stops, snapshot, driver) if driver else None) or otherwise
            yield Pending(claim, pods, since, driver, reason.rule, reason.text)


def _stopped(stops: Waiting, snapshot: Snapshot, driver: str) -> Reason | None:
    """Why no claim gets a device of ``driver`` now, whatever it asks for; None when some may."""
    reason = stops.driver(driver)
    if reason is not None:
        return reason
    if driver in snapshot.driver_slices:
        return None
    return Reason(NO_DEVICE, f"no slice of {driver}", "one with a device that the claim can have")


def _gated(pods: tuple[Pod, ...], zones: Choosing) -> Reason | None:
    return zones.pod(pods[0]) if all(GATE in pod.gates for pod in pods) else None


def _refused(rule: str) -> Reason:
    return Reason(rule, "a refusal of its last allocation", "one that the guard allows")


_UNKNOWN = Reason(
    NOTHING_KNOWN, "no allocation", "one by the scheduler; no hold, pool or refusal that is known of keeps it back"
)
