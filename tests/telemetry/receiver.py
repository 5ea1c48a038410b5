"""OTLP receivers over HTTP and gRPC: they take what real exporters send, and decode it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2


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
    kind: str
    status: str
    message: str


class Receiver:
    """Listens while it is entered, over TLS where it has a context for that. ``status`` is what it answers, with
    ``headers`` and ``body``; ``let`` holds answers back while it is not set.
    """

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.spans: list[Span] = []
        self.requests: list[tuple[str, str | None]] = []
        self.status = 200
        self.headers: Mapping[str, str] = {}
        self.body = b""
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
                self.send_header("content-length", str(len(receiver.body)))
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(receiver.body)

            def log_message(self, *_: object) -> None:
                """Nothing: tests look at what was received."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self.url = f"http{'' if tls is None else 's'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.let.set()
        self._server.shutdown()
        self._server.server_close()


class GrpcReceiver(TraceServiceServicer):
    """Listens while it is entered. ``refusal`` is the status that it answers with, where it takes nothing, ``answer``
    what it says where it takes them; ``let`` holds answers back while it is not set.
    """

    def __init__(self, port: int = 0) -> None:
        self.spans: list[Span] = []
        self.requests = 0
        self.refusal: grpc.StatusCode | None = None
        self.answer = ExportTraceServiceResponse()
        self.let = threading.Event()
        self.let.set()
        self._server = grpc.server(ThreadPoolExecutor(8))
        add_TraceServiceServicer_to_server(self, self._server)
        self.port: int = self._server.add_insecure_port(f"127.0.0.1:{port}")
        self.url = f"http://127.0.0.1:{self.port}"

    def Export(  # noqa: N802 - the method of the service
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        self.let.wait(30)
        self.requests += 1
        if self.refusal is not None:
            context.abort(self.refusal, "not now")
        self.spans += spans_of(request)
        return self.answer

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.let.set()
        self._server.stop(1).wait()


def decode(body: bytes) -> list[Span]:
    return spans_of(ExportTraceServiceRequest.FromString(body))


def spans_of(request: ExportTraceServiceRequest) -> list[Span]:
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
            trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
            trace_pb2.Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
            span.status.message,
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
