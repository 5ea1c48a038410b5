"""The story of one claim: who it is, what happened to it and when, what it is charged, what it waits for now and what
would help, and where to look next. Told from the objects, the ledger and the events that are still kept.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from webhook.admission.remedy import would_fit
from webhook.admission.subject import Ref
from webhook.admission.where_next import pages
from webhook.facts.drivers import claim_drivers
from webhook.facts.pod_needs import wanted_claims
from webhook.facts.times import instant, stamp
from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.finding import one_line
from webhook.kube.node_ledger import BookedCharge, Reservation
from webhook.kube.object_event import (
    ALLOCATION_REFUSED,
    CLAIM_CHARGED,
    CLAIM_PENDING,
    CLAIM_REFUSED,
    CLAIM_RELEASED,
    CLAIM_SETTLED,
    CLAIMS_HELD,
    ObjectEvent,
)
from webhook.kube.snapshot import Snapshot
from webhook.kube.trace import trace_id
from webhook.ledger.awaited import waits
from webhook.ledger.book import Book
from webhook.ledger.explained import explained, find
from webhook.ledger.moments import Moment

Tree = dict[str, Any]

CLAIM, POD = "ResourceClaim", "Pod"
# What others tell of pods that says what becomes of their claims.
_SCHEDULING = frozenset(
    {
        "DeviceTaintManagerEviction",
        "FailedPrepareDynamicResources",
        "FailedResourceClaimCreation",
        "FailedScheduling",
        "Preempted",
        "Scheduled",
    }
)
_KINDS = {
    CLAIMS_HELD: "held",
    CLAIM_PENDING: "pending",
    ALLOCATION_REFUSED: "refused",
    CLAIM_REFUSED: "refused",
    CLAIM_SETTLED: "settled",
    CLAIM_CHARGED: "charged",
    CLAIM_RELEASED: "released",
}
# Some times are known in whole seconds only: they come where they belong in a life, among what is known better.
_ORDER = ("created", "wanted", "held", "pending", "refused", "settled", "allocated", "charged", "event", "released")
_NEVER = datetime.max.replace(tzinfo=UTC)
_EVER = datetime.min.replace(tzinfo=UTC)

# Nobody reads more; the latest are told, and of those that others tell no more than leaves room for ours.
_MOST_MOMENTS, _MOST_OWN = 200, 150
_MOST_PODS, _MOST_DEVICES, _MOST_DRIVERS = 32, 8, 3


class Happened(Struct, frozen=True):
    """One moment of the story: ``count`` times from ``at`` to ``until``. ``reason`` is a rule where there is one, else
    the reason of the event; ``about`` what it happened to where that is not the claim, ``by`` who says so where that
    is not the guard.
    """

    at: str
    kind: str
    text: str
    reason: str = ""
    node: str = ""
    count: int = 1
    until: str = ""
    about: str = ""
    by: str = ""


def subject(snapshot: Snapshot, given: str, events: Sequence[ObjectEvent]) -> Ref | None:
    """The claim that ``given``, ``NAMESPACE/NAME`` or a UID, names: one that is there, or that a ledger knows, or the
    last of those that ``events`` tell of. None where nothing is known of it.
    """
    for _, namespace, name in find(snapshot, f"claim/{given}"):
        claim = snapshot.claims.get((namespace, name))
        return Ref(namespace, name, claim.uid if claim is not None else _held_uid(snapshot, namespace, name))
    told = [each for each in events if each.kind == CLAIM and given in (f"{each.namespace}/{each.name}", each.uid)]
    last = max(told, key=lambda each: (_moment(each.until), each.uid), default=None)
    return Ref(last.namespace, last.name, last.uid) if last is not None else None


def pods_of(snapshot: Snapshot, ref: Ref, events: Iterable[ObjectEvent]) -> list[Ref]:
    """The pods that use the claim, have it reserved, or were told of its refusals."""
    found: dict[str, Ref] = {}
    claim = _present(snapshot, ref)
    if claim is not None:
        for pod in snapshot.claim_pods.get((ref.namespace, ref.name), ()):
            found[pod.uid or pod.key] = Ref(pod.namespace, pod.name, pod.uid)
        for consumer in claim.reserved_for:
            if consumer.is_pod:
                found.setdefault(consumer.uid, Ref(ref.namespace, consumer.name, consumer.uid))
    for each in events:
        if each.kind == POD and each.related and each.related == ref.uid:
            found.setdefault(each.uid, Ref(each.namespace, each.name, each.uid))
    return list(islice(found.values(), _MOST_PODS))


def claim_story(book: Book, snapshot: Snapshot, ref: Ref, events: Sequence[ObjectEvent], now: datetime) -> Tree:
    """The story as JSON values, of the claim that :func:`subject` gave, by ``events`` about it and its pods.

    ``moments`` in the order of time, the latest of them, of ours most; ``omitted`` counts the others; ``ledger`` is
    what ``ledger explain`` has of it and ``charges`` those of its charges, None and empty where nothing is known any
    more; ``waits`` is what it waits for, ``remedy`` what would make it fit and ``smallestChange`` the changes of it;
    ``next`` and ``runbooks`` are as ``explain`` has them of a review.
    """
    claim = _present(snapshot, ref)
    pods = pods_of(snapshot, ref, events)
    mine = [each for each in events if each.kind == CLAIM and _about(each, ref)]
    happened = _in_order([*_of_objects(snapshot, claim), *_alike(_of_events(ref, pods, mine, events))])
    moments = _latest(happened)
    known = ("claim", ref.namespace, ref.name) in find(snapshot, f"claim/{ref.namespace}/{ref.name}")
    ledger = explained(book, snapshot, ("claim", ref.namespace, ref.name), now) if known else None
    if ledger is not None and ledger["uid"] != (claim.id if claim is not None else ref.uid):
        ledger = None
    refusal = _last_refusal(mine)
    waiting = _waiting(snapshot, claim, refusal, now)
    refused_on = refusal.node if refusal is not None else ""
    remedy = _remedy(book, snapshot, claim, waiting, refused_on, now)
    drivers = _drivers(snapshot, claim)
    return {
        "claim": f"{ref.namespace}/{ref.name}",
        "uid": ref.uid,
        "trace": trace_id(ref.uid) if ref.uid else "",
        "present": claim is not None,
        "classes": _classes(claim),
        "drivers": drivers,
        "state": ledger["state"] if ledger is not None else "gone",
        "pods": [_pod(snapshot, pod) for pod in pods],
        "moments": [_moment_json(each) for each in moments],
        "omitted": len(happened) - len(moments),
        "waits": _waits_json(waiting, refusal) if waiting is not None else None,
        "ledger": ledger,
        "charges": ledger["charges"] if ledger is not None else [],
        "remedy": remedy,
        "smallestChange": remedy["smallestChange"] if remedy is not None else [],
        "next": [{"why": why, "run": shlex.join(run)} for why, run in _next(snapshot, ref, claim, pods, drivers)],
        "runbooks": pages([waiting.reason], True) if waiting is not None else [],
    }


def _held_uid(snapshot: Snapshot, namespace: str, name: str) -> str:
    """The UID of the claim that a ledger still has under this name."""
    for ledger in snapshot.ledgers.values():
        rows: list[BookedCharge | Reservation] = [*ledger.charges, *ledger.reservations]
        for row in rows:
            if (row.namespace, row.name) == (namespace, name):
                return row.claim_uid
    return ""


def _present(snapshot: Snapshot, ref: Ref) -> Claim | None:
    claim = snapshot.claims.get((ref.namespace, ref.name))
    return claim if claim is not None and claim.uid == ref.uid else None


def _of_objects(snapshot: Snapshot, claim: Claim | None) -> Iterator[Happened]:
    """What the claim and its pods themselves say of when."""
    if claim is None:
        return
    if claim.created:
        yield Happened(claim.created, "created", f"asks for {', '.join(_classes(claim)) or 'no device'}")
    users = [each for each in snapshot.claim_pods.get((claim.namespace, claim.name), ()) if each.created]
    for pod in sorted(users, key=lambda each: _moment(each.created))[:_MOST_PODS]:
        yield Happened(pod.created, "wanted", "is made, which uses it", about=f"pod {pod.key}")
    allocation = claim.allocation
    if allocation is not None and allocation.timestamp:
        names = ["/".join(each.identity) for each in allocation.results]
        more = f" and {len(names) - _MOST_DEVICES} more" if len(names) > _MOST_DEVICES else ""
        text = f"gets {', '.join(names[:_MOST_DEVICES])}{more}"
        yield Happened(allocation.timestamp, "allocated", text, node=allocation.node)
    if claim.deleted:
        yield Happened(claim.deleted, "deleted", "is marked for deletion; keeps its devices until they are released")


def _of_events(
    ref: Ref, pods: Sequence[Ref], mine: Sequence[ObjectEvent], events: Iterable[ObjectEvent]
) -> Iterator[Happened]:
    users = {pod.uid for pod in pods if pod.uid}
    refused = {each.rule for each in mine if each.reason == ALLOCATION_REFUSED}
    for each in mine:
        yield _happened(each)
    for each in events:
        if each.kind != POD or each.uid not in users or not (each.ours or each.reason in _SCHEDULING):
            continue
        if each.reason == CLAIM_REFUSED and each.related == ref.uid and each.rule in refused:
            continue
        yield _happened(each, f"pod {each.namespace}/{each.name}", each.related in ("", ref.uid))


def _about(event: ObjectEvent, ref: Ref) -> bool:
    """Whether it is about that very claim, and no other one of the name; in files claims may have no UID."""
    return event.uid == ref.uid and bool(ref.uid or (event.namespace, event.name) == (ref.namespace, ref.name))


def _happened(event: ObjectEvent, about: str = "", own: bool = True) -> Happened:
    """``own``: whether it is about the claim of the story, and no other one of the same pod."""
    return Happened(
        at=event.since,
        kind=_KINDS.get(event.reason, "event") if event.ours and own else "event",
        text=event.message,
        reason=event.rule or event.reason,
        node=event.node,
        count=event.count,
        until=event.until if event.count > 1 else "",
        about=about,
        by="" if event.ours else event.by,
    )


def _moment(at: str) -> datetime:
    return instant(at) or _NEVER


def _alike(happened: Iterable[Happened]) -> list[Happened]:
    """What others say in the same words of the same is one moment with its count, as it is of ours: schedulers try
    again every few seconds, and each attempt has an event.
    """
    found: dict[tuple[str, ...], list[Happened]] = {}
    for number, each in enumerate(happened):
        key = (each.about, each.reason, each.by, each.text) if each.by else (str(number),)
        found.setdefault(key, []).append(each)
    return [_together(group) for group in found.values()]


def _together(group: Sequence[Happened]) -> Happened:
    if len(group) == 1:
        return group[0]
    first = min(group, key=lambda each: _moment(each.at))
    until = max((each.until or each.at for each in group), key=lambda at: instant(at) or _EVER)
    return replace(first, count=sum(each.count for each in group), until=until)


def _in_order(happened: Sequence[Happened]) -> list[Happened]:
    """By time; what is known to the second only comes before what follows it in the life of a claim."""
    seconds: dict[datetime, list[Happened]] = {}
    for each in sorted(filter(_exact, happened), key=lambda each: _moment(each.at)):
        seconds.setdefault(_moment(each.at).replace(microsecond=0), []).append(each)

    def place(each: Happened) -> tuple[datetime, bool, int, str]:
        at, stage = _moment(each.at), _stage(each)
        if not _exact(each):
            later = (_moment(other.at) for other in seconds.get(at, ()) if _stage(other) > stage)
            at = next(later, at.replace(microsecond=999_999))
        return at, _exact(each), stage, each.text

    return sorted(happened, key=place)


def _exact(each: Happened) -> bool:
    return "." in each.at


def _stage(each: Happened) -> int:
    return _ORDER.index(each.kind) if each.kind in _ORDER else len(_ORDER)


def _latest(moments: Sequence[Happened]) -> list[Happened]:
    """Those of ``moments``, which are in their order, that are told."""
    if len(moments) <= _MOST_MOMENTS:
        return [*moments]
    own = [number for number, each in enumerate(moments) if not each.by][-_MOST_OWN:]
    others = [number for number, each in enumerate(moments) if each.by][len(own) - _MOST_MOMENTS :]
    return [moments[number] for number in sorted([*own, *others])]


def _moment_json(each: Happened) -> Tree:
    return {
        "at": each.at,
        "until": each.until,
        "count": each.count,
        "kind": each.kind,
        "reason": each.reason,
        "node": each.node,
        "about": each.about,
        "by": one_line(each.by),
        "text": one_line(each.text),
    }


def _waiting(snapshot: Snapshot, claim: Claim | None, refusal: ObjectEvent | None, now: datetime) -> Moment | None:
    if claim is None:
        return None
    refused = {claim.id: refusal.rule} if refusal is not None and refusal.rule else {}
    return next(waits([claim], snapshot, now, refused, {claim.id}), None)


def _last_refusal(mine: Iterable[ObjectEvent]) -> ObjectEvent | None:
    told = [each for each in mine if each.reason == ALLOCATION_REFUSED and each.ours]
    return max(told, key=lambda each: _moment(each.until), default=None)


def _waits_json(waiting: Moment, refusal: ObjectEvent | None) -> Tree:
    """``refusal`` is what was said to the last allocation, with its sum, and ``node`` its node, if one was refused."""
    return {
        "reason": waiting.reason,
        "text": waiting.text,
        "since": stamp(waiting.begun),
        "pods": list(waiting.pods),
        "drivers": list(waiting.drivers),
        "refusal": one_line(refusal.message) if refusal is not None else "",
        "node": refusal.node if refusal is not None else "",
    }


def _remedy(
    book: Book, snapshot: Snapshot, claim: Claim | None, waiting: Moment | None, refused_on: str, now: datetime
) -> Tree | None:
    """Where the claim would fit with all that its first waiting pod wants; first of all on the node ``refused_on``."""
    if claim is None or waiting is None:
        return None
    pod = next((each for each in _users(snapshot, claim) if each.key in waiting.pods), None)
    beside = [each for each in wanted_claims(pod, snapshot) if each.id != claim.id] if pod is not None else []
    wanted = (claim, *(each for each in beside if each.allocation is None))
    return would_fit(wanted, snapshot, book, now, pod, refused_on)


def _users(snapshot: Snapshot, claim: Claim) -> Sequence[Pod]:
    return snapshot.claim_pods.get((claim.namespace, claim.name), ())


def _classes(claim: Claim | None) -> list[str]:
    if claim is None:
        return []
    return sorted({each.class_name for group in claim.groups for each in group.alternatives if each.class_name})


def _drivers(snapshot: Snapshot, claim: Claim | None) -> list[str]:
    if claim is None:
        return []
    given = {each.driver for each in claim.allocation.results} if claim.allocation is not None else set()
    return sorted({*claim_drivers(claim, snapshot), *given})


def _pod(snapshot: Snapshot, ref: Ref) -> Tree:
    pod = snapshot.pods.get((ref.namespace, ref.name))
    if pod is None or (ref.uid and pod.uid != ref.uid):
        return {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid, "present": False, "node": "", "phase": ""}
    return {
        "namespace": ref.namespace,
        "name": ref.name,
        "uid": ref.uid,
        "present": True,
        "node": pod.node,
        "phase": pod.phase,
    }


def _next(
    snapshot: Snapshot, ref: Ref, claim: Claim | None, pods: Sequence[Ref], drivers: Sequence[str]
) -> Iterator[tuple[str, list[str]]]:
    if claim is not None:
        yield "what is charged for it", ["allocguard", "ledger", "explain", f"claim/{claim.key}"]
        yield "the claim itself", ["kubectl", "describe", "resourceclaim", claim.name, f"--namespace={claim.namespace}"]
    there = next((pod for pod in pods if (pod.namespace, pod.name) in snapshot.pods), None)
    if there is not None:
        yield f"what pod {there.key} asks for", ["allocguard", "ledger", "explain", f"pod/{there.key}"]
    node = claim.allocation.node if claim is not None and claim.allocation is not None else ""
    if node in snapshot.nodes:
        yield f"who is charged on node {node}", ["allocguard", "ledger", "explain", f"node/{node}"]
    known = (each for each in drivers if each in snapshot.rollouts or each in snapshot.driver_slices)
    for driver in islice(known, _MOST_DRIVERS):
        yield f"stage, hold and pools of driver {driver}", ["allocguard", "rollout", "status", driver]
    if ref.uid:
        select = f"--field-selector=involvedObject.uid={ref.uid}"
        yield (
            "its events, as long as they are kept",
            ["kubectl", "get", "events", f"--namespace={ref.namespace}", select],
        )
