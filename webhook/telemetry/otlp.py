"""Finished spans over OTLP, by OpenTelemetry's own SDK."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import requests
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_BSP_SCHEDULE_DELAY,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from webhook.kube.finding import one_line
from webhook.telemetry.spans import MOST_BYTES, MOST_ITEMS, MOST_TEXT, Attributes, Span, SpanId
from webhook.telemetry.tracing import Lines, Protocols

# Seconds: what is queued is sent at the end, and at most one line of the log tells of trouble.
_FLUSH, _QUIET = 2.0, 60.0
_EPOCH, _LAST = datetime.fromtimestamp(0, UTC), datetime(2554, 1, 1, tzinfo=UTC)

# Where the environment says nothing else. Encoding holds the interpreter, 38 us for a span: a batch holds it for less
# than a review takes. The sooner a batch goes, the fewer spans a killed process takes with it.
_BATCH, _EVERY = 64, 500
# What waits for a receiver that is slow, spans of about a kilobyte.
_QUEUE = 2048

_OK, _SERVES, _INTERNAL = Status(StatusCode.UNSET), SpanKind.SERVER, SpanKind.INTERNAL
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def disabled() -> bool:
    """Whether the environment switches OpenTelemetry off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


class Sender:
    """A processor of its own: nothing else in the process is traced. Any thread may use it. ``dropped`` is told how
    many spans nobody took.
    """

    def __init__(self, endpoint: str, protocol: Protocols, log: Lines | None, dropped: Callable[[int], None]) -> None:
        self._trouble = _Trouble(endpoint, log)
        logger = logging.getLogger("opentelemetry")
        logger.handlers = [self._trouble]
        logger.propagate = False
        # In a pod the name of the host is that of the pod: which replica it was.
        named = {"service.name": "allocguard", "service.version": version("allocguard")}
        own = Resource({**named, "host.name": socket.gethostname()})
        self._resource = Resource.create(own.merge(OTELResourceDetector().detect()).attributes)
        self._scope = InstrumentationScope("allocguard", version("allocguard"))
        queue = _setting(OTEL_BSP_MAX_QUEUE_SIZE, _QUEUE)
        self._exporter = _Counted(endpoint, protocol, queue, self._trouble, dropped)
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=queue,
            schedule_delay_millis=_setting(OTEL_BSP_SCHEDULE_DELAY, _EVERY),
            max_export_batch_size=_setting(OTEL_BSP_MAX_EXPORT_BATCH_SIZE, min(_BATCH, queue)),
        )

    def send(self, span: Span) -> None:
        """As :meth:`webhook.telemetry.tracing.Tracing.send`."""
        if not self._exporter.take():
            return
        ended = _nanoseconds(span.ended)
        made = ReadableSpan(
            span.name,
            _context(span.id),
            _context(SpanId(span.id.trace, span.parent)) if span.parent else None,
            self._resource,
            _fitting(span.attributes),
            links=[Link(_context(each)) for each in span.links],
            kind=_SERVES if span.serves else _INTERNAL,
            status=Status(StatusCode.ERROR, _text(span.failed)) if span.failed else _OK,
            # A clock that was set back in between.
            start_time=min(_nanoseconds(span.begun), ended),
            end_time=ended,
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(made)

    def close(self) -> int:
        """As :meth:`webhook.telemetry.tracing.Tracing.close`."""
        ending = threading.Thread(target=self._processor.shutdown, name="last spans", daemon=True)
        ending.start()
        ending.join(_FLUSH)
        if ending.is_alive():
            # Ends its pause between two tries.
            self._exporter.shutdown()
        return self._exporter.end()


class _Counted(SpanExporter):
    """An exporter whose success ends the trouble. Spans are counted where they come in, so that none is lost unseen:
    the processor's own queue, which forgets the oldest, never fills.
    """

    def __init__(
        self, endpoint: str, protocol: Protocols, queue: int, trouble: _Trouble, dropped: Callable[[int], None]
    ) -> None:
        self._exporter = self._grpc(endpoint) if protocol == "grpc" else self._http(endpoint)
        self._queue = queue
        self._trouble = trouble
        self._dropped = dropped
        self._lock = threading.Lock()
        self._waiting = self._sending = 0
        self._ended = False
        # How many of the last spans the receiver did not want, and why.
        self._unwanted = 0, ""

    def take(self) -> bool:
        """Whether there is room for one span more, which is taken."""
        with self._lock:
            late = self._ended
            room = not late and self._waiting < self._queue
            self._waiting += room
        if not room and not late:
            self._trouble.tell(f"{self._queue} spans wait for the receiver, there is no room for more")
            self._dropped(1)
        return room

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """As the exporter does."""
        with self._lock:
            self._waiting -= len(spans)
            self._sending += len(spans)
        self._unwanted, result = (0, ""), SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            with self._lock:
                self._sending -= len(spans)
                late = self._ended
            if not late:
                self._settle(result, len(spans))
        return result

    def _settle(self, result: SpanExportResult, count: int) -> None:
        if result is not SpanExportResult.SUCCESS:
            # The SDK says why, but not twice in 20 seconds.
            self._trouble.tell("the receiver has not taken them")
            self._dropped(count)
        elif unwanted := max(0, min(self._unwanted[0], count)):
            self._trouble.tell(f"{unwanted} are refused: {one_line(self._unwanted[1][:500])}")
            self._dropped(unwanted)
        else:
            self._trouble.over()

    def shutdown(self) -> None:
        """As the exporter does."""
        self._exporter.shutdown()

    def end(self) -> int:
        """How many spans nobody has taken: they are lost, and counted no more."""
        with self._lock:
            self._ended = True
            return self._waiting + self._sending

    def _grpc(self, endpoint: str) -> SpanExporter:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        look = self._look

        class Exporter(OTLPSpanExporter):
            """Looks at answers, too. The channel is made anew when the receiver was away."""

            def _initialize_channel_and_stub(self) -> None:
                super()._initialize_channel_and_stub()  # type: ignore[no-untyped-call]  # the library has no types for it
                client: Any = self._client
                export = client.Export

                def asked(**fields: Any) -> ExportTraceServiceResponse:
                    answer: ExportTraceServiceResponse = export(**fields)
                    look(answer)
                    return answer

                client.Export = asked

        return Exporter(endpoint)

    def _http(self, endpoint: str) -> SpanExporter:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        session = _Session()
        session.hooks["response"].append(self._answered)
        return OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces", session=session)

    def _answered(self, answer: requests.Response, *_: object, **__: Any) -> None:
        """Look at an answer that the exporter takes for a success whatever is in it. Raises ValueError where nobody
        took the spans.
        """
        if problem := self._problem(answer):
            answer.close()
            raise ValueError(problem)

    def _problem(self, answer: requests.Response) -> str:
        if answer.is_redirect:
            return f"the receiver is at {answer.headers['location'][:200]!r}; give that as the endpoint"
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status_code == requests.codes.ok and kind == "text/html":
            return "a web page answers, no receiver of OTLP; give the endpoint of one"
        if answer.status_code == requests.codes.ok and kind == "application/x-protobuf":
            try:
                self._look(ExportTraceServiceResponse.FromString(answer.content))
            except DecodeError:
                return "what answers is no receiver of OTLP; give the endpoint of one"
        return ""

    def _look(self, answer: ExportTraceServiceResponse) -> None:
        refused = answer.partial_success
        self._unwanted = refused.rejected_spans, refused.error_message


class _Session(requests.Session):
    """Believes the authorities that are named for this receiver rather than those that are named for everybody."""

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        """As requests does, which would look at the environment first."""
        verify = self.verify if verify is None else verify
        return super().merge_environment_settings(url, proxies, stream, verify, cert)


class _Trouble(logging.Handler):
    """Tells of trouble once, until spans have come through again; what the SDK has to say goes nowhere else."""

    def __init__(self, endpoint: str, log: Lines | None) -> None:
        super().__init__(logging.WARNING)
        self._endpoint = endpoint
        self._log = log
        self._told = False
        self._next = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """As :meth:`tell`, what the SDK says."""
        self.tell(record.getMessage())

    def tell(self, message: str) -> None:
        """One line for what may be many messages."""
        if self._log is None or self._told or time.monotonic() < self._next:
            return
        self._told = True
        self._next = time.monotonic() + _QUIET
        self._log.write("warning", "spans not sent", url=self._endpoint, message=message)

    def over(self) -> None:
        """Spans came through."""
        if self._told and self._log is not None:
            self._log.write("info", "spans are sent", url=self._endpoint)
        self._told = False


def _setting(name: str, default: int) -> int:
    """The whole number that the environment has for ``name``. Raises ValueError."""
    given = os.environ.get(name, "").strip()
    if not given:
        return default
    if not given.isdecimal():
        raise ValueError(f"{name} has {given[:40]!r}, needs a whole number")
    return int(given)


def _fitting(attributes: Attributes) -> Attributes:
    """``attributes`` as far as they fit: of one text each, then lists from their beginning."""
    left = MOST_BYTES
    fitted: dict[str, str | bool | int | Sequence[str]] = {}
    for key, value in sorted(attributes.items(), key=_listed):
        if isinstance(value, int):
            fitted[key] = value
            continue
        items: list[str] = []
        for item in map(_text, (value,) if isinstance(value, str) else value[:MOST_ITEMS]):
            size = len(item) if item.isascii() else len(item.encode())
            if size > left:
                break
            left -= size
            items.append(item)
        fitted[key] = items if not isinstance(value, str) else items[0] if items else ""
    return fitted


def _listed(attribute: tuple[str, object]) -> bool:
    return not isinstance(attribute[1], str | int)


def _text(value: str) -> str:
    """``value``, as much as fits, and as UTF-8 has it: names come from whoever wrote an object."""
    value = value if len(value) <= MOST_TEXT else f"{value[: MOST_TEXT - 3]}..."
    return value if value.isascii() else value.encode(errors="replace").decode()


def _context(span: SpanId) -> SpanContext:
    return SpanContext(int(span.trace, 16), int(span.span, 16), is_remote=True, trace_flags=_SAMPLED)


def _nanoseconds(at: datetime) -> int:
    """``at`` as OTLP has it, which knows nothing before 1970 nor after 2554: others choose some of the times."""
    passed = max(_EPOCH, min(at, _LAST)) - _EPOCH
    return ((passed.days * 86400 + passed.seconds) * 10**6 + passed.microseconds) * 1000
