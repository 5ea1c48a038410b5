"""Time stamps and how an age is told."""

from datetime import datetime, timedelta, timezone

import pytest

from tests.facts.builders import NOW
from webhook.facts.times import age, duration, instant, stamp


@pytest.mark.parametrize(
    "text",
    ["2026-11-20T09:00:00Z", "2026-11-20T10:00:00+01:00", "2026-11-20T09:00:00.000000Z", "2026-11-20t09:00:00z"],
)
def test_an_instant_has_an_offset(text):
    assert instant(text) is not None
    assert age(text, NOW) == "30m"


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "2026-11-20", "2026-11-20T09:00:00", "20:00Z", "2026-13-01T00:00:00Z", "2026-11-20T09:00:00Z\n"),
        *("20261120T090000Z", "2026-W47-5T09:00:00Z", "2026-11-20T09:00Z", "2026-11-20T09:00:00+01"),
        *("\uff12026-11-20T09:00:00Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"),
    ],
)
def test_what_is_no_instant(text):
    assert instant(text) is None
    assert age(text, NOW) == ""


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0s"), (12.9, "12s"), (-5, "0s"), (250, "4m10s"), (3600, "1h"), (11100, "3h5m"), (187200, "2d4h")],
)
def test_a_duration_has_two_parts_at_most(seconds, told):
    assert duration(seconds) == told


def test_a_stamp_is_of_utc_and_as_precise_as_asked():
    moment = datetime(26, 1, 2, 3, 4, 5, 600, tzinfo=timezone(timedelta(hours=2)))
    assert stamp(moment) == "0026-01-02T01:04:05Z"
    assert stamp(moment, "auto") == stamp(moment, "microseconds") == "0026-01-02T01:04:05.000600Z"
    assert instant(stamp(moment, "auto")) == moment
