"""A real server in a process of its own, and a client that trusts its certificate."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

_PROGRAM = """
import sys
from pathlib import Path
from webhook.server.serve import serve
from webhook.server.settings import Settings
folder = Path(sys.argv[1])
serve(Settings(folder / "certs", [str(folder / "cluster")], [str(folder / "policies")], "127.0.0.1", 0, 0))
"""


class Serving:
    """A server on the folders ``cluster`` and ``policies`` of ``folder``; ``lines`` is its log so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: list[dict[str, Any]] = []
        self._grown = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(folder)], stderr=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self.logged(lambda line: line["event"].startswith("listening on"))["url"]
        self.metrics_url = self.logged(lambda line: line["event"].startswith("metrics listening on"))["url"]
        self.trust = ssl.create_default_context(cafile=str(folder / "certs" / "ca.crt"))
        self.client = httpx.Client(verify=self.trust, base_url=self.url, timeout=20)

    def logged(self, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first line of the log that fits, waited for."""
        with self._grown:
            if not self._grown.wait_for(lambda: any(map(fits, self.lines)) or self.process.poll() is not None, 20):
                raise AssertionError(f"not logged: {self.lines}")
            return next(line for line in self.lines if fits(line))

    def post(self, path: str, review: object) -> httpx.Response:
        content = review if isinstance(review, bytes) else json.dumps(review).encode()
        return self.client.post(path, content=content, headers={"content-type": "application/json"})

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        self._reader.join(5)
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr:
            for line in self.process.stderr:
                with self._grown:
                    try:
                        self.lines.append(json.loads(line))
                    except ValueError:
                        self.lines.append({"event": f"not JSON: {line}"})
                    self._grown.notify_all()
        with self._grown:
            self._grown.notify_all()


@contextmanager
def serving(folder: Path) -> Iterator[Serving]:
    server = Serving(folder)
    try:
        yield server
    finally:
        server.stop()
        server.client.close()
