"""Pods, nodes and node topologies, trimmed to what the facts read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from webhook.kube.quantity import Number, try_parse
from webhook.kube.raw import Json, mapping, members, objects, sequence, text
from webhook.kube.resource import Entry, read_entries
from webhook.kube.sharing import by_content, shared

_NOTHING: Json = {}

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a pod that a kubelet runs from a file: the API server only shows it."""

GATE = "allocguard.dev/claims"
"""The scheduling gate of pods whose claims have to wait."""


def amounts(raw: object) -> dict[str, Number]:
    """A raw resource list as exact numbers in base units; unreadable quantities are left out."""
    found: dict[str, Number] = {}
    if not isinstance(raw, dict):
        return found
    for name, given in raw.items():
        amount = try_parse(given)
        if amount is not None:
            found[str(name)] = amount
    return found


# A struct is made in a fraction of the time of a frozen dataclass, and reading pods is most of judging them.
class Container(Struct, frozen=True, gc=False):
    """A container or init container. ``claims`` holds (pod-local claim name, request or empty)."""

    name: str
    requests: Mapping[str, Number]
    limits: Mapping[str, Number]
    claims: tuple[tuple[str, str], ...]
    sidecar: bool


class PodClaim(Struct, frozen=True, gc=False):
    """One entry of ``spec.resourceClaims``: a claim named directly, or a template."""

    name: str
    claim_name: str
    template_name: str


class Pod(Struct, frozen=True, gc=False):
    """A pod. ``pod_requests``/``pod_limits`` are the pod-level resources (None where there are none),
    ``claim_names`` maps pod-local claim names to ResourceClaim names where they are known,
    ``resize`` are container requests of a resize in flight (status.allocatedResources or status resources), ``held``
    what the pod-level requests are by the pod's status, with the pod's own overhead, and ``infeasible`` says that the
    kubelet has refused the resize (condition PodResizePending).
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Json
    owners: tuple[Json, ...]
    node: str
    nominated: str
    phase: str
    deleting: bool
    scheduler: str
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    overhead: Mapping[str, Number]
    pod_requests: Mapping[str, Number] | None
    pod_limits: Mapping[str, Number] | None
    claims: tuple[PodClaim, ...]
    claim_names: Mapping[str, str]
    entries: tuple[Entry, ...]
    gates: tuple[str, ...]
    extended_claim: str
    started: str
    resize: Mapping[str, Mapping[str, Number]]
    held: Mapping[str, Number]
    infeasible: bool
    ready: bool
    created: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended: the scheduler counts nothing for it any more."""
        return self.phase in ("Succeeded", "Failed")

    def users(self, local_name: str) -> tuple[str, ...]:
        """Names of the init and regular containers that use the claim ``local_name``, in spec order, once each."""
        return tuple(
            [
                container.name
                for container in (*self.init_containers, *self.containers)
                if any(name == local_name for name, _ in container.claims)
            ]
        )


@dataclass(frozen=True, slots=True)
class Node:
    """A node. ``ready`` is None where no Ready condition is known."""

    name: str
    uid: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, Number]
    capacity: Mapping[str, Number]
    ready: bool | None
    declared: frozenset[str]
    kubelet: str
    boot_id: str
    created: str
    deleting: bool


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """A NodeResourceTopology (topology.node.k8s.io): capacity by NUMA zone and resource, base units."""

    node: str
    zones: Mapping[int, Mapping[str, Number]]


def _strings(raw: object) -> dict[str, str]:
    return {str(name): value for name, value in mapping(raw).items() if isinstance(value, str)}


def _container(raw: Json, init: bool) -> Container:
    resources = mapping(raw.get("resources"))
    requests, limits = amounts(resources.get("requests")), amounts(resources.get("limits"))
    # A stored object has requests defaulted from limits; a file may not.
    for name, amount in limits.items():
        requests.setdefault(name, amount)
    uses = members(resources.get("claims"))
    return Container(
        text(raw.get("name")),
        requests,
        limits,
        tuple([(text(use.get("name")), text(use.get("request"))) for use in uses]) if uses else (),
        init and raw.get("restartPolicy") == "Always",
    )


def _costing(raw: Json) -> Json:
    """What is read of a container, without the rest that makes every one of them different."""
    return {name: raw[name] for name in ("name", "resources", "restartPolicy") if name in raw}


def _containers(rows: Any) -> tuple[Container, ...]:
    """The containers of [raw container, whether it is an init container]."""
    return tuple([_container(raw, init) for raw, init in rows])


def _held(status: Json) -> dict[str, Number]:
    """What a container, or a pod, holds by its status: the larger of what is allocated and what is in force."""
    held = amounts(status.get("allocatedResources"))
    for resource, amount in amounts(mapping(status.get("resources")).get("requests")).items():
        held[resource] = max(amount, held.get(resource, amount))
    return held


def _resize(rows: Any) -> Mapping[str, Mapping[str, Number]]:
    """What containers hold, by their raw statuses."""
    return {text(row.get("name")): held for row in rows if (held := _held(row))} or _NOTHING


_shared_containers, _shared_resize, _shared_amounts = by_content(_containers), by_content(_resize), by_content(amounts)


def stored_pod(obj: object) -> Pod:
    """The model of a v1 Pod as snapshots keep it: without annotations and owners, which nobody asks a snapshot for, and
    sharing with others what is equal.
    """
    pod = _pod(obj, shares=True)
    return replace(
        pod,
        namespace=intern(pod.namespace),
        labels=shared(pod.labels),
        annotations=_NOTHING,
        owners=(),
        node=intern(pod.node),
        phase=intern(pod.phase),
        scheduler=intern(pod.scheduler),
        started=intern(pod.started),
        created=intern(pod.created),
    )


def read_pod(obj: object) -> Pod:
    """The model of a v1 Pod; fields of a wrong type count as absent (the schema tells)."""
    return _pod(obj, shares=False)


def _pod(obj: object, shares: bool) -> Pod:
    metadata = mapping(mapping(obj).get("metadata"))
    spec = mapping(mapping(obj).get("spec"))
    status = mapping(mapping(obj).get("status"))
    claims = tuple(
        [
            PodClaim(text(c.get("name")), text(c.get("resourceClaimName")), text(c.get("resourceClaimTemplateName")))
            for c in members(spec.get("resourceClaims"))
        ]
    )
    # Only claims made from templates have a status entry; a claim named directly joins by the spec.
    names = {c.name: c.claim_name for c in claims if c.claim_name}
    for row in members(status.get("resourceClaimStatuses")):
        names.setdefault(text(row.get("name")), text(row.get("resourceClaimName")))
    pod_level = mapping(spec.get("resources"))
    limits = amounts(pod_level.get("limits")) if isinstance(pod_level.get("limits"), dict) else None
    requests = amounts(pod_level.get("requests")) if isinstance(pod_level.get("requests"), dict) else None
    if limits:
        requests = {**limits, **(requests or {})}
    holding = [
        {name: row[name] for name in ("name", "allocatedResources", "resources") if name in row}
        for member in ("containerStatuses", "initContainerStatuses")
        for row in members(status.get(member))
        if "allocatedResources" in row or "resources" in row
    ]
    # Since 1.36 a kubelet tells it of every pod; of one without pod-level requests it is no more than a sum.
    held = {name: amount for name, amount in _held(status).items() if name in requests} if requests else {}
    conditions = {text(c.get("type")): c for c in members(status.get("conditions"))}
    make = _shared_containers if shares else _containers
    return Pod(
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        labels=_strings(metadata.get("labels")),
        annotations=mapping(metadata.get("annotations")),
        owners=tuple(members(metadata.get("ownerReferences"))),
        node=text(spec.get("nodeName")),
        nominated=text(status.get("nominatedNodeName")),
        phase=text(status.get("phase")),
        deleting=metadata.get("deletionTimestamp") is not None,
        scheduler=text(spec.get("schedulerName")),
        containers=make([[_costing(c), False] for c in members(spec.get("containers"))]),
        init_containers=make([[_costing(c), True] for c in members(spec.get("initContainers"))]),
        overhead=amounts(spec.get("overhead")) or _NOTHING,
        pod_requests=requests,
        pod_limits=limits,
        claims=claims,
        claim_names={local: name for local, name in names.items() if name} or _NOTHING,
        entries=read_entries(status),
        gates=tuple([text(gate.get("name")) for gate in members(spec.get("schedulingGates"))]),
        extended_claim=text(mapping(status.get("extendedResourceClaimStatus")).get("resourceClaimName")),
        started=text(status.get("startTime")),
        resize=(_shared_resize if shares else _resize)(holding) if holding else _NOTHING,
        held=(shared(held) if shares else held) or _NOTHING,
        infeasible=mapping(conditions.get("PodResizePending")).get("reason") == "Infeasible",
        ready=mapping(conditions.get("Ready")).get("status") == "True",
        created=text(metadata.get("creationTimestamp")),
    )


def stored_node(obj: object) -> Node:
    """The model of a v1 Node as snapshots keep it: sharing with others what is equal."""
    return _node(obj, _shared_amounts)


def read_node(obj: object) -> Node:
    """The model of a v1 Node."""
    return _node(obj, amounts)


def _node(obj: object, amounts: Callable[[object], Mapping[str, Number]]) -> Node:
    metadata = mapping(mapping(obj).get("metadata"))
    status = mapping(mapping(obj).get("status"))
    info = mapping(status.get("nodeInfo"))
    ready = next((c.get("status") for _, c in objects(status.get("conditions")) if c.get("type") == "Ready"), None)
    return Node(
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        labels=_strings(metadata.get("labels")),
        allocatable=amounts(status.get("allocatable")),
        capacity=amounts(status.get("capacity")),
        ready=None if ready is None else ready == "True",
        declared=frozenset(f for f in sequence(status.get("declaredFeatures")) if isinstance(f, str)),
        kubelet=text(info.get("kubeletVersion")),
        boot_id=text(info.get("bootID")),
        created=text(metadata.get("creationTimestamp")),
        deleting=metadata.get("deletionTimestamp") is not None,
    )


def read_topology(obj: object) -> NodeTopology:
    """The model of a NodeResourceTopology: its zones of type ``Node`` called ``node-N``."""
    zones: dict[int, dict[str, Number]] = {}
    for _, zone in objects(mapping(obj).get("zones")):
        name = text(zone.get("name")).removeprefix("node-")
        if zone.get("type") != "Node" or not (name.isascii() and name.isdigit()):
            continue
        capacity = zones.setdefault(int(name), {})
        for _, row in objects(zone.get("resources")):
            amount = try_parse(row.get("allocatable", row.get("capacity")))
            if amount is not None:
                capacity[text(row.get("name"))] = amount
    return NodeTopology(text(mapping(mapping(obj).get("metadata")).get("name")), zones)
