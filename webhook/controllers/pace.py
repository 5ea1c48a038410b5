"""How fast something may be done: so many a second, and a few more after a while of nothing."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Lets ``rate`` through a second, ``burst`` of them at once. ``clock`` counts seconds."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left, self._at = float(burst), clock()

    def take(self, most: int) -> int:
        """How many of ``most`` may be done now; they count as done."""
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        given = min(most, int(self._left))
        self._left -= given
        return given

    def wait(self, count: int) -> float:
        """Seconds until ``count`` may be done at once, no more than a burst."""
        return max(0.0, (min(count, self._burst) - self._left) / self._rate)
