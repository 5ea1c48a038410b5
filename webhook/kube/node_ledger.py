"""NodeLedger (``allocguard.dev/v1alpha1``): the book of one node, named as the node, written by the guard only.

It holds what was booked for allocations and what is reserved for those that are on their way. Everything else in its
status are sums for people, which nobody reads back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct

from webhook.kube.packed import unpacked
from webhook.kube.quantity import INT64_MAX, Number, QuantityError, canonical, of_resource, parse
from webhook.kube.raw import Json, mapping, text
from webhook.kube.rollout import API_VERSION

KIND = "NodeLedger"

PLACE = "place"
"""What a reservation has for an allocation while there is none: a place for a claim, whichever devices it will get."""

ANY = "*"
"""The device of a charge for a place, which is no name that a device can have."""

# More than any node has of anything; a product of absurd factors would have more digits than a quantity may have.
_MOST = 10**36
_NANO = 10**9
# What the definition takes of sums: drivers may name any number of resources and zones, and a ledger is written all the
# same.
MOST_RESOURCES, MOST_ZONES = 64, 256

T = TypeVar("T")


class BookedCharge(Struct, frozen=True, gc=False):
    """One amount (base units) of one resource of the ledger's node, booked for one device of one allocation.

    The mapping version (``slice`` to ``digest``) is the one that the amount was computed under; it is empty where the
    amount was taken from a pod's status. ``claim_version`` is the lowest resourceVersion of the claim that was seen
    with this allocation. Never changed until the claim is released.
    """

    claim_uid: str
    allocation: str
    request: str
    driver: str
    pool: str
    device: str
    share_id: str
    resource: str
    namespace: str
    name: str
    slice: str
    slice_uid: str
    generation: int
    resource_version: str
    digest: str
    amount: Number
    zone: int | None
    formula: str
    since: str
    claim_version: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What makes it one and the same charge of its node, whatever version its mapping has."""
        return (
            self.claim_uid,
            self.allocation,
            self.request,
            self.driver,
            self.pool,
            self.device,
            self.share_id,
            self.resource,
        )


class Reservation(Struct, frozen=True, gc=False):
    """What is held for an allocation that was admitted, until it is seen, and for its pod, until that is counted; or
    for one that is to come, whose ``allocation`` is ``PLACE``.

    A claim with several consumers (1.37) has one for each, and its charges in one of them. ``charges`` is empty once
    the allocation was seen, since they are among the ledger's own then; ``seen`` is whether the claim was seen with it
    and reserved for the pod. ``claim_version`` is the lowest resourceVersion that the claim can have with it.
    ``pod_request`` is the pod's own request with the overhead of its claims, without what these cost by mapping.
    ``siblings`` is the least that the pod's mapped claims without an allocation can cost (1.36). ``taken`` is when
    (RFC 3339), ``holder`` who. ``counted`` is whether the pod was seen on the node, and stays held for a moment only
    for those who do not see it yet.
    """

    claim_uid: str
    allocation: str
    namespace: str
    name: str
    pod_uid: str
    pod_namespace: str
    pod_name: str
    charges: tuple[BookedCharge, ...]
    pod_request: Mapping[str, Number]
    siblings: Mapping[str, Number]
    taken: str
    holder: str
    claim_version: str = ""
    seen: bool = False
    counted: bool = False


class NodeLedger(Struct, frozen=True, gc=False):
    """The book of one node. ``node_uid`` and ``boot_id`` are those of the node that it was last written for.

    ``problem`` says why a stored object cannot be read; such a ledger is empty, and nothing may be reserved on it.
    """

    node: str
    node_uid: str = ""
    resource_version: str = ""
    charges: tuple[BookedCharge, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    boot_id: str = ""
    problem: str = ""


def as_stored(amount: Number) -> Number:
    """``amount`` as a ledger keeps it: to the billionth, rounded up, and no more than any node could have."""
    if not isinstance(amount, int) and amount.denominator > 1 and _NANO % amount.denominator:
        amount = Fraction(-(-amount * _NANO // 1), _NANO)
    amount = min(amount, _MOST)
    return int(amount) if amount.denominator == 1 else amount


def quantity(resource: str, amount: Number) -> str:
    """The text of an amount as a ledger keeps it; reading it gives :func:`as_stored` of the amount."""
    kept = as_stored(amount)
    # Binary suffixes are read with a cap.
    return of_resource(resource, kept) if kept <= INT64_MAX else canonical(kept)


def node_ledger_object(
    ledger: NodeLedger, resources: Json | None = None, zones: Sequence[Json] = (), differences: int = 0
) -> Json:
    """The object to store for ``ledger``. ``resources`` and ``zones`` are the sums as
    :func:`webhook.ledger.views.account_json` gives them, ``differences`` how many there are.
    """
    metadata: Json = {"name": ledger.node}
    if ledger.resource_version:
        metadata["resourceVersion"] = ledger.resource_version
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": {"nodeName": ledger.node},
        "status": {
            "nodeUID": ledger.node_uid,
            "bootID": ledger.boot_id,
            "charges": [_charge_json(charge) for charge in ledger.charges],
            "reservations": [_reservation_json(reservation) for reservation in ledger.reservations],
            "resources": _most(resources or {}),
            "zones": [{**zone, "resources": _most(mapping(zone.get("resources")))} for zone in zones[:MOST_ZONES]],
            "differences": differences,
        },
    }


def _most(sums: Json) -> Json:
    kept = sorted(sums, key=lambda name: (name not in ("cpu", "memory"), name))[:MOST_RESOURCES]
    return {name: sums[name] for name in kept}


_CHARGE_TEXTS = {
    "claim_uid": "claimUID",
    "allocation": "allocation",
    "request": "request",
    "driver": "driver",
    "pool": "pool",
    "device": "device",
    "share_id": "shareID",
    "resource": "resource",
    "namespace": "namespace",
    "name": "name",
    "slice": "slice",
    "slice_uid": "sliceUID",
    "resource_version": "resourceVersion",
    "digest": "digest",
    "formula": "formula",
    "since": "since",
    "claim_version": "claimVersion",
}
_RESERVATION_TEXTS = {
    "claim_uid": "claimUID",
    "allocation": "allocation",
    "namespace": "namespace",
    "name": "name",
    "pod_uid": "podUID",
    "pod_namespace": "podNamespace",
    "pod_name": "podName",
    "taken": "taken",
    "holder": "holder",
    "claim_version": "claimVersion",
}
_NEEDED = frozenset({"claimUID", "allocation", "driver", "pool", "device", "resource", "namespace", "name"})


def _charge_json(charge: BookedCharge) -> Json:
    made: Json = {member: value for field, member in _CHARGE_TEXTS.items() if (value := getattr(charge, field))}
    made["amount"] = quantity(charge.resource, charge.amount)
    if charge.generation:
        made["generation"] = charge.generation
    if charge.zone is not None:
        made["zone"] = charge.zone
    return made


def _reservation_json(reservation: Reservation) -> Json:
    made: Json = {
        member: value for field, member in _RESERVATION_TEXTS.items() if (value := getattr(reservation, field))
    }
    made["charges"] = [_charge_json(charge) for charge in reservation.charges]
    made |= {name: True for name in ("seen", "counted") if getattr(reservation, name)}
    for member, amounts in (("podRequest", reservation.pod_request), ("siblings", reservation.siblings)):
        made[member] = {resource: quantity(resource, amount) for resource, amount in sorted(amounts.items())}
    return made


def read_node_ledger(obj: object) -> NodeLedger:
    """The model of a NodeLedger. Raises ValueError, with the path, for a value that no ledger has."""
    metadata, spec, status = (mapping(mapping(obj).get(part)) for part in ("metadata", "spec", "status"))
    node = _text(metadata, "name", "metadata", needed=True)
    named = _text(spec, "nodeName", "spec")
    if named and named != node:
        raise ValueError(f"spec.nodeName: has {named}, needs {node}, the ledger's name")
    charges = _rows(status, "charges", "status", _charge)
    _once(charges, lambda charge: charge.key, "status.charges", "the key of another charge")
    reservations = _rows(status, "reservations", "status", _reservation)
    _once(
        reservations, lambda each: (each.claim_uid, each.pod_uid), "status.reservations", "the claim and pod of another"
    )
    return NodeLedger(
        node,
        _text(status, "nodeUID", "status"),
        _text(metadata, "resourceVersion", "metadata"),
        charges,
        reservations,
        _text(status, "bootID", "status"),
    )


def stored_node_ledger(obj: object) -> NodeLedger:
    """The model as snapshots keep it: an object that cannot be read is an empty ledger that says why."""
    try:
        return read_node_ledger(obj)
    except ValueError as error:
        metadata = mapping(mapping(obj).get("metadata"))
        version = text(metadata.get("resourceVersion"))
        return NodeLedger(text(metadata.get("name")), resource_version=version, problem=str(error))


def _charge(row: Json, path: str) -> BookedCharge:
    texts = {field: _text(row, member, path, member in _NEEDED) for field, member in _CHARGE_TEXTS.items()}
    return BookedCharge(
        **texts,
        generation=_whole(row, "generation", path) or 0,
        amount=_amount(row.get("amount"), f"{path}.amount"),
        zone=_whole(row, "zone", path),
    )


def _reservation(row: Json, path: str) -> Reservation:
    texts = {field: _text(row, member, path, member in _NEEDED) for field, member in _RESERVATION_TEXTS.items()}
    charges = _rows(row, "charges", path, _charge)
    for index, charge in enumerate(charges):
        if (charge.claim_uid, charge.allocation) != (texts["claim_uid"], texts["allocation"]):
            raise ValueError(f"{path}.charges[{index}]: has another claim or allocation than its reservation")
    _once(charges, lambda charge: charge.key, f"{path}.charges", "the key of another charge")
    return Reservation(
        **texts,
        charges=charges,
        pod_request=_amounts(row, "podRequest", path),
        siblings=_amounts(row, "siblings", path),
        seen=_flag(row, "seen", path),
        counted=_flag(row, "counted", path),
    )


def _rows(owner: Json, member: str, path: str, read: Callable[[Json, str], T]) -> tuple[T, ...]:
    value = owner.get(member)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError(f"{path}.{member}: has {_said(value)}, needs a list")
    made: list[T] = []
    for index, row in enumerate(value):
        where = f"{path}.{member}[{index}]"
        if isinstance(row, str):
            try:
                made += _of_text(row, read)
            except ValueError as error:
                raise ValueError(f"{where}{error}") from None
        else:
            made += _unpacked(row, read, where)
    return tuple(made)


# Most of a ledger is the same from one write of it to the next.
@lru_cache(4096)
def _of_text(row: str, read: Callable[[Json, str], T]) -> tuple[T, ...]:
    return _unpacked(row, read, "")


def _unpacked(row: object, read: Callable[[Json, str], T], path: str) -> tuple[T, ...]:
    try:
        rows = unpacked(row)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    made: list[T] = []
    for each in rows:
        if not isinstance(each, dict):
            raise ValueError(f"{path}: has {_said(each)}, needs a map")
        made.append(read(each, path))
    return tuple(made)


def _once(rows: Sequence[T], key: Callable[[T], object], path: str, what: str) -> None:
    seen: set[object] = set()
    for index, row in enumerate(rows):
        if key(row) in seen:
            raise ValueError(f"{path}[{index}]: has {what}, needs its own")
        seen.add(key(row))


def _text(owner: Json, member: str, path: str, needed: bool = False) -> str:
    value = owner.get(member)
    if value is None and not needed:
        return ""
    if not isinstance(value, str) or (needed and not value):
        raise ValueError(f"{path}.{member}: has {_said(value)}, needs {'a text' if value is None else 'some text'}")
    return value


def _flag(owner: Json, member: str, path: str) -> bool:
    value = owner.get(member, False)
    if not isinstance(value, bool):
        raise ValueError(f"{path}.{member}: has {_said(value)}, needs true or false")
    return value


def _whole(owner: Json, member: str, path: str) -> int | None:
    value = owner.get(member)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{path}.{member}: has {_said(value)}, needs a whole number, zero or more")
    return value


def _amounts(owner: Json, member: str, path: str) -> Mapping[str, Number]:
    value = owner.get(member)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{path}.{member}: has {_said(value)}, needs a map of quantities")
    return {str(name): _amount(given, f"{path}.{member}[{name}]") for name, given in (value or {}).items()}


def _amount(value: object, path: str) -> Number:
    try:
        amount = parse(value)
    except QuantityError as error:
        raise ValueError(f"{path}: {error}") from None
    if amount < 0:
        raise ValueError(f"{path}: has {_said(value)}, needs zero or more")
    return amount


def _said(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list):
        return "a map" if isinstance(value, dict) else "a list"
    return repr(value)[:40]
