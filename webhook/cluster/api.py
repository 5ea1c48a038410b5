"""The API server as raw JSON: requests and watches, without models.

The models of the ``kubernetes`` client know the fields of one release and drop those of the other, so only its
credentials and its REST layer are used: TLS, proxies and headers of a request, and the aiohttp answer under it, whose
body is read raw and line by line. That layer's default of 300 seconds for a whole answer is replaced by timeouts
between two reads, its retries are off, and its `Watch` is not used: it neither relists nor backs off nor pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlencode

import orjson

from webhook.kube.raw import Json, mapping, text
from webhook.kube.release import minor_of

if TYPE_CHECKING:
    from webhook.cluster.access import Access

# Seconds: to connect, between two reads of an ordinary answer, for it as a whole, and until a stream is begun.
CONNECT, READ, WHOLE, BEGIN = 5.0, 15.0, 60.0, 30.0
# Where roles and their bindings are.
_ROLES = "/rbac.authorization.k8s.io/"
# No object that an API server stores comes near it: what is longer is no watch.
LONGEST_LINE = 64 * 1024 * 1024

Patch = Literal["merge", "json", "strategic"]
_TYPES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class Unreachable(Exception):  # noqa: N818 - the server did not answer; the text says why
    """The API server cannot be reached, or what comes back is cut or no answer of an API server."""


class Silent(Unreachable):
    """A stream that was begun, and in which nothing came for as long as it was waited for."""


class ApiError(Exception):
    """An answer that is no success: HTTP ``status``, ``reason`` and ``message`` of its Status object, the seconds that
    ``Retry-After`` asks for (None without it), and ``resume``, with which a list whose beginning the server has
    forgotten may be continued all the same.
    """

    def __init__(
        self, status: int, reason: str, message: str, retry_after: float | None = None, resume: str = ""
    ) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status, self.reason, self.message, self.retry_after = status, reason, message, retry_after
        self.resume = resume


class Api:
    """Requests to one API server. ``path`` is absolute, as ``/api/v1/nodes``; ``params`` are those of the query, None
    left out. Every method raises ApiError or Unreachable, and no other error of a connection.

    An answer of 401 has the credentials read anew, once, and the request repeated. Belongs to the event loop that uses
    it first. Roles and their bindings are read and never written, but while ``installing``: what somebody may do is
    for people to say, whatever fails for want of a permission.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self.installing = False

    async def get(self, path: str, **params: object) -> Json:
        """The object or list at ``path``."""
        return _decoded(await self.raw(path, **params))

    async def raw(self, path: str, **params: object) -> bytes:
        """As :meth:`get`, not decoded."""
        return await self._whole("GET", path, params)

    async def create(self, path: str, obj: Json, **params: object) -> Json:
        """POST ``obj`` to the collection ``path``."""
        return _decoded(await self._whole("POST", path, params, obj))

    async def update(self, path: str, obj: Json, **params: object) -> Json:
        """PUT ``obj``; with ``metadata.resourceVersion`` only over that version (409 Conflict otherwise)."""
        return _decoded(await self._whole("PUT", path, params, obj))

    async def patch(self, path: str, body: object, kind: Patch, **params: object) -> Json:
        """PATCH with ``body``: an object for ``merge`` and ``strategic``, a list of operations for ``json``."""
        return _decoded(await self._whole("PATCH", path, params, body, _TYPES[kind]))

    async def apply(self, path: str, obj: Json, manager: str, force: bool = True) -> Json:
        """Server-side apply of ``obj`` by the field manager ``manager``; ``force`` takes fields of others."""
        params = {"fieldManager": manager, "force": force}
        return _decoded(await self._whole("PATCH", path, params, obj, "application/apply-patch+yaml"))

    async def delete(self, path: str, body: Json | None = None, **params: object) -> Json:
        """DELETE; ``body`` is a DeleteOptions, as for preconditions."""
        return _decoded(await self._whole("DELETE", path, params, body))

    async def lines(self, path: str, timeout: float, **params: object) -> AsyncGenerator[bytes, None]:
        """The lines of a streamed answer, as of a watch, without their ends.

        The first item is empty: the server has accepted the request. Raises Silent when nothing came after that for
        ``timeout`` seconds, Unreachable when the connection broke; ends when the server ends it. Part of a line is
        never given.
        """
        try:
            async with asyncio.timeout(BEGIN):
                response = await self._send("GET", path, {**params, "watch": True}, None, "", (None, timeout))
        except TimeoutError as error:
            raise Unreachable(_told(error)) from error
        try:
            yield b""
            begun: list[bytes] = []
            size = 0
            while chunk := await self._more(response):
                first, *rest = chunk.split(b"\n")
                begun.append(first)
                size += len(first)
                if size > LONGEST_LINE:
                    raise Unreachable(f"a line of more than {LONGEST_LINE} bytes")
                if rest:
                    yield b"".join(begun)
                    for line in rest[:-1]:
                        yield line
                    begun, size = [rest[-1]], len(rest[-1])
        finally:
            if response.connection is not None and response.connection.transport is not None:
                # No farewell, for which TLS would wait: what is left here nobody reads to its end.
                response.connection.transport.abort()
            response.close()

    async def version(self) -> int:
        """The server's minor release, 36 for 1.36. Raises Unreachable for one without."""
        found = mapping(await self.get("/version"))
        minor = minor_of(text(found.get("gitVersion"))) or minor_of(f"{found.get('major')}.{found.get('minor')}")
        if minor is None:
            raise Unreachable(f"has the version {text(found.get('gitVersion'))[:40]!r}, needs one as v1.36.3")
        return minor

    async def close(self) -> None:
        """End all connections, watches too."""
        await self._access.close()

    async def _whole(self, method: str, path: str, params: Json, body: object = None, kind: str = "") -> bytes:
        response = await self._send(method, path, params, body, kind, (WHOLE, READ))
        try:
            data: bytes = await self._read(response.read())
            return data
        finally:
            response.release()

    async def _send(
        self, method: str, path: str, params: Json, body: object, kind: str, seconds: tuple[float | None, float]
    ) -> Any:
        """The aiohttp response of a success, its body not yet read."""
        if method != "GET" and _ROLES in path and not self.installing:
            raise AssertionError(f"{method} {path}: nothing of the guard writes a role or a binding")
        query = urlencode({key: _parameter(value) for key, value in params.items() if value is not None})
        tail = f"{path}?{query}" if query else path
        for last in (False, True):
            used = self._access.generation
            response = await self._read(self._access.request(method, tail, body, kind, seconds))
            if response.status < HTTPStatus.BAD_REQUEST:
                return response
            data = await self._read(response.read())
            if last or response.status != HTTPStatus.UNAUTHORIZED:
                raise _refusal(response.status, data, response.headers.get("Retry-After", ""))
            await self._access.reload(used)
        raise AssertionError("a loop that returns or raises")

    async def _more(self, response: Any) -> bytes:
        """What a stream has next, nothing at its end."""
        try:
            chunk: bytes = await self._read(response.content.readany())
        except Unreachable as error:
            if isinstance(error.__cause__, TimeoutError):
                raise Silent(str(error)) from error
            raise
        return chunk

    async def _read(self, waiting: Any) -> Any:
        """What ``waiting`` gives, every way in which a connection fails as Unreachable."""
        import aiohttp

        try:
            return await waiting
        except aiohttp.ClientSSLError as error:
            self._access.doubt()
            raise Unreachable(_told(error)) from error
        except (TimeoutError, asyncio.IncompleteReadError, aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(_told(error)) from error
        except RuntimeError as error:  # aiohttp, of a session that was closed by new credentials
            if "closed" not in str(error):
                raise
            raise Unreachable("the connection was closed") from error


def _parameter(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decoded(data: bytes) -> Json:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"an answer that is no JSON: {data[:60].decode(errors='replace')!a}") from error
    return mapping(found)


def _refusal(status: int, data: bytes, after: str) -> ApiError:
    try:
        told = mapping(orjson.loads(data))
    except orjson.JSONDecodeError:
        told = {}
    message = text(told.get("message")) or data[:200].decode(errors="replace").strip()
    seconds = float(after) if after.isascii() and after.isdigit() and len(after) < 6 else None
    resume = text(mapping(told.get("metadata")).get("continue"))
    return ApiError(status, text(told.get("reason")), " ".join(message.split()), seconds, resume)


def _told(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return " ".join((str(error) or type(error).__name__).split())[:300]
