"""Whether a pool that looks complete is the one that its claims were charged for: the devices, mappings and capacity.

A driver that restarts may publish other devices, costs or capacity under the names it had. Charges stay as booked; the
pool takes new claims when what is booked is there again, or the operator acknowledged the new mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from webhook.facts.footprint import footprint
from webhook.facts.placement import claim_node
from webhook.facts.pool_survey import Reason, Same, View, current
from webhook.facts.zones import counters_of
from webhook.kube.claims import Claim, Result
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
    claims = snapshot.pool_claims.get(key, ())
    if not claims:
        return []
    published = Same((*seen.kept, *seen.elsewhere))
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


class _Held(NamedTuple):
    """A device that a claim holds; None where the pool does not have it."""

    claim: Claim
    result: Result
    device: Device | None


@lru_cache(maxsize=2048)
def _holdings(slices: Same[Slice], claims: Same[Claim], ledgers: Same[NodeLedger], key: Key) -> _Holdings:
    devices = {device.name: device for item in slices.items for device in item.devices}
    driver, pool = key
    rows = [
        _Held(claim, result, devices.get(result.device))
        for claim in claims.items
        for result in (claim.allocation.results if claim.allocation is not None else ())
        if result.driver == driver and result.pool == pool
    ]
    booked = _booked(ledgers.items, key)
    digests = {name: device.digest for name, device in devices.items() if device.costs} if booked else {}
    gone: dict[tuple[str, str], tuple[Claim, str]] = {}
    changed: dict[tuple[str, str], tuple[Claim, Device, tuple[BookedCharge, ...]]] = {}
    lost: dict[str, Claim] = {}
    free: dict[str, Claim] = {}
    for claim, result, device in rows:
        name, uid = result.device, claim.id
        identity = claim.allocation.identity if booked and claim.allocation is not None else ""
        charges = booked.get((uid, identity, name))
        if device is None:
            if charges or claim.reserved_for:
                gone[uid, name] = (claim, name)
        elif charges:
            if not device.costs:
                lost[uid] = claim
            # What was taken from a pod's status has no mapping version.
            elif any(charge.digest and charge.digest != digests[name] for charge in charges):
                changed[uid, name] = (claim, device, tuple(charges))
        elif not device.costs and claim.reserved_for:
            free[uid] = claim
    totals = (*_capacities(rows), *_counters(slices.items, rows))
    return _Holdings(tuple(gone.values()), tuple(changed.values()), tuple(lost.values()), tuple(free.values()), totals)


def _booked(ledgers: Iterable[NodeLedger], key: Key) -> dict[tuple[str, str, str], list[BookedCharge]]:
    """What is booked or reserved for devices of the pool, by claim, allocation and device."""
    driver, pool = key
    found: dict[tuple[str, str, str], list[BookedCharge]] = {}
    for ledger in ledgers:
        for charge in (*ledger.charges, *(row for each in ledger.reservations for row in each.charges)):
            if charge.driver == driver and charge.pool == pool:
                found.setdefault((charge.claim_uid, charge.allocation, charge.device), []).append(charge)
    return found


def _capacities(rows: list[_Held]) -> Iterator[_Total]:
    """Capacities of shared devices that are smaller than what claims hold of them."""
    used: dict[tuple[str, str], Number] = {}
    shared = [row for row in rows if row.device is not None and row.device.multiple and not row.result.admin]
    for _, result, _ in shared:
        for name, amount in (result.consumed or {}).items():
            if amount > 0:
                used[result.device, name] = used.get((result.device, name), 0) + amount
    devices = {row.device.name: row.device for row in shared if row.device is not None}
    for (device, name), total in used.items():
        value = devices[device].capacity_value(name)
        if value is not None and total > value:
            parts = (
                (row.claim, (row.result.consumed or {}).get(name, 0)) for row in shared if row.result.device == device
            )
            yield _Total(f"{name} on device {device}", value, _by_claim(parts))


def _counters(slices: tuple[Slice, ...], rows: list[_Held]) -> Iterator[_Total]:
    """Counters that are smaller than what the devices that claims hold draw on them."""
    sets = {name: counters for item in slices for name, counters in item.counter_sets.items()}
    if not sets:
        return
    # Shares of one device draw on its counters once.
    holders = {row.result.device: row for row in reversed(rows) if row.device is not None and not row.result.admin}
    drawn: dict[tuple[str, str], list[tuple[Claim, Number]]] = {}
    for claim, _, device in holders.values():
        for place, amount in counters_of(device).items() if device is not None else ():
            drawn.setdefault(place, []).append((claim, amount))
    for (counter_set, counter), parts in drawn.items():
        value = sets.get(counter_set, {}).get(counter)
        by = _by_claim(parts)
        if value is not None and sum(by.values()) > value:
            yield _Total(f"counter {counter} in set {counter_set}", value, by)


def _by_claim(parts: Iterable[tuple[Claim, Number]]) -> dict[tuple[str, str], Number]:
    found: dict[tuple[str, str], Number] = {}
    for claim, amount in parts:
        if amount > 0:
            found[claim.id, claim.key] = found.get((claim.id, claim.key), 0) + amount
    return dict(sorted(found.items(), key=lambda item: item[0][1]))


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
