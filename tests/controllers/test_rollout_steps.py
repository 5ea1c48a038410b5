"""What counts as a step of a rollout, and how it is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.facts.builders import DRIVER, NOW, rollout
from tests.telemetry.receiver import Receiver
from webhook.controllers.rollout_conditions import GATE, HELD, Said
from webhook.controllers.rollout_steps import Step, step_event, steps, told, trace
from webhook.facts.times import stamp
from webhook.kube.rollout import DriverRollout, read_rollout
from webhook.telemetry.tracing import Tracing

Json = dict[str, Any]
DIGESTS = [f"sha256:{letter * 64}" for letter in "edcba"]


def read(generation: int = 1, status: Json | None = None, **spec: object) -> DriverRollout:
    metadata = {"name": DRIVER, "uid": "u", "generation": generation}
    return read_rollout({**rollout(DRIVER, **spec), "metadata": metadata, "status": status or {}})


def saying(held: bool) -> list[Said]:
    return [(HELD, "True" if held else "False", "", "held" if held else ""), (GATE, "True", "", "")]


def stored(held: bool, **fields: object) -> Json:
    return {"conditions": [{"type": HELD, "status": "True" if held else "False"}], **fields}


def reasons(status: Json, held: bool, made: DriverRollout) -> list[str]:
    return [step.reason for step in steps(status, saying(held), made)]


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({}, []),
        ({"by": "somebody else"}, []),
        ({"since": stamp(NOW)}, []),
        ({"badMappings": DIGESTS[::-1]}, []),
        ({"reason": "books a third"}, ["Held"]),
        ({"until": stamp(NOW)}, ["Held"]),
        ({"badMappings": DIGESTS[:1]}, ["Held"]),
    ],
)
def test_another_hold_is_one_that_says_something_else(change: Json, news: list[str]) -> None:
    hold = {"reason": "books half", "badMappings": DIGESTS}
    known = stored(True, **told({}, read(hold=hold)))
    assert reasons(known, True, read(hold={**hold, **change})) == news


def test_a_hold_that_was_told_by_its_condition_alone_is_no_news() -> None:
    assert reasons(stored(True), True, read(hold={"reason": "r"})) == []


def test_the_same_again_after_something_else_is_told_again_under_another_name() -> None:
    names = []
    status: Json = stored(False)
    for generation, digests in enumerate([DIGESTS[:1], [], DIGESTS[:1]], 1):
        made = read(generation, resumeAt={"mappingDigests": digests}) if digests else read(generation)
        names += [step_event(step, made, NOW)["metadata"]["name"] for step in steps(status, saying(False), made)]
        marks = told(status, made)["told"]
        status["told"] = {name: mark for name, mark in marks.items() if mark is not None}
        assert set(status["told"]) == ({"resumeAt"} if digests else set())
    assert len(set(names)) == 2


def test_a_resumption_names_some_mappings_and_what_they_are_taken_for() -> None:
    at = {"mappingDigests": DIGESTS}
    [free] = steps(stored(False), saying(False), read(resumeAt=at))
    assert free.message == (
        "claims that were booked by another mapping are taken for good at "
        "sha256:aaaaaaaaaaaa, sha256:bbbbbbbbbbbb, sha256:cccccccccccc and 2 more"
    )
    assert free.attributes["allocguard.mapping.digest"] == sorted(DIGESTS)
    held = steps(stored(True), saying(True), read(resumeAt=at, hold={"reason": "r"}))
    assert [(step.reason, step.message[:35]) for step in held] == [("ResumedAt", "pools that have no other mappings t")]


def test_a_drill_by_nobody_that_says_nothing() -> None:
    done = {"name": "Rollback", "at": stamp(NOW), "passed": False}
    made = read(status={"drills": [done]})
    [step] = steps(stored(False), saying(False), made)
    assert (step.reason, step.message, step.kind) == ("DrillFailed", "drill Rollback failed", "Warning")
    assert reasons(stored(False, **told({}, made)), False, made) == []


def test_nothing_to_tell_leaves_no_field() -> None:
    assert told({}, read()) == {}


@pytest.mark.parametrize(
    ("wanted", "seconds"),
    [(stamp(NOW - timedelta(seconds=5)), 5), (stamp(NOW + timedelta(hours=1)), 0), ("", 0), ("yesterday", 0)],
)
def test_a_span_begins_when_the_step_was_wanted_and_never_ends_before_it_began(wanted: str, seconds: int) -> None:
    with Receiver() as receiver:
        tracing = Tracing(receiver.url)
        trace(tracing, Step("Held", "m", 1, "rollout.hold", wanted), read(), NOW)
        trace(tracing, Step("GateOff", "m", 1), read(), NOW)
        tracing.close()
    [span] = receiver.spans
    assert (span.ended - span.begun) / 10**9 == seconds
    assert span.attributes == {
        "allocguard.driver": DRIVER,
        "allocguard.stage": "General",
        "allocguard.message": "m",
    }
