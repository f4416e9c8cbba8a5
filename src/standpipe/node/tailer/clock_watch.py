"""Exits a process that reads from Kafka when the wall clock is set back; its parent restarts it.

librdkafka times its waits by the wall clock, in its own threads and in its callers' (its issue
2145, open). Tried with 2.x: after a step back of 5 s, `consume` with a limit of 5 ms returns 5 s
later, unless a record arrives. A tailer would hang for as long as the clock was ahead, without
confirmations or other news from Kafka. There is no way to wake those threads.

A new process knows only the new time. Not here: clocks that are set ahead, after which waits only
end early; control, workers and pipeline, whose clients wait for answers that do arrive.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final, NoReturn

import structlog

from standpipe.adapters.clock import Clock

LOOK_S: Final = 0.1  # time.sleep uses the monotonic clock
#: A smaller step costs a pause of its size, which is less than a restart costs. NTP slews offsets
#: below 128 ms, and steps larger ones.
SET_BACK_MS_MIN: Final = 1000
#: The two clocks are read one after the other; a process that was paused in between reads again, or
#: the pause would look like a step.
_READ_MS_MAX: Final = 100

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class ClockWatch:
    """Compares the wall clock with that of the machine's start."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = self._read()

    def set_back_ms(self) -> int:
        """By how much the wall clock was set back since the last call; 0: it was not."""
        before_ms, self._ahead_ms = self._ahead_ms, self._read()
        back_ms = before_ms - self._ahead_ms
        return back_ms if back_ms >= SET_BACK_MS_MIN else 0

    def _read(self) -> int:
        while True:
            boot_ms = self._clock.boot_ms()
            wall_ms = self._clock.wall_ms()
            if self._clock.boot_ms() - boot_ms <= _READ_MS_MAX:
                return wall_ms - boot_ms


def end_when_set_back(clock: Clock) -> None:
    """Watch from now on, in a thread: the loop itself may be what hangs."""
    watch = ClockWatch(clock)
    threading.Thread(target=_look, args=(watch,), name="clock-watch", daemon=True).start()


def _look(watch: ClockWatch) -> NoReturn:
    while True:
        time.sleep(LOOK_S)
        if back_ms := watch.set_back_ms():
            _log.warning("restarting: the wall clock was set back", ms=back_ms)
            os._exit(1)  # crash-only: stores are as their last transactions left them
