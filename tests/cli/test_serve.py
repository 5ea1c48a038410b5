import json
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from webhook.store.history import read_history


@contextmanager
def serving(cluster: Path, folder: Path, *options: str) -> Iterator[Callable[[str, bytes | None], bytes]]:
    """A server as a process of its own; gives what asks it for a path, with a body as POST. Ends it, with code 0."""
    command = [sys.executable, "-m", "webhook.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
    command += ["--metrics-port", "0", "--cluster", str(cluster), "--certs", str(folder), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        events = map(json.loads, process.stderr)
        url = next(each["url"] for each in events if each["event"].startswith("listening on"))
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))

        def ask(path: str, body: bytes | None = None) -> bytes:
            asked = urllib.request.Request(f"{url}{path}", body, {"content-type": "application/json"})
            with urllib.request.urlopen(asked, context=context, timeout=30) as answer:
                return answer.read()

        yield ask
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_serve_answers_over_https_and_ends_with_0(example, tmp_path):
    with serving(example / "cluster", tmp_path / "certs") as ask:
        assert b"[+]policies ok" in ask("/readyz?verbose")


@pytest.mark.parametrize(("at", "allowed"), [("2026-11-28T00:00:00Z", False), ("2027-11-28T00:00:00Z", True)])
def test_a_clock_that_stands_still_decides_whether_a_hold_still_holds(example, tmp_path, at, allowed):
    cluster = tmp_path / "cluster"
    shutil.copytree(example / "cluster", cluster)
    rollouts = cluster / "rollouts.yaml"
    held = rollouts.read_text().replace('08:40:00Z"}', '08:40:00Z", until: "2027-01-01T00:00:00Z"}')
    assert held != rollouts.read_text()
    rollouts.write_text(held)
    review = json.dumps(yaml.safe_load((example / "reviews" / "04-claim-driver-held.yaml").read_text())).encode()
    with serving(cluster, tmp_path / "certs", "--at", at) as ask:
        assert json.loads(ask("/validate", review))["response"]["allowed"] is allowed


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--cluster", "nowhere"], "nowhere: cannot be read: no such file or directory"),
        (["--policies", "nowhere"], "nowhere: cannot be read: no such file or directory"),
        (["--certs", "half"], "is missing beside"),
        (["--host", "203.0.113.1", "--port", "0"], "203.0.113.1:0: "),
        (["--journal", "half/tls.key"], "half/tls.key: is no folder; check the path"),
        (["--record", "half/tls.key"], "half/tls.key: is no folder; check the path"),
        (["--otlp-endpoint", "localhost:4317"], "'localhost:4317' is not http://HOST:PORT"),
        (["--otlp-endpoint", "http://user:s@cret@collector"], "'http://...@collector' is not http://HOST:PORT"),
        (["--trace-ratio", "nan"], "'nan' is not a number from 0 to 1"),
        (["--record-ratio", "nan"], "'nan' is not a number from 0 to 1"),
    ],
)
def test_what_keeps_it_from_starting_is_exit_code_2(spawn, example, tmp_path, monkeypatch, options, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "tls.key").write_text("")
    given = dict(zip(options[::2], options[1::2], strict=True))
    defaults = {"--cluster": example / "cluster", "--certs": tmp_path / "certs", "--metrics-port": "0", "--port": "0"}
    ran = spawn("serve", *(word for pair in {**defaults, **given}.items() for word in pair))
    assert ran.code == 2
    assert told in ran.err.splitlines()[-1]
    assert "Traceback" not in ran.err


def test_an_environment_for_traces_is_read(run, spawn, example, tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with serving(example / "cluster", tmp_path / "certs") as ask:
        assert b"[+]policies ok" in ask("/readyz?verbose")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    ran = spawn("serve", "--kubeconfig", kubeconfig, "--certs", tmp_path / "certs")
    assert (ran.code, ran.err.splitlines()[-1]) == (
        2,
        "allocguard: OTEL_* of the environment: max_queue_size must be a positive integer",
    )
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector")
    ran = run("serve", "--cluster", example / "cluster")
    assert (ran.code, "env var: 'OTEL_EXPORTER_OTLP_ENDPOINT'" in ran.err) == (2, True)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1/otlp")
    ran = run("serve", "--cluster", example / "cluster")
    assert (ran.code, "has a path, but grpc has none" in ran.err) == (2, True)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    ran = run("serve", "--cluster", example / "cluster")
    assert (ran.code, "'http/json' is not one of 'http/protobuf', 'grpc'" in ran.err) == (2, True)


def test_what_is_served_is_kept_in_a_journal_that_can_be_replayed(run, spawn, example, tmp_path):
    cluster, journal = tmp_path / "cluster", tmp_path / "journal"
    shutil.copytree(example / "cluster", cluster)
    with serving(cluster, tmp_path / "certs", "--journal", str(journal)) as ask:
        workload = cluster / "workload.yaml"
        documents = [each for each in yaml.safe_load_all(workload.read_text()) if each["metadata"]["name"] != "web-1"]
        workload.write_text(yaml.safe_dump_all(documents))
        until(lambda: gone(journal, "web-1"))
        assert b"[+]journal ok, " in ask("/readyz?verbose")
        assert b'allocguard_journal_write_failures_total{kind="journal"} 0.0' in ask("/metrics")
        # Beside the server that writes it, which nobody else may.
        export = run("ledger", "export", "--journal", journal, "--cluster", cluster)
        again = spawn("serve", "--cluster", cluster, "--certs", tmp_path / "certs", "--journal", journal, "--port", "0")
    assert (again.code, export.code) == (2, 0)
    assert "another process writes there" in again.err
    (tmp_path / "export.json").write_text(export.out)
    ran = run("ledger", "replay", tmp_path / "export.json")
    assert (ran.code, ran.out.partition(":")[0]) == (0, "equal")


def gone(journal, name):
    return any(event.type == "gone" and event.name == name for event in read_history(journal).events)


def until(true):
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end, "not within time"
        time.sleep(0.05)


def test_audit_events_of_a_log_file_and_by_post(example, tmp_path):
    """On a cluster in files they are counted and logged, too."""
    data = Path(__file__).parents[1] / "facts" / "data" / "audit-1.37.jsonl"
    made = json.loads(data.read_text().splitlines()[0])["event"]
    made["stageTimestamp"] = ""
    log, token = tmp_path / "audit.log", tmp_path / "token"
    log.write_text(f"{json.dumps({**made, 'auditID': 'before'})}\n")
    token.write_text("t")
    options = ("--audit-log", str(log), "--audit-token-file", str(token))
    with serving(example / "cluster", tmp_path / "certs", *options) as ask:
        until(lambda: b"[+]audit log ok, " in ask("/readyz?verbose", None))
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask("/audit", b"{}")
        with log.open("a") as file:
            file.write(f"{json.dumps(made)}\n")
        counted = b'allocguard_status_write_failures_total{reason="status-role-missing"'
        until(lambda: counted in ask("/metrics", None))
        assert b'allocguard_audit_events_total{outcome="failed"} 1.0' in ask("/metrics", None)
        assert b"1 failed status writes" in ask("/readyz?verbose", None)


def test_a_token_file_that_cannot_be_read_ends_it(example, tmp_path):
    command = [sys.executable, "-m", "webhook.cli", "serve", "--cluster", str(example / "cluster")]
    command += ["--certs", str(tmp_path / "certs"), "--audit-token-file", str(tmp_path / "none")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert f"{tmp_path}/none: cannot be read: no such file or directory" in done.stderr
    assert "Traceback" not in done.stderr
