from __future__ import annotations

from itertools import chain, combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.facts.builders import gpu, grp, samples, slice_of
from webhook.facts.slice_sums import most_of, most_together
from webhook.kube.resource import read_slice

GI = 1 << 30


def together(*objs: Any) -> dict[str, Any]:
    return most_together([read_slice(obj) for obj in objs])


def part(name: str, cost: int, use: int) -> dict[str, Any]:
    counters = [{"counterSet": "set", "counters": {"slots": {"value": str(use)}}}]
    return gpu(name, {"memory": {"allocationMultiplier": str(cost)}}, consumesCounters=counters)


def pool(parts: list[dict[str, Any]], slots: int) -> list[Any]:
    sets = [{"name": "set", "counters": {"slots": {"value": str(slots)}}}]
    return [slice_of(name="c", count=2, sharedCounters=sets), slice_of(*parts, count=2)]


def test_devices_that_exclude_each_other_are_not_summed() -> None:
    assert together(*samples("07")) == {"memory": 16 * GI}


def test_shared_devices_count_their_whole_capacity_and_fixed_costs_once() -> None:
    fixed = grp("f", nodeAllocatableResourceMappings={"memory": {"allocationMultiplier": "1Gi"}})
    assert together(slice_of(grp("a", size="8"), grp("b", size="4"), fixed)) == {"cpu": 12, "memory": GI}


def test_an_exclusive_device_with_a_capacity_key_costs_nothing() -> None:
    device = read_slice(slice_of(grp(allowMultipleAllocations=False))).devices[0]
    assert most_of(device, device.costs[0]) == 0


def test_without_counters_to_go_by_only_the_dearest_device_counts() -> None:
    assert together(slice_of(part("a", 3, 1), part("b", 5, 1))) == {"memory": 5}


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 8)), min_size=1, max_size=6),
    st.integers(1, 16),
)
def test_never_less_than_the_dearest_devices_that_fit(rows: list[tuple[int, int]], slots: int) -> None:
    parts = [part(f"d{index}", cost, use) for index, (cost, use) in enumerate(rows)]
    sets = chain.from_iterable(combinations(rows, count) for count in range(len(rows) + 1))
    best = max(sum(cost for cost, _ in chosen) for chosen in sets if sum(use for _, use in chosen) <= slots)
    bound = together(*pool(parts, slots))["memory"]
    assert best <= bound <= sum(cost for cost, _ in rows)


def test_a_device_with_the_costs_of_both_releases_counts_once() -> None:
    newer = {"cpu": {"mapping": {"capacityKey": "cpus", "capacityMultiplier": "1"}}}
    assert together(slice_of(grp(size="8", nodeAllocatableResources=newer))) == {"cpu": 8}
