"""Node selectors, and where slices and devices apply."""

import pytest

from tests.facts.builders import gpu, node, slice_of, world
from webhook.facts.matching import device_applies, node_selected, slice_applies, target_nodes
from webhook.kube.core import read_node
from webhook.kube.resource import read_slice

NODE = read_node(node("n1", labels={"zone": "a", "size": "8"}))


def terms(*rows):
    return {"nodeSelectorTerms": list(rows)}


def labels(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (terms(labels("zone", "In", "a", "b")), True),
        (terms(labels("zone", "In", "b")), False),
        (terms(labels("zone", "In", "b"), labels("size", "Gt", "7")), True),
        (terms(labels("size", "Gt", "8")), False),
        (terms(labels("size", "Lt", "9")), True),
        (terms(labels("zone", "Gt", "1")), False),
        (terms(labels("zone", "NotIn", "b")), True),
        (terms(labels("rack", "NotIn", "b")), True),
        (terms(labels("zone", "Exists")), True),
        (terms(labels("zone", "DoesNotExist")), False),
        (terms({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}), True),
        (terms({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}), False),
        (terms({**labels("zone", "In", "a"), "matchFields": [{"key": "metadata.name", "operator": "In"}]}), False),
        (terms({}), False),
        (terms(), False),
        ({}, False),
        (None, False),
        (terms(labels("zone", "Within", "a")), False),
        (terms({"matchExpressions": "zone"}), False),
        (terms({"matchExpressions": [7]}), False),
        (terms({"matchExpressions": [{"key": 7, "operator": "Exists"}]}), False),
        (terms(labels("size", "Gt", "x")), False),
        (terms(labels("size", "Gt", "1", "2")), False),
        (terms(7, None, labels("zone", "Exists")), True),
    ],
)
def test_a_node_selector_matches_by_any_of_its_terms(selector, expected):
    assert node_selected(selector, NODE) is expected


def applies(obj, name="n1", *objs):
    return slice_applies(read_slice(obj), name, world(*objs))


def test_a_slice_applies_to_the_node_it_names():
    assert applies(slice_of()) is True
    assert applies(slice_of(), "n2") is False


def test_all_nodes_and_labels():
    assert applies(slice_of(where="", pool="p", allNodes=True)) is True
    chosen = slice_of(where="", pool="p", nodeSelector=terms(labels("zone", "In", "a")))
    assert applies(chosen, "n1", node(labels={"zone": "a"})) is True
    assert applies(chosen, "n1", node(labels={"zone": "b"})) is False
    assert applies(chosen) is None


def test_counters_are_seen_from_everywhere():
    assert applies(slice_of(sharedCounters=[{"name": "s", "counters": {}}]), "n2") is True


def test_a_slice_of_no_node_at_all_applies_nowhere():
    assert applies(slice_of(where="", pool="p")) is False


def test_devices_with_nodes_of_their_own():
    obj = read_slice(
        slice_of(gpu("a", nodeName="n1"), gpu("b", allNodes=True), where="", pool="p", perDeviceNodeSelection=True)
    )
    snapshot = world()
    assert [device_applies(obj, device, "n2", snapshot) for device in obj.devices] == [False, True]
    assert slice_applies(obj, "n2", snapshot) is True
    alone = read_slice(slice_of(gpu("a", nodeName="n1"), where="", pool="p", perDeviceNodeSelection=True))
    assert slice_applies(alone, "n2", snapshot) is False


def test_target_nodes_are_the_known_ones():
    snapshot = world(node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"}))

    def names(name="", **nodes):
        return sorted(found.name for found in target_nodes(name, nodes, snapshot))

    assert names("n1") == ["n1"]
    assert names("n9") == []
    assert names(allNodes=True) == ["n1", "n2"]
    assert names(nodeSelector=terms(labels("zone", "In", "b"))) == ["n2"]
    assert names() == []
