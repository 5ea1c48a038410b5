"""Whether a pool that looks complete is the one that its claims were charged for: the devices, mappings and capacity.

A driver that restarts may publish other devices, costs or capacity under the names it had. Charges stay as booked; the
pool takes new claims when what is booked is there again, or the operator acknowledged the new mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice

from msgspec import Struct

from webhook.facts.duplicates import booked_for
from webhook.facts.footprint import footprint
from webhook.facts.placement import claim_node
from webhook.facts.pool_survey import Reason, Same, View, current
from webhook.facts.zones import counters_of
from webhook.kube.claims import Claim
from webhook.kube.node_ledger import BookedCharge, NodeLedger
from webhook.kube.quantity import Number, canonical, of_resource
from webhook.kube.resource import Device, Slice
from webhook.kube.rollout import DriverRollout
from webhook.kube.snapshot import Key, Snapshot

_MOST_REASONS = 3
# A lost mapping shows on every claim it booked: a pool that half the cluster uses need not be read to its end.
MOST_CLAIMS = 256


def unverified(snapshot: Snapshot, key: Key, seen: View, besides: str) -> list[Reason]:
    """What allocated claims hold against the complete pool ``key`` as ``seen``; ``besides`` is the id of a claim that
    is no evidence. Devices that are gone, costs that are gone or changed, capacity that does not cover what is held.
    """
    published = Same((*seen.kept, *seen.elsewhere))
    claims = snapshot.pool_claims.get(key, ())
    held = _holdings(published, Same(claims), Same(_ledgers(snapshot, seen, claims)), key)
    found = [_gone(name, claim) for claim, name in held.gone if claim.id != besides][:_MOST_REASONS]
    found += islice(_changed(snapshot, held.changed, besides), _MOST_REASONS)
    found += islice((reason for each in held.totals if (reason := each.short(besides)) is not None), _MOST_REASONS)
    lost = next((each for each in held.lost if each.id != besides), None)
    if lost is None:
        free = islice(held.free, MOST_CLAIMS)
        lost = next((each for each in free if each.id != besides and lost_mapping(snapshot, each)), None)
    if lost is not None:
        has = f"no node cost any more, though claim {lost.key} was booked by one"
        fix = f"publish the mapping again, or release {lost.key} first"
        found.append(Reason("mapping-lost", has, "the mapping it had", fix))
    return found


def acknowledged(rollouts: Mapping[str, DriverRollout], driver: str, digest: str) -> bool:
    """Whether the operator takes devices of ``driver`` with this mapping for good, whatever they were booked with."""
    rollout = rollouts.get(driver)
    return rollout is not None and digest in rollout.resume_digests


def _ledgers(snapshot: Snapshot, seen: View, claims: Iterable[Claim]) -> tuple[NodeLedger, ...]:
    """The ledgers that may have charges for devices of the pool."""
    if not snapshot.ledgers:
        return ()
    nodes = dict.fromkeys(item.node for item in (*seen.kept, *seen.elsewhere))
    if "" in nodes:
        nodes.update((claim_node(claim, snapshot), None) for claim in islice(claims, MOST_CLAIMS))
    return tuple(ledger for name in nodes if (ledger := snapshot.ledgers.get(name)) is not None)


class _Total(Struct, frozen=True):
    """What claims hold of a capacity or counter that is smaller: ``what`` is its name, ``by`` claim id and key."""

    what: str
    has: Number
    by: Mapping[tuple[str, str], Number]

    def short(self, besides: str) -> Reason | None:
        parts = {key: amount for (uid, key), amount in self.by.items() if uid != besides}
        total = sum(parts.values())
        if total <= self.has:
            return None
        shown = ", ".join(f"{key} {canonical(amount)}" for key, amount in list(parts.items())[:_MOST_REASONS])
        more = f" and {len(parts) - _MOST_REASONS} more" if len(parts) > _MOST_REASONS else ""
        has = f"{canonical(self.has)} of {self.what}, of which claims hold {canonical(total)} ({shown}{more})"
        fix = f"publish what there was, or release {next(iter(parts))}"
        return Reason("capacity-short", has, "what covers the claims that are charged", fix)


class _Holdings(Struct, frozen=True):
    """What allocated claims hold of a pool that it does not have: devices that are ``gone``; devices whose mapping has
    ``changed``, with what was booked; claims whose mapping is ``lost``; ``totals`` that capacity does not cover. Claims
    in ``free`` hold devices without a node cost, which they may have had.
    """

    gone: tuple[tuple[Claim, str], ...]
    changed: tuple[tuple[Claim, Device, tuple[BookedCharge, ...]], ...]
    lost: tuple[Claim, ...]
    free: tuple[Claim, ...]
    totals: tuple[_Total, ...]


@lru_cache(maxsize=2048)
def _holdings(slices: Same[Slice], claims: Same[Claim], ledgers: Same[NodeLedger], key: Key) -> _Holdings:
    devices = {device.name: device for item in slices.items for device in item.devices}
    gone: list[tuple[Claim, str]] = []
    changed: list[tuple[Claim, Device, tuple[BookedCharge, ...]]] = []
    lost: list[Claim] = []
    free: list[Claim] = []
    for claim in claims.items:
        names = _devices(claim, key)
        charges = _charges(claim, ledgers.items, key)
        for name in names:
            if name not in devices and (claim.reserved_for or name in charges):
                gone.append((claim, name))
            device, booked = devices.get(name), charges.get(name, ())
            if device is not None and device.costs and booked and _differs(device, booked):
                changed.append((claim, device, booked))
        costless = [name for name in names if name in devices and not devices[name].costs]
        if any(name in charges for name in costless):
            lost.append(claim)
        elif costless and claim.reserved_for:
            free.append(claim)
    totals = (*_capacities(devices, claims.items, key), *_counters(slices.items, devices, claims.items, key))
    short = tuple(total for total in totals if sum(total.by.values()) > total.has)
    return _Holdings(tuple(gone), tuple(changed), tuple(lost), tuple(free), short)


def _devices(claim: Claim, key: Key) -> list[str]:
    results = claim.allocation.results if claim.allocation is not None else ()
    return list(dict.fromkeys(result.device for result in results if (result.driver, result.pool) == key))


def _charges(claim: Claim, ledgers: tuple[NodeLedger, ...], key: Key) -> dict[str, tuple[BookedCharge, ...]]:
    """What is booked for the devices of the pool that the claim holds, by device."""
    found: dict[str, tuple[BookedCharge, ...]] = {}
    for ledger in ledgers:
        for charge in booked_for(claim, ledger):
            if (charge.driver, charge.pool) == key:
                found[charge.device] = (*found.get(charge.device, ()), charge)
    return found


def _differs(device: Device, booked: tuple[BookedCharge, ...]) -> bool:
    # What was taken from a pod's status has no mapping version.
    return any(charge.digest not in ("", device.digest) for charge in booked)


def _capacities(devices: Mapping[str, Device], claims: tuple[Claim, ...], key: Key) -> Iterator[_Total]:
    used: dict[tuple[str, str], dict[tuple[str, str], Number]] = {}
    for claim in claims:
        for result in claim.allocation.results if claim.allocation is not None else ():
            device = devices.get(result.device)
            if device is None or (result.driver, result.pool) != key or result.admin or not device.multiple:
                continue
            for name, amount in (result.consumed or {}).items():
                if amount > 0:
                    parts = used.setdefault((result.device, name), {})
                    parts[claim.id, claim.key] = parts.get((claim.id, claim.key), 0) + amount
    for (device_name, name), parts in used.items():
        value = devices[device_name].capacity_value(name)
        if value is not None:
            yield _Total(f"{name} on device {device_name}", value, parts)


def _counters(
    slices: tuple[Slice, ...], devices: Mapping[str, Device], claims: tuple[Claim, ...], key: Key
) -> Iterator[_Total]:
    sets = {name: counters for item in slices for name, counters in item.counter_sets.items()}
    if not sets:
        return
    holders: dict[str, Claim] = {}
    for claim in claims:
        for result in claim.allocation.results if claim.allocation is not None else ():
            # Shares of one device draw on its counters once.
            if (result.driver, result.pool) == key and not result.admin and result.device in devices:
                holders.setdefault(result.device, claim)
    used: dict[tuple[str, str], dict[tuple[str, str], Number]] = {}
    for device_name, claim in holders.items():
        for drawn, amount in counters_of(devices[device_name]).items():
            if amount > 0:
                parts = used.setdefault(drawn, {})
                parts[claim.id, claim.key] = parts.get((claim.id, claim.key), 0) + amount
    for (counter_set, counter), parts in used.items():
        value = sets.get(counter_set, {}).get(counter)
        if value is not None:
            yield _Total(f"counter {counter} in set {counter_set}", value, parts)


def _gone(device: str, claim: Claim) -> Reason:
    has = f"no device {device}, which claim {claim.key} holds"
    fix = f"publish {device} again, or release {claim.key}"
    return Reason("pool-rebuilding", has, "the devices of all charged claims", fix)


def _changed(
    snapshot: Snapshot, changed: tuple[tuple[Claim, Device, tuple[BookedCharge, ...]], ...], besides: str
) -> Iterator[Reason]:
    for claim, device, booked in changed:
        driver = booked[0].driver
        if claim.id == besides or acknowledged(snapshot.rollouts, driver, device.digest):
            continue
        before = _said((charge.resource, charge.amount) for charge in booked)
        cost = footprint(claim, snapshot)
        same = (driver, booked[0].pool, device.name)
        now = _said((each.resource, each.amount) for each in cost.charges if each.result.identity == same)
        has = f"device {device.name} of claim {claim.key}, booked with {before} and now {now}"
        fix = (
            f"publish the mapping as it was, release {claim.key}, or acknowledge {device.digest} in "
            f"spec.resumeAt.mappingDigests of DriverRollout {driver}"
        )
        yield Reason("mapping-changed", has, "the mapping that it was booked with", fix)


def _said(amounts: Iterable[tuple[str, Number]]) -> str:
    total: dict[str, Number] = {}
    for resource, amount in amounts:
        total[resource] = total.get(resource, 0) + amount
    return ", ".join(f"{name} {of_resource(name, total[name])}" for name in sorted(total)) or "nothing"


def lost_mapping(snapshot: Snapshot, claim: Claim, gone: Key | None = None) -> bool:
    """Whether a pod's status books ``claim`` though no device of it costs anything, all being published (those of the
    pool ``gone`` need not be).
    """
    if claim.allocation is None or not booked(snapshot, claim):
        return False
    node = claim.allocation.node or None
    for result in claim.allocation.results:
        found = current(snapshot, result.driver, result.pool, node).devices.get(result.device)
        if found[1].costs if found is not None else (result.driver, result.pool) != gone:
            return False
    return True


def booked(snapshot: Snapshot, claim: Claim) -> bool:
    """Whether the status of a pod that reserves ``claim`` has an entry for it."""
    for consumer in claim.reserved_for:
        pod = snapshot.pods_by_uid.get(consumer.uid)
        if pod is not None and any(entry.claim == claim.name and entry.total() for entry in pod.entries):
            return True
    return False
