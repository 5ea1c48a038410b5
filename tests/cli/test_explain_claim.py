"""The story of a claim: from files with their events, and from a live cluster, however many events it has."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.fake_server import FakeServer, refusal
from webhook.cluster.files import documents
from webhook.cluster.kinds import KINDS
from webhook.cluster.object_events import PAGE, PAGES
from webhook.kube.documents import Document
from webhook.kube.object_event import NODE, RULE, SINCE

PATHS = {kind.name: kind.path for kind in KINDS}
EVENTS, ALL = "/api/v1/namespaces/studio/events", "/api/v1/events"
UID, POD = "c0000003-0000-4000-8000-000000000003", "e0000003-0000-4000-8000-000000000003"
AT = ("--at", "2026-11-28T09:30:00Z")
Json = dict[str, Any]


def event(name: str, reason: str, message: str, second: int, by: str = "allocguard", **about: str) -> Json:
    involved = {"kind": "ResourceClaim", "namespace": "studio", "name": "batch", "uid": UID, **about}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "studio", "annotations": {}},
        "involvedObject": involved,
        "reason": reason,
        "message": message,
        "type": "Normal",
        "source": {"component": by},
        "firstTimestamp": f"2026-11-28T09:00:{second:02}Z",
        "lastTimestamp": f"2026-11-28T09:00:{second:02}Z",
        "count": 1,
    }


REFUSED = event("batch.1", "AllocationRefused", "claim-allocation/node-overcommit: has cpu 12, needs at most 5", 2)
REFUSED["metadata"]["annotations"] = {RULE: "node-overcommit", NODE: "anvil-1", SINCE: "2026-11-28T09:00:02.250000Z"}
REFUSED |= {"count": 12, "lastTimestamp": "2026-11-28T09:11:02Z"}
SCHEDULER = event("batch.2", "FailedScheduling", "0/2 nodes", 1, "default-scheduler", kind="Pod", uid=POD)
TOLD = (REFUSED, SCHEDULER)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(TOLD)}))
    return path


@pytest.fixture
def server(example: Path) -> Iterator[FakeServer]:
    made = FakeServer([*PATHS.values(), EVENTS, ALL], "v1.37.2")
    for each in documents([str(example / "cluster")]):
        assert isinstance(each, Document)
        made.fill(PATHS[each.value["kind"]], [each.value])
    yield made
    made.close()


def test_it_is_read_from_top_to_bottom(run: Any, example: Path, events: Path) -> None:
    told = run("explain", "--claim", "studio/batch", "--cluster", example / "cluster", "--cluster", events, *AT)
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert heads == [
        "claim studio/batch: unallocated",
        "what happened",
        "what the ledger has of it",
        "what it waits for: node-overcommit, since 2026-11-28T09:30:00Z",
        "what would make it fit",
        "where to look next",
    ]
    begin = lines.index("what happened")
    assert lines[begin + 1 : begin + 4] == [
        "  2026-11-28T09:00:01Z  event, pod studio/batch, FailedScheduling by default-scheduler: 0/2 nodes",
        "  2026-11-28T09:00:02.250000Z  refused, on node anvil-1, 12 times until 2026-11-28T09:11:02Z:",
        "      claim-allocation/node-overcommit: has cpu 12, needs at most 5",
    ]
    assert "  release studio/render, which holds 8 of cpu on anvil-1" in lines
    assert lines[-1].endswith(f"trace {UID.replace('-', '')}")


def test_a_node_that_has_room_and_refused_it_is_not_named_as_elsewhere(run: Any, example: Path, tmp_path: Path) -> None:
    refused = event("preview.1", "AllocationRefused", "own/not-there: anvil-1 is in maintenance", 2)
    refused["involvedObject"] |= {"name": "preview", "uid": "c0000002-0000-4000-8000-000000000002"}
    refused["metadata"]["annotations"] = {RULE: "not-there", NODE: "anvil-1"}
    (tmp_path / "refused.yaml").write_text(yaml.safe_dump(refused))
    clusters = ("--cluster", example / "cluster", "--cluster", tmp_path / "refused.yaml")
    lines = run("explain", "--claim", "studio/preview", *clusters, *AT).out.splitlines()
    assert "  node anvil-1 has room for it now, and its last allocation was refused there" in lines
    assert not [line for line in lines if "elsewhere" in line]


def test_the_commands_that_it_names_run(run: Any, example: Path) -> None:
    told = run("explain", "--claim", "studio/render", "--cluster", example / "cluster", *AT, "-o", "json")
    commands = [shlex.split(each["run"]) for each in json.loads(told.out)["next"]]
    ours = [command[1:] for command in commands if command[0] == "allocguard"]
    assert len(ours) == 4
    for command in ours:
        assert run(*command).code == 0, command


def test_live_it_is_the_same_by_name_and_by_uid(
    run: Any, example: Path, events: Path, server: FakeServer, tmp_path: Path
) -> None:
    server.fill(EVENTS, [dict(each) for each in TOLD])
    server.fill(ALL, [dict(each) for each in TOLD])
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    files = run(
        "explain", "--claim", "studio/batch", "--cluster", example / "cluster", "--cluster", events, *AT, "-o", "json"
    )
    by_name, by_uid = (
        run("explain", "--claim", name, "--kubeconfig", kubeconfig, *AT, "-o", "json") for name in ("studio/batch", UID)
    )
    assert (by_name.code, by_uid.code) == (0, 0)
    expected, found, same = (json.loads(each.out) for each in (files, by_name, by_uid))
    for value in (expected, found, same):
        del value["next"]
    assert found == same == expected
    selectors = [each.params["fieldSelector"] for each in server.requests(EVENTS)]
    assert f"involvedObject.uid={POD}" in selectors
    assert all("involvedObject" in each or each == "reason=ClaimRefused,source=allocguard" for each in selectors)


def test_a_claim_with_a_million_events_is_told_with_no_more_than_are_read(
    run: Any, server: FakeServer, tmp_path: Path
) -> None:
    many = [event(f"noise.{n}", "Noise", f"x {n}", 0, "somebody") for n in range(PAGE * (PAGES + 4))]
    server.fill(EVENTS, [*many, dict(REFUSED)])
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    told = run("explain", "--claim", "studio/batch", "--kubeconfig", kubeconfig, *AT, "-o", "json")
    assert told.code == 0
    assert "there are more events about it than are read" in told.err
    value = json.loads(told.out)
    assert (len(value["moments"]), value["omitted"] > 0) == (200, True)
    asked = server.requests(EVENTS)
    assert len(asked) <= 2 * PAGES + 3
    assert all(int(each.params["limit"]) == PAGE for each in asked)


def test_who_may_not_read_events_hears_the_rest(run: Any, server: FakeServer, tmp_path: Path) -> None:
    forbidden = refusal(403, "Forbidden", "events is forbidden")
    server.fail(lambda asked: asked.path == EVENTS, forbidden, times=9)
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    told = run("explain", "--claim", "studio/render", "--kubeconfig", kubeconfig, *AT)
    assert told.code == 0
    assert "events are not known: 403 Forbidden" in told.err
    assert "8 cpu = " in told.out


def test_what_is_not_known_and_what_does_not_go_together_is_a_clear_error(run: Any, example: Path) -> None:
    cluster = ("--cluster", example / "cluster")
    unknown = run("explain", "--claim", "studio/nobody", *cluster)
    assert (unknown.code, unknown.out) == (2, "")
    assert "--claim studio/nobody: has no such claim, nor an event about one" in unknown.err
    assert "did you mean" not in unknown.err
    both = run("explain", "--claim", "studio/render", "--object", "x.yaml", *cluster)
    assert both.code == 2
    assert "--claim is told without a FILE or --object" in both.err
    neither = run("explain", *cluster)
    assert "needs a FILE with an AdmissionReview, --object, or --claim" in neither.err


def test_who_has_the_name_half_hears_what_may_have_been_meant(run: Any, example: Path, tmp_path: Path) -> None:
    pod = tmp_path / "pod.yaml"
    uses = {"name": "cores", "resourceClaimName": "batch"}
    made = {"name": "web-x", "namespace": "studio", "uid": "p-x"}
    pod.write_text(
        yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": {"resourceClaims": [uses]}})
    )
    cluster = ("--cluster", example / "cluster", "--cluster", pod)
    meant = {
        "batch": "did you mean studio/batch?",
        "elsewhere/batch": "did you mean studio/batch?",
        "elsewhere/bathc": "which API servers keep for an hour",
        "studio/bathc": "did you mean studio/batch?",
        "studio/web-x": "a pod has this name, and uses studio/batch;",
        "web-x": "a pod has this name, and uses studio/batch;",
        "studio/web-1": "a pod has this name, and uses no claim that is there;",
    }
    for given, said in meant.items():
        told = run("explain", "--claim", given, *cluster)
        assert (told.code, told.out) == (2, ""), given
        assert (
            f"--claim {given}: has no such claim, nor an event about one, needs NAMESPACE/NAME or a UID; " in told.err
        )
        assert said in told.err, given


def test_a_trace_leads_back_to_its_claim(run: Any, example: Path) -> None:
    by_uid, by_trace = (
        run("explain", "--claim", given, "--cluster", example / "cluster", *AT) for given in (UID, UID.replace("-", ""))
    )
    assert (by_trace.code, by_trace.out) == (0, by_uid.out)


@pytest.mark.parametrize(
    "given", ["", "/", "a/b/c", "studio/", "studio/a=b,c", "\x1b[31m/x", "x" * 5000, "é/é", "a%2fb"]
)
def test_what_no_claim_can_be_called_is_not_asked_for(run: Any, server: FakeServer, tmp_path: Path, given: str) -> None:
    told = run("explain", "--claim", given, "--kubeconfig", server.kubeconfig(tmp_path / "kubeconfig"))
    assert (told.code, told.out) == (2, "")
    assert "is no name, needs NAMESPACE/NAME or a UID" in told.err
    assert len(told.err) < 500
    assert server.requests(EVENTS) == server.requests(ALL) == []


def test_nothing_of_a_name_or_message_reaches_the_terminal(run: Any, example: Path, tmp_path: Path) -> None:
    hostile = event("x", "Bad\x1b[2J", "red\x1b[31m\nfake line\u2028more\u202etxt", 3, "a\nb")
    path = tmp_path / "events.json"
    path.write_text(json.dumps(hostile))
    told = run("explain", "--claim", "studio/batch", "--cluster", example / "cluster", "--cluster", path, *AT)
    assert told.code == 0
    assert not {"\x1b", "\u2028", "\u202e"} & set(told.out)
    assert not any(line.startswith("fake") for line in told.out.splitlines())
