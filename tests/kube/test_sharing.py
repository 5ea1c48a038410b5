from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.sharing import by_content, shared, sharing

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def fresh() -> Any:
    return {"a": {"int": 1}, "b": [{"c": "d" * 20}], "e": "f" * 20}


def test_equal_values_are_one() -> None:
    assert shared(fresh()) is shared(fresh())
    first, second = sharing(fresh()), sharing(fresh())
    assert first is not second
    assert first["a"] is second["a"]
    assert first["b"][0]["c"] is second["b"][0]["c"]


def test_what_differs_shares_its_parts() -> None:
    first, second = shared({"x": 1, **fresh()}), shared({"x": 2, **fresh()})
    assert first["a"] is second["a"]


@given(JSON)
def test_a_shared_value_is_the_value(value: Any) -> None:
    assert repr(shared(value)) == repr(value)


def test_values_without_json_bytes_stay_what_they_are() -> None:
    for value in ({"a": 1 << 70}, {"a": "\ud800"}, {7: 1}):
        assert shared(value) == value
        assert by_content(len)(value) == 1


def test_a_function_is_asked_once_for_equal_values() -> None:
    asked: list[Any] = []

    def read(value: Any) -> Any:
        asked.append(value)
        return {"read": value}

    remembered = by_content(read)
    assert remembered([1]) is remembered([1])
    assert remembered([2]) == {"read": [2]}
    assert asked == [[1], [2]]
