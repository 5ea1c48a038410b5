from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.builders import allocated, container, device, node, old, pod, result, slice_of, world
from webhook.ledger.book import Book
from webhook.ledger.inventory import inventory

Json = dict[str, Any]

GROUP = device("grp", old("1", "cpus"), capacity={"cpus": "15"})
ALL = allocated("c", result(consumed={"cpus": "15"}), pods=("p1",))
USER = pod("p1", container(claims=("c",)), claims=("c",))
SHARES = pod("p2", container(cpu="500m"))


def found(*objs: Json, minor: int = 36) -> list[tuple[str, str, str]]:
    snapshot = world(*objs, minor=minor)
    made = inventory("n1", Book().charges(snapshot, "n1"), snapshot)
    assert {(each.kind, each.name) for each in made} <= {("Node", "n1")}
    return [(each.finding.rule, each.finding.severity, each.finding.has) for each in made]


def test_a_driver_that_publishes_less_than_there_is() -> None:
    note = "16 cpu, of which d.example publishes 15"
    assert found(node(), slice_of(GROUP)) == [("published-below-allocatable", "info", note)]
    assert found(node(), slice_of(GROUP), ALL, USER) == [("published-below-allocatable", "info", note)]
    assert found(node(), slice_of(GROUP), SHARES) == [("published-below-allocatable", "info", note)]


def test_that_claims_have_all_of_it_beside_pods_that_share_is_a_warning() -> None:
    ((_, severity, has),) = found(node(), slice_of(GROUP), ALL, USER, SHARES)
    assert severity == "warning"
    assert has.endswith("claims have all of these, and pods that ask for cpu themselves none (ns/p2)")
    ended = pod("p2", container(cpu="500m"), phase="Succeeded")
    assert [each[1] for each in found(node(), slice_of(GROUP), ALL, USER, ended)] == ["info"]


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        ([device(f"cpu{n}", old("1")) for n in range(15)], True),
        ([device(f"cpu{n}", old("1")) for n in range(16)], False),
        ([device(f"cpu{n}", old("1")) for n in range(17)], False),
        # Half of the CPUs, and less: these devices are something else, and cost CPUs.
        ([device(f"gpu{n}", old("2")) for n in range(4)], False),
        ([device("grp", old("1", "memory", "memory"), capacity={"memory": "60Gi"})], False),
        ([device("nic")], False),
    ],
)
def test_which_drivers_give_away_the_cpus_of_the_node(devices: list[Json], told: bool) -> None:
    rules = [rule for rule, _, _ in found(node(), slice_of(*devices))]
    assert rules == (["published-below-allocatable"] if told else [])


def test_of_two_generations_the_newer_one_counts() -> None:
    full = slice_of(device("grp", old("1", "cpus"), capacity={"cpus": "16"}), name="s2", generation=2)
    assert found(node(), slice_of(GROUP), full) == []


def test_drivers_are_not_summed() -> None:
    other = slice_of(device("grp", old("1", "cpus"), capacity={"cpus": "1"}), name="s2", driver="e.example", pool="e")
    assert [rule for rule, _, _ in found(node(), slice_of(GROUP), other)] == ["published-below-allocatable"]


@pytest.mark.parametrize(
    ("plugin", "driver", "told"),
    [
        ("d.example/gpu", "d.example", True),
        ("d.example/gpu", "gpu.d.example", True),
        ("d.example/gpu", "gpud.example", False),
        ("d.example/gpu", "example", False),
        ("e.example/gpu", "d.example", False),
        ("cpu", "cpu", False),
    ],
)
def test_a_device_plugin_with_as_many_devices(plugin: str, driver: str, told: bool) -> None:
    gpus = slice_of(device("gpu0"), device("gpu1"), driver=driver)
    known = node(**{plugin: "2"})
    rules = [rule for rule, _, _ in found(known, gpus)]
    assert rules == (["double-inventory"] if told else [])
    assert found(node(**{plugin: "3"}), gpus) == []


def test_a_node_that_is_not_there_has_none() -> None:
    assert inventory("n9", (), world()) == []
