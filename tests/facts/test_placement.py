from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.builders import allocated, claim_in, container, device, node, old, pod, result, slice_of, world
from webhook.facts import pool_survey
from webhook.facts.placement import claim_node, consumers, find_device, moved, namesakes, roams

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("objs", "where"),
    [
        ([slice_of(device("grp"))], "n1"),
        ([slice_of(device("grp"), pool="n1", perDeviceNodeSelection=True)], ""),
        ([slice_of(device("grp", nodeName="n3"), perDeviceNodeSelection=True)], "n3"),
        ([slice_of(device("grp")), slice_of(device("grp"), name="s2", nodeName="n2")], ""),
        ([], ""),
    ],
    ids=["slice", "any", "device", "two nodes", "none"],
)
def test_the_node_of_an_allocation_without_node_selector(objs: list[Json], where: str) -> None:
    snapshot = world(*objs, allocated("c", result(), node_name=""))
    assert claim_node(claim_in(snapshot, "c"), snapshot) == where


def test_the_node_selector_goes_before_everything() -> None:
    snapshot = world(slice_of(device("grp")), allocated("c", result(), node_name="n7"))
    assert claim_node(claim_in(snapshot, "c"), snapshot) == "n7"


def test_the_pods_tell_where_devices_do_not() -> None:
    bound = pod("p1", container(claims=("c",)), claims=("c",), node_name="n4")
    snapshot = world(
        slice_of(device("grp"), allNodes=True), allocated("c", result(), pods=("p1",), node_name=""), bound
    )
    assert claim_node(claim_in(snapshot, "c"), snapshot) == "n4"


def test_a_pod_that_a_claim_is_reserved_for_and_that_does_not_name_it_tells_nothing() -> None:
    shelf = slice_of(device("grp"), allNodes=True)
    held = allocated("c", result(), pods=("p1", "p2"), node_name="")
    snapshot = world(shelf, held, pod("p1", node_name="n4"), pod("p2", claims=("c",), node_name="n5"))
    assert claim_node(claim_in(snapshot, "c"), snapshot) == "n5"
    assert [moved(claim_in(snapshot, "c"), name, snapshot) for name in ("n4", "n5")] == [True, False]
    alone = world(shelf, held, pod("p1", node_name="n4"))
    assert claim_node(claim_in(alone, "c"), alone) == ""
    assert not moved(claim_in(alone, "c"), "n5", alone)


def test_pods_are_matched_by_uid_and_by_name_only_without_one() -> None:
    other = pod("p1", container())
    other["metadata"]["uid"] = "another"
    snapshot = world(allocated("c", result(), pods=("p1",)), other)
    assert consumers(claim_in(snapshot, "c"), snapshot) == []
    del other["metadata"]["uid"]
    snapshot = world(allocated("c", result(), pods=("p1",)), other)
    assert [found.name for found in consumers(claim_in(snapshot, "c"), snapshot)] == ["p1"]


def test_lookup_needs_driver_pool_device_and_node_and_prefers_the_current_generation() -> None:
    snapshot = world(
        node(),
        slice_of(device("grp", old("1")), name="old"),
        slice_of(device("grp", old("2")), name="new", generation=2),
        slice_of(device("grp", old("3")), name="far", generation=9, nodeName="n2"),
        slice_of(device("grp", old("4")), name="other", driver="e.example"),
        slice_of(device("gone"), name="past"),
        allocated("c", result(), result("gone"), result("none")),
    )
    allocation = claim_in(snapshot, "c").allocation
    assert allocation is not None
    found = [find_device(snapshot, one, "n1") for one in allocation.results]
    assert [offer[0].name if offer else None for offer in found] == ["new", "past", None]


def test_slices_for_other_nodes_do_not_apply() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    elsewhere = slice_of(device("grp", old("1")), nodeSelector={"nodeSelectorTerms": [term]})
    snapshot = world(node(), elsewhere, allocated("c", result()))
    allocation = claim_in(snapshot, "c").allocation
    assert allocation is not None
    assert find_device(snapshot, allocation.results[0], "n1") is None
    assert find_device(snapshot, allocation.results[0], "unknown") is not None


def test_namesakes_are_devices_of_other_drivers_on_the_node_with_the_same_pool_and_name() -> None:
    snapshot = world(
        node(),
        slice_of(device("grp"), name="own"),
        slice_of(device("grp"), device("grp", old("2")), device("more"), name="twice", driver="e.example"),
        slice_of(device("grp"), name="pool", driver="e.example", pool="other"),
        slice_of(device("more"), name="device", driver="f.example"),
        slice_of(device("grp"), name="far", driver="f.example", nodeName="n2"),
        allocated("c", result()),
    )
    allocation = claim_in(snapshot, "c").allocation
    assert allocation is not None
    remembered = pool_survey._survey.cache_info()
    found = [(item.name, twin.name, twin.mapped) for item, twin in namesakes(snapshot, allocation.results[0], "n1")]
    assert found == [("twice", "grp", False), ("twice", "grp", True)]
    # In a large cluster they would take the places of the pools that claims are allocated from.
    assert pool_survey._survey.cache_info() == remembered


def test_a_claim_that_roams_has_moved_once_its_pod_is_bound_elsewhere() -> None:
    shelf = slice_of(device("grp"), allNodes=True)
    held = allocated("c", result(), pods=("p1",), node_name="")
    nodes = (node(), node("n2", "u2"), shelf, held)
    on_its_way = pod("p1", claims=("c",), node_name="")
    on_its_way["status"]["nominatedNodeName"] = "n1"
    waiting, there = world(*nodes, on_its_way), world(*nodes, pod("p1", claims=("c",), node_name="n2"))
    assert (claim_node(claim_in(waiting, "c"), waiting), claim_node(claim_in(there, "c"), there)) == ("n1", "n2")
    assert roams(claim_in(there, "c"), there)
    assert [moved(claim_in(each, "c"), name, each) for each in (waiting, there) for name in ("n1", "n2")] == [
        False,
        False,
        True,
        False,
    ]
    local = world(node(), slice_of(device("grp")), held, pod("p1", claims=("c",), node_name="n2"))
    assert not roams(claim_in(local, "c"), local)
    assert not moved(claim_in(local, "c"), "n1", local)


def test_a_consumer_tells_where_a_claim_that_roams_is_and_no_other() -> None:
    shelf = slice_of(device("grp"), allNodes=True)
    both = allocated("c", result(), pods=("p1", "p2"), node_name="")
    snapshot = world(node(), node("n2", "u2"), shelf, both, pod("p1", claims=("c",)), pod("p2", node_name="n2"))
    assert claim_node(claim_in(snapshot, "c"), snapshot) == "n1"
    assert claim_node(claim_in(snapshot, "c"), snapshot, snapshot.pods["ns", "p2"]) == "n2"
    pinned = world(node(), shelf, allocated("c", result(), pods=("p2",)), pod("p2", node_name="n2"))
    assert claim_node(claim_in(pinned, "c"), pinned, pinned.pods["ns", "p2"]) == "n1"
