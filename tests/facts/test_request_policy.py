from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.facts.request_policy import consumed_for, off_policy, policy_fine, policy_problems, whole
from webhook.kube.quantity import INT64_MAX, parse
from webhook.kube.release import Release

R36, R37 = Release(36), Release(37)
FRACTIONS = Release(37, {"DRAFractionalCapacityRange": True})


def entry(value: str = "128", **policy: Any) -> dict[str, Any]:
    return {"value": value, "requestPolicy": policy} if policy else {"value": value}


def ranged(low: str | None = None, high: str | None = None, step: str | None = None, **rest: Any) -> dict[str, Any]:
    span = {name: bound for name, bound in (("min", low), ("max", high), ("step", step)) if bound is not None}
    return entry(**rest, validRange=span, default=rest.pop("default", low))


@pytest.mark.parametrize(
    ("asked", "capacity", "consumed"),
    [
        (None, entry(default="1"), 1),
        (None, entry(), 128),
        ("5", entry(), 5),
        ("-4", entry(), -4),
        ("1", ranged("2", step="2"), 2),
        ("5", ranged("2", step="2"), 6),
        ("127", ranged("2", step="2"), 128),
        ("5", ranged("2"), 5),
        ("3Mi", ranged("2Mi", "8Gi", "2Mi"), 4 << 20),
        ("3", entry(validValues=["1", "2", "4"], default="1"), 4),
        ("5", entry(validValues=["1", "2", "4"], default="1"), 5),
        ("500m", ranged("1", step="1"), 1),
        # Whole-number arithmetic: a step of 500m is one of 1.
        ("1500m", ranged("500m", step="500m"), 2),
        ("300m", ranged("250m", step="250m"), 1),
        # The 64 bits of 1.36 wrap around; 1.37 gives up.
        (str(INT64_MAX), ranged("2", "12", "2"), None),
        ("1", ranged("0", step="0"), None),
        ("1", entry(validRange={"min": "x", "step": "1"}), None),
    ],
)
def test_what_a_request_consumes(asked: str | None, capacity: Any, consumed: int | None) -> None:
    amount = None if asked is None else parse(asked)
    assert consumed_for(amount, capacity, R36) == consumed
    assert consumed_for(amount, capacity, R37) == consumed


def test_d3_fractional_steps_are_exact_with_the_gate() -> None:
    capacity = ranged("250m", "4", "250m")
    assert consumed_for(parse("300m"), capacity, FRACTIONS) == Fraction(1, 2)
    assert consumed_for(parse("1500m"), ranged("500m", step="500m"), FRACTIONS) == Fraction(3, 2)
    assert consumed_for(parse("1u"), ranged("0", step="250m"), FRACTIONS) is None


def test_d15_a_request_without_capacity_gets_the_default_or_everything() -> None:
    assert consumed_for(None, entry("8", default="2"), R36) == 2
    assert consumed_for(None, entry("8"), R36) == 8
    assert consumed_for(None, {"value": None}, R36) is None


@given(st.integers(0, 10**6), st.integers(0, 1000), st.integers(1, 1000))
def test_rounded_up_to_the_next_step_and_never_further(asked: int, low: int, step: int) -> None:
    capacity = ranged(str(low), step=str(step), value=str(10**9))
    consumed = consumed_for(asked, capacity, R36)
    assert consumed is not None
    assert consumed >= max(asked, low)
    assert consumed - max(asked, low) < step
    assert off_policy(consumed, capacity, R36) == ""


@pytest.mark.parametrize(
    ("amount", "capacity", "needs"),
    [
        ("3", ranged("2", "8", "2"), "2 plus a multiple of 2"),
        ("10", ranged("2", "8", "2"), "at most 8"),
        ("1", ranged("2", "8", "2"), "at least 2"),
        ("4", ranged("2", "8", "2"), ""),
        ("3", entry(validValues=["1", "2"], default="1"), "one of 1, 2"),
        ("2", entry(validValues=["1", "2"], default="1"), ""),
        ("77", entry(), ""),
        ("3", entry(default="3", validRange={"min": "2", "step": "2"}), ""),
    ],
)
def test_amounts_off_the_policy(amount: str, capacity: Any, needs: str) -> None:
    assert off_policy(parse(amount), capacity, R36) == needs


def found(policy: dict[str, Any], release: Release = R36, value: str = "10") -> list[tuple[str, str]]:
    return sorted((f.path, f.rule) for f in policy_problems(parse(value), policy, "p", release))


def test_a_zero_step_stops_the_server_of_1_36_and_is_refused_by_that_of_1_37() -> None:
    policy = {"default": "1", "validRange": {"min": "1", "step": "0"}}
    assert found(policy) == [("p.validRange.step", "requestpolicy-step-zero")]
    assert found(policy, R37) == [("p.validRange.step", "requestpolicy-step-zero")]
    huge = {"default": "1", "validRange": {"min": "1", "step": "18446744073709551616"}}
    assert ("p.validRange.step", "requestpolicy-step-zero") in found(huge)
    assert ("p.validRange.step", "requestpolicy-step-zero") not in found(huge, R37)
    (old,), (new,) = (policy_problems(10, policy, "p", release) for release in (R36, R37))
    assert (old.origin, old.error_type) == ("guard", "")
    assert (new.origin, new.error_type) == ("apiserver", "FieldValueInvalid")


def test_the_default_is_blamed_on_the_bound_before_1_37() -> None:
    policy = {"default": "9", "validRange": {"min": "1", "max": "8"}}
    assert found(policy) == [("p.validRange.max", "requestpolicy-out-of-range")]
    assert found(policy, R37) == [("p.validRange.default", "requestpolicy-out-of-range")]


def test_values_are_compared_as_whole_numbers_without_the_gate() -> None:
    policy = {"default": "1", "validValues": ["500m", "1"]}
    assert found(policy) == [("p.validValues[1]", "requestpolicy-values")]
    assert found(policy, FRACTIONS) == []


def test_too_many_values_hide_everything_but_the_order() -> None:
    policy = {"default": "1", "validValues": [str(i) for i in range(1, 12)]}
    kinds = sorted(f.error_type for f in policy_problems(10, policy, "p", R36))
    assert kinds == ["FieldValueInvalid", "FieldValueTooMany"]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "default": st.sampled_from(["0", "1", "2", "500m", "x", None, "-1"]),
            "validRange": st.fixed_dictionaries(
                {},
                optional={
                    n: st.sampled_from(["0", "1", "3", "500m", "9E", "-2", [], None]) for n in ("min", "max", "step")
                },
            ),
        },
    )
)
def test_what_passes_quickly_has_no_problem(policy: dict[str, Any]) -> None:
    for release, newer, exact in ((R36, False, False), (R37, True, False), (FRACTIONS, True, True)):
        if policy_fine("10", policy, newer, exact):
            assert policy_problems(10, policy, "p", release) == []


def test_rounding_is_away_from_zero() -> None:
    assert [whole(Fraction(n, 2)) for n in (-3, -1, 1, 3)] == [-2, -1, 1, 2]
