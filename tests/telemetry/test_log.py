from __future__ import annotations

import io
import json
import threading
from datetime import UTC, datetime

from webhook.telemetry.log import Log


def test_lines_are_json_and_escape_what_is_not_printable() -> None:
    stream = io.StringIO()
    log = Log(stream, lambda: datetime(2026, 11, 29, tzinfo=UTC))
    log.write("warning", "denied", name="a\n\x1b[31m\u202e\x85", more=("x",))
    log.close()
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.rstrip("\n").isprintable()
    assert text.isascii()
    assert json.loads(text) == {
        "time": "2026-11-29T00:00:00.000+00:00",
        "level": "warning",
        "event": "denied",
        "name": "a\n\x1b[31m\u202e\x85",
        "more": ["x"],
    }


class Stuck(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def write(self, text: str) -> int:
        self.free.wait(10)
        return super().write(text)


def test_a_reader_that_stands_still_stops_nobody_and_what_was_dropped_is_counted() -> None:
    stream = Stuck()
    log = Log(stream)
    for number in range(5000):
        log.write("info", "line", number=number)
    stream.free.set()
    while log._lines:
        stream.free.wait(0.01)
    log.write("info", "last")
    log.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert lines[-1]["event"] == "last"
    dropped = sum(line.get("dropped", 0) for line in lines)
    assert dropped > 0
    assert dropped + len(lines) - 1 == 5000


def test_a_closed_stream_is_no_error() -> None:
    stream = io.StringIO()
    stream.close()
    log = Log(stream)
    log.write("info", "line")
    log.close()
