"""The footprint of a claim: the node resources its allocation costs, device by device (KEP-5517)."""

from __future__ import annotations

from msgspec import Struct, field

from webhook.facts.account import Amounts, add
from webhook.facts.mapping_amounts import finer_than_nano
from webhook.facts.placement import claim_node, find_device, namesakes
from webhook.facts.zones import device_zone
from webhook.kube.claims import Claim, Result
from webhook.kube.finding import Finding
from webhook.kube.quantity import INT64_MAX, Number, beyond_int64, of_resource
from webhook.kube.resource import Device, NodeCost, Slice
from webhook.kube.rollout import DriverRollout
from webhook.kube.snapshot import Snapshot

TIMES = " \N{MULTIPLICATION SIGN} "

_RESULTS = "status.allocation.devices.results"


class DeviceCharge(Struct, frozen=True):
    """What one allocated device costs of one resource by its mapping: ``amount`` in base units, ``formula`` as people
    read it (consumed capacity, or one device, times the multiplier), ``zone`` where it is one known zone.
    """

    result: Result
    device: Device
    slice: Slice
    resource: str
    amount: Number
    formula: str
    zone: int | None

    @property
    def digest(self) -> str:
        """The mapping digest of the device."""
        return self.device.digest


class Footprint(Struct, frozen=True):
    """What a claim costs its node. ``amounts`` by mappings, once per claim; ``per_pod`` and ``per_container`` are the
    overheads of 1.37, summed over the devices. ``missing`` are the results whose device no slice offers any more.

    Nothing is hidden in a zero: what cannot be computed is in ``problems``, and then ``complete`` is false.
    """

    node: str
    charges: tuple[DeviceCharge, ...] = ()
    amounts: Amounts = field(default_factory=dict)
    per_pod: Amounts = field(default_factory=dict)
    per_container: Amounts = field(default_factory=dict)
    mapped: bool = False
    missing: tuple[Result, ...] = ()
    problems: tuple[Finding, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every device's cost is known."""
        return not any(problem.severity == "error" for problem in self.problems)

    @property
    def costs(self) -> bool:
        """Whether the claim costs the node anything, overhead included, or would if it could be computed."""
        return self.mapped or bool(self.per_pod) or bool(self.per_container)

    def zones(self) -> dict[int, dict[str, Number]]:
        """``amounts`` by the zone of the device, as far as it is one known zone."""
        found: dict[int, dict[str, Number]] = {}
        for charge in self.charges:
            if charge.zone is not None:
                add(found.setdefault(charge.zone, {}), {charge.resource: charge.amount})
        return found

    def overhead(self, containers: int) -> dict[str, Number]:
        """The overhead of one pod in which ``containers`` containers use the claim."""
        total: dict[str, Number] = dict(self.per_pod)
        if containers:
            for resource, amount in self.per_container.items():
                total[resource] = total.get(resource, 0) + amount * containers
        return total


def total_for(footprint: Footprint, containers: int) -> dict[str, Number]:
    """What the scheduler adds to the request of a pod in which ``containers`` containers use the claim, exact."""
    total = footprint.overhead(containers)
    add(total, footprint.amounts)
    return total


def footprint(claim: Claim, snapshot: Snapshot, node: str | None = None) -> Footprint:
    """The footprint of an allocated claim (an empty one when it is not allocated).

    ``node`` is where it is allocated, found by :func:`claim_node` when not given. Amounts are exact; they are rounded
    up only when they are fitted. Results with admin access count like others, as in 1.36 and 1.37.
    """
    if claim.allocation is None:
        return Footprint("")
    place = claim_node(claim, snapshot) if node is None else node
    charges: list[DeviceCharge] = []
    problems: list[Finding] = []
    missing: list[Result] = []
    amounts: dict[str, Number] = {}
    per_pod: dict[str, Number] = {}
    per_container: dict[str, Number] = {}
    mapped = False
    for result in claim.allocation.results:
        found = find_device(snapshot, result, place)
        if found is None:
            missing.append(result)
            problems.append(_unknown(result, snapshot))
            continue
        item, device = found
        if snapshot.release.minor == 36:
            problems += _ambiguous(result, device, snapshot, place)
        if not device.costs:
            continue
        mapped = mapped or device.mapped
        zone = device_zone(device, item.driver, snapshot.rollouts.get(item.driver))
        for cost in device.effective_costs:
            if cost.per_pod > 0:
                add(per_pod, {cost.resource: cost.per_pod})
            if cost.per_container > 0:
                add(per_container, {cost.resource: cost.per_container})
            outcome = _cost(result, cost)
            if isinstance(outcome, Finding):
                problems.append(outcome)
            elif outcome is not None:
                amount, formula = outcome
                charges.append(DeviceCharge(result, device, item, cost.resource, amount, formula, zone))
                add(amounts, {cost.resource: amount})
                if finer_than_nano(amount):
                    problems.append(_too_fine(f"{_RESULTS}[{result.index}]", cost.resource, formula))
                if beyond_int64(cost.resource, amount):
                    problems.append(_overflow(f"{_RESULTS}[{result.index}]", cost.resource, amount))
    if not any(problem.rule == "product-overflow" for problem in problems):
        problems += [
            _overflow("status.allocation.devices", resource, amount)
            for resource, amount in amounts.items()
            if beyond_int64(resource, amount)
        ]
    return Footprint(place, tuple(charges), amounts, per_pod, per_container, mapped, tuple(missing), tuple(problems))


def device_charges(
    result: Result, item: Slice, device: Device, rollout: DriverRollout | None
) -> tuple[DeviceCharge, ...]:
    """What ``device``, as this version of its slice offers it, costs for ``result``, as far as it can be computed."""
    zone = device_zone(device, item.driver, rollout)
    outcomes = ((cost.resource, _cost(result, cost)) for cost in device.effective_costs)
    return tuple(
        DeviceCharge(result, device, item, resource, *outcome, zone)
        for resource, outcome in outcomes
        if isinstance(outcome, tuple)
    )


def _cost(result: Result, cost: NodeCost) -> tuple[Number, str] | Finding | None:
    path = f"{_RESULTS}[{result.index}]"
    if not cost.readable or (cost.multiplier is not None and cost.multiplier < 0):
        return Finding(
            "mapping-unreadable",
            path,
            f"device {result.device}, whose cost of {cost.resource or 'any resource'} cannot be computed",
            "a mapping with positive quantities",
            f"have the driver {result.driver} correct its slice",
        )
    if cost.multiplier is None:
        return None
    if cost.capacity_key is None:
        return cost.multiplier, f"1{TIMES}{of_resource(cost.resource, cost.multiplier)}"
    if result.consumed is None or cost.capacity_key in result.unreadable:
        return Finding(
            "consumed-missing",
            f"{path}.consumedCapacity",
            f"no readable amount of {cost.capacity_key}",
            f"what the claim consumes, because its cost of {cost.resource} follows it",
            "let the scheduler allocate; a device without allowMultipleAllocations never gets a consumedCapacity, "
            "its mapping must not name a capacityKey",
        )
    consumed = result.consumed.get(cost.capacity_key)
    if consumed is None:
        # The scheduler skips a mapping whose key is absent from a present map.
        return None
    if consumed < 0:
        return Finding(
            "consumed-negative",
            f"{path}.consumedCapacity[{cost.capacity_key}]",
            of_resource(cost.resource, consumed),
            "zero or more",
            "release the claim and ask for a positive capacity",
        )
    factors = (of_resource(cost.resource, consumed), of_resource(cost.resource, cost.multiplier))
    return consumed * cost.multiplier, TIMES.join(factors)


def _unknown(result: Result, snapshot: Snapshot) -> Finding:
    pool = snapshot.pools.get((result.driver, result.pool), ())
    has = f"device {result.driver}/{result.pool}/{result.device}, which no slice offers"
    needs = f"a device of the pool's {len(pool)} slices" if pool else "a pool that has slices"
    return Finding(
        "device-unknown",
        f"{_RESULTS}[{result.index}].device",
        has,
        needs,
        "wait until the driver has published its slices again, or release the claim",
    )


def _ambiguous(result: Result, device: Device, snapshot: Snapshot, node: str) -> list[Finding]:
    others = [other.driver for other, twin in namesakes(snapshot, result, node) if twin.digest != device.digest]
    return [
        Finding(
            "device-ambiguous",
            f"{_RESULTS}[{result.index}]",
            f"pool {result.pool} and device {result.device} of {result.driver} and of {driver}, with different costs",
            "one driver for a pool and device name, because the 1.36 scheduler does not compare drivers",
            "rename the pool or the device of one driver",
            "warning",
        )
        for driver in dict.fromkeys(others)
    ]


def _too_fine(path: str, resource: str, formula: str) -> Finding:
    return Finding(
        "product-too-fine",
        path,
        f"a cost of {formula} {resource}, finer than a billionth",
        "whole billionths, because the scheduler writes anything finer without its unit and then counts far too much",
        "correct the multiplier, or ask for a whole amount of the capacity",
    )


def _overflow(path: str, resource: str, amount: Number) -> Finding:
    unit = "millicores" if resource == "cpu" else "int64"
    limit = of_resource(resource, INT64_MAX // 1000 if resource == "cpu" else INT64_MAX)
    return Finding(
        "product-overflow",
        path,
        f"a cost of {of_resource(resource, amount)} {resource}",
        f"at most {limit} ({unit}), because the scheduler counts more as nothing",
        "correct the multiplier or the consumed capacity",
    )
