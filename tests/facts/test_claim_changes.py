"""What a write changes in a claim's status, against the API server's own rules for whom to ask."""

from copy import deepcopy

import pytest

from tests.facts.builders import claim, pod_ref, result
from webhook.facts.claim_changes import Changes, allocated_drivers, allocated_node, claim_changes

NOTHING = Changes(False, False, (), ())
OTHER = "z.example"


def told(device="grp", driver="d.example", share="share-grp", **fields):
    return {"driver": driver, "pool": "n1", "device": device, "shareID": share, **fields}


def both(**fields):
    """A claim with devices of two drivers, and a status of each."""
    obj = claim(results=[result(), result("nic", None, driver=OTHER)], reserved=[pod_ref()])
    obj["status"]["devices"] = [told(data={"a": [1, True, None]}), told("nic", OTHER, "", conditions=[])]
    obj["status"] |= fields
    return obj


def after(*path, value=None, obj=None):
    """``both`` with the member at ``path`` changed, None takes it away."""
    made = deepcopy(obj or both())
    place = made["status"]
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return made


def changes(new, old=None):
    return claim_changes(old or both(), new)


@pytest.mark.parametrize(
    "new",
    [
        both(),
        {**both(), "metadata": {"labels": {"a": "b"}}},
        after("allocation", "devices", "results", 0, "consumedCapacity", value={"cpus": "4000m"}),
        after("allocation", "allocationTimestamp", value="2026-11-20T10:00:00+01:00"),
        after("devices", 1, "conditions"),
        after("devices", 1, "shareID"),
        after("devices", value=list(reversed(both()["status"]["devices"]))),
        after("reservedFor", 0, "apiGroup", value=""),
    ],
)
def test_nothing_changes(new):
    assert changes(new) == NOTHING
    assert changes(both(), new) == NOTHING


def test_empty_is_nothing():
    bare, empty = claim(), {**claim(), "status": {"reservedFor": [], "devices": [], "conditions": None}}
    assert claim_changes(bare, empty) == claim_changes(empty, bare) == claim_changes({}, {}) == NOTHING
    # But to have an allocation of nothing is to be allocated.
    assert claim_changes(bare, {**claim(), "status": {"allocation": {}}}).allocation
    without = {**claim(), "status": {"allocation": {"devices": {}}}}
    assert claim_changes({**claim(), "status": {"allocation": {}}}, without) == NOTHING


@pytest.mark.parametrize(
    "new",
    [
        after("allocation"),
        after("allocation", "nodeSelector"),
        after("allocation", "devices", "results", 0, "device", value="else"),
        after("allocation", "devices", "results", 0, "consumedCapacity", value={"cpus": "5"}),
        after("allocation", "devices", "results", 0, "adminAccess", value=False),
        after("allocation", "allocationTimestamp", value="2026-11-20T09:00:01Z"),
        after(
            "allocation",
            "devices",
            "results",
            value=list(reversed(both()["status"]["allocation"]["devices"]["results"])),
        ),
    ],
)
def test_the_allocation_changes(new):
    assert changes(new).allocation
    assert not changes(new).reserved_for


def test_consumers_change():
    other = [{"resource": "pods", "name": "p2", "uid": "uid-p2"}]
    for new in (
        after("reservedFor"),
        after("reservedFor", value=other),
        after("reservedFor", value=[pod_ref(), *other]),
    ):
        assert changes(new) == Changes(False, True, (), ())
    # The order is in what the API server compares.
    two = both(reservedFor=[pod_ref(), *other])
    assert claim_changes(two, both(reservedFor=[*other, pod_ref()])).reserved_for


@pytest.mark.parametrize(
    ("new", "drivers"),
    [
        (after("devices", 0, "data", value={"a": [1, True]}), ("d.example",)),
        (after("devices", 0, "data", value={"a": [1, 1, None]}), ("d.example",)),
        (after("devices", 0, "data"), ("d.example",)),
        (after("devices", 1, "conditions", value=[{"type": "Ready"}]), (OTHER,)),
        (after("devices", 1, "networkData", value={}), (OTHER,)),
        (after("devices", 1), (OTHER,)),
        (after("devices"), ("d.example", OTHER)),
        (after("devices", 0, "shareID", value="share-2"), ("d.example",)),
        (after("devices", value=[*both()["status"]["devices"], told("more", "m.example")]), ("m.example",)),
    ],
)
def test_statuses_change(new, drivers):
    assert changes(new) == Changes(False, False, drivers, ())


def test_the_form_of_a_blob_is_none_of_its_content():
    """The API server compares bytes, and so refuses whoever writes the same JSON another way."""
    one = after("devices", 0, "data", value={"a": 1, "b": {"c": None}})
    assert changes(after("devices", 0, "data", value={"b": {"c": None}, "a": 1}), one) == NOTHING
    assert changes(after("devices", 0, "data", value={"a": 1, "b": {}}), one).drivers == ("d.example",)
    config = {"source": "FromClaim", "opaque": {"driver": "d.example", "parameters": {"x": 1, "y": []}}}
    stored = after("allocation", "devices", "config", value=[config])
    respelled = deepcopy(stored)
    respelled["status"]["allocation"]["devices"]["config"][0]["opaque"]["parameters"] = {"y": [], "x": 1}
    assert changes(respelled, stored) == NOTHING
    respelled["status"]["allocation"]["devices"]["config"][0]["opaque"]["parameters"] = {"x": 1}
    assert changes(respelled, stored).allocation


def test_what_goes_with_its_allocation_belongs_to_that():
    assert changes({**claim(), "status": {}}) == Changes(True, True, (), ("d.example", OTHER))
    # Not what is told anew in the same write.
    edited = {**claim(), "status": {"devices": [told(data={"a": 2})]}}
    assert changes(edited) == Changes(True, True, ("d.example",), (OTHER,))
    # Nor what was of no device of the allocation.
    stray = both(devices=[told("gone")])
    assert changes({**claim(), "status": {}}, stray) == Changes(True, True, ("d.example",), ())
    # While the allocation stands, who removes a status changes it.
    assert changes(after("devices", 0)).drivers == ("d.example",)


def test_times_and_quantities_that_cannot_be_read_are_compared_as_they_are():
    odd = after("allocation", "allocationTimestamp", value="yesterday")
    assert changes(odd, odd) == NOTHING
    assert changes(after("allocation", "allocationTimestamp", value="today"), odd).allocation
    odd = after("allocation", "devices", "results", 0, "consumedCapacity", value={"cpus": "many"})
    assert changes(odd, odd) == NOTHING
    assert changes(both(), odd).allocation


@pytest.mark.parametrize(
    ("selector", "node"),
    [
        (
            {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]},
            "n1",
        ),
        (
            {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}]}
                ]
            },
            "",
        ),
        (
            {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}]},
            "",
        ),
        (
            {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}
                ]
            },
            "",
        ),
        ({}, ""),
        (None, ""),
    ],
)
def test_the_one_node_of_an_allocation(selector, node):
    assert allocated_node({"status": {"allocation": {"nodeSelector": selector}}}) == node
    assert allocated_node({"status": None}) == ""


def test_the_drivers_of_an_allocation():
    assert allocated_drivers(both()) == {"d.example", OTHER}
    assert allocated_drivers(claim()) == frozenset()
