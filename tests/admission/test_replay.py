from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from tests.admission.recordings import REVISION, RecordingGuard, coming, off, taken, waiting
from webhook.admission.record import Reserved
from webhook.admission.replay import Past, again, before, read_recorded
from webhook.ledger.book import Book
from webhook.policy.compile import compile_files
from webhook.policy.revision import Revision, audited, revision_of


def replayed(guard: RecordingGuard, revision: Revision = REVISION) -> list[tuple[str, str, bool]]:
    """What was, what is now, and whether it is the same, of each line."""
    past, book = Past(guard.events), Book()
    found = []
    for line in guard.lines:
        recorded = read_recorded(line)
        snapshot, missing = past.view(recorded)
        assert missing == ()
        told = again(recorded, revision, snapshot, book)
        found.append((recorded.was.outcome, told.outcome, told.same(recorded.was)))
    return found


def test_the_same_policies_say_the_same_at_each_moment() -> None:
    guard = RecordingGuard()
    guard.allocates("a", "10", "pa")
    guard.sees(taken("a", "10", "pa"))
    guard.allocates("b", "10", "pb")
    guard.sees(waiting("a"))
    guard.sees(coming("pa", "a"), gone=True)
    guard.allocates("b", "10", "pb")
    for obj in (*off(), waiting("c")):
        guard.sees(obj)
    guard.decides(coming("late", "c"), endpoint="mutate")
    assert replayed(guard) == [
        ("allowed", "allowed", True),
        ("denied", "denied", True),
        ("allowed", "allowed", True),
        ("held", "held", True),
    ]


def test_what_the_view_had_before_the_journal_counts() -> None:
    """The journal writes down a moment later what the view has taken in: by time alone the claim would fit."""
    guard = RecordingGuard()
    guard.allocates("a", "10", "pa")
    guard.sees(taken("a", "10", "pa"), late=5)
    guard.allocates("b", "10", "pb")
    assert [row[0] for row in replayed(guard)] == ["allowed", "denied"]
    assert all(same for _, _, same in replayed(guard))


def test_what_the_journal_had_before_the_view_does_not() -> None:
    guard = RecordingGuard()
    guard.allocates("a", "10", "pa")
    guard.sees(taken("a", "10", "pa"), unseen=True)
    guard.allocates("b", "10", "pb")
    assert [row[0] for row in replayed(guard)] == ["allowed", "allowed"]
    assert all(same for _, _, same in replayed(guard))


def test_a_pod_that_had_just_gone_or_come_is_there_as_it_was_seen() -> None:
    guard = RecordingGuard()
    running = coming("busy", "nobody")
    running["spec"]["nodeName"] = "n1"
    running["status"]["phase"] = "Running"
    running["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "14"}
    guard.sees(running)
    guard.sees(running, gone=True, unseen=True)
    guard.allocates("a", "10", "pa")
    other = deepcopy(running)
    other["metadata"] |= {"name": "other", "uid": "other"}
    guard.snapshot = guard.snapshot.remove(running)
    guard.sees(other, unseen=True)
    guard.allocates("a", "10", "pa")
    assert replayed(guard) == [("denied", "denied", True), ("allowed", "allowed", True)]


def test_a_pod_that_nobody_had_seen_is_not_there_where_no_other_is() -> None:
    guard = RecordingGuard()
    before = guard.sees(waiting("a"))
    running = coming("busy", "nobody")
    running["spec"]["nodeName"] = "n1"
    running["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "14"}
    guard.sees(running, unseen=True)
    guard.decides(taken("a", "10"), before)
    assert "Pod" not in guard.lines[0]["allocguard"]["versions"]
    assert replayed(guard) == [("allowed", "allowed", True)]


def test_a_state_that_is_not_in_the_history_is_named() -> None:
    guard = RecordingGuard()
    guard.allocates("a", "10", "pa")
    del guard.events[2]
    recorded = read_recorded(guard.lines[0])
    assert Past(guard.events).view(recorded)[1] == ("Pod ns/pa",)


def other(name: str, expression: str) -> Revision:
    """The shipped policies, and one that refuses every claim that ``expression`` is false for."""
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*/status"]}
    policy = {
        "apiVersion": "allocguard.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "action": "Deny",
            "validations": [{"name": "no", "expression": expression, "message": "no"}],
        },
    }
    made = compile_files({"p.yaml": json.dumps(policy).encode()})
    return revision_of([*REVISION.policies, *made.policies])


def test_other_policies_are_told_by_what_they_would_have_done() -> None:
    guard = RecordingGuard()
    guard.allocates("a", "1", "pa")
    guard.allocates("b", "1", "pb")
    found = replayed(guard, other("strict", "object.metadata.name != 'b'"))
    assert found == [("allowed", "allowed", True), ("allowed", "denied", False)]


def test_the_same_outcome_for_another_reason_is_a_difference() -> None:
    guard = RecordingGuard()
    guard.allocates("a", "15", "pa")
    assert replayed(guard, other("strict", "false")) == [("denied", "denied", False)]


def test_what_only_audited_only_audits() -> None:
    guard = RecordingGuard(audited(REVISION))
    guard.allocates("a", "15", "pa")
    assert replayed(guard) == [("audited", "audited", True)]


def test_a_reservation_that_could_not_be_written_is_not_asked_for_again() -> None:
    guard = RecordingGuard()
    guard.allocates("a", "1", "pa", reserved=Reserved("n1", 1.0, 0, False, "no answer"))
    told = guard.lines[0]["allocguard"]
    told["outcome"] = "denied"
    told["findings"].append(
        {
            "policy": "claim-allocation",
            "rule": "not-reserved",
            "severity": "error",
            "path": "status.allocation",
            "does": "Deny",
            "exception": "",
        }
    )
    assert replayed(guard) == [("allowed", "allowed", True)]


def test_on_another_cluster_an_object_is_as_it_was_before_its_write() -> None:
    guard = RecordingGuard()
    guard.allocates("a", "10", "pa")
    guard.sees(taken("a", "10", "pa"))
    recorded = read_recorded(guard.lines[0])
    assert recorded.request.old_object is not None
    was = before(recorded.request, guard.snapshot)
    assert was.claims["ns", "a"].allocation is None
    assert again(recorded, REVISION, was, Book()).same(recorded.was)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"allocguard": None}, "allocguard: has nothing, needs what `serve --record` tells"),
        ({"allocguard": []}, "allocguard: has no object"),
        ({"kind": "Pod"}, "kind: has 'Pod', needs AdmissionReview"),
        ({"request": None}, "request: has nothing, needs an object"),
        ({"at": "yesterday"}, "allocguard.at: has 'yesterday', needs a time stamp"),
        ({"at": 7}, "allocguard.at: has 7, needs a time stamp"),
        ({"endpoint": "audit"}, "allocguard.endpoint: has 'audit', needs validate or mutate"),
        ({"release": {"minor": 12}}, "allocguard.release.minor: has 12, needs one of"),
        ({"revision": None}, "allocguard.revision: has None, needs a text"),
        ({"revision": "../../secrets"}, "allocguard.revision: has '../../secrets', needs the hash of policies"),
        ({"outcome": ""}, "allocguard.outcome: has '', needs a text"),
        ({"findings": None}, "allocguard.findings: expected `array`, got `null`"),
        ({"findings": [{"rule": 7}]}, "allocguard.findings[0].rule: expected `str`, got `int`"),
        ({"errors": [None]}, "allocguard.errors[0]: expected `str`, got `null`"),
        ({"response": {}}, "allocguard.response: object missing required field `patch`"),
        ({"versions": {"Pod": 7}}, "allocguard.versions[...]: expected `object`, got `int`"),
        ({"seen": {"Pod": "then"}}, "allocguard.seen.Pod: has 'then', needs a time stamp"),
    ],
)
def test_a_line_that_is_none_says_where(change: dict[str, Any], message: str) -> None:
    guard = RecordingGuard()
    guard.allocates("a", "1", "pa")
    line = guard.lines[0]
    for name, value in change.items():
        (line if name in line else line["allocguard"])[name] = value
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        read_recorded(line)


def test_lines_of_other_shapes_never_fail_in_another_way() -> None:
    """Whatever stands in a member that is not asked for, the line is read, or refused with its place."""
    guard = RecordingGuard()
    guard.allocates("a", "15", "pa")
    for name in list(guard.lines[0]["allocguard"]):
        for value in (None, 7, "x", [], {}, [7], {"x": 7}, {"Pod": 7}, {"Pod": {"ns/x": 7}, "Nothing": {"a": "b"}}):
            line = deepcopy(guard.lines[0])
            line["allocguard"][name] = value
            wrong = ""
            try:
                recorded = read_recorded(line)
            except ValueError as error:
                wrong = str(error)
            if wrong:
                assert wrong.startswith("allocguard.")
                continue
            snapshot, _ = Past(guard.events).view(recorded)
            assert again(recorded, REVISION, snapshot, Book()).outcome
