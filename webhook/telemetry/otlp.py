"""Finished spans over OTLP, by OpenTelemetry's own SDK."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib.metadata import version

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, SpanContext, TraceFlags, format_span_id, format_trace_id

from webhook.telemetry.tracing import Lines

# Seconds: what is queued is sent at the end, and at most one line of the log tells of trouble.
_FLUSH, _QUIET = 2.0, 60.0
_EPOCH = datetime.fromtimestamp(0, UTC)

# The trace that the next span of this thread is in.
_TRACE: ContextVar[int] = ContextVar("trace")


class Sender:
    """A provider of its own: nothing else in the process is traced. Any thread may use it."""

    def __init__(self, endpoint: str, log: Lines | None) -> None:
        trouble = _Trouble(endpoint, log)
        logger = logging.getLogger("opentelemetry")
        logger.handlers = [trouble]
        logger.propagate = False
        own = Resource({"service.name": "allocguard", "service.version": version("allocguard")})
        self._provider = TracerProvider(
            resource=Resource.create(own.merge(OTELResourceDetector().detect()).attributes),
            id_generator=_GivenTrace(),
            shutdown_on_exit=False,
        )
        self._exporter = _Told(OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces"), trouble)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("allocguard")

    def span(
        self,
        name: str,
        trace: str,
        begun: datetime,
        ended: datetime,
        attributes: Mapping[str, str | Sequence[str]],
        links: Sequence[tuple[str, str]],
    ) -> tuple[str, str]:
        """As :meth:`webhook.telemetry.tracing.Tracing.span`."""
        token = _TRACE.set(int(trace, 16))
        try:
            span = self._tracer.start_span(
                name,
                context=Context(),
                attributes=attributes,
                links=[Link(_context(*each)) for each in links],
                start_time=_nanoseconds(begun),
            )
        finally:
            _TRACE.reset(token)
        span.end(_nanoseconds(ended))
        made = span.get_span_context()
        return format_trace_id(made.trace_id), format_span_id(made.span_id)

    def close(self) -> None:
        """As :meth:`webhook.telemetry.tracing.Tracing.close`."""
        ending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        ending.start()
        ending.join(_FLUSH)
        if ending.is_alive():
            # Ends its pause between two tries.
            self._exporter.shutdown()


class _GivenTrace(RandomIdGenerator):
    def generate_trace_id(self) -> int:
        """The one that was given."""
        return _TRACE.get()

    def is_trace_id_random(self) -> bool:
        """Not by what counts as random in a trace context."""
        return False


class _Trouble(logging.Handler):
    """Tells of trouble once, until spans have come through again; what the SDK has to say goes nowhere else."""

    def __init__(self, endpoint: str, log: Lines | None) -> None:
        super().__init__(logging.WARNING)
        self._endpoint = endpoint
        self._log = log
        self._told = False
        self._next = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """One line for what may be many records."""
        if self._log is None or self._told or time.monotonic() < self._next:
            return
        self._told = True
        self._next = time.monotonic() + _QUIET
        self._log.write("warning", "spans not sent", url=self._endpoint, message=record.getMessage())

    def over(self) -> None:
        """Spans came through."""
        if self._told and self._log is not None:
            self._log.write("info", "spans are sent", url=self._endpoint)
        self._told = False


class _Told(SpanExporter):
    """An exporter whose success ends the trouble."""

    def __init__(self, exporter: SpanExporter, trouble: _Trouble) -> None:
        self._exporter = exporter
        self._trouble = trouble

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """As the exporter does."""
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self._trouble.over()
        return result

    def shutdown(self) -> None:
        """As the exporter does."""
        self._exporter.shutdown()


def _context(trace: str, span: str) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _nanoseconds(at: datetime) -> int:
    passed = at - _EPOCH
    return ((passed.days * 86400 + passed.seconds) * 10**6 + passed.microseconds) * 1000
