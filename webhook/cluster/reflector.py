"""Follows the objects of one kind: a list in pages, then a watch that is taken up again where it ended."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Protocol

import msgspec
import orjson

from webhook.cluster.api import Api, ApiError, Silent, Unreachable
from webhook.cluster.kinds import Kind
from webhook.cluster.trim import trimmed
from webhook.kube.raw import Json, integer, mapping, members, text
from webhook.kube.resource_version import version

# How long the server is asked to keep up a watch, seconds: a little different for each, so that not all end at once.
WATCH = (240, 480)
# A quiet watch has a bookmark about once a minute. Without one for longer a new watch is begun: it tells whether the
# connection was cut.
DEADLINE = 75.0
# Between tries, seconds: the first, and the longest. A kind that the server does not know is looked for less often.
FIRST_DELAY, LONGEST_DELAY, LONGEST_ASKED = 0.5, 5.0, 60.0
UNKNOWN_DELAY = 30.0
# A watch that stands for as long has told what happened before it began, seconds.
_SETTLED = 1.0
# Refused watches in a row, after which the objects are listed anew.
_PATIENCE = 3
# Objects after which other work of the event loop has its turn.
_BREATH = 20

Key = tuple[str, str]


class Sink(Protocol):
    """What a reflector tells."""

    def put(self, kind: Kind, obj: Json) -> None:
        """``obj`` was made or changed."""

    def drop(self, kind: Kind, key: Key, version: str = "") -> None:
        """The object (namespace, name) is gone, with the resource version ``version`` where that was told."""

    def stale(self, kind: Kind) -> None:
        """An event was older than what was told before, and was not told."""

    def keys(self, kind: Kind) -> set[Key]:
        """(namespace, name) of all objects that were put and not dropped."""

    def current(self, kind: Kind, listed: bool) -> None:
        """What was told up to now is all there is at this moment; ``listed``: by a whole list."""

    def failed(self, kind: Kind, error: ApiError | Unreachable) -> None:
        """The server could not be asked, or refused. It is tried again."""

    def unknown(self, kind: Kind, detail: str) -> None:
        """The server does not serve the kind."""


class _Page(msgspec.Struct):
    metadata: Json = {}
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_PAGES, _EVENTS = msgspec.json.Decoder(_Page), msgspec.json.Decoder(_Event)


class Reflector:
    """Tells ``sink`` about the objects of ``kind``."""

    def __init__(self, api: Api, kind: Kind, sink: Sink) -> None:
        self._api = api
        self.kind = kind
        self._sink = sink
        self._version = ""
        self._failures = 0
        self._again = False

    def again(self) -> None:
        """List all objects anew, once the watch has something to tell: within about a minute."""
        self._again = True

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        while True:
            try:
                if self._again or not self._version:
                    await self.list()
                await self._watch()
            except ApiError as error:
                await asyncio.sleep(await self._refused(error))
            except Silent:
                # An API server sends no bookmarks of a kind of which nothing was written since it was started. One
                # that is away does not take the next watch.
                continue
            except Unreachable as error:
                self._sink.failed(self.kind, error)
                await asyncio.sleep(self._delay())
            except Exception as error:  # noqa: BLE001 - a mistake of ours must not end the view for good
                self._version = ""
                self._sink.failed(self.kind, Unreachable(f"internal error: {type(error).__name__}: {error}"))
                await asyncio.sleep(LONGEST_DELAY)

    async def list(self) -> None:
        """Tell all objects there are, and drop those known that are none of them."""
        self._again = False
        gone = self._sink.keys(self.kind)
        at = ""
        count = 0
        async for page in self._pages():
            at = text(page.metadata.get("resourceVersion"))
            for raw in page.items or ():
                gone.discard(self._put(bytes(raw)))
                count += 1
                if count % _BREATH == 0:
                    await asyncio.sleep(0)
        for key in gone:
            self._sink.drop(self.kind, key)
        self._version = at
        self._sink.current(self.kind, listed=True)

    async def _pages(self) -> AsyncIterator[_Page]:
        token: str | None = None
        while True:
            params = {"limit": self.kind.page, "continue": token, "fieldSelector": self.kind.fields}
            data = await self._api.raw(self.kind.path, **params)
            try:
                page = _PAGES.decode(data)
            except msgspec.MsgspecError as error:
                raise Unreachable(f"a list that cannot be read: {error}") from error
            yield page
            token = text(page.metadata.get("continue"))
            if not token:
                return

    async def _watch(self) -> None:
        params = {
            "resourceVersion": self._version,
            "allowWatchBookmarks": True,
            "timeoutSeconds": random.randint(*WATCH),
            "fieldSelector": self.kind.fields,
        }
        count = 0
        settled: asyncio.TimerHandle | None = None
        try:
            async with aclosing(self._api.lines(self.kind.path, DEADLINE, **params)) as lines:
                async for line in lines:
                    if not line:
                        settled = asyncio.get_running_loop().call_later(_SETTLED, self._sink.current, self.kind, False)
                        continue
                    self._take(line)
                    self._failures = 0
                    count += 1
                    if count % _BREATH == 0:
                        await asyncio.sleep(0)
        finally:
            if settled is not None:
                settled.cancel()
        if not count:
            raise Unreachable("the watch ended without a word")

    def _take(self, line: bytes) -> None:
        try:
            event = _EVENTS.decode(line)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"a watch event that cannot be read: {error}") from error
        obj = self._read(bytes(event.object))
        at = text(mapping(obj.get("metadata")).get("resourceVersion"))
        if self._again:
            raise ApiError(HTTPStatus.GONE, "Expired", "all objects are asked for once more")
        if 0 <= version(at) < version(self._version):
            self._sink.stale(self.kind)
            # A store that was put back to an earlier state: what was told of the later one is there no more.
            raise ApiError(HTTPStatus.GONE, "Expired", f"the watch is at {at}, before {self._version}")
        match event.type:
            case "ADDED" | "MODIFIED":
                self._sink.put(self.kind, obj)
            case "DELETED":
                self._sink.drop(self.kind, _key(obj), at)
            case "BOOKMARK":
                pass
            case "ERROR":
                status = mapping(orjson.loads(bytes(event.object)))
                told = text(status.get("message")) or "the watch failed"
                raise ApiError(integer(status.get("code"), 500), text(status.get("reason")), told)
            case other:
                raise Unreachable(f"a watch event of type {other[:40]!a}")
        self._version = at or self._version
        self._sink.current(self.kind, listed=False)

    def _put(self, raw: bytes) -> Key:
        obj = self._read(raw)
        self._sink.put(self.kind, obj)
        return _key(obj)

    def _read(self, raw: bytes) -> Json:
        try:
            obj = trimmed(self.kind.name, raw)
        except ValueError as error:
            raise Unreachable(f"an object that cannot be read: {error}") from error
        # The objects of a list do not say what they are.
        obj["kind"], obj["apiVersion"] = self.kind.name, self.kind.api_version
        return obj

    async def _refused(self, error: ApiError) -> float:
        """Note what was refused; gives the seconds to wait."""
        delay = self._delay()
        if error.status == HTTPStatus.NOT_FOUND:
            self._version = ""
            try:
                detail, elsewhere = await absence(self._api, self.kind)
            except (ApiError, Unreachable) as unclear:
                self._sink.failed(self.kind, unclear)
                return delay
            if (elsewhere or not self.kind.optional) and self._sink.keys(self.kind):
                # They are there still, although they cannot be read.
                self._sink.failed(self.kind, ApiError(error.status, error.reason, f"{detail}; what was seen counts on"))
                return delay
            self._sink.unknown(self.kind, detail)
            return UNKNOWN_DELAY * random.uniform(0.8, 1.0)
        if error.status == HTTPStatus.GONE:
            # The server no longer knows what came after; nothing is wrong with it.
            self._version = ""
            return 0.0 if self._failures == 1 else delay
        if self._failures >= _PATIENCE:
            self._version = ""
        if error.status != HTTPStatus.TOO_MANY_REQUESTS or self._failures > 1:
            # That it is to be asked again in a moment, as for a kind that was just defined, is no refusal yet.
            self._sink.failed(self.kind, error)
        return max(delay, min(error.retry_after or 0.0, LONGEST_ASKED))

    def _delay(self) -> float:
        self._failures += 1
        longest = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(self._failures - 1, 10))
        return longest * random.uniform(0.5, 1.0)


async def absence(api: Api, kind: Kind) -> tuple[str, bool]:
    """Why the server answers 404 to a list of ``kind``, and whether it has the kind in other versions. Raises ApiError
    and Unreachable.
    """
    nowhere = f"the API server has no {kind.plural} in {kind.api_version}"
    try:
        group = await api.get(f"/apis/{kind.group}")
        versions = [text(each.get("version")) for each in members(group.get("versions"))]
        elsewhere = [each for each in versions if each != kind.version and await _serves(api, kind, each)]
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return f"the API server has no group {kind.group}", False
        if error.status == HTTPStatus.FORBIDDEN:
            return nowhere, False
        raise
    if kind.version in versions and not elsewhere:
        return nowhere, False
    found = f"{kind.plural} of {kind.group}" if elsewhere else kind.group
    return f"the API server has {found} in {' and '.join(elsewhere or versions)}, needs {kind.version}", bool(elsewhere)


async def _serves(api: Api, kind: Kind, version: str) -> bool:
    try:
        listed = await api.get(f"/apis/{kind.group}/{version}")
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return False
    return any(each.get("name") == kind.plural for each in members(listed.get("resources")))


def _key(obj: Json) -> Key:
    metadata = mapping(obj.get("metadata"))
    return (text(metadata.get("namespace")), text(metadata.get("name")))
