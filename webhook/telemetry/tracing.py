"""Tracing: who has something to tell of an object says so here, and what is kept of it goes to a receiver."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from webhook.kube.trace import trace_id
from webhook.telemetry.log import Level
from webhook.telemetry.sampling import Sampling
from webhook.telemetry.spans import Attributes, Span, SpanId

if TYPE_CHECKING:
    from webhook.telemetry.otlp import Sender

Protocols = Literal["http/protobuf", "grpc"]


class Lines(Protocol):
    """What is told where spans cannot be sent: the log, or a command's own lines."""

    def write(self, level: Level, event: str, **fields: object) -> None:
        """Write one line; never blocks, never raises."""


class CannotTraceError(Exception):
    """The environment has something for OpenTelemetry that makes no sense."""


class Tracing:
    """Sends spans to the OTLP receiver at ``endpoint``: over HTTP to its ``/v1/traces``, or over gRPC; without one it
    does nothing. Of what happens to claims and pods ``sampling`` keeps the part ``ratio``.

    Spans wait in a queue of their own; a receiver that is not there costs those that do not fit, and one line of the
    log. ``on_dropped`` is told how many nobody took, from any thread. What OpenTelemetry reads from the environment
    (``OTEL_…``) of batches, resources and exporters it reads here too, but for the endpoint and the protocol. Raises
    CannotTraceError.
    """

    def __init__(
        self,
        endpoint: str | None,
        log: Lines | None = None,
        protocol: Protocols = "http/protobuf",
        ratio: float = 1.0,
    ) -> None:
        self.sampling = Sampling(ratio)
        self.on_dropped: Callable[[int], None] = lambda _: None
        self._sender: Sender | None = None
        if endpoint is not None:
            # Imported only where it is wanted: it takes a while.
            from webhook.telemetry.otlp import Sender, disabled

            if disabled():
                return
            try:
                self._sender = Sender(endpoint, protocol, log, lambda count: self.on_dropped(count))
            except (ValueError, RuntimeError) as error:
                raise CannotTraceError(f"OTEL_* of the environment: {str(error).lower().rstrip('.')}") from error

    @property
    def sends(self) -> bool:
        """Whether anybody is sent spans."""
        return self._sender is not None

    def tell(
        self,
        uid: str,
        name: str,
        begun: datetime,
        ended: datetime,
        attributes: Attributes,
        links: Sequence[SpanId] = (),
        always: bool = False,
    ) -> SpanId | None:
        """As :meth:`span`, in the trace of the claim or pod with this UID, as far as what happens to it is kept. What
        somebody will ask about is told ``always``, and from then on what comes after it.
        """
        if self._sender is None:
            return None
        if always:
            self.sampling.keep(uid)
        elif not self.sampling.wanted(uid):
            return None
        return self.span(name, trace_id(uid), begun, ended, attributes, links)

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
        made = SpanId(trace, new_span())
        self._sender.send(Span(name, made, begun, ended, attributes, links))
        return made

    def send(self, span: Span) -> None:
        """Queue ``span``; never blocks."""
        if self._sender is not None:
            self._sender.send(span)

    def close(self) -> int:
        """Send what is queued, waiting two seconds at most. Gives how many spans are lost all the same."""
        return 0 if self._sender is None else self._sender.close()


def new_span() -> str:
    """The id of a new span, 16 hexadecimal digits."""
    return f"{random.getrandbits(64) or 1:016x}"
