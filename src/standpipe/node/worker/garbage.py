"""When a worker collects its garbage: while it has nothing else to do; and how it makes little.

CPython frees most objects when their last reference goes, and finds the rest, those that refer to
each other in a circle, by looking at all that it has. It looks at the young ones often, which takes
well below a millisecond. To look at the oldest took up to 139 ms while a heavy worker planned texts
of thousands of words, and the event loop stood still meanwhile. So these wait for a turn of the
loop before which the process was idle. Without one, they come after 20 times as many new objects as
by default, at most some 100 MB of them.

Much of it was errors. One that a frame still names keeps its traceback, which keeps that frame, and
all that it and the frames below have in hand, such as the plan of a long text. `let_go` ends that.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

#: between two calls of `turn`
TURN_MS: Final = 100
#: Collections of a generation after which the next one is collected, too; CPython's are 10 and 10.
YOUNG_MAX, OLDEST_MAX = 10, 200
#: after so many there is enough to collect
OLDEST_MIN: Final = 10
#: of the processor time since the last turn: below, the process was idle
IDLE_SHARE: Final = 0.1


def let_go(error: BaseException) -> None:
    """Forget the frames that an error came through, and those of the errors that led to it. For one
    that nobody will raise again."""
    found: list[BaseException] = [error]
    for one in found:  # it grows meanwhile
        one.__traceback__ = None
        led = (one.__cause__, one.__context__)
        found += [each for each in led if each is not None and each not in found]


class Garbage:
    """That of this process. `is_computing`: whether one of its threads does, which may wait for the
    processor; `used_s`: its processor time."""

    def __init__(
        self,
        is_computing: Callable[[], bool] = lambda: False,
        used_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._is_computing, self._used_s = is_computing, used_s
        self._before_s = used_s()
        gc.set_threshold(gc.get_threshold()[0], YOUNG_MAX, OLDEST_MAX)

    def turn(self) -> None:
        """Called every TURN_MS by the loop: collect all of it, if that is due and delays nobody."""
        now_s = self._used_s()
        is_idle = now_s - self._before_s < IDLE_SHARE * TURN_MS / 1000
        if is_idle and not self._is_computing() and gc.get_count()[2] >= OLDEST_MIN:
            gc.collect()
        self._before_s = self._used_s()
