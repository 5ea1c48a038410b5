"""What `ledger export` and `rollout check` tell; on a real cluster in tests/e2e/test_rollout_traces.py."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fake_server import Asked, FakeServer, answer, refusal
from tests.telemetry.receiver import Receiver
from webhook.cluster.files import documents
from webhook.cluster.kinds import KINDS
from webhook.kube.documents import Document

PATHS = {kind.name: kind.path for kind in KINDS}
CPU, GPU = "cpu.ferrite.example", "gpu.ferrite.example"
UID = "0f0e0d0c-0b0a-4908-8706-050403020100"
EVENTS = "/api/v1/namespaces/default/events"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
Json = dict[str, Any]


def writes(asked: Asked) -> bool:
    return asked.method == "POST" and asked.path == EVENTS


@pytest.fixture
def server(example: Path) -> Iterator[FakeServer]:
    made = FakeServer(PATHS.values(), "v1.36.2")
    for each in documents([str(example / "cluster")]):
        assert isinstance(each, Document)
        obj = each.value
        if obj["kind"] == "DriverRollout":
            obj["metadata"]["uid"] = UID
        made.fill(PATHS[obj["kind"]], [obj])
    yield made
    made.close()


@pytest.fixture
def live(server: FakeServer, tmp_path: Path) -> tuple[str, ...]:
    return ("--kubeconfig", server.kubeconfig(tmp_path / "kubeconfig"), "--at", "2026-11-20T09:00:00Z")


def told(server: FakeServer) -> list[Json]:
    return [json.loads(asked.body) for asked in server.asked if writes(asked)]


def takes(server: FakeServer) -> None:
    server.fail(writes, answer(201, b"{}"), times=9)


def test_an_export_is_told_to_the_drivers_that_are_held(run: Any, server: FakeServer, live: tuple[str, ...]) -> None:
    takes(server)
    ran = run("ledger", "export", *live)
    assert (ran.code, ran.err) == (0, "")
    [event] = told(server)
    digest = json.loads(ran.out)["digest"]
    assert (event["involvedObject"]["name"], event["involvedObject"]["uid"]) == (GPU, UID)
    assert (event["reason"], event["type"]) == ("LedgerExported", "Normal")
    assert event["message"] == f"the ledger was exported, {digest}"


def test_a_check_is_told_with_its_gates_and_the_same_outcome_has_the_same_name(
    run: Any, server: FakeServer, live: tuple[str, ...]
) -> None:
    takes(server)
    codes = [run("rollout", "check", driver, *live).code for driver in (GPU, GPU, CPU)]
    assert codes == [1, 1, 0]
    failed, again, passed = told(server)
    assert failed["metadata"] == again["metadata"] != passed["metadata"]
    assert (failed["reason"], failed["type"]) == ("Checked", "Warning")
    assert failed["message"].startswith("check at stage General; failed: hold")
    assert (passed["involvedObject"]["name"], passed["type"]) == (CPU, "Normal")
    assert "failed" not in passed["message"]


def test_an_event_that_is_there_is_counted(run: Any, server: FakeServer, live: tuple[str, ...]) -> None:
    server.fail(writes, refusal(409, "AlreadyExists", "there"))
    there = {"metadata": {"resourceVersion": "7"}, "count": 4}
    server.fail(
        lambda asked: asked.method == "GET" and asked.path.startswith(EVENTS), answer(200, json.dumps(there).encode())
    )
    server.fail(lambda asked: asked.method == "PATCH", answer(200, b"{}"))
    assert run("rollout", "check", GPU, *live).err == ""
    [patch] = [json.loads(asked.body) for asked in server.asked if asked.method == "PATCH"]
    assert (patch["count"], patch["metadata"]) == (5, {"resourceVersion": "7"})


@pytest.mark.parametrize("command", [["ledger", "export"], ["rollout", "check", GPU]])
def test_without_the_right_it_is_one_line_and_nothing_else_changes(
    run: Any, server: FakeServer, live: tuple[str, ...], command: list[str]
) -> None:
    takes(server)
    allowed = run(*command, *live)
    server.faults.clear()
    server.fail(writes, refusal(403, "Forbidden", "events is forbidden"))
    ran = run(*command, *live)
    assert ran.code == allowed.code
    assert ran.out.splitlines()[:3] == allowed.out.splitlines()[:3]
    [line] = ran.err.splitlines()
    assert line.startswith("allocguard: no event ")
    assert line.endswith(": the API server refuses: 403 Forbidden: events is forbidden")


def test_files_are_told_nobody(run: Any, example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver:
        monkeypatch.setenv(ENDPOINT, receiver.url)
        where = ("--cluster", example / "cluster", "--at", "2026-11-20T09:00:00Z")
        assert run("ledger", "export", *where).err == ""
        assert run("rollout", "check", GPU, *where).err == ""
    assert receiver.requests == []


def test_both_are_spans_in_the_trace_of_the_rollout(
    run: Any, server: FakeServer, live: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(server)
    with Receiver() as receiver:
        monkeypatch.setenv(ENDPOINT, receiver.url)
        value = json.loads(run("ledger", "export", *live).out)
        run("rollout", "check", GPU, *live)
    export, check = receiver.spans
    assert {export.trace, check.trace} == {UID.replace("-", "")}
    assert (export.name, export.attributes["allocguard.export.digest"]) == ("rollout.export", value["digest"])
    assert (check.name, check.attributes["allocguard.verdict"]) == ("rollout.check", "failed")
    assert [span.attributes["allocguard.message"] for span in (export, check)] == [e["message"] for e in told(server)]
    assert all(0 < span.ended - span.begun < 60 * 10**9 for span in (export, check))


def test_a_receiver_that_is_not_there_is_one_line_and_two_seconds(
    run: Any, server: FakeServer, live: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    takes(server)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{port}")
    begun = time.monotonic()
    ran = run("rollout", "check", CPU, *live)
    assert ran.code == 0
    assert time.monotonic() - begun < 20
    [line] = ran.err.splitlines()
    assert line.startswith(f"allocguard: spans not sent to http://127.0.0.1:{port}: ")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (ENDPOINT, "collector:4318", f"{ENDPOINT}: 'collector:4318' is not http://HOST:PORT"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "OTEL_* of the environment"),
    ],
)
def test_an_environment_that_makes_no_sense_is_told(
    run: Any,
    server: FakeServer,
    live: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    told: str,
) -> None:
    takes(server)
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    monkeypatch.setenv(name, value)
    ran = run("rollout", "check", CPU, *live)
    assert ran.code == 0
    assert f"no span rollout.check: {told}" in ran.err
