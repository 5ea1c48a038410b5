"""Who may use a mapped claim: one pod, counted at the write that allocates it (KEP-5517, both releases)."""

from __future__ import annotations

from datetime import datetime

from webhook.facts.placement import claim_node, find_device
from webhook.facts.times import age, instant
from webhook.facts.verification import booked
from webhook.kube.claims import DELETE_PROTECTION, Claim, Consumer
from webhook.kube.finding import Finding
from webhook.kube.snapshot import Snapshot

_RESERVED = "status.reservedFor"

# A scheduler stamps an allocation when it makes it, and writes it at once.
_WRITE_SECONDS = 60


def mapped(claim: Claim, snapshot: Snapshot) -> bool:
    """Whether a device of the allocation has a mapping (1.37 overhead alone does not count), or had one: a pod's status
    books the claim and one of its devices is no longer published.
    """
    if claim.allocation is None:
        return False
    node = claim_node(claim, snapshot)
    gone = False
    for result in claim.allocation.results:
        offer = find_device(snapshot, result, node)
        if offer is not None and offer[1].mapped:
            return True
        gone = gone or offer is None
    return gone and booked(snapshot, claim)


def settled(claim: Claim, now: datetime) -> bool:
    """Whether an allocation is older than a write of it by a scheduler can be: somebody judges stored objects."""
    stamp = claim.allocation.timestamp if claim.allocation is not None else ""
    moment = instant(stamp)
    return moment is None or (now - moment).total_seconds() > _WRITE_SECONDS


def _who(consumer: Consumer) -> str:
    kind = "pod" if consumer.is_pod else f"{consumer.resource}.{consumer.api_group}".rstrip(".")
    return f"{kind} {consumer.name}"


def _identity(consumer: Consumer) -> tuple[str, str, str]:
    return (consumer.api_group, consumer.resource, consumer.uid or consumer.name)


def sharing_problems(claim: Claim, old: Claim | None, snapshot: Snapshot, now: datetime) -> list[Finding]:
    """What the consumers of ``claim`` make wrong, compared with ``old``, what is stored (None: judged at rest, as if
    all of it were written now).

    ``shared-mapped-claim``: a mapped claim gets a second consumer. ``pre-allocated-uncounted``: on 1.36 the only
    consumer is added to an allocation made before; its pod would be bound without being counted. A write that only
    shrinks ``reservedFor`` or clears the allocation has no findings.
    """
    if claim.allocation is None:
        return []
    before = old.allocation if old is not None else None
    earlier = old.reserved_for if old is not None else ()
    known = {_identity(consumer) for consumer in earlier}
    added = [(i, consumer) for i, consumer in enumerate(claim.reserved_for) if _identity(consumer) not in known]
    fresh = before is None or before.identity != claim.allocation.identity
    found: list[Finding] = []
    if old is None or claim.deleting:
        # What stands in a stored object besides living consumers is a leftover, not somebody who shares.
        added = [(i, consumer) for i, consumer in added if not ended(consumer, claim, snapshot)]
    if (fresh or added) and mapped(claim, snapshot):
        kept = [consumer for consumer in claim.reserved_for if _identity(consumer) in known]
        found += _shared(claim, kept, added)
        if not fresh and not kept and len(added) == 1 and snapshot.release.minor == 36:
            found.append(_uncounted(claim, *added[0]))
    if fresh and not claim.allocation.timestamp:
        path = "status.allocation.allocationTimestamp"
        needs = "the time stamp every scheduler sets; a 1.36 scheduler cannot add it later and never binds the pod"
        found.append(Finding("allocation-without-timestamp", path, "no time stamp", needs, severity="info"))
    if old is None or (fresh and settled(claim, now)):
        found += [*_leftovers(claim, snapshot, now), *_unprotected(claim)]
    return found


def _unprotected(claim: Claim) -> list[Finding]:
    """A stored claim (a version tells it from one that somebody wrote) that can be deleted while pods use it."""
    if claim.protected or not claim.resource_version:
        return []
    return [
        Finding(
            "delete-protection-missing",
            "metadata.finalizers",
            f"no {DELETE_PROTECTION} on claim {claim.key}, which is allocated",
            "it, so that a deletion waits until no pod uses the claim",
            "let its pod end before the claim is deleted",
            "info",
        )
    ]


def _shared(claim: Claim, holders: list[Consumer], added: list[tuple[int, Consumer]]) -> list[Finding]:
    fix = "give every pod a claim of its own, for instance from a template"
    if not holders and added:
        holders, added = [added[0][1]], added[1:]
    return [
        Finding(
            "shared-mapped-claim",
            f"{_RESERVED}[{index}]",
            f"{_who(consumer)} beside {_who(holders[0])} on claim {claim.key}, whose devices cost the node",
            "one consumer: the node is charged for one pod only",
            fix,
        )
        for index, consumer in added
    ]


def _uncounted(claim: Claim, index: int, consumer: Consumer) -> Finding:
    has = f"{_who(consumer)} added to an allocation of {claim.key} that was made before"
    needs = "allocation and reservation in one write: a 1.36 scheduler binds this pod without counting the claim"
    fix = f"delete claim {claim.key} (with its pod, if it is from a template) so that it is allocated anew"
    return Finding("pre-allocated-uncounted", f"{_RESERVED}[{index}]", has, needs, fix)


def ended(consumer: Consumer, claim: Claim, snapshot: Snapshot) -> str:
    """Why the pod that reserves ``claim`` uses it no more, empty when it does or when nothing is known of pods."""
    if not consumer.is_pod:
        return ""
    pod = (
        snapshot.pods_by_uid.get(consumer.uid) if consumer.uid else snapshot.pods.get((claim.namespace, consumer.name))
    )
    if pod is not None:
        return "has ended" if pod.terminal else ""
    return "is not there any more" if snapshot.pods or claim.deleting else ""


def _leftovers(claim: Claim, snapshot: Snapshot, now: datetime) -> list[Finding]:
    """Reservations that nobody uses any more: one finding for the claim."""
    reserved = claim.reserved_for
    states = [ended(consumer, claim, snapshot) for consumer in reserved]
    others = [consumer for consumer in reserved if not consumer.is_pod]
    index = next((i for i, state in enumerate(states) if state), 0)
    if not any(states) and not (claim.deleting and others and len(others) == len(reserved)):
        return []
    has = f"{_who(reserved[index])}, which {states[index]}" if states[index] else _who(reserved[index])
    if claim.deleting:
        since = age(claim.deleted, now)
        has += ", on a claim that waits for its deletion" + (f" since {since}" if since else "")
    fix = "the claim stays charged until its allocation is gone"
    if others:
        fix = f"remove {_who(others[0])}, which keeps the controller from cleaning up; {fix}"
    path = f"{_RESERVED}[{index}]"
    return [Finding("leftover-reservation", path, has, "consumers that exist", fix, "info")]
