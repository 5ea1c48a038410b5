"""What is booked for a claim goes before what its mappings would cost now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from webhook.facts.account import ClaimPart, add
from webhook.facts.bookings import allocated_as, made_for, released
from webhook.facts.footprint import DeviceCharge
from webhook.facts.verification import acknowledged
from webhook.kube.claims import Claim
from webhook.kube.finding import Finding
from webhook.kube.node_ledger import PLACE, BookedCharge, Reservation, as_stored
from webhook.kube.quantity import Number, of_resource
from webhook.kube.resource_version import version
from webhook.kube.rollout import DriverRollout
from webhook.ledger.charges import (
    AS_BOOKED,
    Charge,
    ChargeKey,
    ClaimCharges,
    Difference,
    State,
    about_claim,
)

Booked = Mapping[ChargeKey, BookedCharge]


def charge_key(row: BookedCharge, node: str) -> ChargeKey:
    """The key of a booked charge of ``node``."""
    return ChargeKey(
        row.claim_uid, row.allocation, row.request, row.driver, row.pool, row.device, row.share_id, node, row.resource
    )


def by_key(rows: Iterable[BookedCharge], node: str) -> dict[ChargeKey, BookedCharge]:
    """Booked charges of ``node`` by key."""
    return {charge_key(row, node): row for row in rows}


def booked_charge(charge: Charge, claim_version: str) -> BookedCharge:
    """``charge`` as the ledger of its node keeps it."""
    key = charge.key
    return BookedCharge(
        key.claim_uid,
        key.allocation,
        key.request,
        key.driver,
        key.pool,
        key.device,
        key.share_id,
        key.resource,
        charge.namespace,
        charge.name,
        charge.slice,
        charge.slice_uid,
        charge.generation,
        charge.resource_version,
        charge.digest,
        as_stored(charge.amount),
        charge.zone,
        charge.formula,
        charge.since,
        claim_version,
    )


def device_booked(claim: Claim, charge: DeviceCharge, claim_version: str) -> BookedCharge:
    """What ``charge`` books for ``claim``."""
    allocation, item, result = claim.allocation, charge.slice, charge.result
    identity, since = (allocation.identity, allocation.timestamp) if allocation else ("", "")
    return BookedCharge(
        claim.id,
        identity,
        result.request,
        *result.identity,
        result.share_id,
        charge.resource,
        claim.namespace,
        claim.name,
        item.name,
        item.uid,
        item.generation,
        item.resource_version,
        charge.digest,
        as_stored(charge.amount),
        charge.zone,
        charge.formula,
        since,
        claim_version,
    )


def shown(row: BookedCharge, node: str, pods: tuple[str, ...], state: State) -> Charge:
    """A booked charge as the book shows it."""
    return Charge(
        charge_key(row, node),
        row.namespace,
        row.name,
        pods,
        row.slice,
        row.slice_uid,
        row.generation,
        row.resource_version,
        row.digest,
        row.amount,
        row.zone,
        row.formula,
        state,
        row.since,
    )


def part_of(charges: Iterable[Charge], reserved: bool = False) -> ClaimPart:
    """The sums of one claim's charges."""
    amounts: dict[str, Number] = {}
    zones: dict[int, dict[str, Number]] = {}
    for charge in charges:
        add(amounts, {charge.key.resource: charge.amount})
        if charge.zone is not None:
            add(zones.setdefault(charge.zone, {}), {charge.key.resource: charge.amount})
    return ClaimPart(amounts, zones, reserved)


def arrived(reservation: Reservation, claim: Claim | None) -> bool:
    """Whether ``claim`` is seen with the very allocation that was reserved: an earlier one may have had its identity,
    which is a time in whole seconds or a digest of the devices.
    """
    return allocated_as(claim, reservation.allocation) and not earlier(reservation, claim)


def earlier(reservation: Reservation, claim: Claim | None) -> bool:
    """Whether ``claim`` is seen as it was before the allocation that was reserved."""
    return claim is not None and 0 <= version(claim.resource_version) < version(reservation.claim_version)


def left(reservation: Reservation, claim: Claim | None) -> bool:
    """Whether ``reservation`` is a place that ``claim`` needs no more: it is seen with an allocation, there or
    elsewhere.
    """
    return reservation.allocation == PLACE and claim is not None and claim.allocation is not None


def outdated(claim: Claim, rows: Iterable[BookedCharge], node: str) -> bool:
    """Whether this view of ``claim`` is older than the allocation that ``rows`` are booked for on ``node``."""
    return any(not made_for(row, claim) and not released(row, claim, node) for row in rows)


def as_booked(
    claim: Claim,
    made: ClaimCharges,
    booked: Booked,
    node: str,
    rollouts: Mapping[str, DriverRollout] = MappingProxyType({}),
) -> ClaimCharges:
    """The charges of ``claim`` where ``booked`` are those that the ledger of ``node`` has for its allocation: each as
    booked, whatever its mapping says now, those that no mapping gives any more too, and a difference where the two
    do not agree (a note, where the operator acknowledged the new mapping in the driver's entry of ``rollouts``).
    """
    if not booked:
        return made
    charges: dict[ChargeKey, Charge] = {}
    differences = [each for each in made.differences if each.finding.rule != "mapping-lost"]
    proper = {charge.key: charge for charge in made.charges if charge.formula != AS_BOOKED}
    pods, state = made.pods, made.state
    for key, charge in proper.items():
        row = booked.get(key)
        if row is None:
            charges[key] = charge
            continue
        charges[key] = shown(row, node, charge.pods, charge.state)
        if row.amount != as_stored(charge.amount):
            taken = acknowledged(rollouts, row.driver, charge.digest)
            differences.append(_differs(claim, row, charge, taken))
    outlived: dict[str, Number] = {}
    for key, row in booked.items():
        if key not in proper and row.formula != AS_BOOKED:
            charges[key] = shown(row, node, pods, state)
            add(outlived, {row.resource: row.amount})
            differences.append(_lost(claim, row))
    lost = {each.finding.path: each for each in made.differences if each.finding.rule == "mapping-lost"}
    guessed = {charge.key.resource: charge for charge in made.charges if charge.formula == AS_BOOKED}
    for row in booked.values():
        unexplained = made.cost.missing or row.resource not in made.cost.amounts
        if row.formula == AS_BOOKED and unexplained and row.resource not in guessed:
            guessed[row.resource] = shown(row, node, pods, state)
    for resource, charge in guessed.items():
        # What the pod's status books covers what the ledger has for devices that are gone.
        left = charge.amount - outlived.get(resource, 0)
        if left > 0 and charge.key not in charges:
            charges[charge.key] = replace(charge, amount=left)
            differences += lost.values()
    part = part_of(charges.values())
    return ClaimCharges(tuple(charges.values()), part, made.cost, tuple(differences), pods, state)


def _said(resource: str, amount: Number) -> str:
    return f"{of_resource(resource, amount)} {resource}"


def _differs(claim: Claim, row: BookedCharge, now: Charge, taken: bool) -> Difference:
    booked, due = _said(row.resource, row.amount), _said(row.resource, now.amount)
    if row.digest and row.digest == now.digest:
        finding = Finding(
            "duplicate-charge",
            "status.allocation",
            f"{due} of device {row.device} for what is booked with {booked} already, by the very same mapping",
            "one amount for one allocation; it is not charged again",
            "find out who wrote the allocation anew, and release the claim",
        )
        return about_claim(claim, finding, "surplus")
    finding = Finding(
        "mapping-changed",
        "status.allocation",
        f"{booked} booked for device {row.device} under version {row.resource_version or 'unknown'} of its slice",
        f"{due}, what the mapping costs since version {now.resource_version or 'unknown'}; what is booked stays",
        f"acknowledge {now.digest} in spec.resumeAt.mappingDigests of DriverRollout {row.driver}, or release the "
        "claim, which is charged by the new mapping when it is allocated again",
        "info" if taken else "warning",
    )
    return about_claim(claim, finding)


def _lost(claim: Claim, row: BookedCharge) -> Difference:
    finding = Finding(
        "mapping-lost",
        "status.allocation",
        f"{_said(row.resource, row.amount)} booked for device {row.device}, which the slices of {row.driver} no longer "
        "explain",
        "the device with the mapping it was allocated with; the amount stays charged until the claim is released",
        f"have the driver {row.driver} publish the device again, or release the claim",
        "warning",
    )
    return about_claim(claim, finding, "surplus")
