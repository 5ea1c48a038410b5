"""A cluster that writes its own history: what an API server would have said of a few nodes, one event a write."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.ledger.builders import DRIVER, allocated, container, device, entry, new, node, old, pod, result, slice_of
from webhook.ledger.events import Event, event_of

Json = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)
# An attribute of the devices that has the other zone, for who believes it.
SAYS = "other.example/zone"


class History:
    """Objects by kind and name; every write gets the next resourceVersion, and a second later than the one before.

    ``minor`` is the release whose way of writing mappings and entries is used.
    """

    def __init__(self, minor: int = 36) -> None:
        self.minor = minor
        self.version = 100
        self.events: list[Event] = []
        self.objects: dict[tuple[str, str], Json] = {}
        self.made = 0

    @property
    def now(self) -> str:
        return self._at().strftime("%Y-%m-%dT%H:%M:%SZ")

    def _at(self) -> datetime:
        return START + timedelta(seconds=self.version)

    def put(self, obj: Json) -> Json:
        """Create or update; an object that is new gets a UID of its own."""
        obj = copy.deepcopy(obj)
        self.version += 1
        key, metadata = (obj["kind"], obj["metadata"]["name"]), obj["metadata"]
        before = self.objects.get(key)
        if before is None:
            self.made += 1
            metadata["uid"] = f"{metadata['name']}-{self.made}"
            metadata["creationTimestamp"] = self.now
        else:
            metadata.update({name: before["metadata"][name] for name in ("uid", "creationTimestamp")})
        metadata["resourceVersion"] = str(self.version)
        self.objects[key] = obj
        self.events.append(event_of(copy.deepcopy(obj), self._at()))
        return obj

    def delete(self, kind: str, name: str) -> None:
        obj = self.objects.pop((kind, name))
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.events.append(event_of(copy.deepcopy(obj), self._at(), gone=True))

    def has(self, kind: str, name: str) -> bool:
        return (kind, name) in self.objects

    def get(self, kind: str, name: str) -> Json:
        return copy.deepcopy(self.objects[kind, name])

    def node(self, name: str = "n1", boot: str = "boot-1", **allocatable: str) -> None:
        made = node(name, **allocatable)
        made["status"]["nodeInfo"] = {"bootID": boot}
        self.put(made)

    def slice(self, multiplier: str | None = "1", name: str = "s1", node_name: str = "n1", generation: int = 1) -> None:
        """Two zones of the node, each a shared device; without a multiplier they cost nothing."""
        mapping = old(multiplier, "cpus")
        if self.minor > 36:
            mapping = new("cpu", {"capacityKey": "cpus", "capacityMultiplier": multiplier})
        devices = [
            device(f"zone{zone}", *([mapping] if multiplier else []), capacity={"cpus": "8"}, zone=zone)
            for zone in (0, 1)
        ]
        for zone, made in enumerate(devices):
            made["attributes"][SAYS] = {"int": 1 - zone}
        self.put(slice_of(*devices, name=name, pool=node_name, nodeName=node_name, generation=generation))

    def rollout(self, *attributes: str) -> None:
        """An entry for the driver, by which ``attributes`` tell the zones of its devices."""
        made: Json = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout", "metadata": {"name": DRIVER}}
        self.put({**made, "spec": {"stage": "General", "numaAttributes": list(attributes)}})

    def claim(self, name: str = "c") -> None:
        made = allocated(name)
        made["status"] = {}
        self.put(made)

    def allocate(
        self, name: str = "c", *zones: tuple[int, str], pod_name: str = "", node_name: str = "n1", named: bool = True
    ) -> None:
        """Allocate (zone, cpus), and reserve the claim for the pod; ``named``: the allocation tells its node."""
        made = self.get("ResourceClaim", name)
        results = [
            result(f"zone{zone}", {"cpus": cpus}, f"r{index}", pool=node_name, shareID=f"share-{self.version}-{index}")
            for index, (zone, cpus) in enumerate(zones or ((0, "2"),))
        ]
        made["status"] = allocated(name, *results, at=self.now, node_name=node_name if named else "")["status"]
        if pod_name:
            self.reserve(made, pod_name)
        self.put(made)

    def reserve(self, claim: Json, pod_name: str) -> None:
        uid = self.objects["Pod", pod_name]["metadata"]["uid"] if self.has("Pod", pod_name) else "gone"
        claim["status"]["reservedFor"] = [{"resource": "pods", "name": pod_name, "uid": uid}]

    def deallocate(self, name: str = "c") -> None:
        made = self.get("ResourceClaim", name)
        made["status"] = {}
        self.put(made)

    def pod(self, name: str = "p1", claim: str = "c", cpu: str = "1") -> None:
        self.put(pod(name, container(cpu=cpu, claims=(claim,)), claims=(claim,), node_name="", phase="Pending"))

    def bind(self, name: str = "p1", node_name: str = "n1", **booked: str) -> None:
        """The pod on its node, with an entry that the scheduler wrote for its claim where there is one."""
        made = self.get("Pod", name)
        made["spec"]["nodeName"] = node_name
        if booked:
            claim = made["spec"]["resourceClaims"][0]["resourceClaimName"]
            row = entry(claim, **booked)
            if self.minor > 36:
                row["mapping"] = [{"name": name, "quantity": amount} for name, amount in row.pop("resources").items()]
            made["status"]["nodeAllocatableResourceClaimStatuses"] = [row]
        self.put(made)

    def leave(self, name: str = "c") -> None:
        """Nobody uses the claim any more, which stays allocated."""
        made = self.get("ResourceClaim", name)
        made["status"]["reservedFor"] = []
        self.put(made)

    def end(self, name: str = "p1") -> None:
        made = self.get("Pod", name)
        made["status"]["phase"] = "Succeeded"
        self.put(made)
