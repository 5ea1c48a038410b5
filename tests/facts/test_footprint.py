from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.builders import allocated, claim_in, device, new, node, old, result, slice_of, world
from webhook.facts.footprint import Footprint, footprint, total_for
from webhook.kube.quantity import INT64_MAX, beyond_int64, parse

Json = dict[str, Any]


def cost_of(*results: Json, devices: tuple[Json, ...] = (), minor: int = 36) -> Footprint:
    snapshot = world(node(), slice_of(*devices), allocated("c", *results), minor=minor)
    return footprint(claim_in(snapshot, "c"), snapshot)


def rules(cost: Footprint) -> list[str]:
    return [problem.rule for problem in cost.problems]


def test_a_claim_without_allocation_costs_nothing() -> None:
    obj = allocated("c")
    del obj["status"]["allocation"]
    snapshot = world(obj)
    assert footprint(claim_in(snapshot, "c"), snapshot) == Footprint("")


def test_a_device_with_the_fields_of_both_releases_is_not_charged_twice() -> None:
    both = device("grp", old("2"), new(mapping={"deviceMultiplier": "3"}))
    for minor in (36, 37):
        assert cost_of(result(), devices=(both,), minor=minor).amounts == {"cpu": 3}


def test_either_releases_field_is_read_whatever_the_release() -> None:
    assert cost_of(result(), devices=(device("grp", old("2")),), minor=37).amounts == {"cpu": 2}
    newer = device("grp", new(mapping={"deviceMultiplier": "2"}))
    assert cost_of(result(), devices=(newer,), minor=36).amounts == {"cpu": 2}


@pytest.mark.parametrize(
    "mapping",
    [
        {"cpu": {"allocationMultiplier": "much"}},
        {"cpu": {"allocationMultiplier": "-1"}},
        {"cpu": 7},
        {"cpu": None},
        {"cpu": {"capacityKey": 5}},
        ["cpu"],
        "cpu",
    ],
)
def test_a_mapping_that_cannot_be_computed_is_never_zero(mapping: object) -> None:
    cost = cost_of(result(), devices=(device("grp", nodeAllocatableResourceMappings=mapping),))
    assert (rules(cost), cost.complete, cost.costs) == (["mapping-unreadable"], False, True)


@pytest.mark.parametrize("consumed", [None, "x", {"k": "much"}, {"k": None}])
def test_consumed_capacity_that_cannot_be_read_is_never_zero(consumed: object) -> None:
    shared = device("grp", old("1", "k"), capacity={"k": "8"})
    one = result()
    one["consumedCapacity"] = consumed
    cost = cost_of(one, devices=(shared,))
    assert rules(cost) == ["consumed-missing"]
    assert cost.problems[0].path == "status.allocation.devices.results[0].consumedCapacity"


def test_the_sum_over_devices_may_overflow_where_no_product_does() -> None:
    half = str(INT64_MAX // 2 + 1)
    cost = cost_of(result("a"), result("b"), devices=tuple(device(name, old(half, resource="memory")) for name in "ab"))
    assert (rules(cost), cost.problems[0].path) == (["product-overflow"], "status.allocation.devices")


@pytest.mark.parametrize(
    ("resource", "amount", "over"),
    [
        ("memory", INT64_MAX, False),
        ("memory", INT64_MAX + 1, True),
        ("cpu", parse("9223372036854775807m"), False),
        ("cpu", parse("9223372036854775808m"), True),
        ("cpu", -(10**30), True),
    ],
)
def test_the_schedulers_int64(resource: str, amount: int, over: bool) -> None:
    assert beyond_int64(resource, amount) is over


def test_a_product_finer_than_a_billionth_is_told() -> None:
    """500m times 1n: the scheduler writes "500" into the pod's status."""
    shared = device("grp", old("1n", "k"), capacity={"k": "8"})
    found = {}
    for amount in ("500m", "1"):
        one = result()
        one["consumedCapacity"] = {"k": amount}
        found[amount] = rules(cost_of(one, devices=(shared,)))
    assert found == {"500m": ["product-too-fine"], "1": []}


def test_overheads_below_zero_give_nothing_back() -> None:
    odd = device("grp", new(overhead={"perPod": "-1", "perContainer": "2"}))
    cost = cost_of(result(), devices=(odd,), minor=37)
    assert [total_for(cost, containers) for containers in (0, 1, 3)] == [{}, {"cpu": 2}, {"cpu": 6}]


def test_what_is_known_is_counted_beside_what_is_not() -> None:
    cost = cost_of(result("a"), result("gone"), devices=(device("a", old("3")),))
    assert (cost.amounts, rules(cost), [one.device for one in cost.missing]) == (
        {"cpu": 3},
        ["device-unknown"],
        ["gone"],
    )
    assert cost.problems[0].path == "status.allocation.devices.results[1].device"
