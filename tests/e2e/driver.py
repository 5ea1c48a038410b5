"""A DRA driver on one node, as far as the control plane sees it: an identity and its ResourceSlices."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.e2e.client import ApiError, Client, Json
from tests.e2e.kinds import path

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster


def role_rules(driver: str) -> list[Json]:
    """What a driver on a node needs, and no more."""
    return [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["get", "update", "patch"]},
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims/driver"],
            "resourceNames": [driver],
            "verbs": ["associated-node:update", "associated-node:patch"],
        },
        {
            "apiGroups": ["resource.k8s.io"],
            "resources": ["resourceslices"],
            "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
        },
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    ]


def per(capacity_key: str, multiplier: str = "1") -> tuple[str | None, str]:
    """A cost for every unit that a claim takes of the device's capacity ``capacity_key``."""
    return capacity_key, multiplier


def each(amount: str) -> tuple[str | None, str]:
    """A cost of ``amount`` for the device, whatever is taken of it."""
    return None, amount


def mappings(minor: int, costs: dict[str, tuple[str | None, str]]) -> Json:
    """The fields of a device that say ``costs`` (resource → ``per(…)`` or ``each(…)``) in the release's own words."""
    if minor < 37:
        return {
            "nodeAllocatableResourceMappings": {
                resource: {**({"capacityKey": key} if key else {}), "allocationMultiplier": multiplier}
                for resource, (key, multiplier) in costs.items()
            }
        }
    return {
        "nodeAllocatableResources": {
            resource: {
                "mapping": {"capacityKey": key, "capacityMultiplier": multiplier}
                if key
                else {"deviceMultiplier": multiplier}
            }
            for resource, (key, multiplier) in costs.items()
        }
    }


class Driver:
    """The driver ``name`` on ``node``: ``client`` acts as its ServiceAccount with a token bound to that node."""

    def __init__(self, cluster: Cluster, name: str, node: str, client: Client, account: str) -> None:
        self._cluster, self.name, self.node, self.client, self.account = cluster, name, node, client, account

    @property
    def user(self) -> str:
        """Its user name."""
        return f"system:serviceaccount:{self._cluster.ns}:{self.account}"

    def device(
        self,
        name: str,
        capacity: dict[str, str] | None = None,
        costs: dict[str, tuple[str | None, str]] | None = None,
        zone: int | None = None,
        **more: object,
    ) -> Json:
        """A device. With ``capacity`` (name → amount) it is shared, by any amount of that; names are qualified by the
        driver. ``more`` are fields of the device.
        """
        device: Json = {"name": name}
        if zone is not None:
            device["attributes"] = {"resource.kubernetes.io/numaNode": {"int": zone}}
        if capacity:
            device["allowMultipleAllocations"] = True
            device["capacity"] = {self.key(each): {"value": amount} for each, amount in capacity.items()}
        if costs:
            named = {resource: (self.key(key) if key else None, times) for resource, (key, times) in costs.items()}
            device |= mappings(self._cluster.minor, named)
        return {**device, **more}

    def key(self, capacity: str) -> str:
        """The qualified name of a capacity."""
        return capacity if "/" in capacity else f"{self.name}/{capacity}"

    def slice(self, devices: list[Json], pool: str = "", generation: int = 1, count: int = 1, index: int = 0) -> Json:
        """The ResourceSlice with ``devices``; ``index`` tells the slices of one pool apart."""
        pool = pool or self.node
        name = f"{self.name}-{pool}-{index}".replace("/", "-")
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {
                "driver": self.name,
                "nodeName": self.node,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
                "devices": devices,
            },
        }

    def publish(self, devices: list[Json], pool: str = "", generation: int = 1, count: int = 1, index: int = 0) -> Json:
        """Create the slice with ``devices``, or put them into the one that is there."""
        wanted = self.slice(devices, pool, generation, count, index)
        # Admission of 1.37 looks at a node that may be newer than what it knows.
        end = time.monotonic() + 2
        while True:
            try:
                return self._write(wanted)
            except ApiError as error:
                if "does not support DRANodeAllocatableResources" not in error.message or time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def _write(self, wanted: Json) -> Json:
        name = wanted["metadata"]["name"]
        there = self.client.find(path("ResourceSlice", name))
        if there is None:
            return self.client.create(path("ResourceSlice"), wanted)
        return self.client.update(path("ResourceSlice", name), {**there, "spec": wanted["spec"]})

    def withdraw(self, pool: str = "", index: int = 0) -> None:
        """Delete the slice."""
        self.client.gone(path("ResourceSlice", self.slice([], pool, index=index)["metadata"]["name"]))
