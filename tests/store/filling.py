"""A journal on a disk that gets full, and has room again: a limit of files stands for the disk, in its own process.

Started as ``python -m tests.store.filling FOLDER``; prints the events of the log, what was counted, and the check
during and after it.
"""

from __future__ import annotations

import json
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.store.journaling import journal, pod


def main(folder: Path) -> None:
    log: list[dict[str, Any]] = []
    counted: Counter[str] = Counter()
    with journal(folder, log=log) as told_to:
        told_to.counted(lambda kind, count: counted.update({kind: count}))
        told_to.put(pod("a"))
        assert told_to.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        told_to.put(pod("b"))
        assert not told_to.flush(1.0)
        during = told_to.check()
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        told_to.put(pod("c"))
        assert told_to.flush()
        after = told_to.check()
    print(json.dumps([[each["event"] for each in log], counted, during, after]))  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
