"""A webhook of the tests' own: writes down what it is asked and answers as it is told."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from certs.files import ensure
from tests.e2e.client import Client, Json
from tests.e2e.guard import CONFIGURATIONS, KINDS, register
from tests.e2e.processes import free_port

Answer = Callable[[Json], Json | None]


@dataclass(frozen=True, slots=True)
class Seen:
    """One review: when it came (monotonic seconds), at which endpoint, its ``request``, the query of its URL, and the
    port of the other end of its connection.
    """

    at: float
    endpoint: str
    request: Json
    query: str
    peer: int

    @property
    def what(self) -> str:
        """Resource, subresource and operation, as ``pods/status UPDATE``."""
        resource, sub = self.request["resource"]["resource"], self.request.get("subResource")
        return f"{resource}{'/' + sub if sub else ''} {self.request['operation']}"

    @property
    def user(self) -> str:
        """Who wrote."""
        name: str = self.request["userInfo"]["username"]
        return name


def refuse(code: int = 403, reason: str = "Forbidden", message: str = "refused", **details: object) -> Json:
    """An answer that refuses."""
    status: Json = {"code": code, "reason": reason, "message": message}
    if details:
        status["details"] = details
    return {"allowed": False, "status": status}


class Recorder:
    """Registered for the ``resources`` (``GROUP/RESOURCE``) with every operation, in the namespace ``ns`` or for
    cluster-scoped objects, as ``endpoints`` (``validate``, ``mutate``).

    ``answer`` is a function from a request to a response without its uid, None to allow; it can be replaced any time.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        admin: Client,
        ns: str,
        resources: tuple[str, ...] = (),
        endpoints: tuple[str, ...] = ("validate",),
        answer: Answer | None = None,
        failure_policy: str = "Fail",
        operations: tuple[str, ...] = ("*",),
        versions: tuple[str, ...] = ("*",),
        **fields: object,
    ) -> None:
        self.seen: list[Seen] = []
        self.answer = answer
        self._name, self._admin, self._endpoints = name, admin, endpoints
        self._connections: set[socket.socket] = set()
        self.port = port = free_port()
        certificates = folder / name
        ensure(certificates, ["127.0.0.1"], datetime.now(UTC))
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler(), bind_and_activate=False)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._server.server_bind()
        self._server.server_activate()
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self.authority = (certificates / "ca.crt").read_bytes()
        trusted = b64encode(self.authority).decode()
        rules = [
            {
                "apiGroups": [each.partition("/")[0]],
                "apiVersions": list(versions),
                "resources": [each.partition("/")[2]],
                "operations": list(operations),
            }
            for each in resources
        ]
        for endpoint in endpoints:
            webhook = {
                "name": f"{endpoint}.{name}.test",
                "clientConfig": {"url": f"https://127.0.0.1:{port}/{endpoint}", "caBundle": trusted},
                "rules": rules,
                "failurePolicy": failure_policy,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 10,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}},
                **fields,
            }
            register(admin, endpoint, name, [webhook])

    def close(self) -> None:
        """Stop answering, and close what the API server keeps open."""
        if not self._thread.is_alive():
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def of(self, what: str, endpoint: str = "validate") -> list[Seen]:
        """The reviews of ``what``, as ``pods/status UPDATE``, in the order they came."""
        return [seen for seen in list(self.seen) if seen.what == what and seen.endpoint == endpoint]

    def unregister(self) -> None:
        """Be asked no more; the API server may take a moment to notice."""
        for endpoint, plural in KINDS.items():
            if endpoint in self._endpoints:
                self._admin.delete(f"{CONFIGURATIONS}/{plural}/{self._name}")

    def _review(self, url: str, review: Json, peer: int) -> Json:
        request = review["request"]
        endpoint, _, query = url.partition("?")
        self.seen.append(Seen(time.monotonic(), endpoint.lstrip("/"), request, query, peer))
        answer = (self.answer(request) if self.answer else None) or {"allowed": True}
        return {**{key: review[key] for key in ("apiVersion", "kind")}, "response": {"uid": request["uid"], **answer}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                recorder._connections.add(self.connection)

            def finish(self) -> None:
                recorder._connections.discard(self.connection)
                super().finish()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = recorder._review(self.path, json.loads(body), self.client_address[1])
                content = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name it has there
                pass

        return Handler
