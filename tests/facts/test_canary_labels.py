"""Who may make a node a canary node."""

from typing import Any

import pytest

from tests.facts.builders import CANARY, DRIVER, rollout, world
from webhook.facts.canary_labels import canary_label_problems

Json = dict[str, Any]

TOLD = rollout(stage="Canary")
KUBELET = ("system:node:n1", ["system:nodes", "system:authenticated"])
ADMIN = ("root", ["system:masters"])
ANN = ("ann", ["devs"])


def problems(who: tuple[str, list[str]], old: dict[str, str], new: dict[str, str], *objs: Json):
    return canary_label_problems(*who, old, new, "n1", world(*(objs or (TOLD,))))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({}, CANARY, "set to 'yes'"),
        (CANARY, {}, "removed"),
        (CANARY, {"example.org/canary": "no"}, "changed from 'yes' to 'no'"),
        ({"a": "1"}, {"a": "1", **CANARY}, "set to 'yes'"),
    ],
)
def test_a_canary_label_is_its_editors_business(old: dict[str, str], new: dict[str, str], said: str) -> None:
    (problem,) = problems(ANN, old, new)
    assert (problem.rule, problem.path) == ("canary-label-editor", "metadata.labels[example.org/canary]")
    for part in (said, DRIVER, "node n1", "by ann"):
        assert part in problem.has
    assert "group system:masters" in problem.needs
    assert problems(ADMIN, old, new) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [({}, {}), (CANARY, CANARY), (CANARY, {**CANARY, "a": "1"}), ({"a": "1"}, {"a": "2"}), ({"a": "1"}, {})],
)
def test_other_labels_are_anybodys(old: dict[str, str], new: dict[str, str]) -> None:
    assert problems(ANN, old, new) == []
    assert problems(KUBELET, old, new) == []


@pytest.mark.parametrize(
    ("editors", "who", "allowed"),
    [
        ({"users": ["ann"]}, ANN, True),
        ({"groups": ["devs"]}, ANN, True),
        ({"users": ["devs"], "groups": ["ann"]}, ANN, False),
        ({"users": ["bob"]}, ADMIN, False),
        ({}, ADMIN, False),
        (None, ADMIN, True),
        ({"users": ["system:node:n1"], "groups": ["system:nodes"]}, KUBELET, False),
        ({"groups": ["devs"]}, ("odd", ["devs", "system:nodes"]), False),
        ({"groups": ["devs"]}, ("", ["devs"]), True),
        (None, ("", ["system:authenticated"]), False),
        # A manifest that is only checked.
        (None, ("", []), True),
    ],
)
def test_editors_are_whom_the_operator_names_and_never_a_kubelet(editors: Any, who: Any, allowed: bool) -> None:
    told = rollout(stage="Canary", canaryLabelEditors=editors)
    assert (problems(who, {}, CANARY, told) == []) is allowed


def test_every_driver_that_reads_the_label_has_a_say() -> None:
    other = rollout("e.example", stage="Canary", canaryLabelEditors={"users": ["ann"]})
    assert [DRIVER in each.has for each in problems(ANN, {}, CANARY, TOLD, other)] == [True]
    both = problems(("bob", []), {}, CANARY, TOLD, other)
    assert [driver in each.has for each, driver in zip(both, (DRIVER, "e.example"), strict=True)] == [True, True]


@pytest.mark.parametrize("stage", ["Off", "Canary", "Expanding", "General"])
def test_labels_are_guarded_before_and_after_the_stage_that_reads_them(stage: str) -> None:
    told = rollout(stage=stage, canaryNodeSelector={"matchLabels": CANARY})
    assert len(problems(ANN, {}, CANARY, told)) == 1


def test_expressions_read_labels_too() -> None:
    rows = [{"key": "legacy", "operator": "DoesNotExist"}, {"key": "ring", "operator": "NotIn", "values": ["x"]}]
    told = rollout(stage="Canary", canaryNodeSelector={"matchExpressions": rows})
    assert len(problems(ANN, {"legacy": "1", "ring": "x"}, {}, told)) == 2


def test_a_kubelet_may_register_its_node_by_the_name_it_has() -> None:
    told = rollout(stage="Canary", canaryNodeSelector={"matchLabels": {"kubernetes.io/hostname": "n1"}})
    name, renamed = {"kubernetes.io/hostname": "n1"}, {"kubernetes.io/hostname": "n2"}
    assert problems(KUBELET, {}, name, told) == []
    assert len(problems(KUBELET, renamed, name, told)) == 1
    assert len(problems(KUBELET, name, {}, told)) == 1
    assert len(problems(ANN, {}, name, told)) == 1


def test_without_rollouts_nobody_is_asked() -> None:
    assert canary_label_problems(*ANN, {}, CANARY, "n1", world()) == []


def test_many_editors_are_not_all_listed() -> None:
    told = rollout(stage="Canary", canaryLabelEditors={"users": [f"u{n}" for n in range(5)]})
    (problem,) = problems(ANN, {}, CANARY, told)
    assert "user u0, user u1, user u2, and 2 more" in problem.needs
