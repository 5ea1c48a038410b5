"""Random nodes, devices, claims and pods for the real scheduler, in the words of one release."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.e2e.fidelity.objects import Object

DRIVER = "{}.fidelity.example.org"
PAGE = 2 * 1024 * 1024
# Amounts by resource: whole, broken, in several spellings, some finer than what node fit counts.
COSTS = {
    "cpu": ("1", "2", "500m", "333m", "100u", "1.5", "0.25", "1001m", "1e-1"),
    "memory": ("1Gi", "512Mi", "100M", "1.5Gi", "1000001", "1e6", "333m"),
    "hugepages-2Mi": ("2Mi", "4Mi", "64Mi"),
    "ephemeral-storage": ("1Gi", "1G"),
}
PER_CORE = {"cpu": ("1", "500m", "333m", "2", "1u"), "memory": ("256Mi", "100M", "1.001"), "hugepages-2Mi": ("2Mi",)}
PER_BYTE = {"memory": ("1", "2", "500m", "1.001")}
POLICIES: Sequence[Object] = (
    {},
    {"requestPolicy": {"default": "1"}},
    {"requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}},
    {"requestPolicy": {"default": "2", "validRange": {"min": "2", "step": "2", "max": "8"}}},
    {"requestPolicy": {"default": "2", "validValues": ["1", "2", "4"]}},
    {"requestPolicy": {"default": "500m", "validRange": {"min": "500m", "step": "500m"}}},
    {"requestPolicy": {"default": "1500m", "validRange": {"min": "250m"}}},
)
KINDS = ("whole", "shared", "bytes", "plain", "extra")


class Workload:
    """One round: what it makes has ``tag`` in its name, so that rounds do not meet."""

    def __init__(self, rng: random.Random, minor: int, tag: str, namespace: str) -> None:
        self._rng, self._minor, self.tag, self.namespace = rng, minor, tag, namespace
        self.driver = DRIVER.format(tag)
        self.shareable: list[str] = []

    def node(self, number: int) -> Object:
        """A node with room for some of the pods."""
        amounts = {
            "cpu": self._rng.choice(("16", "15500m", "24")),
            "memory": self._rng.choice(("64Gi", "63999Mi", "48G")),
            "hugepages-2Mi": "1Gi",
            "ephemeral-storage": "100Gi",
            "pods": "110",
        }
        name = f"{self.tag}-n{number}"
        labels = {"kubernetes.io/hostname": name, "fidelity": self.tag}
        declared = {"declaredFeatures": ["DRANodeAllocatableResources"]} if self._minor >= 37 else {}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": amounts, "capacity": amounts, **declared},
        }

    def slice(self, node: str) -> Object:
        """The devices of a node: some of each kind, their costs drawn for each."""
        devices = [
            self._device(kind, f"{kind}-{number}") for kind in KINDS for number in range(self._rng.choice((1, 2, 3)))
        ]
        self._rng.shuffle(devices)
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-devices"},
            "spec": {
                "driver": self.driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": devices,
            },
        }

    def _device(self, kind: str, name: str) -> Object:
        device: Object = {"name": name, "attributes": {"kind": {"string": kind}}}
        match kind:
            case "whole":
                device |= self._costs(COSTS, None)
            case "shared":
                capacity = {"cores": {"value": self._rng.choice(("8", "12")), **self._rng.choice(POLICIES)}}
                if self._rng.random() < 0.3:
                    capacity[f"{self.driver}/slots"] = {"value": "4", **POLICIES[1]}
                device |= {"allowMultipleAllocations": True, "capacity": capacity, **self._costs(PER_CORE, "cores")}
            case "bytes":
                capacity = {"ram": {"value": "16Gi"}}
                device |= {"allowMultipleAllocations": True, "capacity": capacity, **self._costs(PER_BYTE, "ram")}
            case "extra" if self._minor >= 37:
                cost = {"overhead": self._overhead("memory")}
                device |= {"allowMultipleAllocations": True, "nodeAllocatableResources": {"memory": cost}}
        return device

    def _costs(self, table: dict[str, tuple[str, ...]], key: str | None) -> Object:
        allowed = [name for name in table if self._minor < 37 or name != "ephemeral-storage"]
        names = self._rng.sample(allowed, min(len(allowed), self._rng.choice((1, 1, 2))))
        if self._minor < 37:
            return {"nodeAllocatableResourceMappings": {name: self._mapping(table, name, key) for name in names}}
        costs: Object = {}
        for name in names:
            amount = self._rng.choice(table[name])
            mapping = {"capacityKey": key, "capacityMultiplier": amount} if key else {"deviceMultiplier": amount}
            costs[name] = {"mapping": mapping}
            if self._rng.random() < 0.4:
                costs[name]["overhead"] = self._overhead(name)
        return {"nodeAllocatableResources": costs}

    def _mapping(self, table: dict[str, tuple[str, ...]], name: str, key: str | None) -> Object:
        amount = self._rng.choice(table[name])
        if key is None:
            return {"allocationMultiplier": amount}
        return (
            {"capacityKey": key, "allocationMultiplier": amount} if self._rng.random() < 0.8 else {"capacityKey": key}
        )

    def _overhead(self, resource: str) -> Object:
        small = {"cpu": ("100m", "33m", "1u"), "memory": ("64Mi", "100k", "1.5"), "hugepages-2Mi": ("2Mi",)}[resource]
        both = {"perPod": self._rng.choice(small), "perContainer": self._rng.choice(small)}
        return self._rng.choice((both, {"perPod": both["perPod"]}, {"perContainer": both["perContainer"]}))

    def classes(self) -> list[Object]:
        """A class for each kind of device."""
        found = []
        for kind in KINDS:
            expression = f"device.driver == '{self.driver}' && device.attributes['{self.driver}'].kind == '{kind}'"
            found.append(
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "DeviceClass",
                    "metadata": {"name": f"{self.tag}-{kind}"},
                    "spec": {"selectors": [{"cel": {"expression": expression}}]},
                }
            )
        return found

    def claim(self, name: str) -> Object:
        """A claim of one or two requests."""
        requests = [self._request(f"r{number}") for number in range(self._rng.choice((1, 1, 2)))]
        if {request.get("exactly", {}).get("deviceClassName") for request in requests} <= self._free():
            self.shareable.append(name)
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"devices": {"requests": requests}},
        }

    def _free(self) -> set[str]:
        """Classes of devices that several pods may use at once: they cost nothing, or in 1.37 overhead only."""
        return {f"{self.tag}-plain", f"{self.tag}-extra"}

    def _request(self, name: str) -> Object:
        if self._rng.random() < 0.12:
            kinds = self._rng.sample(KINDS, 2)
            return {"name": name, "firstAvailable": [{"name": f"s{i}", **self._asked(k)} for i, k in enumerate(kinds)]}
        asked = self._asked(self._rng.choice(("whole", "shared", "shared", "shared", "bytes", "plain", "extra")))
        if self._rng.random() < 0.05:
            asked["adminAccess"] = True
        return {"name": name, "exactly": asked}

    def _asked(self, kind: str) -> Object:
        asked: Object = {"deviceClassName": f"{self.tag}-{kind}"}
        if kind == "shared":
            amounts = {"cores": self._rng.choice(("1", "2", "500m", "1500m", "100m"))}
            if self._rng.random() < 0.85:
                asked["capacity"] = {"requests": amounts}
        elif kind == "bytes":
            asked["capacity"] = {"requests": {"ram": self._rng.choice(("1Gi", "512Mi", "1.5Gi", "1000001"))}}
        elif kind == "whole" and self._rng.random() < 0.2:
            asked["count"] = 2
        return asked

    def pod(self, name: str, claims: Sequence[str], runtime_class: str) -> Object:
        """A pod that uses ``claims`` in some of its containers."""
        rng = self._rng
        local = [f"c{number}" for number in range(len(claims))]
        containers = [self._container(f"main-{number}") for number in range(rng.choice((1, 1, 2, 3)))]
        inits = [self._container(f"init-{number}") for number in range(rng.choice((0, 0, 0, 1, 2)))]
        for init in inits:
            if rng.random() < 0.5:
                init["restartPolicy"] = "Always"
        everyone = containers + inits
        for each in local:
            # Now and then nobody: 1.36 refuses such a pod, 1.37 counts its claim.
            count = 0 if rng.random() < 0.03 else rng.choice((1, 1, 1, 2, len(everyone)))
            for container in rng.sample(everyone, min(count, len(everyone))):
                container["resources"].setdefault("claims", []).append({"name": each})
        spec: dict[str, Any] = {
            "containers": containers,
            "nodeSelector": {"fidelity": self.tag},
            "resourceClaims": [{"name": a, "resourceClaimName": b} for a, b in zip(local, claims, strict=True)],
            "terminationGracePeriodSeconds": 0,
        }
        if inits:
            spec["initContainers"] = inits
        if rng.random() < 0.2:
            spec["runtimeClassName"] = runtime_class
        if rng.random() < 0.2:
            # Large enough for the containers, but not always for the claims.
            budget = {"cpu": rng.choice(("5", "6500m")), "memory": "8Gi"}
            chosen = rng.sample(sorted(budget), rng.choice((1, 2)))
            spec["resources"] = {"requests": {key: budget[key] for key in chosen}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": spec,
        }

    def _container(self, name: str) -> Object:
        amounts = {
            "cpu": self._rng.choice(("100m", "250m", "1", "333m", "0", "0.1")),
            "memory": self._rng.choice(("64Mi", "1Gi", "100M", "1000001")),
        }
        chosen = {key: amount for key, amount in amounts.items() if self._rng.random() < 0.5}
        resources: Object = {"requests": chosen}
        if self._rng.random() < 0.05:
            resources = {"requests": {**chosen, "hugepages-2Mi": "2Mi"}, "limits": {"hugepages-2Mi": "2Mi"}}
            resources["requests"].setdefault("memory", "64Mi")
        return {"name": name, "image": "registry.invalid/pause:1", "resources": resources}

    def filler(self, name: str, node: str, amounts: dict[str, str]) -> Object:
        """A pod for ``node`` alone that asks for exactly ``amounts``."""
        pages = {key: amount for key, amount in amounts.items() if key.startswith("hugepages-")}
        # Pages alone are no valid request; this little memory is asked for besides, where none is.
        requests = {"memory": "0", **amounts} if pages else amounts
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.invalid/pause:1",
                        "resources": {"requests": requests, **({"limits": pages} if pages else {})},
                    }
                ],
                "nodeSelector": {"kubernetes.io/hostname": node},
                "terminationGracePeriodSeconds": 0,
            },
        }
