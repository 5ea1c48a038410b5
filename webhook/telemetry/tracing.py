"""Spans of what happened to an object over its life, and their names and attributes: the one place where they stand.

Who has the UID of an object has its trace, whichever replica wrote a span and however often it was started again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from webhook.telemetry.log import Level

if TYPE_CHECKING:
    from webhook.telemetry.otlp import Sender

HOLD, RESUME, STAGE, DRILL = "rollout.hold", "rollout.resume", "rollout.stage", "rollout.drill"
EXPORT, CHECK = "rollout.export", "rollout.check"

DRIVER_KEY, STAGE_KEY = "allocguard.driver", "allocguard.stage"
HOLD_REASON_KEY, DIGEST_KEY = "allocguard.hold.reason", "allocguard.mapping.digest"
EXPORT_KEY = "allocguard.export.digest"
DRILL_KEY, VERDICT_KEY, MESSAGE_KEY = "allocguard.drill", "allocguard.verdict", "allocguard.message"

Attributes = Mapping[str, str | Sequence[str]]


class Lines(Protocol):
    """What is told where spans cannot be sent: the log, or a command's own lines."""

    def write(self, level: Level, event: str, **fields: object) -> None:
        """Write one line; never blocks, never raises."""


class CannotTraceError(Exception):
    """The environment has something for OpenTelemetry that makes no sense."""


class SpanId(NamedTuple):
    """A span that was written: 32 and 16 hexadecimal digits."""

    trace: str
    span: str


class Tracing:
    """Sends spans to the OTLP receiver at ``endpoint``, over HTTP to its ``/v1/traces``; without one it does nothing.

    Spans wait in a queue of their own; a receiver that is not there costs those that do not fit, and one line of the
    log. What OpenTelemetry reads from the environment (``OTEL_…``) it reads here too, but for the endpoint. Raises
    CannotTraceError.
    """

    def __init__(self, endpoint: str | None, log: Lines | None = None) -> None:
        self._sender: Sender | None = None
        if endpoint is not None:
            # Imported only where it is wanted: it takes a while.
            from webhook.telemetry.otlp import Sender

            try:
                self._sender = Sender(endpoint, log)
            except ValueError as error:
                raise CannotTraceError(f"OTEL_* of the environment: {str(error).lower().rstrip('.')}") from error

    def span(
        self,
        name: str,
        trace: str,
        begun: datetime,
        ended: datetime,
        attributes: Attributes,
        links: Sequence[SpanId] = (),
    ) -> SpanId | None:
        """Queue the root span of something that is over, in the trace of an object; never blocks. Gives what others
        link to, None where nothing is sent.
        """
        if self._sender is None:
            return None
        return SpanId(*self._sender.span(name, trace, begun, ended, attributes, links))

    def close(self) -> None:
        """Send what is queued, waiting two seconds at most."""
        if self._sender is not None:
            self._sender.close()
