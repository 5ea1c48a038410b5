"""``policy replay``, on what a guard has recorded that decides on a view of a small cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.admission.recordings import REVISION, WORLD, RecordingGuard, taken
from webhook.admission import replay
from webhook.ledger.events import Event
from webhook.ledger.recorded import encoded
from webhook.policy.compile import compile_files
from webhook.store.journal import Journal
from webhook.store.recording import policies_of

STRICT = """
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: strict}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [resource.k8s.io], apiVersions: [v1], operations: [UPDATE], resources: [resourceclaims/status]}
  action: Deny
  validations: [{name: none, expression: "false", message: "no"}]
"""


def journal(folder: Path, events: list[Event]) -> Path:
    """The journal of these events, as `serve --journal` writes it."""
    clock = iter(event.observed for event in events)
    made = Journal(folder, lambda: next(clock, events[-1].observed))
    for event in events:
        assert event.object is not None
        (made.gone if event.type == "gone" else made.put)(event.object)
    made.close()
    return folder


@pytest.fixture
def guard() -> RecordingGuard:
    """It has allowed one allocation, and refused another."""
    made = RecordingGuard()
    made.allocates("a", "10", "pa")
    made.sees(taken("a", "10", "pa"))
    made.allocates("b", "10", "pb")
    return made


def written(folder: Path, lines: list[Any], name: str = "recording-00000001.json") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"".join(encoded(line) + b"\n" for line in lines))
    return folder


def test_the_same_policies_and_the_journal_give_no_difference(run: Any, guard: RecordingGuard, tmp_path: Path) -> None:
    recording = written(tmp_path / "recording", guard.lines)
    events = journal(tmp_path / "journal", guard.events)
    ran = run("policy", "replay", recording, "--journal", events)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "the same: 2 decisions, none different\n"


def test_other_policies_are_told_decision_by_decision(run: Any, guard: RecordingGuard, tmp_path: Path) -> None:
    recording = written(tmp_path / "recording", guard.lines)
    events = journal(tmp_path / "journal", guard.events)
    (tmp_path / "strict.yaml").write_text(STRICT)
    args = ("policy", "replay", recording, "--journal", events, "--policies", tmp_path / "strict.yaml")
    ran = run(*args, "-o", "json")
    value = json.loads(ran.out)
    assert (ran.code, value["total"], value["same"]) == (1, 2, 0)
    one, other = value["different"]
    assert (one["claim"], one["was"]["outcome"], one["now"]["outcome"]) == ("ns/a", "allowed", "denied")
    assert (other["claim"], other["was"]["outcome"], other["now"]["outcome"]) == ("ns/b", "denied", "denied")
    assert [each["rule"] for each in one["now"]["findings"]] == ["none"]
    assert one["at"] < other["at"]
    assert one["uid"] == guard.lines[0]["request"]["uid"]
    ran = run(*args)
    assert (ran.code, "claim ns/a" in ran.out, "now: denied" in ran.out) == (1, True, True)
    assert "strict/none" in ran.out
    assert ran.out.splitlines()[-1].startswith("not the same: 2 decisions, 2 different")


def test_attempts_that_differ_in_the_same_words_are_told_once_with_their_number(
    run: Any, guard: RecordingGuard, tmp_path: Path
) -> None:
    for _ in range(3):
        guard.allocates("b", "10", "pb")
    recording = written(tmp_path / "recording", guard.lines)
    events = journal(tmp_path / "journal", guard.events)
    (tmp_path / "strict.yaml").write_text(STRICT)
    args = ("policy", "replay", recording, "--journal", events, "--policies", tmp_path / "strict.yaml")
    different = json.loads(run(*args, "-o", "json").out)["different"]
    assert [each["claim"] for each in different] == ["ns/a", "ns/b", "ns/b", "ns/b", "ns/b"]
    lines = run(*args).out.splitlines()
    assert [line for line in lines if line.startswith(("different", "  and"))] == [
        f"different  {different[0]['at']}  claim ns/a (review {different[0]['uid']}, {different[0]['place']})",
        f"different  {different[1]['at']}  claim ns/b (review {different[1]['uid']}, {different[1]['place']})",
        f"  and 3 decisions alike, the last at {different[4]['at']}",
    ]
    assert lines[-1] == "not the same: 5 decisions, 5 different"


def test_a_cluster_in_files_is_judged_by_as_it_is(run: Any, guard: RecordingGuard, tmp_path: Path) -> None:
    """There the first claim, which the second did not fit beside, is not."""
    recording = written(tmp_path / "recording", guard.lines)
    pods = [event.object for event in guard.events if event.kind == "Pod"]
    items = [*WORLD, *pods, guard.events[-1].object]
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    args = ("--cluster", tmp_path / "cluster.json", "--kubernetes-version", "1.36", "-o", "json")
    ran = run("policy", "replay", recording, *args)
    value = json.loads(ran.out)
    assert (ran.code, value["same"]) == (1, 1)
    [different] = value["different"]
    assert (different["claim"], different["now"]["outcome"]) == ("ns/b", "allowed")


def test_recordings_of_several_replicas_are_one_history(run: Any, guard: RecordingGuard, tmp_path: Path) -> None:
    one = written(tmp_path / "one", guard.lines[1:])
    other = written(tmp_path / "other", guard.lines[:1])
    ran = run("policy", "replay", one, other, "--journal", journal(tmp_path / "journal", guard.events))
    assert (ran.code, ran.out.partition(",")[0]) == (0, "the same: 2 decisions")


def test_lines_that_are_none_are_told_with_their_places(run: Any, guard: RecordingGuard, tmp_path: Path) -> None:
    recording = written(tmp_path / "recording", [guard.lines[0], {"kind": "Pod"}, guard.lines[1]])
    file = recording / "recording-00000001.json"
    file.write_bytes(b"[7]\n" + file.read_bytes() + encoded(guard.lines[0])[:200])
    ran = run("policy", "replay", recording, "--journal", journal(tmp_path / "journal", guard.events))
    assert ran.code == 2
    assert ran.out.startswith("the same: 2 decisions")
    first, second, third = ran.err.splitlines()
    assert f"{file}:1: has a list, needs an AdmissionReview" in first
    assert f"{file}:3: kind: has 'Pod', needs AdmissionReview" in second
    assert f"{file}:5: is no JSON: unexpected end of data; it may be cut off" in third


def test_policies_that_were_cut_off_keep_only_their_own_decisions_from_being_judged(
    run: Any, guard: RecordingGuard, tmp_path: Path
) -> None:
    strict = compile_files({"strict.yaml": STRICT.encode()})
    guard.revision = strict
    guard.allocates("c", "1", "pc")
    recording = written(tmp_path / "recording", guard.lines)
    path = policies_of(recording, strict.hash)
    path.parent.mkdir()
    path.write_text("")
    ran = run("policy", "replay", recording, "--journal", journal(tmp_path / "journal", guard.events))
    assert ran.code == 2
    assert ran.err.startswith(f"allocguard: {path}:1:1: has no document")
    assert ran.out.splitlines() == [
        "not judged again: 1 decision, their policies cannot be read, name others with --policies",
        "the same: 2 decisions, none different",
    ]


def test_where_nothing_was_judged_nothing_is_said_to_be_the_same(
    run: Any, guard: RecordingGuard, tmp_path: Path
) -> None:
    events = journal(tmp_path / "journal", guard.events)
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "nowhere"):
        ran = run("policy", "replay", tmp_path / folder, "--journal", events)
        assert (ran.code, ran.out) == (2, "no decision was judged again\n")


def test_one_at_which_the_guard_fails_is_told_and_the_others_are_judged(
    run: Any, guard: RecordingGuard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = replay.again

    def again(recorded: Any, *rest: Any) -> Any:
        if recorded.request.name == "a":
            raise RecursionError("too deep")
        return judge(recorded, *rest)

    monkeypatch.setattr(replay, "again", again)
    recording = written(tmp_path / "recording", guard.lines)
    ran = run("policy", "replay", recording, "--journal", journal(tmp_path / "journal", guard.events))
    assert ran.code == 2
    assert f"{recording / 'recording-00000001.json'}:1: the guard fails at it: RecursionError: too deep" in ran.err
    assert ran.out.splitlines() == [
        "not judged again: 1 decision, the guard fails at them",
        "the same: 1 decision, none different",
    ]


def test_what_cannot_be_judged_again_is_counted(run: Any, guard: RecordingGuard, tmp_path: Path) -> None:
    """Decisions from before the journal, and those about roles, which it does not keep."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}, "rules": []}
    guard.decides(role)
    recording = written(tmp_path / "recording", guard.lines)
    ran = run("policy", "replay", recording, "--journal", journal(tmp_path / "journal", guard.events[5:]), "-o", "json")
    value = json.loads(ran.out)
    assert value["skipped"] == {"older than the journal": 1, "the journal has no roles and bindings": 1}
    assert value["total"] == 3


def test_the_policies_that_decided_judge_where_the_recording_has_them(
    run: Any, guard: RecordingGuard, tmp_path: Path
) -> None:
    """Each decision its own: the policies were edited in between."""
    strict = compile_files({"strict.yaml": STRICT.encode()})
    guard.revision = strict
    guard.allocates("c", "1", "pc")
    recording = written(tmp_path / "recording", guard.lines)
    by = ("--journal", journal(tmp_path / "journal", guard.events))
    ran = run("policy", "replay", recording, *by)
    assert ran.code == 1
    assert f"not in the recording: 1 decision by {strict.hash}; the shipped ones judge" in ran.err
    kept = policies_of(recording, strict.hash)
    kept.parent.mkdir()
    kept.write_text(STRICT)
    ran = run("policy", "replay", recording, *by, "-o", "json")
    value = json.loads(ran.out)
    assert (ran.code, ran.err, value["same"]) == (0, "", 3)
    assert value["revisions"] == sorted([REVISION.hash, strict.hash])


def test_it_needs_something_to_judge_by(run: Any, guard: RecordingGuard, tmp_path: Path) -> None:
    recording = written(tmp_path / "recording", guard.lines)
    ran = run("policy", "replay", recording)
    assert (ran.code, "needs --journal DIR, or --cluster" in ran.err) == (2, True)
    for more, told in (
        (("--at", "2026-11-30T12:00:00Z"), "each decision is judged at its own time"),
        (("--kubernetes-version", "1.37"), "a recording has them itself"),
        (("--cluster", tmp_path), "needs --journal DIR, or --cluster"),
    ):
        ran = run("policy", "replay", recording, "--journal", tmp_path / "none", *more)
        assert (ran.code, told in ran.err) == (2, True)
    ran = run("policy", "replay", "-", "--cluster", "-")
    assert (ran.code, "- is given twice" in ran.err) == (2, True)
    ran = run("policy", "replay", recording, "--journal", tmp_path / "none")
    assert (ran.code, "has no journal" in ran.err) == (2, True)
    ran = run("policy", "replay", tmp_path / "nothing", "--journal", journal(tmp_path / "journal", guard.events))
    assert (ran.code, "nothing: cannot be read" in ran.err) == (2, True)


def test_hostile_names_stay_on_their_lines(run: Any, guard: RecordingGuard, tmp_path: Path) -> None:
    hostile = "a\x1b[2J\nthe same: 9 decisions\u2028\u202e"
    for line in guard.lines:
        line["request"]["name"] = hostile
        line["allocguard"]["outcome"] = hostile
        line["allocguard"]["errors"] = [hostile]
        line["allocguard"]["response"]["patch"] = [hostile]
        line["allocguard"]["findings"] = [
            dict.fromkeys(("policy", "rule", "severity", "path", "does", "message"), hostile)
        ]
        line["allocguard"]["versions"]["ResourceClaim"] = {f"ns/{hostile}": "7"}
    recording = written(tmp_path / "recording", guard.lines)
    ran = run("policy", "replay", recording, "--journal", journal(tmp_path / "journal", guard.events))
    assert ran.code == 1
    assert all(line.isprintable() for line in ran.out.splitlines())
    assert not any(line.startswith("the same: 9") for line in ran.out.splitlines())


@pytest.mark.parametrize(
    ("command", "each"),
    [
        (("review",), '"allowed":true'),
        (("explain", "-o", "json"), '"operation": "UPDATE"'),
        (("check",), "driver-without"),
    ],
)
def test_a_recording_is_read_by_what_reads_reviews(
    run: Any, guard: RecordingGuard, tmp_path: Path, command: tuple[str, ...], each: str
) -> None:
    recording = written(tmp_path / "recording", guard.lines)
    items = [*WORLD, *(event.object for event in guard.events[2:] if event.kind == "Pod")]
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    ran = run(*command, recording, "--cluster", tmp_path / "cluster.json", "--at", "2026-11-30T12:00:00Z")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count(each) == 2
