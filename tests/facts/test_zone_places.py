"""Where claims fit their zones whichever devices the scheduler takes, checked against trying all that it could take."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.facts.builders import NOW, as_pod
from tests.ledger.builders import DRIVER, allocated, container, device, node, old, pod, result, slice_of, world
from webhook.facts.pod_needs import wanted_claims
from webhook.facts.pool_survey import Reason
from webhook.facts.zone_places import MOST_FULL, Place, allowed, better, nodes_for, place_on
from webhook.kube.core import read_node
from webhook.kube.node_ledger import ANY, PLACE, BookedCharge, NodeLedger, Reservation
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book

Json = dict[str, Any]

CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}


def topology(**zones: str) -> Json:
    """What the zones have of cpu, by ``zone0`` and so on."""
    rows = [
        {"name": f"node-{name[4:]}", "type": "Node", "resources": [{"name": "cpu", "allocatable": amount}]}
        for name, amount in zones.items()
    ]
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    return {**kind, "metadata": {"name": "n1"}, "zones": rows}


def claim(name: str, count: int = 1, **exactly: Any) -> Json:
    made = allocated(name)
    made["spec"]["devices"]["requests"][0]["exactly"] |= {"count": count, **exactly}
    made["status"] = {}
    return made


def exclusive(*zones: int | None, cost: str = "4") -> list[Json]:
    """Devices d0, d1, … of these zones."""
    return [device(f"d{index}", old(cost), zone=zone) for index, zone in enumerate(zones)]


def cluster(*objs: Json, devices: list[Json] | None = None, cpu: str = "64", **zones: str) -> Snapshot:
    given = [topology(**(zones or {"zone0": "8", "zone1": "8"})), slice_of(*(devices or exclusive(0, 0, 1, 1)))]
    return world(node(cpu=cpu), CLASS, *given, *objs)


def wanting(*claims: str, cpu: str = "") -> Json:
    return pod("p1", container(cpu=cpu, claims=claims), claims=claims, node_name="", phase="Pending")


def placed(snapshot: Snapshot, *claims: str, cpu: str = "") -> Place | Reason:
    wanted = as_pod(wanting(*claims, cpu=cpu))
    account = Book().account(snapshot, "n1")
    assert account is not None
    return place_on(wanted, wanted_claims(wanted, snapshot), snapshot, account, NOW)


def full(found: Place | Reason) -> list[str]:
    """The devices that have to be tainted."""
    assert isinstance(found, Place), found
    return [each.device for each in found.full]


def said(found: Place | Reason) -> str:
    assert isinstance(found, Reason), found
    return found.text


def used(*names: str, by: str = "old") -> Json:
    """A claim that holds devices."""
    return allocated(by, *(result(name, request=f"r{name}") for name in names))


def test_a_node_whose_zones_all_have_room_is_a_place() -> None:
    found = placed(cluster(claim("c")), "c")
    assert full(found) == []
    assert isinstance(found, Place)
    assert (found.node, found.hostname, found.room) == ("n1", "n1", Fraction(64, 4))


def test_devices_of_a_full_zone_are_to_be_tainted_and_the_rest_is_what_the_claim_may_get() -> None:
    """Only those that are free: the scheduler takes no others."""
    snapshot = cluster(claim("c"), used("d0"), devices=exclusive(0, 0, 0, 1), zone0="7", zone1="8")
    found = placed(snapshot, "c")
    assert full(found) == ["d1", "d2"]
    assert isinstance(found, Place)
    assert [offer.device.name for [choice] in found.groups for offer in choice.offers] == ["d3"]
    assert found.full[0].reason.text == (
        "zone-overcommit: has cpu up to 4 on zone 0 of node n1, needs at most 3, which is what is free there; release "
        "a claim there, or ask for less"
    )
    assert (found.full[0].driver, found.full[0].pool) == (DRIVER, "n1")


def test_where_no_zone_has_room_there_is_no_place() -> None:
    snapshot = cluster(claim("c"), zone0="3", zone1="2")
    assert said(placed(snapshot, "c")) == (
        "zone-overcommit: has cpu at least 4 on zone 0 of node n1, needs at most 3, which is what is free there; "
        "release a claim there, or ask for less"
    )


def test_zones_that_nobody_describes_are_no_reason() -> None:
    assert full(placed(cluster(claim("c"), devices=exclusive(5, None), zone0="1"), "c")) == []


def test_two_devices_may_come_to_lie_in_one_zone() -> None:
    """The scheduler may take both of zone 0, and no taint has it take one of each."""
    tight = {"zone0": "7", "zone1": "7"}
    assert "cpu up to 8 on zone 0 of node n1, needs at most 7" in said(placed(cluster(claim("c", 2), **tight), "c"))
    assert "zone 0 of node n1" in said(placed(cluster(claim("c"), claim("d"), **tight), "c", "d"))
    assert full(placed(cluster(claim("c", 2), zone0="7", zone1="8"), "c")) == ["d0", "d1"]
    one_each = claim("c", 2)
    one_each["spec"]["devices"]["constraints"] = [{"distinctAttribute": "resource.kubernetes.io/numaNode"}]
    assert full(placed(cluster(one_each, **tight), "c")) == []


def test_what_the_node_has_no_room_for_the_scheduler_knows_itself() -> None:
    devices = [*exclusive(0), device("large", old("40"), zone=0)]
    assert full(placed(cluster(claim("c"), devices=devices, cpu="32"), "c")) == []
    assert full(placed(cluster(claim("c"), devices=devices, cpu="64"), "c")) == ["large"]
    assert "node-overcommit" in said(placed(cluster(claim("c"), cpu="8"), "c", cpu="6"))


def test_who_tolerates_our_taint_cannot_be_kept_from_a_full_zone() -> None:
    tolerant = claim("c", tolerations=[{"operator": "Exists"}])
    assert "cpu up to 4 on zone 0 of node n1" in said(placed(cluster(tolerant, zone0="3", zone1="8"), "c"))
    assert full(placed(cluster(tolerant), "c")) == []


def test_all_devices_of_a_request_cannot_be_had_without_those_of_a_full_zone() -> None:
    every = claim("c", allocationMode="All")
    assert "zone 0 of node n1" in said(placed(cluster(every, zone0="7", zone1="8"), "c"))
    assert full(placed(cluster(every), "c")) == []


def test_too_many_devices_are_not_tainted() -> None:
    devices = [*exclusive(*[0] * (MOST_FULL + 1)), device("other", old("4"), zone=1)]
    assert "zone 0 of node n1" in said(placed(cluster(claim("c"), devices=devices, zone0="3", zone1="8"), "c"))


def test_a_search_that_has_to_give_up_goes_by_the_most_that_zones_can_be_asked_for() -> None:
    """Devices that are all different, of which so many are wanted that not every choice can be tried."""
    devices = [device(f"d{n}", old(f"{1000 + n}m"), zone=n % 2) for n in range(24)]
    snapshot = cluster(claim("c", 8), devices=devices, zone0="9", zone1="9")
    assert full(placed(snapshot, "c")) == []
    found = placed(cluster(claim("c", 8), devices=devices, zone0="8100m", zone1="9"), "c")
    assert full(found) == [f"d{n}" for n in range(0, 24, 2)]


def place_of(name: str, zone: int | None) -> Reservation:
    row = BookedCharge(
        f"uid-{name}", PLACE, "r", DRIVER, "n1", ANY, "", "cpu", "ns", name, "", "", 0, "", "", 4, zone, "", ""
    )
    return Reservation(f"uid-{name}", PLACE, "ns", name, f"uid-{name}-pod", "ns", name, (row,), {}, {}, "t", "h")


def test_a_place_of_another_pod_counts_in_every_zone_that_it_may_come_to_be_in() -> None:
    other = place_of("other", None)
    snapshot = cluster(claim("c"), claim("other"), zone0="8", zone1="7").with_ledger(NodeLedger("n1", "u1", "5"))
    assert full(placed(snapshot, "c")) == []
    held = snapshot.with_ledger(NodeLedger("n1", "u1", "6", reservations=(other,)))
    assert full(placed(held, "c")) == ["d2", "d3"]
    # Where it is certain it counts there alone, and a place of its own counts nowhere.
    certain = snapshot.with_ledger(NodeLedger("n1", "u1", "6", reservations=(place_of("other", 0),)))
    assert full(placed(certain, "c")) == []
    own = snapshot.with_ledger(NodeLedger("n1", "u1", "6", reservations=(place_of("c", None),)))
    assert full(placed(own, "c")) == []
    # Once it is allocated it is where it is.
    seen = held.put(allocated("other", result("d3"), at="2026-01-01T00:00:07Z"))
    assert full(placed(seen, "c")) == ["d2"]


def test_a_node_that_cannot_be_named_or_reserved_on_is_no_place() -> None:
    bare = node(cpu="64")
    bare["metadata"]["labels"] = {}
    assert "node n1 without the label kubernetes.io/hostname" in said(placed(cluster(claim("c")).put(bare), "c"))
    broken = cluster(claim("c")).with_ledger(NodeLedger("n1", problem="status: has 3, needs a map"))
    assert "node n1, whose ledger cannot be read" in said(placed(broken, "c"))


def test_why_devices_are_not_to_be_had_is_said_as_it_is() -> None:
    assert said(placed(cluster(claim("c"), used("d0", "d1", "d2", "d3")), "c")).startswith("exclusive-device-taken: ")


def test_nodes_are_those_of_the_drivers_and_of_claims_that_have_a_node() -> None:
    nodes = [node(f"n{n}", uid=f"u{n}") for n in (2, 3, 4)]
    down = {**nodes[2], "status": {**nodes[2]["status"], "conditions": [{"type": "Ready", "status": "False"}]}}
    slices = [slice_of(*exclusive(0), name=f"s{n}", pool=f"n{n}", nodeName=f"n{n}") for n in (2, 4)]
    snapshot = cluster(claim("c"), used("d0"), *nodes[:2], down, *slices)
    wanted = as_pod(wanting("c"))
    mine = wanted_claims(wanted, snapshot)
    assert nodes_for(mine, wanted, snapshot) == ["n1", "n2"]
    assert nodes_for(mine, as_pod(wanting("c", "old")), snapshot) == ["n1"]
    loose = snapshot.put({**CLASS, "spec": {}})
    assert nodes_for(mine, wanted, loose) == ["n1", "n2", "n3"]
    network = slice_of(*exclusive(None), name="net", pool="net", allNodes=True)
    assert nodes_for(mine, wanted, snapshot.put(network)) == ["n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ({}, True),
        ({"nodeSelector": {"rack": "a"}}, True),
        ({"nodeSelector": {"rack": "b"}}, False),
        ({"affinity": {"podAffinity": {}}}, True),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}, True),
    ],
)
def test_a_node_that_the_pod_may_have(spec: Json, chosen: bool) -> None:
    assert allowed({"spec": spec}, read_node({"metadata": {"name": "n1", "labels": {"rack": "a"}}})) is chosen


@pytest.mark.parametrize(("value", "chosen"), [("a", True), ("b", False)])
def test_a_node_that_its_required_affinity_chooses(value: str, chosen: bool) -> None:
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": [value]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    raw = {"spec": {"affinity": {"nodeAffinity": required}}}
    assert allowed(raw, read_node({"metadata": {"name": "n1", "labels": {"rack": "a"}}})) is chosen


def test_the_best_place_needs_no_taint_and_has_most_room() -> None:
    found = placed(cluster(claim("c"), used("d0"), zone0="7", zone1="8"), "c")
    assert isinstance(found, Place)
    assert full(found) == ["d1"]
    places = [
        found,
        Place("n2", "n2", (), (), Fraction(3), {}, {}),
        Place("n3", "n3", (), (), Fraction(5), {}, {}),
        Place("n4", "n4", (), (), None, {}, {}),
    ]
    assert [each.node for each in sorted(places, key=better)] == ["n4", "n3", "n2", "n1"]


# Zone and cost of a device, and whether another claim has it.
DEVICE = st.tuples(st.sampled_from([None, 0, 1]), st.integers(1, 3), st.sampled_from([False, False, True]))
DEVICES = st.lists(DEVICE, min_size=1, max_size=5)
WANTED = st.lists(st.integers(1, 2), min_size=1, max_size=2)
HAS = st.integers(0, 9)


@settings(max_examples=200)
@given(DEVICES, WANTED, HAS, HAS, st.integers(3, 30))
def test_whichever_devices_are_taken_of_those_left_they_fit(
    devices: list[tuple[int | None, int, bool]], counts: list[int], zone0: int, zone1: int, cpu: int
) -> None:
    names = [f"c{index}" for index in range(len(counts))]
    made = [device(f"d{index}", old(str(cost)), zone=zone) for index, (zone, cost, _) in enumerate(devices)]
    taken = [f"d{index}" for index, (*_, gone) in enumerate(devices) if gone]
    objs = [*map(claim, names, counts), *([used(*taken)] if taken else [])]
    snapshot = cluster(*objs, devices=made, cpu=str(cpu), zone0=str(zone0), zone1=str(zone1))
    left = {0: zone0, 1: zone1}
    room = cpu
    for zone, cost, gone in devices:
        room -= cost * gone
        if zone is not None:
            left[zone] -= cost * gone
    free = {f"d{i}": (zone, cost) for i, (zone, cost, gone) in enumerate(devices) if not gone}

    def taking(offered: list[str]) -> list[bool]:
        """Whether the zones bear it, for all that the scheduler could take of what is offered."""
        fits = []
        for chosen in combinations(offered, sum(counts)):
            rows = [free[name] for name in chosen]
            if sum(cost for _, cost in rows) <= room:
                sums = {zone: sum(cost for other, cost in rows if other == zone) for zone in left}
                fits.append(all(not total or total <= left[zone] for zone, total in sums.items()))
        return fits

    found = placed(snapshot, *names)
    if isinstance(found, Reason):
        # No node where all fits as it is.
        assert not taking([*free]) or not all(taking([*free]))
    else:
        tainted = {each.device for each in found.full}
        rest = taking([name for name in free if name not in tainted])
        assert rest
        assert all(rest)
        assert not tainted or not all(taking([*free]))
