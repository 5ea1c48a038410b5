"""Devices of a node that may serve a request, each with what one allocation of it takes and costs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice

from webhook.facts.account import Amounts
from webhook.facts.drivers import drivers_of
from webhook.facts.matching import device_applies
from webhook.facts.pool_survey import Reason, current
from webhook.facts.pools import needed, pool_state
from webhook.facts.request_policy import consumed_for, off_policy
from webhook.facts.rollout import barred, held
from webhook.facts.selectors import matches
from webhook.facts.zones import device_zone
from webhook.kube.claims import DeviceRequest
from webhook.kube.finding import Finding
from webhook.kube.quantity import Number, canonical, try_parse
from webhook.kube.raw import Json, mapping, objects, text
from webhook.kube.resource import Device, Slice
from webhook.kube.snapshot import Snapshot

_FREE_SLICES = 64

Identity = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Offer:
    """A device that a request may get. ``consumed`` is what the request takes of a shared device's capacities, None
    for an exclusive one; ``sure`` is false where a selector could not be evaluated. Offers of equal ``signature`` are
    as good as each other.
    """

    slice: Slice
    device: Device
    sure: bool
    admin: bool
    consumed: Mapping[str, Number] | None
    amounts: Amounts
    per_pod: Amounts
    per_container: Amounts
    zone: int | None
    signature: Hashable

    @property
    def identity(self) -> Identity:
        """(driver, pool, device)."""
        return (self.slice.driver, self.slice.pool, self.device.name)


@dataclass(frozen=True, slots=True)
class Offers:
    """The offers for one request, cheapest first; ``reasons`` why other devices fall out; ``matched`` how many devices
    the selectors choose; ``elsewhere``: devices that no node owns may serve it too, and were too many to look at.
    """

    offers: tuple[Offer, ...]
    reasons: tuple[Finding, ...]
    matched: int
    elsewhere: bool


class Holdings:
    """What other claims hold of devices. ``besides`` are ids of claims that are not others."""

    def __init__(self, snapshot: Snapshot, besides: frozenset[str]) -> None:
        self._snapshot = snapshot
        self._besides = besides

    def used(self, identity: Identity) -> dict[str, Number] | None:
        """The capacities that others consume of a device, None when nobody holds it. Negative amounts make no room."""
        total: dict[str, Number] | None = None
        for claim in self._snapshot.device_claims.get(identity, ()):
            if claim.allocation is None or claim.id in self._besides:
                continue
            for result in claim.allocation.results:
                if result.identity == identity and not result.admin:
                    total = {} if total is None else total
                    for name, amount in (result.consumed or {}).items():
                        total[name] = total.get(name, 0) + max(amount, 0)
        return total

    def devices(self, pool: tuple[str, str]) -> frozenset[str]:
        """The names of the pool's devices that others hold."""
        return frozenset(
            result.device
            for claim in self._snapshot.pool_claims.get(pool, ())
            if claim.allocation is not None and claim.id not in self._besides
            for result in claim.allocation.results
            if (result.driver, result.pool) == pool and not result.admin
        )


def node_offers(
    request: DeviceRequest, snapshot: Snapshot, node: str, holdings: Holdings | None, now: datetime | None
) -> Offers:
    """The devices of ``node`` that ``request`` may get.

    ``holdings`` None: as if no device were in use. ``now`` None: as if every pool were Fresh and no driver held.
    """
    spec = mapping(mapping(snapshot.classes.get(request.class_name)).get("spec"))
    selectors = [text(mapping(row.get("cel")).get("expression")) for _, row in objects(spec.get("selectors"))]
    selectors += request.selectors
    named = drivers_of(request, snapshot)
    pools, elsewhere = _pools(named, snapshot, node)
    offers: list[Offer] = []
    reasons: dict[str, list[Reason]] = {}
    matched = 0
    for driver, pool in pools:
        stops: tuple[Reason | None, Reason | None] | None = None
        for item, device in current(snapshot, driver, pool, node).devices.values():
            if device_applies(item, device, node, snapshot) is False:
                continue
            verdict = _selected(selectors, driver, device)
            if verdict is False:
                continue
            matched += 1
            if now is not None and stops is None:
                stops = (_stage(snapshot, driver, node), _pool(snapshot, item, node, now))
            stage, stop = stops or (None, None)
            made: Offer | Reason | None = (stage if device.costs else None) or stop
            if made is None:
                made = _offer(request, item, device, snapshot, holdings, verdict)
            if isinstance(made, Reason):
                reasons.setdefault(made.rule, []).append(made)
            else:
                offers.append(made)
    offers.sort(key=_price)
    path = f"spec.devices.{request.path}"
    return Offers(tuple(offers), tuple(_findings(reasons, path)), matched, elsewhere)


def _pools(named: tuple[str, ...], snapshot: Snapshot, node: str) -> tuple[list[tuple[str, str]], bool]:
    own = [item.key for item in snapshot.node_slices.get(node, ())]
    free: list[tuple[str, str]] = []
    elsewhere = False
    for driver in named or tuple(snapshot.free_slices):
        names = snapshot.free_slices.get(driver)
        if names is not None:
            elsewhere = elsewhere or len(names) > _FREE_SLICES
            free += [snapshot.slices[name].key for name in islice(names, _FREE_SLICES)]
    keys = dict.fromkeys(sorted(own) + sorted(free))
    return [key for key in keys if not named or key[0] in named], elsewhere


class _Asked:
    """A selector on a device model, compared by identity: nodes of one kind share their models."""

    __slots__ = ("device", "driver", "expression")

    def __init__(self, expression: str, driver: str, device: Device) -> None:
        self.expression = expression
        self.driver = driver
        self.device = device

    def __hash__(self) -> int:
        return hash((self.expression, self.driver, id(self.device)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Asked)
            and self.device is other.device
            and self.expression == other.expression
            and self.driver == other.driver
        )


@lru_cache(maxsize=1 << 15)
def _matches(asked: _Asked) -> bool | None:
    return matches(asked.expression, asked.driver, asked.device)


def _selected(selectors: list[str], driver: str, device: Device) -> bool | None:
    verdict: bool | None = True
    for expression in selectors:
        answer = _matches(_Asked(expression, driver, device))
        if answer is False:
            return False
        verdict = verdict if answer else None
    return verdict


def _stage(snapshot: Snapshot, driver: str, node: str) -> Reason | None:
    """Why no device that costs something may be allocated on the node now."""
    rollout, known = snapshot.rollouts.get(driver), snapshot.nodes.get(node)
    return None if rollout is None or known is None else barred(rollout, [known])


def _pool(snapshot: Snapshot, item: Slice, node: str, now: datetime) -> Reason | None:
    """Why nothing may be allocated from the pool of ``item`` now."""
    state = pool_state(snapshot, item.driver, item.pool, node, now)
    if state.reasons and needed(snapshot, state):
        return state.reasons[0]
    return held(snapshot.rollouts.get(item.driver), state.survey.digests, now)


def tolerated(taint: Json, tolerations: tuple[Json, ...]) -> bool:
    """Whether a request may get a device with ``taint`` (device taints, KEP-5055)."""
    if taint.get("effect") not in ("NoSchedule", "NoExecute"):
        return True
    for toleration in tolerations:
        operator = toleration.get("operator") or "Equal"
        effect, key = toleration.get("effect"), text(toleration.get("key"))
        if effect and effect != taint.get("effect"):
            continue
        if operator == "Exists" and key in ("", text(taint.get("key"))):
            return True
        same = key == taint.get("key") and text(toleration.get("value")) == text(taint.get("value"))
        if operator == "Equal" and same:
            return True
    return False


def _offer(
    request: DeviceRequest,
    item: Slice,
    device: Device,
    snapshot: Snapshot,
    holdings: Holdings | None,
    verdict: bool | None,
) -> Offer | Reason:
    for taint in device.taints:
        if not tolerated(taint, request.tolerations):
            has = f"device {device.name} with the taint {text(taint.get('key'))}:{text(taint.get('effect'))}"
            return Reason("device-tainted", has, "a toleration for it")
    identity = (item.driver, item.pool, device.name)
    used = holdings.used(identity) if holdings is not None else None
    if used is not None and not device.multiple and not request.admin:
        holders = snapshot.device_claims.get(identity, ())
        holder = next((claim.key for claim in holders if not claim.deleting), holders[0].key if holders else "another")
        return Reason("exclusive-device-taken", f"device {device.name}, held by claim {holder}", "a free device")
    consumed = _consumed(request, device, snapshot, used or {})
    if isinstance(consumed, Reason):
        return consumed
    amounts: dict[str, Number] = {}
    per_pod: dict[str, Number] = {}
    per_container: dict[str, Number] = {}
    for cost in device.effective_costs:
        if cost.per_pod > 0:
            per_pod[cost.resource] = cost.per_pod
        if cost.per_container > 0:
            per_container[cost.resource] = cost.per_container
        if not cost.readable or (cost.multiplier or 0) < 0:
            return Reason("mapping-unreadable", f"device {device.name} with an unreadable cost", "a readable mapping")
        if cost.multiplier is None:
            continue
        if cost.capacity_key is None:
            amounts[cost.resource] = cost.multiplier
        elif not device.multiple:
            has = f"exclusive device {device.name} whose cost follows the capacity {cost.capacity_key}"
            return Reason("capacitykey-exclusive", has, "a device with allowMultipleAllocations")
        elif cost.capacity_key in consumed:
            amounts[cost.resource] = consumed[cost.capacity_key] * cost.multiplier
    zone = device_zone(device, item.driver, snapshot.rollouts.get(item.driver))
    signature = (item.driver, item.pool, tuple(sorted(amounts.items())), zone, repr(device.counters), device.digest)
    return Offer(
        item,
        device,
        verdict is True,
        request.admin,
        consumed if device.multiple else None,
        amounts,
        per_pod,
        per_container,
        zone,
        signature,
    )


def _consumed(
    request: DeviceRequest, device: Device, snapshot: Snapshot, used: Mapping[str, Number]
) -> dict[str, Number] | Reason:
    for name in request.capacity:
        if name not in device.capacity:
            known = ", ".join(sorted(device.capacity)[:4])
            needs = f"one of {known}" if known else "a device that has it"
            return Reason("capacity-name-unknown", f"device {device.name} without capacity {name}", needs)
    taken: dict[str, Number] = {}
    for name, entry in device.capacity.items():
        asked = try_parse(request.capacity[name]) if name in request.capacity else None
        if asked is None and not device.multiple:
            continue
        value = device.capacity_value(name)
        amount = consumed_for(asked, entry, snapshot.release)
        if value is None or amount is None or amount < 0:
            has = f"an amount of {name} that device {device.name} cannot be asked for"
            return Reason("capacity-overflow", has, "an amount that the allocator can round")
        binary = "i" in str(mapping(entry).get("value"))
        off = off_policy(amount, entry, snapshot.release)
        if off and device.multiple:
            return Reason("consumed-off-policy", f"{canonical(amount, binary)} {name} of device {device.name}", off)
        left = value - used.get(name, 0)
        if amount > left and not request.admin:
            room = canonical(max(left, 0), binary)
            has = f"{canonical(amount, binary)} {name} of device {device.name}, where {room} is free"
            return Reason("device-overcommit", has, f"at most {room}")
        taken[name] = amount
    return taken


def _price(offer: Offer) -> tuple[bool, list[tuple[str, Number]], str, str]:
    return (not offer.sure, sorted(offer.amounts.items()), offer.slice.pool, offer.device.name)


def _findings(reasons: Mapping[str, list[Reason]], path: str) -> Iterator[Finding]:
    for rule, group in reasons.items():
        first = group[0]
        more = f" (and {len(group) - 1} more like it)" if len(group) > 1 else ""
        yield Finding(rule, path, f"{first.has}{more}", first.needs, first.fix)
