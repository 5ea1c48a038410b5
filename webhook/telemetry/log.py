"""The log: one JSON object a line on standard error, written beside the event loop."""

from __future__ import annotations

import contextlib
import json
import queue
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, TextIO

Level = Literal["info", "warning", "error"]

# A reader of standard error that stands still must not stop admission: what does not fit is dropped and counted.
_QUEUED = 2048

# Seconds: nobody who reads a log sees a line the sooner, and a server that is killed loses no more than that.
_GATHER = 0.01

_encode = json.JSONEncoder(default=str).encode


class Log:
    """Lines of JSON with ``time``, ``level``, ``event`` and what the caller adds. Everything that is not printable
    ASCII is escaped: names and messages come from whoever wrote an object.
    """

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._clock = clock
        self._lines: queue.Queue[str | None] = queue.Queue(_QUEUED)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def write(self, level: Level, event: str, **fields: object) -> None:
        """Queue one line; never blocks, never raises."""
        line = {"time": self._clock().isoformat(timespec="milliseconds"), "level": level, "event": event, **fields}
        if self._dropped:
            line["dropped"] = self._dropped
        try:
            self._lines.put_nowait(_encode(line))
        except queue.Full:
            self._dropped += 1
        else:
            self._dropped = 0

    def close(self) -> None:
        """Write what is queued, waiting two seconds at most."""
        try:
            self._lines.put(None, timeout=1)
        except queue.Full:
            return
        self._thread.join(timeout=1)

    def _write(self) -> None:
        ended = False
        while not ended:
            lines = [self._lines.get()]
            # One write for what comes together: each wakes this thread, which keeps the event loop from going on.
            time.sleep(_GATHER)
            with contextlib.suppress(queue.Empty):
                while len(lines) < _QUEUED:
                    lines.append(self._lines.get_nowait())
            ended = None in lines
            try:
                self._stream.write("".join([f"{line}\n" for line in lines if line is not None]))
                self._stream.flush()
            except (OSError, ValueError):  # a closed pipe: nobody reads any more
                return
