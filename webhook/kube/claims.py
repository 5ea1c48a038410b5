"""ResourceClaims and templates (``resource.k8s.io``), every served version read into one model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from sys import intern

import orjson
from msgspec import Struct
from msgspec.structs import replace

from webhook.kube.quantity import Number, try_parse
from webhook.kube.raw import Json, flag, integer, mapping, objects, sequence, text
from webhook.kube.sharing import by_content, shared

_NOTHING: Json = {}

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
DELETE_PROTECTION = "resource.kubernetes.io/delete-protection"
EXTENDED_RESOURCE_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
_READ = (EXTENDED_RESOURCE_ANNOTATION,)


class DeviceRequest(Struct, frozen=True, gc=False):
    """One way of serving a request: the ``exactly`` of a request, or one alternative of ``firstAvailable``.

    ``name`` is what an allocation result calls it (``main`` or ``main/sub``), ``path`` its field path below the
    devices of the claim spec, ``capacity`` the raw ``capacity.requests``.
    """

    name: str
    path: str
    class_name: str
    mode: str
    count: int
    admin: bool
    selectors: tuple[str, ...]
    capacity: Json
    tolerations: tuple[Json, ...]


class RequestGroup(Struct, frozen=True, gc=False):
    """One entry of ``spec.devices.requests``: its alternatives in order of preference (one for ``exactly``)."""

    name: str
    path: str
    alternatives: tuple[DeviceRequest, ...]
    prioritized: bool


class Constraint(Struct, frozen=True, gc=False):
    """One entry of ``spec.devices.constraints``; no ``requests`` means all of them."""

    path: str
    requests: tuple[str, ...]
    match_attribute: str
    distinct_attribute: str


class Result(Struct, frozen=True, gc=False):
    """One allocated device. ``consumed`` is None where the result has no ``consumedCapacity`` at all;
    ``unreadable`` names the capacities whose amount is no quantity.
    """

    index: int
    request: str
    driver: str
    pool: str
    device: str
    admin: bool
    share_id: str
    consumed: Mapping[str, Number] | None
    unreadable: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, str, str]:
        """(driver, pool, device)."""
        return (self.driver, self.pool, self.device)


class Allocation(Struct, frozen=True, gc=False):
    """``status.allocation``. ``node`` is the one node it names by ``metadata.name``, else empty.

    ``identity`` tells two allocations of one claim apart: the timestamp, or a digest of the results without one.
    """

    results: tuple[Result, ...]
    node: str
    node_selector: Json
    timestamp: str
    identity: str


class Consumer(Struct, frozen=True, gc=False):
    """One entry of ``status.reservedFor``."""

    api_group: str
    resource: str
    name: str
    uid: str

    @property
    def is_pod(self) -> bool:
        """Whether the consumer is a pod of the claim's namespace."""
        return self.api_group == "" and self.resource == "pods"


class Claim(Struct, frozen=True, gc=False):
    """A ResourceClaim. ``deleted`` is its deletion time stamp, empty while it is not being deleted; ``protected`` is
    whether the finalizer is there that keeps an allocated claim until it is released; ``reported`` are the drivers that
    say something of its devices, sorted.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    created: str
    deleted: str
    annotations: Json
    owners: tuple[Json, ...]
    groups: tuple[RequestGroup, ...]
    constraints: tuple[Constraint, ...]
    allocation: Allocation | None
    reserved_for: tuple[Consumer, ...]
    protected: bool = False
    reported: tuple[str, ...] = ()

    @property
    def deleting(self) -> bool:
        """Whether the claim is marked for deletion; it keeps its devices until its allocation is gone."""
        return bool(self.deleted)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def id(self) -> str:
        """The UID, or ``namespace/name`` for an object that has none yet (files, mutating creates)."""
        return self.uid or self.key


def _alternative(fields: Json, name: str, path: str) -> DeviceRequest:
    return DeviceRequest(
        name=name,
        path=path,
        class_name=text(fields.get("deviceClassName")),
        mode=text(fields.get("allocationMode")) or "ExactCount",
        # The server fills in 1 for 0 too.
        count=integer(fields.get("count"), 1) or 1,
        admin=flag(fields.get("adminAccess")),
        selectors=tuple(
            [text(mapping(selector.get("cel")).get("expression")) for _, selector in objects(fields.get("selectors"))]
        ),
        capacity=mapping(mapping(fields.get("capacity")).get("requests")),
        tolerations=tuple([item for _, item in objects(fields.get("tolerations"))]),
    )


def read_requests(devices: object) -> tuple[RequestGroup, ...]:
    """The requests below a raw ``spec.devices``; v1beta1 has the fields of ``exactly`` flat in the request."""
    groups: list[RequestGroup] = []
    for index, request in objects(mapping(devices).get("requests")):
        path, name = f"requests[{index}]", text(request.get("name"))
        exactly, first = request.get("exactly"), request.get("firstAvailable")
        if isinstance(exactly, dict):
            alternatives = [_alternative(exactly, name, f"{path}.exactly")]
        elif first:
            alternatives = [
                _alternative(sub, f"{name}/{text(sub.get('name'))}", f"{path}.firstAvailable[{position}]")
                for position, sub in objects(first)
            ]
        elif "deviceClassName" in request:
            alternatives = [_alternative(request, name, path)]
        else:
            alternatives = []
        groups.append(RequestGroup(name, path, tuple(alternatives), bool(first)))
    return tuple(groups)


def read_constraints(devices: object) -> tuple[Constraint, ...]:
    """The constraints below a raw ``spec.devices``."""
    return tuple(
        Constraint(
            path=f"constraints[{index}]",
            requests=tuple(name for name in sequence(item.get("requests")) if isinstance(name, str)),
            match_attribute=text(item.get("matchAttribute")),
            distinct_attribute=text(item.get("distinctAttribute")),
        )
        for index, item in objects(mapping(devices).get("constraints"))
    )


def allocated_node(selector: object) -> str:
    """The node that an allocation's ``nodeSelector`` names, by the API server's own narrow rule: one term, no
    expressions, one field ``metadata.name In [one value]``. Anything else names no single node.
    """
    terms = sequence(mapping(selector).get("nodeSelectorTerms"))
    if len(terms) != 1 or sequence(mapping(terms[0]).get("matchExpressions")):
        return ""
    fields = sequence(mapping(terms[0]).get("matchFields"))
    if len(fields) != 1:
        return ""
    field = mapping(fields[0])
    values = sequence(field.get("values"))
    named = field.get("key") == "metadata.name" and field.get("operator") == "In" and len(values) == 1
    return text(values[0]) if named else ""


def _result(index: int, row: Json) -> Result:
    raw = row.get("consumedCapacity")
    consumed: dict[str, Number] | None = None
    unreadable: list[str] = []
    if isinstance(raw, dict):
        consumed = {}
        for name, given in raw.items():
            amount = try_parse(given)
            if amount is None:
                unreadable.append(str(name))
            else:
                consumed[str(name)] = amount
    return Result(
        index=index,
        request=text(row.get("request")),
        driver=text(row.get("driver")),
        pool=text(row.get("pool")),
        device=text(row.get("device")),
        admin=flag(row.get("adminAccess")),
        share_id=text(row.get("shareID")),
        consumed=consumed,
        unreadable=tuple(unreadable),
    )


def read_allocation(raw: object) -> Allocation | None:
    """The model of a raw ``status.allocation``; None when there is none."""
    if not isinstance(raw, dict):
        return None
    results = tuple(_result(index, row) for index, row in objects(mapping(raw.get("devices")).get("results")))
    stamp = text(raw.get("allocationTimestamp"))
    identity = stamp
    if not identity:
        rows = [[r.request, *r.identity, r.share_id] for r in results]
        try:
            encoded = orjson.dumps(rows)
        except (TypeError, ValueError):  # lone surrogates have no JSON bytes
            encoded = repr(rows).encode("utf-8", "backslashreplace")
        identity = "results:" + hashlib.sha256(encoded).hexdigest()[:16]
    selector = mapping(raw.get("nodeSelector"))
    return Allocation(results, allocated_node(selector), selector, stamp, identity)


def read_consumers(raw: object) -> tuple[Consumer, ...]:
    """The model of a raw ``status.reservedFor``."""
    return tuple(
        Consumer(text(row.get("apiGroup")), text(row.get("resource")), text(row.get("name")), text(row.get("uid")))
        for _, row in objects(raw)
    )


def _deleted(raw: object) -> str:
    return "" if raw is None else text(raw) or "at an unknown time"


def read_claim(obj: object) -> Claim:
    """The model of a ResourceClaim of any version; fields of a wrong type count as absent (the schema tells)."""
    metadata = mapping(mapping(obj).get("metadata"))
    devices = mapping(mapping(mapping(obj).get("spec")).get("devices"))
    status = mapping(mapping(obj).get("status"))
    return Claim(
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        resource_version=text(metadata.get("resourceVersion")),
        created=text(metadata.get("creationTimestamp")),
        deleted=_deleted(metadata.get("deletionTimestamp")),
        annotations=mapping(metadata.get("annotations")),
        owners=tuple(owner for _, owner in objects(metadata.get("ownerReferences"))),
        groups=read_requests(devices),
        constraints=read_constraints(devices),
        allocation=read_allocation(status.get("allocation")),
        reserved_for=read_consumers(status.get("reservedFor")),
        protected=DELETE_PROTECTION in sequence(metadata.get("finalizers")),
        reported=tuple(sorted({text(row.get("driver")) for _, row in objects(status.get("devices"))} - {""})),
    )


_shared_requests, _shared_constraints = by_content(read_requests), by_content(read_constraints)


def stored_claim(obj: object) -> Claim:
    """The model of a ResourceClaim as snapshots keep it: of its annotations and owners those that facts ask for, and
    sharing with others what is equal.
    """
    claim = read_claim(obj)
    devices = mapping(mapping(mapping(obj).get("spec")).get("devices"))
    allocation = claim.allocation
    if allocation is not None:
        results = tuple(
            [
                replace(
                    r, request=intern(r.request), driver=intern(r.driver), pool=intern(r.pool), device=intern(r.device)
                )
                for r in allocation.results
            ]
        )
        selector = shared(allocation.node_selector)
        allocation = replace(allocation, results=results, node=intern(allocation.node), node_selector=selector)
    return replace(
        claim,
        namespace=intern(claim.namespace),
        annotations={name: claim.annotations[name] for name in _READ if name in claim.annotations} or _NOTHING,
        owners=tuple([{name: owner[name] for name in ("kind", "uid") if name in owner} for owner in claim.owners]),
        groups=_shared_requests(devices),
        constraints=_shared_constraints(devices),
        allocation=allocation,
        reported=tuple([intern(name) for name in claim.reported]),
    )


def read_template(obj: object) -> Claim:
    """The claim that a ResourceClaimTemplate stands for: its metadata, the spec it would give, no status."""
    return read_claim({"metadata": mapping(obj).get("metadata"), "spec": mapping(mapping(obj).get("spec")).get("spec")})
