from collections.abc import Callable
from fractions import Fraction

import pytest

from webhook.kube.resource import (
    FIELD_136,
    Slice,
    carries,
    dearer,
    entry_json,
    node_costs,
    read_device,
    read_entries,
    read_slice,
    stored_slice,
)

OLD = {"name": "d", "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cores", "allocationMultiplier": "2"}}}
NEW = {
    "name": "d",
    "nodeAllocatableResources": {"cpu": {"mapping": {"capacityKey": "cores", "capacityMultiplier": "2000m"}}},
}


def test_both_releases_ways_of_writing_one_formula_have_one_digest() -> None:
    assert read_device(OLD).digest == read_device(NEW).digest
    assert read_device(OLD).digest.startswith("sha256:")


def test_the_digest_has_no_names_and_no_capacities() -> None:
    other = {**OLD, "name": "e", "capacity": {"cores": {"value": "8"}}}
    assert read_device(other).digest == read_device(OLD).digest


def test_another_multiplier_is_another_digest() -> None:
    other = {"name": "d", "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cores"}}}
    assert read_device(other).digest != read_device(OLD).digest


def test_a_missing_multiplier_of_1_36_is_the_servers_default_1() -> None:
    costs, shape = node_costs({"nodeAllocatableResourceMappings": {"memory": {}}})
    assert (costs[0].multiplier, costs[0].capacity_key, shape) == (1, None, "1.36")


def test_1_37_overhead_alone_is_no_mapping() -> None:
    device = read_device(
        {"nodeAllocatableResources": {"memory": {"overhead": {"perPod": "1Gi", "perContainer": "500Mi"}}}}
    )
    assert not device.mapped
    assert (device.costs[0].per_pod, device.costs[0].per_container) == (2**30, 500 * 2**20)
    assert device.digest


def test_v1beta1_keeps_device_fields_below_basic() -> None:
    device = read_device({"name": "d", "basic": {k: v for k, v in OLD.items() if k != "name"}})
    assert device.name == "d"
    assert device.costs == read_device(OLD).costs


@pytest.mark.parametrize(
    "field",
    [
        {"nodeAllocatableResourceMappings": [{"resourceName": "cpu"}]},
        {"nodeAllocatableResourceMappings": {"cpu": 2}},
        {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "8 GB"}}},
        {"nodeAllocatableResources": {"cpu": {"mapping": {}}}},
        {"nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "x"}}}},
    ],
)
def test_a_cost_that_cannot_be_read_is_never_taken_for_no_cost(field: dict[str, object]) -> None:
    costs = read_device({"name": "d", **field}).costs
    assert [cost.readable for cost in costs] == [False]


def test_a_device_with_an_integer_beyond_64_bits_keeps_its_costs() -> None:
    device = read_device({**OLD, "attributes": {"a": {"int": 10**30}}})
    assert device.costs == read_device(OLD).costs


def test_both_shapes_on_one_device_are_told() -> None:
    assert read_device({**OLD, **NEW}).shape == "both"


@pytest.mark.parametrize("spec", [None, [], 7, {"devices": 7}, {"devices": [None, 7, []]}, {"pool": [], "driver": 5}])
def test_any_json_gives_a_slice(spec: object) -> None:
    assert not read_slice({"kind": "ResourceSlice", "spec": spec}).mapped


def test_slices_of_equal_devices_have_one_shape() -> None:
    one = stored_slice({"metadata": {"name": "a"}, "spec": {"driver": "d", "devices": [OLD]}})
    two = stored_slice({"metadata": {"name": "b"}, "spec": {"driver": "d", "devices": [dict(reversed(OLD.items()))]}})
    assert one.shape == two.shape
    assert one.shape != stored_slice({"spec": {"driver": "d", "devices": [NEW]}}).shape


@pytest.mark.parametrize("read", [read_slice, stored_slice])
def test_a_slice_has_as_many_devices_of_each_kind_as_there_are(read: Callable[[object], Slice]) -> None:
    other = {**OLD, "name": "c", FIELD_136: {"cpu": {"allocationMultiplier": "3"}}}
    devices = [OLD, {**OLD, "name": "b", "attributes": {"a": {"int": 1}}}, other, {**OLD, "name": "d"}]
    made = read({"spec": {"devices": devices}})
    assert [device.name for device in made.devices] == [device["name"] for device in devices]
    counts: dict[str, int] = {}
    for device, count in made.kinds:
        counts[device.digest] = counts.get(device.digest, 0) + count
    assert counts == {read_device(OLD).digest: 3, read_device(other).digest: 1}


def test_true_and_one_are_two_kinds() -> None:
    devices = [{"name": "a", FIELD_136: {"cpu": {"allocationMultiplier": given}}} for given in (1, True)]
    assert len(list(read_slice({"spec": {"devices": devices}}).kinds)) == 2


def test_devices_that_cannot_be_written_are_a_kind_each() -> None:
    devices = [{"name": name, "capacity": {"c": {"value": 10**30}}} for name in "ab"]
    assert [count for _, count in read_slice({"spec": {"devices": devices}}).kinds] == [1, 1]


def test_entries_of_1_36() -> None:
    (entry,) = read_entries(
        {
            "nodeAllocatableResourceClaimStatuses": [
                {"resourceClaimName": "c1", "containers": ["a", "b"], "resources": {"cpu": "1500m", "memory": "4Gi"}}
            ]
        }
    )
    assert entry.total() == {"cpu": Fraction(3, 2), "memory": 4 * 2**30}


def test_entries_of_1_37_multiply_the_container_overhead() -> None:
    (entry,) = read_entries(
        {
            "nodeAllocatableResourceClaimStatuses": [
                {
                    "resourceClaimName": "c1",
                    "containers": ["a", "b"],
                    "mapping": [{"name": "cpu", "quantity": "6"}],
                    "overhead": [{"name": "memory", "perPod": "4Gi", "perContainer": "256Mi"}],
                }
            ]
        }
    )
    assert entry.total() == {"cpu": 6, "memory": 4608 * 2**20}


def test_a_container_listed_twice_counts_once() -> None:
    (entry,) = read_entries(
        {
            "nodeAllocatableResourceClaimStatuses": [
                {"resourceClaimName": "c", "containers": ["m", "m"], "overhead": [{"name": "cpu", "perContainer": "1"}]}
            ]
        }
    )
    assert entry.total() == {"cpu": 1}


HALF = Fraction(1, 2)
OVERHEAD = {"nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "1"}}}}


@pytest.mark.parametrize(
    ("device", "before", "after"),
    [
        (OLD, 2, 6),
        (NEW, 2, 6),
        ({"nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cores"}}}, 1, 3),
        (
            {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "500m"}}}},
            Fraction(1, 2),
            Fraction(3, 2),
        ),
        ({"name": "d", "basic": {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "4"}}}}, 4, 12),
    ],
)
def test_a_dearer_device_is_so_in_its_own_shape(device: dict[str, object], before: object, after: object) -> None:
    made = dearer(device, 3)
    one, other = read_device(device), read_device(made)
    assert ([cost.multiplier for cost in one.costs], [cost.multiplier for cost in other.costs]) == ([before], [after])
    assert (other.shape, other.costs[0].capacity_key) == (one.shape, one.costs[0].capacity_key)
    assert one.digest != other.digest
    assert dearer(device, 1) != made


def test_what_is_no_mapping_or_cannot_be_read_is_not_made_dearer() -> None:
    unreadable = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "many"}, "memory": []}}
    for device in (OVERHEAD, {"name": "d"}, {"nodeAllocatableResourceMappings": "x"}):
        assert dearer(device, 3) == device
    assert dearer(unreadable, 3) == unreadable


@pytest.mark.parametrize("minor", [36, 37])
def test_an_entry_that_is_written_is_read_again(minor: int) -> None:
    amounts = {"cpu": Fraction(3, 2), "memory": 2**30}
    row = entry_json("c", ["main"], amounts, minor)
    (read,) = read_entries({"nodeAllocatableResourceClaimStatuses": [row]})
    assert (read.claim, read.containers, read.amounts, read.readable) == ("c", ("main",), amounts, True)
    assert carries([{"kind": "Pod", "status": {"nodeAllocatableResourceClaimStatuses": [row]}}]) == {f"1.{minor}"}


def test_carries_names_the_shapes_among_objects() -> None:
    slices = [{"kind": "ResourceSlice", "spec": {"devices": [device]}} for device in (OLD, NEW)]
    assert carries(slices[:1]) == {"1.36"}
    assert carries([{"kind": "ResourceSlice", "spec": {**OLD, "devices": []}}]) == {"1.36"}
    assert carries(slices) == {"1.36", "1.37"}
    pod = {"kind": "Pod", "status": {"nodeAllocatableResourceClaimStatuses": [{"mapping": [{"name": "cpu"}]}]}}
    assert carries([pod, None, 7]) == {"1.37"}


def test_a_name_without_json_bytes_has_a_digest_too() -> None:
    costs = {"nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "\ud800"}}}
    assert read_device({"name": "a", **costs}).digest.startswith("sha256:")
