"""Commands on a live cluster, and how they name one."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fake_server import FakeServer, answer, refusal
from webhook.cluster.files import documents
from webhook.cluster.kinds import KINDS
from webhook.kube.documents import Document

PATHS = {kind.name: kind.path for kind in KINDS}
GATES = b"""# HELP kubernetes_feature_enabled
apiserver_requests_total{code="200"} 5
kubernetes_feature_enabled{name="DRAListTypeAttributes",stage="ALPHA"} 1
kubernetes_feature_enabled{name="SomeOther",stage="BETA"} 0
process_cpu_seconds_total 5
"""


@pytest.fixture
def server(example: Path) -> Iterator[FakeServer]:
    made = FakeServer(PATHS.values(), "v1.37.2")
    for each in documents([str(example / "cluster")]):
        assert isinstance(each, Document)
        made.fill(PATHS[each.value["kind"]], [each.value])
    yield made
    made.close()


@pytest.fixture
def kubeconfig(server: FakeServer, tmp_path: Path) -> str:
    return server.kubeconfig(tmp_path / "kubeconfig")


def test_the_ledger_is_that_of_the_files(run: Any, example: Path, server: FakeServer, kubeconfig: str) -> None:
    server.fail(lambda asked: asked.path == "/metrics", answer(200, GATES), times=9)
    at = ("--at", "2026-11-28T00:00:00Z", "-o", "json")
    files = run("ledger", "show", "--cluster", example / "cluster", *at)
    live = run("ledger", "show", "--kubeconfig", kubeconfig, *at)
    assert (live.code, live.err) == (0, "")
    read, seen = json.loads(files.out), json.loads(live.out)
    for each in (read, seen):
        for node in each["nodes"]:
            for charge in node["charges"]:
                charge["mapping"].pop("resourceVersion")
    assert read == seen


def test_kubeconfig_by_the_environment_is_for_the_ledger_alone(
    run: Any, example: Path, kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    assert run("ledger", "show").code == 0
    review = example / "reviews" / "05-claim-fits.yaml"
    ran = run("review", review)
    assert (ran.code, ran.out) == (3, "")
    assert "--kubeconfig" in ran.err
    assert run("review", review, "--kubeconfig", kubeconfig).code == 0
    assert "1.37" not in run("check", example / "manifests" / "claim.yaml", "-o", "json").err


def test_release_and_gates_are_the_servers(run: Any, server: FakeServer, kubeconfig: str, tmp_path: Path) -> None:
    server.fail(lambda asked: asked.path == "/metrics", answer(200, GATES), times=9)
    devices = [{"name": "d", "attributes": {"a": {"ints": [1]}}}]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example", "nodeName": "anvil-1", "pool": pool, "devices": devices}
    item = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
    file = tmp_path / "slice.json"
    file.write_text(json.dumps(item))
    live = run("check", file, "--kubeconfig", kubeconfig, "-o", "json")
    off = run("check", file, "--kubeconfig", kubeconfig, "--feature-gates", "DRAListTypeAttributes=false", "-o", "json")
    assert json.loads(live.out)["summary"]["errors"] < json.loads(off.out)["summary"]["errors"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["ledger", "show", "--cluster", "x", "--context", "y"], 2, "--cluster has it in files"),
        (["serve", "--cluster", "x", "--url", "https://h:1"], 2, "--url is for a live cluster"),
        (["serve", "--service", "a/b", "--url", "https://h:1"], 2, "one webhook has one address"),
        (["serve", "--url", "http://h:1"], 2, "is not https://HOST:PORT"),
        (["serve", "--url", "https://u@h:1"], 2, "is not https://HOST:PORT"),
        (["serve", "--service", "name"], 2, "is not NAMESPACE/NAME[:PORT]"),
        (["serve", "--certs-secret", "a/b:7"], 2, "is not NAMESPACE/NAME"),
        (["ledger", "show", "--kubeconfig", "nowhere"], 2, "nowhere: is not there"),
        (["ledger", "show", "--context", "other"], 2, ": there is no context other; `kubectl config get-contexts`"),
        (["serve", "--kubeconfig", "nowhere"], 2, "nowhere: is not there"),
    ],
)
def test_what_names_no_cluster_is_told_in_one_line(
    run: Any, kubeconfig: str, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, told: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    ran = run(*arguments)
    assert ran.code == code
    assert told in ran.err.splitlines()[-1]


def test_an_address_that_is_taken_is_told_in_one_line(kubeconfig: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ["--kubeconfig", kubeconfig, "--host", "127.0.0.1", "--port", address.partition(":")[2]]
        command = [sys.executable, "-m", "webhook.cli", "serve", "--certs", str(tmp_path / "certs"), *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    elsewhere = "--host, --port and --metrics-port say where else to listen"
    assert (ran.returncode, ran.stderr) == (2, f"allocguard: {address}: address already in use; {elsewhere}\n")


def test_without_any_cluster_the_exit_code_is_3(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for command in (["ledger", "show"], ["serve"]):
        ran = run(*command)
        assert ran.code == 3
        assert "no cluster to ask" in ran.err


def test_a_server_that_does_not_answer_or_refuses_is_exit_code_3(run: Any, server: FakeServer, kubeconfig: str) -> None:
    refused = refusal(403, "Forbidden", "nodes is forbidden")
    server.fail(lambda asked: asked.path == PATHS["Node"], refused, times=1)
    ran = run("ledger", "show", "--kubeconfig", kubeconfig)
    assert ran.code == 3
    assert "refuses: 403 Forbidden: nodes is forbidden" in ran.err.splitlines()[-1]
    del server.kept[PATHS["ResourceSlice"]]
    ran = run("ledger", "show", "--kubeconfig", kubeconfig)
    assert ran.code == 3
    assert "the API server has no group resource.k8s.io" in ran.err.splitlines()[-1]
    server.hold()
    ran = run("ledger", "show", "--kubeconfig", kubeconfig)
    assert ran.code == 3
    assert "the API server does not answer" in ran.err.splitlines()[-1]
    assert len(ran.err.splitlines()) == 1


def test_serve_is_ready_once_it_has_seen_everything_and_stays_so(
    example: Path, server: FakeServer, kubeconfig: str, tmp_path: Path
) -> None:
    server.fail(lambda asked: asked.path == PATHS["Pod"], b"", times=4)
    command = [sys.executable, "-m", "webhook.cli", "serve", "--host=127.0.0.1", "--port=0", "--metrics-port=0"]
    command += [f"--certs={tmp_path / 'certs'}", f"--kubeconfig={kubeconfig}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        events = map(json.loads, process.stderr)
        url = next(each["url"] for each in events if each["event"].startswith("listening on"))
        context = ssl.create_default_context(cafile=str(tmp_path / "certs" / "ca.crt"))

        def ask(path: str, body: bytes | None = None) -> tuple[int, bytes]:
            asked = urllib.request.Request(f"{url}{path}", body, {"content-type": "application/json"})
            try:
                with urllib.request.urlopen(asked, context=context, timeout=30) as found:
                    return found.status, found.read()
            except urllib.error.HTTPError as error:
                return error.code, error.read()

        next(each for each in events if each["event"] == "API server lost")
        status, body = ask("/validate", b"{}")
        assert (status, json.loads(body)["reason"]) == (503, "ServiceUnavailable")
        assert "not seen the whole cluster" in json.loads(body)["message"]
        assert ask("/readyz")[0] == 503
        next(each for each in events if each["event"] == "cluster synced")
        assert ask("/readyz")[0] == 200
        assert ask("/validate", b"{}")[0] == 400
        server.hold()
        eventually(lambda: b"does not answer" in ask("/readyz?verbose")[1])
        assert ask("/readyz")[0] == 200
        metrics = ask("/metrics")[1].decode()
        assert 'allocguard_snapshot_age_seconds{kind="ResourceSlice"}' in metrics
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


def eventually(ask: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not ask():
        assert time.monotonic() < end, "not within time"
        time.sleep(0.05)
