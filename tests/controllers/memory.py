"""An API server in memory: objects by path, resourceVersion as a precondition, watches, and faults on order.

For what no real one does when asked: an answer that is lost, a connection cut at a given moment. What a real one does
is seen in tests/e2e.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from webhook.cluster.api import ApiError, Unreachable

Json = dict[str, Any]


class Memory:
    """The methods of ``webhook.cluster.api.Api``, as far as controllers use them. ``cut``: nothing gets through;
    ``slow``: seconds that every request takes; ``behind``: how much its clock is behind; ``fail``: how many more
    requests are refused a connection; ``allowed``: whether it allows what it is asked about.
    """

    def __init__(self, of: Memory | None = None) -> None:
        self.objects: dict[str, Json] = {} if of is None else of.objects
        self._state: Json = {"version": 0} if of is None else of._state
        self.cut, self.slow, self.behind, self.fail = False, 0.0, timedelta(), 0
        self.allowed = True

    def connection(self) -> Memory:
        """Another connection to the same server, with faults of its own."""
        return Memory(self)

    def put(self, path: str, obj: Json) -> Json:
        """Store ``obj``, whatever is there."""
        self._state["version"] += 1
        metadata = {"name": path.rpartition("/")[2], **(obj.get("metadata") or {})}
        metadata["resourceVersion"] = str(self._state["version"])
        self.objects[path] = copy.deepcopy({**obj, "metadata": metadata})
        return copy.deepcopy(self.objects[path])

    async def get(self, path: str, **params: object) -> Json:
        await self._answer()
        if "limit" in params:
            places = sorted(each for each in self.objects if each.rpartition("/")[0] == path)
            begin, size = int(str(params.get("continue") or 0)), int(str(params["limit"]))
            more = {"continue": str(begin + size)} if begin + size < len(places) else {}
            return copy.deepcopy({"metadata": more, "items": [self.objects[p] for p in places[begin : begin + size]]})
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path} not found")
        return copy.deepcopy(self.objects[path])

    async def create(self, path: str, obj: Json, **params: object) -> Json:
        await self._answer()
        if path.endswith("/selfsubjectreviews"):
            stamp = (datetime.now(UTC) - self.behind).strftime("%Y-%m-%dT%H:%M:%SZ")
            return {"metadata": {"creationTimestamp": stamp}}
        if path.endswith("/selfsubjectaccessreviews"):
            return {"status": {"allowed": self.allowed}}
        where = f"{path}/{obj['metadata']['name']}"
        if where in self.objects:
            raise ApiError(409, "AlreadyExists", f"{where} already exists")
        return self.put(where, obj)

    async def update(self, path: str, obj: Json, **params: object) -> Json:
        await self._answer()
        if path not in self.objects:
            raise ApiError(404, "NotFound", f"{path} not found")
        version = obj["metadata"].get("resourceVersion")
        if version not in (None, self.objects[path]["metadata"]["resourceVersion"]):
            raise ApiError(409, "Conflict", "the object has been modified")
        return self.put(path, obj)

    async def patch(self, path: str, body: Json, kind: str, **params: object) -> Json:
        """Merge ``body`` into the object, or into that of its status."""
        await self._answer()
        of_status, path = path.endswith("/status"), path.removesuffix("/status")
        stored = self.objects.get(path)
        if stored is None or kind != "merge":
            raise ApiError(404, "NotFound", f"{path} not found")
        version = (body.get("metadata") or {}).get("resourceVersion")
        if version not in (None, stored["metadata"]["resourceVersion"]):
            raise ApiError(409, "Conflict", "the object has been modified")
        changes = {name: part for name, part in body.items() if (name == "status") == of_status}
        return self.put(path, _merged(stored, changes))

    async def delete(self, path: str, body: Json | None = None, **params: object) -> Json:
        await self._answer()
        stored = self.objects.get(path)
        if stored is None:
            raise ApiError(404, "NotFound", f"{path} not found")
        version = ((body or {}).get("preconditions") or {}).get("resourceVersion")
        if version not in (None, stored["metadata"]["resourceVersion"]):
            raise ApiError(409, "Conflict", "the object has been modified")
        return self.objects.pop(path)

    async def lines(self, path: str, timeout: float, **params: object) -> AsyncIterator[bytes]:
        await self._answer()
        yield b""
        name = str(params["fieldSelector"]).partition("=")[2]
        since = params.get("resourceVersion") or ""
        while True:
            await asyncio.sleep(0.01)
            if self.cut:
                raise Unreachable("connection lost")
            obj = self.objects.get(f"{path}/{name}")
            version = obj["metadata"]["resourceVersion"] if obj else ""
            if version != since:
                yield json.dumps({"type": "MODIFIED", "object": obj}).encode()
                since = version

    async def _answer(self) -> None:
        await asyncio.sleep(self.slow)
        self.fail -= 1
        if self.cut or self.fail >= 0:
            raise Unreachable("connection refused")


def _merged(value: Json, change: Json) -> Json:
    made = dict(value)
    for name, part in change.items():
        if part is None:
            made.pop(name, None)
        elif isinstance(part, dict) and isinstance(made.get(name), dict):
            made[name] = _merged(made[name], part)
        else:
            made[name] = part
    return made
