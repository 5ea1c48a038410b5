"""Devices of an allocation: known, asked for, with amounts that can be booked."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.facts.builders import (
    as_claim,
    claim,
    gpu,
    grp,
    node,
    pod_ref,
    result,
    rules,
    samples,
    slice_of,
    world,
)
from webhook.facts.devices import device_problems


def judge(write, *objs, minor=36):
    return device_problems(as_claim(write), world(node(), node("n2", "u2"), *objs, minor=minor))


def by_rule(problems, rule):
    (found,) = [problem for problem in problems if problem.rule == rule]
    return found


def test_a_proper_allocation_has_no_findings():
    assert judge(claim(results=[result()]), slice_of(grp())) == []
    assert (
        judge(claim(results=[result("a", None)]), slice_of(gpu("a", {"memory": {"allocationMultiplier": "1Gi"}}))) == []
    )


def test_a_claim_without_allocation_has_no_findings():
    assert judge(claim(), slice_of(grp())) == []


def test_b13_a_device_nobody_offers_is_unknown_and_the_nearest_is_named():
    (problem,) = judge(claim(results=[result("hp-n0-ab12cd")]), slice_of(grp("hp-n0-zz98yy")))
    assert problem.rule == "device-unknown"
    assert problem.path == "status.allocation.devices.results[0].device"
    assert "hp-n0-zz98yy" in problem.needs


def test_a_device_of_an_earlier_generation_is_unknown():
    old, new = slice_of(grp("a"), name="old"), slice_of(grp("b"), name="new", generation=2)
    (problem,) = judge(claim(results=[result("a")]), old, new)
    assert problem.rule == "device-unknown"
    assert "before 2" in problem.has


def test_d11_a_device_of_another_node_than_the_allocation():
    write = claim(results=[result(pool="n2")], where="n1")
    found = rules(judge(write, slice_of(grp()), slice_of(grp(), name="s2", where="n2")))
    assert "device-of-other-node" in found
    assert "device-unknown" not in found


def test_d11_devices_of_two_nodes_in_an_allocation_that_names_none():
    write = claim(results=[result(share="a"), result(pool="n2", share="b")], where="")
    problems = judge(write, slice_of(grp()), slice_of(grp(), name="s2", where="n2"))
    assert by_rule(problems, "device-of-other-node").has == "devices of n1 and n2 in one claim"


def test_a_result_names_a_request_of_the_claim():
    first = {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "d"}]}
    assert judge(claim(results=[result(request="r/s")], requests=[first]), slice_of(grp())) == []
    for wrong in ("r", "s", "r/t", ""):
        problems = judge(claim(results=[result(request=wrong)], requests=[first]), slice_of(grp()))
        assert rules(problems) == ["request-unknown"]


def test_v1beta1_claims_have_flat_requests():
    write = claim(results=[result()], requests=[{"name": "r", "deviceClassName": "d"}])
    assert judge(write, slice_of(grp())) == []


def test_f15_admin_access_in_a_result_needs_the_request():
    problems = judge(claim(results=[result(adminAccess=True)]), slice_of(grp()))
    assert rules(problems, "error") == ["admin-access-not-requested"]


def test_more_devices_than_asked_for_are_doubted():
    write = claim(results=[result("a", None), result("b", None)], requests=[{"name": "r", "exactly": {}}])
    problems = judge(write, slice_of(gpu("a"), gpu("b")))
    assert rules(problems, "warning") == ["request-exceeded"]
    every = [{"name": "r", "exactly": {"allocationMode": "All"}}]
    assert (
        judge(claim(results=[result("a", None), result("b", None)], requests=every), slice_of(gpu("a"), gpu("b"))) == []
    )


@pytest.mark.parametrize(
    "row",
    [
        {"consumedCapacity": None},
        {"consumedCapacity": {}},
        {"consumedCapacity": {"cores": "4"}},
        {"consumedCapacity": {"cpus": None}},
        {"consumedCapacity": {"cpus": "four"}},
        {"consumedCapacity": {"cpus": []}},
        {"consumedCapacity": 7},
    ],
)
def test_an_amount_that_the_cost_follows_is_never_missing(row):
    problems = judge(claim(results=[result(**row)]), slice_of(grp()))
    problem = by_rule(problems, "consumed-missing")
    assert problem.severity == "error"
    assert problem.path == "status.allocation.devices.results[0].consumedCapacity"


def test_an_exclusive_device_with_a_capacity_key_never_gets_an_amount():
    device = {**grp(), "allowMultipleAllocations": False}
    problem = by_rule(judge(claim(results=[result(cpus=None)]), slice_of(device)), "consumed-missing")
    assert "exclusive" in problem.fix


def test_a_shared_device_without_costs_may_come_without_amounts():
    device = grp()
    del device["nodeAllocatableResourceMappings"]
    assert rules(judge(claim(results=[result(cpus=None)]), slice_of(device))) == ["shareid-missing"]


def test_d1_each_negative_amount_is_refused_by_itself():
    rows = [result(cpus="-4", share="a"), result(cpus="6", share="b")]
    problems = judge(claim(results=rows), slice_of(grp()))
    problem = by_rule(problems, "consumed-negative")
    assert problem.path == "status.allocation.devices.results[0].consumedCapacity[cpus]"


def test_d16_a_name_the_device_lacks_is_named_beside_the_right_one():
    write = claim(results=[result(consumedCapacity={"cpus": "1", "d.example/cpus": "4"})])
    problem = by_rule(judge(write, slice_of(grp())), "consumed-name-unknown")
    assert problem.path.endswith("consumedCapacity[d.example/cpus]")
    assert "cpus" in problem.needs


@pytest.mark.parametrize(
    ("amount", "fine"), [("1", False), ("2", True), ("3", False), ("4", True), ("8", True), ("10", False)]
)
def test_an_amount_off_the_policy_is_doubted(amount, fine):
    policy = {"default": "2", "validRange": {"min": "2", "step": "2", "max": "8"}}
    device = grp(capacity={"cpus": {"value": "16", "requestPolicy": policy}})
    problems = judge(claim(results=[result(cpus=amount)]), slice_of(device))
    assert rules(problems, "warning") == ([] if fine else ["consumed-off-policy"])


def test_a_product_beyond_int64_is_refused_with_the_devices():
    device = grp(nodeAllocatableResourceMappings={"memory": {"capacityKey": "cpus", "allocationMultiplier": "9E"}})
    assert "product-overflow" in rules(judge(claim(results=[result()]), slice_of(device)), "error")


def test_problems_stand_there_once():
    rows = [result("ghost"), result(cpus="-4"), result(cpus=None)]
    problems = judge(claim(results=rows), slice_of(grp()))
    places = [(problem.rule, problem.path) for problem in problems]
    assert len(places) == len(set(places))


def test_allocations_of_the_samples():
    good = world(*samples("01", "02", "05", "06", "08", "15"))
    for obj in samples("15"):
        assert device_problems(as_claim(obj), good.remove(obj)) == [], obj["metadata"]["name"]
        assert device_problems(as_claim(obj), good) == []
    bad = {obj["metadata"]["name"]: device_problems(as_claim(obj), good) for obj in samples("16")}
    assert rules(bad["overflow"]) == ["device-overcommit"]
    assert rules(bad["gpu-twice"]) == ["exclusive-device-taken"]
    assert rules(bad["negative-consumed"]) == ["consumed-negative"]
    assert rules(bad["same-share"]) == ["shareid-duplicate"]
    assert rules(bad["left-behind"]) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["n1", "d.example", "grp", "1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["request", "driver", "pool", "device", "consumedCapacity", "cpus", "shareID", "value"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(JSON, JSON, JSON)
def test_any_json_is_survived(results: Any, devices: Any, capacity: Any):
    obj = slice_of(grp(capacity=capacity))
    held = slice_of(name="s2", count=2)
    held["spec"]["devices"] = devices
    write = claim(reserved=[pod_ref()])
    write["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": results}
    judge(write, obj, held, claim("c2", results=[result()]), write)
