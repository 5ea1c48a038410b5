"""HTTP: reviews in, answers out, health and metrics. The only place that knows status codes."""

from __future__ import annotations

import asyncio
import json
import re
import time
import zlib
from collections.abc import AsyncIterator, Callable
from functools import lru_cache

from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from webhook.admission.decode import BadReview
from webhook.server.connection import WHOLE
from webhook.server.service import NotReady, Reply, Service
from webhook.telemetry.metrics import CONTENT_TYPE, OPENMETRICS

# Of an object of 3 MiB, the API server's own limit, an update brings two, and a little around them.
MAX_BODY = 7 * 1024 * 1024
# What may wait at once. More than the API server sends at a time by default, and no more than memory holds.
MAX_IN_FLIGHT = 256
MAX_BUFFERED = 256 * 1024 * 1024

# The API server's default and longest timeout of a webhook, seconds.
DEFAULT_TIMEOUT, LONGEST_TIMEOUT = 10.0, 30.0
# The part of it after which an answer would hardly arrive in time.
SPENT = 0.8

# Of an answer with metrics, what is encrypted and sent between two reviews; how many answers may be on their way at one
# port, each with all of it in memory, and how long, seconds.
PART = 64 * 1024
MAX_SCRAPES, SCRAPE_TIMEOUT = 8, 60.0

# Path tails become labels of metrics: a name, and no more different ones than a registration has.
MAX_TAILS = 32
_TAIL = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")

_REFUSED_QUALITY = re.compile(r"q=0(\.0*)?")
_TIMEOUT = re.compile(rb"(?:^|&)timeout=([^&]*)")
_DURATION = re.compile(rb"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNITS = {b"h": 3600.0, b"m": 60.0, b"s": 1.0, b"ms": 0.001}

_REASONS = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    500: "InternalError",
    503: "ServiceUnavailable",
}


class _Refused(Exception):  # noqa: N818 - a request that gets no review
    def __init__(self, status: int, message: str, outcome: str = "error") -> None:
        super().__init__(message)
        self.status, self.outcome = status, outcome


class Reviews:
    """Answers the requests to one endpoint (``validate`` or ``mutate``).

    Decisions run on the event loop: they are short, and what waits is refused with 503 before it is decoded, once too
    much does. Whatever goes wrong here is an HTTP error, which the registration's failurePolicy judges; never an allow.
    """

    def __init__(self, service: Service, endpoint: str) -> None:
        self._service = service
        self._endpoint = endpoint
        self._in_flight = 0
        self._buffered = 0
        self._tails: set[str] = set()

    async def answer(self, tail: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request; ``tail`` is what its path has behind the endpoint."""
        arrived = time.perf_counter()
        label, outcome, reply = self._endpoint, "error", None
        self._in_flight += 1
        status = 200
        try:
            label = self._label(tail)
            reply = await self._review(scope, receive, arrived)
            body, outcome = reply.body, "allowed" if reply.allowed else "denied"
        except _Refused as refused:
            status, outcome, body = refused.status, refused.outcome, _status(refused.status, str(refused))
            if status != 503:
                self._service.log.write("warning", "request refused", endpoint=label, code=status, message=str(refused))
        except Exception as error:  # noqa: BLE001 - the failurePolicy of the registration decides about our mistakes
            status, body = 500, _status(500, "internal error, the log of the server has it")
            self._service.log.write("error", "internal error", endpoint=label, error=_told(error))
        finally:
            self._in_flight -= 1
        seconds = time.perf_counter() - arrived
        try:
            await _send(send, status, body, self._service.stopping)
            # The event loop writes it out between two turns: nobody waits for what is only told.
            await asyncio.sleep(0)
        finally:
            about = (reply.resource, reply.operation, reply.trace) if reply is not None else ("", "", "")
            try:
                if reply is not None:
                    reply.tell(seconds)
            finally:
                resource, operation, trace = about
                self._service.metrics.review(label, resource, operation, outcome, seconds, trace)

    def _label(self, tail: str) -> str:
        if not tail:
            return self._endpoint
        if tail in self._tails:
            return f"{self._endpoint}/{tail}"
        if not _TAIL.fullmatch(tail):
            raise _Refused(404, f"has the path tail {ascii(tail)[:80]}, needs the name of a registration")
        if len(self._tails) == MAX_TAILS:
            return f"{self._endpoint}/other"
        self._tails.add(tail)
        return f"{self._endpoint}/{tail}"

    async def _review(self, scope: Scope, receive: Receive, arrived: float) -> Reply:
        if scope["method"] != "POST":
            raise _Refused(405, f"has {scope['method']}, needs POST")
        if self._in_flight > MAX_IN_FLIGHT:
            raise _Refused(503, "too many reviews in flight", "shed")
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise _Refused(415, f"has content type {ascii(kind.decode('latin-1'))[:80]}, needs application/json")
        timeout = _timeout(scope["query_string"])
        held = [0]
        try:
            if WHOLE in scope.get("extensions", ()):
                data = await self._body(headers, receive, held)
            else:
                async with asyncio.timeout(timeout):
                    data = await self._body(headers, receive, held)
            # Requests that came at the same time are counted before the first of them takes the event loop.
            await asyncio.sleep(0)
            spent = arrived + timeout * SPENT
            if time.perf_counter() > spent:
                raise _Refused(503, "the time for the review was spent waiting", "shed")
            parent = headers.get(b"traceparent", b"").decode("latin-1")
            reply = self._service.answer(self._endpoint, data, spent, parent)
            if not isinstance(reply, Reply):
                reply = await reply
            return reply
        except TimeoutError:
            raise _Refused(408, f"the body was not there after {timeout:g} seconds") from None
        except NotReady as early:
            raise _Refused(503, str(early)) from early
        except BadReview as problem:
            raise _Refused(problem.status, str(problem)) from problem
        finally:
            self._buffered -= held[0]

    async def _body(self, headers: dict[bytes, bytes], receive: Receive, held: list[int]) -> bytes:
        """The body of a request; ``held`` counts the bytes that it takes while they come in."""
        given = headers.get(b"content-length", b"")
        _check_size(int(given) if given.isdigit() else 0)
        parts: list[bytes] = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _Refused(400, "the connection ended within the body")
            parts.append(message.get("body", b""))
            held[0] += len(parts[-1])
            self._buffered += len(parts[-1])
            _check_size(held[0])
            if self._buffered > MAX_BUFFERED:
                raise _Refused(503, "too many bytes in flight", "shed")
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_size(size: int) -> None:
    if size > MAX_BODY:
        raise _Refused(413, f"has more than {MAX_BODY} bytes; send one review of two objects the API server accepts")


@lru_cache(maxsize=16)  # a registration has the same for every review
def _timeout(query: bytes) -> float:
    """Seconds of the ``timeout`` that the API server sends, a Go duration; its default where there is none."""
    given = _TIMEOUT.search(query)
    parts = _DURATION.findall(given[1]) if given else []
    if not parts or given is None or b"".join(number + unit for number, unit in parts) != given[1]:
        return DEFAULT_TIMEOUT
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return min(seconds, LONGEST_TIMEOUT) or DEFAULT_TIMEOUT


def _status(code: int, message: str) -> bytes:
    """A Kubernetes Status: the API server shows its message to whoever wrote the object."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return json.dumps({**status, "reason": _REASONS.get(code, ""), "code": code}).encode()


async def _send(send: Send, status: int, body: bytes, last: bool) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if last:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _told(error: BaseException) -> str:
    """The kind of error, its text, and the innermost place in our code: enough to find it, no page of traceback."""
    place, trace = "", error.__traceback__
    while trace is not None:
        place = f"{trace.tb_frame.f_code.co_filename.rpartition('webhook/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {str(error)[:500]} at {place}"


def watching(service: Service) -> list[Route]:
    """The routes ``/healthz``, ``/readyz`` (``?verbose`` names each check) and ``/metrics``."""
    scraping, places = asyncio.Lock(), asyncio.Semaphore(MAX_SCRAPES)

    async def healthz(_: HttpRequest) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(http: HttpRequest) -> Response:
        checks = readiness(service)
        ready = all(fine for _, fine, _ in checks)
        if "verbose" not in http.query_params and ready:
            return PlainTextResponse("ok\n")
        lines = [f"[{'+' if fine else '-'}]{name} {detail}" for name, fine, detail in checks]
        lines.append("readyz check passed" if ready else "readyz check failed")
        return PlainTextResponse("\n".join(lines) + "\n", 200 if ready else 503)

    async def metrics(http: HttpRequest) -> Response:
        if places.locked():
            return PlainTextResponse("too many scrapes at once\n", 503)
        # Whoever prefers something else takes this too: its samples are the same.
        exemplars = OPENMETRICS.partition(";")[0] in _accepted(http, "accept")
        zipped = "gzip" in _accepted(http, "accept-encoding")
        await places.acquire()
        try:
            async with scraping:
                parts = await asyncio.to_thread(lambda: _parts(service.metrics.pieces(exemplars), zipped))
        except BaseException:
            places.release()
            raise
        headers = {"content-length": str(sum(map(len, parts))), "vary": "accept, accept-encoding"}
        headers |= {"content-encoding": "gzip"} if zipped else {}
        return _Scrape(parts, OPENMETRICS if exemplars else CONTENT_TYPE, headers, places.release)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]


class _Scrape(StreamingResponse):
    """An answer in ``parts``; ``ended`` is called once it is sent, or nobody takes it any more."""

    def __init__(self, parts: list[bytes], kind: str, headers: dict[str, str], ended: Callable[[], None]) -> None:
        super().__init__(self._each(parts), media_type=kind, headers=headers)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(SCRAPE_TIMEOUT):
                await super().__call__(scope, receive, send)
        finally:
            self._ended()

    @staticmethod
    async def _each(parts: list[bytes]) -> AsyncIterator[bytes]:
        # Reviews that come meanwhile do not wait until all of them are encrypted.
        for part in parts:
            yield part
            await asyncio.sleep(0)


def _accepted(http: HttpRequest, header: str) -> set[str]:
    """What a header lists, but for what it refuses."""
    found: set[str] = set()
    for each in ",".join(http.headers.getlist(header)).lower().split(","):
        name, *parameters = [part.strip() for part in each.split(";")]
        if not any(_REFUSED_QUALITY.fullmatch(parameter) for parameter in parameters):
            found.add(name)
    return found


def _parts(pieces: list[bytes], zipped: bool) -> list[bytes]:
    """``pieces`` in parts of a size that is sent at once, compressed where that is accepted."""
    packer = zlib.compressobj(1, wbits=31) if zipped else None
    parts: list[bytes] = []
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= PART:
            whole = b"".join(gathered)
            parts.append(whole if packer is None else packer.compress(whole))
            gathered, size = [], 0
    whole = b"".join(gathered)
    parts.append(whole if packer is None else packer.compress(whole) + packer.flush())
    return [part for part in parts if part]


def readiness(service: Service) -> list[tuple[str, bool, str]]:
    """(check, whether it is fine, what to know) of each thing that serving needs."""
    revision = f"ok, revision {service.policies.revision.hash}"
    refused = service.policies.problems
    policies = f"{revision}; the latest edit is refused: {refused[0].text}" if refused else revision
    if service.policies.replaced:
        policies += f"; objects in place of files: {', '.join(service.policies.replaced)}"
    return [
        ("policies", True, policies),
        *service.cluster.checks(),
        *service.checks(),
        ("certificates", True, f"ok, but {service.certificate_problem}" if service.certificate_problem else "ok"),
        ("serving", not service.stopping, "failed: stopping" if service.stopping else "ok"),
    ]


def build(service: Service) -> ASGIApp:
    """The application of the main port: ``/validate`` and ``/mutate``, each with or without a tail that names the
    registration, ``/audit``, and what :func:`watching` has.
    """
    endpoints = {name: Reviews(service, name) for name in ("validate", "mutate")}
    others = Router(watching(service))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # By hand: the patterns of a router would take as long as a tenth of the decision.
        name, _, tail = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix("/").partition("/")
        if name in endpoints:
            await endpoints[name].answer(tail, scope, receive, send)
        elif (name, tail) == ("audit", "") and service.audit is not None:
            await service.audit.answer(scope, receive, send)
        else:
            await others(scope, receive, send)

    return app
