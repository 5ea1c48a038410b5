"""What goes wrong inside, in the same process: HTTP in, HTTP out."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message

from tests.server.test_server import POLICY, folder_of, review
from tests.telemetry.receiver import Receiver
from webhook.cluster.files import Cluster
from webhook.server import app
from webhook.server.app import build
from webhook.server.serve import _trace
from webhook.server.service import Reply, Service
from webhook.store.policies import PolicyStore
from webhook.telemetry.log import Log
from webhook.telemetry.tracing import Tracing


class Failing(Service):
    def answer(self, endpoint: str, data: bytes, until: float, parent: str = "") -> Reply:
        raise ZeroDivisionError("a mistake of ours\nin two lines")


def service(folder: Path, kind: type[Service] = Service) -> tuple[Service, io.StringIO]:
    stream = io.StringIO()
    folder_of(folder)
    made = kind(
        PolicyStore([str(folder / "policies")]),
        Cluster([str(folder / "cluster")]),
        Log(stream),
        lambda: datetime(2026, 11, 29, tzinfo=UTC),
    )
    return made, stream


def post(made: Service, *bodies: Any, path: str = "/validate") -> list[httpx.Response]:
    async def send() -> list[httpx.Response]:
        transport = httpx.ASGITransport(build(made))
        async with httpx.AsyncClient(transport=transport, base_url="https://x") as client:
            headers = {"content-type": "application/json"}
            return list(await asyncio.gather(*(client.post(path, content=body, headers=headers) for body in bodies)))

    return asyncio.run(send())


def test_a_mistake_of_ours_is_500_and_logged_and_counted(tmp_path: Path) -> None:
    made, stream = service(tmp_path, Failing)
    (answer,) = post(made, json.dumps(review()))
    assert (answer.status_code, answer.json()["reason"]) == (500, "InternalError")
    made.log.close()
    line = json.loads(stream.getvalue())
    assert (line["level"], line["event"]) == ("error", "internal error")
    assert line["error"].startswith("ZeroDivisionError: a mistake of ours")
    assert "test_app.py" in line["error"]
    assert b'outcome="error",resource="other"} 1.0' in b"".join(made.metrics.pieces())


def test_too_many_in_flight_are_shed_before_they_are_read_and_health_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_IN_FLIGHT", 2)
    made, _ = service(tmp_path)
    text = json.dumps(review()).encode()

    async def send() -> None:
        go_on = asyncio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield text
            await go_on.wait()

        transport = httpx.ASGITransport(build(made))
        async with httpx.AsyncClient(transport=transport, base_url="https://x") as client:
            kind = {"content-type": "application/json"}
            waiting = [asyncio.create_task(client.post("/validate", content=slow(), headers=kind)) for _ in range(2)]
            await asyncio.sleep(0.05)
            shed = await client.post("/validate", content=b"not even JSON", headers=kind)
            assert (shed.status_code, shed.json()["reason"]) == (503, "ServiceUnavailable")
            assert (await client.get("/healthz")).text == "ok\n"
            assert (await client.get("/readyz")).status_code == 200
            go_on.set()
            assert [(await each).status_code for each in waiting] == [200, 200]
            assert (await client.post("/validate", content=text, headers=kind)).status_code == 200

    asyncio.run(send())
    assert b'operation="",outcome="shed",resource="other"} 1.0' in b"".join(made.metrics.pieces())


def test_bodies_beyond_the_memory_for_them_are_shed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_BUFFERED", 3000)

    async def slow(text: str) -> AsyncIterator[bytes]:
        yield text.encode()
        await asyncio.sleep(0.05)
        yield b" "

    made, _ = service(tmp_path)
    text = json.dumps(review()).ljust(1400)
    codes = [answer.status_code for answer in post(made, *(slow(text) for _ in range(3)))]
    assert codes.count(503) >= 1
    assert post(made, text)[0].status_code == 200


@pytest.mark.parametrize(
    ("failure_policy", "allowed", "annotation"),
    [("Fail", False, "drivers/evaluation-failed"), ("Ignore", True, None)],
)
def test_what_the_deadline_leaves_unjudged_follows_the_failure_policy(
    tmp_path: Path, failure_policy: str, allowed: bool, annotation: str | None
) -> None:
    made, _ = service(tmp_path)
    (tmp_path / "policies" / "drivers.yaml").write_text(f"{POLICY}  failurePolicy: {failure_policy}\n")
    made.refresh()
    made.refresh()
    reply = made.answer("validate", json.dumps(review()).encode(), 0.0)
    assert isinstance(reply, Reply)
    response = json.loads(reply.body)["response"]
    assert response["allowed"] is allowed
    assert response["auditAnnotations"].get("findings") == annotation
    assert "the time for this request is nearly spent" in response["auditAnnotations"]["errors"]


class Telling(Service):
    told: list[str]

    def _tell(self, *judged: Any) -> None:
        self.told.append("told")
        super()._tell(*judged)


@pytest.mark.parametrize("gone", [False, True])
def test_what_was_found_is_told_once_the_answer_is_sent(tmp_path: Path, gone: bool) -> None:
    made, _ = service(tmp_path, Telling)
    assert isinstance(made, Telling)
    made.told = []
    body = json.dumps(review()).encode()
    scope = {"type": "http", "method": "POST", "path": "/validate", "query_string": b""}

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        made.told.append(message["type"])
        if gone:
            raise ConnectionResetError

    async def once() -> None:
        with contextlib.suppress(ConnectionResetError):
            await build(made)({**scope, "headers": [(b"content-type", b"application/json")]}, receive, send)

    asyncio.run(once())
    assert made.told == ["http.response.start", *(["told"] if gone else ["http.response.body", "told"])]
    assert 'admission_reviews_total{endpoint="validate"' in b"".join(made.metrics.pieces()).decode()


def test_the_timeout_is_a_duration_of_go() -> None:
    given = {b"timeout=5s": 5, b"a=b&timeout=1m30s": 30, b"timeout=500ms": 0.5, b"timeout=2.5s": 2.5}
    bad = [
        b"",
        b"timeout=",
        b"timeout=5",
        b"timeout=x5s",
        b"timeout=5sx",
        b"timeout=-5s",
        b"timeout=0s",
        b"nottimeout=5s",
    ]
    assert [app._timeout(query) for query in given] == list(given.values())
    assert {app._timeout(query) for query in bad} == {app.DEFAULT_TIMEOUT}


def test_names_of_registrations_are_few_labels(tmp_path: Path) -> None:
    made, _ = service(tmp_path)
    application = build(made)

    async def send() -> None:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="https://x") as client:
            for number in range(app.MAX_TAILS + 5):
                await client.post(f"/validate/r{number}", content=b"{}", headers={"content-type": "application/json"})

    asyncio.run(send())
    text = b"".join(made.metrics.pieces()).decode()
    assert 'endpoint="validate/r0"' in text
    assert f'endpoint="validate/r{app.MAX_TAILS}"' not in text
    assert 'endpoint="validate/other"' in text


def scrapes(made: Service, *accepts: dict[str, str]) -> list[httpx.Response]:
    async def get() -> list[httpx.Response]:
        transport = httpx.ASGITransport(build(made))
        async with httpx.AsyncClient(transport=transport, base_url="https://x") as client:
            return [await client.get("/metrics", headers={"accept-encoding": "identity", **each}) for each in accepts]

    return asyncio.run(get())


def test_reviews_of_claims_show_their_traces(tmp_path: Path) -> None:
    made, _ = service(tmp_path)
    uid = "c1a10001-0000-4000-8000-00000000000a"
    body = review()
    body["request"] |= {"kind": {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"}}
    body["request"]["resource"]["resource"] = "resourceclaims"
    body["request"]["object"] = {"metadata": {"name": "s", "uid": uid}, "spec": {}}
    post(made, json.dumps(body), json.dumps(review()))
    (answer,) = scrapes(made, {"accept": SCRAPER})
    shown = [line for line in answer.text.splitlines() if f'trace_id="{uid.replace("-", "")}"' in line]
    assert len(shown) == 2
    assert all('resource="resourceclaims"' in line for line in shown)


CLAIMS = """
apiVersion: allocguard.dev/v1alpha1
kind: AdmissionPolicy
metadata: {name: claims}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [resource.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [resourceclaims]}
  validations:
  - {name: no-bad-name, expression: "object.metadata.name != 'bad'", message: has a bad name}
  action: Deny
"""


def test_with_traces_only_those_are_shown_that_are_kept(tmp_path: Path) -> None:
    """Of no claim but those in trouble, and of these from the very decision on that refused them."""
    made, _ = service(tmp_path)
    (tmp_path / "policies" / "claims.yaml").write_text(CLAIMS)
    made.policies = PolicyStore([str(tmp_path / "policies")])
    gvr = {"group": "resource.k8s.io", "version": "v1"}
    with Receiver() as receiver:
        tracing = Tracing(receiver.url, ratio=0.0)
        _trace(made, tracing)
        for number, name in enumerate(("good", "bad")):
            body = review()
            body["request"] |= {"kind": {**gvr, "kind": "ResourceClaim"}, "name": name}
            body["request"]["resource"] = {**gvr, "resource": "resourceclaims"}
            metadata = {"name": name, "uid": f"c1a10001-0000-4000-8000-00000000000{number}"}
            body["request"]["object"] = {"metadata": metadata, "spec": {}}
            (answer,) = post(made, json.dumps(body))
            assert answer.json()["response"]["allowed"] is (name == "good")
        assert tracing.close() == 0
        assert {span.trace for span in receiver.spans} == {"c1a10001000040008000000000000001"}
    (answer,) = scrapes(made, {"accept": SCRAPER})
    shown = [line.split("{")[0] for line in answer.text.splitlines() if "trace_id=" in line]
    families = ["admission_reviews_total", "admission_duration_seconds_bucket", "findings_total"]
    assert shown == [f"allocguard_{name}" for name in families]
    assert answer.text.count('trace_id="c1a10001000040008000000000000001"') == 3


# What Prometheus 3 sends.
SCRAPER = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "exemplars"),
    [
        (SCRAPER, True),
        ("application/openmetrics-text", True),
        ("text/plain, Application/OpenMetrics-Text ; version=1.0.0", True),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text;q=0, text/plain", False),
        ("application/openmetrics-text;version=x.y;q=0.0", False),
        ("*/*", False),
        ("", False),
        (",;=,;q=0;;\x7f", False),
    ],
)
def test_exemplars_are_for_those_who_know_them(tmp_path: Path, accept: str, exemplars: bool) -> None:
    made, _ = service(tmp_path)
    made.metrics.finding("allocations", "node-overcommit", "Deny", "c1a1000100004000800000000000000a")
    (answer,) = scrapes(made, {"accept": accept})
    kind = "application/openmetrics-text; version=1.0.0" if exemplars else "text/plain; version=0.0.4"
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert answer.text.endswith("# EOF\n") is exemplars
    assert ('trace_id="c1a1000100004000800000000000000a"' in answer.text) is exemplars
    assert int(answer.headers["content-length"]) == len(answer.content)


@pytest.mark.parametrize(("encodings", "zipped"), [("gzip", True), ("br, GZIP;q=0.5", True), ("gzip;q=0", False)])
def test_metrics_come_compressed_to_those_who_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encodings: str, zipped: bool
) -> None:
    monkeypatch.setattr(app, "PART", 500)
    made, _ = service(tmp_path)
    plain, packed = scrapes(made, {}, {"accept-encoding": encodings})
    assert packed.headers.get("content-encoding") == ("gzip" if zipped else None)
    sizes = [int(answer.headers["content-length"]) for answer in (plain, packed)]
    assert (sizes[1] < sizes[0] / 2) is zipped
    # Ages go on between the two.
    assert [line.split(" ")[0] for line in plain.text.splitlines()] == [
        line.split(" ")[0] for line in packed.text.splitlines()
    ]


def test_scrapers_that_do_not_take_their_answers_are_few_and_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_SCRAPES", 2)
    monkeypatch.setattr(app, "SCRAPE_TIMEOUT", 0.2)
    made, _ = service(tmp_path)
    application = build(made)
    scope = {"type": "http", "method": "GET", "path": "/metrics", "query_string": b"", "headers": []}
    sending = asyncio.Event()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def stuck(message: Message) -> None:
        sending.set()
        await asyncio.Event().wait()

    async def scrape() -> int:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="https://x") as client:
            return (await client.get("/metrics")).status_code

    async def all_of_it() -> None:
        slow = [asyncio.create_task(application({**scope}, receive, stuck)) for _ in range(2)]
        await sending.wait()
        assert await scrape() == 503
        ended = await asyncio.gather(*slow, return_exceptions=True)
        assert [type(error) for error in ended] == [TimeoutError, TimeoutError]
        assert await scrape() == 200

    asyncio.run(all_of_it())


def test_a_scrape_that_fails_leaves_room_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_SCRAPES", 1)
    made, _ = service(tmp_path)
    pieces = made.metrics.pieces
    fails = [True]

    def failing(exemplars: bool = False) -> list[bytes]:
        if fails:
            raise ZeroDivisionError
        return pieces(exemplars)

    monkeypatch.setattr(made.metrics, "pieces", failing)
    application = build(made)

    async def both() -> int:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="https://x") as client:
            with pytest.raises(ZeroDivisionError):
                await client.get("/metrics")
            fails.clear()
            return (await client.get("/metrics")).status_code

    assert asyncio.run(both()) == 200
