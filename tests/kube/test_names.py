from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube import names

Check = Callable[[str], str | None]

GOOD: list[tuple[Check, list[str]]] = [
    (names.dns_label, ["a", "9", "gpu-0", "a" * 63, "0-0"]),
    (names.dns_subdomain, ["a", "a.b", "kiln-01.example.com", "a" * 253, "1.2.3.4"]),
    (names.driver_name, ["cpu.granite.example", "GPU.Basalt.example", "a" * 63]),
    (names.c_identifier, ["a", "_", "A9_b", "a" * 32]),
    (
        names.device_qualified_name,
        ["cpus", "cpu.granite.example/cpus", "A.b/C_d", "a" * 63 + "/" + "b" * 32, "a/b/c"],
    ),
    (names.device_fully_qualified_name, ["cpu.granite.example/cpus"]),
    (names.qualified_name, ["a", "MyName", "my.name", "example.com/My_Name-1", "a" * 253 + "/" + "b" * 63]),
    (names.label_value, ["", "enabled", "A_b.c-d", "1"]),
    (names.uuid, ["12345678-1234-1234-1234-123456789abc"]),
]

BAD: list[tuple[Check, str, str]] = [
    (names.dns_label, "", "is empty"),
    (names.dns_label, "Gpu", "has upper case"),
    (names.dns_label, "a.b", "has the character '.'"),
    (names.dns_label, "a b", "has a space"),
    (names.dns_label, "-a", "begins with '-'"),
    (names.dns_label, "a-", "ends with '-'"),
    (names.dns_label, "a\n", "has the character '\\n'"),
    (names.dns_label, "\u00e9", "has the character '\u00e9'"),
    (names.dns_label, "a" * 64, "has 64 characters, more than 63"),
    (names.dns_subdomain, "a..b", "has an empty part"),
    (names.dns_subdomain, ".a", "has an empty part"),
    (names.dns_subdomain, "a-.b", "has a part that ends with '-'"),
    (names.dns_subdomain, "a.-b", "has a part that begins with '-'"),
    (names.dns_subdomain, "a" * 254, "has 254 characters, more than 253"),
    (names.driver_name, "a" * 64, "has 64 characters, more than 63"),
    (names.driver_name, "", "is empty"),
    (names.driver_name, "a_b", "has the character '_'"),
    (names.c_identifier, "9a", "begins with a digit"),
    (names.c_identifier, "a-b", "has the character '-'"),
    (names.c_identifier, "a" * 33, "has 33 characters, more than 32"),
    (names.device_qualified_name, "/a", "has an empty domain"),
    (names.device_qualified_name, "a/", "has no identifier after the '/'"),
    (names.device_qualified_name, "a/b-c", "has the part 'b-c', which has the character '-'"),
    (names.device_fully_qualified_name, "cpus", "has no domain"),
    (names.qualified_name, "/a", "has an empty prefix"),
    (names.qualified_name, "a/b/c", "has more than one '/'"),
    (names.qualified_name, "a/", "is empty"),
    (names.qualified_name, "_a", "begins with '_'"),
    (names.qualified_name, "a/" + "b" * 64, "has 64 characters, more than 63"),
    (names.label_value, "a b", "has a space"),
    (names.uuid, "12345678-1234-1234-1234-123456789ABC", "has upper case"),
    (names.uuid, "nope", "is no UUID"),
    (names.uuid, "", "is empty"),
]


@pytest.mark.parametrize(("check", "good"), [(check, name) for check, many in GOOD for name in many])
def test_good_names_pass(check: Check, good: str) -> None:
    assert check(good) is None


@pytest.mark.parametrize(("check", "bad", "reason"), BAD)
def test_bad_names_get_the_reason(check: Check, bad: str, reason: str) -> None:
    assert check(bad) == reason


@given(st.sampled_from([check for check, _ in GOOD]), st.text(max_size=80))
def test_any_text_gets_an_answer_on_one_line(check: Check, text: str) -> None:
    reason = check(text)
    assert reason is None or (reason and "\n" not in reason)


@given(st.text(alphabet="ab9-._/A", max_size=12))
def test_a_label_is_a_subdomain_and_a_subdomain_is_a_driver_name_and_a_qualified_name(text: str) -> None:
    if names.dns_label(text) is None:
        assert names.dns_subdomain(text) is None
    if names.dns_subdomain(text) is None:
        assert names.driver_name(text) is None
        assert names.qualified_name(text) is None
