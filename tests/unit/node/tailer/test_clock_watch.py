"""A wall clock that is set back is noticed; nothing else is taken for it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from standpipe.node.tailer.clock_watch import ClockWatch


class FakeClock:
    """The boot clock goes on by what it costs to read it."""

    def __init__(self) -> None:
        self.now_ms, self.set_ms = 1_000_000, 0
        self.costs_ms: list[int] = []

    def boot_ms(self) -> int:
        self.now_ms += self.costs_ms.pop(0) if self.costs_ms else 0
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms + self.set_ms


@pytest.mark.parametrize(
    ("steps_ms", "found_ms", "why"),
    [
        ([0, 0], [0, 0], "nobody sets it"),
        ([3_600_000, 0], [0, 0], "ahead: no wait becomes longer"),
        ([-3_600_000, 0], [3_600_000, 0], "said once"),
        ([3_600_000, -3_600_000], [0, 3_600_000], "ahead and back"),
        ([-999, -999], [0, 0], "two small steps"),
        ([-1000], [1000], "the boundary"),
    ],
)
def test_set_back(steps_ms: Sequence[int], found_ms: Sequence[int], why: str) -> None:
    clock = FakeClock()
    watch = ClockWatch(clock)  # type: ignore[arg-type]
    for step_ms, expected_ms in zip(steps_ms, found_ms, strict=True):
        clock.now_ms += 100
        clock.set_ms += step_ms
        assert watch.set_back_ms() == expected_ms, why


def test_to_be_kept_waiting_between_two_readings_is_no_step() -> None:
    clock = FakeClock()
    watch = ClockWatch(clock)  # type: ignore[arg-type]
    clock.costs_ms = [0, 5000, 0, 0]
    assert watch.set_back_ms() == 0
    assert not clock.costs_ms, "it read again"
