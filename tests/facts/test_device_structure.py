from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.facts.device_structure import (
    attribute_problems,
    attributes_fine,
    binding_problems,
    capacity_fine,
    capacity_problems,
    consumption_problems,
    counter_problems,
    taint_problems,
)
from webhook.kube.release import Release

R36 = Release(36)


def types(problems: Any) -> list[tuple[str, str]]:
    return [(f.path.removeprefix("p"), f.error_type.removeprefix("FieldValue")) for f in problems]


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ({"int": 0}, []),
        ({"bool": False}, []),
        ({"ints": [0]}, []),
        ({}, [("[a]", "Invalid")]),
        ({"int": 0, "bool": True}, [("[a]", "Invalid")]),
        ({"string": "é" * 33}, [("[a].string", "TooLong")]),
        ({"version": "1.2"}, [("[a].version", "Invalid")]),
        ({"strings": ["x", "y" * 65]}, [("[a].strings[1]", "TooLong")]),
        ({"versions": []}, [("[a].versions", "Invalid")]),
    ],
)
def test_attributes(attribute: Any, expected: list[tuple[str, str]]) -> None:
    assert types(attribute_problems({"a": attribute}, "p", True, False)) == expected


ATTRIBUTES = st.dictionaries(
    st.sampled_from(["a", "d.example/b", "a-b", "x" * 33, "a/b/c", ""]),
    st.dictionaries(
        st.sampled_from(["int", "bool", "string", "version", "ints", "other"]),
        st.sampled_from([0, True, None, "1.2.3", "x" * 65, "é", [], [1], {}]),
        max_size=2,
    )
    | st.none(),
    max_size=3,
)


@given(ATTRIBUTES)
def test_what_passes_quickly_has_no_problem(attributes: dict[str, Any]) -> None:
    if attributes_fine(attributes):
        for lists in (False, True):
            assert attribute_problems(attributes, "p", lists, True) == []


@given(
    st.dictionaries(
        st.sampled_from(["a", "d.example/b", "a-b", ""]),
        st.fixed_dictionaries(
            {},
            optional={
                "value": st.sampled_from(["1", "x", None]),
                "requestPolicy": st.sampled_from([None, {}, {"default": "1", "validRange": {"min": "1"}}, 7]),
            },
        ),
        max_size=2,
    ),
    st.booleans(),
)
def test_capacities_that_pass_quickly_have_no_problem(capacity: dict[str, Any], shared: bool) -> None:
    if capacity_fine(capacity, shared, False, False):
        assert capacity_problems(capacity, "p", shared, R36) == []


def test_a_policy_belongs_to_shared_devices() -> None:
    capacity = {"size": {"value": "1", "requestPolicy": {}}}
    assert types(capacity_problems(capacity, "p", False, R36)) == [("[size].requestPolicy", "Forbidden")]
    assert capacity_problems(capacity, "p", True, R36) == []


def test_taints() -> None:
    fine = {"key": "example.org/x", "value": "y", "effect": "NoSchedule"}
    assert types(taint_problems([fine, {}], "p", False)) == [("[1].effect", "Required"), ("[1].key", "Invalid")]
    assert types(taint_problems([fine | {"effect": "Evict"}] * 17, "p", False)) == [("", "TooMany")]
    assert len(types(taint_problems([fine | {"effect": "Evict"}] * 17, "p", True))) == 18


def test_counters() -> None:
    counters = {"slots": {"value": "1"}}
    assert types(counter_problems({"name": "set", "counters": counters}, "name", "p")) == []
    assert types(counter_problems({}, "name", "p")) == [(".name", "Required"), (".counters", "Required")]
    many = {f"c{index}": {} for index in range(33)}
    assert types(counter_problems({"name": "A", "counters": many}, "name", "p")) == [
        (".name", "Invalid"),
        (".counters", "TooMany"),
    ]
    entry = {"counterSet": "set", "counters": counters}
    assert types(consumption_problems([entry, entry], "p")) == [("[1]", "Duplicate")]
    assert types(consumption_problems([entry] * 3, "p")) == [("", "TooMany")]


@pytest.mark.parametrize(
    ("wanted", "failing", "expected"),
    [
        (["a"], ["b"], []),
        (["a"], [], [(".bindingFailureConditions", "Invalid")]),
        ([], ["a"], [(".bindingConditions", "Invalid")]),
        (["a", "a"], ["b"], [(".bindingConditions[1]", "Duplicate")]),
        (["a"], ["a"], [(".bindingFailureConditions[0]", "Invalid")]),
        (["a b"], ["b"], [(".bindingConditions[0]", "Invalid")]),
        (list("abcde"), ["x"], [(".bindingConditions", "TooMany")]),
    ],
)
def test_binding_conditions(wanted: list[str], failing: list[str], expected: list[tuple[str, str]]) -> None:
    fields = {"bindingConditions": wanted, "bindingFailureConditions": failing}
    assert types(binding_problems(fields, "p")) == expected


def test_1_37_does_not_shorten_the_key_of_an_attribute_without_a_value() -> None:
    key = f"{'d' * 60}/{'e' * 100}"
    for newer in (False, True):
        found = [f.path for f in attribute_problems({key: {}}, "p", False, newer) if f.needs == "exactly one value"]
        assert (f"p[{key}]" in found, len(found)) == (newer, 1 + newer)
