"""A fleet of any size, made up: nodes, their slices of four drivers, and the reviews that are measured on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from webhook.kube.admission import raw_request

Json = dict[str, Any]
DOMAIN = "bench.example"
RESOURCE = "resource.k8s.io/v1"
CREATED = "2026-11-20T09:00:00Z"


# The number of the node with a hundred cpus and more, for the slice with a device for each.
BIG = 99_999


def name(number: int) -> str:
    return f"node-{number:05d}"


def node(number: int, cpus: str = "62") -> Json:
    amounts = {
        "cpu": cpus,
        "memory": "226492416Ki",
        "hugepages-1Gi": "16Gi",
        "ephemeral-storage": "380Gi",
        "pods": "110",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name(number),
            "uid": f"0a100001-0000-4000-8000-{number:012d}",
            "labels": {
                "kubernetes.io/hostname": name(number),
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": f"zone-{number % 3}",
                "bench.example/canary": "enabled",
            },
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"bootID": f"b0070001-0000-4000-8000-{number:012d}", "kubeletVersion": "v1.36.3"},
        },
    }


def slice_of(number: int, driver: str, devices: list[Json]) -> Json:
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {
            "name": f"00000-{driver}.{DOMAIN}-{name(number)}",
            "uid": f"51ce0001-0000-4000-8000-{number:08d}{sum(map(ord, driver)):04d}",
            "resourceVersion": "1000",
            "creationTimestamp": CREATED,
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": name(number),
                    "uid": f"0a100001-0000-4000-8000-{number:012d}",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "driver": f"{driver}.{DOMAIN}",
            "nodeName": name(number),
            "pool": {"name": name(number), "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def _numa(zone: int) -> Json:
    return {"resource.kubernetes.io/numaNode": {"int": zone}}


def _shared(device: str, zone: int, capacity: str, amount: str, resource: str) -> Json:
    key = f"{capacity.split('/')[0]}/{capacity.split('/')[1]}"
    return {
        "name": f"{device}-{zone}",
        "allowMultipleAllocations": True,
        "attributes": _numa(zone),
        "capacity": {key: {"value": amount}},
        "nodeAllocatableResourceMappings": {resource: {"capacityKey": key, "allocationMultiplier": "1"}},
    }


def slices(number: int) -> list[Json]:
    """Four slices: cpu and memory by NUMA zone, eight GPUs that cost host memory, eight NICs that cost nothing."""
    gpus = [
        {
            "name": f"gpu-{index}",
            "attributes": {**_numa(index // 4), "model": {"string": "x100"}, "uuid": {"string": f"g-{number}-{index}"}},
            "capacity": {"memory": {"value": "80Gi"}},
            "nodeAllocatableResourceMappings": {"memory": {"allocationMultiplier": "4Gi"}},
        }
        for index in range(8)
    ]
    nics = [{"name": f"nic-{index}", "attributes": {**_numa(index // 4), "speed": {"int": 200}}} for index in range(8)]
    return [
        slice_of(number, "cpu", [_shared("numa", zone, f"cpu.{DOMAIN}/cpus", "31", "cpu") for zone in (0, 1)]),
        slice_of(number, "mem", [_shared("ram", zone, f"mem.{DOMAIN}/size", "100Gi", "memory") for zone in (0, 1)]),
        slice_of(number, "gpu", gpus),
        slice_of(number, "nic", nics),
    ]


def pod(number: int, claim: str) -> Json:
    """A pod of about 3 KB as the API server has it."""
    containers = [
        {
            "name": f"worker-{index}",
            "image": f"registry.example.org/encode/worker-{index}:1.4.2",
            "args": ["--listen=:8080", "--log-level=info", f"--shard={number}"],
            "env": [{"name": f"SETTING_{each}", "value": f"value-{each}"} for each in range(6)],
            "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "claims": [{"name": "cpus"}]},
            "volumeMounts": [{"name": "cache", "mountPath": "/cache"}],
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10},
        }
        for index in range(3)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"encoder-{number}",
            "namespace": "bench",
            "uid": f"90d00001-0000-4000-8000-{number:012d}",
            "labels": {"app": "encoder", "pod-template-hash": "7f9c6d5b4"},
            "creationTimestamp": CREATED,
        },
        "spec": {
            "containers": containers,
            "resourceClaims": [{"name": "cpus", "resourceClaimName": claim}],
            "volumes": [{"name": "cache", "emptyDir": {}}],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


def claim(number: int, on: int | None = None) -> Json:
    """A claim for two cpus and one GPU; allocated and reserved on node ``on``."""
    key = f"cpu.{DOMAIN}/cpus"
    made: Json = {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"claim-{number}",
            "namespace": "bench",
            "uid": f"c1a10001-0000-4000-8000-{number:012d}",
            "resourceVersion": "5",
            "creationTimestamp": CREATED,
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "cores",
                        "exactly": {
                            "deviceClassName": f"cpu.{DOMAIN}",
                            "allocationMode": "ExactCount",
                            "count": 1,
                            "capacity": {"requests": {key: "2"}},
                        },
                    },
                    {
                        "name": "gpu",
                        "exactly": {"deviceClassName": f"gpu.{DOMAIN}", "allocationMode": "ExactCount", "count": 1},
                    },
                ]
            }
        },
    }
    if on is not None:
        result = {"driver": f"cpu.{DOMAIN}", "pool": name(on), "device": "numa-0", "request": "cores"}
        gpu = {"driver": f"gpu.{DOMAIN}", "pool": name(on), "device": f"gpu-{number % 8}", "request": "gpu"}
        share = {"shareID": f"5a7e0001-0000-4000-8000-{number:012d}", "consumedCapacity": {key: "2"}}
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name(on)]}]}
        made["status"] = {
            "allocation": {
                "allocationTimestamp": "2026-11-29T10:00:00Z",
                "devices": {"results": [{**result, **share}, gpu]},
                "nodeSelector": {"nodeSelectorTerms": [term]},
            },
            "reservedFor": [
                {"resource": "pods", "name": f"encoder-{number}", "uid": f"90d00001-0000-4000-8000-{number:012d}"}
            ],
        }
    return made


def classes() -> list[Json]:
    return [
        {
            "apiVersion": RESOURCE,
            "kind": "DeviceClass",
            "metadata": {"name": f"{driver}.{DOMAIN}"},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}.{DOMAIN}'"}}]},
        }
        for driver in ("cpu", "mem", "gpu", "nic")
    ]


def rollout() -> Json:
    return {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "DriverRollout",
        "metadata": {"name": f"cpu.{DOMAIN}"},
        "spec": {
            "stage": "Canary",
            "canaryNodeSelector": {"matchLabels": {"bench.example/canary": "enabled"}},
            "freshness": {"evidence": ["PoolComplete", "OwnerCurrent", "NodeReady"]},
        },
    }


def cluster(nodes: int) -> Iterator[Json]:
    """The objects of a fleet: nodes with four slices each; for every second one a bound claim and its pod, for the
    others a claim that waits to be allocated, and its pod.
    """
    yield from classes()
    yield rollout()
    yield node(BIG, "254")
    for number in range(nodes):
        yield node(number)
        yield from slices(number)
        bound = number % 2 == 1
        user = pod(number, f"claim-{number}")
        if bound:
            user["spec"]["nodeName"] = name(number)
        yield user
        yield claim(number, number if bound else None)


def big_slice(devices: int = 128) -> Json:
    """A slice of one device a logical CPU, about 50 KB."""
    return slice_of(
        BIG,
        "big",
        [
            {
                "name": f"lcpu-{index:03d}",
                "attributes": {
                    "cpu": {"int": index},
                    "core": {"int": index // 2},
                    "l3": {"int": index // 16},
                    "coreType": {"string": "standard"},
                    "socket": {"int": index // 64},
                    "pcieRoot": {"string": f"pci0000:{index:02x}"},
                    "version": {"version": "1.2.3"},
                    **_numa(index // 64),
                },
                "capacity": {"cache": {"value": "2Mi"}},
                "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}},
            }
            for index in range(devices)
        ],
    )


def review(operation: str, obj: Json, old: Json | None = None, sub_resource: str = "", user: str = "admin") -> Json:
    """The whole AdmissionReview of a write."""
    request = raw_request(operation, obj, old, user=user, groups=("system:authenticated",), sub_resource=sub_resource)
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def pod_review(number: int = 0) -> Json:
    return review("CREATE", pod(number, f"claim-{number}"))


def slice_review(number: int = 0) -> Json:
    """A slice of its own for each ``number``: other names of slice and devices, another generation."""
    item = big_slice()
    item["metadata"]["name"] += f"-{number:03d}"
    item["spec"]["pool"]["generation"] = number + 1
    for device in item["spec"]["devices"]:
        device["name"] = f"{device['name']}-{number:03d}"
    return review("CREATE", item, user=f"system:serviceaccount:bench:big.{DOMAIN}")


def allocation_review(number: int, on: int) -> Json:
    """The scheduler allocates claim ``number``, an even one, on node ``on`` and reserves it."""
    return review("UPDATE", claim(number, on), claim(number), "status", "system:kube-scheduler")
