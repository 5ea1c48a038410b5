"""Clusters in which one thing changes, and by that the account of a node or what does not agree with it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.ledger.booked import reserved
from tests.ledger.builders import (
    DRIVER,
    allocated,
    container,
    device,
    entry,
    new,
    node,
    old,
    pod,
    result,
    slice_of,
    world,
)
from tests.server.pool_changes import RACK, Case, Change, at, booked, case, gone, held, put, rollout, shared
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot

Json = dict[str, Any]


def overhead(*devices: Json, **spec: Any) -> Json:
    each = new("cpu", {"capacityMultiplier": "1", "capacityKey": "cpus"}, {"perPod": "250m"})
    return slice_of(*devices, device("grp", each, capacity={"cpus": "8"}), **spec)


def topology(amount: str) -> Json:
    zone = {"name": "node-1", "type": "Node", "resources": [{"name": "cpu", "allocatable": amount}]}
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    return {**kind, "metadata": {"name": "n1"}, "zones": [zone]}


def user(name: str = "p1", *claims: str, cpu: str = "", **more: Any) -> Json:
    return pod(name, container(claims=claims, cpu=cpu), claims=claims, **more)


def on_its_way(name: str = "p1", *claims: str, to: str = "", **more: Any) -> Json:
    made = user(name, *claims, node_name="", phase="Pending", **more)
    if to:
        made["status"]["nominatedNodeName"] = to
    return made


def with_reservation(snapshot: Snapshot) -> Snapshot:
    """n1's ledger has c reserved for p1, and nobody has seen it yet."""
    made = booked(snapshot.put(held("c", "4", pods=("p1",))))
    return snapshot.with_ledger(replace(made, charges=(), reservations=(reserved(made.charges[0]),)))


def unallocated(name: str = "c") -> Json:
    made = held(name)
    made["status"] = {}
    return made


def reserved_to(uid: str, name: str, claim: Json) -> Json:
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": name, "uid": uid}]
    return claim


def reserving(*objs: Json, then: Change | Json) -> Case:
    made = case(*objs, then=then)
    return Case(with_reservation(made.before), made.change)


def owing(*objs: Json, then: Change | Json) -> Case:
    """n1's ledger has what the objects give."""
    made = case(*objs, then=then)
    return Case(made.before.with_ledger(booked(made.before)), made.change)


NODES: dict[str, Case] = {
    "it has more": case(node(), shared(), then=node(cpu="32")),
    "it comes": case(shared(), then=node()),
    "it goes": case(node(), shared(), then=gone(node())),
    "it is made again": case(
        node(created="2025-01-01T00:00:00Z"),
        shared(),
        held(),
        then=node(uid="u2", created="2026-06-01T00:00:00Z"),
    ),
    "its zones are told": case(node(), slice_of(device("gpu", old("1"), zone=1)), then=topology("7")),
    "its device costs more": case(node(), shared(), held(), then=shared("2")),
    "its slice goes": case(node(), shared(), held(), then=gone(shared())),
    "another node has the device of a claim that names none": case(
        node(), shared(), held(node_name=""), then=shared(name="s2", nodeName="n2")
    ),
    "a pod comes": case(node(), shared(), then=user(cpu="2")),
    "a pod asks for more": case(node(), shared(), user(cpu="2"), then=user(cpu="3")),
    "a pod ends": case(node(), shared(), user(cpu="2"), then=user(cpu="2", phase="Succeeded")),
    "a pod goes": case(node(), shared(), user(cpu="2"), then=gone(user())),
    "a claim is allocated": case(node(), shared(), then=held()),
    "a claim takes more": case(node(), shared(), held(cpus="2"), then=held(cpus="3")),
    "a claim is allocated that names no node": case(node(), shared(), then=held(node_name="")),
    "a claim that names no node takes more": case(
        node(), shared(), held(node_name=""), then=held(cpus="3", node_name="")
    ),
    "the claim of a pod's entry is known": case(
        node(), shared(), pod("p1", container(), entries=[entry("c", cpu="2")]), then=unallocated()
    ),
    "a slice of its pool that is of all nodes": case(
        node(),
        shared(),
        slice_of(device("far", old("1")), name="s2", allNodes=True),
        allocated("c", result("far")),
        then=slice_of(device("far", old("2")), name="s2", allNodes=True),
    ),
    "labels of another node": case(
        node(),
        node("n2", "u2"),
        shared(pool="net", **RACK),
        allocated("c", result(consumed={"cpus": "2"}, pool="net"), pods=("p1",), node_name="n2"),
        user("p1", "c"),
        shared(name="mine"),
        then=at(node("n2", "u2"), labels={"rack": "a"}),
    ),
    "devices of a pool of no node": case(
        node(),
        shared(name="mine"),
        shared(pool="net", name="net", allNodes=True),
        allocated("c", result(consumed={"cpus": "2"}, pool="net"), pods=("p1",), node_name=""),
        user("p1", "c"),
        then=shared("3", pool="net", name="net", allNodes=True),
    ),
    "a pod is nominated": case(
        node(),
        shared(name="mine"),
        shared(pool="net", name="net", allNodes=True),
        allocated("c", result(consumed={"cpus": "2"}, pool="net"), pods=("p1",), node_name=""),
        on_its_way("p1", "c"),
        then=on_its_way("p1", "c", to="n1"),
    ),
    "another claim of a pod on its way": case(
        node(),
        overhead(),
        overhead(pool="net", name="net", allNodes=True),
        held("a", pods=("p1",)),
        on_its_way("p1", "a", "b"),
        then=allocated("b", result(consumed={"cpus": "2"}, pool="net"), pods=("p1",), node_name=""),
        minor=37,
    ),
    "devices of another claim of a pod on its way": case(
        node(),
        overhead(),
        overhead(pool="net", name="net", allNodes=True),
        held("a", pods=("p1",)),
        on_its_way("p1", "a", "b"),
        allocated("b", result(consumed={"cpus": "2"}, pool="net"), pods=("p1",), node_name=""),
        then=gone(overhead(pool="net", name="net", allNodes=True)),
        minor=37,
    ),
    "another claim has its UID": case(node(), shared(), allocated("c"), then=at(allocated("b"), uid="uid-c")),
    "an exclusive device is taken twice": case(
        node(),
        shared(),
        slice_of(device("gpu", old("4")), name="net", pool="net", allNodes=True),
        allocated("c", result("gpu", pool="net"), at="2026-01-02T00:00:00Z"),
        then=allocated("b", result("gpu", pool="net"), at="2026-01-01T00:00:00Z", node_name="n2"),
    ),
    "a claim's pod on its way goes": case(
        node(), shared(), held(pods=("p1",)), on_its_way("p1", "c", cpu="1"), then=gone(on_its_way())
    ),
    "a claim's pod on its way asks for more": case(
        node(), shared(), held(pods=("p1",)), on_its_way("p1", "c", cpu="3"), then=on_its_way("p1", "c", cpu="4")
    ),
    "a claim's pod that is known by its name alone asks for more": case(
        node(),
        shared(),
        held(pods=("p1",)),
        at(on_its_way("p1", "c", cpu="3"), uid=""),
        then=at(on_its_way("p1", "c", cpu="4"), uid=""),
    ),
    "a claim's pod that is known by its UID alone asks for more": case(
        node(),
        shared(),
        reserved_to("uid-p1", "another", held()),
        on_its_way("p1", "c", cpu="3"),
        then=on_its_way("p1", "c", cpu="4"),
    ),
    "its ledger books": case(
        node(), shared("2"), held(), then=lambda known: known.with_ledger(booked(known.put(shared("1"))))
    ),
    "its ledger holds": case(node(), shared(), unallocated(), then=with_reservation),
    "what is reserved is allocated": reserving(node(), shared(), unallocated(), then=held("c", "4", pods=("p1",))),
    "what is reserved is of a pod that is bound elsewhere": reserving(
        node(), node("n2", "u2"), shared(), unallocated(), then=user("p1", "c", node_name="n2")
    ),
    "what is booked is released": owing(node(), shared(), held(), then=at(unallocated(), resourceVersion="90")),
    "what is booked is allocated elsewhere": owing(
        node(),
        node("n2", "u2"),
        shared(),
        at(held(), resourceVersion="20"),
        then=at(held(node_name="n2"), resourceVersion="30"),
    ),
    "what is booked and not seen is released": Case(
        world(node(), shared()).with_ledger(booked(world(node(), shared(), at(held(), resourceVersion="20")))),
        put(at(unallocated(), resourceVersion="90")),
    ),
    "what is booked is gone": owing(node(), shared(), held(), then=gone(held())),
    "the rollout names another attribute for zones": case(
        node(),
        slice_of(device("grp", old("1"), attributes={"socket": {"int": 0}})),
        allocated("c", result()),
        then={**rollout(), "spec": {"numaAttributes": [f"{DRIVER}/socket"]}},
    ),
    "the release tells drivers apart": case(
        node(),
        shared(),
        shared("5", name="s2", driver="e.example"),
        held(),
        then=lambda known: replace(known, release=Release(37)),
    ),
}
