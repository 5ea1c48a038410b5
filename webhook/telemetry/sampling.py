"""Of which objects everything is kept: of those that somebody will ask about, and of a part of the others, which is the
same for all replicas.
"""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from webhook.kube.trace import trace_id

# OpenTelemetry's consistent probability sampling looks at these bits of a trace id only. In a UUID of version 4 all of
# them are random, the version and the variant stand before them.
_BITS = 56

# A scheduler that finds devices at once has allocated a claim by then.
_WAITED = timedelta(seconds=30)

# How many objects are remembered for the trouble they were in: 10 MB.
_MOST_KEPT = 65_536


def wanted(uid: str, ratio: float) -> bool:
    """Whether the object with this UID is among the part ``ratio``, from 0 to 1, that is kept; who is among a part is
    among every larger one. Everybody who asks gets the same answer.
    """
    return int(trace_id(uid)[-_BITS // 4 :], 16) >= (1 << _BITS) - int(ratio * (1 << _BITS))


def waited(created: datetime, allocated: datetime) -> bool:
    """Whether somebody may ask why a claim that was made at ``created`` got devices at ``allocated`` only. It is kept
    by whoever hears of it, also by one who did not see it wait.
    """
    return allocated - created > _WAITED


class Sampling:
    """Keeps the part ``ratio`` of the objects, and those that were once in trouble, the latest of them. Any thread may
    use it.
    """

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._kept: dict[str, None] = {}
        self._lock = threading.Lock()

    def keep(self, uid: str) -> None:
        """Keep what is to come of the object with this UID."""
        if wanted(uid, self._ratio):
            return
        trace = trace_id(uid)
        with self._lock:
            self._kept.pop(trace, None)
            self._kept[trace] = None
            if len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]

    def wanted(self, uid: str) -> bool:
        """Whether what happens to the object with this UID, or this trace, is kept."""
        return trace_id(uid) in self._kept or wanted(uid, self._ratio)
