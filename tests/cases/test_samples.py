"""Every sample document gets the finding that its table wants, in both releases, through ``allocguard check``."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.cases.shapes import converted
from webhook.cli.program import program

SAMPLES = Path(__file__).parent / "samples"
# The files that make up the cluster; each other file is judged against it.
CLUSTER = ("01", "02", "03", "04", "05", "06", "07", "08", "12", "13", "15", "17", "18", "20", "24")
# Somebody else's policies are not judged, reviews are recorded ones of tests/cases/reviews.
LATER = ("22", "23")
Row = dict[str, str]
Found = dict[str, Any]


def rows() -> dict[str, list[Row]]:
    by_file: dict[str, list[Row]] = defaultdict(list)
    with (SAMPLES / "expected.tsv").open() as table:
        for row in csv.DictReader(table, delimiter="\t"):
            if row["file"][:2] not in LATER:
                by_file[row["file"]].append(row)
    return by_file


ROWS = rows()


@pytest.fixture(scope="session")
def samples_137(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples-1.37")
    for file in SAMPLES.glob("*.yaml"):
        docs = [converted(doc) for doc in yaml.safe_load_all(file.read_text()) if doc]
        (folder / file.name).write_text(yaml.safe_dump_all(docs, sort_keys=False))
    return folder


@cache
def check(folder: Path, release: str, file: str) -> dict[int, list[Found]]:
    """The findings of ``allocguard check`` on one file, by document."""
    args = ["check", str(folder / file), "-o", "json", "--at", "2026-11-20T09:20:00Z"]
    args += ["--kubernetes-version", release, "--feature-gates", "DRAListTypeAttributes=true"]
    # The claim of 16 that meets a pool under construction needs that pool.
    for prefix in (*CLUSTER, *(["09"] if file.startswith("16") else [])):
        if not file.startswith(prefix):
            args += ["--cluster", str(next(folder.glob(f"{prefix}-*.yaml")))]
    result = CliRunner().invoke(program, args)
    assert result.exit_code in (0, 1), result.output
    by_document: dict[int, list[Found]] = defaultdict(list)
    for finding in json.loads(result.stdout)["findings"]:
        by_document[finding["document"]].append(finding)
    return by_document


def verdict_is_wrong(row: Row, findings: list[Found]) -> str:
    """Why the findings are not what the row's tag wants; empty when they are."""
    named = [f for f in findings if f["rule"] == row["rule"]]
    severities = {f["severity"] for f in named}
    match row["tag"]:
        case "V":
            fine = all(f["severity"] == "info" for f in findings)
        case "V-alone":
            fine = bool(named) and all(f["severity"] != "error" for f in findings)
        case "X" | "S":
            fine = "error" in severities
        case "A":
            fine = any(f["severity"] == "error" and f["origin"] == "apiserver" for f in named)
        case "?":
            fine = severities == {"warning"}
        case "G" | "W" | "N":
            fine = bool(severities & {"error", "warning"})
        case "R":
            fine = severities == {"info"}
        case _:
            fine = False
    return "" if fine else f"{row['tag']} {row['rule']} wanted, got {[(f['rule'], f['severity']) for f in findings]}"


DOCUMENTS = [
    pytest.param(row, id=f"{row['file'][:2]}-{row['doc']}-{row['object']}") for f in ROWS.values() for row in f
]


@pytest.mark.parametrize("row", DOCUMENTS)
def test_sample_in_1_36(row: Row) -> None:
    assert verdict_is_wrong(row, check(SAMPLES, "1.36", row["file"])[int(row["doc"])]) == ""


# What 1.37 names or judges otherwise: its own field is at home, a multiplier is never defaulted,
# and keys it does not know are refused by the API server itself.
OTHERWISE_IN_137 = {
    "field-from-1.37": ("V", "-"),
    "key-not-consumable": ("A", "key-not-allowed"),
}


@pytest.mark.parametrize("row", DOCUMENTS)
def test_sample_in_1_37(row: Row, samples_137: Path) -> None:
    tag, rule = OTHERWISE_IN_137.get(row["rule"], (row["tag"], row["rule"]))
    findings = check(samples_137, "1.37", row["file"])[int(row["doc"])]
    assert verdict_is_wrong({**row, "tag": tag, "rule": rule}, findings) == ""
