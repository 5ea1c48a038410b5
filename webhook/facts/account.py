"""The account of a node: what it has, what is charged, by source. Values that the ledger makes and fit takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from fractions import Fraction

from msgspec import Struct

from webhook.kube.quantity import Number

Amounts = Mapping[str, Number]
ZoneAmounts = Mapping[int, Mapping[str, Number]]

# What the scheduler's node fit looks at beside extended resources (component-helpers, KEP-5517).
_PLAIN = frozenset({"cpu", "memory", "ephemeral-storage"})


def bookable(resource: str) -> bool:
    """Whether the scheduler books ``resource`` for a claim: cpu, memory, ephemeral-storage and hugepages-*."""
    return resource in _PLAIN or resource.startswith("hugepages-")


def rounded(resource: str, amount: Number) -> Number:
    """``amount`` as node fit counts it: cpu rounded up to whole millicores, everything else to whole units."""
    if isinstance(amount, int):
        return amount
    if resource == "cpu":
        thousandths = -(-amount * 1000 // 1)
        return Fraction(thousandths, 1000)
    return int(-(-amount // 1))


def add(total: MutableMapping[str, Number], amounts: Amounts) -> None:
    """Adds ``amounts`` to ``total`` in place, resource by resource."""
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount


def summed(parts: Iterable[Amounts]) -> dict[str, Number]:
    """The sum of ``parts``, resource by resource."""
    total: dict[str, Number] = {}
    for part in parts:
        add(total, part)
    return total


class Amount(Struct, frozen=True):
    """One resource of a node, in base units. ``claims`` holds each claim's mapping once, ``overhead`` what 1.37
    claims add per pod and container, ``pods`` the pods' own requests, ``reserved`` what is on its way to the node.
    """

    allocatable: Number = 0
    pods: Number = 0
    claims: Number = 0
    overhead: Number = 0
    reserved: Number = 0

    @property
    def free(self) -> Number:
        """What is left; negative when the node is overcommitted."""
        return self.allocatable - self.pods - self.claims - self.overhead - self.reserved


class ZoneAmount(Struct, frozen=True):
    """One resource of a NUMA zone; ``capacity`` is None where nobody tells it."""

    capacity: Number | None = None
    claims: Number = 0
    reserved: Number = 0

    @property
    def free(self) -> Number | None:
        """What is left, None when the capacity is unknown."""
        return None if self.capacity is None else self.capacity - self.claims - self.reserved


class ClaimPart(Struct, frozen=True):
    """What one claim is charged on the node, and of that what is known to be of one zone; ``reserved`` until its
    allocation is seen.
    """

    amounts: Amounts
    zones: ZoneAmounts
    reserved: bool = False


class PodPart(Struct, frozen=True):
    """What one pod is charged: its own request, the overhead of its claims; ``reserved`` until it is bound."""

    requests: Amounts
    overhead: Amounts
    reserved: bool = False


class Account(Struct, frozen=True):
    """A node's account. ``claims`` by claim id and ``pods`` by pod id are what was summed (``claim.id``,
    :func:`webhook.facts.pods.pod_id`).
    """

    node: str
    uid: str
    resources: Mapping[str, Amount]
    zones: Mapping[int, Mapping[str, ZoneAmount]]
    claims: Mapping[str, ClaimPart]
    pods: Mapping[str, PodPart]

    def without(self, claim: str = "", pod: str = "") -> Account:
        """This account as if the claim and the pod with these ids were not charged; costs no more than their own
        resources, whatever the node holds.
        """
        claim_part, pod_part = self.claims.get(claim), self.pods.get(pod)
        if claim_part is None and pod_part is None:
            return self
        resources, zones = dict(self.resources), dict(self.zones)
        if claim_part is not None:
            for resource, amount in claim_part.amounts.items():
                column = "reserved" if claim_part.reserved else "claims"
                resources[resource] = _changed(resources[resource], **{column: amount})
            for zone, amounts in claim_part.zones.items():
                row = dict(zones[zone])
                for resource, amount in amounts.items():
                    held = row[resource]
                    claims, reserved = (0, amount) if claim_part.reserved else (amount, 0)
                    row[resource] = ZoneAmount(held.capacity, held.claims - claims, held.reserved - reserved)
                zones[zone] = row
        if pod_part is not None:
            for resource, amount in pod_part.requests.items():
                column = "reserved" if pod_part.reserved else "pods"
                resources[resource] = _changed(resources[resource], **{column: amount})
            for resource, amount in pod_part.overhead.items():
                column = "reserved" if pod_part.reserved else "overhead"
                resources[resource] = _changed(resources[resource], **{column: amount})
        return Account(self.node, self.uid, resources, zones, self.claims, self.pods)


def _changed(held: Amount, pods: Number = 0, claims: Number = 0, overhead: Number = 0, reserved: Number = 0) -> Amount:
    return Amount(
        held.allocatable, held.pods - pods, held.claims - claims, held.overhead - overhead, held.reserved - reserved
    )


def account_of(
    node: str,
    uid: str,
    allocatable: Amounts,
    capacities: ZoneAmounts,
    claims: Mapping[str, ClaimPart],
    pods: Mapping[str, PodPart],
) -> Account:
    """The account of a node from its parts. Resources that nobody books (``pods``, extended ones) are left out, unless
    a claim is charged for one; a resource that is charged and not allocatable has allocatable 0.
    """
    charged = summed(part.amounts for part in claims.values() if not part.reserved)
    held = [part for part in claims.values() if part.reserved]
    bound = [part for part in pods.values() if not part.reserved]
    coming = [part for part in pods.values() if part.reserved]
    requests = summed(part.requests for part in bound)
    overhead = summed(part.overhead for part in bound)
    reserved = summed(amounts for part in coming for amounts in (part.requests, part.overhead))
    add(reserved, summed(part.amounts for part in held))
    names = [name for name in allocatable if bookable(name)]
    names += [name for total in (charged, requests, overhead, reserved) for name in total]
    resources = {
        name: Amount(
            allocatable.get(name, 0),
            requests.get(name, 0),
            charged.get(name, 0),
            overhead.get(name, 0),
            reserved.get(name, 0),
        )
        for name in dict.fromkeys(names)
    }
    in_zones: dict[int, dict[str, Number]] = {}
    held_zones: dict[int, dict[str, Number]] = {}
    for part in claims.values():
        for zone, amounts in part.zones.items():
            add((held_zones if part.reserved else in_zones).setdefault(zone, {}), amounts)
    zones: dict[int, dict[str, ZoneAmount]] = {}
    for zone in sorted({*capacities, *in_zones, *held_zones}):
        has, taken, kept = (by_zone.get(zone, {}) for by_zone in (capacities, in_zones, held_zones))
        zones[zone] = {
            name: ZoneAmount(has.get(name), taken.get(name, 0), kept.get(name, 0))
            for name in dict.fromkeys([*has, *taken, *kept])
        }
    return Account(node, uid, resources, zones, claims, pods)
