"""A network that may lose, delay, reorder and repeat messages, and cut links one way or both."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from .scheduler import Scheduler


@dataclass(frozen=True)
class NetworkFaults:
    """Chances per message in [0, 1]; unit of delays: ms."""

    lose: float = 0.0
    repeat: float = 0.0
    delay: float = 0.0
    delay_ms_max: int = 0
    latency_ms_max: float = 1.0


class Network:
    """Delivers to an actor by calling it; what happens to a message is drawn when it is sent."""

    def __init__(self, scheduler: Scheduler, faults: NetworkFaults, counts: Counter[str]) -> None:
        self.faults = faults
        self._scheduler = scheduler
        self._counts = counts
        self._cuts: Counter[tuple[str, str]] = Counter()
        #: by target: what it is sent takes this much longer; unit: ms
        self._lags: dict[str, int] = {}

    def cut(self, links: list[tuple[str, str]]) -> Callable[[], None]:
        """Cut directed links; the returned function heals exactly these."""
        self._cuts.update(links)
        return lambda: self._cuts.subtract(links)

    def lag(self, target: str, ms: int) -> Callable[[], None]:
        """Slow down everything that one actor is sent; the returned function ends it."""
        self._lags[target] = ms
        return lambda: self._lags.pop(target, None) and None

    def heal(self) -> None:
        self._cuts.clear()
        self._lags.clear()
        self.faults = NetworkFaults()

    def is_cut(self, source: str, target: str) -> bool:
        return self._cuts[source, target] > 0

    def send(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        draw = self._scheduler.random.random
        if self.is_cut(source, target):
            self._counts["messages cut off"] += 1
            return
        if draw() < self.faults.lose:
            self._counts["messages lost"] += 1
            return
        copies = 1
        if draw() < self.faults.repeat:
            self._counts["messages repeated"] += 1
            copies = 2
        for _ in range(copies):
            delay_us = 200 + draw() * self.faults.latency_ms_max * 1000
            if draw() < self.faults.delay:
                self._counts["messages delayed"] += 1
                delay_us += draw() * self.faults.delay_ms_max * 1000
            delay_us += self._lags.get(target, 0) * 1000
            self._scheduler.after(delay_us, deliver)
