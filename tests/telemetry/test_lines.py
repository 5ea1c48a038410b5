from __future__ import annotations

from fractions import Fraction

import pytest
from prometheus_client.parser import text_string_to_metric_families

from webhook.telemetry import lines
from webhook.telemetry.lines import LONGEST, heading, series, shown


def read_back(line: str) -> list[tuple[str, dict[str, str], float]]:
    text = heading("things", "What there is").decode() + line
    (family,) = text_string_to_metric_families(text)
    assert (family.name, family.type, family.documentation) == ("allocguard_things", "gauge", "What there is")
    return [(sample.name, dict(sample.labels), sample.value) for sample in family.samples]


@pytest.mark.parametrize(
    "name",
    ["a", "", "a b", 'a"b', "a\nb", "a\\", '\\"\n\\n', "a,b=c}", "\u2028\u202e\x1b[31m", "\N{SNOWMAN}", "x" * LONGEST],
)
def test_any_name_is_read_back_as_it_is(name: str) -> None:
    begin = series("things", {"pool": name, "driver": "d"})
    assert begin is not None
    assert begin.count("\n") == 0
    assert read_back(f"{begin}{shown(3)}\n") == [("allocguard_things", {"driver": "d", "pool": name}, 3)]


@pytest.mark.parametrize("name", ["x" * (LONGEST + 1), "\ud800"])
def test_what_cannot_be_sent_has_no_line(name: str) -> None:
    assert series("things", {"pool": name}) is None


def test_what_is_too_long_is_not_remembered() -> None:
    known = lines._label.cache_info().currsize
    assert series("things", {"pool": "x" * 100_000}) is None
    assert lines._label.cache_info().currsize == known


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3.0"),
        (Fraction(1, 2), "0.5"),
        (-2, "-2.0"),
        (4 << 30, "4.294967296e+09"),
        (10**400, "+Inf"),
        (-(10**400), "-Inf"),
        (Fraction(10**400, 3), "+Inf"),
    ],
)
def test_values(value: int | Fraction, text: str) -> None:
    assert shown(value) == text
