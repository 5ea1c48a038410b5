from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.ledger.builders import allocated, container, device, new, node, old, pod, result, slice_of, world
from webhook.admission.decide import decide
from webhook.admission.sums import fit_rows
from webhook.admission.terms import Terms
from webhook.kube.admission import raw_request, read_request
from webhook.kube.node_ledger import BookedCharge, NodeLedger, Reservation
from webhook.kube.snapshot import Snapshot
from webhook.ledger.book import Book
from webhook.store import policies

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
REVISION = policies.read([policies.shipped()])
Json = dict[str, Any]
SLICE = slice_of(device("grp", old("2", key="cpus"), capacity={"cpus": "64"}, zone=0), device("gpu", old("4")))
MINE = (
    allocated("mine", result("grp", consumed={"cpus": "1"}), pods=("me",)),
    pod("me", container(cpu="1", claims=("mine",)), claims=("mine",), node_name="", phase="Pending"),
)


def sums_of(snapshot: Snapshot, claim: Json = MINE[0]) -> dict[tuple[str, int | None], dict[str, Json]]:
    """The terms, by what the sum is about and their names, of allocating ``claim`` for the pod ``me``."""
    before = {**claim, "status": {}}
    request = read_request(raw_request("UPDATE", claim, before, user="system:kube-scheduler", sub_resource="status"))
    verdict = decide(request, "validate", REVISION, snapshot, Book(), NOW)
    facts = verdict.evaluation.facts
    rows = fit_rows(facts)
    assert rows
    terms = Terms(facts)
    return {(row.resource, row.zone): {each["term"]: each for each in terms.of(row)} for row in rows}


def test_each_term_names_whose_it_is_and_by_which_mapping() -> None:
    other = allocated("other", result("grp", consumed={"cpus": "3"}), pods=("p1",))
    user = pod("p1", container(cpu="2", claims=("other",)), claims=("other",))
    sums = sums_of(world(node(cpu="16"), SLICE, other, user, MINE[1]))
    cpu = sums["cpu", None]
    assert list(cpu) == ["pods", "claims", "this claim", "this pod"]
    assert cpu["pods"] == {"term": "pods", "amount": "2", "of": [{"amount": "2", "pod": "ns/p1"}], "rest": None}
    (charged,) = cpu["claims"]["of"]
    times = "\N{MULTIPLICATION SIGN}"
    assert (charged["amount"], charged["formula"], charged["state"]) == ("6", f"3 {times} 2", "bound")
    assert (charged["claim"], charged["device"], charged["zone"]) == ("ns/other", "d.example/n1/grp", 0)
    version = charged["mapping"]
    assert (version["slice"], version["sliceUID"], version["generation"]) == ("s1", "uid-s1", 1)
    assert version["digest"].startswith("sha256:")
    (own,) = cpu["this claim"]["of"]
    assert (own["amount"], own["formula"], own["request"]) == ("2", f"1 {times} 2", "r")
    assert own["mapping"] == version
    assert cpu["this pod"]["of"] == [{"amount": "1", "pod": "ns/me"}]
    assert sums["cpu", 0]["claims"]["of"] == [charged]


def test_what_costs_a_zone_is_only_what_is_of_that_zone() -> None:
    other = allocated("other", result("gpu"), pods=("p1",))
    sums = sums_of(world(node(cpu="16"), SLICE, other, pod("p1", container(claims=("other",)), claims=("other",))))
    assert sums["cpu", None]["claims"]["amount"] == "4"
    assert "claims" not in sums["cpu", 0]


def test_a_reservation_is_told_apart_with_the_pod_that_comes_with_it() -> None:
    charge = BookedCharge(
        "uid-other", "2026-11-30T11:59:59Z", "r", "d.example", "n1", "grp", "", "cpu", "ns", "other",
        "s1", "uid-s1", 1, "1", "sha256:x", 3, 0, "3 x 1", "2026-11-30T11:59:59Z",
    )  # fmt: skip
    held = Reservation(
        "uid-other", "2026-11-30T11:59:59Z", "ns", "other", "uid-p1", "ns", "p1",
        (charge,), {"cpu": 2}, {}, "2026-11-30T11:59:59Z", "replica-1",
    )  # fmt: skip
    waiting = {**allocated("other"), "status": {}}
    user = pod("p1", container(cpu="2", claims=("other",)), claims=("other",), node_name="", phase="Pending")
    snapshot = world(node(cpu="16"), SLICE, waiting, user, MINE[1])
    cpu = sums_of(snapshot.with_ledger(NodeLedger("n1", "u1", reservations=(held,))))["cpu", None]
    assert cpu["reserved"]["amount"] == "5"
    first, second = cpu["reserved"]["of"]
    assert (first["claim"], first["amount"], first["mapping"]["digest"]) == ("ns/other", "3", "sha256:x")
    assert second == {"amount": "2", "pod": "ns/p1"}


def test_the_overhead_of_others_is_by_pod() -> None:
    costly = slice_of(device("grp", new(mapping={"deviceUnits": "2"}, overhead={"perPod": "500m"}), zone=0))
    other = allocated("other", result("grp"), pods=("p1",))
    user = pod("p1", container(cpu="2", claims=("other",)), claims=("other",))
    mine = allocated("mine", result("grp"), pods=("me",))
    snapshot = world(node(cpu="16"), costly, other, user, MINE[1], minor=37)
    cpu = sums_of(snapshot, mine)["cpu", None]
    assert cpu["overhead"]["of"] == [{"amount": "500m", "pod": "ns/p1"}]
    assert (cpu["pods"]["amount"], cpu["this pod"]["amount"]) == ("2", "1500m")


@pytest.mark.parametrize("count", [8, 9, 40])
def test_the_largest_parts_are_named_and_the_rest_is_one_number(count: int) -> None:
    pods = [pod(f"p{number}", container(cpu=f"{number + 1}m")) for number in range(count)]
    term = sums_of(world(node(cpu="16"), SLICE, *pods, MINE[1]))["cpu", None]["pods"]
    assert [part["amount"] for part in term["of"]] == [f"{count - number}m" for number in range(8)]
    left = count - 8
    amount = sum(range(left + 1))
    assert term["rest"] == ({"count": left, "amount": f"{amount}m"} if left else None)


def test_what_the_ledger_has_of_this_claim_and_pod_is_not_among_the_others() -> None:
    bound = pod("me", container(cpu="1", claims=("mine",)), claims=("mine",))
    cpu = sums_of(world(node(cpu="16"), SLICE, MINE[0], bound))["cpu", None]
    assert list(cpu) == ["this claim", "this pod"]
