"""Every cluster of every report can be taken away and folded again: the same accounts come out of the same objects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.cases.test_field import FILES, RELEASES, Case, read
from webhook.facts.times import instant
from webhook.kube.release import Release, parse_version
from webhook.kube.snapshot import build
from webhook.ledger.book import Book
from webhook.ledger.export import Export, export_json, kept_objects, read_export
from webhook.ledger.replay import replay
from webhook.ledger.statement import statement

# A device that two slices offer at once: the accounts are the same, and which slice is named depends on whether there
# is a history of slices or only the present one.
TWICE = {"B21-slices-under-new-names", "B23-why-a-pool-is-not-available", "G6-library-names-slices-anew"}
NAMED = ("mapping.slice", "mapping.sliceUID", "mapping.resourceVersion", "mapping.generation")


def differences(case: Case, backwards: bool, twice: bool) -> list[str]:
    """What is not the same after the cluster of ``case`` was exported, read and folded from zero."""
    objects = list(case.objects.values())
    release, at = Release(parse_version(case.release), case.gates), instant(case.at)
    assert at is not None
    snapshot = build(objects, release)
    export = Export(at, release, at, kept_objects(objects), (), statement(Book(), snapshot))
    again = read_export(json.loads(json.dumps(export_json(export))))
    if backwards:
        again = replace(again, objects=again.objects[::-1])
    return [
        f"{each.kind} {each.name}: {each.finding.text('ledger')}"
        for each in replay(again).differences
        if not (twice and each.finding.path.endswith(NAMED))
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_same_accounts_come_out(path: Path) -> None:
    for fields in read(path)["cases"]:
        for release in fields.get("releases", read(path).get("releases", RELEASES)):
            for backwards in (False, True):
                case = Case(path, fields, release)
                assert differences(case, backwards, path.stem in TWICE) == [], (case.name, release, backwards)
