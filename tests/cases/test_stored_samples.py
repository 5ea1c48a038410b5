"""All samples as one cluster: a scan of what is stored finds what the table wants, leftovers too."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.cases.test_samples import ROWS, SAMPLES, Row
from webhook.cli.program import program

ARGUMENTS = ("--at", "2026-11-20T09:20:00Z", "--kubernetes-version", "1.36")
GATES = ("--feature-gates", "DRAListTypeAttributes=true")
Found = dict[str, Any]


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, int], list[Found]]:
    """The findings of ``check --live`` by file and document."""
    ran = CliRunner().invoke(program, ["check", "--live", "--cluster", str(SAMPLES), *ARGUMENTS, *GATES, "-o", "json"])
    assert ran.exit_code == 1, ran.output
    by_place: dict[tuple[str, int], list[Found]] = defaultdict(list)
    for each in json.loads(ran.stdout)["findings"]:
        by_place[Path(each["file"]).name, each["document"]].append(each)
    return by_place


WANTED = [
    pytest.param(row, id=f"{row['file'][:2]}-{row['doc']}-{row['object']}")
    for rows in ROWS.values()
    for row in rows
    if row["tag"] in "XR"
]


# What is so today about claims that are there: a pool under construction, a node outside the stage.
PASSING = {("ResourceClaim", "pool-incomplete"), ("ResourceClaim", "node-not-canary")}


@pytest.mark.parametrize("row", WANTED)
def test_what_would_be_refused_today_and_what_is_left_over(found: dict[tuple[str, int], list[Found]], row: Row) -> None:
    severities = {each["severity"] for each in found[row["file"], int(row["doc"])] if each["rule"] == row["rule"]}
    wrong = row["tag"] == "X" and (row["kind"], row["rule"]) not in PASSING
    assert severities == {"error" if wrong else "info"}


def test_leftovers_are_told_of_their_node_too(found: dict[tuple[str, int], list[Found]]) -> None:
    [left] = [
        each
        for each in found[SAMPLES.name, 1]
        if each["rule"] == "leftover-claims" and "media-live/left-behind" in each["message"]
    ]
    assert (left["policy"], left["kind"], left["name"], left["line"]) == ("ledger", "Node", "kiln-01", 0)
