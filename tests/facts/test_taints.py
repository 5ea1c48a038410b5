"""Which devices are tainted: those that every allocation of would be refused, and no others."""

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
from webhook.facts.taints import TaintWanted, stopped_pool, wanted_taints
from webhook.kube.snapshot import Snapshot

Json = dict[str, Any]

HOLD = {"reason": "wrong mapping", "by": "on-call", "since": "2026-11-20T09:00:00Z"}
SHARED = grp()
OTHER = grp(nodeAllocatableResourceMappings={"cpu": {"capacityKey": "cpus", "allocationMultiplier": "2"}})


def two_nodes(*objs: Json, second: Json = SHARED, labels: Json | None = None) -> Snapshot:
    """A driver with a pool on each of two nodes; ``labels`` are those of the second."""
    nodes = (node("n1"), node("n2", uid="u2", labels=labels))
    return world(*nodes, slice_of(grp()), slice_of(second, name="s2", where="n2"), *objs)


def stopped(snapshot: Snapshot) -> dict[tuple[str, str], Reason]:
    """The pools that are stopped."""
    found = {key: stopped_pool(snapshot, *key, NOW) for key in {*snapshot.pools, *snapshot.pool_claims}}
    return {key: reason for key, reason in found.items() if reason is not None}


def taints(snapshot: Snapshot, *full: TaintWanted) -> list[tuple[str, str, str, str]]:
    """Pool, device, rule and text of the taints."""
    wanted = wanted_taints(snapshot, stopped(snapshot), NOW, full)
    assert len({each.name for each in wanted}) == len(wanted)
    return [(each.pool, each.device, each.reason.rule, each.text) for each in wanted]


def digest(snapshot: Snapshot, name: str = "s1") -> str:
    [found] = snapshot.slices[name].digests
    return found


def said(snapshot: Snapshot, pool: str) -> set[tuple[str, str]]:
    """Rule and what is there, of all that is said against an allocation in the pool."""
    wanted = as_claim(claim("probe", [result(pool=pool)], [pod_ref("probe")], where=pool))
    problems = allocation_pool_problems(wanted, snapshot, NOW) + allocation_rollout_problems(wanted, snapshot, NOW)
    return {(each.rule, each.has) for each in problems if each.severity == "error"}


def test_pools_that_are_whole_are_left_alone() -> None:
    assert taints(two_nodes()) == []
    assert taints(two_nodes(rollout(stage="General"))) == []


def test_a_held_driver_is_tainted_as_a_whole_with_what_the_refusal_says() -> None:
    snapshot = two_nodes(rollout(hold=HOLD))
    [taint] = taints(snapshot)
    assert taint == (
        "",
        "",
        "driver-held",
        f"driver-held: has driver {DRIVER} held: wrong mapping, by on-call, since 2026-11-20T09:00:00Z, needs the hold "
        f"to be taken back; bound claims stay; take spec.hold out of DriverRollout {DRIVER} when it is repaired",
    )
    assert said(snapshot, "n1") == {(r.rule, r.has) for r in stopped(snapshot).values()}


def test_a_hold_that_is_over_taints_nothing() -> None:
    until = (NOW - timedelta(seconds=1)).isoformat().replace("+00:00", "Z")
    assert taints(two_nodes(rollout(hold={**HOLD, "until": until}))) == []


def test_a_driver_that_is_held_before_it_has_slices_is_tainted() -> None:
    assert [each[:3] for each in taints(world(node(), rollout(hold=HOLD)))] == [("", "", "driver-held")]


def test_bad_mappings_taint_the_pools_that_have_them() -> None:
    bad = digest(two_nodes())
    snapshot = two_nodes(rollout(hold={**HOLD, "badMappings": [bad]}), second=OTHER)
    assert digest(snapshot, "s2") != bad
    assert [each[:3] for each in taints(snapshot)] == [("n1", "", "driver-held")]
    assert bad[:19] in taints(snapshot)[0][3]


def test_pools_that_were_resumed_are_not_tainted() -> None:
    good = digest(two_nodes())
    snapshot = two_nodes(rollout(hold=HOLD, resumeAt={"mappingDigests": [good]}), second=OTHER)
    assert [each[:3] for each in taints(snapshot)] == [("n2", "", "driver-held")]
    nobody = two_nodes(rollout(hold=HOLD, resumeAt={"mappingDigests": ["sha256:0"]}), second=OTHER)
    assert [each[:3] for each in taints(nobody)] == [("", "", "driver-held")], "all of its pools: one for the driver"


def test_a_pool_that_is_not_whole_is_tainted_with_what_the_refusal_says() -> None:
    snapshot = world(node(), node("n2", uid="u2"), slice_of(grp(), count=2), slice_of(grp(), name="s2", where="n2"))
    [taint] = taints(snapshot)
    assert taint[:3] == ("n1", "", "pool-incomplete")
    assert f"pool n1 of {DRIVER}: 1 of 2 slices of generation 1" in taint[3]
    assert said(snapshot, "n1") == {(r.rule, r.has) for r in stopped(snapshot).values()}
    assert said(snapshot, "n2") == set()


def test_the_only_pool_is_tainted_as_a_pool() -> None:
    """The next node's pool is not to be born tainted."""
    assert [each[:3] for each in taints(world(node(), slice_of(grp(), count=2)))] == [("n1", "", "pool-incomplete")]


def test_all_pools_of_a_driver_are_one_taint() -> None:
    snapshot = world(
        node(),
        node("n2", uid="u2"),
        slice_of(grp(), count=2),
        slice_of(grp(), name="s2", where="n2", count=3),
        slice_of(grp(), name="e1", where="n1", driver="e.example"),
    )
    assert [each[:3] for each in taints(snapshot)] == [("", "", "pool-incomplete")]


def test_a_pool_that_is_gone_stays_tainted_until_what_comes_back_is_verified() -> None:
    held = claim(results=[result()], reserved=[pod_ref()])
    others = (node(), node("n2", uid="u2"), slice_of(grp(), name="s2", where="n2"))
    assert [each[:3] for each in taints(world(*others, held))] == [("n1", "", "pool-gone")]
    back = world(*others, held, slice_of(grp("else")))
    assert [each[:3] for each in taints(back)] == [("n1", "", "pool-rebuilding")]
    assert taints(world(*others, held, slice_of(grp()))) == []


def test_a_driver_that_maps_nothing_is_left_alone() -> None:
    assert taints(world(node(), slice_of(gpu("gpu-0"), count=2))) == []


@pytest.mark.parametrize("fields", [{}, {"where": "", "nodeSelector": None}])
def test_a_pool_that_one_node_sees_whole_is_not_tainted(fields: Json) -> None:
    """One pool name on two nodes, each of which sees one complete pool, by name or by labels."""
    labels = {"n1": {"on": "n1"}, "n2": {"on": "n2"}}
    slices = []
    for name in labels:
        term = {"matchExpressions": [{"key": "on", "operator": "In", "values": [name]}]}
        where: Json = {"where": "", "nodeSelector": {"nodeSelectorTerms": [term]}} if fields else {"where": name}
        slices.append(slice_of(grp(), name=f"s-{name}", pool="shared", count=1 if name == "n1" else 2, **where))
    nodes = [node(name, uid=f"u-{name}", labels=each) for name, each in labels.items()]
    assert taints(world(*nodes, *slices)) == []
    assert [each[:3] for each in taints(world(nodes[1], slices[1]))] == [("shared", "", "pool-incomplete")]


def test_a_pool_that_no_known_node_sees_needs_no_taint() -> None:
    term = {"matchExpressions": [{"key": "on", "operator": "In", "values": ["nowhere"]}]}
    snapshot = world(node(), slice_of(grp(), where="", pool="p", count=2, nodeSelector={"nodeSelectorTerms": [term]}))
    assert taints(snapshot) == []


def test_devices_that_choose_their_nodes_count_by_those() -> None:
    devices = [grp("a", nodeName="n1"), grp("b", nodeName="n2")]
    fields: Json = {"where": "", "pool": "p", "perDeviceNodeSelection": True}
    snapshot = world(node(), node("n2", uid="u2"), slice_of(*devices, count=2, **fields))
    assert [each[:3] for each in taints(snapshot)] == [("p", "", "pool-incomplete")]
    assert taints(world(node(), node("n2", uid="u2"), slice_of(*devices, **fields))) == []


def test_a_pool_that_very_many_nodes_see_is_left_to_the_refusal() -> None:
    devices = [grp(f"d{n}", nodeName=f"n{n}") for n in range(65)]
    fields: Json = {"where": "", "pool": "p", "perDeviceNodeSelection": True, "count": 2}
    assert taints(world(slice_of(*devices, **fields))) == []
    assert len(taints(world(slice_of(*devices[:64], **fields)))) == 1


def test_a_pool_on_a_node_that_lost_its_label_is_tainted() -> None:
    snapshot = two_nodes(rollout(stage="Canary"), labels={})
    [taint] = taints(snapshot)
    assert taint[:3] == ("n2", "", "node-not-canary")
    assert "node n2, outside the canary nodes" in taint[3]
    assert taints(two_nodes(rollout(stage="Canary"), labels=CANARY)) == []


def test_a_driver_that_is_off_is_tainted_where_its_devices_cost_something() -> None:
    off = rollout(stage="Off")
    assert [each[:3] for each in taints(two_nodes(off))] == [("", "", "stage-off")]
    assert [each[:3] for each in taints(two_nodes(off, second=gpu("gpu-0")))] == [("n1", "", "stage-off")]


def test_a_pool_of_many_nodes_is_tainted_at_stage_off_alone() -> None:
    """At the others it depends on the node."""
    network = slice_of(grp(), where="", pool="p", allNodes=True)
    assert [each[:3] for each in taints(world(node(), network, rollout(stage="Off")))] == [("p", "", "stage-off")]
    assert taints(world(node(labels={}), network, rollout(stage="Canary"))) == []


def test_a_pool_on_a_node_that_is_not_known_is_tainted_as_its_allocations_are_refused() -> None:
    snapshot = world(slice_of(grp()), rollout(stage="Canary"))
    assert [each[:3] for each in taints(snapshot)] == [("n1", "", "node-not-canary")]
    assert said(snapshot, "n1") == {(r.rule, r.has) for r in stopped(snapshot).values()}


def test_a_pool_with_devices_that_cost_nothing_is_left_to_the_refusal_of_the_others() -> None:
    mixed = world(node(labels={}), slice_of(grp(), gpu("gpu-0")), rollout(stage="Canary"))
    assert taints(mixed) == []
    assert {rule for rule, _ in said(mixed, "n1")} == {"node-not-canary"}


def test_a_view_that_is_behind_is_no_fault_of_a_pool() -> None:
    snapshot = two_nodes()
    behind = replace(snapshot, seen=snapshot.seen.set("ResourceSlice", NOW - timedelta(seconds=91)))
    assert {reason.rule for reason in stopped(behind).values()} == {"view-stale"}


def test_full_zones_taint_devices_where_nothing_wider_stands() -> None:
    reason = Reason("zone-overcommit", "cpu 8 of 8 of zone 0 charged", "4 free")
    full = TaintWanted(DRIVER, "n1", "grp", reason)
    assert [each[:3] for each in taints(two_nodes(), full)] == [("n1", "grp", "zone-overcommit")]
    assert [each[:3] for each in taints(two_nodes(rollout(hold=HOLD)), full)] == [("", "", "driver-held")]
    half = world(node(), slice_of(grp(), count=2), node("n2", uid="u2"), slice_of(grp(), name="s2", where="n2"))
    assert [each[:3] for each in taints(half, full)] == [("n1", "", "pool-incomplete")]


def test_ages_are_no_part_of_the_text() -> None:
    """They would have it written anew every second."""
    quiet = rollout(freshness={"heartbeat": "30s"})
    snapshot = two_nodes(quiet)
    assert "of unknown age" in taints(snapshot)[0][3]
    reason = Reason("pool-rebuilding", "slice s1 last written 4m10s ago", "a write every 30s, as the driver promises")
    assert TaintWanted(DRIVER, "n1", "", reason).text == (
        "pool-rebuilding: has slice s1 last written too long ago, needs a write every 30s, as the driver promises"
    )
