"""The real server as a process of its own, and an API server's side of the conversation with it."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from webhook.cli.console import Unusable

_START, _EDIT, _STOP = 30.0, 15.0, 15.0
_LOOK_EVERY = 0.05


class Server:
    """A running server: ``url`` is where it listens, ``authority`` whom its certificate is verified against."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, authority: Path) -> None:
        self._process = process
        self._log = log
        self._context = ssl.create_default_context(cafile=str(authority))
        self.url = self._until(self._listening, _START)

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        """Status and body of one HTTPS request, the server's certificate verified."""
        place = urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            place.hostname or "", place.port, context=self._context, timeout=_START
        )
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def review(self, body: bytes) -> dict[str, Any]:
        """The ``response`` of the answer to one review."""
        status, answer = self.ask("POST", "/validate?timeout=5s", body)
        if status != 200:
            raise Unusable(f"{self.url}: answered {status}: {answer[:200]}")
        response: dict[str, Any] = json.loads(answer)["response"]
        return response

    def policies(self) -> str:
        """What the server says about its policies."""
        _, answer = self.ask("GET", "/readyz?verbose")
        return next((line for line in answer.splitlines() if "policies" in line), "")

    def after(self, seen: str) -> str:
        """What it says once that is no longer ``seen``."""
        return self._until(lambda: now if (now := self.policies()) != seen else "", _EDIT)

    def _listening(self) -> str:
        for line in self._log.read_text().splitlines():
            event = json.loads(line) if line.startswith("{") else {}
            if str(event.get("event", "")).startswith("listening on"):
                return str(event["url"]).replace("127.0.0.1", "localhost")
        return ""

    def _until(self, look: Callable[[], str], seconds: float) -> str:
        end = time.monotonic() + seconds
        while not (found := look()):
            if self._process.poll() is not None or time.monotonic() > end:
                lines = self._log.read_text().splitlines()
                raise Unusable(f"the server did not do its part: {' '.join(lines[-3:]) or 'it said nothing'}")
            time.sleep(_LOOK_EVERY)
        return found


@contextmanager
def running(arguments: Sequence[str], folder: Path, authority: Path) -> Iterator[Server]:
    """A server started with ``arguments`` of ``allocguard serve``, stopped at the end; its log goes into ``folder``."""
    log = folder / "server.log"
    with log.open("wb") as sink:
        command = [sys.executable, "-m", "webhook.cli", "serve", *arguments]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    try:
        yield Server(process, log, authority)
    finally:
        process.terminate()
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
