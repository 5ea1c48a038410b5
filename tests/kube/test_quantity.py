import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube import quantity
from webhook.kube.quantity import INT64_MAX, Number, QuantityError, QuantityRangeError

VECTORS = json.loads((Path(__file__).parent / "data" / "quantity.json").read_text(encoding="utf-8"))
TEXTS = VECTORS["texts"]


def value_of(vector: dict[str, object]) -> Number:
    unscaled, scale = int(str(vector["unscaled"])), int(str(vector["scale"]))
    return Fraction(unscaled, 10**scale) if scale > 0 else unscaled * 10**-scale


def test_the_corpus_is_large_and_has_both_answers() -> None:
    assert len(TEXTS) >= 500
    assert sum(vector["ok"] for vector in TEXTS) > 300
    assert sum(not vector["ok"] for vector in TEXTS) > 100


def test_every_text_is_taken_or_refused_as_the_server_does() -> None:
    wrong = []
    for vector in TEXTS:
        try:
            quantity.parse(vector["in"])
            taken = True
        except QuantityRangeError:
            taken = True
        except QuantityError:
            taken = False
        if taken != vector["ok"] and vector["in"] == vector["in"].strip():
            wrong.append(vector["in"])
    assert wrong == []


def test_every_value_is_exact() -> None:
    sane = [vector for vector in TEXTS if vector["ok"] and abs(int(vector["scale"])) <= 1000]
    assert [vector["in"] for vector in sane if quantity.parse(vector["in"]) != value_of(vector)] == []


def test_every_text_prints_as_the_server_prints_it() -> None:
    wrong = [(v["in"], v["out"], quantity.canonical_text(v["in"])) for v in TEXTS if v["ok"]]
    assert [entry for entry in wrong if entry[1] != entry[2]] == []


def test_computed_values_print_as_the_server_prints_them() -> None:
    wrong = []
    for vector in VECTORS["printed"]:
        mine = quantity.canonical(value_of(vector), vector["binary"])
        if mine != vector["out"]:
            wrong.append((vector, mine))
    assert wrong == []


# null is the caller's to judge, and what was escaped in the raw bytes is not seen after decoding.
@pytest.mark.parametrize(
    "vector",
    [vector for vector in VECTORS["json"] if vector["in"] != "null" and "\\" not in vector["in"]],
    ids=lambda vector: vector["in"],
)
def test_json_values_are_taken_as_the_server_decodes_them(vector: dict[str, object]) -> None:
    value = json.loads(str(vector["in"]))
    if vector["ok"]:
        assert quantity.parse(value) == value_of(vector)
    else:
        with pytest.raises(QuantityError):
            quantity.parse(value)


def test_spaces_that_json_must_escape_are_not_trimmed() -> None:
    for text in ("1\n", "\t1", "1\r"):
        with pytest.raises(QuantityError):
            quantity.parse(text)


@pytest.mark.parametrize("value", [None, True, False, [], {}, [1], {"a": 1}, float("nan"), float("inf"), object()])
def test_what_is_no_number_and_no_text_is_refused(value: object) -> None:
    with pytest.raises(QuantityError):
        quantity.parse(value)
    assert quantity.try_parse(value) is None


def test_a_float_counts_as_its_shortest_text() -> None:
    assert quantity.parse(0.1) == Fraction(1, 10)
    assert quantity.parse(1e3) == 1000
    assert quantity.parse(-0.0) == 0


@pytest.mark.parametrize(
    "text", ["1e400000000", "-1e2147483647", "1e1001", "9" * 1001, "0." + "0" * 1000 + "1", 10**2000]
)
def test_numbers_nobody_can_compute_with_are_refused_at_once(text: object) -> None:
    with pytest.raises(QuantityRangeError):
        quantity.parse(text)


def test_a_huge_negative_exponent_is_one_nano() -> None:
    assert quantity.parse("1e-400000000") == Fraction(1, 10**9)
    assert quantity.parse("-1e-400000000") == Fraction(-1, 10**9)
    assert quantity.parse("0e-400000000") == 0


def test_a_zero_with_a_huge_exponent_is_zero() -> None:
    assert quantity.parse("0e400000000") == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1K", "has the unknown suffix 'K' (write k (1000) or Ki (1024))"),
        ("8 GB", "has the unknown suffix ' GB' (write G (1000³) or Gi (1024³))"),
        ("", "is empty, not a quantity"),
        ("NaN", "is not a number with an optional suffix"),
        ("Ei", "has no digits"),
        ("1Q", "has the unknown suffix 'Q'"),
        ("1 Gi", "has the unknown suffix ' Gi' (write it without spaces)"),
    ],
)
def test_the_reason_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(QuantityError) as caught:
        quantity.parse(text)
    assert str(caught.value) == reason


def test_values_print_with_the_suffix_of_their_resource() -> None:
    assert quantity.of_resource("memory", 4 * 1024**3) == "4Gi"
    assert quantity.of_resource("hugepages-2Mi", 3 * 1024**2) == "3Mi"
    assert quantity.of_resource("ephemeral-storage", 1024) == "1Ki"
    assert quantity.of_resource("cpu", 2048) == "2048"
    assert quantity.of_resource("cpu", Fraction(1, 2)) == "500m"
    assert quantity.of_resource("memory", Fraction(1, 2)) == "500m"


def test_values_beyond_the_largest_suffix_keep_their_value() -> None:
    assert quantity.canonical(10**21) == "1e21"
    assert quantity.canonical(-15 * 10**30) == "-15e30"
    assert quantity.canonical(1024**7, binary=True) == "1024Ei"


def test_finer_than_nano_is_rounded_away_from_zero() -> None:
    assert quantity.canonical(Fraction(1, 10**18)) == "1n"
    assert quantity.canonical(Fraction(-1, 3)) == "-333333334n"


NANO = st.integers(-(10**27), 10**27).map(lambda n: n // 10**9 if n % 10**9 == 0 else Fraction(n, 10**9))


@given(NANO, st.booleans())
def test_what_is_printed_is_read_back(value: Number, binary: bool) -> None:
    text = quantity.canonical(value, binary)
    if not binary or abs(value) <= INT64_MAX:
        assert quantity.parse(text) == value
    assert quantity.canonical_text(text) == text


@given(st.text(max_size=30))
def test_any_text_gives_a_value_or_the_one_error(text: str) -> None:
    try:
        value = quantity.parse(text)
    except QuantityError:
        return
    assert isinstance(value, int | Fraction)
    assert quantity.canonical_text(text)


@given(
    st.from_regex(
        r"[+-]?[0-9]{0,20}(\.[0-9]{0,20})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,3})?", fullmatch=True
    )
)
def test_the_stored_text_has_the_value_of_the_written_one(text: str) -> None:
    try:
        value = quantity.parse(text)
    except QuantityError:
        return
    if abs(value) < 10**21:
        assert quantity.parse(quantity.canonical_text(text)) == value


@pytest.mark.parametrize(
    ("resource", "counted"),
    [
        ("cpu", "cores"),
        ("memory", "bytes"),
        ("ephemeral-storage", "bytes"),
        ("hugepages-2Mi", "bytes"),
        ("pods", "count"),
    ],
)
def test_the_unit_of_a_resource(resource: str, counted: str) -> None:
    assert quantity.unit(resource) == counted
