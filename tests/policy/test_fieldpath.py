import pytest

from webhook.policy.fieldpath import changed

OBJECT = {"a": {"b.c/d": [{"x": 1}, {"x": 2}]}, "n": 1}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, OBJECT),
        ({"n": 2}, {**OBJECT, "n": 2}),
        ({"n": None}, {"a": OBJECT["a"]}),
        ({"absent": None}, OBJECT),
        ({"a[b.c/d][1].x": 3}, {"a": {"b.c/d": [{"x": 1}, {"x": 3}]}, "n": 1}),
        ({"a[b.c/d][2]": {"x": 4}}, {"a": {"b.c/d": [{"x": 1}, {"x": 2}, {"x": 4}]}, "n": 1}),
        ({"a[b.c/d][0]": None}, {"a": {"b.c/d": [{"x": 2}]}, "n": 1}),
        ({"new.deep.x": 1}, {**OBJECT, "new": {"deep": {"x": 1}}}),
        ({"n": {"m": 1}, "n.m": 2}, {**OBJECT, "n": {"m": 2}}),
    ],
)
def test_fields_change_by_path_and_the_original_stays(changes, expected) -> None:
    before = repr(OBJECT)
    assert changed(OBJECT, changes) == expected
    assert repr(OBJECT) == before


@pytest.mark.parametrize("path", ["", ".", "a..b", "a[", "a[]", "a]b"])
def test_what_is_no_path(path) -> None:
    with pytest.raises(ValueError, match="has the path"):
        changed(OBJECT, {path: 1})


@pytest.mark.parametrize("path", ["n.x", "a[b.c/d].x", "a[b.c/d][7]", "a[b.c/d][7].x", "n[0]"])
def test_a_path_that_leads_nowhere(path) -> None:
    with pytest.raises(LookupError, match="leads nowhere"):
        changed(OBJECT, {path: 1})
