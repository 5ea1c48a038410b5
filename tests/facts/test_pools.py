"""Pool phases. Names such as a1 or b2 are numbers of field reports: what went wrong in practice."""

from datetime import timedelta
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from msgspec.structs import replace

from tests.facts.builders import (
    NOW,
    as_claim,
    claim,
    entry,
    gpu,
    grp,
    node,
    pod,
    pod_ref,
    result,
    rollout,
    rules,
    samples,
    slice_of,
    world,
)
from webhook.facts.pool_survey import Reason
from webhook.facts.pools import allocation_pool_problems, pool_state


def phase(*objs, at="n1", driver="d.example", pool="n1", **kwargs):
    state = pool_state(world(*objs), driver, pool, at, NOW, **kwargs)
    return state.phase, [reason.rule for reason in state.reasons]


def state(*objs, at="n1"):
    return pool_state(world(*objs), "d.example", "n1", at, NOW)


def test_a_complete_pool_is_fresh():
    assert phase(node(), slice_of(grp())) == ("Fresh", [])


def test_a_driver_without_devices_is_fresh():
    assert phase(node(), slice_of()) == ("Fresh", [])


# (generation, count) of the slices that the node sees, of those it does not see, and what the allocator makes of them.
COMPLETENESS = [
    ([(3, 2), (3, 2)], [], True),
    ([(3, 2)], [], False),
    ([(3, 2)], [(3, 2)], True),
    ([(3, 2), (4, 2)], [], False),
    ([(3, 2)], [(4, 2)], False),
    ([(3, 1)], [(4, 1)], True),
    ([(2, 1), (2, 1)], [], False),
]


@pytest.mark.parametrize(("near", "far", "complete"), COMPLETENESS)
def test_completeness_is_the_allocators(near, far, complete):
    slices = [
        slice_of(gpu(f"a{i}"), name=f"near-{i}", generation=generation, count=count)
        for i, (generation, count) in enumerate(near)
    ] + [
        slice_of(gpu(f"b{i}"), name=f"far-{i}", where="n2", pool="n1", generation=generation, count=count)
        for i, (generation, count) in enumerate(far)
    ]
    expected = ("Fresh", []) if complete else ("Rebuilding", ["pool-incomplete"])
    for order in permutations(slices):
        assert phase(node(), node("n2"), *order) == expected


def test_b1_counts_that_disagree_are_invalid_in_either_order():
    first, second = slice_of(gpu("a"), name="s1", count=1), slice_of(gpu("b"), name="s2", count=2)
    assert phase(node(), first, second) == phase(node(), second, first) == ("Invalid", ["pool-invalid"])


def test_b2_an_old_generation_beside_an_incomplete_new_one_is_rebuilding():
    old = slice_of(gpu("a"), name="old", generation=1)
    new = slice_of(gpu("b"), name="new", generation=2, count=2)
    found = state(node(), old, new)
    assert (found.phase, [r.rule for r in found.reasons]) == ("Rebuilding", ["pool-incomplete"])
    assert set(found.survey.devices) == {"b"}
    assert not found.usable


def test_b3_no_claim_is_served_from_the_old_generation_of_a_pool_on_its_way():
    old = slice_of(grp("grp", "100Gi"), name="old", generation=1)
    new = slice_of(grp("grp", "80Gi"), name="new", generation=2, count=2)
    write = claim(results=[result(cpus="90Gi")])
    assert rules(allocation_pool_problems(as_claim(write), world(node(), old, new), NOW)) == ["pool-incomplete"]


def test_b21_new_names_beside_old_ones_are_rebuilding_until_the_old_ones_go():
    old = slice_of(grp(), name="n1-d.example-y2", generation=1)
    new = slice_of(grp(), name="00000-d.example-n1-x1", generation=2)
    assert phase(node(), old, new) == ("Rebuilding", ["pool-rebuilding"])
    assert phase(node(), new) == ("Fresh", [])


def test_a_generation_that_restarts_at_one_after_a_wipe_is_fresh():
    assert phase(node(), slice_of(grp(), generation=12)) == phase(node(), slice_of(grp(), generation=1))


def test_the_same_device_in_two_slices_of_a_pool_is_invalid():
    objs = [slice_of(gpu("a"), name=name, count=2) for name in ("s1", "s2")]
    assert phase(node(), *objs) == ("Invalid", ["pool-invalid"])


def test_equal_devices_in_one_slice_are_invalid():
    assert phase(node(), slice_of(gpu("a"), gpu("a"))) == ("Invalid", ["pool-invalid"])


@pytest.mark.parametrize(
    "device",
    [
        gpu("a", consumesCounters=[{"counterSet": "nowhere", "counters": {"m": {"value": "1"}}}]),
        gpu("a", {"cpu": {"capacityKey": "missing"}}),
        gpu("a", {"cpu": {"allocationMultiplier": "eight"}}),
        gpu("a", {"cpu": 7}),
    ],
)
def test_a_device_that_nobody_can_book_makes_its_pool_invalid(device):
    assert phase(node(), slice_of(device)) == ("Invalid", ["pool-invalid"])


def test_counters_that_a_set_lacks_are_invalid():
    counters = slice_of(name="c", count=2, sharedCounters=[{"name": "set", "counters": {"m": {"value": "1"}}}])
    device = gpu("a", consumesCounters=[{"counterSet": "set", "counters": {"other": {"value": "1"}}}])
    assert phase(node(), counters, slice_of(device, name="d", count=2)) == ("Invalid", ["pool-invalid"])


def test_a2_a_wiped_pool_is_gone_while_claims_hold_devices_of_it():
    held = claim(results=[result()], reserved=[pod_ref()])
    other = slice_of(grp(), where="n2")
    assert phase(node(), held, other) == ("Gone", ["pool-gone"])
    write = as_claim(claim("c2", results=[result()]))
    assert rules(allocation_pool_problems(write, world(node(), held, other), NOW)) == ["pool-gone"]


def test_a1_the_only_slice_of_a_driver_wiped_under_a_booked_claim_still_counts_as_mapped():
    held = claim(results=[result()], reserved=[pod_ref()])
    owner = pod(where="n1", status=entry(cpu="4"))
    write = as_claim(claim("c2", results=[result()]))
    assert rules(allocation_pool_problems(write, world(node(), held, owner), NOW)) == ["pool-gone"]


def test_devices_without_a_cost_in_place_of_a_booked_one_wait_as_the_mapping_is_lost():
    held = claim(results=[result()], reserved=[pod_ref()])
    owner = pod(where="n1", status=entry(cpu="4"))
    write = as_claim(claim("c2", results=[result("whole", None)]))
    snapshot = world(node(), held, owner, slice_of(gpu("whole")))
    assert rules(allocation_pool_problems(write, snapshot, NOW)) == ["pool-rebuilding"]


def test_a_cost_of_another_driver_does_not_make_a_pool_one_that_lost_its_mapping():
    held = claim(results=[result(), result("nic", None, driver="nic.example")], reserved=[pod_ref()])
    owner = pod(where="n1", status=entry(cpu="4"))
    write = as_claim(claim("c2", results=[result("nic", None, driver="nic.example")]))
    half = slice_of(gpu("nic"), name="nics", driver="nic.example", count=2)
    for slices in ([half], [half, slice_of(grp())]):
        assert allocation_pool_problems(write, world(node(), held, owner, *slices), NOW) == []


def test_the_claim_under_review_is_no_evidence_about_its_pool():
    write = claim(results=[result("nowhere")], reserved=[pod_ref()])
    snapshot = world(node(), write, slice_of(grp()))
    assert allocation_pool_problems(as_claim(write), snapshot, NOW) == []


def test_a_pool_never_seen_is_unknown():
    write = as_claim(claim(results=[result()]))
    assert rules(allocation_pool_problems(write, world(node(), rollout(stage="Canary")), NOW)) == ["pool-unknown"]


def test_drivers_that_never_mapped_anything_are_not_judged_by_phase():
    half = slice_of(gpu("a"), count=2)
    write = as_claim(claim(results=[result("a", None)]))
    assert allocation_pool_problems(write, world(node(), half), NOW) == []
    assert allocation_pool_problems(write, world(node(), half, rollout(stage="General")), NOW) == []


def test_a8_b13_a_device_that_a_bound_claim_holds_has_to_come_back():
    held = claim(results=[result("hp-n0-ab12cd")], reserved=[pod_ref()])
    assert phase(node(), held, slice_of(grp("hp-n0-zz98yy"))) == ("Rebuilding", ["pool-rebuilding"])
    assert phase(node(), held, slice_of(grp("hp-n0-ab12cd"))) == ("Fresh", [])


def test_a_claim_that_nobody_reserves_does_not_stop_its_pool():
    held = claim(results=[result("hp-n0-ab12cd")])
    assert phase(node(), held, slice_of(grp("hp-n0-zz98yy"))) == ("Fresh", [])


def test_a10_an_identical_rewrite_with_bound_claims_stays_fresh():
    held = [claim(f"c{i}", results=[result(cpus="1", share=str(i))], reserved=[pod_ref(f"p{i}")]) for i in range(3)]
    assert phase(node(), slice_of(grp()), *held) == ("Fresh", [])


def test_a16_an_empty_slice_under_bound_claims_is_rebuilding_and_legal_without_them():
    held = claim(results=[result()], reserved=[pod_ref()])
    assert phase(node(), slice_of(), held) == ("Rebuilding", ["pool-rebuilding"])


def test_a_mapping_that_booked_pods_and_is_gone_is_mapping_lost():
    held = claim(results=[result()], reserved=[pod_ref()])
    bare = grp()
    del bare["nodeAllocatableResourceMappings"]
    objs = (node(), slice_of(bare), held, pod(where="n1", status=entry(cpu="4")))
    assert phase(*objs) == ("Rebuilding", ["mapping-lost"])
    write = as_claim(claim("c2", results=[result(share="x")]))
    assert rules(allocation_pool_problems(write, world(*objs), NOW)) == ["mapping-lost"]


def test_an_entry_for_another_drivers_device_is_no_lost_mapping():
    nic = gpu("nic")
    held = claim(
        results=[result(), result("nic", None, driver="nic.example")],
        reserved=[pod_ref()],
    )
    objs = [node(), slice_of(grp()), slice_of(nic, name="s2", driver="nic.example")]
    objs += [held, pod(where="n1", status=entry(cpu="4"))]
    assert phase(*objs, driver="nic.example") == ("Fresh", [])


def test_a13_a_node_made_again_under_its_name_leaves_a_stale_owner():
    objs = [node(uid="u2"), slice_of(grp(), owner="u1")]
    found = state(*objs)
    assert (found.phase, [n.rule for n in found.notes]) == ("Fresh", ["slice-owner-gone"])
    strict = rollout(freshness={"evidence": ["PoolComplete", "OwnerCurrent"]})
    assert phase(*objs, strict) == ("Rebuilding", ["slice-owner-gone"])
    write = as_claim(claim(results=[result()]))
    assert rules(allocation_pool_problems(write, world(*objs), NOW), "warning") == ["slice-owner-gone"]


def test_h10_a_pool_of_no_node_needs_no_owner():
    shelf = slice_of(grp(), where="", pool="zone-a/shelf-7", allNodes=True)
    every = rollout(freshness={"evidence": ["OwnerCurrent", "NodeReady"]})
    assert phase(node(), shelf, every, pool="zone-a/shelf-7") == ("Fresh", [])


def plugin(name="plug", where="n1", ready="True", **metadata):
    meta = {"namespace": "sys", "labels": {"app": "plug"}, **metadata}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    return pod(name, {}, where=where, status=status, metadata=meta)


PLUGIN_EVIDENCE = rollout(
    freshness={"evidence": ["DriverPodReady"], "driverPods": {"namespace": "sys", "selector": {"app": "plug"}}}
)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([plugin()], "Fresh"),
        ([], "Rebuilding"),
        ([plugin(ready="False")], "Rebuilding"),
        ([plugin(where="n2")], "Rebuilding"),
        ([plugin(namespace="other")], "Rebuilding"),
        ([plugin(labels={"app": "else"})], "Rebuilding"),
        ([plugin(deletionTimestamp="2026-11-20T09:00:00Z")], "Rebuilding"),
        ([plugin(deletionTimestamp="2026-11-20T09:00:00Z"), plugin("new")], "Fresh"),
    ],
)
def test_a1_a_dead_driver_pod_holds_new_claims_back_while_its_slice_still_stands(pods, expected):
    assert phase(node(), slice_of(grp()), PLUGIN_EVIDENCE, *pods)[0] == expected


@pytest.mark.parametrize(("ready", "expected"), [("True", "Fresh"), ("False", "Rebuilding"), ("Unknown", "Rebuilding")])
def test_node_ready_is_evidence_where_it_is_wanted(ready, expected):
    objs = [node(ready=ready), slice_of(grp())]
    assert phase(*objs, rollout(freshness={"evidence": ["NodeReady"]}))[0] == expected
    assert phase(*objs)[0] == "Fresh"


def test_age_is_no_evidence_unless_the_driver_promises_to_write():
    old = slice_of(grp(), metadata={"creationTimestamp": "2026-01-01T00:00:00Z"})
    assert phase(node(), old) == ("Fresh", [])
    promise = rollout(freshness={"heartbeat": "60s"})
    assert phase(node(), old, promise) == ("Rebuilding", ["pool-rebuilding"])
    just_now = (NOW - timedelta(seconds=30)).isoformat()
    old["metadata"]["managedFields"] = [{"manager": "d", "time": just_now}]
    assert phase(node(), old, promise) == ("Fresh", [])


def test_our_own_late_view_makes_every_pool_unknown():
    def seen(kind, seconds, *objs):
        ages = {"ResourceSlice": 5, "Pod": 5, kind: seconds}
        seen = Map({kind: NOW - timedelta(seconds=age) for kind, age in ages.items()})
        state = pool_state(replace(world(node(), slice_of(grp()), *objs), seen=seen), "d.example", "n1", "n1", NOW)
        return state.phase, [(reason.rule, reason.has) for reason in state.reasons]

    assert seen("ResourceSlice", 89) == ("Fresh", [])
    assert seen("ResourceSlice", 91) == ("Unknown", [("view-stale", "slices last seen 1m31s ago")])
    assert seen("ResourceSlice", 200, rollout(freshness={"window": "5m"})) == ("Fresh", [])
    assert seen("Pod", 120) == ("Unknown", [("view-stale", "pods last seen 2m ago")])
    assert seen("DeviceClass", 1000) == ("Fresh", [])


def test_the_half_written_pool_of_the_samples_is_refused():
    (write,) = [c for c in samples("16") if c["metadata"]["name"] == "mid-rebuild"]
    snapshot = world(*samples("01", "05", "09", "24"))
    (problem,) = allocation_pool_problems(as_claim(write), snapshot, NOW)
    assert problem.rule == "pool-incomplete"
    assert "1 of 2 slices of generation 6" in problem.has
    assert problem.path == "status.allocation.devices.results[0].pool"


def test_allocated_claims_of_the_samples_rely_on_fresh_pools():
    snapshot = world(*samples("01", "02", "05", "06", "08", "15", "24"))
    for obj in samples("15"):
        assert allocation_pool_problems(as_claim(obj), snapshot, NOW) == [], obj["metadata"]["name"]


def test_the_labels_of_a_node_decide_whether_it_sees_a_slice():
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
    shelf = slice_of(grp(), where="", pool="shelf", nodeSelector=selector)
    seen, unseen = node(labels={"zone": "a"}), node(labels={"zone": "b"})
    assert phase(seen, shelf, pool="shelf") == ("Fresh", [])
    assert phase(unseen, shelf, pool="shelf") == ("Unknown", ["pool-unknown"])


def test_b10_a_pool_name_on_two_nodes_is_whole_on_each():
    both = [slice_of(gpu("eth1"), name=f"s{i}", where=f"n{i}", pool="storage-lan") for i in (1, 2)]
    for where in ("n1", "n2"):
        assert phase(node(), node("n2"), *both, at=where, pool="storage-lan") == ("Fresh", [])


def test_a5_a_reboot_changes_nothing_that_slices_show():
    rebooted = node(nodeInfo={"bootID": "another"})
    held = claim(results=[result()], reserved=[pod_ref()])
    assert phase(rebooted, slice_of(grp()), held) == ("Fresh", [])


def test_what_is_missing_is_remembered_for_these_slices_and_claims_only():
    held = claim(results=[result("gone")], reserved=[pod_ref()])
    snapshot = world(node(), slice_of(grp()), held)

    def judged(known):
        return pool_state(known, "d.example", "n1", "n1", NOW).phase

    assert judged(snapshot) == judged(snapshot) == "Rebuilding"
    assert judged(snapshot.remove(held)) == "Fresh"
    assert judged(snapshot.put(slice_of(grp("gone")))) == "Fresh"
    assert judged(snapshot) == "Rebuilding"
    assert pool_state(snapshot, "d.example", "n1", "n1", NOW, besides="uid-c1").phase == "Fresh"


@given(st.permutations(range(5)))
def test_the_order_of_slices_never_matters(order):
    objs = [
        slice_of(grp("a"), name="s0", generation=2, count=2),
        slice_of(grp("b"), name="s1", generation=2, count=2),
        slice_of(grp("a"), name="s2", generation=1, count=1),
        slice_of(grp("c"), name="s3", where="n2", pool="n1", generation=2, count=2),
        slice_of(grp("b"), name="s4", where="n2", pool="n1", generation=3, count=1),
    ]
    found = state(node(), node("n2"), *[objs[i] for i in order])
    assert (found.phase, [r.rule for r in found.reasons]) == ("Rebuilding", ["pool-rebuilding"])
    assert set(found.survey.devices) == {"a", "b"}


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["name", "capacity", "consumesCounters", "counters", "counterSet", "value", "basic"]),
                inner,
            )
        ),
        max_leaves=8,
    )
)
def test_any_json_is_survived(value):
    broken = slice_of(name="s2", count=2)
    broken["spec"] |= {"devices": value, "sharedCounters": value}
    state(node(), broken)
    pooled = slice_of(name="s3")
    pooled["spec"]["pool"] = value
    state(node(), broken, pooled)


def test_a_pool_tells_its_slices_and_since_when():
    obj = slice_of(grp(), metadata={"creationTimestamp": "2026-11-20T09:00:00Z"})
    found = state(node(), obj)
    assert [item.name for item in found.slices] == ["s1"]
    assert found.age(NOW) == "30m"


def test_a_node_local_slice_without_an_owner_lacks_the_evidence_of_one():
    strict = rollout(freshness={"evidence": ["OwnerCurrent"]})
    assert phase(node(), slice_of(grp()), strict) == ("Rebuilding", ["slice-owner-gone"])
    assert phase(slice_of(grp(), owner="u1"), strict) == ("Rebuilding", ["slice-owner-gone"])
    assert phase(node(), slice_of(grp(), owner="u1"), strict) == ("Fresh", [])


def test_a_claim_without_allocation_relies_on_no_pool():
    assert allocation_pool_problems(as_claim(claim()), world(rollout(stage="Canary")), NOW) == []


def test_a_counter_set_twice_is_invalid():
    sets = [{"name": "set", "counters": {}}]
    objs = [slice_of(name=name, count=2, sharedCounters=sets) for name in ("a", "b")]
    assert phase(node(), *objs) == ("Invalid", ["pool-invalid"])


def test_one_device_of_a_mapped_pool_that_lost_its_cost_is_mapping_lost():
    held = claim(results=[result()], reserved=[pod_ref()])
    bare = grp()
    del bare["nodeAllocatableResourceMappings"]
    owner = pod(where="n1", status=entry(cpu="4"))
    assert phase(node(), slice_of(bare, grp("other")), held, owner) == ("Rebuilding", ["mapping-lost"])
    assert phase(node(), slice_of(bare, grp("other")), held, pod(where="n1")) == ("Fresh", [])


def test_a_reason_is_told_in_one_line_as_a_finding_is() -> None:
    reason = Reason("driver-held", "driver d held: a\nb", "the hold to be taken back", "take it out")
    assert reason.text == "driver-held: has driver d held: a b, needs the hold to be taken back; take it out"
    assert replace(reason, fix="").text == "driver-held: has driver d held: a b, needs the hold to be taken back"
