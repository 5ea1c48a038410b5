"""Zones as the NodeResourceTopology of a node has them, which another program writes into a real API server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from tests.e2e.client import ApiError, Json
from tests.e2e.cluster import Cluster
from tests.e2e.guarding import deployed
from tests.e2e.kinds import path
from tests.e2e.scenes import cpu_claim, shared_cpus
from tests.e2e.waiting import eventually
from webhook.cli.program import program

GROUP, PLURAL = "topology.node.k8s.io", "noderesourcetopologies"


def listed(required: list[str], **properties: Json) -> Json:
    """The schema of a list of objects."""
    return {"type": "array", "items": {"type": "object", "required": required, "properties": properties}}


def definition() -> Json:
    """The definition of v1alpha2, the fields and their types as those who publish topologies install it."""
    text, amount = {"type": "string"}, {"x-kubernetes-int-or-string": True}
    attributes = listed(["name", "value"], name=text, value=text)
    resources = listed(
        ["name", "capacity", "allocatable", "available"],
        name=text,
        capacity=amount,
        allocatable=amount,
        available=amount,
    )
    costs = listed(["name", "value"], name=text, value={"type": "integer", "format": "int64"})
    zone = {"name": text, "type": text, "parent": text, "costs": costs, "attributes": attributes}
    zones = listed(["name", "type"], **zone, resources=resources)
    properties = {"topologyPolicies": {"type": "array", "items": text}, "zones": zones, "attributes": attributes}
    schema = {"type": "object", "required": ["zones"], "properties": properties}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{PLURAL}.{GROUP}",
            # Groups below k8s.io are asked for it.
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
        },
        "spec": {
            "group": GROUP,
            "names": {"kind": "NodeResourceTopology", "plural": PLURAL, "shortNames": ["node-res-topo"]},
            "scope": "Cluster",
            "versions": [
                {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }


def zone(number: int, cpus: int | str) -> Json:
    """A NUMA zone with ``cpus`` allocatable, one more than that in all, and none available: others took them."""
    amounts = {"capacity": f"{int(cpus) + 1}", "allocatable": cpus, "available": "0"}
    costs = [{"name": f"node-{each}", "value": 10 if each == number else 21} for each in (0, 1)]
    return {"name": f"node-{number}", "type": "Node", "costs": costs, "resources": [{"name": "cpu", **amounts}]}


def topology(node: str, *cpus: int | str) -> Json:
    """What is told of ``node``, whose zones have these; the socket around them is no zone."""
    socket = {"name": "socket-0", "type": "Socket", "resources": zone(0, "99")["resources"]}
    return {
        "apiVersion": f"{GROUP}/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
        "zones": [socket, *({**zone(number, each), "parent": "socket-0"} for number, each in enumerate(cpus))],
    }


def cpus(zones: list[Json]) -> dict[int, tuple[str, str]]:
    """How many cpu each zone holds, and how many are free there."""
    found = {each["zone"]: each["resources"]["cpu"] for each in zones}
    return {number: (amount["capacity"], amount["free"]) for number, amount in found.items()}


@pytest.fixture
def served(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster whose API server has the kind while the test runs: others are told that there is none."""
    admin = cluster.as_admin
    admin.create(path("CustomResourceDefinition"), definition())
    try:
        eventually(lambda: admin.find(path("NodeResourceTopology")))
        yield cluster
    finally:
        admin.delete(path("CustomResourceDefinition", f"{PLURAL}.{GROUP}"))
        eventually(lambda: GROUP not in {each["name"] for each in admin.get("/apis")["groups"]})


def test_zones_follow_the_topology_of_the_node(served: Cluster) -> None:
    """What is allocatable there counts, in ledgers and in decisions, as long as there is one; then what the driver
    describes does again.
    """
    cluster, admin = served, served.as_admin
    driver = shared_cpus(cluster, devices=2)
    node = driver.node
    where = path("NodeResourceTopology", node)
    admin.create(path("NodeResourceTopology"), topology(node, 6, "10"), fieldValidation="Strict")
    guard = deployed(cluster)
    kubeconfig = str(cluster.plane.kubeconfig("admin", "system:masters"))

    def shown() -> dict[int, tuple[str, str]]:
        asked = ["ledger", "show", "--node", node, "-o", "json", "--kubeconfig", kubeconfig]
        result = CliRunner(catch_exceptions=False).invoke(program, asked)
        [row] = json.loads(result.stdout)["nodes"]
        return cpus(row["zones"])

    def written(expected: dict[int, tuple[str, str]]) -> bool:
        return eventually(lambda: cpus(admin.get(path("NodeLedger", node))["status"].get("zones", [])) == expected)

    cpu_claim(cluster, "c0", 4)
    cluster.allocate("c0", driver, "group-0", cpus="4")
    written({0: ("6", "2"), 1: ("10", "10")})
    assert shown() == {0: ("6", "2"), 1: ("10", "10")}
    # The device has one more left than the zone.
    cpu_claim(cluster, "c1", 3)
    with pytest.raises(ApiError, match=r"zone-overcommit: .* has cpu 3 .* needs at most 2"):
        cluster.allocate("c1", driver, "group-0", cpus="3")

    admin.update(where, {**admin.get(where), "zones": topology(node, "7", 9)["zones"]}, fieldValidation="Strict")
    assert shown() == {0: ("7", "3"), 1: ("9", "9")}
    eventually(lambda: cluster.allocate("c1", driver, "group-0", cpus="3"))
    written({0: ("7", "0"), 1: ("9", "9")})

    admin.delete(where)
    assert shown() == {0: ("8", "1"), 1: ("8", "8")}
    # With a change of what is charged the sums are written at once.
    cluster.delete("ResourceClaim", "c1")
    written({0: ("8", "4"), 1: ("8", "8")})
    assert re.search(r"^\[\+\]view of NodeResourceTopology ok, seen", guard.get("/readyz?verbose").text, re.MULTILINE)
