"""The worked examples of the scheduler's arithmetic, by their number, on footprint, pod request, fit and book."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from tests.ledger.builders import (
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
from webhook.facts.footprint import footprint, total_for
from webhook.facts.pods import budget_problems, pod_request, will_count
from webhook.facts.request_policy import consumed_for
from webhook.kube.quantity import Number, parse
from webhook.kube.release import Release
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book

Json = dict[str, Any]


def charged(snapshot: Snapshot, pod_name: str = "p1") -> dict[str, Number]:
    """The total of a pod being placed on n1 with all its claims."""
    model = pod_in(snapshot, pod_name)
    claims = [(local, snapshot.claims[("ns", name)]) for local, name in model.claim_names.items()]
    shares = will_count(model, claims, snapshot, "n1")
    return pod_request(model, shares.claims, shares.overhead).total()


def simple(amount: str, *containers: Json, init: tuple[Json, ...] = (), **spec: Any) -> Snapshot:
    """A pod with one claim of one exclusive device that costs ``amount`` cpu."""
    return world(
        node(),
        slice_of(device("grp", old(amount))),
        allocated("c", result(), pods=("p1",)),
        pod("p1", *containers, claims=("c",), init=init, **spec),
    )


def test_01_two_claims_one_of_them_in_two_containers() -> None:
    snapshot = world(
        slice_of(device("a", old("4")), device("b", old("2"))),
        allocated("ca", result("a")),
        allocated("cb", result("b")),
        pod("p1", container("x", "1", claims=("ca", "cb")), container("y", "2", claims=("ca",)), claims=("ca", "cb")),
    )
    assert charged(snapshot) == {"cpu": 9}


def test_02_a_shared_claim_by_capacity_keys() -> None:
    costs = (old("1", "cores"), old("1", "size", "memory"))
    snapshot = world(
        slice_of(device("grp", *costs, capacity={"cores": "32", "size": "64Gi"})),
        allocated("c", result(consumed={"cores": "4", "size": "8Gi"})),
        pod("p1", container("x", "100m", "100Mi", ("c",)), container("y", claims=("c",)), claims=("c",)),
    )
    assert charged(snapshot) == {"cpu": Fraction(41, 10), "memory": 8694792192}


@pytest.mark.parametrize(("chosen", "total"), [("gpu", 1), ("cpus", 31)])
def test_03_only_the_chosen_alternative_counts(chosen: str, total: int) -> None:
    snapshot = world(
        slice_of(device("gpu"), device("cpus", old("30"))),
        allocated("c", result(chosen, request=f"r/{chosen}")),
        pod("p1", container("x", "1", claims=("c",)), claims=("c",)),
    )
    assert charged(snapshot) == {"cpu": total}


def test_04_auxiliary_resources_of_another_device() -> None:
    snapshot = world(
        slice_of(device("cpu", old("10")), device("gpu", old("2"), old("4Gi", resource="memory"))),
        allocated("cc", result("cpu")),
        allocated("cg", result("gpu")),
        pod(
            "p1",
            container("x", "100m", "1Gi", ("cc",)),
            container("y", "200m", "2Gi", ("cg",)),
            claims=("cc", "cg"),
        ),
    )
    assert charged(snapshot) == {"cpu": Fraction(123, 10), "memory": parse("7Gi")}


def test_05_a_pod_level_request_replaces_the_sum() -> None:
    level = {"requests": {"cpu": "11"}}
    snapshot = simple("10", container("x", claims=("c",)), container("y", claims=("c",)), resources=level)
    request = pod_request(pod_in(snapshot), {"cpu": 10})
    assert (request.total(), request.spec(), budget_problems(request)) == ({"cpu": 11}, {"cpu": 1}, [])


def test_06_a_pod_level_request_that_does_not_cover_the_claim() -> None:
    level = {"requests": {"cpu": "5"}}
    snapshot = simple("4", container("x", "2", claims=("c",)), resources=level)
    (finding,) = budget_problems(pod_request(pod_in(snapshot), {"cpu": 4}))
    assert (finding.rule, finding.has, finding.needs) == (
        "pod-budget-too-small",
        "5 cpu for the whole pod",
        "6, of which claims cost 4",
    )


@pytest.mark.parametrize(("amount", "passes"), [("200m", True), ("300m", False)])
def test_07_a_budget_met_exactly_passes(amount: str, passes: bool) -> None:
    snapshot = simple(amount, container("x", "800m", claims=("c",)), resources={"requests": {"cpu": "1"}})
    request = pod_request(pod_in(snapshot), {"cpu": parse(amount)})
    assert (budget_problems(request) == []) is passes
    assert request.total() == {"cpu": 1}


def test_08_consumed_capacity_times_multiplier() -> None:
    snapshot = world(
        slice_of(device("grp", old("2", "cores"), capacity={"cores": "32"})),
        allocated("c", result(consumed={"cores": "8"})),
    )
    cost = footprint(claim_in(snapshot, "c"), snapshot)
    assert cost.amounts == {"cpu": 16}
    assert cost.charges[0].formula == "8 \N{MULTIPLICATION SIGN} 2"


def test_09_devices_times_multiplier() -> None:
    snapshot = world(slice_of(device("a", old("8")), device("b", old("8"))), allocated("c", result("a"), result("b")))
    assert footprint(claim_in(snapshot, "c"), snapshot).amounts == {"cpu": 16}


def test_10_a_claim_of_an_init_container_comes_after_the_maximum() -> None:
    snapshot = simple("4", container("x", "1"), init=(container("i", "3", claims=("c",)),))
    assert charged(snapshot) == {"cpu": 7}


def test_11_sidecar_init_container_claim_and_pod_overhead() -> None:
    init = (container("side", "500m", restartPolicy="Always"), container("i", "2"))
    snapshot = simple("2", container("x", "1", claims=("c",)), init=init, overhead={"cpu": "250m"})
    assert charged(snapshot) == {"cpu": Fraction(19, 4)}


@pytest.mark.parametrize(("asked", "consumed"), [("5", 6), ("1", 2), ("127", 128), (None, 128)])
def test_12_13_rounding_to_the_range(asked: str | None, consumed: int) -> None:
    policy = {"default": "2", "validRange": {"min": "2", "step": "2"}} if asked else None
    capacity = {"value": "128", **({"requestPolicy": policy} if policy else {})}
    assert consumed_for(parse(asked) if asked else None, capacity, Release(36)) == consumed


def test_14_the_default_of_the_policy() -> None:
    capacity = {"value": "128", "requestPolicy": {"default": "1", "validRange": {"min": "1"}}}
    assert consumed_for(None, capacity, Release(36)) == 1


def test_15_a_capacity_key_on_an_exclusive_device_is_never_zero() -> None:
    snapshot = world(
        slice_of(device("grp", old("1", "cores"), capacity={"cores": "8"}, allowMultipleAllocations=False)),
        allocated("c", result()),
    )
    cost = footprint(claim_in(snapshot, "c"), snapshot)
    assert [problem.rule for problem in cost.problems] == ["consumed-missing"]
    assert not cost.complete
    assert cost.mapped


def test_16_a_key_absent_from_a_present_map_costs_nothing() -> None:
    costs = (old("1", "k1"), old("1", "k2", "memory"))
    snapshot = world(
        slice_of(device("grp", *costs, capacity={"k1": "8", "k2": "8Gi"})),
        allocated("c", result(consumed={"k1": "4"})),
    )
    cost = footprint(claim_in(snapshot, "c"), snapshot)
    assert (cost.amounts, cost.problems) == ({"cpu": 4}, ())


def test_17_an_empty_memory_mapping_costs_one_byte() -> None:
    snapshot = world(slice_of(device("grp", old(None, resource="memory"))), allocated("c", result()))
    assert footprint(claim_in(snapshot, "c"), snapshot).amounts == {"memory": 1}


@pytest.mark.parametrize(
    ("consumed", "multiplier", "exact", "left"),
    [
        ("3", "500m", Fraction(3, 2), Fraction(29, 2)),
        ("3", "333m", Fraction(999, 1000), Fraction(15001, 1000)),
        ("1", "100u", Fraction(1, 10000), Fraction(15999, 1000)),
    ],
)
def test_18_products_are_exact_and_rounded_up_at_fit(
    consumed: str, multiplier: str, exact: Number, left: Number
) -> None:
    snapshot = world(
        node(),
        slice_of(device("grp", old(multiplier, "k"), capacity={"k": "8"})),
        allocated("c", result(consumed={"k": consumed})),
    )
    claim = claim_in(snapshot, "c")
    assert footprint(claim, snapshot).amounts == {"cpu": exact}
    (row,) = fit_problems(claim, None, Book().account(snapshot, "n1"), snapshot).rows[:1]
    assert row.free == left


@pytest.mark.parametrize(("amount", "free"), [("6", "6"), ("20", "6"), ("5", None)])
def test_19_20_node_fit_counts_the_whole_pod(amount: str, free: str | None) -> None:
    snapshot = world(
        node(),
        slice_of(device("grp", old(amount))),
        pod("other", container("x", "10")),
        allocated("c", result(), pods=("p1",)),
        pod("p1", container("x", "1", claims=("c",)), claims=("c",), node_name=""),
    )
    claim = claim_in(snapshot, "c")
    fit = fit_problems(claim, pod_in(snapshot), Book().account(snapshot, "n1"), snapshot)
    refused = [finding for finding in fit.findings if finding.rule == "node-overcommit"]
    assert fit.fits is (free is None)
    assert [f"at most {free}, which is what is free there" for _ in refused] == [f.needs for f in refused]
    if refused:
        assert f"16 allocatable - 10 pods - {amount} this claim - 1 this pod = " in refused[0].has


def test_21_a_victim_frees_its_request_and_its_claim() -> None:
    snapshot = world(
        node(),
        slice_of(device("grp", old("6"))),
        allocated("c", result(), pods=("p1",)),
        pod("p1", container("x", "1", claims=("c",)), claims=("c",), entries=[entry("c", cpu="6")]),
    )
    account = Book().account(snapshot, "n1")
    assert account is not None
    free = [account.resources["cpu"].free, account.without("uid-c", "uid-p1").resources["cpu"].free]
    assert free == [9, 16]


def test_22_hugepages_beyond_what_the_node_has() -> None:
    snapshot = world(
        node(hugepages_2Mi="100Mi"),
        slice_of(*(device(name, old("64Mi", resource="hugepages-2Mi")) for name in "ab")),
        allocated("c", result("a"), result("b")),
    )
    claim = claim_in(snapshot, "c")
    assert footprint(claim, snapshot).amounts == {"hugepages-2Mi": 134217728}
    assert not fit_problems(claim, None, Book().account(snapshot, "n1"), snapshot).fits


def test_23_pod_level_requests_count_resource_by_resource() -> None:
    snapshot = world(
        slice_of(device("grp", old("2"), old("2Gi", resource="memory"))),
        allocated("c", result()),
        pod("p1", container("x", "1", "1Gi", ("c",)), claims=("c",), resources={"requests": {"memory": "4Gi"}}),
    )
    assert charged(snapshot) == {"cpu": 3, "memory": parse("4Gi")}


@pytest.mark.parametrize("minor", [36, 37])
def test_24_a_second_pod_is_never_charged_the_mapping_again(minor: int) -> None:
    cost = old("2", "cores") if minor == 36 else new(mapping={"capacityKey": "cores", "capacityMultiplier": "2"})
    snapshot = world(
        node(),
        slice_of(device("grp", cost, capacity={"cores": "32"})),
        allocated("c", result(consumed={"cores": "4"}), pods=("p1", "p2")),
        pod("p1", container(claims=("c",)), claims=("c",)),
        pod("p2", container(claims=("c",)), claims=("c",)),
        minor=minor,
    )
    account = Book().account(snapshot, "n1")
    assert account is not None
    assert account.resources["cpu"].claims == 8


OVERHEAD = {"perPod": "1Gi", "perContainer": "500Mi"}


def test_25_overhead_of_a_pod_with_two_containers() -> None:
    snapshot = world(
        slice_of(device("grp", new("memory", overhead=OVERHEAD))),
        allocated("c", result()),
        pod("p1", container("x", claims=("c",)), container("y", claims=("c",)), claims=("c",)),
        minor=37,
    )
    assert charged(snapshot) == {"memory": 2122317824}
    assert not footprint(claim_in(snapshot, "c"), snapshot).mapped


def test_26_overheads_are_summed_over_devices() -> None:
    snapshot = world(
        slice_of(*(device(name, new("memory", overhead=OVERHEAD)) for name in "ab")),
        allocated("c", result("a"), result("b")),
        minor=37,
    )
    cost = footprint(claim_in(snapshot, "c"), snapshot)
    assert (cost.per_pod, cost.per_container) == ({"memory": parse("2Gi")}, {"memory": parse("1000Mi")})
    assert total_for(cost, 2) == {"memory": parse("4048Mi")}


def test_27_each_pod_pays_the_overhead_of_a_shared_claim() -> None:
    snapshot = world(
        node(),
        slice_of(device("grp", new("memory", overhead=OVERHEAD))),
        allocated("c", result(), pods=("p1", "p2")),
        pod("p1", container("x", claims=("c",)), container("y", claims=("c",)), claims=("c",)),
        pod("p2", container("x", claims=("c",)), claims=("c",)),
        minor=37,
    )
    account = Book().account(snapshot, "n1")
    assert account is not None
    memory = account.resources["memory"]
    assert (memory.overhead, memory.claims, memory.pods) == (parse("3548Mi"), 0, 0)
    assert [account.pods[f"uid-{name}"].overhead["memory"] for name in ("p1", "p2")] == [
        parse("2024Mi"),
        parse("1524Mi"),
    ]


def test_28_mapping_and_overhead_of_one_device() -> None:
    cost = new(mapping={"deviceMultiplier": "8"}, overhead={"perPod": "500m"})
    containers = [container(name, claims=("c",)) for name in "xyz"]
    snapshot = world(
        slice_of(device("grp", cost)), allocated("c", result()), pod("p1", *containers, claims=("c",)), minor=37
    )
    assert charged(snapshot) == {"cpu": Fraction(17, 2)}


def test_29_a_claim_that_no_container_uses_counts_on_137() -> None:
    cost = new(mapping={"deviceMultiplier": "4"}, overhead={"perContainer": "1"})
    snapshot = world(
        slice_of(device("grp", cost)), allocated("c", result()), pod("p1", container(), claims=("c",)), minor=37
    )
    assert charged(snapshot) == {"cpu": 4}


@pytest.mark.parametrize("entries", [None, []])
def test_31_a_bound_pod_without_entry_is_charged_and_named(entries: list[Json] | None) -> None:
    snapshot = world(
        node(),
        slice_of(device("grp", old("4"))),
        allocated("c", result(), pods=("p1",)),
        pod("p1", container("x", "1", claims=("c",)), claims=("c",), entries=entries),
    )
    page = Book().page(snapshot, "n1")
    assert page is not None
    cpu = page.account.resources["cpu"]
    assert (cpu.pods, cpu.claims, cpu.free) == (1, 4, 11)
    assert [(d.category, d.name, d.finding.rule) for d in page.differences] == [("pod-status", "p1", "uncounted")]


def test_32_whole_number_grids() -> None:
    policy = {"default": "500m", "validRange": {"min": "500m", "step": "500m"}}
    assert consumed_for(parse("1500m"), {"value": "8", "requestPolicy": policy}, Release(36)) == 2


@pytest.mark.parametrize("minor", [36, 37])
@pytest.mark.parametrize(("resource", "fine", "over"), [("memory", "4E", "9E"), ("cpu", "4P", "9P")])
def test_33_a_product_beyond_int64_is_refused(minor: int, resource: str, fine: str, over: str) -> None:
    for multiplier, expected in ((fine, []), (over, ["product-overflow"])):
        mapping = {"capacityKey": "k", "capacityMultiplier": multiplier}
        cost = old(multiplier, "k", resource) if minor == 36 else new(resource, mapping=mapping)
        snapshot = world(
            node(),
            slice_of(device("grp", cost, capacity={"k": "8"})),
            allocated("c", result(consumed={"k": "2"})),
            minor=minor,
        )
        claim = claim_in(snapshot, "c")
        assert [problem.rule for problem in footprint(claim, snapshot).problems] == expected
        assert not fit_problems(claim, None, Book().account(snapshot, "n1"), snapshot).fits


@pytest.mark.parametrize("consumed", ["-4", "-9223372036854775808"])
def test_34_35_a_negative_amount_makes_no_room(consumed: str) -> None:
    snapshot = world(
        node(),
        slice_of(device("grp", old("1", "k"), capacity={"k": "12"})),
        allocated("good", result(consumed={"k": "4"})),
        allocated("poison", result(consumed={"k": consumed})),
    )
    page = Book().page(snapshot, "n1")
    assert page is not None
    assert page.account.resources["cpu"].claims == 4
    assert [(d.name, d.finding.rule) for d in page.differences] == [("poison", "consumed-negative")]


def test_36_a_container_that_names_the_claim_twice_counts_once() -> None:
    main = {"name": "main", "resources": {"claims": [{"name": "c", "request": "a"}, {"name": "c", "request": "b"}]}}
    cost = new(overhead={"perContainer": "1"})
    snapshot = world(
        slice_of(device("grp", cost)),
        allocated("c", result()),
        pod("p1", main, claims=("c",), init=(container("ini", claims=("c",)),)),
        minor=37,
    )
    assert pod_in(snapshot).users("c") == ("ini", "main")
    assert charged(snapshot) == {"cpu": 2}


@pytest.mark.parametrize("minor", [36, 37])
def test_37_admin_access_is_charged(minor: int) -> None:
    cost = old("16Gi", resource="memory") if minor == 36 else new("memory", mapping={"deviceMultiplier": "16Gi"})
    devices = [device(f"gpu-{index}", cost) for index in range(4)]
    snapshot = world(
        slice_of(*devices),
        allocated("c", *(result(f"gpu-{index}", adminAccess=True) for index in range(4))),
        minor=minor,
    )
    assert footprint(claim_in(snapshot, "c"), snapshot).amounts == {"memory": parse("64Gi")}


@pytest.mark.parametrize("minor", [36, 37])
def test_the_same_formula_in_both_shapes_has_one_digest(minor: int) -> None:
    shapes = [old("2", "k"), new(mapping={"capacityKey": "k", "capacityMultiplier": "2"})]
    snapshots = [
        world(
            slice_of(device("grp", shape, capacity={"k": "8"})),
            allocated("c", result(consumed={"k": "2"})),
            minor=minor,
        )
        for shape in shapes
    ]
    digests = {footprint(claim_in(s, "c"), s).charges[0].digest for s in snapshots}
    assert len(digests) == 1
