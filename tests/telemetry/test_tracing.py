"""Spans as a real receiver decodes them, and receivers that are not there, slow or unwilling."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.telemetry.receiver import Receiver
from webhook.kube.trace import trace_id
from webhook.telemetry import otlp
from webhook.telemetry.log import Log
from webhook.telemetry.spans import DRIVER_KEY, HOLD, RESUME, SpanId
from webhook.telemetry.tracing import CannotTraceError, Tracing

UID = "0f5bb1f4-94d1-4c36-8f0e-0a3c5e2d9b77"
NOW = datetime(2026, 11, 30, 8, 0, 0, 123456, tzinfo=UTC)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def lines(log: Log, said: io.StringIO) -> list[dict[str, Any]]:
    log.close()
    return [json.loads(line) for line in said.getvalue().splitlines()]


def test_a_span_arrives_in_the_trace_of_its_object() -> None:
    with Receiver() as receiver:
        tracing = Tracing(receiver.url)
        begun = NOW - timedelta(seconds=90)
        first = tracing.span(HOLD, trace_id(UID), begun, NOW, {DRIVER_KEY: "d.example", "digests": ["a", "b"]})
        assert first is not None
        second = tracing.span(RESUME, trace_id("u-1"), NOW, NOW, {}, [first])
        tracing.close()
    hold, resume = receiver.spans
    assert SpanId(hold.trace, hold.id) == first
    assert SpanId(resume.trace, resume.id) == second
    assert (hold.trace, hold.parent, hold.name) == (UID.replace("-", ""), "", "rollout.hold")
    assert hold.ended == 1_796_025_600_123_456_000
    assert hold.ended - hold.begun == 90 * 10**9
    assert hold.attributes == {"allocguard.driver": "d.example", "digests": ["a", "b"]}
    assert resume.links == [(hold.trace, hold.id)]
    assert hold.resource["service.name"] == "allocguard"
    assert hold.resource["service.version"]
    assert set(receiver.requests) == {("/v1/traces", "application/x-protobuf")}


def test_threads_do_not_get_into_the_traces_of_each_other() -> None:
    with Receiver() as receiver:
        tracing = Tracing(receiver.url)

        def some(number: int) -> None:
            for _ in range(50):
                tracing.span(str(number), trace_id(f"u-{number}"), NOW, NOW, {})

        threads = [threading.Thread(target=some, args=(number,)) for number in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        tracing.close()
    assert len(receiver.spans) == 400
    assert {(span.name, span.trace) for span in receiver.spans} == {(str(n), trace_id(f"u-{n}")) for n in range(8)}
    assert len({span.id for span in receiver.spans}) == 400


def test_the_path_of_a_receiver_behind_another_stays_and_the_environment_says_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "guard-of-lab")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=lab")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1/elsewhere")
    with Receiver() as receiver:
        tracing = Tracing(f"{receiver.url}/otlp/")
        tracing.span(HOLD, trace_id(UID), NOW, NOW, {})
        tracing.close()
    assert [path for path, _ in receiver.requests] == ["/otlp/v1/traces"]
    assert receiver.spans[0].resource["service.name"] == "guard-of-lab"
    assert receiver.spans[0].resource["k8s.cluster.name"] == "lab"


def test_a_receiver_that_is_not_there_is_one_line_and_one_more_when_it_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.2")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    with Receiver() as gone:
        pass
    said = io.StringIO()
    log = Log(said)
    tracing = Tracing(gone.url, log)
    begun = time.monotonic()
    for _ in range(500):
        tracing.span(HOLD, trace_id(UID), NOW, NOW, {})
    assert time.monotonic() - begun < 8, "spans are queued, not sent, by who has them"
    until(lambda: "spans not sent" in said.getvalue())
    time.sleep(0.5)
    with Receiver(gone.port) as back:

        def sent() -> bool:
            tracing.span(RESUME, trace_id(UID), NOW, NOW, {})
            return bool(back.spans)

        until(sent)
        until(lambda: "spans are sent" in said.getvalue())
        tracing.close()
    told = lines(log, said)
    assert [(each["level"], each["event"], each["url"]) for each in told] == [
        ("warning", "spans not sent", gone.url),
        ("info", "spans are sent", gone.url),
    ]
    assert told[0]["message"]


def test_trouble_that_comes_and_goes_is_a_line_a_minute_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    log = Log(said)
    with Receiver() as receiver:
        tracing = Tracing(receiver.url, log)
        for number in range(6):
            receiver.status = 200 if number % 2 else 400
            asked = len(receiver.requests)
            tracing.span(str(number), trace_id(UID), NOW, NOW, {})
            until(lambda asked=asked: len(receiver.requests) > asked)
        tracing.close()
    assert [span.name for span in receiver.spans] == ["1", "3", "5"]
    told = lines(log, said)
    assert [each["event"] for each in told] == ["spans not sent", "spans are sent"]
    assert "400" in told[0]["message"]


@pytest.mark.parametrize("there", [True, False])
def test_the_end_does_not_wait_for_a_receiver_for_long(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "_FLUSH", 0.3)
    with Receiver() as receiver:
        receiver.let.clear()
        tracing = Tracing(receiver.url if there else "http://127.0.0.1:1")
        tracing.span(HOLD, trace_id(UID), NOW, NOW, {})
        begun = time.monotonic()
        tracing.close()
        assert time.monotonic() - begun < 8
        # Somebody is late: it goes nowhere, and says nothing.
        tracing.span(HOLD, trace_id(UID), NOW, NOW, {})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [("OTEL_BSP_MAX_QUEUE_SIZE", "0", "max_queue_size"), ("OTEL_BSP_SCHEDULE_DELAY", "soon", "needs a whole number")],
)
def test_an_environment_that_makes_no_sense_is_told(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(CannotTraceError, match=says):
        Tracing("http://127.0.0.1:1")


def test_tracing_that_is_switched_off_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with Receiver() as receiver:
        tracing = Tracing(receiver.url)
        tracing.span(HOLD, trace_id(UID), NOW, NOW, {})
        tracing.close()
    assert receiver.requests == []


def test_without_a_receiver_nothing_is_imported_for_it() -> None:
    script = (
        "import sys\n"
        "import webhook.server.serve\n"
        "from webhook.telemetry.tracing import Tracing\n"
        "tracing = Tracing(None)\n"
        "assert tracing.span('x', '1' * 32, None, None, {}) is None\n"
        "tracing.close()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
