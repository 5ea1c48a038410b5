"""``serve --record`` as a process of its own, and ``policy replay`` of what it has recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.test_serve import serving, until
from webhook.store.recording import recordings

Json = dict[str, Any]


def reviews(example: Path) -> Iterator[tuple[str, Json]]:
    """Endpoint and review: those of the example, and pods beside them that pass both."""
    for path in sorted((example / "reviews").glob("*.yaml")):
        whole = yaml.safe_load(path.read_text())
        yield "validate", whole
        yield "mutate", whole


def lines(folder: Path) -> list[Json]:
    return [json.loads(line) for path in recordings(folder) for line in path.read_text().split("\n")[:-1]]


@pytest.mark.parametrize("mode", ["enforce", "audit"])
def test_what_is_decided_is_recorded_and_comes_out_again(run: Any, example: Path, tmp_path: Path, mode: str) -> None:
    recording, journal = tmp_path / "recording", tmp_path / "journal"
    options = ("--record", recording, "--record-ratio", "1", "--journal", journal, "--mode", mode)
    with serving(example / "cluster", tmp_path / "certs", *map(str, options)) as ask:
        answers = [
            json.loads(ask(f"/{endpoint}", json.dumps(whole).encode()))["response"]["allowed"]
            for endpoint, whole in reviews(example)
        ]
        assert b"[+]recording ok, " in ask("/readyz?verbose", None)
        assert b"allocguard_recording_failures_total 0.0" in ask("/metrics", None)
        until(lambda: len(lines(recording)) >= 4)
    told = lines(recording)
    assert (mode == "enforce") is (False in answers)
    outcomes = {each["allocguard"]["outcome"] for each in told}
    assert ("denied" in outcomes, "audited" in outcomes) == (mode == "enforce", mode == "audit")
    ran = run("policy", "replay", recording, "--journal", journal, "-o", "json")
    value = json.loads(ran.out)
    assert (ran.code, ran.err, value["different"], value["total"]) == (0, "", [], len(told))
    assert value["same"] == len(told)


def test_without_a_ratio_most_of_what_is_allowed_is_left_out(example: Path, tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    with serving(example / "cluster", tmp_path / "certs", "--record", str(recording), "--record-ratio", "0") as ask:
        for endpoint, whole in reviews(example):
            ask(f"/{endpoint}", json.dumps(whole).encode())
    assert {each["allocguard"]["outcome"] for each in lines(recording)} == {"denied"}


def test_a_folder_that_cannot_be_used_keeps_it_from_starting(spawn: Any, example: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = spawn("serve", "--cluster", example / "cluster", "--record", tmp_path / "file")
    assert (ran.code, "file" in ran.err, "Traceback" in ran.err) == (2, True, False)
    ran = spawn("serve", "--cluster", example / "cluster", "--record-ratio", "2")
    assert (ran.code, "--record-ratio" in ran.err) == (2, True)
