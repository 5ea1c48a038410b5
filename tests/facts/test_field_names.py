from __future__ import annotations

import pytest

from webhook.facts.field_names import driver_errors, is_semver, pool_errors, qualified_errors, shortened, shown
from webhook.kube.quantity import parse

INVALID, REQUIRED, TOO_LONG = "FieldValueInvalid", "FieldValueRequired", "FieldValueTooLong"


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("", (REQUIRED,)),
        ("dra.cpu", ()),
        ("DRA.cpu", ()),
        ("a/b", (INVALID,)),
        ("X_" * 32, (TOO_LONG, INVALID)),
        ("x." * 31 + "xx", (TOO_LONG,)),
    ],
)
def test_drivers(name: str, types: tuple[str, ...]) -> None:
    assert driver_errors(name) == types


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("", (REQUIRED,)),
        ("zone-a/shelf-7", ()),
        ("a//b", (INVALID,)),
        ("Node_1", (INVALID,)),
        ("a/" * 127 + "a", (TOO_LONG,)),
    ],
)
def test_pools(name: str, types: tuple[str, ...]) -> None:
    assert pool_errors(name) == types


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("numaNode", ()),
        ("dra.cpu/numaNodeID", ()),
        ("numa-node", (INVALID,)),
        ("y" * 33, (TOO_LONG,)),
        ("/a", (INVALID,)),
        ("a/", (INVALID,)),
        ("a/b/c", ()),
        ("x_" * 32 + "/" + "y" * 33, (TOO_LONG, INVALID)),
    ],
)
def test_qualified_names(name: str, types: tuple[str, ...]) -> None:
    assert qualified_errors(name) == types


def test_versions() -> None:
    assert [is_semver(text) for text in ("1.2.3", "1.2.3-a.b+c", "1.2", "01.2.3", "1.2.3-01", "1.2.3\n")] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_long_keys_are_cut_in_the_middle() -> None:
    assert shortened("a" * 96, 96) == "a" * 96
    assert shortened("a" * 50 + "b" * 50, 96) == "a" * 47 + "..." + "b" * 46


@pytest.mark.parametrize(
    ("text", "written"), [("4Gi", "4Gi"), ("31", "31"), ("500m", "500m"), ("0", "0"), ("1024", "1Ki")]
)
def test_amounts_as_people_write_them(text: str, written: str) -> None:
    assert shown(parse(text)) == written
