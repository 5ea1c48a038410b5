from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.facts.test_interval import CLASS, asking, cpus
from tests.ledger.builders import allocated, container, device, entry, node, old, pod, pod_in, result, slice_of, world
from webhook.kube.core import read_pod
from webhook.ledger.book import Book
from webhook.ledger.views import fit_view, show

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, 0, 0, 12, tzinfo=UTC)

DEVICES = [device(f"g{zone}", old("1", "cpus"), capacity={"cpus": "8"}, zone=zone) for zone in (0, 1)]


def cluster() -> list[Json]:
    offered = slice_of(*DEVICES)
    offered["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return [
        node("n2", "u2", cpu="4"),
        node("n1", "u1", cpu="16", memory="64Gi"),
        offered,
        allocated("c", result("g1", {"cpus": "3"}), pods=("p1",)),
        pod("p1", container(cpu="1", memory="512Mi", claims=("c",)), claims=("c",), entries=[entry("c", cpu="3")]),
    ]


def test_show_is_the_documented_shape() -> None:
    shown = show(Book(), world(*cluster()), NOW)
    digest = shown["nodes"][0]["charges"][0]["mapping"].pop("digest")
    assert digest.startswith("sha256:")
    assert shown == {
        "at": "2026-01-01T00:00:12Z",
        "nodes": [
            {
                "node": "n1",
                "uid": "u1",
                "resources": {
                    "cpu": {
                        "allocatable": "16",
                        "pods": "1",
                        "claims": "3",
                        "overhead": "0",
                        "reserved": "0",
                        "free": "12",
                    },
                    "memory": {
                        "allocatable": "64Gi",
                        "pods": "512Mi",
                        "claims": "0",
                        "overhead": "0",
                        "reserved": "0",
                        "free": "65024Mi",
                    },
                },
                "zones": [
                    {"zone": 0, "resources": {"cpu": {"capacity": "8", "claims": "0", "reserved": "0", "free": "8"}}},
                    {"zone": 1, "resources": {"cpu": {"capacity": "8", "claims": "3", "reserved": "0", "free": "5"}}},
                ],
                "charges": [
                    {
                        "key": {
                            "claimUID": "uid-c",
                            "allocation": "2026-01-01T00:00:00Z",
                            "request": "r",
                            "driver": "d.example",
                            "pool": "n1",
                            "device": "g1",
                            "shareID": "share-g1-r",
                        },
                        "claim": {"namespace": "ns", "name": "c"},
                        "pods": ["ns/p1"],
                        "mapping": {"slice": "s1", "sliceUID": "uid-s1", "generation": 1, "resourceVersion": "1"},
                        "resource": "cpu",
                        "amount": "3",
                        "unit": "cores",
                        "zone": 1,
                        "formula": "3 \N{MULTIPLICATION SIGN} 1",
                        "state": "bound",
                        "since": "2026-01-01T00:00:00Z",
                    }
                ],
                "pools": [{"driver": "d.example", "pool": "n1", "phase": "Fresh", "age": "12s", "reasons": []}],
                "differences": [],
            },
            {
                "node": "n2",
                "uid": "u2",
                "resources": {
                    "cpu": {
                        "allocatable": "4",
                        "pods": "0",
                        "claims": "0",
                        "overhead": "0",
                        "reserved": "0",
                        "free": "4",
                    }
                },
                "zones": [],
                "charges": [],
                "pools": [],
                "differences": [],
            },
        ],
        "differences": [],
    }


def test_what_is_not_known_of_a_zone_is_null_as_the_page_says() -> None:
    """The driver gives away less than the node has: it does not describe it."""
    devices = DEVICES[0], device("anywhere", old("1", "cpus"), capacity={"cpus": "8"})
    (row,) = show(
        Book(),
        world(
            node("n1", cpu="32"),
            slice_of(*devices),
            allocated("a", result("g0", {"cpus": "3"})),
            allocated("b", result("anywhere", {"cpus": "2"})),
        ),
        NOW,
    )["nodes"]
    known = {"claims": "3", "reserved": "0"}
    assert row["zones"] == [{"zone": 0, "resources": {"cpu": {**known, "capacity": None, "free": None}}}]
    assert [charge["zone"] for charge in row["charges"]] == [0, None]
    page = " ".join((Path(__file__).parents[2] / "docs" / "ledger.md").read_text().split())
    assert "in JSON, as in the `NodeLedger`, they are `null`" in page


def test_an_overcommit_is_shown_as_a_negative_amount() -> None:
    shown = show(Book(), world(*cluster(), pod("big", container(cpu="15"))), NOW, ["n1"])
    (row,) = shown["nodes"]
    assert row["resources"]["cpu"]["free"] == "-3"
    (difference,) = row["differences"]
    assert (difference["rule"], difference["kind"], difference["name"]) == ("node-overcommit", "Node", "n1")
    assert difference["message"] == "has 16 cpu for 16 pods, 3 claims, 0 overhead, 0 reserved, needs 3 more"


def test_a_pool_that_is_gone_while_its_devices_are_held_is_listed() -> None:
    objs = [obj for obj in cluster() if obj["kind"] != "ResourceSlice"]
    (row,) = show(Book(), world(*objs), NOW, ["n1"])["nodes"]
    assert [(pool["pool"], pool["phase"]) for pool in row["pools"]] == [("n1", "Gone")]
    assert row["resources"]["cpu"]["claims"] == "3"


def test_a_claim_on_an_unknown_node_is_not_lost() -> None:
    away = slice_of(*DEVICES, name="s9", pool="n9", nodeName="n9")
    held = result("g0", {"cpus": "2"}, pool="n9")
    shown = show(Book(), world(*cluster(), away, allocated("lost", held, node_name="n9")), NOW)
    (difference,) = shown["differences"]
    assert (difference["name"], difference["rule"], difference["difference"]) == ("lost", "node-unknown", "missing")
    assert difference["message"].startswith("has 2 cpu on node n9")


def test_unknown_names_are_left_out_and_order_is_by_name() -> None:
    shown = show(Book(), world(*cluster()), NOW, ["n9", "n2", "n1"])
    assert [row["node"] for row in shown["nodes"]] == ["n1", "n2"]


def test_fit_says_where_why_not_and_what_would_help() -> None:
    view = fit_view(Book(), world(CLASS, *cluster()), [asking(cpus("9"))], NOW)
    json.dumps(view)
    assert view["verdict"] == "nowhere"
    assert [(row["node"], row["fits"], [reason["rule"] for reason in row["reasons"]]) for row in view["nodes"]] == [
        ("n1", False, ["device-overcommit"]),
        ("n2", False, ["no-device"]),
    ]
    assert view["smallestChange"] == [
        {"kind": "shrink", "node": "n1", "claim": "ns/new", "resource": "cpu", "amount": "1"}
    ]


def test_fit_judges_an_allocated_claim_as_if_it_were_not() -> None:
    again = asking(cpus("8"), {"capacity": {"requests": {"cpus": "8"}}}, name="c")
    view = fit_view(Book(), world(CLASS, *cluster()), [again], NOW)
    assert [row["fits"] for row in view["nodes"]] == [False, False]
    assert view["nodes"][0]["reasons"][0]["rule"] == "node-overcommit"
    smaller = asking(cpus("8"), cpus("7"), name="c")
    assert fit_view(Book(), world(CLASS, *cluster()), [smaller], NOW)["nodes"][0]["fits"]


def test_fit_counts_the_whole_pod() -> None:
    user = pod("p9", container(cpu="13", claims=("new",)), claims=("new",), node_name="")
    snapshot = world(CLASS, *cluster(), user)
    view = fit_view(Book(), snapshot, [asking(cpus("1"))], NOW, pod_in(snapshot, "p9"))
    assert view["verdict"] == "nowhere"
    assert {change["kind"] for change in view["smallestChange"]} == {"release", "node-grow"}


def test_fit_knows_a_pod_from_a_file_as_the_one_in_the_cluster() -> None:
    snapshot = world(CLASS, *cluster())
    bare = pod("p1", container(cpu="1", claims=("c",)), claims=("c",))
    del bare["metadata"]["uid"]
    view = fit_view(Book(), snapshot, [asking(cpus("8"), cpus("7"), name="c")], NOW, read_pod(bare))
    assert view["nodes"][0]["fits"]
