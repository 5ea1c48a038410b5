"""Clusters in which one thing changes, and by that the phase or the age of a pool."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from immutables import Map
from msgspec import Struct
from msgspec.structs import replace

from tests.ledger.builders import DRIVER, allocated, container, device, entry, node, old, pod, result, slice_of, world
from webhook.kube.node_ledger import NodeLedger
from webhook.kube.snapshot import Snapshot
from webhook.ledger.booking import advance

Json = dict[str, Any]
Change = Callable[[Snapshot], Snapshot]
NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
CREATED = "2026-11-21T08:00:00Z"
RACK: dict[str, Any] = {
    "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "Exists"}]}]}
}


class Case(Struct, frozen=True):
    """What happens to ``before``, in ``seconds``."""

    before: Snapshot
    change: Change
    seconds: float = 0.0


def case(*objs: Json, then: Change | Json | None = None, seconds: float = 0.0, minor: int = 36) -> Case:
    """``then`` is what happens, an object that is written, or nothing at all."""
    change = then if callable(then) else put(then) if then is not None else lambda snapshot: snapshot
    return Case(world(*objs, minor=minor), change, seconds)


def put(obj: Json) -> Change:
    return lambda snapshot: snapshot.put(obj)


def gone(obj: Json) -> Change:
    return lambda snapshot: snapshot.remove(obj)


def booked(snapshot: Snapshot, name: str = "n1") -> NodeLedger:
    return advance(None, snapshot, name)


def rollout(*evidence: str, driver: str = DRIVER, **freshness: Any) -> Json:
    spec = {"freshness": {"evidence": ["PoolComplete", *evidence], **freshness}}
    kind = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout"}
    return {**kind, "metadata": {"name": driver}, "spec": spec}


def at(node_: Json, **metadata: Any) -> Json:
    return {**node_, "metadata": {**node_["metadata"], **metadata}}


def ready(obj: Json, status: str = "True") -> Json:
    return {**obj, "status": {**obj["status"], "conditions": [{"type": "Ready", "status": status}]}}


def owned(item: Json, name: str, uid: str) -> Json:
    return at(item, ownerReferences=[{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}])


def shared(multiplier: str = "1", **spec: Any) -> Json:
    """The slice of n1: a device of 8 cpus that claims share."""
    return slice_of(device("grp", old(multiplier, "cpus"), capacity={"cpus": "8"}, zone=1), **spec)


def held(name: str = "c", cpus: str = "2", **more: Any) -> Json:
    return allocated(name, result(consumed={"cpus": cpus}), **more)


def driver_pod(**labels: str) -> Json:
    made = at(pod("driver", container()), namespace="drivers", labels=labels)
    return ready(made)


PLACE = {"namespace": "drivers", "selector": {"app": "d"}}


def without_costs(driver: str = DRIVER, **where: Any) -> list[Json]:
    """A claim on n1 that a pod's status books, though neither of its devices costs anything: one of the pool of n1, one
    of another pool, which is ``where``.
    """
    other = result("port", pool="other", driver=driver)
    return [
        slice_of(device("grp", old("1")), device("nic")),
        allocated("c", result("nic"), other, pods=("p1",)),
        pod("p1", container(claims=("c",)), claims=("c",), entries=[entry("c", cpu="2")]),
        slice_of(device("port"), name="other", pool="other", driver=driver, **where),
    ]


POOLS: dict[str, Case] = {
    "its slice is published anew": case(node(), shared(), then=shared(generation=2, count=2)),
    "its slice is written later": case(node(), at(shared(), creationTimestamp=CREATED), then=shared()),
    "its slice on another node goes": case(
        node(),
        node("n2", "u2"),
        shared(count=2),
        shared(name="s2", nodeName="n2", count=2),
        then=gone(shared(name="s2")),
    ),
    "another slice makes the driver one with costs": case(
        node(),
        node("n2", "u2"),
        slice_of(device("nic")),
        then=shared(name="s2", pool="n2", nodeName="n2"),
    ),
    "a claim holds a device that is gone": case(
        node(), shared(), then=allocated("c", result("gone"), pods=("p1",), node_name="n1")
    ),
    "the claim that holds it is released": case(
        node(), shared(), held("c", "20", pods=("p1",)), then=gone(held("c", pods=("p1",)))
    ),
    "a claim takes more than there is": case(node(), shared(), held(), then=held(cpus="20")),
    "another pool of its driver goes": case(node(), *without_costs(), then=gone(without_costs()[-1])),
    "a pool of another driver goes": case(
        node(), *without_costs("e.example"), then=gone(without_costs("e.example")[-1])
    ),
    "the pod of its claim ends": case(node(), *without_costs(), then=gone(pod())),
    "the pod of its claim is booked": case(
        node(), *without_costs(), then=pod("p1", container(claims=("c",)), claims=("c",), entries=[])
    ),
    "labels say that another pool is there": case(
        node(), *without_costs(**RACK), then=at(node(), labels={"rack": "a"})
    ),
    "its node is not ready": case(ready(node()), shared(), rollout("NodeReady"), then=ready(node(), "False")),
    "its node is made again": case(node(), owned(shared(), "n1", "u1"), rollout("OwnerCurrent"), then=node(uid="u2")),
    "the node that owns it goes": case(
        node(),
        node("n2", "u2"),
        owned(shared(), "n2", "u2"),
        rollout("OwnerCurrent"),
        then=gone(node("n2")),
    ),
    "its driver's pod comes": case(
        node(), shared(), rollout("DriverPodReady", driverPods=PLACE), then=driver_pod(app="d")
    ),
    "its driver's pod is not ready": case(
        node(),
        shared(),
        rollout("DriverPodReady", driverPods=PLACE),
        driver_pod(app="d"),
        then=ready(driver_pod(app="d"), "False"),
    ),
    "its driver's pod goes": case(
        node(),
        shared(),
        rollout("DriverPodReady", driverPods=PLACE),
        driver_pod(app="d"),
        then=gone(driver_pod()),
    ),
    "its driver's pod is another's": case(
        node(),
        shared(),
        rollout("DriverPodReady", driverPods=PLACE),
        driver_pod(app="d"),
        then=driver_pod(app="e"),
    ),
    "another mapping is booked": case(
        node(),
        shared("2"),
        held(pods=("p1",)),
        then=lambda snapshot: snapshot.with_ledger(booked(snapshot.put(shared("1")))),
    ),
    "the rollout asks for more": case(node(), shared(), rollout(), then=rollout("NodeReady")),
    "the rollout asks for a heartbeat": case(node(), shared(), rollout(), then=rollout(heartbeat="30s")),
    "there is no rollout any more": case(node(), shared(), rollout("NodeReady"), then=gone(rollout())),
    "a heartbeat is late": case(
        node(),
        at(shared(), creationTimestamp="2026-11-21T08:59:50Z"),
        rollout(heartbeat="30s"),
        seconds=60.0,
    ),
    "the view is behind": Case(replace(world(node(), shared()), seen=Map({"Pod": NOW})), lambda known: known, 120.0),
    "the view is seen again": Case(
        replace(world(node(), shared()), seen=Map({"Pod": NOW - timedelta(seconds=120)})),
        lambda known: replace(known, seen=Map({"Pod": NOW})),
    ),
    "the rollout has a wider window": Case(
        replace(world(node(), shared(), rollout()), seen=Map({"Pod": NOW - timedelta(seconds=120)})),
        put(rollout(window="300s")),
    ),
    "a slice of no one node is there for a claim's ledger": case(
        node(),
        shared("2", pool="net", allNodes=True),
        allocated("c", result(consumed={"cpus": "2"}, pool="net"), pods=("p1",)),
        then=lambda snapshot: snapshot.with_ledger(booked(snapshot.put(shared("1", pool="net", allNodes=True)))),
    ),
}
