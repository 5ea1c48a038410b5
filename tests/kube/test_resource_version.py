import pytest

from webhook.kube.resource_version import version


@pytest.mark.parametrize(("text", "number"), [("17", 17), ("0", 0), ("", -1), ("x1", -1), ("-3", -1), ("\u0663", -1)])
def test_a_version_is_a_number_or_none(text: str, number: int) -> None:
    assert version(text) == number
