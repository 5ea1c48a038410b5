"""POST /audit: lists of events in, and everything that is none."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.facts.test_write_failures import recorded
from tests.server.test_app import service
from webhook.server import audit
from webhook.server.app import build
from webhook.server.audit import AuditSink, BadTokenFileError, read_token
from webhook.telemetry.log import Log

HEAD = {"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}}


class Served:
    """The application with a sink that takes all it gets, unless it is ``full``."""

    def __init__(self, folder: Path, token: Path | None = None) -> None:
        self.made, _ = service(folder)
        self.stream = io.StringIO()
        self.log = Log(self.stream)
        self.events: list[bytes] = []
        self.full = False
        self.made.audit = AuditSink(self.take, token, self.log)

    def take(self, events: list[bytes]) -> bool:
        if not self.full:
            self.events += events
        return not self.full

    def send(self, *bodies: Any, path: str = "/audit", method: str = "POST", **headers: str) -> list[httpx.Response]:
        async def run() -> list[httpx.Response]:
            transport = httpx.ASGITransport(build(self.made))
            async with httpx.AsyncClient(transport=transport, base_url="https://x") as client:
                sending = (client.request(method, path, content=body, headers=headers) for body in bodies)
                return list(await asyncio.gather(*sending))

        return asyncio.run(run())

    def told(self) -> list[dict[str, Any]]:
        self.log.close()
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def events(*items: object) -> bytes:
    return json.dumps({**HEAD, "items": list(items)}).encode()


def test_each_event_of_a_list_as_it_came(served: Served) -> None:
    event = recorded("both")["event"]
    [answer] = served.send(events(event, {"a": 1}, 7, None), path="/audit?timeout=30s")
    assert (answer.status_code, answer.json()["status"]) == (200, "Success")
    assert [json.loads(each) for each in served.events] == [event, {"a": 1}, 7, None]


def test_an_empty_list(served: Served) -> None:
    for body in (events(), json.dumps({**HEAD, "items": None}).encode(), json.dumps(HEAD).encode()):
        assert served.send(body)[0].status_code == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "Input data was truncated"),
        (b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{"a":', "Input data was truncated"),
        (b"\xff", "malformed"),
        (b"null", "Expected `object`"),
        (b"[" * 1_000_000, "Expected `object`"),
        (b'{"items":' + b"[" * 1_000_000, "recursion"),
        (b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":{}}', "Expected `array | null`"),
        (b'{"kind":["EventList"]}', "Expected `str`"),
        (b'{"kind":"\xff"}', "UTF-8"),
        (b"{}", "neither kind nor apiVersion"),
        (b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1beta1"}', "needs audit.k8s.io/v1 EventList"),
        (b'{"kind":"Event","apiVersion":"audit.k8s.io/v1"}', "needs audit.k8s.io/v1 EventList"),
    ],
)
def test_what_is_no_list(served: Served, body: bytes, message: str) -> None:
    [answer] = served.send(body)
    assert answer.status_code == 400
    assert message in answer.json()["message"]
    assert served.events == []


def test_limits(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_EVENTS", 3)
    assert served.send(events(1, 2, 3))[0].status_code == 200
    [answer] = served.send(events(1, 2, 3, 4))
    assert answer.status_code == 413
    assert "--audit-webhook-batch-max-size" in answer.json()["message"]
    monkeypatch.setattr(audit, "MAX_BODY", 100)

    async def slow() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * 50

    answers = served.send(b" " * 101, slow())
    assert [answer.status_code for answer in answers] == [413, 413]
    assert "--audit-webhook-truncate-enabled" in answers[0].json()["message"]


def test_who_has_no_time_is_asked_to_come_again(served: Served) -> None:
    served.full = True
    [answer] = served.send(events(1))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    served.full = False
    assert served.send(events(1))[0].status_code == 200


def test_bodies_at_once_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_IN_FLIGHT", 2)

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1"'
        await asyncio.sleep(0.05)
        yield b"}"

    assert sorted(answer.status_code for answer in served.send(*(slow() for _ in range(5)))) == [
        200,
        200,
        429,
        429,
        429,
    ]
    assert served.send(events())[0].status_code == 200


def test_a_body_that_does_not_come(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "BODY_TIMEOUT", 0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(1)
        yield b"}"

    assert served.send(slow())[0].status_code == 408


def test_other_methods_and_paths(served: Served) -> None:
    assert served.send(None, method="GET")[0].status_code == 405
    assert served.send(events(), path="/audit/more")[0].status_code == 404
    served.made.audit = None
    assert served.send(events())[0].status_code == 404


def test_only_who_shows_the_token_is_heard(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    served = Served(tmp_path, file)
    for wrong in (
        {},
        {"authorization": "Bearer other"},
        {"authorization": "Basic s3cret"},
        {"authorization": "s3cret"},
    ):
        [answer] = served.send(events(1), **wrong)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert served.events == []
    assert served.send(events(1), authorization="Bearer s3cret")[0].status_code == 200
    # A Secret is changed under it.
    file.write_text("other")
    assert served.send(events(1), authorization="Bearer s3cret")[0].status_code == 401
    assert served.send(events(1), authorization="bearer other")[0].status_code == 200
    file.unlink()
    [answer] = served.send(events(1), authorization="Bearer other")
    assert (answer.status_code, answer.json()["message"]) == (503, "the token of senders cannot be read")
    assert served.told()[-1]["message"] == f"{file}: cannot be read: no such file or directory"


def test_refusals_are_told_once_a_minute(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.send(*[b"{}"] * 50)
    monkeypatch.setattr(audit, "MAX_BODY", 1)
    served.send(*[b"{}"] * 50)
    assert [(line["event"], line["code"]) for line in served.told()] == [
        ("audit events refused", 400),
        ("audit events refused", 413),
    ]


def test_a_token_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadTokenFileError, match="cannot be read: no such file"):
        read_token(tmp_path / "none")
    # Nobody waits for who may write into it: reviews would wait too.
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadTokenFileError, match="cannot be read: is no regular file"):
        read_token(tmp_path / "pipe")
    empty = tmp_path / "empty"
    empty.write_text(" \n")
    with pytest.raises(BadTokenFileError, match="has no token"):
        read_token(empty)
    empty.write_text("x" * 5000)
    with pytest.raises(BadTokenFileError, match="too long"):
        read_token(empty)
