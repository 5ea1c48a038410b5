"""Of which objects everything is kept: of those that somebody will ask about, and of a part of the others, which is the
same for all replicas.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from datetime import timedelta

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


def waited(delay: timedelta) -> bool:
    """Whether somebody may ask why a claim got its devices so long after it was made. What happens to it is kept by
    whoever hears of it, also by one who did not see it wait.
    """
    return delay > _WAITED


class Sampling:
    """Keeps the part ``ratio`` of the objects, and those that were once in trouble, the latest of them. Any thread may
    use it.
    """

    def __init__(self, ratio: float) -> None:
        self._ratio = ratio
        self._kept: OrderedDict[str, None] = OrderedDict()
        self._passing = ""
        self._lock = threading.Lock()

    def keep(self, uid: str) -> None:
        """Keep what is to come of the object with this UID, if it has one."""
        if not uid or wanted(uid, self._ratio):
            return
        trace = trace_id(uid)
        with self._lock:
            # Whoever asks meanwhile has to find it.
            self._kept[trace] = None
            self._kept.move_to_end(trace)
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)

    def pass_by(self, uid: str) -> None:
        """Keep what is told at once of an attempt with this UID of which nothing comes: it needs no memory, and takes
        none from those that will be heard of.
        """
        self._passing = trace_id(uid) if uid else ""

    def wanted(self, uid: str) -> bool:
        """Whether what happens to the object with this UID, or this trace, is kept."""
        trace = trace_id(uid)
        return trace in self._kept or trace == self._passing or wanted(uid, self._ratio)
