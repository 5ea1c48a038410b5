from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

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
from webhook.facts.fit import Fit, fit_problems
from webhook.kube.quantity import parse
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book

Json = dict[str, Any]


def fit(snapshot: Snapshot, claim: str | None = "c", user: str | None = "p1", others: Snapshot | None = None) -> Fit:
    """The fit of a claim and a pod of ``snapshot`` on the accounts of ``others`` (default: the same)."""
    book = others or snapshot
    model = None if claim is None else claim_in(snapshot, claim)
    return fit_problems(model, pod_in(snapshot, user) if user else None, Book().account(book, "n1"), book)


def errors(made: Fit) -> list[str]:
    return [finding.rule for finding in made.findings if finding.severity == "error"]


def waiting(cpu: str = "1", *claims: str) -> Json:
    return pod("p1", container(cpu=cpu, claims=claims or ("c",)), claims=claims or ("c",), node_name="")


@pytest.mark.parametrize(("cpu", "refused"), [("6", []), ("6001m", ["node-overcommit"])])
def test_an_exact_fit_fits(cpu: str, refused: list[str]) -> None:
    offered = slice_of(device("grp", old("10")))
    assert errors(fit(world(node(cpu="16"), offered, allocated("c", result(), pods=("p1",)), waiting(cpu)))) == refused


def test_the_answer_is_the_same_whether_the_watch_has_seen_the_write_or_not() -> None:
    base = (node(cpu="16"), slice_of(device("grp", old("10"))), waiting("2"))
    after = world(*base, allocated("c", result(), pods=("p1",)))
    assert fit(after).rows == fit(after, others=world(*base)).rows


def test_an_allocation_that_replaces_another_is_not_charged_twice() -> None:
    base = (node(cpu="16"), slice_of(device("a", old("10")), device("b", old("12"))), waiting())
    before = world(*base, allocated("c", result("a")))
    now = world(*base, allocated("c", result("b"), pods=("p1",), at="2026-01-02T00:00:00Z"))
    (row, *_) = fit(now, others=before).rows
    assert (row.claims, row.claim, row.free) == (0, 12, 3)


def test_another_claim_of_the_pod_is_in_the_account_once() -> None:
    devices = slice_of(device("a", old("4")), device("b", old("5")))
    claims = (allocated("c", result("a"), pods=("p1",)), allocated("d", result("b"), pods=("p1",)))
    (row, *_) = fit(world(node(cpu="16"), devices, *claims, waiting("1", "c", "d"))).rows
    assert (row.claims, row.reserved, row.claim, row.pod, row.free) == (5, 0, 4, 1, 6)


def test_a_pod_level_request_covers_its_claims() -> None:
    user = waiting("1")
    user["spec"]["resources"] = {"requests": {"cpu": "11"}}
    (row, *_) = fit(world(node(cpu="11"), slice_of(device("grp", old("10"))), allocated("c", result()), user)).rows
    assert (row.claim, row.pod, row.free) == (10, 1, 0)


def test_hugepages_that_the_node_lacks_refuse() -> None:
    offered = slice_of(device("grp", old("2Mi", resource="hugepages-2Mi")))
    (finding, *_) = fit(world(node(), offered, allocated("c", result(), pods=("p1",)), waiting())).findings
    assert (finding.rule, finding.path) == ("node-overcommit", "status.allocation")
    assert finding.message == (
        "has hugepages-2Mi 2Mi for claim ns/c on node n1 (0 allocatable - 2Mi this claim = -2Mi), "
        "needs at most 0, which is what is free there"
    )


def test_a_key_that_no_scheduler_books_is_not_fitted() -> None:
    offered = slice_of(device("grp", old("4", resource="cpus")))
    assert errors(fit(world(node(), offered, allocated("c", result(), pods=("p1",)), waiting()))) == []


def test_claims_without_costs_are_left_alone() -> None:
    made = fit(world(node(cpu="1"), slice_of(device("grp")), allocated("c", result(), pods=("p1",)), waiting("9")))
    assert made == Fit((), ())


@pytest.mark.parametrize("pods", [(), ("ghost",)])
def test_an_unknown_pod_is_said_and_the_claim_judged_alone(pods: tuple[str, ...]) -> None:
    for amount, refused in (("16", []), ("17", ["node-overcommit"])):
        offered = slice_of(device("grp", old(amount), zone=0))
        made = fit(world(node(cpu="16"), offered, allocated("c", result(), pods=pods)), user=None)
        assert errors(made) == refused
        assert "pod-unknown" in [finding.rule for finding in made.findings if finding.severity == "info"]


def test_an_unknown_node_is_never_a_silent_pass() -> None:
    made = fit(world(slice_of(device("grp", old("1"))), allocated("c", result(), pods=("p1",)), waiting()))
    assert [(finding.rule, finding.severity) for finding in made.findings] == [("node-unknown", "warning")]


@pytest.mark.parametrize(("consumed", "refused"), [("4", []), ("5", ["zone-overcommit"])])
def test_a_full_zone_refuses_though_the_node_has_room(consumed: str, refused: list[str]) -> None:
    devices = [device(f"g{zone}", old("1", "cpus"), capacity={"cpus": "9"}, zone=zone) for zone in (0, 1)]
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "zones": [
            {"name": f"node-{zone}", "type": "Node", "resources": [{"name": "cpu", "capacity": "8"}]} for zone in (0, 1)
        ],
    }
    held = allocated("other", result("g0", {"cpus": "4"}))
    asked = allocated("c", result("g0", {"cpus": consumed}), pods=("p1",))
    made = fit(world(node(cpu="16"), topology, slice_of(*devices), held, asked, waiting()))
    assert errors(made) == refused
    assert [(row.zone, row.free) for row in made.rows if row.zone is not None] == [(0, 4 - int(consumed))]


@pytest.mark.parametrize("zone", [None, -1, 0])
def test_an_unknown_zone_never_refuses(zone: int | None) -> None:
    offered = slice_of(device("grp", old("16"), device={}, zone=zone))
    offered["spec"]["devices"][0].pop("device")
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n1"},
        "zones": [{"name": "node-1", "type": "Node", "resources": [{"name": "cpu", "capacity": "8"}]}],
    }
    made = fit(world(node(cpu="17"), topology, offered, allocated("c", result(), pods=("p1",)), waiting()))
    assert [(finding.rule, finding.severity) for finding in made.findings] == [("zone-unknown", "info")]


def test_binding_is_the_fit_of_the_pod_with_its_claims_charged() -> None:
    user = pod("p1", container(cpu="3", claims=("c",)), claims=("c",), entries=[entry("c", cpu="10")], node_name="")
    base = (slice_of(device("grp", old("10"))), allocated("c", result(), pods=("p1",)), user)
    assert errors(fit(world(node(cpu="13"), *base), claim=None)) == []
    assert errors(fit(world(node(cpu="12"), *base), claim=None)) == ["node-overcommit"]


def test_a_resize_is_judged_with_the_larger_of_both_sizes() -> None:
    user = pod("p1", container(cpu="2"))
    user["status"]["containerStatuses"] = [{"name": "main", "allocatedResources": {"cpu": "5"}}]
    (row,) = fit(world(node(cpu="8"), user), claim=None).rows
    assert (row.pods, row.pod, row.free) == (0, 5, 3)


def test_overhead_of_137_is_fitted_with_the_pod() -> None:
    cost = new("memory", overhead={"perPod": "1Gi", "perContainer": "500Mi"})
    user = pod("p1", container("a", claims=("c",)), container("b", claims=("c",)), claims=("c",), node_name="")
    made = fit(
        world(node(memory="2Gi"), slice_of(device("grp", cost)), allocated("c", result(), pods=("p1",)), user, minor=37)
    )
    assert [(row.claim, row.pod, row.free) for row in made.rows] == [(0, parse("2024Mi"), parse("24Mi"))]


def test_a_claim_from_a_file_without_uid_is_the_known_one_of_its_name() -> None:
    snapshot = world(
        node(cpu="16"), slice_of(device("grp", old("10"))), allocated("c", result(), pods=("p1",)), waiting()
    )
    bare = replace(claim_in(snapshot, "c"), uid="")
    made = fit_problems(bare, pod_in(snapshot), Book().account(snapshot, "n1"), snapshot)
    assert errors(made) == []
