"""An OTLP receiver over HTTP: takes what real exporters send, and decodes it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


class Span(NamedTuple):
    trace: str
    id: str
    parent: str
    name: str
    begun: int
    ended: int
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    resource: dict[str, Any]


class Receiver:
    """Listens while it is entered. ``status`` is what it answers; ``let`` holds answers back while it is not set."""

    def __init__(self, port: int = 0) -> None:
        self.spans: list[Span] = []
        self.requests: list[tuple[str, str | None]] = []
        self.status = 200
        self.let = threading.Event()
        self.let.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.let.wait(30)
                status = receiver.status
                if status == 200:
                    receiver.spans += decode(body)
                receiver.requests.append((self.path, self.headers["content-type"]))
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing: tests look at what was received."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.let.set()
        self._server.shutdown()
        self._server.server_close()


def decode(body: bytes) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        Span(
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.name,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            values(span.attributes),
            [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
            values(each.resource.attributes),
        )
        for each in request.resource_spans
        for scope in each.scope_spans
        for span in scope.spans
    ]


def values(attributes: Any) -> dict[str, Any]:
    pairs: list[KeyValue] = list(attributes)
    return {pair.key: value(pair.value) for pair in pairs}


def value(one: AnyValue) -> Any:
    kind = one.WhichOneof("value")
    if kind == "array_value":
        return [value(each) for each in one.array_value.values]
    return getattr(one, str(kind))
