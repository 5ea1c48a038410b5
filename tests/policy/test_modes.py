import pytest

from webhook.policy.modes import denies, warns


@pytest.mark.parametrize(
    ("action", "severity", "expected"),
    [
        ("Deny", "error", "denies"),
        ("Deny", "warning", "warns"),
        ("Deny", "info", ""),
        ("Warn", "error", "warns"),
        ("Warn", "warning", "warns"),
        ("Warn", "info", ""),
        ("Audit", "error", ""),
        ("Audit", "warning", ""),
        ("Audit", "info", ""),
    ],
)
def test_the_table_of_actions_and_severities(action, severity, expected) -> None:
    told = ("denies" if denies(action, severity) else "") + ("warns" if warns(action, severity) else "")
    assert told == expected
