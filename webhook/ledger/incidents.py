"""Incidents: what a history shows and no state does, told once each however often it happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from webhook.facts.times import stamp
from webhook.kube.claims import Allocation, Consumer, Result, read_allocation, read_consumers
from webhook.kube.finding import Finding
from webhook.kube.raw import mapping, text
from webhook.ledger.charges import Difference
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
    a claim whose pod was deleted without grace. ``reservation-flapping``: a consumer was added to a
    claim three times within an hour. ``pool-flapping``: all slices of a pool went away three times within an hour.
    """
    by_kind: dict[str, list[Event]] = {}
    for event in news(sorted(history, key=lambda each: each.observed)):
        by_kind.setdefault(event.kind, []).append(event)
    claims = [_Claim.of(event) for event in by_kind.get("ResourceClaim", ())]
    pods = _Pods(by_kind.get("Pod", ()))
    return [*_given_early(claims, pods), *_reservations(claims, pods), *_pools(by_kind.get("ResourceSlice", ()))]


class _Pods:
    """How pods ended, by UID: ``ended`` those that were seen to, ``forced`` the names of those on a node that were
    deleted without grace before: they are gone at once, whatever their containers do.

    A live view does not hold pods that have ended, so that one is gone says nothing.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.ended: set[str] = set()
        self.forced: dict[str, str] = {}
        for event in events:
            if event.type == "gone":
                continue
            pod = mapping(event.object)
            if mapping(pod.get("status")).get("phase") in ("Succeeded", "Failed"):
                self.ended.add(event.uid)
            # Grace 0 is written with the deletion; a kubelet deletes so too, once its pod has ended.
            elif mapping(pod.get("metadata")).get("deletionGracePeriodSeconds") == 0 and mapping(pod.get("spec")).get(
                "nodeName"
            ):
                self.forced[event.uid] = f"{event.namespace}/{event.name}"


class _Claim(Struct, frozen=True, gc=False):
    """What an event says of a claim; nothing but its name when it is gone."""

    event: Event
    allocation: Allocation | None = None
    consumers: tuple[Consumer, ...] = ()

    @staticmethod
    def of(event: Event) -> _Claim:
        if event.type == "gone":
            return _Claim(event)
        status = mapping(mapping(event.object).get("status"))
        if not status:
            return _Claim(event)
        return _Claim(event, read_allocation(status.get("allocation")), read_consumers(status.get("reservedFor")))

    def about(self, finding: Finding) -> Difference:
        event = self.event
        return Difference("surplus", "resource.k8s.io/v1", event.kind, event.namespace, event.name, finding)

    def same_allocation(self, other: _Claim) -> bool:
        mine, theirs = self.allocation, other.allocation
        return (
            mine is not None
            and theirs is not None
            and ((self.event.uid, mine.identity) == (other.event.uid, theirs.identity))
        )

    def alone(self) -> Iterator[tuple[_Device, Result]]:
        """The devices that the allocation shares with no other."""
        if self.allocation is not None:
            for result in self.allocation.results:
                if not result.share_id and not result.admin:
                    yield (*result.identity, self.allocation.node), result


def _given_early(claims: Iterable[_Claim], pods: _Pods) -> Iterator[Difference]:
    # With all who were seen to use the allocation: the pod may leave first, and the devices later.
    holding: dict[Place, tuple[_Claim, set[str]]] = {}
    released: dict[_Device, tuple[_Claim, set[str]]] = {}
    for claim in claims:
        event = claim.event
        if claim.allocation is None and event.place not in holding:
            continue
        before, users = holding.pop(event.place, (None, set()))
        again = before is not None and claim.same_allocation(before)
        if before is not None and not again:
            released.update((device, (claim, users)) for device, _ in before.alone())
            users = set()
        if claim.allocation is None:
            continue
        holding[event.place] = claim, users.union(each.uid for each in claim.consumers)
        for device, result in () if again else claim.alone():
            release, earlier = released.pop(device, (claim, set()))
            forced = sorted(pods.forced[uid] for uid in earlier if uid in pods.forced)
            if forced and event.observed - release.event.observed <= _STOPPING:
                yield claim.about(_early(result, release.event, forced[0], event.observed))


def _early(result: Result, release: Event, pod: str, given: datetime) -> Finding:
    return Finding(
        "device-given-early",
        f"status.allocation.devices.results[{result.index}].device",
        f"device {result.device} at {stamp(given, 'milliseconds')}, which claim {release.namespace}/{release.name} had "
        f"until {stamp(release.observed, 'milliseconds')}; its pod {pod} was deleted without grace",
        "a device that nobody uses any more: after a forced deletion containers go on for some seconds",
        "let pods end by themselves, or look what the container of then did with the device",
        "warning",
    )


def _reservations(claims: Iterable[_Claim], pods: _Pods) -> Iterator[Difference]:
    reserved: dict[Place, tuple[Consumer, ...]] = {}
    added: dict[tuple[str, str], list[datetime]] = {}
    latest: dict[tuple[str, str], tuple[_Claim, Consumer]] = {}
    for claim in claims:
        event, place = claim.event, claim.event.place
        known = reserved.get(place)
        reserved[place] = claim.consumers
        # Who was there when a claim was first seen may have been there for long.
        if known is None or not claim.consumers:
            continue
        uids = {each.uid for each in known}
        for consumer in claim.consumers:
            if consumer.uid not in uids:
                key = (event.uid, consumer.uid)
                added.setdefault(key, []).append(event.observed)
                latest[key] = claim, consumer
    for key, times in added.items():
        often = _often(times)
        if often:
            claim, consumer = latest[key]
            who = f"{consumer.resource.removesuffix('s')} {consumer.name}"
            yield claim.about(_again_and_again(who, often, consumer.uid in pods.ended))


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
