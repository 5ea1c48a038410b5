"""What a write changes in the status of a ResourceClaim, as the API server finds out whom to ask for which permission.

Other than there, blobs (opaque parameters, a device's data) are compared as the JSON that they say, not as bytes: who
only writes them another way changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from webhook.facts.times import instant
from webhook.kube.claims import allocated_node as selected_node
from webhook.kube.quantity import try_parse
from webhook.kube.raw import Json, mapping, members, text

Identity = tuple[str, str, str, str]

# Members whose value is JSON of somebody else's, times, maps of quantities, and objects that are always there in Go.
_BLOBS = frozenset({"data", "parameters"})
_TIMES = frozenset({"allocationTimestamp", "lastTransitionTime"})
_QUANTITIES = "consumedCapacity"
_QUANTITY = "an amount of it"
_ALWAYS = frozenset({_QUANTITIES, "devices"})


class Changes(Struct, frozen=True):
    """What changed. ``drivers`` are those with a device status that was added, edited or removed, sorted; ``pruned``
    those whose statuses went because the allocation they belong to did, in the same write.
    """

    allocation: bool
    reserved_for: bool
    drivers: tuple[str, ...]
    pruned: tuple[str, ...]


def claim_changes(old: Json, new: Json) -> Changes:
    """The changes between two raw claims, by value: nothing and an empty list are the same, and so are two ways of
    writing a quantity or a time.
    """
    before, after = mapping(old.get("status")), mapping(new.get("status"))
    allocation = not _same(before.get("allocation"), after.get("allocation"))
    told, tells = _entries(before), _entries(after)
    left = _devices(after)
    changed: set[str] = set()
    pruned: set[str] = set()
    for identity in told.keys() | tells.keys():
        was, entry = told.get(identity), tells.get(identity)
        if was is None or (entry is not None and not _same(was, entry)):
            changed.add(identity[0])
        elif entry is None:
            gone = allocation and identity in _devices(before) and identity not in left
            (pruned if gone else changed).add(identity[0])
    reserved = not _same(before.get("reservedFor"), after.get("reservedFor"))
    return Changes(allocation, reserved, tuple(sorted(changed)), tuple(sorted(pruned)))


def allocated_node(claim: Json) -> str:
    """The one node that the allocation of a raw claim names; empty where it names several, any, or there is none."""
    allocation = mapping(mapping(claim.get("status")).get("allocation"))
    return selected_node(allocation.get("nodeSelector"))


def allocated_drivers(claim: Json) -> frozenset[str]:
    """The drivers of the devices that a raw claim has."""
    return frozenset(identity[0] for identity in _devices(mapping(claim.get("status"))))


def _entries(status: Json) -> dict[Identity, Json]:
    return {_identity(entry): entry for entry in members(status.get("devices"))}


def _devices(status: Json) -> set[Identity]:
    devices = mapping(mapping(status.get("allocation")).get("devices"))
    return {_identity(result) for result in members(devices.get("results"))}


def _identity(entry: Json) -> Identity:
    return (text(entry.get("driver")), text(entry.get("pool")), text(entry.get("device")), text(entry.get("shareID")))


def _same(old: object, new: object, name: str = "") -> bool:
    """Whether two values of the member ``name`` are the same to the API server."""
    if name in _BLOBS:
        return _equal(old, new)
    if name in _ALWAYS:
        old, new = old or {}, new or {}
    if isinstance(old, dict) and isinstance(new, dict):
        inner = _QUANTITY if name == _QUANTITIES else ""
        return all(_same(old.get(key), new.get(key), inner or key) for key in old.keys() | new.keys())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    if old in (None, [], "") and new in (None, [], ""):
        return True
    if name == _QUANTITY:
        amounts = try_parse(old), try_parse(new)
        return _equal(old, new) if None in amounts else amounts[0] == amounts[1]
    if name in _TIMES:
        moments = instant(text(old)), instant(text(new))
        return _equal(old, new) if None in moments else moments[0] == moments[1]
    return _equal(old, new)


def _equal(old: object, new: object) -> bool:
    """Whether two JSON values are equal; to Python, true is 1."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(_equal(value, new[key]) for key, value in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_equal, old, new))
    return isinstance(old, bool) == isinstance(new, bool) and old == new
