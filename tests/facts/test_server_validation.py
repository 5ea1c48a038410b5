"""The API server's own rules against its answers.

``data/validation.jsonl`` holds slices, claims, templates and classes, changed at random, with the field and the type of
every error that the validation code of k8s.io/kubernetes v1.36.3 and v1.37.2 gave for them, as created or as updated
(and, of an update, what the server checks of ``metadata`` before that). What a whole API server says about many more is
asked in tests/e2e/fidelity.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from webhook.facts.classes import class_problems
from webhook.facts.request_structure import claim_structure_problems
from webhook.facts.slice_mappings import mapping_problems
from webhook.facts.slice_structure import structure_problems
from webhook.kube.finding import Finding
from webhook.kube.release import Release

VECTORS = [json.loads(line) for line in (Path(__file__).parent / "data" / "validation.jsonl").read_text().splitlines()]
KINDS = ("ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass")


def problems(vector: dict[str, Any]) -> list[Finding]:
    release, obj = Release(vector["release"], vector["gates"]), vector["object"]
    match obj["kind"]:
        case "ResourceSlice":
            return structure_problems(obj, release, vector.get("old")) + mapping_problems(obj, release)
        case "DeviceClass":
            return class_problems(obj, release)
    return claim_structure_problems(obj, release)


@pytest.mark.parametrize("release", [36, 37])
@pytest.mark.parametrize("kind", KINDS)
def test_fields_and_types_are_those_of_the_server(kind: str, release: int) -> None:
    vectors = [v for v in VECTORS if v["object"]["kind"] == kind and v["release"] == release]
    assert len(vectors) >= 8
    for vector in vectors:
        got = {(f.path, f.error_type) for f in problems(vector) if f.origin == "apiserver"}
        assert got == {tuple(error) for error in vector["errors"]}, vector["object"]


def test_every_kind_of_error_is_among_the_answers() -> None:
    types = Counter(kind for vector in VECTORS for _, kind in vector["errors"])
    assert set(types) == {
        "FieldValueDuplicate",
        "FieldValueForbidden",
        "FieldValueInvalid",
        "FieldValueNotFound",
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
    }


def test_messages_are_one_line_and_tell_three_things() -> None:
    for vector in VECTORS:
        for finding in problems(vector):
            assert finding.path
            assert finding.has
            assert finding.needs
            assert "\n" not in finding.text("policy")
            assert not finding.needs.endswith(".")
