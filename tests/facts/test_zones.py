from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.builders import DRIVER, device, new, node, old, slice_of, world
from webhook.facts.zones import device_zone, device_zones, zone_capacities
from webhook.kube.resource import read_device
from webhook.kube.rollout import DriverRollout

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("attributes", "zones"),
    [
        ({"resource.kubernetes.io/numaNode": {"int": 1}}, (1,)),
        ({"resource.kubernetes.io/numaNode": {"ints": [2, 3]}}, (2, 3)),
        ({"resource.kubernetes.io/numaNode": {"ints": [4]}}, (4,)),
        ({"resource.kubernetes.io/numaNode": {"int": -1}}, ()),
        ({"resource.kubernetes.io/numaNode": {"ints": []}}, ()),
        ({"resource.kubernetes.io/numaNode": {"int": True}}, ()),
        ({"resource.kubernetes.io/numaNode": 3}, ()),
        ({"numaNode": {"int": 5}}, (5,)),
        ({f"{DRIVER}/numaNode": {"int": 6}}, (6,)),
        ({"dra.cpu/numaNodeID": {"int": 7}}, (7,)),
        ({"dra.net/numaNode": {"int": 8}}, (8,)),
        ({"numa": {"int": 9}}, (9,)),
        ({"other.example/numaNode": {"int": 1}}, ()),
        ({}, ()),
        ({"resource.kubernetes.io/numaNode": {"int": 18}}, (18,)),
    ],
)
def test_the_zone_of_a_device(attributes: Json, zones: tuple[int, ...]) -> None:
    made = read_device({"name": "a", "attributes": attributes})
    assert device_zones(made, DRIVER, None) == zones
    assert device_zone(made, DRIVER, None) == (zones[0] if len(zones) == 1 else None)


def test_configured_names_come_first_and_the_first_one_present_wins() -> None:
    rollout = DriverRollout(DRIVER, numa_attributes=("x.example/z", "x.example/y"))
    fields = {"x.example/y": {"int": 1}, "resource.kubernetes.io/numaNode": {"int": 0}}
    assert device_zone(read_device({"name": "a", "attributes": fields}), DRIVER, rollout) == 1
    none = {**fields, "x.example/z": {"int": -1}}
    assert device_zone(read_device({"name": "a", "attributes": none}), DRIVER, rollout) is None


def zone_devices(per_zone: str = "8", zones: int = 2, **more: Any) -> list[Json]:
    cost = old("1", "cpus")
    return [device(f"g{zone}", cost, capacity={"cpus": per_zone}, zone=zone, **more) for zone in range(zones)]


def test_a_driver_that_describes_the_node_tells_its_zones() -> None:
    assert zone_capacities("n1", world(node(cpu="16"), slice_of(*zone_devices()))) == {0: {"cpu": 8}, 1: {"cpu": 8}}


@pytest.mark.parametrize(
    "devices",
    [
        zone_devices("7"),
        zone_devices(zones=1),
        zone_devices(allowMultipleAllocations=False),
        [device("g", old("16"), zone=0, allowMultipleAllocations=True)],
        [device("g", old("16"))],
        [device("g", capacity={"cpus": "16"}, zone=0)],
    ],
    ids=["too little", "half", "key without consumption", "shared without key", "no zone", "no mapping"],
)
def test_drivers_that_do_not_describe_the_node(devices: list[Json]) -> None:
    assert zone_capacities("n1", world(node(cpu="16"), slice_of(*devices))) == {}


def test_of_two_drivers_the_larger_figure_counts_never_the_sum() -> None:
    other = slice_of(*zone_devices("9"), name="s2", driver="e.example")
    half = slice_of(device("x", old("4"), zone=1), name="s3", driver="f.example")
    snapshot = world(node(cpu="16"), slice_of(*zone_devices()), other, half)
    assert zone_capacities("n1", snapshot) == {0: {"cpu": 9}, 1: {"cpu": 9}}


def test_devices_that_exclude_each_other_are_not_summed() -> None:
    def part(name: str, gib: int) -> Json:
        drawn = [{"counterSet": "set", "counters": {"memory": {"value": f"{gib}Gi"}}}]
        return device(name, old(f"{gib}Gi", resource="memory"), zone=0, consumesCounters=drawn)

    counters = slice_of(name="s0", count=2)
    counters["spec"]["sharedCounters"] = [{"name": "set", "counters": {"memory": {"value": "8Gi"}}}]
    parts = slice_of(part("full", 8), part("half-a", 4), part("half-b", 4), count=2)
    snapshot = world(node(memory="8Gi"), counters, parts)
    assert zone_capacities("n1", snapshot) == {0: {"memory": 8 * 2**30}}


def test_old_generations_tell_nothing() -> None:
    stale = slice_of(*zone_devices("12"), name="s0")
    snapshot = world(node(cpu="16"), stale, slice_of(*zone_devices(), generation=2))
    assert zone_capacities("n1", snapshot) == {0: {"cpu": 8}, 1: {"cpu": 8}}


def test_a_node_resource_topology_goes_before_every_driver() -> None:
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "zones": [{"name": "node-3", "type": "Node", "resources": [{"name": "cpu", "allocatable": "5"}]}],
    }
    assert zone_capacities("n1", world(node(cpu="16"), slice_of(*zone_devices()), topology)) == {3: {"cpu": 5}}


def test_a_device_with_both_releases_costs_describes_its_zone_by_the_dearer_one() -> None:
    devices = [device(f"d{zone}", old("8"), new(mapping={"deviceMultiplier": "6"}), zone=zone) for zone in (0, 1)]
    assert zone_capacities("n1", world(node(cpu="16"), slice_of(*devices))) == {0: {"cpu": 8}, 1: {"cpu": 8}}
