"""Incidents: what a history shows and no state does, told once each however often it happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from webhook.facts.times import stamp
from webhook.kube.claims import Claim, Result, read_claim
from webhook.kube.core import read_pod
from webhook.kube.finding import Finding
from webhook.kube.raw import mapping, text
from webhook.ledger.charges import Difference, about_claim
from webhook.ledger.events import Event, Place
from webhook.ledger.fold import news

# A container that is told to stop has this long by default, whether or not somebody waits for it.
_STOPPING = timedelta(seconds=30)
# What comes back this often within this long does not come to rest by itself.
_OFTEN, _WITHIN = 3, timedelta(hours=1)

_Device = tuple[str, str, str, str]


def incidents(history: Iterable[Event]) -> list[Difference]:
    """What happened in ``history``, whatever order its events come in.

    ``device-given-early``: a device that an allocation has alone was given away within half a minute of its release by
    a claim whose pod had not been seen to end (a forced deletion). ``reservation-flapping``: a consumer was added to a
    claim three times within an hour. ``pool-flapping``: all slices of a pool went away three times within an hour.
    """
    events = [*news(sorted(history, key=lambda event: event.observed))]
    pods = _Pods(events)
    return [*_given_early(events, pods), *_reservations(events, pods), *_pools(events)]


class _Pods:
    """How pods ended, by UID: ``ended`` those that were seen to, ``cut`` the names of those that were on a node and
    went away without.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.ended: set[str] = set()
        self.cut: dict[str, str] = {}
        living: dict[Place, str] = {}
        for event in events:
            if event.kind != "Pod":
                continue
            before = living.pop(event.place, "")
            if before and (event.type == "gone" or event.uid != before):
                self.cut[before] = f"{event.namespace}/{event.name}"
            if event.type == "put":
                pod = read_pod(event.object)
                if pod.terminal:
                    self.ended.add(pod.uid)
                elif pod.node:
                    living[event.place] = pod.uid


class _Held(Struct, frozen=True):
    """One allocation: the devices that it has alone, and all who were seen to use it."""

    claim: Claim
    identity: str
    devices: dict[_Device, Result]
    users: frozenset[str]


def _given_early(events: Iterable[Event], pods: _Pods) -> Iterator[Difference]:
    holding: dict[Place, _Held] = {}
    released: dict[_Device, tuple[datetime, _Held]] = {}
    for event in events:
        if event.kind != "ResourceClaim":
            continue
        before, after = holding.pop(event.place, None), _held(event)
        if before is not None and after is not None and before.identity == after.identity:
            holding[event.place] = _Held(after.claim, after.identity, after.devices, before.users | after.users)
            continue
        if before is not None:
            released.update((device, (event.observed, before)) for device in before.devices)
        if after is None:
            continue
        holding[event.place] = after
        for device, result in after.devices.items():
            when, earlier = released.pop(device, (event.observed, after))
            cut = sorted(pods.cut[uid] for uid in earlier.users if uid in pods.cut)
            if earlier is not after and cut and event.observed - when <= _STOPPING:
                yield about_claim(after.claim, _early(result, earlier.claim, cut[0], when, event.observed), "surplus")


def _held(event: Event) -> _Held | None:
    claim = read_claim(event.object) if event.type == "put" else None
    if claim is None or claim.allocation is None:
        return None
    devices = {
        (*result.identity, claim.allocation.node): result
        for result in claim.allocation.results
        if not result.share_id and not result.admin
    }
    users = frozenset(each.uid for each in claim.reserved_for)
    return _Held(claim, f"{claim.id} {claim.allocation.identity}", devices, users)


def _early(result: Result, earlier: Claim, pod: str, released: datetime, given: datetime) -> Finding:
    return Finding(
        "device-given-early",
        f"status.allocation.devices.results[{result.index}].device",
        f"device {result.device} at {stamp(given, 'milliseconds')}, which claim {earlier.key} had until "
        f"{stamp(released, 'milliseconds')}, when its pod {pod} went away without having been seen to end",
        "a device that nobody uses any more: after a forced deletion containers may go on for some seconds",
        "let pods end by themselves, or look what the container of then did with the device",
        "warning",
    )


def _reservations(events: Iterable[Event], pods: _Pods) -> Iterator[Difference]:
    claims: dict[Place, Claim] = {}
    added: dict[tuple[str, str], list[datetime]] = {}
    latest: dict[tuple[str, str], tuple[Claim, str]] = {}
    for event in events:
        if event.kind != "ResourceClaim":
            continue
        before = claims.pop(event.place, None)
        if event.type == "gone":
            continue
        claims[event.place] = claim = read_claim(event.object)
        known = {each.uid for each in before.reserved_for} if before is not None and before.id == claim.id else set()
        for consumer in claim.reserved_for if before is not None else ():
            if consumer.uid not in known:
                key = (claim.id, consumer.uid)
                added.setdefault(key, []).append(event.observed)
                latest[key] = (claim, f"{consumer.resource.removesuffix('s')} {consumer.name}")
    for key, times in added.items():
        often = _often(times)
        if often:
            claim, who = latest[key]
            yield about_claim(claim, _again_and_again(who, often, key[1] in pods.ended), "surplus")


def _again_and_again(who: str, times: Sequence[datetime], ended: bool) -> Finding:
    return Finding(
        "reservation-flapping",
        "status.reservedFor",
        f"{who}{', which has ended,' if ended else ''} added {_times(times)}",
        "a consumer that stays until it has ended; nothing is booked for a pod that has",
        "look who writes it, and who takes it away",
        "warning",
    )


def _pools(events: Iterable[Event]) -> Iterator[Difference]:
    places: dict[Place, tuple[str, str, str]] = {}
    slices: dict[tuple[str, str, str], set[Place]] = {}
    wiped: dict[tuple[str, str, str], list[datetime]] = {}
    last: dict[tuple[str, str, str], str] = {}
    for event in events:
        if event.kind != "ResourceSlice":
            continue
        before, after = places.pop(event.place, None), _pool(event)
        if after is not None:
            places[event.place] = after
            slices.setdefault(after, set()).add(event.place)
        if before is not None and before != after:
            slices[before].discard(event.place)
            if not slices[before]:
                wiped.setdefault(before, []).append(event.observed)
                last[before] = event.name
    for key, times in sorted(wiped.items()):
        often = _often(times)
        if often:
            driver, pool, node = key
            finding = Finding(
                "pool-flapping",
                "spec.pool",
                f"pool {pool} of {driver}{f' on node {node}' if node else ''} without any slice {_times(often)}",
                "slices that stay; whenever there are none, new claims wait",
                "see whether the driver is in a crash loop",
                "warning",
            )
            yield Difference("missing", "resource.k8s.io/v1", "ResourceSlice", "", last[key], finding)


def _pool(event: Event) -> tuple[str, str, str] | None:
    if event.type == "gone":
        return None
    spec = mapping(mapping(event.object).get("spec"))
    return text(spec.get("driver")), text(mapping(spec.get("pool")).get("name")), text(spec.get("nodeName"))


def _often(times: Sequence[datetime]) -> list[datetime]:
    """Of ``times`` those that are among three within an hour."""
    runs = [times[index : index + _OFTEN] for index in range(len(times) - _OFTEN + 1)]
    return list(dict.fromkeys(each for run in runs if run[-1] - run[0] <= _WITHIN for each in run))


def _times(times: Sequence[datetime]) -> str:
    return f"{len(times)} times from {stamp(times[0])} to {stamp(times[-1])}"
