from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger.builders import (
    DRIVER,
    allocated,
    claim_in,
    container,
    device,
    entry,
    new,
    node,
    old,
    pod,
    pod_in,
    result,
    slice_of,
    world,
)
from webhook.facts.fit import fit_problems
from webhook.kube.documents import Document, load
from webhook.kube.quantity import of_resource, parse
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot, build
from webhook.ledger.book import Book, NodeBook, _inputs
from webhook.ledger.held import Held

Json = dict[str, Any]
SAMPLES = Path(__file__).parents[1] / "cases" / "samples"
CLUSTER = ("01", "02", "03", "04", "05", "06", "07", "08", "12", "15", "17", "18", "24")


def samples(*prefixes: str) -> list[Json]:
    files = [path for prefix in prefixes for path in sorted(SAMPLES.glob(f"{prefix}-*.yaml"))]
    return [d.value for path in files for d in load(path.read_bytes(), path.name) if isinstance(d, Document)]


def page(snapshot: Snapshot, name: str = "n1") -> NodeBook:
    made = Book().page(snapshot, name)
    assert made is not None
    return made


def rules(made: NodeBook) -> list[tuple[str, str]]:
    return [(difference.name, difference.finding.rule) for difference in made.differences]


def shared(consumed: str = "4", **more: Any) -> Json:
    return result(consumed={"cpus": consumed}, **more)


GRP = device("grp", old("1", "cpus"), capacity={"cpus": "8"})


@pytest.fixture(scope="module")
def cluster() -> Snapshot:
    return build(samples(*CLUSTER), Release(36))


@pytest.mark.parametrize(
    ("name", "resource", "booked", "allocatable"),
    [
        ("kiln-01", "cpu", "42", "62"),
        ("kiln-01", "memory", "12Gi", "216Gi"),
        ("kiln-01", "hugepages-1Gi", "4Gi", "16Gi"),
        ("forge-01", "memory", "96Gi", "944Gi"),
        ("forge-01", "cpu", "24", "126"),
        ("forge-01", "hugepages-1Gi", "12Gi", "64Gi"),
    ],
)
def test_booked_totals_of_the_sample_cluster(
    cluster: Snapshot, name: str, resource: str, booked: str, allocatable: str
) -> None:
    amount = page(cluster, name).account.resources[resource]
    assert [of_resource(resource, amount.claims), of_resource(resource, amount.allocatable)] == [booked, allocatable]


def test_pods_of_the_sample_cluster(cluster: Snapshot) -> None:
    made = page(cluster, "kiln-01")
    cpu = made.account.resources["cpu"]
    assert (cpu.pods, cpu.free) == (parse("3750m"), parse("16250m"))
    bound = {charge.name for charge in made.charges if charge.state == "bound"}
    assert bound == {"encoder-cpus", "muxer-cpus", "dpdk-bundle"}
    charged = sum(charge.amount for charge in made.charges if charge.name in bound and charge.key.resource == "cpu")
    assert charged + cpu.pods == parse("29750m")
    assert rules(made) == []


@pytest.mark.parametrize(
    ("zone", "resource", "capacity", "claims"),
    [
        (0, "cpu", "31", "20"),
        (1, "cpu", "31", "22"),
        (1, "memory", "108Gi", "12Gi"),
        (1, "hugepages-1Gi", "8Gi", "4Gi"),
        (0, "hugepages-2Mi", "8Gi", "0"),
    ],
)
def test_zones_of_the_sample_cluster(cluster: Snapshot, zone: int, resource: str, capacity: str, claims: str) -> None:
    amount = page(cluster, "kiln-01").account.zones[zone][resource]
    assert amount.capacity == parse(capacity)
    assert amount.claims == parse(claims)


def test_a_driver_that_does_not_describe_the_node_gives_no_capacity(cluster: Snapshot) -> None:
    zones = page(cluster, "forge-01").account.zones
    assert {zone: row["memory"].claims for zone, row in zones.items()} == {0: parse("64Gi"), 1: parse("32Gi")}
    assert all(amount.capacity is None and amount.free is None for row in zones.values() for amount in row.values())


def test_two_ways_to_say_that_a_core_is_two_cpus() -> None:
    objs = samples("01", "04")
    results = [
        {"request": "a", "driver": "cpu.granite.example", "pool": "kiln-03", "device": "core-0"},
        {"request": "a", "driver": "cpu.granite.example", "pool": "kiln-03", "device": "core-1"},
        {
            "request": "b",
            "driver": "cpu.granite.example",
            "pool": "kiln-03",
            "device": "l3-group-0",
            "shareID": "s",
            "consumedCapacity": {"cores": "3"},
        },
    ]
    made = page(build([*objs, allocated("c", *results, node_name="kiln-03")], Release(36)), "kiln-03")
    assert made.account.resources["cpu"].claims == 10


def test_the_status_that_understates_is_a_difference_and_changes_nothing() -> None:
    made = page(build(samples(*CLUSTER, "19"), Release(36)), "kiln-01")
    assert made.account.resources["cpu"].claims == 42
    assert ("understated", "pod-status-disagrees") in rules(made)
    assert "90d0b003-0000-4000-8000-000000000003" not in made.account.pods


def test_c1_pods_and_claims_are_one_account() -> None:
    pods = [pod(f"p{index}", container(cpu="1")) for index in range(10)]
    snapshot = world(node(cpu="8"), slice_of(GRP), allocated("c1", shared(), pods=("x",)), *pods)
    made = page(snapshot)
    cpu = made.account.resources["cpu"]
    assert (cpu.pods, cpu.claims, cpu.free) == (10, 4, -6)
    assert rules(made) == [("n1", "node-overcommit")]
    assert not fit_problems(claim_in(snapshot, "c1"), None, made.account, snapshot).fits


def test_c1_without_a_mapping_nothing_is_charged_for_the_claim() -> None:
    plain = device("grp", capacity={"cpus": "8"})
    snapshot = world(node(cpu="8"), slice_of(plain), allocated("c1", shared(), pods=("x",)))
    made = page(snapshot)
    assert (made.account.resources["cpu"].claims, made.charges, rules(made)) == (0, (), [])


def test_c2_a_claim_of_two_pods_is_charged_once() -> None:
    users = [pod(name, container(claims=("c1",)), claims=("c1",)) for name in ("p1", "p2")]
    made = page(world(node(), slice_of(device("grp", old("1"))), allocated("c1", result(), pods=("p1", "p2")), *users))
    assert made.account.resources["cpu"].claims == 1
    assert [charge.pods for charge in made.charges] == [("ns/p1", "ns/p2")]
    assert made.account.resources["cpu"].free == 15


def test_c3_mirrored_requests_are_the_pods_the_claim_stays_one() -> None:
    user = pod("p1", container("a", "4", claims=("c1",)), container("b", "4", claims=("c1",)), claims=("c1",))
    cpu = page(world(node(), slice_of(GRP), allocated("c1", shared(), pods=("p1",)), user)).account.resources["cpu"]
    assert (cpu.pods, cpu.claims) == (8, 4)


def test_c6_what_is_left_for_ordinary_pods() -> None:
    big = device("grp", old("1", "cpus"), capacity={"cpus": "23"})
    snapshot = world(node(cpu="24"), slice_of(big), allocated("c1", shared("23")), pod("p2", container(cpu="1")))
    assert page(snapshot).account.resources["cpu"].free == 0


def test_c10_allocatable_is_the_nodes_status_alone() -> None:
    planned = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "63770m"}},
    }
    assert page(world(planned, node(cpu="62"))).account.resources["cpu"].allocatable == 62


def test_c11_a_node_may_be_booked_to_the_last() -> None:
    snapshot = world(node(cpu="8"), slice_of(GRP), allocated("c1", shared("8")))
    made = page(snapshot)
    assert (made.account.resources["cpu"].free, rules(made)) == (0, [])
    assert fit_problems(claim_in(snapshot, "c1"), None, made.account, snapshot).fits


def test_c13_named_claims_join_by_spec() -> None:
    user = pod("p1", container(claims=("c1",)), claims=("c1",), entries=[entry("c1", cpu="4")])
    made = page(world(node(), slice_of(GRP), allocated("c1", shared(), pods=("p1",)), user))
    assert ([charge.state for charge in made.charges], rules(made)) == (["bound"], [])


def test_c18_the_footprint_comes_from_the_spec() -> None:
    user = pod(
        "p1", container(claims=("c1",)), claims=("c1",), overhead={"cpu": "250m"}, resources={"requests": {"cpu": "1"}}
    )
    user["status"]["allocatedResources"] = {"cpu": "1250m"}
    cpu = page(world(node(), slice_of(GRP), allocated("c1", shared(), pods=("p1",)), user)).account.resources["cpu"]
    assert cpu.pods + cpu.claims == parse("5250m")


def test_c25_a_pod_level_budget_must_cover_spec_and_claims() -> None:
    user = pod(
        "p1", container(cpu="2", claims=("c1",)), claims=("c1",), resources={"requests": {"cpu": "5"}}, node_name=""
    )
    snapshot = world(node(), slice_of(GRP), allocated("c1", shared(), pods=("p1",)), user)
    fit = fit_problems(claim_in(snapshot, "c1"), pod_in(snapshot), page(snapshot).account, snapshot)
    assert [finding.rule for finding in fit.findings if finding.severity == "error"] == ["pod-budget-too-small"]


def test_c31_overhead_of_an_init_only_claim_lasts_for_the_pods_life() -> None:
    cost = new("memory", overhead={"perContainer": "500Mi"})
    user = pod("p1", container("main"), claims=("c1",), init=(container("i", claims=("c1",)),))
    snapshot = world(node(), slice_of(device("grp", cost)), allocated("c1", result(), pods=("p1",)), user, minor=37)
    assert page(snapshot).account.resources["memory"].overhead == parse("500Mi")


def test_d1_each_negative_amount_is_found_before_any_sum() -> None:
    both = allocated("c1", shared("6", request="a"), shared("-4", request="b"))
    made = page(world(node(), slice_of(GRP), both))
    assert made.account.resources["cpu"].claims == 6
    assert rules(made) == [("c1", "consumed-negative")]


def test_d5_what_is_free_on_the_second_device_shows() -> None:
    devices = [device(f"grp{zone}", old("1", "cpus"), capacity={"cpus": "8"}, zone=zone) for zone in (0, 1)]
    full = allocated("c1", result("grp0", {"cpus": "8"}))
    zones = page(world(node(cpu="16"), slice_of(*devices), full)).account.zones
    assert [zones[zone]["cpu"].free for zone in (0, 1)] == [0, 8]


def test_d10_the_second_write_is_judged_with_the_first_one_charged() -> None:
    devices = slice_of(device("a", old("10")), device("b", old("10")))
    waiting = pod("p2", container(cpu="1", claims=("c2",)), claims=("c2",), node_name="")
    first = allocated("c1", result("a"), pods=("p1",))
    in_flight = pod("p1", container(cpu="1", claims=("c1",)), claims=("c1",), node_name="")
    snapshot = world(node(cpu="16"), devices, first, in_flight, waiting)
    second = world(allocated("c2", result("b"), pods=("p2",)))
    account = page(snapshot).account
    assert (account.resources["cpu"].claims, account.resources["cpu"].reserved) == (10, 1)
    assert not fit_problems(claim_in(second, "c2"), pod_in(snapshot, "p2"), account, snapshot).fits


def test_d13_a_deleted_pods_claim_stays_charged_until_its_allocation_is_gone() -> None:
    victim = pod("p1", container(claims=("c1",)), claims=("c1",))
    victim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    held = allocated("c1", shared(), pods=("p1",))
    assert page(world(node(), slice_of(GRP), held, victim)).account.resources["cpu"].claims == 4
    held["status"]["reservedFor"] = []
    assert page(world(node(), slice_of(GRP), held)).account.resources["cpu"].claims == 4
    del held["status"]["allocation"]
    assert page(world(node(), slice_of(GRP), held)).account.resources["cpu"].claims == 0


def test_a_claim_whose_status_could_not_be_written_stays_charged() -> None:
    """Nobody could report on its devices, or reserve it: what is charged is what was allocated, as long as it is."""
    user = pod("p1", container(claims=("c1",)), claims=("c1",))
    reported = {"driver": DRIVER, "pool": "n1", "device": "grp", "conditions": [{"type": "Ready", "status": "True"}]}
    for devices in ([reported], [], None):
        for pods in (("p1",), ()):
            held = allocated("c1", shared(), pods=pods)
            held["status"]["devices"] = devices
            made = page(world(node(), slice_of(GRP), held, user))
            assert [(charge.amount, charge.name) for charge in made.charges] == [(4, "c1")]
            assert made.account.resources["cpu"].claims == 4


def test_e8_a_claim_is_charged_when_its_pod_no_longer_knows_it() -> None:
    user = pod("p1", container(claims=("c1",)))
    user["spec"]["resourceClaims"] = [{"name": "c1", "resourceClaimTemplateName": "t"}]
    user["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    made = page(world(node(), slice_of(GRP), allocated("c1", shared(), pods=("p1",)), user))
    assert [(charge.amount, charge.state) for charge in made.charges] == [(4, "bound")]


def test_e13_a_new_pod_of_the_same_name_is_another_pod() -> None:
    again = pod("p1", container(claims=("c1",)), claims=("c1",))
    again["metadata"]["uid"] = "other"
    made = page(world(node(), slice_of(GRP), allocated("c1", shared(), pods=("p1",)), again))
    assert [charge.state for charge in made.charges] == ["allocated"]
    assert rules(made) == []


def test_a13_a_claim_of_the_node_before_is_not_charged_to_the_new_one() -> None:
    stale = allocated("c1", shared(), at="2026-01-01T00:00:00Z")
    made = page(world(node(created="2026-01-02T00:00:00Z", uid="u2"), slice_of(GRP), stale))
    assert (made.account.uid, made.charges, rules(made)) == ("u2", (), [("c1", "node-replaced")])


def test_a13_a_claim_that_was_made_after_the_node_is_charged_whatever_the_clock_of_its_scheduler_says() -> None:
    late = allocated("c1", shared(), at="0002-01-01T00:00:00Z")
    late["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z"
    made = page(world(node(created="2026-01-02T00:00:00Z", uid="u2"), slice_of(GRP), late))
    assert (len(made.charges), rules(made)) == (1, [])


def test_b10_a_pool_name_on_two_nodes_is_two_accounts() -> None:
    slices = [slice_of(GRP, name=f"s-{name}", pool="shared", nodeName=name) for name in ("n1", "n2")]
    held = shared()
    held["pool"] = "shared"
    snapshot = world(node("n1"), node("n2", "u2"), *slices, allocated("c1", held, node_name="n2"))
    claims = [page(snapshot, name).account.resources["cpu"].claims for name in ("n1", "n2")]
    assert claims == [0, 4]
    assert {charge.key.node for charge in page(snapshot, "n2").charges} == {"n2"}


GONE = (("c1", "device-unknown"), ("c1", "mapping-lost"))


@pytest.mark.parametrize(
    ("slices", "found"),
    [
        ([], GONE),
        ([slice_of(device("full", old("8")))], GONE),
        ([slice_of(device("grp", capacity={"cpus": "8"}))], (("c1", "mapping-lost"),)),
    ],
    ids=["slices wiped", "b17 device gone", "g8 gate off"],
)
def test_a_charge_outlives_its_slice(slices: list[Json], found: tuple[tuple[str, str], ...]) -> None:
    user = pod("p1", container(claims=("c1",)), claims=("c1",), entries=[entry("c1", cpu="4")])
    made = page(world(node(), *slices, allocated("c1", shared(), pods=("p1",)), user))
    assert made.account.resources["cpu"].claims == 4
    assert [(charge.amount, charge.formula, charge.digest) for charge in made.charges] == [
        (4, "as booked in the pod status", "")
    ]
    assert set(found) <= set(rules(made))


def test_a_device_that_is_gone_without_an_entry_is_a_difference() -> None:
    made = page(world(node(), allocated("c1", shared())))
    assert (made.charges, rules(made)) == ((), [("c1", "device-unknown")])


def test_an_entry_that_says_more_than_the_mapping_is_not_believed() -> None:
    user = pod("p1", container(claims=("c1",)), claims=("c1",), entries=[entry("c1", cpu="7", memory="1Gi")])
    made = page(world(node(), slice_of(GRP), allocated("c1", shared(), pods=("p1",)), user))
    assert made.account.resources["cpu"].claims == 4
    assert ("p1", "pod-status-disagrees") in rules(made)


def test_terminal_pods_hold_nothing() -> None:
    ended = pod(
        "p1", container(cpu="3", claims=("c1",)), claims=("c1",), entries=[entry("c1", cpu="4")], phase="Failed"
    )
    made = page(world(node(), slice_of(GRP), allocated("c1", shared(), pods=("p1",)), ended))
    cpu = made.account.resources["cpu"]
    assert (cpu.pods, cpu.claims, [charge.state for charge in made.charges]) == (0, 4, ["allocated"])


def test_two_claims_on_one_exclusive_device() -> None:
    snapshot = world(
        node(),
        slice_of(device("gpu", old("4"))),
        allocated("late", result("gpu"), at="2026-01-02T00:00:00Z"),
        allocated("soon", result("gpu"), at="2026-01-01T00:00:00Z"),
    )
    assert rules(page(snapshot)) == [("late", "exclusive-device-taken")]


def test_a_result_that_stands_twice_is_charged_once() -> None:
    made = page(world(node(), slice_of(device("gpu", old("4"))), allocated("c1", result("gpu"), result("gpu"))))
    assert (made.account.resources["cpu"].claims, rules(made)) == (4, [("c1", "duplicate-charge")])


def test_two_objects_with_one_uid_are_charged_once() -> None:
    twin = allocated("c2", shared())
    twin["metadata"]["uid"] = "uid-c1"
    made = page(world(node(), slice_of(GRP), allocated("c1", shared()), twin))
    assert (made.account.resources["cpu"].claims, rules(made)) == (4, [("c2", "duplicate-charge")])


def test_a_claim_without_a_node_selector_is_found_by_its_devices() -> None:
    made = page(world(node(), slice_of(GRP), allocated("c1", shared(), node_name="")))
    assert made.account.resources["cpu"].claims == 4


def test_a_network_attached_device_is_charged_where_its_pod_is() -> None:
    everywhere = slice_of(device("grp", old("2")), pool="net", allNodes=True)
    held = result()
    held["pool"] = "net"
    user = pod("p1", container(claims=("c1",)), claims=("c1",), entries=[entry("c1", cpu="2")])
    made = page(world(node(), everywhere, allocated("c1", held, pods=("p1",), node_name=""), user))
    assert (made.account.resources["cpu"].claims, rules(made)) == (2, [])


def test_two_drivers_with_one_pool_and_device_name_are_ambiguous_on_136_only() -> None:
    other = slice_of(device("grp", old("5")), name="s2", driver="e.example")
    for minor, found in ((36, [("c1", "device-ambiguous")]), (37, [])):
        made = page(world(node(), slice_of(GRP), other, allocated("c1", shared()), minor=minor))
        assert (made.account.resources["cpu"].claims, rules(made)) == (4, found)


def test_keys_and_amounts_do_not_depend_on_the_mapping_version() -> None:
    before = page(world(node(), slice_of(GRP), allocated("c1", shared())))
    newer = slice_of(device("other"), GRP, generation=7)
    after = page(world(node(), newer, allocated("c1", shared())))
    assert [charge.key for charge in before.charges] == [charge.key for charge in after.charges]
    assert [charge.generation for charge in (*before.charges, *after.charges)] == [1, 7]


def test_reservation_of_an_unbound_pod_becomes_its_request_when_bound() -> None:
    objs = (node(), slice_of(GRP), allocated("c1", shared(), pods=("p1",)))
    waiting = pod("p1", container(cpu="2", claims=("c1",)), claims=("c1",), node_name="")
    bound = pod("p1", container(cpu="2", claims=("c1",)), claims=("c1",), entries=[entry("c1", cpu="4")])
    sums = [page(world(*objs, user)).account.resources["cpu"] for user in (waiting, bound)]
    assert [(cpu.pods, cpu.reserved, cpu.claims, cpu.free) for cpu in sums] == [(0, 2, 4, 10), (2, 0, 4, 10)]


JUNK = [None, 7, "x", [], {}, True, [None], {"a": None}]


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("field", ["spec", "status", "metadata"])
def test_objects_of_any_shape_do_not_break_a_page(junk: object, field: str) -> None:
    objs = [
        slice_of(GRP),
        allocated("c1", shared(), pods=("p1",)),
        pod("p1", container(claims=("c1",)), claims=("c1",)),
    ]
    broken = [{**obj, field: junk} for obj in objs]
    made = page(world(node(), *broken, *objs))
    # Without metadata the claim is another one, which has no name.
    assert made.account.resources["cpu"].claims == (8 if field == "metadata" else 4)


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("where", ["devices", "results", "reservedFor", "consumed", "containers", "entries"])
def test_parts_of_any_shape_do_not_break_a_page(junk: object, where: str) -> None:
    offered, held = slice_of(GRP), allocated("c1", shared(), pods=("p1",))
    user = pod("p1", container(claims=("c1",)), claims=("c1",), entries=[entry("c1", cpu="4")])
    match where:
        case "devices":
            offered["spec"]["devices"] = junk
        case "results":
            held["status"]["allocation"]["devices"]["results"] = junk
        case "reservedFor":
            held["status"]["reservedFor"] = junk
        case "consumed":
            held["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] = junk
        case "containers":
            user["spec"]["containers"] = junk
        case _:
            user["status"]["nodeAllocatableResourceClaimStatuses"] = junk
    snapshot = world(node(), offered, held, user)
    made = page(snapshot)
    # The charge or a finding stays: nothing turns into a silent zero.
    empty = where == "results" or (where == "reservedFor" and not made.charges)
    assert empty or made.account.resources["cpu"].claims == 4 or made.differences


CHANGES = st.lists(st.tuples(st.integers(0, 11), st.booleans(), st.integers(1, 5)), max_size=12)


def _object(number: int, amount: int) -> Json:
    """One of a dozen objects that share two nodes, in a version of its own."""
    name = f"n{1 + number % 2}"
    match number // 2:
        case 0:
            return node(name, f"u{amount}", cpu=str(8 * amount))
        case 1:
            zone = amount % 2
            made = device("grp", old(str(amount), "cpus"), capacity={"cpus": "8"}, zone=zone)
            return slice_of(made, name=f"s-{name}", pool=name, nodeName=name, generation=amount)
        case 2:
            held = result(consumed={"cpus": str(amount)}, pool=name)
            return allocated(f"c-{name}", held, pods=(f"p-{name}",), node_name=name if amount % 2 else "")
        case 3:
            entries = [entry(f"c-{name}", cpu=str(amount))] if amount % 2 else None
            used = (f"c-{name}",)
            where = name if amount < 4 else ""
            return pod(
                f"p-{name}", container(cpu=str(amount), claims=used), claims=used, entries=entries, node_name=where
            )
        case 4:
            rollout = {"apiVersion": "allocguard.dev/v1alpha1", "kind": "DriverRollout"}
            return {**rollout, "metadata": {"name": DRIVER}, "spec": {"numaAttributes": [f"{DRIVER}/z{amount}"]}}
        case _:
            return slice_of(
                device("grp", old(str(amount))), name=f"t-{name}", driver="e.example", pool=name, nodeName=name
            )


@given(CHANGES)
def test_a_book_that_remembers_says_what_a_new_one_says(changes: list[tuple[int, bool, int]]) -> None:
    remembering = Book()
    snapshot = world(*(_object(number, 1) for number in range(8)))
    for number, keep, amount in changes:
        obj = _object(number, amount)
        snapshot = snapshot.put(obj) if keep else snapshot.remove(obj)
        for name in ("n1", "n2"):
            assert remembering.page(snapshot, name) == Book().page(snapshot, name)


@settings(max_examples=10)
@given(st.randoms(use_true_random=False))
def test_the_order_of_objects_changes_nothing(shuffle: random.Random) -> None:
    objs = samples("01", "02", "05", "06", "15", "18")
    wanted = build(objs, Release(36))
    mixed = list(objs)
    shuffle.shuffle(mixed)
    snapshot = build(mixed, Release(36))
    for name in ("kiln-01", "forge-01"):
        assert page(snapshot, name) == page(wanted, name)


RACK = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}
NET = {"nodeSelector": {"nodeSelectorTerms": [RACK]}}


def _labelled(rack: str) -> Json:
    made = node("n2", "u2")
    made["metadata"]["labels"]["rack"] = rack
    return made


def _elsewhere() -> list[Json]:
    """A pod of n1 that uses a claim of n2, whose devices choose nodes by a label."""
    net = slice_of(device("grp", old("1", "cpus"), capacity={"cpus": "8"}), pool="net", name="net", **NET)
    user = pod("p1", container(claims=("c",)), claims=("c",))
    return [_labelled("a"), net, allocated("c", shared("2", pool="net"), pods=("p1",), node_name="n2"), user]


def _coming() -> list[Json]:
    """A pod on its way to n1, where one of its claims is."""
    overhead = new("cpu", {"capacityMultiplier": "1", "capacityKey": "cpus"}, {"perPod": "250m"})
    local = slice_of(device("grp", overhead, capacity={"cpus": "8"}))
    net = slice_of(device("grp", overhead, capacity={"cpus": "8"}), pool="net", name="net", allNodes=True)
    user = pod("p1", container(claims=("a", "b")), claims=("a", "b"), node_name="", phase="Pending")
    return [local, net, allocated("a", shared("2"), pods=("p1",)), user]


@pytest.mark.parametrize(
    ("objs", "change", "minor"),
    [
        ([pod("p1", container(), entries=[entry("c", cpu="2")])], allocated("c", node_name=""), 36),
        (_elsewhere(), _labelled("b"), 36),
        (_coming(), allocated("b", shared("2", pool="net"), pods=("p1",), node_name=""), 37),
    ],
    ids=["a claim of an entry alone", "labels of another node", "another claim of a pod that is coming"],
)
def test_a_page_follows_everything_that_it_is_made_from(objs: list[Json], change: Json, minor: int) -> None:
    remembering, before = Book(), world(node(), *objs, minor=minor)
    first = remembering.page(before, "n1")
    after = before.put(change)
    assert remembering.page(after, "n1") == page(after) != first


def test_what_is_looked_at_grows_with_the_pods_of_a_shared_claim_not_with_their_square() -> None:
    def looked_at(number: int) -> int:
        names = [f"p{each}" for each in range(number)]
        users = (
            pod(name, container(claims=("c",)), claims=("c",), node_name="n1" if index % 2 else "")
            for index, name in enumerate(names)
        )
        offered = slice_of(device("grp", new("memory", None, {"perPod": "10Mi"}), capacity={"cpus": "8"}))
        snapshot = world(node(), offered, allocated("c", shared(), pods=tuple(names)), *users, minor=37)
        return len(tuple(_inputs(snapshot, "n1", Held(None, "n1"))))

    assert looked_at(64) < 3 * looked_at(32)
