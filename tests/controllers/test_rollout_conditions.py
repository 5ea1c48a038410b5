from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.facts.builders import DRIVER, NOW, grp, node, rollout, slice_of, world
from webhook.controllers.rollout_conditions import CONDITIONS, began, conditions, quiet, said
from webhook.controllers.rollout_figures import figures
from webhook.facts.gates_found import API_SERVER, KUBELETS, SCHEDULER, Component
from webhook.facts.promotion import GateResult, Report
from webhook.facts.times import stamp
from webhook.kube.rollout import read_rollout
from webhook.ledger.book import Book

Json = dict[str, Any]
ON = (
    Component(API_SERVER, True, "by its metrics"),
    Component(SCHEDULER, None, "no pod"),
    Component(KUBELETS, None, ""),
)
DIGEST = f"sha256:{'0' * 64}"


def report(*failed: str, stage: str = "Canary", following: str = "Expanding") -> Report:
    gates = [GateResult(name, False, "h", "n") for name in failed] or [GateResult("hold", True, "h", "n")]
    return Report(DRIVER, stage, following, tuple(gates), not failed)


def told(obj: Json, components: tuple[Component, ...] = ON, made: Report | None = None) -> dict[str, tuple[str, ...]]:
    """Status, reason and message by condition."""
    snapshot = world(node(), node("n2", uid="u2", labels={"pool": "b"}), slice_of(grp()), obj)
    found = figures(snapshot, Book(), [DRIVER], NOW)[DRIVER]
    rows = said(obj, snapshot.rollouts[DRIVER], found, len(snapshot.nodes), components, made or report(), NOW)
    assert [kind for kind, *_ in rows] == list(CONDITIONS)
    return {kind: tuple(rest) for kind, *rest in rows}


def test_a_rollout_that_is_as_it_should_be() -> None:
    assert told(rollout(stage="Canary")) == {
        "Valid": ("True", "Valid", ""),
        "Held": ("False", "NoHold", ""),
        "GateEnabled": ("True", "GateOn", "kube-apiserver on, kube-scheduler unknown, kubelet unknown"),
        "Promotable": ("True", "GatesPassed", "stage Expanding may be next"),
    }


def test_what_is_wrong_with_the_document() -> None:
    status, reason, message = told(rollout(stage="Canery"))["Valid"]
    assert (status, reason) == ("False", "Invalid")
    assert "spec.stage: has 'Canery'" in message
    nobody = rollout(stage="Canary", canaryNodeSelector={"matchLabels": {"example.org/canary": "no"}})
    assert told(nobody)["Valid"] == ("True", "Valid", "spec.canaryNodeSelector: has no node that it chooses, needs one")
    row = {"key": "pool", "operator": "NotIn", "values": ["a"]}
    everybody = rollout(stage="Canary", canaryNodeSelector={"matchLabels": {}, "matchExpressions": [row]})
    every = "spec.canaryNodeSelector: has all 2 nodes, needs labels that canary nodes alone have; "
    assert told(everybody)["Valid"][2].startswith(every)


def test_a_hold_says_why_without_an_age_and_how_many_pools_it_holds() -> None:
    since = stamp(NOW - timedelta(minutes=5))
    status, reason, message = told(rollout(hold={"reason": "books half", "by": "on-call", "since": since}))["Held"]
    assert (status, reason) == ("True", "Held")
    assert f"driver {DRIVER} held: books half, by on-call, since {since}," in message
    assert message.endswith("1 of 1 pools held")


def test_digests_that_nobody_has_are_named() -> None:
    _, _, message = told(rollout(hold={"reason": "r", "badMappings": [DIGEST]}))["Held"]
    assert message.endswith("0 of 1 pools held; spec.hold.badMappings has sha256:000000000000, which no slice has")
    _, _, message = told(rollout(hold={"reason": "r"}, resumeAt={"mappingDigests": [DIGEST]}))["Held"]
    assert "spec.resumeAt has sha256:000000000000, which no slice has" in message


def test_a_hold_that_has_ended() -> None:
    until = stamp(NOW)
    assert told(rollout(hold={"reason": "r", "until": until}))["Held"] == ("False", "HoldEnded", f"ended at {until}")


@pytest.mark.parametrize(
    ("states", "status", "reason"),
    [
        ((False, None, None), "False", "GateOff"),
        ((True, False, None), "False", "GatesDiffer"),
        ((True, True, False), "False", "GatesDiffer"),
        ((None, False, None), "False", "GateOff"),
        ((None, True, None), "Unknown", "NothingTells"),
        ((True, True, True), "True", "GateOn"),
    ],
)
def test_the_gate(states: tuple[bool | None, ...], status: str, reason: str) -> None:
    names = (API_SERVER, SCHEDULER, KUBELETS)
    components = tuple(Component(name, on, f"how-{name}") for name, on in zip(names, states, strict=True))
    found = told(rollout(), components)["GateEnabled"]
    assert found[:2] == (status, reason)
    # Only what is off says by what it is known: pods that show that a gate is on come and go.
    assert [name for name in names if f"how-{name}" in found[2]] == [
        each.name for each in components if each.on is False
    ]


def test_promotable() -> None:
    assert told(rollout(), made=report("coverage", "quiet"))["Promotable"] == (
        "False",
        "GatesNotPassed",
        "not passed: coverage, quiet",
    )
    assert told(rollout(), made=report(stage="General", following=""))["Promotable"][:2] == ("False", "LastStage")


def test_transitions_move_with_the_status_only_and_conditions_of_others_stay() -> None:
    foreign = {"type": "Reviewed", "status": "True", "reason": "ByHand", "message": "", "lastTransitionTime": "x"}
    obj: Json = {"metadata": {"generation": 3}, "status": {"conditions": [foreign]}}
    first = conditions(obj, [("Held", "True", "Held", "a\nb")], NOW)
    assert first == [
        foreign,
        {
            "type": "Held",
            "status": "True",
            "reason": "Held",
            "message": "a b",
            "observedGeneration": 3,
            "lastTransitionTime": stamp(NOW),
        },
    ]
    later, obj = NOW + timedelta(hours=1), {"metadata": {"generation": 4}, "status": {"conditions": first}}
    edited, ended = (conditions(obj, [("Held", state, "Held", "c")], later)[1] for state in ("True", "False"))
    assert (edited["lastTransitionTime"], edited["observedGeneration"]) == (stamp(NOW), 4)
    assert ended["lastTransitionTime"] == stamp(later)


def at(minutes: int) -> str:
    return stamp(NOW + timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("stored", "differences", "since", "calm"),
    [
        ({}, 0, 0, 0),
        ({}, 2, 0, None),
        ({"stage": "Canary", "observedSince": at(-90), "quietSince": at(-60)}, 0, -90, -60),
        ({"stage": "Canary", "observedSince": at(-90), "quietSince": at(-60)}, 1, -90, None),
        ({"stage": "Canary", "observedSince": at(-90)}, 0, -90, 0),
        ({"stage": "Off", "observedSince": at(-90), "quietSince": at(-60)}, 0, 0, 0),
        ({"stage": "Canary", "observedSince": at(90), "quietSince": at(95)}, 0, 0, 0),
        ({"stage": "Canary", "observedSince": "soon", "quietSince": 7}, 0, 0, 0),
    ],
    ids=[
        "first look",
        "not quiet at first",
        "goes on",
        "disturbed",
        "quiet again",
        "next stage",
        "clock",
        "unreadable",
    ],
)
def test_since_when_it_is_looked_at_and_quiet(stored: Json, differences: int, since: int, calm: int | None) -> None:
    model = read_rollout(rollout(stage="Canary"))
    assert began(stored, model, NOW) == NOW + timedelta(minutes=since)
    expected = None if calm is None else NOW + timedelta(minutes=calm)
    assert quiet(stored, model, differences, NOW) == expected
