"""Small objects for tests of the facts: the common base of a node, a slice, a claim and a pod."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from webhook.kube.claims import Claim, read_claim
from webhook.kube.core import Pod, read_pod
from webhook.kube.finding import Finding
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build

Json = dict[str, Any]

NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)
DRIVER = "d.example"
CANARY = {"example.org/canary": "yes"}
SAMPLES = Path(__file__).parent.parent / "cases" / "samples"
CLUSTER = ("01", "02", "03", "04", "05", "06", "07", "08", "12", "13", "15", "17", "18", "24")


def samples(*numbers: str) -> list[Json]:
    found: list[Json] = []
    for number in numbers:
        (path,) = SAMPLES.glob(f"{number}-*.yaml")
        found += [deepcopy(document) for document in yaml.safe_load_all(path.read_text()) if document]
    return found


def node(name: str = "n1", uid: str = "u1", labels: Json | None = None, ready: str = "True", **status: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": uid, "labels": CANARY if labels is None else labels},
        "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", "hugepages-2Mi": "4Gi"},
            "conditions": [{"type": "Ready", "status": ready}],
            **status,
        },
    }


def grp(name: str = "grp", size: str = "8", **fields: Any) -> Json:
    """A shared device whose cpu cost follows what is consumed of it."""
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "capacity": {"cpus": {"value": size}},
        "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cpus", "allocationMultiplier": "1"}},
        **fields,
    }


def gpu(name: str, mapping: Json | None = None, **fields: Any) -> Json:
    """An exclusive device."""
    device = {"name": name, **fields}
    if mapping is not None:
        device["nodeAllocatableResourceMappings"] = mapping
    return device


def slice_of(
    *devices: Json,
    name: str = "s1",
    where: str = "n1",
    driver: str = DRIVER,
    pool: str = "",
    generation: int = 1,
    count: int = 1,
    owner: str = "",
    metadata: Json | None = None,
    **spec: Any,
) -> Json:
    meta: Json = {"name": name, "uid": f"uid-{name}", **(metadata or {})}
    if owner:
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": where, "uid": owner}]
    fields: Json = {
        "driver": driver,
        "pool": {"name": pool or where, "generation": generation, "resourceSliceCount": count},
        **spec,
    }
    if where:
        fields["nodeName"] = where
    if devices:
        fields["devices"] = list(devices)
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": fields}


def result(device: str = "grp", cpus: str | None = "4", share: str = "", **fields: Any) -> Json:
    row: Json = {"request": "r", "driver": DRIVER, "pool": "n1", "device": device}
    if cpus is not None:
        row |= {"consumedCapacity": {"cpus": cpus}, "shareID": share or f"share-{device}"}
    return row | fields


def pod_ref(name: str = "p1") -> Json:
    return {"resource": "pods", "name": name, "uid": f"uid-{name}"}


def claim(
    name: str = "c1",
    results: list[Json] | None = None,
    reserved: list[Json] | None = None,
    where: str = "n1",
    stamp: str = "2026-11-20T09:00:00Z",
    requests: list[Json] | None = None,
    metadata: Json | None = None,
    **devices: Any,
) -> Json:
    """A claim of class ``d``; without ``results`` it is not allocated."""
    wanted = requests or [{"name": "r", "exactly": {"deviceClassName": "d", "count": max(1, len(results or []))}}]
    obj: Json = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}", **(metadata or {})},
        "spec": {"devices": {"requests": wanted, **devices}},
    }
    if results is not None:
        allocation: Json = {"devices": {"results": results}}
        if stamp:
            allocation["allocationTimestamp"] = stamp
        if where:
            fields = [{"key": "metadata.name", "operator": "In", "values": [where]}]
            allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": fields}]}
        obj["status"] = {"allocation": allocation, "reservedFor": reserved or []}
    return obj


def pod(
    name: str = "p1",
    claims: dict[str, str] | None = None,
    requests: Json | None = None,
    where: str = "",
    status: Json | None = None,
    metadata: Json | None = None,
    **spec: Any,
) -> Json:
    """A pod with one container that uses ``claims`` (pod-local name to claim name)."""
    claims = {"c": "c1"} if claims is None else claims
    fields: Json = {
        "containers": [
            {"name": "main", "resources": {"requests": requests or {}, "claims": [{"name": local} for local in claims]}}
        ],
        "resourceClaims": [{"name": local, "resourceClaimName": given} for local, given in claims.items()],
        **spec,
    }
    if where:
        fields["nodeName"] = where
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}", **(metadata or {})},
        "spec": fields,
        "status": status or {},
    }


def entry(name: str = "c1", containers: tuple[str, ...] = ("main",), **resources: str) -> Json:
    row = {"resourceClaimName": name, "containers": list(containers), "resources": resources}
    return {"nodeAllocatableResourceClaimStatuses": [row]}


def device_class(name: str = "d", driver: str = DRIVER, **spec: Any) -> Json:
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors, **spec},
    }


def rollout(driver: str = DRIVER, **spec: Any) -> Json:
    if spec.get("stage") in ("Canary", "Expanding"):
        spec.setdefault("canaryNodeSelector", {"matchLabels": CANARY})
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": {"name": driver},
        "spec": spec,
    }


def world(*objs: Json, minor: int = 36, gates: dict[str, bool] | None = None) -> Snapshot:
    return build(objs, Release(minor, gates or {}))


def as_claim(obj: Json) -> Claim:
    return read_claim(obj)


def as_pod(obj: Json) -> Pod:
    return read_pod(obj)


def rules(findings: list[Finding], *severities: str) -> list[str]:
    """The rules found, of the given severities (all when none is given)."""
    return [finding.rule for finding in findings if not severities or finding.severity in severities]
