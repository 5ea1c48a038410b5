from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.facts.account import ClaimPart, PodPart, account_of, bookable, rounded
from webhook.kube.quantity import Number

AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "hugepages-2Mi"]), st.fractions(0, 100), max_size=3)
CLAIMS = st.dictionaries(st.sampled_from("abc"), st.tuples(AMOUNTS, st.sampled_from([None, 0, 1])), max_size=3)
PODS = st.dictionaries(st.sampled_from("pqr"), st.tuples(AMOUNTS, AMOUNTS, st.booleans()), max_size=3)


@pytest.mark.parametrize(
    ("resource", "books"),
    [
        ("cpu", True),
        ("memory", True),
        ("ephemeral-storage", True),
        ("hugepages-1Gi", True),
        ("cpus", False),
        ("pods", False),
        ("example.com/gpu", False),
        ("", False),
    ],
)
def test_what_the_scheduler_books(resource: str, books: bool) -> None:
    assert bookable(resource) is books


@pytest.mark.parametrize(
    ("resource", "amount", "counted"),
    [
        ("cpu", Fraction(1, 10000), Fraction(1, 1000)),
        ("cpu", Fraction(3, 2), Fraction(3, 2)),
        ("cpu", 2, 2),
        ("memory", Fraction(1, 3), 1),
        ("memory", Fraction(-1, 3), 0),
    ],
)
def test_fit_rounds_up(resource: str, amount: Number, counted: Number) -> None:
    assert rounded(resource, amount) == counted


@given(CLAIMS, PODS, st.sampled_from("abcx"), st.sampled_from("pqrx"))
def test_taking_a_claim_and_a_pod_away_is_never_having_charged_them(
    claims: dict[str, tuple[dict[str, Number], int | None]],
    pods: dict[str, tuple[dict[str, Number], dict[str, Number], bool]],
    claim: str,
    pod: str,
) -> None:
    parts = {
        name: ClaimPart(amounts, {} if zone is None else {zone: amounts}) for name, (amounts, zone) in claims.items()
    }
    held = {name: PodPart(*part) for name, part in pods.items()}
    allocatable, capacities = {"cpu": 64, "memory": 2**30}, {0: {"cpu": 32}}
    whole = account_of("n", "u", allocatable, capacities, parts, held).without(claim, pod)
    parts.pop(claim, None)
    held.pop(pod, None)
    rest = account_of("n", "u", allocatable, capacities, parts, held)
    for name, amount in rest.resources.items():
        assert whole.resources[name] == amount
    for name in whole.resources.keys() - rest.resources.keys():
        assert whole.resources[name].free == 0
    for zone, row in rest.zones.items():
        for name, zone_amount in row.items():
            assert whole.zones[zone][name] == zone_amount


def test_a_charged_resource_that_the_node_lacks_has_nothing_allocatable() -> None:
    account = account_of("n", "u", {"pods": 110}, {}, {"a": ClaimPart({"hugepages-2Mi": 4, "foo": 1}, {})}, {})
    assert {name: amount.free for name, amount in account.resources.items()} == {"hugepages-2Mi": -4, "foo": -1}
