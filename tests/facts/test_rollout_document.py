"""DriverRollout documents: what is wrong, and the nearest right name."""

import pytest

from tests.facts.builders import rollout, samples
from webhook.facts.rollout_document import document_problems


def test_the_documents_of_the_samples_are_right():
    for document in samples("24"):
        assert document_problems(document) == []


def test_a_document_with_everything_is_right():
    told = rollout(
        stage="Canary",
        writers=[{"namespace": "sys", "serviceAccount": "plug", "profile": "NodeLocal"}],
        canaryLabelEditors={"groups": ["system:masters"], "users": []},
        freshness={
            "window": "90s",
            "heartbeat": "60s",
            "evidence": ["PoolComplete", "NodeReady", "DriverPodReady", "OwnerCurrent"],
            "driverPods": {"namespace": "sys", "selector": {"app": "plug"}},
        },
        numaAttributes=["resource.kubernetes.io/numaNode", "numaNode"],
        hold={"reason": "x", "by": "y", "since": "2026-11-20T09:00:00Z", "badMappings": ["sha256:" + "0" * 64]},
        resumeAt={"mappingDigests": ["sha256:" + "f" * 64]},
        promotion={
            "minCoverage": 95,
            "quietDays": 7,
            "drills": ["Rollback"],
            "pendingP99": "30s",
            "override": {"by": "ann", "reason": "ticket 7", "stage": "Canary", "at": "2026-11-20T09:00:00Z"},
        },
    )
    assert document_problems(told) == []


def test_another_version_is_told():
    (problem,) = document_problems(rollout(stage="Off") | {"apiVersion": "allocguard.dev/v9"})
    assert (problem.path, problem.needs) == ("apiVersion", "allocguard.dev/v1alpha1")


@pytest.mark.parametrize(
    ("spec", "path", "fix"),
    [
        ({"stag": "Canary"}, "spec.stag", "did you mean stage?"),
        ({"stage": "canary"}, "spec.stage", "did you mean Canary?"),
        ({"stage": "Genral"}, "spec.stage", "did you mean General?"),
        ({"stage": "Canary", "canaryNodeSelector": None}, "spec.canaryNodeSelector", ""),
        ({"stage": 3}, "spec.stage", ""),
        ({"canaryNodeSelector": []}, "spec.canaryNodeSelector", ""),
        ({"canaryNodeSelector": {"matchLabel": {}}}, "spec.canaryNodeSelector.matchLabel", ""),
        ({"freshness": {"window": "74s"}}, "spec.freshness.window", ""),
        ({"freshness": {"window": "ninety"}}, "spec.freshness.window", ""),
        ({"freshness": {"heartbeat": "0s"}}, "spec.freshness.heartbeat", ""),
        ({"freshness": {"evidence": ["NodeRedy"]}}, "spec.freshness.evidence[0]", "did you mean NodeReady?"),
        ({"freshness": {"evidence": "NodeReady"}}, "spec.freshness.evidence", ""),
        ({"freshness": {"evidence": ["DriverPodReady"]}}, "spec.freshness.driverPods.namespace", ""),
        (
            {"freshness": {"driverPods": {"namespaces": "x"}}},
            "spec.freshness.driverPods.namespaces",
            "did you mean namespace?",
        ),
        ({"hold": {"by": "me"}}, "spec.hold.reason", ""),
        ({"hold": {"reason": " \n"}}, "spec.hold.reason", ""),
        ({"hold": "yes"}, "spec.hold", ""),
        ({"hold": {"reason": "x", "since": "yesterday"}}, "spec.hold.since", ""),
        ({"hold": {"reason": "x", "until": "2026-11-20"}}, "spec.hold.until", ""),
        ({"hold": {"reason": "x", "badMappings": ["sha256:1"]}}, "spec.hold.badMappings[0]", ""),
        ({"resumeAt": {"mappingDigests": ["SHA256:" + "0" * 64]}}, "spec.resumeAt.mappingDigests[0]", ""),
        ({"writers": [{"namespace": "sys"}]}, "spec.writers[0].serviceAccount", ""),
        (
            {"writers": [{"namespace": "s", "serviceAccount": "p", "profile": "Nodelocal"}]},
            "spec.writers[0].profile",
            "did you mean NodeLocal?",
        ),
        (
            {
                "writers": [
                    {"namespace": "s", "serviceAccount": "p"},
                    {"namespace": "s", "serviceAccount": "q", "profile": "Allocator"},
                    {"namespace": "s", "serviceAccount": "p", "profile": "MultiNode"},
                ]
            },
            "spec.writers[2]",
            "",
        ),
        ({"numaAttributes": ["a b"]}, "spec.numaAttributes[0]", ""),
        ({"promotion": {"minCoverage": 101}}, "spec.promotion.minCoverage", ""),
        ({"promotion": {"drills": ["Rolback"]}}, "spec.promotion.drills[0]", "did you mean Rollback?"),
        ({"promotion": {"minCoverage": True}}, "spec.promotion.minCoverage", ""),
        ({"promotion": {"override": {"reason": "x", "stage": "Off"}}}, "spec.promotion.override.by", ""),
        ({"promotion": {"override": {"by": "ann", "stage": "Off"}}}, "spec.promotion.override.reason", ""),
        ({"promotion": {"override": {"by": "\t", "reason": "x", "stage": "Off"}}}, "spec.promotion.override.by", ""),
        ({"promotion": {"override": {"by": "ann", "reason": "x"}}}, "spec.promotion.override.stage", ""),
        (
            {"promotion": {"override": {"by": "ann", "reason": "x", "stage": "canary"}}},
            "spec.promotion.override.stage",
            "did you mean Canary?",
        ),
        # Nothing comes after General.
        (
            {"promotion": {"override": {"by": "ann", "reason": "x", "stage": "General"}}},
            "spec.promotion.override.stage",
            "",
        ),
        (
            {"promotion": {"override": {"by": "ann", "reason": "x", "stage": "Off", "at": "today"}}},
            "spec.promotion.override.at",
            "",
        ),
        ({"promotion": {"override": "ann"}}, "spec.promotion.override", ""),
        ({"promotion": {"overide": {}}}, "spec.promotion.overide", "did you mean override?"),
        (
            {"hold": {"reason": "x", "since": "2026-11-20T09:00:00Z", "until": "2026-11-20T09:59:00+01:00"}},
            "spec.hold.until",
            "",
        ),
        ({"canaryLabelEditors": {"users": ["ann", "system:node:n1"]}}, "spec.canaryLabelEditors.users[1]", ""),
        ({"canaryLabelEditors": {"groups": ["system:nodes"]}}, "spec.canaryLabelEditors.groups[0]", ""),
    ],
)
def test_a_mistake_is_named_with_its_place(spec, path, fix):
    problems = {problem.path: problem for problem in document_problems(rollout(**spec))}
    assert path in problems
    assert fix in problems[path].fix
    assert problems[path].severity == "error"


def test_of_a_hold_that_ends_before_it_begins_it_is_not_said_that_it_does_not_hold():
    """It stands from the write on: a time to begin at holds nothing back."""
    [found] = document_problems(
        rollout(hold={"reason": "x", "since": "2030-01-01T00:00:00Z", "until": "2029-01-01T00:00:00Z"})
    )
    assert found.message == (
        "has 2029-01-01T00:00:00Z, not after since (2030-01-01T00:00:00Z), needs a later one: a hold stands until it "
        "ends, whenever it began"
    )


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"canaryNodeSelector": {}}, "spec.canaryNodeSelector"),
        ({"canaryNodeSelector": {"matchLabels": {}, "matchExpressions": []}}, "spec.canaryNodeSelector"),
        ({"canaryNodeSelector": {"matchLabels": {"kubernetes.io/hostname": "n1"}}}, "spec.canaryNodeSelector"),
        (
            {"canaryNodeSelector": {"matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}},
            "spec.canaryNodeSelector",
        ),
        (
            {
                "hold": {"reason": "x", "badMappings": ["sha256:" + "0" * 64]},
                "resumeAt": {"mappingDigests": ["sha256:" + d * 64 for d in "10"]},
            },
            "spec.resumeAt.mappingDigests",
        ),
    ],
)
def test_what_may_be_meant_and_seldom_is_gets_a_warning(spec, path):
    (problem,) = document_problems(rollout(stage="Canary", **spec))
    assert (problem.path, problem.severity) == (path, "warning")


def test_what_nodes_must_not_have_may_stand_beside_what_they_must():
    rows = [{"key": "old", "operator": "NotIn", "values": ["yes"]}, {"key": "canary", "operator": "Exists"}]
    assert document_problems(rollout(stage="Canary", canaryNodeSelector={"matchExpressions": rows})) == []


@pytest.mark.parametrize("name", ["", "A_b", "a/b", "x" * 64])
def test_the_name_is_the_drivers(name):
    assert [problem.path for problem in document_problems(rollout(name))] == ["metadata.name"]


@pytest.mark.parametrize(
    "obj", [None, 7, [], {}, {"spec": 7}, {"metadata": [], "spec": None}, {"spec": {"writers": [7]}}]
)
def test_any_json_gets_problems_and_no_crash(obj):
    assert document_problems(obj)
