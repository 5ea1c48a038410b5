"""docs/tracing.md names the spans and attributes that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from webhook.telemetry import otlp, sampling, spans

PAGE = (Path(__file__).parents[2] / "docs" / "tracing.md").read_text()
NAMED = set(re.findall(r"`([a-z0-9_]+(?:\.[a-z0-9_]+)+)`", PAGE))
CONSTANTS = {name: value for name, value in vars(spans).items() if name.isupper() and isinstance(value, str)}
OF_THE_RESOURCE = {"service.name", "host.name"}


@pytest.mark.parametrize("name", CONSTANTS)
def test_what_there_is_stands_on_the_page(name: str) -> None:
    assert CONSTANTS[name] in NAMED


def test_what_stands_on_the_page_is_there() -> None:
    assert set(CONSTANTS.values()) == NAMED - OF_THE_RESOURCE


def test_the_figures_of_the_page_are_those_of_the_code() -> None:
    assert f"the last {sampling._MOST_KEPT:,} objects" in PAGE
    assert f"while {otlp._QUEUE:,} spans wait" in PAGE
    assert f"{otlp._BATCH} at a time" in PAGE
    assert f"at most {spans.MOST_TEXT:,} characters long, a list {spans.MOST_ITEMS} entries" in PAGE
    assert f"all of a span {spans.MOST_BYTES // 1024} KiB" in PAGE
    assert f"more than {sampling._WAITED.total_seconds():.0f} seconds after" in PAGE
