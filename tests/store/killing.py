"""Kills the writer of a journal again and again, in the middle of writing, and looks at what is there.

Started as ``python -m tests.store.killing FOLDER ROUNDS``; the last line printed is a summary as JSON. In a process of
its own, since it forks.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import sys
import time
from pathlib import Path

from tests.store.journaling import NOW, claim
from webhook.store.history import read_history
from webhook.store.journal import Journal, Limits
from webhook.store.segment import segments

# Small, so that some kills hit the change from one segment to the next, and the deletion of old ones.
LIMITS = Limits(segment=50_000, total=400_000)
_NUMBER = struct.Struct("!Q")


def write(folder: Path, first: int, acknowledge: int) -> None:
    """Write claims with ascending versions until killed; acknowledge each that is on the disk."""
    journal = Journal(folder, lambda: NOW, limits=LIMITS)
    version = first
    choose = random.Random(first)
    while True:
        count = choose.randrange(1, 6)
        for _ in range(count):
            journal.put(claim(f"c{version % 5}", version))
            version += 1
        if journal.flush():
            os.write(acknowledge, _NUMBER.pack(version - 1))


def round_(folder: Path, first: int, choose: random.Random) -> int:
    """One life of a writer; gives the last version that it acknowledged, ``first - 1`` for none."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            write(folder, first, writing)
        finally:
            os._exit(1)
    os.close(writing)
    data = os.read(reading, _NUMBER.size)  # it has begun
    time.sleep(choose.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, status
    with open(reading, "rb") as rest:
        data += rest.read()
    return max([first - 1, *(number for (number,) in _NUMBER.iter_unpack(data))])


def main(folder: Path, rounds: int) -> None:
    choose = random.Random(5)
    acknowledged = last = 0
    for _ in range(rounds):
        acknowledged = round_(folder, last + 1, choose)
        history = read_history(folder)
        versions = [int(event.resource_version) for event in history.events]
        held = [int(event.resource_version) for event in history.begins]
        last = max([*versions, *held])
        assert last >= acknowledged, f"version {acknowledged} was acknowledged, {last} is the last one there"
        assert not history.gaps, history.gaps
        # Whole: every event since the oldest segment that is left.
        assert versions == list(range(last - len(versions) + 1, last + 1))
    told = {"rounds": rounds, "acknowledged": acknowledged, "last": last}
    print(json.dumps(told | {"segment": segments(folder)[-1].name}))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
