from __future__ import annotations

from typing import Any

import pytest

from webhook.facts.object_meta import (
    label_problems,
    metadata_problems,
    template_metadata_problems,
    update_metadata_problems,
)

OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}

_NO_OWNER = ["ownerReferences.apiVersion", "ownerReferences.kind", "ownerReferences.name", "ownerReferences.uid"]


def paths(metadata: Any, newer: bool = False, namespaced: bool = False) -> list[str]:
    return [finding.path.removeprefix("metadata.") for finding in metadata_problems(metadata, namespaced, newer)]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"name": "n1-cpu-x7"}, []),
        ({"name": "N1_x"}, ["name"]),
        ({}, ["name"]),
        ({"generateName": "ab-"}, []),
        ({"generateName": "AB-"}, ["generateName", "name"]),
        ({"name": "a", "generateName": "é-"}, ["generateName"]),
        ({"name": "a", "generateName": "a.-"}, []),
        ({"name": "a", "generateName": "5%-"}, []),
        ({"name": "a", "namespace": "B_"}, []),
        ({"name": "a", "labels": {"a b": "x"}}, ["labels"]),
        ({"name": "a", "labels": {"a": "x y"}}, ["labels"]),
        ({"name": "a", "annotations": {"/a": "x"}}, ["annotations"]),
        ({"name": "a", "annotations": {"A": "x" * (256 * 1024)}}, ["annotations"]),
        ({"name": "a", "finalizers": ["kubernetes", "example.com/a"]}, []),
        ({"name": "a", "finalizers": ["plain"]}, ["finalizers[0]"]),
        ({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}, ["finalizers"]),
        ({"name": "a", "ownerReferences": [OWNER | {"controller": True}]}, []),
        ({"name": "a", "ownerReferences": [OWNER | {"controller": True}] * 2}, []),
        ({"name": "a", "ownerReferences": [{"controller": True, "apiVersion": ""}, {"controller": True}]}, _NO_OWNER),
        ({"name": "a", "ownerReferences": [None]}, _NO_OWNER),
        ({"name": "a", "ownerReferences": [OWNER | {"controller": True, "uid": u} for u in "ab"]}, ["ownerReferences"]),
        ({"name": "a", "ownerReferences": [OWNER | {"apiVersion": "v1", "kind": "Event"}]}, ["ownerReferences"]),
    ],
)
def test_metadata(metadata: Any, expected: list[str]) -> None:
    assert paths(metadata) == expected


def test_1_37_says_which_owner_is_not_complete() -> None:
    metadata = {"name": "a", "ownerReferences": [OWNER, {**OWNER, "uid": "", "apiVersion": "apps/"}]}
    assert paths(metadata) == ["ownerReferences.uid", "ownerReferences.apiVersion"]
    assert paths(metadata, newer=True) == ["ownerReferences[1].uid", "ownerReferences[1].apiVersion"]


def test_a_namespace_where_it_belongs() -> None:
    assert paths({"name": "a", "namespace": "b"}, namespaced=True) == []
    assert paths({"name": "a", "namespace": "b.c"}, namespaced=True) == ["namespace"]


def test_updates_and_templates_have_less_to_say() -> None:
    bad = {"name": "A", "labels": {"a b": ""}, "finalizers": ["plain"]}
    assert [f.path for f in update_metadata_problems(bad, False)] == ["metadata.labels", "metadata.finalizers[0]"]
    worse = {"generateName": "a/-", "finalizers": ["a b/x"]}
    assert [f.path for f in update_metadata_problems(worse, False)] == ["metadata.finalizers", "metadata.generateName"]
    assert update_metadata_problems({"generateName": "A-"}, False) == []
    assert [f.path for f in label_problems(bad, "metadata")] == ["metadata.labels"]


def test_a_template_has_labels_and_annotations_and_nothing_else() -> None:
    nothing = {"name": "", "uid": None, "generation": 0, "labels": {"a": "b"}, "annotations": {}}
    assert template_metadata_problems(nothing, "spec.metadata") == []
    something = {"labels": {"a b": ""}, "name": "a", "uid": "u", "finalizers": [], "deletionGracePeriodSeconds": 0}
    assert [(f.path, f.error_type) for f in template_metadata_problems(something, "spec.metadata")] == [
        ("spec.metadata.labels", "FieldValueInvalid"),
        ("spec.metadata.name", "FieldValueForbidden"),
        ("spec.metadata.uID", "FieldValueForbidden"),
        ("spec.metadata.deletionGracePeriodSeconds", "FieldValueForbidden"),
        ("spec.metadata.finalizers", "FieldValueForbidden"),
    ]


@pytest.mark.parametrize("junk", [None, 7, [None], [7], {}, "x", {"a": None}])
def test_any_json(junk: Any) -> None:
    fields = ("labels", "annotations", "ownerReferences", "finalizers", "generateName", "namespace")
    assert isinstance(metadata_problems({"name": "a", **dict.fromkeys(fields, junk)}, False, True), list)
