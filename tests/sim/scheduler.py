"""Virtual time and one source of chance: a seed decides everything that happens in a world.

Nothing here knows Raft; a simulation of another part brings its own actors and network users.
"""

import heapq
import random
from collections.abc import Callable


class Scheduler:
    """Actions at instants; unit of time: microseconds since the world began."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_us = 0
        self.events = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0  # equal instants happen in the order in which they were planned

    def at(self, when_us: int, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (max(when_us, self.now_us), self._order, action))

    def after(self, delay_us: float, action: Callable[[], None]) -> None:
        self.at(self.now_us + int(delay_us), action)

    def run(self, until_us: int, stop: Callable[[], bool] | None = None) -> None:
        """Let everything happen up to an instant, or until `stop` says so after some event."""
        while self._queue and self._queue[0][0] <= until_us:
            self.now_us, _, action = heapq.heappop(self._queue)
            self.events += 1
            action()
            if stop is not None and stop():
                return
        self.now_us = max(self.now_us, until_us)


class Clock:
    """One process's boot clock: runs a little too fast or too slow, and may jump forward."""

    def __init__(self, scheduler: Scheduler, rate: float = 1.0, offset_ms: int = 0) -> None:
        self._scheduler = scheduler
        self._rate = rate
        self._offset_ms = offset_ms

    def now_ms(self) -> int:
        return int(self._scheduler.now_us * self._rate / 1000) + self._offset_ms

    def jump(self, ms: int) -> None:
        self._offset_ms += ms

    def world_us(self, at_ms: int) -> int:
        """The world's instant at which this clock will show a time."""
        return int((at_ms - self._offset_ms) * 1000 / self._rate) + 1000
