"""``POST /audit``: the webhook backend for audit events of API servers. What comes is an EventList, or refused."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from pathlib import Path

import msgspec
from starlette.types import Receive, Scope, Send

from webhook.folder import regular
from webhook.kube.audit import API_VERSION
from webhook.telemetry.log import Log

# A little more than the API server's own limit of a batch, where it has one (--audit-webhook-truncate-max-batch-size).
MAX_BODY = 11 * 1024 * 1024
# Events of one list: an API server sends 400 unless told otherwise.
MAX_EVENTS = 20_000
# Batches at once, and the seconds that one may take to come.
MAX_IN_FLIGHT, BODY_TIMEOUT = 8, 30.0
# Seconds after which an API server sends a batch again, and between two lines of the log about one kind of refusal.
RETRY_AFTER, TELL_EVERY = 5, 60.0
# No token is longer.
MAX_TOKEN = 4096


class _EventList(msgspec.Struct, rename={"api_version": "apiVersion"}):
    """The head of a list; its events stay as they came, and each is read for itself."""

    kind: str = ""
    api_version: str = ""
    items: list[msgspec.Raw] | None = None


_DECODER = msgspec.json.Decoder(_EventList)


class _Refused(Exception):  # noqa: N818 - an answer
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class BadTokenFileError(Exception):
    """The file with the token cannot be used; ``str()`` says why."""


def read_token(file: Path) -> bytes:
    """The token that ``file`` holds. Raises BadTokenFileError."""
    try:
        with regular(file) as stream:
            token = stream.read(MAX_TOKEN + 1).strip()
    except OSError as error:
        raise BadTokenFileError(f"{file}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    if not token or len(token) > MAX_TOKEN:
        raise BadTokenFileError(f"{file}: has {'no' if not token else 'too long a'} token, needs one line")
    return token


class AuditSink:
    """Answers ``POST /audit``. ``take`` gets the events of a list, each as JSON, and says whether it took them.

    With ``token_file`` only those are heard who send its token; the file is read at each request, as a Secret changes.
    A body that is refused is lost, so the log tells; one that nobody had time for is sent again.
    """

    def __init__(self, take: Callable[[Sequence[bytes]], bool], token_file: Path | None, log: Log) -> None:
        self._take, self._token_file, self._log = take, token_file, log
        self._in_flight = 0
        self._told: dict[int, float] = {}

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        status, message = HTTPStatus.OK, ""
        self._in_flight += 1
        try:
            await self._answer(scope, receive)
        except _Refused as refused:
            status, message = refused.status, str(refused)
            bad = refused.__cause__
            self._tell(status, str(bad) if isinstance(bad, BadTokenFileError) else message)
        finally:
            self._in_flight -= 1
        await _send(send, status, message)

    async def _answer(self, scope: Scope, receive: Receive) -> None:
        if scope["method"] != "POST":
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"has {scope['method']}, needs POST")
        headers = dict(scope["headers"])
        self._check_token(headers.get(b"authorization", b""))
        if self._in_flight > MAX_IN_FLIGHT:
            raise _Refused(HTTPStatus.TOO_MANY_REQUESTS, "too many lists of events in flight")
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                data = await _body(headers, receive)
        except TimeoutError:
            raise _Refused(
                HTTPStatus.REQUEST_TIMEOUT, f"the body was not there after {BODY_TIMEOUT:g} seconds"
            ) from None
        if not self._take(_events(data)):
            raise _Refused(HTTPStatus.TOO_MANY_REQUESTS, "events wait to be looked at; send these again")

    def _check_token(self, given: bytes) -> None:
        if self._token_file is None:
            return
        try:
            wanted = read_token(self._token_file)
        except BadTokenFileError as error:
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "the token of senders cannot be read") from error
        kind, _, token = given.partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(token.strip(), wanted):
            raise _Refused(HTTPStatus.UNAUTHORIZED, "has no valid token, needs that of --audit-token-file")

    def _tell(self, status: HTTPStatus, message: str) -> None:
        """Log a refusal, one of its kind a minute: whoever reaches the port may send any number."""
        now = time.monotonic()
        if now - self._told.get(status, -TELL_EVERY) >= TELL_EVERY:
            self._told[status] = now
            self._log.write("warning", "audit events refused", code=int(status), message=message)


def _events(data: bytes) -> list[bytes]:
    try:
        found = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"is no EventList: {' '.join(str(error).split())[:200]}") from error
    if (found.kind, found.api_version) != ("EventList", API_VERSION):
        has = f"{found.api_version[:60]} {found.kind[:60]}".strip() or "neither kind nor apiVersion"
        raise _Refused(HTTPStatus.BAD_REQUEST, f"has {has!a}, needs {API_VERSION} EventList")
    events = found.items or ()
    if len(events) > MAX_EVENTS:
        fix = "use a smaller --audit-webhook-batch-max-size"
        raise _Refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"has {len(events)} events, needs at most {MAX_EVENTS}; {fix}"
        )
    return [bytes(each) for each in events]


async def _body(headers: dict[bytes, bytes], receive: Receive) -> bytes:
    given = headers.get(b"content-length", b"")
    _check_size(int(given) if given.isdigit() else 0)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(HTTPStatus.BAD_REQUEST, "the connection ended within the body")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        _check_size(size)
        if not message.get("more_body"):
            return b"".join(parts)


def _check_size(size: int) -> None:
    if size > MAX_BODY:
        fix = "use level Metadata, --audit-webhook-truncate-enabled, or a smaller --audit-webhook-batch-max-size"
        raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"has more than {MAX_BODY} bytes; {fix}")


async def _send(send: Send, status: HTTPStatus, message: str) -> None:
    failed = status >= HTTPStatus.BAD_REQUEST
    told = {"kind": "Status", "apiVersion": "v1", "status": "Failure" if failed else "Success", "code": int(status)}
    body = json.dumps({**told, "message": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        headers.append((b"retry-after", str(RETRY_AFTER).encode()))
    if status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
