from datetime import UTC, datetime

import pytest

from tests.ledger.builders import allocated, container, device, entry, new, node, old, pod, result, slice_of, world
from webhook.kube.node_ledger import BookedCharge, NodeLedger, Reservation
from webhook.ledger.book import Book
from webhook.ledger.explained import explained, find

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
OBJECTS = [
    node("n1", cpu="16"),
    slice_of(
        device("grp", old("2", key="cpus"), capacity={"cpus": "16"}, zone=0),
        device("gpu", old("4")),
        device("nic"),
    ),
    allocated("c", result("grp", consumed={"cpus": "3"}), result("gpu", request="g"), pods=("p1",)),
    pod("p1", container(cpu="2", claims=("c",)), claims=("c",), entries=[entry("c", cpu="10")]),
]


def said(subject, *objects, minor=36, ledgers=()):
    snapshot = world(*(objects or OBJECTS), minor=minor)
    for ledger in ledgers:
        snapshot = snapshot.with_ledger(ledger)
    (one,) = find(snapshot, subject)
    return explained(Book(), snapshot, one, NOW)


def booked(claim="c", amount=3, allocation="2026-01-01T00:00:00Z", device_name="grp", **more):
    texts = {
        "digest": "sha256:old",
        "formula": "3 \N{MULTIPLICATION SIGN} 1",
        "since": allocation,
        "slice": "s0",
        "resource_version": "5",
    }
    return BookedCharge(
        f"uid-{claim}", allocation, "r", "d.example", "n1", device_name, "", "cpu", "ns", claim,
        slice_uid="u", generation=1, amount=amount, zone=None, **(texts | more),
    )  # fmt: skip


def test_a_claim_has_every_charge_with_its_reason_formula_mapping_and_life():
    value = said("ns/c")
    assert (value["kind"], value["state"], value["reason"]) == ("claim", "bound", "")
    one, other = value["charges"]
    assert (one["amount"], one["formula"], one["zone"], one["node"]) == ("6", "3 \N{MULTIPLICATION SIGN} 2", 0, "n1")
    assert one["reason"] == (
        "request r got device grp of pool n1; slice s1: 2 cpu for each unit of its capacity cpus, "
        "of which the claim consumes 3"
    )
    assert one["mapping"]["slice"] == "s1"
    assert one["mapping"]["digest"].startswith("sha256:")
    assert one["zoneReason"] == "its device is of zone 0"
    assert one["stateReason"] == "a pod uses its claim on the node; it goes with the allocation"
    assert other["reason"] == "request g got device gpu of pool n1; slice s1: 4 cpu for an allocation of it"
    assert other["zoneReason"] == "its device is of no one known zone: on the account of the node alone"
    (pod_of,) = value["pods"]
    assert (pod_of["name"], pod_of["status"]["amounts"]) == ("p1", {"cpu": "10"})


def test_an_uid_and_a_name_mean_the_same():
    assert said("uid-c") == said("claim/ns/c") == said("ns/c")
    assert said("u1") == said("n1") == said("node/n1")


def test_a_name_of_two_objects_is_both_of_them():
    snapshot = world(*OBJECTS, pod("c", container()))
    assert find(snapshot, "ns/c") == [("claim", "ns", "c"), ("pod", "ns", "c")]
    assert find(snapshot, "pod/ns/c") == [("pod", "ns", "c")]
    assert find(snapshot, "ns/d") == find(snapshot, "") == find(snapshot, "claim/") == []


def test_a_claim_that_is_not_allocated():
    waiting = allocated("c")
    del waiting["status"]
    value = said("ns/c", node(), waiting)
    assert (value["state"], value["allocation"], value["charges"]) == ("unallocated", None, [])
    assert value["reason"] == "it has no allocation"


@pytest.mark.parametrize(
    ("results", "objects", "reason"),
    [
        ([result("nic")], OBJECTS[:2], "none of its devices costs a node anything by a mapping"),
        ([result("gone")], OBJECTS[:2], "its devices are in no slice, and no ledger has booked them"),
        ([result("gpu")], OBJECTS[1:2], "node n1 is not known"),
    ],
)
def test_why_nothing_is_charged(results, objects, reason):
    assert said("ns/c", *objects, allocated("c", *results))["reason"] == reason


def test_a_claim_allocated_and_not_used_yet():
    value = said("ns/c", *OBJECTS[:2], allocated("c", result("gpu")))
    assert value["state"] == "allocated"
    assert "no pod uses it on the node yet" in value["charges"][0]["stateReason"]


def test_what_was_booked_by_another_mapping_says_so():
    value = said(
        "ns/c", *OBJECTS[:2], allocated("c", {**result("grp", consumed={"cpus": "3"}), "shareID": ""}),
        ledgers=[NodeLedger("n1", "u1", charges=(booked(),))],
    )  # fmt: skip
    (charge,) = value["charges"]
    assert charge["amount"] == "3"
    assert charge["reason"] == (
        "request r got device grp of pool n1; booked by version 5 of slice s0, since when its mapping has changed"
    )
    assert [each["rule"] for each in value["differences"]] == ["mapping-changed"]


def test_what_was_booked_outlives_its_slice():
    value = said(
        "ns/c", OBJECTS[0], allocated("c", result("grp")), ledgers=[NodeLedger("n1", "u1", charges=(booked(),))]
    )
    (charge,) = value["charges"]
    assert charge["reason"] == "request r got device grp of pool n1; booked by version 5 of slice s0"


def test_what_outlives_its_slice_is_bound_where_its_pod_runs_without_an_entry():
    """No charge is computed here: neither a slice nor the pod's status gives one."""
    objects = OBJECTS[0], allocated("c", result("grp"), pods=("p",)), pod("p", container(claims=("c",)), claims=("c",))
    value = said("ns/c", *objects, ledgers=[NodeLedger("n1", "u1", charges=(booked(),))])
    (charge,) = value["charges"]
    assert (charge["amount"], value["state"]) == ("3", "bound")


def test_a_claim_that_only_the_ledger_knows_any_more():
    value = said("ns/lost", *OBJECTS, ledgers=[NodeLedger("n1", "u1", charges=(booked("lost"),))])
    assert (value["known"], value["allocation"], value["uid"]) == (False, None, "uid-lost")
    assert [charge["amount"] for charge in value["charges"]] == ["3"]


def test_a_reservation_is_told_with_who_took_it():
    waiting = allocated("c")
    del waiting["status"]
    held = Reservation(
        "uid-c", "2026-11-30T11:59:59Z", "ns", "c", "uid-p1", "ns", "p1",
        (booked(allocation="2026-11-30T11:59:59Z"),), {"cpu": 2}, {}, "2026-11-30T12:00:00Z", "replica-1",
    )  # fmt: skip
    value = said("ns/c", *OBJECTS[:2], waiting, ledgers=[NodeLedger("n1", "u1", reservations=(held,))])
    assert value["state"] == "reserved"
    assert "was admitted and is not seen yet" in value["charges"][0]["stateReason"]
    assert value["reservations"] == [
        {
            "node": "n1", "allocation": "2026-11-30T11:59:59Z", "pod": "ns/p1", "podRequest": {"cpu": "2"},
            "siblings": {}, "taken": "2026-11-30T12:00:00Z", "holder": "replica-1",
            "over": False,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(("seen", "node_name", "over"), [(True, "n1", True), (True, "", False), (False, "n1", False)])
def test_a_reservation_is_over_when_its_claim_and_its_pod_are_seen(seen, node_name, over):
    claim = allocated("c", pods=("p1",))
    user = pod("p1", container(claims=("c",)), claims=("c",), node_name=node_name)
    held = Reservation(
        "uid-c", "2026-11-30T11:59:59Z", "ns", "c", "uid-p1", "ns", "p1", (), {"cpu": 2}, {},
        "2026-11-30T12:00:00Z", "a", seen=seen,
    )  # fmt: skip
    value = said("ns/c", *OBJECTS[:2], claim, user, ledgers=[NodeLedger("n1", "u1", reservations=(held,))])
    assert [each["over"] for each in value["reservations"]] == [over]


def test_a_pod_has_its_own_request_and_its_claims():
    value = said("pod/ns/p1")
    assert (value["state"], value["node"]) == ("charged", "n1")
    assert value["requests"] == {"cpu": {"pods": "2", "overhead": "0", "reason": "containers 2"}}
    assert [charge["amount"] for charge in value["claims"][0]["charges"]] == ["6", "4"]
    assert value["status"][0]["amounts"] == {"cpu": "10"}


def test_a_pod_level_request_is_told_with_what_it_covers():
    made = pod("p1", container(cpu="8"), resources={"requests": {"cpu": "11"}}, overhead={"cpu": "1"})
    assert said("ns/p1", node(), made)["requests"]["cpu"]["reason"] == (
        "containers 8, pod-level request 11 with all that its claims cost, overhead of its runtime class 1"
    )


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (pod("p1", container(cpu="1"), phase="Succeeded"), "it has ended"),
        (pod("p1", container(cpu="1"), node_name=""), "it has no node yet"),
        (pod("p1", container(cpu="1"), node_name="n9"), "its node n9 is not known"),
    ],
)
def test_a_pod_that_is_not_charged(made, reason):
    value = said("ns/p1", node(), made)
    assert (value["state"], value["reason"], value["requests"]) == ("uncharged", reason, {})


def test_overhead_of_137_is_told_by_pod():
    objects = [
        node(),
        slice_of(device("grp", new("cpu", {"deviceMultiplier": "2"}, {"perPod": "1", "perContainer": "500m"}))),
        allocated("c", result("grp"), pods=("p1",)),
        pod("p1", container(cpu="1", claims=("c",)), claims=("c",)),
    ]
    (pod_of,) = said("ns/c", *objects, minor=37)["pods"]
    assert (pod_of["overhead"], pod_of["status"]) == ({"cpu": "1500m"}, None)
    assert said("pod/ns/p1", *objects, minor=37)["requests"]["cpu"]["overhead"] == "1500m"


def test_a_node_has_its_sums_charges_and_pods():
    value = said("n1")
    assert value["sums"]["cpu"] == "16 allocatable - 2 pods - 10 claims - 0 overhead - 0 reserved = 4"
    assert [(charge["claim"]["name"], charge["amount"]) for charge in value["charges"]] == [("c", "6"), ("c", "4")]
    assert all(charge["reason"] for charge in value["charges"])
    assert [(each["name"], each["requests"]["cpu"]["pods"]) for each in value["pods"]] == [("p1", "2")]
    assert value["resources"]["cpu"]["free"] == "4"
