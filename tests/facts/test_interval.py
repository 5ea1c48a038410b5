from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.ledger.builders import DRIVER, allocated, container, device, node, old, pod, pod_in, result, slice_of, world
from webhook.facts.interval import MOST_SHAPES, Interval, interval, interval_problems
from webhook.kube.claims import Claim, read_claim
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book

Json = dict[str, Any]
NOW = datetime(2026, 1, 2, tzinfo=UTC)

CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "any"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}


def asking(*requests: Json, constraints: list[Json] | None = None, name: str = "new") -> Claim:
    """A claim; each request is the inside of ``exactly``, or a whole request when it has ``firstAvailable``."""
    made = [
        {"name": f"r{index}", **request}
        if "firstAvailable" in request
        else {"name": f"r{index}", "exactly": {"deviceClassName": "any", **request}}
        for index, request in enumerate(requests or ({},))
    ]
    spec = {"devices": {"requests": made, "constraints": constraints or []}}
    return read_claim({"metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}"}, "spec": spec})


def cpus(amount: str, **more: Any) -> Json:
    return {"capacity": {"requests": {"cpus": amount}}, **more}


def on(snapshot: Snapshot, *claims: Claim, empty: bool = False, user: str | None = None) -> Interval:
    book = Book()
    accounts = None if empty else (lambda name: book.account(snapshot, name))
    return interval(claims, snapshot, accounts, None, NOW, pod_in(snapshot, user) if user else None)


def rules(answer: Interval) -> list[str]:
    return [finding.rule for fit in answer.nodes for finding in fit.reasons]


GRP = device("grp", old("1", "cpus"), capacity={"cpus": "8"}, zone=0)


@pytest.mark.parametrize(("amount", "empty", "real"), [("4", True, True), ("5", True, False), ("9", False, False)])
def test_device_capacity(amount: str, empty: bool, real: bool) -> None:
    snapshot = world(CLASS, node(), slice_of(GRP), allocated("c", result(consumed={"cpus": "4"})))
    claim = asking(cpus(amount))
    assert on(snapshot, claim, empty=True).nodes[0].fits is empty
    answer = on(snapshot, claim)
    assert answer.nodes[0].fits is real
    assert rules(answer) == ([] if real else ["device-overcommit"])


@pytest.mark.parametrize(("cpu", "verdict"), [("12", "everywhere"), ("13", "nowhere")])
def test_node_room_with_the_pod(cpu: str, verdict: str) -> None:
    user = pod("p1", container(cpu=cpu, claims=("new",)), claims=("new",), node_name="")
    answer = on(world(CLASS, node(cpu="16"), slice_of(GRP), user), asking(cpus("4")), user="p1")
    assert answer.verdict == verdict
    assert rules(answer) == ([] if verdict == "everywhere" else ["node-overcommit"])


def test_somewhere_is_some_nodes() -> None:
    small = slice_of(device("grp", old("1", "cpus"), capacity={"cpus": "2"}), name="s2", pool="n2", nodeName="n2")
    answer = on(world(CLASS, node(), node("n2", "u2"), slice_of(GRP), small), asking(cpus("4")))
    assert (answer.verdict, [fit.fits for fit in answer.nodes]) == ("somewhere", [True, False])


def test_least_and_most_follow_the_devices() -> None:
    devices = slice_of(*(device(name, old(cost)) for name, cost in (("a", "1"), ("b", "2"), ("c", "4"))))
    (fit,) = on(world(CLASS, node(), devices), asking({"count": 2})).nodes
    assert (fit.fits, fit.least, fit.most) == (True, {"cpu": 3}, {"cpu": 6})


def test_only_the_cheap_device_fits_the_node() -> None:
    devices = slice_of(device("dear", old("9")), device("cheap", old("3")))
    assert on(world(CLASS, node(cpu="4"), devices), asking()).nodes[0].fits
    assert not on(world(CLASS, node(cpu="4"), devices), asking({"count": 2})).nodes[0].fits


@pytest.mark.parametrize(("count", "fits"), [(1, True), (2, False)])
def test_exclusive_devices_run_out(count: int, fits: bool) -> None:
    snapshot = world(CLASS, node(), slice_of(device("a", old("1")), device("b", old("1"))), allocated("c", result("a")))
    answer = on(snapshot, asking({"count": count}))
    assert answer.nodes[0].fits is fits
    assert rules(answer) == ([] if fits else ["exclusive-device-taken"])


def test_what_a_full_zone_has_left_and_would_have_to_have() -> None:
    cores = [device(f"g{zone}", old("1", "cpus"), capacity={"cpus": "8"}, zone=zone) for zone in (0, 1)]
    gpus = slice_of(
        *(device(f"gpu{cost}", old(cost), zone=0) for cost in ("4", "5")),
        device("gpu6", old("6"), zone=1),
        driver="gpu.example.org",
        pool="gpus",
        name="gpus",
    )
    held = [allocated(f"c{zone}", result(f"g{zone}", {"cpus": "5"})) for zone in (0, 1)]
    selector = {"cel": {"expression": 'device.driver == "gpu.example.org"'}}
    snapshot = world({**CLASS, "spec": {"selectors": [selector]}}, node(cpu="16"), slice_of(*cores), gpus, *held)
    (fit,) = on(snapshot, asking()).nodes
    assert [finding.text("p") for finding in fit.reasons] == [
        "p/zone-overcommit: spec.devices.requests[0]: has cpu at least 4 on zone 0 of node n1, needs at most 3, which "
        "is what is free there; release a claim there, or ask for less",
        "p/zone-overcommit: spec.devices.requests[0]: has cpu at least 6 on zone 1 of node n1, needs at most 3, which "
        "is what is free there; release a claim there, or ask for less",
    ]


def test_a_shared_device_serves_a_request_more_than_once() -> None:
    snapshot = world(CLASS, node(), slice_of(GRP))
    assert on(snapshot, asking(cpus("4", count=2))).nodes[0].fits
    assert rules(on(snapshot, asking(cpus("4", count=3)))) == ["device-overcommit"]


def test_all_devices_need_all_of_them_free() -> None:
    devices = slice_of(device("a", old("1")), device("b", old("2")))
    every = asking({"allocationMode": "All"})
    (fit,) = on(world(CLASS, node(), devices), every).nodes
    assert (fit.fits, fit.least) == (True, {"cpu": 3})
    assert not on(world(CLASS, node(), devices, allocated("c", result("a"))), every).nodes[0].fits
    assert not on(world(CLASS, node()), every).nodes[0].fits


def test_d5_one_device_used_up_the_next_one_free() -> None:
    second = device("grp2", old("1", "cpus"), capacity={"cpus": "8"}, zone=1)
    snapshot = world(CLASS, node(), slice_of(GRP, second), allocated("c", result(consumed={"cpus": "8"})))
    assert on(snapshot, asking(cpus("2"))).nodes[0].fits


def test_d8_a_whole_and_its_halves_exclude_each_other() -> None:
    def part(name: str, amount: int) -> Json:
        return device(
            name,
            old(str(amount)),
            consumesCounters=[{"counterSet": "set", "counters": {"m": {"value": str(amount)}}}],
        )

    counters = slice_of(name="s0", count=2)
    counters["spec"]["sharedCounters"] = [{"name": "set", "counters": {"m": {"value": "4"}}}]
    parts = slice_of(part("full", 4), part("half-a", 2), part("half-b", 2), count=2)
    snapshot = world(CLASS, node(), counters, parts)
    fits = [on(snapshot, asking(request)).nodes[0].fits for request in ({"count": 2}, {"count": 3})]
    assert fits == [True, False]
    assert rules(on(snapshot, asking({"allocationMode": "All"}))) == ["device-overcommit"]
    halved = world(CLASS, node(), counters, parts, allocated("c", result("half-a")))
    whole = {"selectors": [{"cel": {"expression": 'device.attributes["x"].y == 1'}}]}
    assert on(halved, asking()).nodes[0].fits
    assert not on(halved, asking({"count": 2})).nodes[0].fits
    assert not on(halved, asking(whole)).nodes[0].sure


@pytest.mark.parametrize(("held", "fits"), [(0, True), (1, True), (2, False)])
def test_b18_b19_counters_are_drawn_once_for_a_device_however_many_share_it(held: int, fits: bool) -> None:
    counters = slice_of(name="s0", count=2)
    counters["spec"]["sharedCounters"] = [{"name": "set", "counters": {"m": {"value": "4"}}}]
    drawn = [{"counterSet": "set", "counters": {"m": {"value": "3"}}}]
    parts = [device(name, old("1", "cpus"), capacity={"cpus": "8"}, consumesCounters=drawn) for name in ("a", "b")]
    shares = [allocated(f"c{index}", result("a", {"cpus": "3"})) for index in range(held)]
    snapshot = world(CLASS, node(), counters, slice_of(*parts, count=2), *shares)
    answer = on(snapshot, asking(cpus("3")))
    assert answer.nodes[0].fits is fits
    assert held == 0 or not on(snapshot, asking(cpus("6"))).nodes[0].fits


@pytest.mark.parametrize(
    ("zones", "fits"),
    [((0, 0), True), ((0, 1), False), ((0, None), False)],
    ids=["same", "different", "missing"],
)
def test_constraints(zones: tuple[int | None, int | None], fits: bool) -> None:
    devices = [device(name, old("1"), zone=zone) for name, zone in zip("ab", zones, strict=True)]
    together = [{"matchAttribute": "resource.kubernetes.io/numaNode"}]
    answer = on(world(CLASS, node(), slice_of(*devices)), asking({"count": 2}, constraints=together))
    assert answer.nodes[0].fits is fits
    assert rules(answer) == ([] if fits else ["constraint-unmet"])


def test_a_proof_over_many_equal_devices_is_quick() -> None:
    devices = [device(f"d{index}", old("1"), zone=index % 2) for index in range(100)]
    together = [{"matchAttribute": "resource.kubernetes.io/numaNode"}]
    snapshot = world(CLASS, node(cpu="64"), slice_of(*devices))
    (good,) = on(snapshot, asking({"count": 16}, {"count": 16}, constraints=together)).nodes
    (bad,) = on(snapshot, asking({"count": 32}, {"count": 32}, constraints=together)).nodes
    assert ((good.fits, good.sure), (bad.fits, bad.sure)) == ((True, True), (False, True))


def test_any_alternative_will_do() -> None:
    none = {"name": "a", "deviceClassName": "any", "selectors": [{"cel": {"expression": "false"}}]}
    some = {"name": "b", "deviceClassName": "any"}
    snapshot = world(CLASS, node(), slice_of(device("a", old("3"))))
    (fit,) = on(snapshot, asking({"firstAvailable": [none, some]})).nodes
    assert (fit.fits, fit.least) == (True, {"cpu": 3})


def test_taints_need_a_toleration() -> None:
    tainted = device("a", old("1"), taints=[{"key": "sick", "value": "yes", "effect": "NoSchedule"}])
    snapshot = world(CLASS, node(), slice_of(tainted))
    assert rules(on(snapshot, asking())) == ["device-tainted"]
    for toleration in (
        {"operator": "Exists"},
        {"key": "sick", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "sick", "value": "yes"},
    ):
        assert on(snapshot, asking({"tolerations": [toleration]})).nodes[0].fits
    assert not on(snapshot, asking({"tolerations": [{"key": "sick", "value": "no"}]})).nodes[0].fits


def test_holds_stages_and_unfinished_pools_stand_in_the_way_of_real_nodes_only() -> None:
    def rollout(**spec: Any) -> Json:
        return {
            "apiVersion": "allocguard.dev/v1alpha1",
            "kind": "DriverRollout",
            "metadata": {"name": DRIVER},
            "spec": spec,
        }

    for extra, rule in (
        (rollout(hold={"reason": "x"}), "driver-held"),
        (rollout(stage="Off"), "stage-off"),
        (rollout(stage="Canary", canaryNodeSelector={"matchLabels": {"a": "b"}}), "node-not-canary"),
    ):
        snapshot = world(CLASS, node(), slice_of(GRP), extra)
        assert rules(on(snapshot, asking(cpus("1")))) == [rule]
        assert on(snapshot, asking(cpus("1")), empty=True).nodes[0].fits
    half = world(CLASS, node(), slice_of(GRP, count=2))
    assert rules(on(half, asking(cpus("1")))) == ["pool-incomplete"]


def test_claims_of_one_pod_are_judged_together() -> None:
    snapshot = world(CLASS, node(), slice_of(GRP))
    assert on(snapshot, asking(cpus("5"), name="a"), asking(cpus("3"), name="b")).nodes[0].fits
    assert not on(snapshot, asking(cpus("5"), name="a"), asking(cpus("4"), name="b")).nodes[0].fits


def test_reasons_say_whose_request_it_is_where_there_are_several_claims() -> None:
    (fit,) = on(world(CLASS, node(), slice_of(GRP)), asking(cpus("9"), name="a"), asking(cpus("1"), name="b")).nodes
    assert [reason.has for reason in fit.reasons] == ["for claim ns/a 9 cpus of device grp, where 8 is free"]


def fleet(*sizes: str) -> list[Json]:
    return [
        obj
        for index, size in enumerate(sizes)
        for obj in (
            node(f"n{index}", f"u{index}"),
            slice_of(
                device("grp", old("1", "cpus"), capacity={"cpus": size}),
                name=f"s{index}",
                pool=f"n{index}",
                nodeName=f"n{index}",
            ),
        )
    ]


def said(snapshot: Snapshot, claim: Claim) -> list[tuple[str, str]]:
    return [(finding.rule, finding.severity) for finding in interval_problems(claim, snapshot, NOW)]


def test_a_new_claim_is_judged_on_empty_nodes() -> None:
    full = [allocated("c", result(consumed={"cpus": "8"}), node_name="n0")]
    snapshot = world(CLASS, *fleet("8", "8", "4"), *full)
    assert said(snapshot, asking(cpus("4"))) == []
    assert said(snapshot, asking(cpus("8"))) == [("fits-somewhere", "info")]
    assert said(snapshot, asking(cpus("9"))) == [("fits-nowhere", "warning")]
    (finding,) = interval_problems(asking(cpus("9")), snapshot, NOW)
    assert finding.has.startswith("a request that none of 3 nodes with devices of d.example could serve")
    (finding,) = interval_problems(asking(cpus("9")), world(CLASS, *fleet("8")), NOW)
    assert finding.has.startswith("a request that the only node with devices of d.example could not serve")


def test_h1_no_device_yet_is_no_reason_to_refuse() -> None:
    assert said(world(CLASS, node()), asking(cpus("1"))) == [("no-device-yet", "info")]


def test_an_unknown_class_is_not_judged_here() -> None:
    assert said(world(node(), slice_of(GRP)), asking(cpus("99"))) == []


def test_more_kinds_of_nodes_than_are_looked_at_are_not_judged() -> None:
    sizes = [str(index + 1) for index in range(MOST_SHAPES)]
    assert said(world(CLASS, *fleet(*sizes)), asking(cpus("99"))) == [("fits-nowhere", "warning")]
    assert said(world(CLASS, *fleet(*sizes, "40")), asking(cpus("99"))) == []


def test_the_memory_of_answers_tells_requests_and_classes_apart() -> None:
    snapshot = world(CLASS, *fleet("8"))
    assert said(snapshot, asking(cpus("8"))) == []
    assert said(snapshot, asking(cpus("9"))) == [("fits-nowhere", "warning")]
    narrowed = {**CLASS, "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}" && false'}}]}}
    assert said(snapshot.put(narrowed), asking(cpus("8"))) == [("fits-nowhere", "warning")]


@pytest.mark.parametrize("junk", [None, 7, "x", [], {}, [None], [{"exactly": 3}], [{"name": "r", "exactly": {}}]])
def test_requests_of_any_shape_get_an_answer(junk: object) -> None:
    claim = read_claim({"metadata": {"name": "j", "namespace": "ns"}, "spec": {"devices": {"requests": junk}}})
    snapshot = world(CLASS, node(), slice_of(GRP))
    assert interval_problems(claim, snapshot, NOW) == []
    assert on(snapshot, claim).verdict in ("everywhere", "nowhere")


def test_huge_counts_are_answered_at_once() -> None:
    snapshot = world(CLASS, node(), slice_of(GRP))
    assert on(snapshot, asking(cpus("1", count=10**12))).verdict == "nowhere"
