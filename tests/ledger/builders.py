"""Small raw objects for the tests of accounts: one node n1, one driver, whatever a test needs on top."""

from __future__ import annotations

from typing import Any

from webhook.kube.claims import Claim
from webhook.kube.core import Pod
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build

Json = dict[str, Any]

DRIVER = "d.example"


def node(name: str = "n1", uid: str = "u1", created: str = "", **allocatable: str) -> Json:
    amounts = {key.replace("_", "-"): value for key, value in allocatable.items()} or {"cpu": "16", "memory": "64Gi"}
    metadata: Json = {"name": name, "uid": uid, "labels": {"kubernetes.io/hostname": name}}
    if created:
        metadata["creationTimestamp"] = created
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": amounts}}


def old(multiplier: str | None = "1", key: str | None = None, resource: str = "cpu") -> Json:
    """A mapping in the shape of 1.36."""
    entry: Json = {}
    if key is not None:
        entry["capacityKey"] = key
    if multiplier is not None:
        entry["allocationMultiplier"] = multiplier
    return {"nodeAllocatableResourceMappings": {resource: entry}}


def new(resource: str = "cpu", mapping: Json | None = None, overhead: Json | None = None) -> Json:
    """A mapping and an overhead in the shape of 1.37."""
    entry = {"mapping": mapping, "overhead": overhead}
    return {"nodeAllocatableResources": {resource: {name: value for name, value in entry.items() if value}}}


def device(
    name: str = "grp", *fields: Json, capacity: Json | None = None, zone: int | None = None, **more: Any
) -> Json:
    made: Json = {"name": name, **more}
    for part in fields:
        for field, value in part.items():
            made[field] = {**made.get(field, {}), **value}
    if capacity is not None:
        made["capacity"] = {key: {"value": value} for key, value in capacity.items()}
        made.setdefault("allowMultipleAllocations", True)
    if zone is not None:
        made["attributes"] = {"resource.kubernetes.io/numaNode": {"int": zone}}
    return made


def slice_of(*devices: Json, name: str = "s1", driver: str = DRIVER, pool: str = "n1", **spec: Any) -> Json:
    generation, count = spec.pop("generation", 1), spec.pop("count", 1)
    where = spec or {"nodeName": "n1"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": {
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "devices": list(devices),
            **where,
        },
    }


def result(device_name: str = "grp", consumed: Json | None = None, request: str = "r", **more: Any) -> Json:
    made: Json = {"request": request, "driver": DRIVER, "pool": "n1", "device": device_name, **more}
    if consumed is not None:
        made["consumedCapacity"] = consumed
        made.setdefault("shareID", f"share-{device_name}-{request}")
    return made


def allocated(
    name: str, *results: Json, pods: tuple[str, ...] = (), at: str = "2026-01-01T00:00:00Z", node_name: str = "n1"
) -> Json:
    allocation: Json = {"devices": {"results": list(results)}, "allocationTimestamp": at}
    if node_name:
        field = {"key": "metadata.name", "operator": "In", "values": [node_name]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": DRIVER}}]}},
        "status": {
            "allocation": allocation,
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods],
        },
    }


def container(name: str = "main", cpu: str = "", memory: str = "", claims: tuple[str, ...] = (), **more: Any) -> Json:
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    resources: Json = {"requests": requests, "claims": [{"name": claim} for claim in claims]}
    return {"name": name, "resources": resources, **more}


def pod(
    name: str = "p1",
    *containers: Json,
    claims: tuple[str, ...] = (),
    init: tuple[Json, ...] = (),
    entries: list[Json] | None = None,
    node_name: str = "n1",
    phase: str = "Running",
    **spec: Any,
) -> Json:
    """A pod; ``claims`` are ResourceClaim names, used under the same pod-local name."""
    status: Json = {"phase": phase}
    if entries is not None:
        status["nodeAllocatableResourceClaimStatuses"] = entries
    made: Json = {
        "containers": list(containers),
        "initContainers": list(init),
        "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
        **spec,
    }
    if node_name:
        made["nodeName"] = node_name
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made, "status": status}


def entry(claim: str, containers: tuple[str, ...] = ("main",), **resources: str) -> Json:
    """A pod status entry in the shape of 1.36."""
    named = {key.replace("_", "-"): value for key, value in resources.items()}
    return {"resourceClaimName": claim, "containers": list(containers), "resources": named}


def world(*objs: Json, minor: int = 36) -> Snapshot:
    return build(objs, Release(minor))


def claim_in(snapshot: Snapshot, name: str) -> Claim:
    return snapshot.claims[("ns", name)]


def pod_in(snapshot: Snapshot, name: str = "p1") -> Pod:
    return snapshot.pods[("ns", name)]
