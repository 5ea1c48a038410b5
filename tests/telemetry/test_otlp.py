"""What becomes of spans when the receiver is gone, slow or unwilling: nobody waits, and each one is counted."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from certs.context import ServingContext
from certs.files import ensure
from tests.telemetry.receiver import GrpcReceiver, Receiver, Span
from webhook.kube.trace import trace_id
from webhook.telemetry import spans
from webhook.telemetry.log import Log
from webhook.telemetry.spans import CHARGE, CLAIM_UID_KEY, REVIEW, SpanId
from webhook.telemetry.tracing import Protocols, Tracing, new_span

UID = "0f5bb1f4-94d1-4c36-8f0e-0a3c5e2d9b77"
NOW = datetime(2026, 11, 30, 8, 0, 0, 123456, tzinfo=UTC)
HTTP: Protocols = "http/protobuf"
BOTH = pytest.mark.parametrize("protocol", [HTTP, "grpc"])
Either = Receiver | GrpcReceiver


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


def receiver(protocol: Protocols, port: int = 0) -> Either:
    return GrpcReceiver(port) if protocol == "grpc" else Receiver(port)


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


class Sent(Tracing):
    """A tracing that knows how many spans it was given, and how many of those nobody took."""

    def __init__(self, url: str, protocol: Protocols) -> None:
        self.said = io.StringIO()
        self.log = Log(self.said)
        super().__init__(url, self.log, protocol)
        self.given = self.dropped = 0
        self.slowest = 0.0
        self.on_dropped = self.drop

    def drop(self, count: int) -> None:
        self.dropped += count

    def some(self, count: int) -> None:
        for _ in range(count):
            begun = time.perf_counter()
            self.tell(UID, CHARGE, NOW, NOW, {CLAIM_UID_KEY: UID})
            self.slowest = max(self.slowest, time.perf_counter() - begun)
        self.given += count

    def message(self) -> str:
        until(lambda: "spans not sent" in self.said.getvalue())
        return self.said.getvalue()


@contextmanager
def sending(url: str, protocol: Protocols) -> Iterator[Sent]:
    """Ends at the end, whatever is there: who waits for a receiver waits ten seconds and more."""
    sent = Sent(url, protocol)
    yield sent
    begun = time.monotonic()
    lost = sent.close()
    assert time.monotonic() - begun < 8
    sent.dropped += lost
    sent.log.close()


@BOTH
def test_a_span_arrives_as_it_was_told(protocol: Protocols) -> None:
    with receiver(protocol) as there, sending(there.url, protocol) as tracing:
        tracing.given += 2
        parent = SpanId(trace_id(UID), new_span())
        link = spans.anchor("11111111-94d1-4c36-8f0e-0a3c5e2d9b77")
        begun = NOW - timedelta(seconds=2)
        told = {"text": "é", "flag": True, "number": 7, "texts": ("a", "b")}
        tracing.send(spans.Span(REVIEW, parent, begun, NOW, told, [link], serves=True))
        child = SpanId(parent.trace, new_span())
        # The clock was set back while it lasted.
        tracing.send(spans.Span(CHARGE, child, NOW, begun, {}, parent=parent.span, failed="no answer"))
        until(lambda: len(there.spans) == 2)
    root, below = there.spans
    assert (root.trace, root.id, root.parent, root.kind) == (parent.trace, parent.span, "", "SERVER")
    assert (root.attributes, root.links) == ({"text": "é", "flag": True, "number": 7, "texts": ["a", "b"]}, [link])
    assert (root.status, root.message, root.ended - root.begun) == ("UNSET", "", 2 * 10**9)
    assert (below.trace, below.parent, below.kind) == (parent.trace, parent.span, "INTERNAL")
    assert (below.status, below.message, below.ended - below.begun) == ("ERROR", "no answer", 0)
    assert (tracing.given, tracing.dropped) == (2, 0)


@BOTH
def test_what_others_say_of_times_and_names_costs_no_other_span_its_place(protocol: Protocols) -> None:
    """A batch is encoded as one, and a receiver takes 4 MiB of it."""
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    long = ["\N{COMBINING CANDRABINDU}" * 4096] * 1000
    with receiver(protocol) as there, sending(there.url, protocol) as tracing:
        for number in range(64):
            told = {"a": long, "b": long, "message": "m" * 5000, "half": "\ud800", "number": number}
            link = [spans.anchor(UID)] * 64
            tracing.span(CHARGE, trace_id(UID), first, last, told, link)
        tracing.tell(UID, CHARGE, NOW, NOW, {CLAIM_UID_KEY: UID})
        until(lambda: len(there.spans) == 65)
    *found, own = there.spans
    assert own.attributes == {CLAIM_UID_KEY: UID}
    for span in found:
        assert (span.begun, span.ended) == (0, 18429292800 * 10**9)
        assert len(span.attributes["message"]) == spans.MOST_TEXT
        assert span.attributes["half"] == "?"
        assert 0 < sum(len(each.encode()) for each in (*span.attributes["a"], *span.attributes["b"])) < spans.MOST_BYTES
    assert [span.attributes["number"] for span in found] == [*range(64)]
    assert tracing.dropped == 0


@BOTH
def test_a_receiver_that_never_answers_holds_nobody_up(protocol: Protocols, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "30")
    with receiver(protocol) as there:
        there.let.clear()
        with sending(there.url, protocol) as tracing:
            tracing.some(1000)
            assert tracing.dropped >= 1000 - 100 - 64
            assert "wait for the receiver" in tracing.message()
        # It would take 30 seconds.
        assert tracing.slowest < 5
        assert tracing.dropped == 1000


@BOTH
def test_a_receiver_that_is_gone_for_a_while_costs_what_was_sent_meanwhile(protocol: Protocols) -> None:
    with receiver(protocol) as gone, sending(gone.url, protocol) as tracing:
        tracing.some(5)
        until(lambda: len(gone.spans) == 5)
        gone.__exit__(None, None, None)
        tracing.some(5)
        until(lambda: tracing.dropped == 5)
        with receiver(protocol, gone.port) as back:

            def again() -> bool:
                tracing.some(1)
                time.sleep(0.05)
                return bool(back.spans)

            until(again)
            until(lambda: len(gone.spans) + len(back.spans) + tracing.dropped == tracing.given)


def test_a_receiver_that_is_busy_gets_them_when_it_asked_for_them() -> None:
    with Receiver() as there, sending(there.url, HTTP) as tracing:
        there.status, there.headers = 429, {"retry-after": "0.3"}
        tracing.some(3)
        until(lambda: there.requests)
        assert there.spans == []
        there.status = 200
        until(lambda: len(there.spans) == 3)
        assert len(there.requests) == 2
    assert tracing.dropped == 0


def test_a_receiver_that_is_busy_for_long_is_not_waited_for() -> None:
    with Receiver() as there, sending(there.url, HTTP) as tracing:
        there.status, there.headers = 429, {"retry-after": "3600"}
        tracing.some(3)
        until(lambda: tracing.dropped == 3)
        assert len(there.requests) == 1
        assert "spans not sent" in tracing.message()


@pytest.mark.parametrize(
    ("status", "headers", "body", "says"),
    [
        (500, {}, b"", "code: 500"),
        (400, {}, b"bad", "code: 400"),
        (301, {"location": "https://elsewhere/v1/traces"}, b"", "the receiver is at 'https://elsewhere/v1/traces'"),
        (200, {"content-type": "text/html; charset=utf-8"}, b"<html>log in", "a web page answers"),
        (200, {"content-type": "application/x-protobuf"}, b"\xff\xff\xff", "no receiver of OTLP"),
    ],
)
def test_what_takes_nothing_is_told(status: int, headers: dict[str, str], body: bytes, says: str) -> None:
    with Receiver() as there, sending(there.url, HTTP) as tracing:
        there.status, there.headers, there.body = status, headers, body
        tracing.some(3)
        assert says in tracing.message()
        until(lambda: tracing.dropped == 3)


def answering(there: Either, refused: int = 0) -> None:
    """Have it say that it took all but ``refused`` spans."""
    said = ExportTraceServiceResponse()
    if refused:
        said.partial_success.MergeFrom(ExportTracePartialSuccess(rejected_spans=refused, error_message="too\nold"))
    if isinstance(there, GrpcReceiver):
        there.answer = said
    else:
        there.headers = {"content-type": "application/x-protobuf"}
        there.body = said.SerializeToString()


@BOTH
def test_what_is_taken_in_part_is_counted_so(protocol: Protocols) -> None:
    with receiver(protocol) as there, sending(there.url, protocol) as tracing:
        answering(there, refused=2)
        tracing.some(3)
        assert "2 are refused: too old" in tracing.message()
        until(lambda: tracing.dropped == 2)
        answering(there)
        tracing.some(1)
        until(lambda: "spans are sent" in tracing.said.getvalue())
    assert tracing.dropped == 2


@BOTH
@pytest.mark.parametrize(("refused", "lost"), [(-5, 0), (1 << 60, 3)])
def test_no_more_are_refused_than_were_sent(protocol: Protocols, refused: int, lost: int) -> None:
    with receiver(protocol) as there, sending(there.url, protocol) as tracing:
        answering(there, refused)
        tracing.some(3)
        until(lambda: len(there.spans) == 3)
    assert tracing.dropped == lost


@pytest.mark.parametrize("refusal", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED])
def test_a_grpc_receiver_that_refuses_is_told(refusal: grpc.StatusCode) -> None:
    with GrpcReceiver() as there, sending(there.url, "grpc") as tracing:
        there.refusal = refusal
        tracing.some(3)
        tracing.message()
        until(lambda: tracing.dropped == 3)
        there.refusal = None
        tracing.some(1)
        until(lambda: "spans are sent" in tracing.said.getvalue())


def test_a_grpc_receiver_that_is_busy_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "5")
    with GrpcReceiver() as there, sending(there.url, "grpc") as tracing:
        there.refusal = grpc.StatusCode.UNAVAILABLE
        tracing.some(3)
        until(lambda: there.requests)
        there.refusal = None
        until(lambda: len(there.spans) == 3)
    assert tracing.dropped == 0


@BOTH
def test_what_talks_something_else_is_told(protocol: Protocols) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"220 mail.example ESMTP\r\n" * 10)

        threading.Thread(target=talk, daemon=True).start()
        with sending(f"http://127.0.0.1:{server.getsockname()[1]}", protocol) as tracing:
            tracing.some(3)
            tracing.message()
            until(lambda: tracing.dropped == 3)
        server.shutdown(socket.SHUT_RDWR)


@BOTH
def test_a_certificate_of_an_unknown_authority_is_told_and_of_a_known_one_is_taken(
    protocol: Protocols, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3")
    ensure(tmp_path, ["127.0.0.1"], datetime.now(UTC))
    there = Receiver(tls=ServingContext(tmp_path, datetime.now(UTC)))
    with there:
        with sending(there.url, protocol) as tracing:
            tracing.some(3)
            assert "certificate verify failed" in tracing.message() or protocol == "grpc"
            until(lambda: tracing.dropped == 3)
        if protocol == HTTP:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(tmp_path / "ca.crt"))
            with sending(there.url, protocol) as known:
                known.some(3)
                until(lambda: len(there.spans) == 3)
            assert known.dropped == 0


def test_tls_that_nobody_speaks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3")
    with Receiver() as there, sending(there.url.replace("http:", "https:"), HTTP) as tracing:
        tracing.some(3)
        assert "ssl" in tracing.message().lower()
        until(lambda: tracing.dropped == 3)


SCRIPT = """
import asyncio, os, subprocess, sys
from datetime import UTC, datetime
import uvloop
from webhook.telemetry.tracing import Tracing

tracing = Tracing(sys.argv[1], None, sys.argv[2])
now = datetime.now(UTC)

async def main():
    for number in range(3):
        tracing.span(f"before {number}", "1" * 32, now, now, {})
        await asyncio.sleep(0.1)
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(1)", stdout=subprocess.DEVNULL)
        assert await child.wait() == 0
        assert subprocess.run(["true"], check=True).returncode == 0
        pid = os.fork()
        if not pid:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        tracing.span(f"after {number}", "1" * 32, now, now, {})

uvloop.run(main())
assert tracing.close() == 0
"""


@BOTH
def test_processes_that_are_started_beside_it_disturb_nothing(protocol: Protocols) -> None:
    with receiver(protocol) as there:
        done = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", "-c", SCRIPT, there.url, protocol],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    names = {f"{when} {number}" for when in ("before", "after") for number in range(3)}
    found: list[Span] = there.spans
    assert sorted(span.name for span in found) == sorted(names)


def test_a_batch_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    with Receiver() as there, sending(there.url, HTTP) as tracing:
        tracing.some(640)
        until(lambda: len(there.spans) >= 576)
    assert len(there.spans) == 640
    assert len(there.requests) >= 10
