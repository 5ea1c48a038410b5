"""The API server over plain HTTPS: raw JSON in and out, whatever fields the release has."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Sequence
from typing import Any

import httpx

Json = dict[str, Any]

PATCHES = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class ApiError(Exception):
    """The API server's Status of a request that it refused."""

    def __init__(self, code: int, status: Json) -> None:
        self.code, self.status = code, status
        self.reason: str = status.get("reason") or ""
        self.message: str = status.get("message") or ""
        self.causes: list[Json] = (status.get("details") or {}).get("causes") or []
        super().__init__(f"{code} {self.reason}: {self.message}")


class Client:
    """One identity at one API server. Paths are absolute (``/api/v1/nodes``); query parameters are keywords.

    ``created`` grows by the path of every object that this client makes; ``warnings`` are those of the last answer.
    ``more`` are headers of every request, as those that name whom it stands for.
    """

    def __init__(
        self,
        url: str,
        trust: ssl.SSLContext,
        token: str | None = None,
        created: list[str] | None = None,
        more: Sequence[tuple[str, str]] = (),
    ) -> None:
        headers = [("authorization", f"Bearer {token}"), *more] if token else list(more)
        self.url = url
        self._http = httpx.Client(base_url=url, verify=trust, headers=headers, timeout=30, trust_env=False)
        self.created = [] if created is None else created
        self.warnings: list[str] = []

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def get(self, path: str, **params: str) -> Json:
        """The object at ``path``; raises ApiError."""
        return self._json("GET", path, params)

    def text(self, path: str) -> str:
        """What ``path`` answers, as text (``/readyz``, ``/metrics``); raises ApiError."""
        return self._send("GET", path, {}).text

    def items(self, path: str, **params: str) -> list[Json]:
        """The objects of the list at ``path``."""
        items: list[Json] = self.get(path, **params)["items"]
        return items

    def find(self, path: str) -> Json | None:
        """The object at ``path``, None when there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def create(self, path: str, body: Json, **params: str) -> Json:
        """POST ``body`` to the collection, or subresource, ``path``."""
        return self._json("POST", path, params, body)

    def update(self, path: str, body: Json, **params: str) -> Json:
        """PUT ``body``."""
        return self._json("PUT", path, params, body)

    def patch(self, path: str, body: object, kind: str = "merge", **params: str) -> Json:
        """PATCH; ``kind`` is ``merge``, ``json`` or ``strategic``."""
        return self._json("PATCH", path, params, body, PATCHES[kind])

    def apply(self, path: str, body: Json, manager: str = "e2e", **params: str) -> Json:
        """Server-side apply, by force."""
        query = {"fieldManager": manager, "force": "true", **params}
        return self._json("PATCH", path, query, body, "application/apply-patch+yaml")

    def delete(self, path: str, body: Json | None = None, **params: str) -> Json:
        """DELETE; ``grace`` as the parameter ``gracePeriodSeconds="0"``."""
        return self._json("DELETE", path, params, body)

    def gone(self, path: str, **params: str) -> None:
        """DELETE, and no complaint when it is not there."""
        try:
            self.delete(path, None, **params)
        except ApiError as error:
            if error.code != 404:
                raise

    def watch(self, path: str, seconds: int, **params: str) -> Iterator[Json]:
        """The events of a watch that the server ends after ``seconds``."""
        query = {"watch": "true", "timeoutSeconds": str(seconds), **params}
        with self._http.stream("GET", path, params=query, timeout=seconds + 10) as answer:
            if answer.status_code >= 400:
                answer.read()
                raise _error(answer)
            for line in answer.iter_lines():
                yield json.loads(line)

    def raw(self, method: str, path: str, content: bytes, kind: str = "application/json", **params: str) -> Json:
        """Send exactly these bytes."""
        return self._json(method, path, params, content, kind)

    def _json(
        self, method: str, path: str, params: dict[str, str], body: object = None, kind: str = "application/json"
    ) -> Json:
        answer = self._send(method, path, params, body, kind)
        got: Json = answer.json()
        if answer.status_code == 201 and "dryRun" not in params:
            self._made(method, path, got)
        return got

    def _send(
        self, method: str, path: str, params: dict[str, str], body: object = None, kind: str = "application/json"
    ) -> httpx.Response:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {} if content is None else {"content-type": kind}
        answer = self._http.request(method, path, params=params, content=content, headers=headers)
        given = answer.headers.get_list("warning")
        self.warnings = [each.partition('"')[2].rpartition('"')[0].replace('\\"', '"') for each in given]
        if answer.status_code >= 400:
            raise _error(answer)
        return answer

    def _made(self, method: str, path: str, made: Json) -> None:
        name = made.get("metadata", {}).get("name")
        if method == "PATCH":
            self.created.append(path)
        elif name and not path.endswith(("/binding", "/token", "/eviction", "reviews")):
            self.created.append(f"{path}/{name}")


def _error(answer: httpx.Response) -> ApiError:
    try:
        status = answer.json()
    except ValueError:
        status = {"message": answer.text}
    return ApiError(answer.status_code, status if isinstance(status, dict) else {"message": str(status)})
