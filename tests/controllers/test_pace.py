from __future__ import annotations

from webhook.controllers.pace import Pace


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_at_once_and_then_so_many_a_second() -> None:
    clock = Clock()
    pace = Pace(50, 20, clock)
    assert [pace.take(8) for _ in range(4)] == [8, 8, 4, 0]
    clock.now += 0.125
    assert [pace.take(8), pace.take(8)] == [6, 0]
    done = 0
    for _ in range(1280):
        clock.now += 0.0078125
        done += pace.take(8)
    assert 499 <= done <= 500


def test_what_was_not_used_is_kept_for_one_burst_only() -> None:
    clock = Clock()
    pace = Pace(50, 20, clock)
    clock.now += 3600
    assert [pace.take(100), pace.take(100)] == [20, 0]


def test_how_long_to_wait_for_the_next() -> None:
    clock = Clock()
    pace = Pace(50, 10, clock)
    assert pace.wait(10) == 0
    assert pace.take(10) == 10
    assert (pace.wait(1), pace.wait(8), pace.wait(100)) == (0.02, 0.16, 0.2)
    clock.now += 0.1601
    assert pace.take(10) == 8
