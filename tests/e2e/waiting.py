"""Waiting for what a cluster does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.e2e import processes
from tests.e2e.client import ApiError

T = TypeVar("T")


def eventually(ask: Callable[[], T], within: float = 30, every: float = 0.05) -> T:
    """The first true answer of ``ask``, asked again and again.

    An AssertionError or an ApiError of ``ask`` means not yet. Raises AssertionError with the last answer when the time
    is up, and ``processes.Died`` at once when a process of the control plane has ended.
    """
    start = time.monotonic()
    while True:
        problem: Exception | None = None
        answer: object = None
        try:
            given = ask()
            if given:
                return given
            answer = given
        except (AssertionError, ApiError) as error:
            problem = error
        processes.check()
        if time.monotonic() > start + within:
            raise AssertionError(f"not within {within} s: last {answer if problem is None else problem!r}") from problem
        processes.pause(start, every)


def steady(ask: Callable[[], T], during: float) -> T:
    """The answer of ``ask``, true at the start and all the time ``during`` seconds: shows that nothing happens."""
    end = time.monotonic() + during
    while True:
        answer = ask()
        assert answer, f"held, and is no longer: {answer!r}"
        processes.check()
        if time.monotonic() > end:
            return answer
        time.sleep(0.05)
