"""An API server for tests of what no real one does on demand: it lists and watches the objects it was given, and goes
wrong byte by byte as it is told.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

Json = dict[str, Any]
T = TypeVar("T")


@dataclass
class Asked:
    """One request that came in."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""

    @property
    def watches(self) -> bool:
        return self.params.get("watch") == "true"


@dataclass
class Fault:
    """What the next requests that fit get, instead of an answer: ``raw`` bytes, then the connection is cut, or stays
    open where ``hang``. With ``pause`` they come one by one, so many seconds after each other.
    """

    fits: Callable[[Asked], bool]
    raw: bytes
    times: int = 1
    hang: bool = False
    pause: float = 0.0


@dataclass
class Kept:
    """The objects below one path, as JSON, with what happened to them."""

    objects: dict[str, bytes] = field(default_factory=dict)
    events: list[tuple[int, bytes]] = field(default_factory=list)
    watchers: list[asyncio.StreamWriter] = field(default_factory=list)


def answer(status: int, body: bytes, *headers: str) -> bytes:
    """A whole HTTP answer."""
    head = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def refusal(code: int, reason: str, message: str, *headers: str) -> bytes:
    """An answer with a Status."""
    return answer(code, json.dumps(status(code, reason, message)).encode(), *headers)


def status(code: int, reason: str, message: str) -> Json:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


class FakeServer:
    """``paths`` are the collections it has; every other one is 404. ``token``, when it is set, is the only one that is
    let in; ``tls`` has what it shows clients of HTTPS. Runs in a thread of its own.
    """

    def __init__(self, paths: Iterable[str], version: str = "v1.36.3", tls: ssl.SSLContext | None = None) -> None:
        self.kept = {path: Kept() for path in paths}
        self.versions = version
        self.gates = {"DRANodeAllocatableResources": True, "Other": False}
        self.token = ""
        self.asked: list[Asked] = []
        self.faults: list[Fault] = []
        self.gone_in_stream = False
        self.oldest = 0
        self._version = itertools.count(1001)
        self.version = 1000
        self._tokens: dict[str, tuple[int, list[bytes]]] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._tls = tls
        self._server = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20, ssl=tls))
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def kubeconfig(self, path: Path, **user: object) -> str:
        """A kubeconfig for it at ``path``, with the fields of ``user``."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": user}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}],
            "current-context": "fake",
        }
        path.write_text(json.dumps(content))
        return str(path)

    def put(self, path: str, obj: Json) -> None:
        """Make or change an object; whoever watches is told."""
        self._do(self._changed(path, obj, ""))

    def delete(self, path: str, obj: Json) -> None:
        """Delete an object; whoever watches is told."""
        self._do(self._changed(path, obj, "DELETED"))

    def fill(self, path: str, objects: Iterable[Json]) -> None:
        """Give it many objects, of which nobody is told."""
        for obj in objects:
            self.version = next(self._version)
            obj["metadata"]["resourceVersion"] = str(self.version)
            self.kept[path].objects[_name(obj)] = json.dumps(obj, separators=(",", ":")).encode()

    def forget(self, path: str, obj: Json) -> None:
        """Delete an object, and no watch will ever tell."""
        del self.kept[path].objects[_name(obj)]

    def fail(
        self, fits: Callable[[Asked], bool], raw: bytes, times: int = 1, hang: bool = False, pause: float = 0.0
    ) -> None:
        """Answer the next ``times`` requests that fit with ``raw``; see :class:`Fault`."""
        self.faults.append(Fault(fits, raw, times, hang, pause))

    def expire(self) -> None:
        """Forget what was before now, as etcd does when it is compacted: watches from there, and begun lists."""
        self.oldest = self.version
        self._tokens.clear()

    def say(self, path: str, raw: bytes, cut: bool = False) -> None:
        """Send ``raw`` as one chunk to whoever watches ``path``, once somebody does, and cut the connection after it
        where asked to.
        """
        self._do(self._watched(path))
        self._do(self._say(path, raw, cut))

    def bookmark(self, path: str) -> None:
        """Send a bookmark to whoever watches."""
        obj = {"kind": "X", "apiVersion": "v1", "metadata": {"resourceVersion": str(self.version)}}
        self.say(path, json.dumps({"type": "BOOKMARK", "object": obj}).encode() + b"\n")

    def hold(self) -> None:
        """Stop accepting, and cut every connection: as a server that is away."""
        self._do(self._hold())

    def resume(self) -> None:
        """Accept again, at the same port."""
        listening = asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 20, ssl=self._tls)
        self._server = self._do(listening)

    def requests(self, path: str, watches: bool | None = None) -> list[Asked]:
        """The requests for ``path``, only lists or only watches where asked for."""
        return [each for each in self.asked if each.path == path and watches in (None, each.watches)]

    def close(self) -> None:
        self.hold()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _hold(self) -> None:
        # asyncio leaves a connection open that it is accepting when the server is closed.
        for listener in self._server.sockets:
            self._loop.remove_reader(listener.fileno())
        while asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._serving:
                task.cancel()
            await asyncio.sleep(0)
        self._server.close()

    async def _changed(self, path: str, obj: Json, event: str) -> None:
        kept = self.kept[path]
        self.version = next(self._version)
        obj["metadata"]["resourceVersion"] = str(self.version)
        name, data = _name(obj), json.dumps(obj, separators=(",", ":")).encode()
        if event == "DELETED":
            kept.objects.pop(name, None)
        else:
            event = "MODIFIED" if name in kept.objects else "ADDED"
            kept.objects[name] = data
        line = b'{"type":"%s","object":%s}\n' % (event.encode(), data)
        kept.events.append((self.version, line))
        await self._say(path, line, False)

    async def _watched(self, path: str) -> None:
        while not self.kept[path].watchers:
            await asyncio.sleep(0.01)

    async def _say(self, path: str, raw: bytes, cut: bool) -> None:
        for writer in list(self.kept[path].watchers):
            writer.write(_chunk(raw))
            if cut:
                await writer.drain()
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ", 2)
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                parts = urlsplit(target)
                asked = Asked(method, parts.path, dict(parse_qsl(parts.query)), headers, body)
                self.asked.append(asked)
                if not await self._answer(asked, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._serving.discard(task)
            for kept in self.kept.values():
                if writer in kept.watchers:
                    kept.watchers.remove(writer)
            writer.transport.abort()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        for fault in self.faults:
            if fault.times > 0 and fault.fits(asked):
                fault.times -= 1
                step = 1 if fault.pause else max(len(fault.raw), 1)
                for at in range(0, len(fault.raw), step):
                    writer.write(fault.raw[at : at + step])
                    await writer.drain()
                    await asyncio.sleep(fault.pause)
                if fault.hang:
                    await asyncio.sleep(3600)
                return False
        if self.token and asked.headers.get("authorization", "").split(" ")[1:] != [self.token]:
            writer.write(refusal(401, "Unauthorized", "Unauthorized"))
            return True
        if asked.path == "/version":
            writer.write(answer(200, json.dumps({"gitVersion": self.versions}).encode()))
        elif asked.path == "/metrics":
            lines = [
                f'kubernetes_feature_enabled{{name="{gate}",stage=""}} {int(on)}' for gate, on in self.gates.items()
            ]
            writer.write(answer(200, "\n".join(["# TYPE some gauge", *lines, "up 1", ""]).encode()))
        elif asked.path not in self.kept:
            writer.write(refusal(404, "NotFound", "the server could not find the requested resource"))
        elif asked.watches:
            return await self._watch(asked, writer)
        else:
            writer.write(self._list(asked))
        await writer.drain()
        return True

    def _list(self, asked: Asked) -> bytes:
        token, limit = asked.params.get("continue", ""), int(asked.params.get("limit", 0))
        if token and token not in self._tokens:
            return refusal(410, "Expired", "the provided continue parameter is too old")
        if token:
            version, rest = self._tokens[token]
        else:
            version, rest = self.version, list(self.kept[asked.path].objects.values())
        page, rest = (rest[:limit], rest[limit:]) if limit else (rest, [])
        token = f"token-{version}-{len(rest)}-{asked.path}==" if rest else ""
        self._tokens[token] = (version, rest)
        metadata = json.dumps({"resourceVersion": str(version), **({"continue": token} if token else {})}).encode()
        return answer(200, b'{"kind":"List","metadata":%s,"items":[%s]}' % (metadata, b",".join(page)))

    async def _watch(self, asked: Asked, writer: asyncio.StreamWriter) -> bool:
        since = int(asked.params.get("resourceVersion", 0))
        gone = status(410, "Expired", "too old resource version")
        if since < self.oldest and not self.gone_in_stream:
            writer.write(answer(410, json.dumps(gone).encode()))
            return True
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        if since < self.oldest:
            writer.write(_chunk(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"))
            writer.write(b"0\r\n\r\n")
            return True
        kept = self.kept[asked.path]
        for version, line in kept.events:
            if version > since:
                writer.write(_chunk(line))
        kept.watchers.append(writer)
        await asyncio.sleep(float(asked.params.get("timeoutSeconds", 300)))
        writer.write(b"0\r\n\r\n")
        kept.watchers.remove(writer)
        return True


def _name(obj: Json) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def _chunk(raw: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(raw), raw)
