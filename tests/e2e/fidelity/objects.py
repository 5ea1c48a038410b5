"""Valid slices, claims, templates and classes, drawn at random, in each served version's own form."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Object = dict[str, Any]
GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1", "v1", "v1beta1", "v1beta2")
DECLARING, SILENT = ("n1", "n2"), "n3"
"""Nodes of the cluster that declare the feature, and one that does not."""
ADMIN_NAMESPACE, PLAIN_NAMESPACE = "admins", "plain"


def draw(rng: random.Random, minor: int, kinds: tuple[str, ...] = ()) -> Object:
    """One object that an API server of the release takes."""
    kind = rng.choice(
        kinds or ("ResourceSlice",) * 4 + ("ResourceClaim",) * 3 + ("ResourceClaimTemplate", "DeviceClass")
    )
    version = rng.choice(VERSIONS)
    name = {"name": f"{kind.lower()}-{rng.randrange(10**9)}"}
    namespaced = {"name": name["name"], "namespace": rng.choice((ADMIN_NAMESPACE, PLAIN_NAMESPACE, PLAIN_NAMESPACE))}
    head: Object = {"apiVersion": f"{GROUP}/{version}", "kind": kind}
    match kind:
        case "ResourceSlice":
            return head | {"metadata": _metadata(rng) | name, "spec": _slice(rng, minor, version)}
        case "DeviceClass":
            return head | {"metadata": _metadata(rng) | name, "spec": _class(rng, minor)}
        case "ResourceClaim":
            admin = namespaced["namespace"] == ADMIN_NAMESPACE
            return head | {"metadata": _metadata(rng) | namespaced, "spec": {"devices": _devices(rng, version, admin)}}
    admin = namespaced["namespace"] == ADMIN_NAMESPACE
    spec: Object = {"spec": {"devices": _devices(rng, version, admin)}}
    if rng.random() < 0.3:
        spec["metadata"] = {"labels": {"a": "b"}, "annotations": {"example.org/x": "y"}}
    return head | {"metadata": _metadata(rng) | namespaced, "spec": spec}


def _some(rng: random.Random, chance: float, make: Callable[[], Object]) -> Object:
    return make() if rng.random() < chance else {}


def _metadata(rng: random.Random) -> Object:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u-1", "controller": True}
    return {
        **_some(rng, 0.1, lambda: {"labels": {"example.org/a": "b"}}),
        **_some(rng, 0.1, lambda: {"annotations": {"note": "some text"}}),
        **_some(rng, 0.1, lambda: {"ownerReferences": [owner]}),
        **_some(rng, 0.05, lambda: {"finalizers": ["example.org/f"]}),
    }


def _slice(rng: random.Random, minor: int, version: str) -> Object:
    shared = rng.random() < 0.12
    each = not shared and rng.random() < 0.15
    where: Object = rng.choice(
        (
            {"nodeName": rng.choice(DECLARING)},
            {"nodeName": rng.choice(DECLARING)},
            {"nodeSelector": _selector(rng)},
            {"allNodes": True},
        )
    )
    count = rng.choice((0, 1, 1, 2, 2, 3, 5))
    spec: Object = {
        "driver": rng.choice(("cpu.example.org", "gpu.example.org", "Gpu.Example.org")),
        "pool": {
            "name": rng.choice(("n1", "n1/cpu", "pool-1.example.org")),
            "generation": rng.randrange(3),
            "resourceSliceCount": rng.choice((1, 1, 2)),
        },
        **({"perDeviceNodeSelection": True} if each else where),
    }
    if shared:
        return spec | {"sharedCounters": [_counters(rng, "name", f"set-{i}") for i in range(rng.choice((1, 2)))]}
    devices = [_device(rng, minor, f"dev-{i}", each) for i in range(count)]
    if version == "v1beta1":
        devices = [{"name": d.pop("name"), "basic": d} for d in devices]
    if rng.random() < 0.03 and devices:
        plain = {"name": "", "basic": {}} if version == "v1beta1" else {"name": ""}
        devices = [{**plain, "name": f"many-{i}"} for i in range(rng.choice((64, 65, 128, 129)))]
        if each:
            for device in devices:
                device.setdefault("basic", device)["nodeName"] = "n1"
            devices = [{k: v for k, v in d.items() if v is not d} for d in devices]
    return spec | ({"devices": devices} if devices or rng.random() < 0.5 else {})


def _selector(rng: random.Random) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [rng.choice(DECLARING)]}
    label = {"key": "kubernetes.io/hostname", "operator": rng.choice(("In", "In", "NotIn")), "values": ["nowhere"]}
    if label["operator"] == "NotIn":
        label = {"key": "example.org/zone", "operator": "Exists"}
    return {"nodeSelectorTerms": [rng.choice(({"matchExpressions": [label]}, {"matchFields": [field]}))]}


def _counters(rng: random.Random, name_field: str, name: str) -> Object:
    return {
        name_field: name,
        "counters": {f"c-{i}": {"value": rng.choice(("4", "80Gi"))} for i in range(rng.choice((1, 2, 3)))},
    }


def _device(rng: random.Random, minor: int, name: str, selects: bool) -> Object:
    shared = rng.random() < 0.5
    device: Object = {"name": name}
    if rng.random() < 0.7:
        attributes: Object = {
            "numaNode": {"int": rng.randrange(2)},
            "resource.kubernetes.io/numaNode": {"int": 0},
            "model": {"string": "X100"},
            "healthy": {"bool": True},
            "firmware": {"version": "1.2.3"},
        }
        device["attributes"] = {k: v for k, v in attributes.items() if rng.random() < 0.5}
    capacity: Object = {}
    if rng.random() < 0.75:
        capacity["cores"] = {"value": rng.choice(("16", "128", "64"))}
        if shared and rng.random() < 0.7:
            capacity["cores"]["requestPolicy"] = _policy(rng)
        if rng.random() < 0.4:
            capacity["dra.example.org/memory"] = {"value": "80Gi"}
        device["capacity"] = capacity
    if shared:
        device["allowMultipleAllocations"] = True
    if rng.random() < 0.6:
        key = rng.choice(tuple(capacity)) if capacity and shared else None
        field, cost = (
            ("nodeAllocatableResourceMappings", _cost_136) if minor < 37 else ("nodeAllocatableResources", _cost_137)
        )
        names = rng.sample(("cpu", "memory", "hugepages-2Mi", "hugepages-1Gi"), rng.choice((1, 1, 2)))
        device[field] = {resource: cost(rng, key) for resource in names}
    if rng.random() < 0.12:
        device["taints"] = [
            {"key": "example.org/broken", "value": "yes", "effect": rng.choice(("NoSchedule", "NoExecute"))}
        ]
    if rng.random() < 0.12:
        device["consumesCounters"] = [_counters(rng, "counterSet", f"set-{i}") for i in range(rng.choice((1, 2)))]
    if rng.random() < 0.1:
        device |= {"bindingConditions": ["example.org/ready"], "bindingFailureConditions": ["example.org/failed"]}
        if rng.random() < 0.5:
            device["bindsToNode"] = True
    if selects:
        device |= rng.choice(({"nodeName": "n1"}, {"nodeSelector": _selector(rng)}, {"allNodes": True}))
    return device


def _policy(rng: random.Random) -> Object:
    return rng.choice(
        (
            {"default": "1"},
            {"default": "2", "validValues": ["1", "2", "4"]},
            {"default": "1", "validRange": {"min": "1"}},
            {"default": "2", "validRange": {"min": "2", "step": "2", "max": "8"}},
            {"default": "4", "validRange": {"min": "2", "max": "16"}},
            {"default": "1", "validRange": {"min": "1", "step": "1"}},
            {"default": "1", "validRange": {"min": "500m", "step": "500m", "max": "8"}},
            {"default": "1500m", "validRange": {"min": "500m", "step": "500m"}},
        )
    )


def _cost_136(rng: random.Random, key: str | None) -> Object:
    multiplier = rng.choice(("1", "2", "500m", "4Gi"))
    return (
        rng.choice(({"capacityKey": key, "allocationMultiplier": multiplier}, {"capacityKey": key}))
        if key
        else {"allocationMultiplier": multiplier}
    )


def _cost_137(rng: random.Random, key: str | None) -> Object:
    mapping = (
        {"capacityKey": key, "capacityMultiplier": rng.choice(("1", "500m"))} if key else {"deviceMultiplier": "2"}
    )
    overhead = rng.choice(({"perPod": "1Gi"}, {"perContainer": "64Mi"}, {"perPod": "0", "perContainer": "500m"}))
    return rng.choice(({"mapping": mapping}, {"overhead": overhead}, {"mapping": mapping, "overhead": overhead}))


def _devices(rng: random.Random, version: str, admin: bool) -> Object:
    requests = [_request(rng, version, f"r{i}", admin) for i in range(rng.choice((1, 1, 2, 3)))]
    if rng.random() < 0.02:
        requests = [_request(rng, version, f"r{i}", admin) for i in range(rng.choice((32, 33)))]
    devices: Object = {"requests": requests}
    if rng.random() < 0.3:
        field = rng.choice(("matchAttribute", "distinctAttribute"))
        devices["constraints"] = [{"requests": rng.choice(([], ["r0"])), field: "resource.kubernetes.io/numaNode"}]
    if rng.random() < 0.3:
        devices["config"] = [{"requests": rng.choice(([], ["r0"])), **_opaque()}]
    return devices


def _opaque() -> Object:
    return {"opaque": {"driver": "cpu.example.org", "parameters": {"kind": "Config", "a": 1}}}


def _request(rng: random.Random, version: str, name: str, admin: bool) -> Object:
    if rng.random() < 0.25:
        subs = [{"name": f"s{i}", **_asked(rng, False)} for i in range(rng.choice((1, 2, 3)))]
        return {"name": name, "firstAvailable": subs}
    asked = _asked(rng, admin)
    return {"name": name, **asked} if version == "v1beta1" else {"name": name, "exactly": asked}


def _asked(rng: random.Random, admin: bool) -> Object:
    tolerations = rng.choice(
        (
            [{"operator": "Exists"}],
            [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 3}],
        )
    )
    return {
        "deviceClassName": rng.choice(("cpu.example.org", "gpu")),
        **_some(rng, 0.4, lambda: {"selectors": [{"cel": {"expression": "device.driver == 'cpu.example.org'"}}]}),
        **_some(
            rng,
            0.5,
            lambda: rng.choice(({"allocationMode": "All"}, {"allocationMode": "ExactCount", "count": 2}, {"count": 1})),
        ),
        **_some(rng, 0.1, lambda: {"tolerations": tolerations}),
        **_some(rng, 0.2, lambda: {"capacity": {"requests": {"cores": rng.choice(("2", "500m", "4Gi"))}}}),
        **_some(rng, 0.3 if admin else 0.01, lambda: {"adminAccess": True} if admin else {}),
    }


def _class(rng: random.Random, minor: int) -> Object:
    return {
        **_some(rng, 0.8, lambda: {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.org'"}}]}),
        **_some(rng, 0.4, lambda: {"config": [_opaque()]}),
        **_some(rng, 0.4, lambda: {"extendedResourceName": "example.org/gpu"}),
    }
