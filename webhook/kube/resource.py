"""ResourceSlices and pod status entries, read from every version and both releases into one model.

The only module that knows where 1.36 (``nodeAllocatableResourceMappings``) and 1.37
(``nodeAllocatableResources``) keep a device's cost, that v1beta1 puts device fields below ``basic``, and
how the two releases write ``Pod.status.nodeAllocatableResourceClaimStatuses`` (KEP-5517).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from sys import intern
from typing import Any, overload

import orjson
from msgspec import Raw, Struct

from webhook.kube.quantity import Number, canonical, of_resource, try_parse
from webhook.kube.raw import Json, integer, mapping, objects, sequence, text
from webhook.kube.sharing import sharing

FIELD_136 = "nodeAllocatableResourceMappings"
FIELD_137 = "nodeAllocatableResources"
POD_FIELD = "nodeAllocatableResourceClaimStatuses"


# Structs are made in a fraction of the time of frozen dataclasses, and a slice has up to 128 devices.
class NodeCost(Struct, frozen=True, gc=False):
    """What one allocation of a device costs its node of ``resource`` (base units: cores, bytes).

    ``multiplier`` is None where there is no mapping (1.37 overhead alone) or where it cannot be read
    (``readable`` is then false). With ``capacity_key`` the cost is consumed capacity times multiplier, else the
    multiplier. ``per_pod`` and ``per_container`` are the 1.37 overheads.
    """

    resource: str
    capacity_key: str | None
    multiplier: Number | None
    per_pod: Number = 0
    per_container: Number = 0
    readable: bool = True

    @property
    def mapped(self) -> bool:
        """Whether there is a mapping, not only overhead."""
        return self.multiplier is not None or not self.readable


class Device(Struct, frozen=True, gc=False):
    """One device of a slice. ``shape`` names the release whose field the device carries (``1.36``, ``1.37``), ``both``
    or nothing; ``counters`` are the raw entries of what it consumes of counter sets; ``fields`` is the raw object that
    everything else is read from when it is asked for.
    """

    name: str
    costs: tuple[NodeCost, ...]
    shape: str
    counters: tuple[Json, ...]
    fields: Json

    @property
    def attributes(self) -> Json:
        """The raw attributes by name."""
        return mapping(self.fields.get("attributes"))

    @property
    def capacity(self) -> Json:
        """The raw capacities by name."""
        return mapping(self.fields.get("capacity"))

    @property
    def multiple(self) -> bool:
        """Whether the device is given to several claims, which consume its capacities."""
        return self.fields.get("allowMultipleAllocations") is True

    @property
    def taints(self) -> tuple[Json, ...]:
        """The raw taints."""
        return tuple(item for _, item in objects(self.fields.get("taints")))

    @property
    def nodes(self) -> Json:
        """The node selection of the device itself."""
        fields = self.fields
        return {name: fields[name] for name in ("nodeName", "nodeSelector", "allNodes") if fields.get(name) is not None}

    @property
    def effective_costs(self) -> tuple[NodeCost, ...]:
        """The costs, each resource once: a device that carries both releases' fields costs by one of them, and which
        one depends on the server; the dearer is taken.
        """
        if self.shape != "both":
            return self.costs
        dearest: dict[str, NodeCost] = {}
        for cost in self.costs:
            held = dearest.get(cost.resource)
            if held is None or (cost.multiplier or 0) > (held.multiplier or 0):
                dearest[cost.resource] = cost
        return tuple(dearest.values())

    @property
    def mapped(self) -> bool:
        """Whether allocating the device books something by a mapping (1.37 overhead alone does not count)."""
        return any(cost.mapped for cost in self.costs)

    @property
    def digest(self) -> str:
        """The mapping digest of the device, empty without node costs."""
        return mapping_digest(self.costs)

    def capacity_value(self, key: str) -> Number | None:
        """The value of capacity ``key`` (literal name), None when absent or unreadable."""
        entry = self.capacity.get(key)
        return try_parse(entry.get("value")) if isinstance(entry, dict) else None


@dataclass(frozen=True, slots=True)
class Slice:
    """A ResourceSlice. ``node`` is ``spec.nodeName`` or empty; ``nodes`` holds the other ways of selecting nodes;
    stored slices of equal ``shape`` offer the same devices, by name and content (a slice that is only under review has
    none). ``written`` is when somebody last wrote it, as far as its managed fields tell.
    """

    name: str
    uid: str
    resource_version: str
    created: str
    written: str
    deleting: bool
    owner_node_uid: str
    owner_node: str
    driver: str
    pool: str
    generation: int
    count: int
    node: str
    nodes: Json
    devices: Sequence[Device]
    counter_sets: Mapping[str, Mapping[str, Number | None]]
    shape: bytes

    @property
    def key(self) -> tuple[str, str]:
        """(driver, pool name)."""
        return (self.driver, self.pool)

    @property
    def kinds(self) -> Iterable[tuple[Device, int]]:
        """Devices with how many there are of each kind, in order: those of a kind may differ in all but what costs."""
        return self.devices.kinds if isinstance(self.devices, Devices) else ((device, 1) for device in self.devices)

    @property
    def mapped(self) -> bool:
        """Whether any device books something on the node."""
        return any(device.costs for device in self.devices)

    @property
    def costless(self) -> bool:
        """Whether any device costs the node nothing: no stage of its driver concerns that one."""
        return any(not device.costs for device, _ in self.kinds)

    @property
    def digests(self) -> frozenset[str]:
        """The mapping digests of the devices."""
        return frozenset(device.digest for device in self.devices if device.costs)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a pod's ``nodeAllocatableResourceClaimStatuses``: amounts by resource, overheads of 1.37.

    ``per_pod`` and ``per_container`` are already summed over the claim's devices, not over containers.
    """

    claim: str
    containers: tuple[str, ...]
    amounts: Mapping[str, Number]
    per_pod: Mapping[str, Number]
    per_container: Mapping[str, Number]
    readable: bool = True

    def total(self) -> dict[str, Number]:
        """What the scheduler adds to the pod's request for this claim, by resource."""
        total: dict[str, Number] = dict(self.amounts)
        for resource, amount in self.per_pod.items():
            total[resource] = total.get(resource, 0) + amount
        for resource, amount in self.per_container.items():
            total[resource] = total.get(resource, 0) + amount * len(set(self.containers))
        return total


@lru_cache(maxsize=4096)
def mapping_digest(costs: tuple[NodeCost, ...]) -> str:
    """``sha256:…`` of a device's mapping formula: resources, capacity keys, multipliers, overheads; no names,
    no capacities, and the same for both releases' way of writing one formula. Empty without costs.
    """
    if not costs:
        return ""

    def number(value: Number | None) -> str:
        return "" if value is None else canonical(value)

    rows = sorted(
        [c.resource, c.capacity_key or "", number(c.multiplier), number(c.per_pod), number(c.per_container)]
        for c in costs
    )
    try:
        content = orjson.dumps(rows)
    except TypeError:  # a lone surrogate in a name has no JSON bytes
        content = repr(rows).encode("utf-8", "backslashreplace")
    return "sha256:" + hashlib.sha256(content).hexdigest()


_NOTHING: Json = {}


def device_fields(device: object) -> Json:
    """The object that holds a device's fields: the device itself, or its ``basic`` member in v1beta1."""
    if not isinstance(device, dict):
        return _NOTHING
    basic = device.get("basic")
    return basic if isinstance(basic, dict) else device


def _cost_136(resource: str, entry: object) -> NodeCost:
    fields = mapping(entry)
    key = fields.get("capacityKey")
    # The API server stores multiplier "1" where none is given, also beside a capacityKey.
    given = fields.get("allocationMultiplier")
    multiplier = 1 if given is None else try_parse(given)
    readable = isinstance(entry, dict) and multiplier is not None and (key is None or isinstance(key, str))
    return NodeCost(resource, key if isinstance(key, str) else None, multiplier, readable=readable)


def _cost_137(resource: str, entry: object) -> NodeCost:
    fields = mapping(entry)
    readable = isinstance(entry, dict)
    key: str | None = None
    multiplier: Number | None = None
    form = fields.get("mapping")
    if form is not None:
        parts = mapping(form)
        key = text(parts.get("capacityKey")) or None
        multiplier = try_parse(parts.get("capacityMultiplier" if key is not None else "deviceMultiplier"))
        readable = readable and multiplier is not None
    overhead = mapping(fields.get("overhead"))
    amounts: list[Number] = []
    for name in ("perPod", "perContainer"):
        given = overhead.get(name)
        amount = 0 if given is None else try_parse(given)
        readable = readable and amount is not None
        amounts.append(amount or 0)
    return NodeCost(resource, key, multiplier, amounts[0], amounts[1], readable)


def node_costs(fields: Json) -> tuple[tuple[NodeCost, ...], str]:
    """The node costs of a device (see :func:`device_fields`) and the release whose field holds them.

    A device with both releases' fields is read by neither alone: all costs are returned, shape ``both``.
    """
    old, new = fields.get(FIELD_136), fields.get(FIELD_137)
    if old is None and new is None:
        return (), ""
    try:
        return _shared_costs(orjson.dumps((old, new)))
    except TypeError:  # integers beyond 64 bits and lone surrogates have no JSON bytes
        return _costs(old, new)


@lru_cache(maxsize=1 << 12)
def _shared_costs(raw: bytes) -> tuple[tuple[NodeCost, ...], str]:
    """Remembered, as the devices of a fleet repeat the same few costs."""
    return _costs(*orjson.loads(raw))


def _costs(old: object, new: object) -> tuple[tuple[NodeCost, ...], str]:
    costs: list[NodeCost] = []
    shape = ""
    if old is not None and old != {}:
        shape = "1.36"
        costs += [_cost_136(str(name), entry) for name, entry in mapping(old).items()]
        if not isinstance(old, dict):
            costs.append(NodeCost("", None, None, readable=False))
    if new is not None and new != {}:
        shape = "both" if shape else "1.37"
        costs += [_cost_137(str(name), entry) for name, entry in mapping(new).items()]
        if not isinstance(new, dict):
            costs.append(NodeCost("", None, None, readable=False))
    return tuple(costs), shape


def read_device(device: object) -> Device:
    """The model of one raw device."""
    fields = device_fields(device)
    costs, shape = node_costs(fields)
    counters = fields.get("consumesCounters")
    used = tuple(item for _, item in objects(counters)) if counters else ()
    return Device(text(mapping(device).get("name")), costs, shape, used, fields)


class Devices(Sequence[Device]):
    """The devices of a slice under review, read when they are asked for: the rules look at one of each kind."""

    def __init__(self, raw: list[Any]) -> None:
        self._raw = raw

    def __len__(self) -> int:
        return len(self._raw)

    @overload
    def __getitem__(self, index: int) -> Device: ...
    @overload
    def __getitem__(self, index: slice) -> Devices: ...
    def __getitem__(self, index: int | slice) -> Device | Devices:
        return Devices(self._raw[index]) if isinstance(index, slice) else read_device(self._raw[index])

    @cached_property
    def kinds(self) -> list[tuple[Device, int]]:
        """See :attr:`Slice.kinds`."""
        write = orjson.dumps
        try:
            written = [
                write(
                    (
                        fields.get(FIELD_136),
                        fields.get(FIELD_137),
                        fields.get("capacity"),
                        fields.get("allowMultipleAllocations"),
                        fields.get("consumesCounters"),
                    )
                )
                for fields in map(device_fields, self._raw)
            ]
        except TypeError:  # integers beyond 64 bits and lone surrogates have no JSON bytes
            return [(device, 1) for device in self]
        firsts = dict(zip(reversed(written), reversed(self._raw), strict=True))
        return [(read_device(firsts[kind]), count) for kind, count in Counter(written).items()]


# The devices of snapshots by the digest of what they were read from. What falls out is read anew, and shared no more.
_DEVICES: dict[bytes, Device] = {}
_MOST_DEVICES = 1 << 16


def _stored_device(device: object) -> tuple[Device, bytes]:
    """The model of one device, the same one for all that are equal, which keeps a large fleet small; and its digest.

    A device that was not decoded yet (Raw) needs not be where an equal one is known.
    """
    digest = blake2b(device, digest_size=16).digest() if isinstance(device, Raw) else _digest(device)
    known = _DEVICES.get(digest)
    if known is None:
        known = read_device(sharing(orjson.loads(bytes(device)) if isinstance(device, Raw) else device))
        if len(_DEVICES) >= _MOST_DEVICES:
            _DEVICES.pop(next(iter(_DEVICES)), None)
        _DEVICES[digest] = known
    return known, digest


def _digest(value: object) -> bytes:
    """A digest of the content, whatever the order of its members."""
    try:
        content = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError):
        content = repr(value).encode("utf-8", "backslashreplace")
    return blake2b(content, digest_size=16).digest()


def stored_slice(obj: object) -> Slice:
    """The model of a ResourceSlice as snapshots keep it: with its ``shape``, and sharing equal devices with others."""
    spec = mapping(mapping(obj).get("spec"))
    devices = [_stored_device(device) for device in sequence(spec.get("devices"))]
    shape = _digest([_digest(spec.get("sharedCounters")).hex(), *(digest.hex() for _, digest in devices)])
    return _slice(obj, tuple(device for device, _ in devices), shape)


def read_slice(obj: object) -> Slice:
    """The model of a ResourceSlice of any version; fields of a wrong type count as absent (the schema tells)."""
    return _slice(obj, Devices(sequence(mapping(mapping(obj).get("spec")).get("devices"))), b"")


def _slice(obj: object, devices: Sequence[Device], shape: bytes) -> Slice:
    metadata = mapping(mapping(obj).get("metadata"))
    spec = mapping(mapping(obj).get("spec"))
    pool = mapping(spec.get("pool"))
    owner = next((o for _, o in objects(metadata.get("ownerReferences")) if o.get("kind") == "Node"), {})
    created = intern(text(metadata.get("creationTimestamp")))
    nodes = {
        name: spec[name]
        for name in ("nodeSelector", "allNodes", "perDeviceNodeSelection")
        if spec.get(name) is not None
    }
    counter_sets = {
        text(item.get("name")): {
            str(name): try_parse(mapping(value).get("value")) for name, value in mapping(item.get("counters")).items()
        }
        for _, item in objects(spec.get("sharedCounters"))
    }
    return Slice(
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        resource_version=text(metadata.get("resourceVersion")),
        created=created,
        written=intern(max(created, *(text(row.get("time")) for _, row in objects(metadata.get("managedFields"))), "")),
        deleting=metadata.get("deletionTimestamp") is not None,
        owner_node_uid=text(owner.get("uid")),
        owner_node=intern(text(owner.get("name"))),
        driver=intern(text(spec.get("driver"))),
        pool=intern(text(pool.get("name"))),
        generation=integer(pool.get("generation")),
        count=integer(pool.get("resourceSliceCount")),
        node=intern(text(spec.get("nodeName"))),
        nodes=nodes or _NOTHING,
        devices=devices,
        counter_sets=counter_sets or _NOTHING,
        shape=shape,
    )


def _named_amounts(rows: object, member: str) -> tuple[dict[str, Number], bool]:
    amounts: dict[str, Number] = {}
    readable = rows is None or isinstance(rows, list)
    for _, row in objects(rows):
        given = row.get(member)
        if given is None:
            continue
        amount = try_parse(given)
        readable = readable and amount is not None
        name = text(row.get("name"))
        amounts[name] = amounts.get(name, 0) + (amount or 0)
    return amounts, readable


def read_entries(status: object) -> tuple[Entry, ...]:
    """The entries of a raw pod status, in the shape of either release."""
    entries: list[Entry] = []
    for _, row in objects(mapping(status).get(POD_FIELD)):
        amounts, fine = _named_amounts(row.get("mapping"), "quantity")
        for name, given in mapping(row.get("resources")).items():
            amount = try_parse(given)
            fine = fine and amount is not None
            amounts[str(name)] = amounts.get(str(name), 0) + (amount or 0)
        per_pod, fine_pod = _named_amounts(row.get("overhead"), "perPod")
        per_container, fine_container = _named_amounts(row.get("overhead"), "perContainer")
        entries.append(
            Entry(
                claim=text(row.get("resourceClaimName")),
                containers=tuple(name for name in sequence(row.get("containers")) if isinstance(name, str)),
                amounts=amounts,
                per_pod=per_pod,
                per_container=per_container,
                readable=fine and fine_pod and fine_container,
            )
        )
    return tuple(entries)


def dearer(device: Json, factor: int) -> Json:
    """The raw ``device``, in whatever shape it is, with every mapping that can be read ``factor`` times as dear."""
    fields = device_fields(device)
    changed: Json = {}
    if isinstance(fields.get(FIELD_136), dict):
        changed[FIELD_136] = {
            name: _times(entry, "allocationMultiplier", factor, 1) for name, entry in fields[FIELD_136].items()
        }
    if isinstance(fields.get(FIELD_137), dict):
        changed[FIELD_137] = {name: _dearer_137(entry, factor) for name, entry in fields[FIELD_137].items()}
    return {**device, "basic": {**fields, **changed}} if fields is not device else {**device, **changed}


def _dearer_137(entry: Any, factor: int) -> Any:
    form = mapping(entry).get("mapping")
    if not isinstance(form, dict):
        return entry
    name = "capacityMultiplier" if form.get("capacityKey") else "deviceMultiplier"
    return {**entry, "mapping": _times(form, name, factor)}


def _times(fields: Any, name: str, factor: int, default: Number | None = None) -> Any:
    if not isinstance(fields, dict):
        return fields
    amount = default if fields.get(name) is None else try_parse(fields[name])
    return fields if amount is None else {**fields, name: canonical(amount * factor)}


def entry_json(claim: str, containers: Sequence[str], amounts: Mapping[str, Number], minor: int) -> Json:
    """The entry of a pod's status by which a scheduler of release ``minor`` books ``amounts`` for ``claim``."""
    booked = {name: of_resource(name, amount) for name, amount in sorted(amounts.items())}
    entry: Json = {"resourceClaimName": claim, "containers": list(containers)}
    if minor < 37:
        return {**entry, "resources": booked}
    return {**entry, "mapping": [{"name": name, "quantity": amount} for name, amount in booked.items()]}


def carries(objs: Iterable[object]) -> frozenset[str]:
    """Which releases' shapes (``1.36``, ``1.37``) stand in slices and pod status entries among raw ``objs``."""
    shapes: set[str] = set()
    for obj in objs:
        fields = mapping(obj)
        if fields.get("kind") == "ResourceSlice":
            spec = mapping(fields.get("spec"))
            # The spec itself too: a mapping that was put there by mistake shows which release its author had in mind.
            for inner in (spec, *map(device_fields, sequence(spec.get("devices")))):
                if inner.get(FIELD_136):
                    shapes.add("1.36")
                if inner.get(FIELD_137):
                    shapes.add("1.37")
        elif fields.get("kind") == "Pod":
            for _, row in objects(mapping(fields.get("status")).get(POD_FIELD)):
                if row.get("resources"):
                    shapes.add("1.36")
                if row.get("mapping") or row.get("overhead"):
                    shapes.add("1.37")
    return frozenset(shapes)
