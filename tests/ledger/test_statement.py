import copy

import pytest

from tests.ledger.builders import allocated, container, device, entry, node, old, pod, result, slice_of, world
from webhook.ledger.book import Book
from webhook.ledger.statement import compared, statement

NAMES = ("as recorded", "here")
OBJECTS = [
    node("n1", cpu="16"),
    slice_of(device("grp", old(key="cpus"), capacity={"cpus": "16"}, zone=0)),
    allocated("c", result("grp", consumed={"cpus": "3"}), pods=("p1",)),
    pod("p1", container(cpu="2", claims=("c",)), claims=("c",), entries=[entry("c", cpu="3")]),
]


def said(*changes):
    return statement(Book(), world(*OBJECTS, *changes))


def test_it_has_accounts_charges_and_what_pod_statuses_book():
    value = said()
    (n1,), (p1,) = value["nodes"], value["pods"]
    assert n1["resources"]["cpu"]["free"] == "11"
    assert n1["zones"][0]["resources"]["cpu"] == {"capacity": "16", "claims": "3", "reserved": "0", "free": "13"}
    assert [charge["amount"] for charge in n1["charges"]] == ["3"]
    assert p1 == {
        "namespace": "ns", "name": "p1", "uid": "uid-p1", "node": "n1",
        "entries": [{"claim": "c", "containers": ["main"], "amounts": {"cpu": "3"}, "perPod": {}, "perContainer": {}}],
    }  # fmt: skip


def test_equal_statements_have_no_difference():
    assert compared(said(), said(), NAMES) == []


def found(one, other):
    return [
        (each.category, each.kind, f"{each.namespace}/{each.name}", each.finding.rule, each.finding.path)
        for each in compared(one, other, NAMES)
    ]


def test_another_amount_differs_in_node_zone_and_charge():
    other = said(allocated("c", result("grp", consumed={"cpus": "5"}), pods=("p1",)))
    assert found(said(), other) == [
        ("amount", "Node", "/n1", "node-account-differs", "resources[cpu].claims"),
        ("amount", "Node", "/n1", "node-account-differs", "resources[cpu].free"),
        ("amount", "Node", "/n1", "zone-account-differs", "zones[0].resources[cpu].claims"),
        ("amount", "Node", "/n1", "zone-account-differs", "zones[0].resources[cpu].free"),
        ("amount", "ResourceClaim", "ns/c", "charge-differs", "charges[cpu of d.example/n1/grp].amount"),
        ("amount", "ResourceClaim", "ns/c", "charge-differs", "charges[cpu of d.example/n1/grp].formula"),
    ]
    assert compared(said(), other, NAMES)[0].finding.message == "has 5 here, needs 3 as recorded"


def test_another_pod_status_differs():
    other = said(pod("p1", container(cpu="2", claims=("c",)), claims=("c",), entries=[entry("c", cpu="4")]))
    assert ("pod-status", "Pod", "ns/p1", "pod-status-differs", "entries[0].amounts[cpu]") in found(said(), other)


def test_the_mapping_version_and_zone_of_a_charge_count():
    again = slice_of(device("grp", old(key="cpus"), capacity={"cpus": "16"}, zone=1))
    again["metadata"]["resourceVersion"] = "7"
    paths = [path for *_, path in found(said(), said(again))]
    assert "charges[cpu of d.example/n1/grp].zone" in paths
    assert "charges[cpu of d.example/n1/grp].mapping.resourceVersion" in paths


@pytest.mark.parametrize(
    ("gone", "rules"),
    [
        ("nodes", [("missing", "node-account-missing")]),
        ("pods", [("missing", "pod-status-missing")]),
        ("charges", [("missing", "charge-missing")]),
    ],
)
def test_what_is_on_one_side_only(gone, rules):
    less = copy.deepcopy(said())
    (less["nodes"][0] if gone == "charges" else less)[gone] = []
    differences = compared(said(), less, NAMES)
    assert [(each.category, each.finding.rule) for each in differences] == rules
    assert differences[0].finding.needs == "the one as recorded"
    (back,) = compared(less, said(), NAMES)
    assert (back.category, back.finding.rule) == ("surplus", rules[0][1].replace("missing", "surplus"))
    assert back.finding.message.endswith("here, needs none as recorded")


@pytest.mark.parametrize("junk", [{}, {"nodes": 7}, {"nodes": [3], "pods": [None]}, {"nodes": [{"resources": []}]}])
def test_junk_is_compared_as_what_it_lacks(junk):
    assert compared(said(), junk, NAMES)
    compared(junk, junk, NAMES)
