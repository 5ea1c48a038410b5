"""Claims and pods drawn at random, placed by the real scheduler: what it wrote into their status, and what it then
thinks is free on each node, against our footprints and our ledger.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from tests.e2e.fidelity import size
from tests.e2e.fidelity.conftest import Scheduling
from tests.e2e.fidelity.objects import Object
from tests.e2e.fidelity.workload import PAGE, Workload
from tests.e2e.kinds import path
from tests.e2e.waiting import eventually
from webhook.facts.fit import node_rows
from webhook.facts.footprint import footprint
from webhook.facts.pods import pod_claims
from webhook.facts.podstatus import status_problems
from webhook.kube.claims import read_claim
from webhook.kube.quantity import Number, canonical
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book

PODS, PODS_A_ROUND, NODES_A_ROUND = 200, 40, 5
RUNTIME_CLASS = "fidelity"
UNITS: dict[str, Number] = {"cpu": Fraction(1, 1000), "memory": 1, "hugepages-2Mi": PAGE}
# What a pod says that will be tried again: what it waits for is on its way.
_NOT_YET = re.compile(r"not created yet|not found|waiting")


class Round:
    """One set of nodes with its pods: placed, compared, probed, and removed."""

    def __init__(self, scheduling: Scheduling, number: int) -> None:
        self.scheduling, self.admin = scheduling, scheduling.client
        rng = size.source("footprints", scheduling.release, number)
        self.rng = rng
        self.workload = Workload(rng, scheduling.minor, f"r{number}", scheduling.namespace)
        self.nodes: list[str] = []
        self.problems: list[str] = []
        self.bound = self.refused = self.entries = 0

    def path(self, kind: str, name: str = "", sub: str = "") -> str:
        return path(kind, name, self.scheduling.namespace, sub)

    def run(self) -> None:
        for number in range(NODES_A_ROUND):
            node = self.workload.node(number)
            self.admin.create(path("Node"), node)
            self.admin.patch(path("Node", node["metadata"]["name"]), {"spec": {"taints": None}})
            self.admin.create(path("ResourceSlice"), self.workload.slice(node["metadata"]["name"]))
            self.nodes.append(node["metadata"]["name"])
        for each in self.workload.classes():
            self.admin.create(path("DeviceClass"), each)
        self.place()
        snapshot = self.snapshot()
        self.compare(snapshot)
        self.probe(snapshot)
        self.remove()

    def place(self) -> None:
        """Make the pods, wait until the scheduler has decided about each, and remove those that it refused."""
        for number in range(PODS_A_ROUND):
            names = [f"{self.workload.tag}-c{number}-{k}" for k in range(self.rng.choice((1, 1, 1, 2)))]
            for name in names:
                self.admin.create(self.path("ResourceClaim"), self.workload.claim(name))
            others = [name for name in self.workload.shareable if name not in names]
            if others and self.rng.random() < 0.2:
                names.append(self.rng.choice(others))
            pod = self.workload.pod(f"{self.workload.tag}-p{number}", names, RUNTIME_CLASS)
            self.admin.create(self.path("Pod"), pod)
        pods = eventually(self.decided, within=90)
        for pod in pods:
            if not pod["spec"].get("nodeName"):
                self.refused += 1
                self.admin.gone(self.path("Pod", pod["metadata"]["name"]), gracePeriodSeconds="0")

    def decided(self) -> list[Object] | None:
        pods = self.admin.items(self.path("Pod"))
        return pods if all(pod["spec"].get("nodeName") or refusal(pod) for pod in pods) else None

    def snapshot(self) -> Snapshot:
        """The cluster as it is once nothing is pending any more."""
        eventually(lambda: all(pod["spec"].get("nodeName") for pod in self.admin.items(self.path("Pod"))))
        found = Snapshot(release=Release(self.scheduling.minor))
        for kind, version in (
            ("Node", "v1"),
            ("ResourceSlice", "resource.k8s.io/v1"),
            ("DeviceClass", "resource.k8s.io/v1"),
            ("ResourceClaim", "resource.k8s.io/v1"),
            ("Pod", "v1"),
        ):
            at = self.path(kind) if kind in ("ResourceClaim", "Pod") else path(kind)
            for item in self.admin.items(at):
                found = found.put({"apiVersion": version, "kind": kind, **item})
        return found

    def compare(self, snapshot: Snapshot) -> None:
        """The entries that the scheduler wrote, and each node's page of the ledger."""
        for pod in snapshot.pods.values():
            self.bound += 1
            self.entries += len(pod.entries)
            written = {entry.claim: (entry.amounts, entry.per_pod, entry.per_container) for entry in pod.entries}
            due = {}
            for _, claim in pod_claims(pod, snapshot):
                cost = footprint(claim, snapshot)
                if not cost.complete:
                    self.problems.append(f"pod {pod.name}: {[problem.message for problem in cost.problems]}")
                # An entry has no room for less than a nano.
                rows = (cost.amounts, cost.per_pod, cost.per_container)
                if any(rows):
                    due[claim.name] = tuple({key: nano(amount) for key, amount in row.items()} for row in rows)
            if written != due:
                self.problems.append(f"pod {pod.name} has {written}, our footprint is {due}: {self.told(pod.name)}")
            self.problems += [
                f"pod {pod.name}: {f.message}" for f in status_problems(pod, None, snapshot, snapshot.release)
            ]
        book = Book()
        for node in self.nodes:
            self.problems += [f"{node}: {d.finding.message}" for d in book.differences(snapshot, node)]

    def told(self, name: str) -> str:
        pod = self.admin.get(self.path("Pod", name))
        return json.dumps(pod["status"].get("nodeAllocatableResourceClaimStatuses"))

    def probe(self, snapshot: Snapshot) -> None:
        """A pod as large as what we say is free fits its node, and one that is the least bit larger does not."""
        book = Book()
        free: dict[str, dict[str, Number]] = {}
        for node in self.nodes:
            account = book.account(snapshot, node)
            assert account is not None
            free[node] = {}
            for resource, unit in UNITS.items():
                amount = account.resources[resource].free // unit * unit
                free[node][resource] = amount
                fits = [row.fits for add in (0, unit) for row in node_rows(account, {}, {resource: amount + add})]
                if fits != [True, False] and amount > 0:
                    self.problems.append(f"{node}: {resource}: {amount} is free, and our fit says {fits}")
        larger = {
            f"{node}-{resource.lower()}-over": (node, {resource: canonical(amounts[resource] + unit)})
            for node, amounts in free.items()
            for resource, unit in UNITS.items()
        }
        exact = {
            f"{node}-full": (node, {key: canonical(amount) for key, amount in amounts.items() if amount > 0})
            for node, amounts in free.items()
        }
        for fillers, fit in ((larger, False), (exact, True)):
            for name, (node, amounts) in fillers.items():
                self.admin.create(self.path("Pod"), self.workload.filler(name, node, amounts))
            eventually(self.decided)
            for name, (node, amounts) in fillers.items():
                pod = self.admin.get(self.path("Pod", name))
                if bool(pod["spec"].get("nodeName")) is not fit:
                    has = "is placed" if not fit else f"is refused ({refusal(pod)})"
                    self.problems.append(f"{node}: a pod of {amounts} {has}; we say {free[node]} is free")
                if not fit:
                    self.admin.gone(self.path("Pod", name), gracePeriodSeconds="0")

    def remove(self) -> None:
        for collection in (self.path("Pod"), self.path("ResourceClaim")):
            self.admin.delete(collection, gracePeriodSeconds="0")
        for kind in ("ResourceSlice", "Node", "DeviceClass"):
            self.admin.delete(path(kind))
        eventually(lambda: not self.admin.items(self.path("ResourceClaim")), within=60)


def nano(amount: Number) -> Number:
    """``amount`` as a quantity is stored: rounded up to nano."""
    stored = Fraction(-(-amount * 10**9 // 1), 10**9)
    return int(stored) if stored.denominator == 1 else stored


def refusal(pod: Object) -> str:
    """Why the scheduler does not place the pod; empty as long as it has not said so for good."""
    conditions: list[dict[str, Any]] = pod["status"].get("conditions", [])
    for condition in conditions:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message: str = condition.get("message", "")
            return "" if _NOT_YET.search(message) else message or condition.get("reason", "refused")
    return ""


@pytest.fixture(scope="module", autouse=True)
def runtime_class(scheduling: Scheduling) -> None:
    """What gives a pod its overhead."""
    overhead = {"podFixed": {"cpu": "250m", "memory": "33Mi"}}
    body = {"metadata": {"name": RUNTIME_CLASS}, "handler": "x", "overhead": overhead}
    scheduling.client.create("/apis/node.k8s.io/v1/runtimeclasses", body)


def test_status_and_ledger_are_those_of_the_scheduler(
    scheduling: Scheduling, record_property: Callable[[str, object], None]
) -> None:
    """Every pod that the scheduler places has the entries that our footprints say, and every node is as full as our
    ledger says: filler pods that fit exactly are placed, those that are larger by a millicore, a byte, or a page not.
    """
    wanted = PODS * size.FACTOR
    bound = refused = entries = number = 0
    problems: list[str] = []
    while bound < wanted and len(problems) < 20:
        made = Round(scheduling, number)
        made.run()
        number += 1
        bound, refused, entries = bound + made.bound, refused + made.refused, entries + made.entries
        problems += [f"round {number - 1}: {problem}" for problem in made.problems]
    counts = f"{bound} pods placed with {entries} entries, {refused} refused, {number} rounds"
    text = f"footprints, {scheduling.release}: {counts}"
    record_property("fidelity", json.dumps({"text": text}))
    assert not problems, "\n".join([size.repeat("footprints"), *problems])
    assert entries > bound // 2


def test_a_product_finer_than_a_billionth_loses_its_unit(scheduling: Scheduling) -> None:
    """500m of a capacity times 1n is written as 500 by both releases: an allocation that we refuse."""
    client, space = scheduling.client, scheduling.namespace
    workload = Workload(size.source("fine"), scheduling.minor, "fine", space)
    node = workload.node(0)
    name = node["metadata"]["name"]
    published = workload.slice(name)
    (kept, *_) = [each for each in published["spec"]["devices"] if each["name"].startswith("shared")]
    for field in ("nodeAllocatableResourceMappings", "nodeAllocatableResources"):
        kept.pop(field, None)
    cost: Object = {"capacityKey": "cores", "allocationMultiplier": "1n"}
    kept["capacity"] = {"cores": {"value": "8"}}
    if scheduling.minor < 37:
        kept["nodeAllocatableResourceMappings"] = {"cpu": cost}
    else:
        cost = {"capacityKey": "cores", "capacityMultiplier": "1n"}
        kept["nodeAllocatableResources"] = {"cpu": {"mapping": cost}}
    published["spec"]["devices"] = [kept]
    client.create(path("Node"), node)
    client.patch(path("Node", name), {"spec": {"taints": None}})
    client.create(path("ResourceSlice"), published)
    for each in workload.classes():
        client.create(path("DeviceClass"), each)
    exactly = {"deviceClassName": "fine-shared", "capacity": {"requests": {"cores": "500m"}}}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    client.create(path("ResourceClaim", namespace=space), {"metadata": {"name": "fine"}, "spec": spec})
    pod = workload.filler("fine", name, {"cpu": "1m"})
    pod["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "fine"}]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "c"}]
    client.create(path("Pod", namespace=space), pod)
    placed = eventually(lambda: bound(client.get(path("Pod", "fine", space))))
    (entry,) = placed["status"]["nodeAllocatableResourceClaimStatuses"]
    written = entry["resources"]["cpu"] if scheduling.minor < 37 else entry["mapping"][0]["quantity"]
    claim = client.get(path("ResourceClaim", "fine", space))
    snapshot = Snapshot(release=Release(scheduling.minor))
    for item, kind in ((node, "Node"), (client.get(path("ResourceSlice", f"{name}-devices")), "ResourceSlice")):
        snapshot = snapshot.put({**item, "kind": kind, "apiVersion": item.get("apiVersion", "v1")})
    cost_of = footprint(read_claim({**claim, "kind": "ResourceClaim"}), snapshot)
    for at in (path("Pod", namespace=space), path("ResourceClaim", namespace=space)):
        client.delete(at, gracePeriodSeconds="0")
    for kind in ("ResourceSlice", "Node", "DeviceClass"):
        client.delete(path(kind))
    assert (written, [problem.rule for problem in cost_of.problems]) == ("500", ["product-too-fine"])


def bound(pod: Object) -> Object | None:
    return pod if pod["spec"].get("nodeName") else None
