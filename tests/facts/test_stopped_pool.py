"""Which pools take no new claims, whatever node these are for: those that every allocation in would be refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.facts.builders import (
    CANARY,
    DRIVER,
    NOW,
    as_claim,
    claim,
    gpu,
    grp,
    node,
    pod_ref,
    result,
    rollout,
    slice_of,
    world,
)
from webhook.facts.pool_survey import Reason
from webhook.facts.pools import allocation_pool_problems
from webhook.facts.rollout import allocation_rollout_problems
from webhook.facts.stopped_pool import stopped_pool
from webhook.kube.snapshot import Snapshot

Json = dict[str, Any]

SHARED = grp()


def two_nodes(*objs: Json, second: Json = SHARED, labels: Json | None = None) -> Snapshot:
    """A driver with a pool on each of two nodes; ``labels`` are those of the second."""
    nodes = (node("n1"), node("n2", uid="u2", labels=labels))
    return world(*nodes, slice_of(grp()), slice_of(second, name="s2", where="n2"), *objs)


def reasons(snapshot: Snapshot) -> dict[tuple[str, str], Reason]:
    """Why pools (driver, name) are stopped."""
    found = {key: stopped_pool(snapshot, *key, NOW) for key in {*snapshot.pools, *snapshot.pool_claims}}
    return {key: reason for key, reason in found.items() if reason is not None}


def stopped(snapshot: Snapshot) -> dict[str, str]:
    """By which rule pools of whatever driver are stopped."""
    return {pool: reason.rule for (_, pool), reason in reasons(snapshot).items()}


def told(snapshot: Snapshot) -> set[tuple[str, str]]:
    """Rule and what is there, of why pools are stopped."""
    return {(reason.rule, reason.has) for reason in reasons(snapshot).values()}


def said(snapshot: Snapshot, pool: str) -> set[tuple[str, str]]:
    """Rule and what is there, of all that is said against an allocation in the pool."""
    wanted = as_claim(claim("probe", [result(pool=pool)], [pod_ref("probe")], where=pool))
    problems = allocation_pool_problems(wanted, snapshot, NOW) + allocation_rollout_problems(wanted, snapshot, NOW)
    return {(each.rule, each.has) for each in problems if each.severity == "error"}


def test_a_pool_that_is_not_whole_takes_nothing_and_the_refusal_says_the_same() -> None:
    snapshot = world(node(), node("n2", uid="u2"), slice_of(grp(), count=2), slice_of(grp(), name="s2", where="n2"))
    assert stopped(snapshot) == {"n1": "pool-incomplete"}
    assert f"pool n1 of {DRIVER}: 1 of 2 slices of generation 1" in reasons(snapshot)[DRIVER, "n1"].text
    assert said(snapshot, "n1") == told(snapshot)
    assert said(snapshot, "n2") == set()


def test_a_pool_that_is_gone_takes_nothing_until_what_comes_back_is_verified() -> None:
    held = claim(results=[result()], reserved=[pod_ref()])
    others = (node(), node("n2", uid="u2"), slice_of(grp(), name="s2", where="n2"))
    assert stopped(world(*others, held)) == {"n1": "pool-gone"}
    back = world(*others, held, slice_of(grp("else")))
    assert stopped(back) == {"n1": "pool-rebuilding"}
    assert stopped(world(*others, held, slice_of(grp()))) == {}


def test_a_driver_that_maps_nothing_is_left_alone() -> None:
    assert stopped(world(node(), slice_of(gpu("gpu-0"), count=2))) == {}


@pytest.mark.parametrize("fields", [{}, {"where": "", "nodeSelector": None}])
def test_a_pool_that_one_node_sees_whole_goes_on(fields: Json) -> None:
    """One pool name on two nodes, each of which sees one complete pool, by name or by labels."""
    labels = {"n1": {"on": "n1"}, "n2": {"on": "n2"}}
    slices = []
    for name in labels:
        term = {"matchExpressions": [{"key": "on", "operator": "In", "values": [name]}]}
        where: Json = {"where": "", "nodeSelector": {"nodeSelectorTerms": [term]}} if fields else {"where": name}
        slices.append(slice_of(grp(), name=f"s-{name}", pool="shared", count=1 if name == "n1" else 2, **where))
    nodes = [node(name, uid=f"u-{name}", labels=each) for name, each in labels.items()]
    assert stopped(world(*nodes, *slices)) == {}
    assert stopped(world(nodes[1], slices[1])) == {"shared": "pool-incomplete"}


def test_a_pool_that_no_known_node_sees_is_not_stopped() -> None:
    term = {"matchExpressions": [{"key": "on", "operator": "In", "values": ["nowhere"]}]}
    snapshot = world(node(), slice_of(grp(), where="", pool="p", count=2, nodeSelector={"nodeSelectorTerms": [term]}))
    assert stopped(snapshot) == {}


def test_devices_that_choose_their_nodes_count_by_those() -> None:
    devices = [grp("a", nodeName="n1"), grp("b", nodeName="n2")]
    fields: Json = {"where": "", "pool": "p", "perDeviceNodeSelection": True}
    snapshot = world(node(), node("n2", uid="u2"), slice_of(*devices, count=2, **fields))
    assert stopped(snapshot) == {"p": "pool-incomplete"}
    assert stopped(world(node(), node("n2", uid="u2"), slice_of(*devices, **fields))) == {}


def test_a_pool_that_very_many_nodes_see_is_left_to_the_refusal() -> None:
    devices = [grp(f"d{n}", nodeName=f"n{n}") for n in range(65)]
    fields: Json = {"where": "", "pool": "p", "perDeviceNodeSelection": True, "count": 2}
    assert stopped(world(slice_of(*devices, **fields))) == {}
    assert stopped(world(slice_of(*devices[:64], **fields))) == {"p": "pool-incomplete"}


def test_a_pool_on_a_node_that_lost_its_label_takes_nothing() -> None:
    snapshot = two_nodes(rollout(stage="Canary"), labels={})
    assert stopped(snapshot) == {"n2": "node-not-canary"}
    assert "node n2, outside the canary nodes" in reasons(snapshot)[DRIVER, "n2"].text
    assert stopped(two_nodes(rollout(stage="Canary"), labels=CANARY)) == {}


def test_a_driver_that_is_off_is_stopped_where_its_devices_cost_something() -> None:
    off = rollout(stage="Off")
    assert stopped(two_nodes(off)) == {"n1": "stage-off", "n2": "stage-off"}
    assert stopped(two_nodes(off, second=gpu("gpu-0"))) == {"n1": "stage-off"}


def test_a_pool_of_many_nodes_is_stopped_at_stage_off_alone() -> None:
    """At the others it depends on the node."""
    network = slice_of(grp(), where="", pool="p", allNodes=True)
    assert stopped(world(node(), network, rollout(stage="Off"))) == {"p": "stage-off"}
    assert stopped(world(node(labels={}), network, rollout(stage="Canary"))) == {}


def test_a_pool_on_a_node_that_is_not_known_is_stopped_as_its_allocations_are_refused() -> None:
    snapshot = world(slice_of(grp()), rollout(stage="Canary"))
    assert stopped(snapshot) == {"n1": "node-not-canary"}
    assert said(snapshot, "n1") == told(snapshot)


def test_a_pool_with_devices_that_cost_nothing_is_left_to_the_refusal_of_the_others() -> None:
    mixed = world(node(labels={}), slice_of(grp(), gpu("gpu-0")), rollout(stage="Canary"))
    assert stopped(mixed) == {}
    assert {rule for rule, _ in said(mixed, "n1")} == {"node-not-canary"}


def test_a_view_that_is_behind_is_no_fault_of_a_pool() -> None:
    snapshot = two_nodes()
    behind = replace(snapshot, seen=snapshot.seen.set("ResourceSlice", NOW - timedelta(seconds=91)))
    assert set(stopped(behind).values()) == {"view-stale"}
