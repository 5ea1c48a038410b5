"""Decisions about the allocations of a history, each by what was seen before it."""

from datetime import UTC, datetime, timedelta

from tests.ledger.builders import allocated, container, device, node, old, pod, result, slice_of
from webhook.admission.history import decisions
from webhook.kube.release import Release
from webhook.ledger.events import event_of
from webhook.store import policies

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
REVISION = policies.read([policies.shipped()])
WORLD = (
    node("n1", cpu="16"),
    slice_of(device("grp", old(key="cpus"), capacity={"cpus": "64"}, zone=0)),
)


def waiting(name):
    made = allocated(name)
    del made["status"]
    return made


def taken(name, cpus, *pods, **more):
    return allocated(name, result("grp", consumed={"cpus": cpus}), pods=pods, **more)


def decided(*steps, standing=0):
    """What is decided; the history begins after the first ``standing`` of the steps."""
    events = []
    for number, step in enumerate((*WORLD, *steps)):
        obj, gone = step if isinstance(step, tuple) else (step, False)
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(number + 1)}}
        events.append(event_of(obj, NOW + timedelta(seconds=number), gone))
    return [
        (each.claim.name, each.node, each.answer.allowed, [judged.finding.rule for judged in each.verdict.judged])
        for each in decisions(events, Release(36), REVISION, NOW + timedelta(seconds=len(WORLD) + standing - 1))
    ]


def coming(name, claim):
    return pod(name, container(cpu="2", claims=(claim,)), claims=(claim,), node_name="", phase="Pending")


def test_an_allocation_that_fits_and_one_that_does_not():
    found = decided(
        waiting("a"), waiting("b"), coming("pa", "a"), coming("pb", "b"), taken("a", "10", "pa"), taken("b", "10", "pb")
    )
    assert [row[:3] for row in found] == [("a", "n1", True), ("b", "n1", False)]
    assert "node-overcommit" in found[1][3]


def test_each_is_decided_at_its_own_moment():
    found = decided(
        waiting("a"), waiting("b"), coming("pa", "a"), taken("a", "10", "pa"), waiting("a"), (coming("pa", "a"), True),
        coming("pb", "b"), taken("b", "10", "pb"),
    )  # fmt: skip
    assert [row[:3] for row in found] == [("a", "n1", True), ("b", "n1", True)]


def test_another_consumer_is_a_decision_too():
    found = decided(
        waiting("a"), coming("pa", "a"), coming("pb", "a"), taken("a", "1", "pa"), taken("a", "1", "pa", "pb")
    )
    assert [row[2] for row in found] == [True, False]
    assert "shared-mapped-claim" in found[1][3]


def test_what_gives_back_repeats_or_was_there_before_is_none():
    assert decided(taken("a", "1", "pa"), taken("a", "1"), waiting("a"), (waiting("a"), True)) == []
    again = waiting("a")
    again["metadata"]["uid"] = "another"
    assert decided(waiting("a"), again) == []


def test_a_claim_made_anew_under_its_name_is_another_one():
    another = taken("a", "1")
    another["metadata"]["uid"] = "another"
    assert decided(waiting("a"), another) == []


def test_what_stood_when_the_history_began_is_judged_beside_all_that_stood():
    found = decided(
        taken("a", "10", "pa"), taken("b", "10", "pb"), coming("pa", "a"), coming("pb", "b"), waiting("c"),
        taken("c", "1"), standing=4,
    )  # fmt: skip
    assert [row[:3] for row in found] == [("a", "n1", False), ("b", "n1", False), ("c", "n1", False)]
    (alone,) = decided(taken("a", "10", "pa"), coming("pa", "a"), standing=2)
    assert alone[:3] == ("a", "n1", True)


def test_what_stood_is_judged_once():
    found = decided(taken("a", "1", "pa"), coming("pa", "a"), taken("a", "1", "pa"), standing=2)
    assert [row[:3] for row in found] == [("a", "n1", True)]
