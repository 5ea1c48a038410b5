"""The log: one JSON object a line on standard error, written beside the event loop."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, TextIO

Level = Literal["info", "warning", "error"]

# A reader of standard error that stands still must not stop admission: what does not fit is dropped and counted.
_QUEUED = 2048

# Seconds that what follows a line waits for more: nobody who reads a log sees it the sooner, and a server that is
# killed loses no more than that.
GATHER = 0.05

_encode = json.JSONEncoder(default=str).encode


class Log:
    """Lines of JSON with ``time``, ``level``, ``event`` and what the caller adds. Everything that is not printable
    ASCII is escaped: names and messages come from whoever wrote an object.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._lines: deque[str] = deque()
        self._news = threading.Event()
        self._ended = False
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def write(self, level: Level, event: str, **fields: object) -> None:
        """Queue one line; never blocks, never raises."""
        line = {"time": self._clock().isoformat(timespec="milliseconds"), "level": level, "event": event, **fields}
        if len(self._lines) >= _QUEUED:
            self._dropped += 1
            return
        if self._dropped:
            line["dropped"], self._dropped = self._dropped, 0
        self._lines.append(_encode(line))
        if not self._news.is_set():
            self._news.set()

    def close(self) -> None:
        """Write what is queued, waiting two seconds at most."""
        self._ended = True
        self._news.set()
        self._thread.join(timeout=2)

    def _write(self) -> None:
        ended = False
        while not ended:
            self._news.wait()
            self._news.clear()
            ended = self._ended
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            try:
                self._stream.write("".join([f"{line}\n" for line in lines]))
                self._stream.flush()
            except (OSError, ValueError):  # a closed pipe: nobody reads any more
                return
            # One write for what comes then: each wakes this thread, which keeps the event loop from going on.
            if not ended:
                time.sleep(GATHER)
