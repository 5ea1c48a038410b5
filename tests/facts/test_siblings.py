"""Claims of one pod, judged together at the first allocation write on 1.36."""

import pytest

from tests.facts.builders import (
    NOW,
    as_claim,
    claim,
    device_class,
    gpu,
    grp,
    node,
    pod,
    pod_ref,
    result,
    rollout,
    rules,
    slice_of,
    world,
)
from webhook.facts.siblings import sibling_problems
from webhook.ledger.book import Book

FIRST = claim("c1", results=[result(cpus="4")], reserved=[pod_ref()])
HOLD = {"reason": "repair", "by": "x", "since": "2026-11-20T09:00:00Z"}
MEMORY = {"memory": {"allocationMultiplier": "8Gi"}}
BASE = (node(), slice_of(grp()), device_class())
DEAR = (gpu("a", MEMORY),)


def ask(cpus, cls="d"):
    return [{"name": "r", "exactly": {"deviceClassName": cls, "capacity": {"requests": {"cpus": cpus}}}}]


def second(cpus="2", cls="d", name="c2", **fields):
    return claim(name, requests=fields.pop("requests", None) or ask(cpus, cls), **fields)


def two(**fields):
    return pod(claims={"a": "c1", "b": "c2"}, **fields)


def judge(*objs, write=FIRST, minor=36, base=BASE):
    snapshot = world(*base, *objs, minor=minor)
    return sibling_problems(as_claim(write), snapshot, Book().account(snapshot, "n1"), NOW)


def test_a_sibling_that_fits_what_is_left():
    assert judge(two(), second("4")) == []


def test_a_sibling_that_the_device_has_no_room_for_once_the_first_is_charged():
    (problem,) = judge(two(), second("5"))
    assert (problem.rule, problem.severity) == ("sibling-not-possible", "error")
    assert problem.path == "status.reservedFor[0]"
    assert "c2" in problem.has
    assert "device-overcommit" in problem.has
    assert judge(two(), second("5"), minor=37) == []


def test_a_sibling_that_the_node_has_no_room_for():
    wide = (node(), slice_of(grp("grp", "64"), grp("big", "64")), device_class())
    assert judge(two(), second("4"), base=wide) == []
    assert rules(judge(two(requests={"cpu": "1"}), second("4"), base=wide)) == ["sibling-not-possible"]


def test_the_first_write_counts_once_whatever_the_snapshot_already_shows():
    for stored in (claim("c1"), FIRST):
        assert judge(two(), second("4"), stored) == []
        assert rules(judge(two(), second("5"), stored)) == ["sibling-not-possible"]


def other_driver(*told, devices=DEAR, **fields):
    return (
        node(),
        slice_of(grp()),
        device_class(),
        device_class("e", "e.example"),
        slice_of(*devices, name="e", driver="e.example", **fields),
        *told,
    )


PLAIN = [{"name": "r", "exactly": {"deviceClassName": "e"}}]


@pytest.mark.parametrize(
    ("told", "rule"),
    [
        (rollout("e.example", hold=HOLD), "driver-held"),
        (rollout("e.example", stage="Off"), "stage-off"),
        (rollout("e.example", stage="Canary", canaryNodeSelector={"matchLabels": {"no": "such"}}), "node-not-canary"),
    ],
)
def test_a_sibling_of_a_driver_that_takes_no_claims(told, rule):
    (problem,) = judge(two(), second(requests=PLAIN), base=other_driver(told))
    assert problem.rule == "sibling-not-possible"
    assert rule in problem.has
    assert judge(two(), second(requests=PLAIN), base=other_driver()) == []


def test_a_sibling_of_a_driver_that_is_rebuilding():
    (problem,) = judge(two(), second(requests=PLAIN), base=other_driver(count=2))
    assert "pool-incomplete" in problem.has


def test_an_alternative_that_could_serve_the_sibling_is_enough():
    choice = {"name": "r", "firstAvailable": [{"name": n, "deviceClassName": n} for n in ("e", "d")]}
    choice["firstAvailable"][1]["capacity"] = {"requests": {"cpus": "1"}}
    base = other_driver(rollout("e.example", hold=HOLD))
    assert judge(two(), second(requests=[choice]), base=base) == []


def test_siblings_that_fit_each_alone_and_not_together():
    three = pod(claims={"a": "c1", "b": "c2", "c": "c3"})
    assert judge(three, second("2"), second("2", name="c3")) == []
    (problem,) = judge(three, second("3"), second("3", name="c3"))
    assert "c2 and c3" in problem.has


def test_siblings_without_costs_are_the_schedulers_business():
    base = other_driver(devices=(gpu("a"),))
    assert (
        judge(two(), second(requests=[{"name": "r", "exactly": {"deviceClassName": "e", "count": 9}}]), base=base) == []
    )


def test_allocated_siblings_and_claims_of_other_pods_are_not_judged():
    done = claim("c2", results=[result(cpus="1", share="x")], reserved=[pod_ref()])
    assert judge(two(), done) == []
    assert judge(pod(claims={"a": "c1"}), second("5")) == []
    assert judge(second("5")) == []


def test_nothing_is_said_of_an_unknown_node_or_a_cleared_allocation():
    snapshot = world(two(), second("5"))
    assert sibling_problems(as_claim(FIRST), snapshot, None, NOW) == []
    assert judge(two(), second("5"), write=claim("c1")) == []


def test_a_sibling_whose_zone_has_no_room_once_the_first_is_charged():
    numa = {"resource.kubernetes.io/numaNode": {"int": 0}}
    zones = [{"name": f"node-{i}", "type": "Node", "resources": [{"name": "cpu", "allocatable": "4"}]} for i in (0, 1)]
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "zones": zones,
    }
    base = (node(), slice_of(grp(attributes=numa), grp("far", attributes=numa)), device_class(), topology)
    write = claim("c1", results=[result(cpus="3")], reserved=[pod_ref()])
    assert judge(two(), second("1"), write=write, base=base) == []
    (problem,) = judge(two(), second("2"), write=write, base=base)
    assert "zone" in problem.has
