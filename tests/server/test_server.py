"""The server as the API server meets it: a process of its own, real TLS, real files."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Serving, serving
from webhook.server.app import MAX_BODY

POLICY = """
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: drivers}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [resource.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [resourceslices]}
  validations:
  - name: no-bad-driver
    expression: "object.spec.driver != 'BAD'"
    message: has a bad driver
  - name: node-known
    expression: "!has(object.spec.nodeName) || node != null"
    message: has a node that nobody knows
  action: Deny
"""


def policy(bad: str = "bad.example") -> str:
    return POLICY.replace("BAD", bad)


def review(driver: str = "good.example", **more: Any) -> dict[str, Any]:
    gvr = {"group": "resource.k8s.io", "version": "v1"}
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {**gvr, "kind": "ResourceSlice"},
            "resource": {**gvr, "resource": "resourceslices"},
            "name": "s",
            "operation": "CREATE",
            "userInfo": {"username": "admin"},
            "object": {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": "s"},
                "spec": {"driver": driver, **more},
            },
        },
    }


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def folder_of(path: Path) -> Path:
    for name in ("cluster", "policies"):
        (path / name).mkdir(parents=True)
    (path / "policies" / "drivers.yaml").write_text(policy())
    (path / "cluster" / "n1.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    )
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(folder_of(tmp_path_factory.mktemp("serving"))) as running:
        yield running


def metric(server: Serving, start: str) -> float:
    text = server.client.get("/metrics").text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(start))


def test_a_review_is_answered(server: Serving) -> None:
    allowed = server.post("/validate?timeout=5s", review())
    assert (allowed.status_code, allowed.headers["content-type"]) == (200, "application/json")
    answer = allowed.json()
    assert (answer["kind"], answer["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
    assert answer["response"]["uid"] == review()["request"]["uid"]
    assert answer["response"]["allowed"] is True
    assert set(answer["response"]["auditAnnotations"]) == {"revision"}
    denied = server.post("/validate/slices", review("bad.example")).json()["response"]
    assert denied["allowed"] is False
    assert (denied["status"]["code"], denied["status"]["reason"]) == (403, "Forbidden")
    assert denied["status"]["message"] == "drivers/no-bad-driver: has a bad driver"
    line = server.logged(lambda line: line["event"] == "denied")
    assert (line["name"], line["user"], line["findings"]) == ("s", "admin", "drivers/no-bad-driver")


def test_what_validates_does_not_mutate(server: Serving) -> None:
    answer = server.post("/mutate", review("bad.example")).json()["response"]
    assert set(answer) == {"uid", "allowed", "auditAnnotations"}
    assert answer["allowed"] is True


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "message"),
    [
        ("/validate", b"{", {}, 400, "line 1 column 2"),
        ("/validate", b"{}", {}, 400, "kind: has nothing, needs AdmissionReview"),
        ("/validate", b"\xff", {}, 400, "byte 1: is not UTF-8"),
        ("/validate", json.dumps(review()).encode(), {"content-type": "text/yaml"}, 415, "needs application/json"),
        ("/validate", b"x" * (MAX_BODY + 1), {}, 413, f"more than {MAX_BODY} bytes"),
        ("/validate/UPPER case", b"{}", {}, 404, "path tail"),
        ("/validate/a/b", b"{}", {}, 404, "path tail"),
    ],
)
def test_what_is_no_review_is_an_http_error(
    server: Serving, path: str, body: bytes, headers: dict[str, str], status: int, message: str
) -> None:
    answer = server.client.post(path, content=body, headers={"content-type": "application/json", **headers})
    assert answer.status_code == status
    told = answer.json()
    assert (told["kind"], told["status"], told["code"]) == ("Status", "Failure", status)
    assert message in told["message"]


def test_only_post_reviews(server: Serving) -> None:
    assert server.client.get("/validate").status_code == 405
    assert server.client.get("/nothing").status_code == 404
    assert server.post("/validated", review()).status_code == 404
    assert server.client.post("/healthz").status_code == 405


def test_a_body_of_exactly_the_limit_is_read(server: Serving) -> None:
    text = json.dumps(review())
    answer = server.post("/validate", (text + " " * (MAX_BODY - len(text))).encode())
    assert (answer.status_code, answer.json()["response"]["allowed"]) == (200, True)


def raw(server: Serving) -> ssl.SSLSocket:
    host, port = server.url.removeprefix("https://").split(":")
    return server.trust.wrap_socket(socket.create_connection((host, int(port)), timeout=10), server_hostname=host)


HEAD = b"POST /validate?timeout=%s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


def test_a_body_beyond_the_limit_is_refused_while_it_comes(server: Serving) -> None:
    with raw(server) as connection:
        connection.sendall(HEAD % b"10s" + b"transfer-encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
        for _ in range(8):
            connection.sendall(chunk)
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")
        # What still comes is not kept, and the connection goes on with the next request.
        connection.sendall(chunk * 4 + b"0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        rest = b""
        while b"ok\n" not in rest:
            rest += connection.recv(4096)


def test_a_length_beyond_the_limit_is_refused_before_the_body(server: Serving) -> None:
    with raw(server) as connection:
        connection.sendall(HEAD % b"10s" + b"content-length: 8000000\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_come_is_given_up(server: Serving) -> None:
    with raw(server) as connection:
        connection.sendall(HEAD % b"100ms" + b"content-length: 10\r\n\r\n{")
        assert connection.recv(4096).startswith(b"HTTP/1.1 408")


def test_sighup_does_not_stop_it(server: Serving) -> None:
    server.process.send_signal(signal.SIGHUP)
    server.logged(lambda line: "followed without a signal" in line["event"])
    assert server.post("/validate", review()).status_code == 200


def test_many_at_once_are_all_answered(server: Serving) -> None:
    reviews = [review("good.example"), review("bad.example")] * 50
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda each: server.post("/validate", each), reviews))
    assert [answer.json()["response"]["allowed"] for answer in answers] == [True, False] * 50


def test_health_and_metrics_on_both_ports(server: Serving) -> None:
    for base in (server.url, server.metrics_url):
        assert server.client.get(f"{base}/healthz").text == "ok\n"
        ready = server.client.get(f"{base}/readyz?verbose")
        assert ready.status_code == 200
        assert [line.split()[0] for line in ready.text.splitlines()[:-1]] == [
            "[+]policies",
            "[+]cluster",
            "[+]certificates",
            "[+]serving",
        ]
        text = server.client.get(f"{base}/metrics").text
        assert "allocguard_policy_revision_info{revision=" in text
        assert 'allocguard_snapshot_age_seconds{kind="Node"}' in text
    assert server.client.post(f"{server.metrics_url}/validate", json=review()).status_code == 404


def test_metrics_count_reviews_by_registration_and_findings(server: Serving) -> None:
    server.post("/validate/counted", review("bad.example"))
    labels = 'endpoint="validate/counted",operation="CREATE",outcome="denied",resource="resourceslices"'
    assert metric(server, f"allocguard_admission_reviews_total{{{labels}}}") == 1
    assert metric(server, 'allocguard_findings_total{action="Deny",policy="drivers",rule="no-bad-driver"}') >= 1


def test_edits_serve_without_a_restart_and_bad_ones_are_refused(tmp_path: Path) -> None:
    with serving(folder_of(tmp_path)) as server:
        file = tmp_path / "policies" / "drivers.yaml"

        def allowed(driver: str, **more: Any) -> bool:
            allowed: bool = server.post("/validate", review(driver, **more)).json()["response"]["allowed"]
            return allowed

        assert (allowed("bad.example"), allowed("worse.example")) == (False, True)
        file.write_text(policy("worse.example"))
        until(lambda: not allowed("worse.example"))
        assert allowed("bad.example")

        file.write_text(policy("bad.example").replace("object.spec.driver", "objct.spec.driver"))
        line = server.logged(lambda line: line["event"] == "policies refused")
        assert line["problems"][0].startswith(f"{file}:11:18: ")
        assert not allowed("worse.example")
        assert server.client.get("/readyz").status_code == 200
        assert "the latest edit is refused" in server.client.get("/readyz?verbose").text
        assert metric(server, 'allocguard_policy_reloads_total{outcome="refused"}') == 1

        assert not allowed("good.example", nodeName="n2")
        (tmp_path / "cluster" / "n2.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {name: n2}}")
        until(lambda: allowed("good.example", nodeName="n2"))
        (tmp_path / "cluster" / "n2.yaml").write_text("{apiVersion: v1, kind: Node, metadata: {na")
        line = server.logged(lambda line: line["event"] == "cluster read" and bool(line["problems"]))
        assert line["problems"][0].startswith(f"{tmp_path / 'cluster' / 'n2.yaml'}:")
        assert allowed("good.example", nodeName="n2")


def test_sigterm_is_graceful(tmp_path: Path) -> None:
    with serving(folder_of(tmp_path)) as server:
        slow = raw(server)
        body = json.dumps(review()).encode()
        slow.sendall(HEAD % b"10s" + b"content-length: %d\r\n\r\n" % len(body) + body[:100])
        stopped: list[int] = []
        waiting = threading.Thread(target=lambda: stopped.append(server.stop()))
        waiting.start()
        until(lambda: server.client.get("/readyz").status_code == 503)
        answer = server.post("/validate", review())
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        time.sleep(1.2)  # longer than connections are still accepted
        slow.sendall(body[100:])
        assert slow.recv(4096).startswith(b"HTTP/1.1 200")
        waiting.join(20)
        assert stopped == [0]
        assert [line["event"] for line in server.lines[-2:]] == ["stopping", "stopped"]
        assert not [line for line in server.lines if line["event"].startswith("not JSON")]
        slow.close()
