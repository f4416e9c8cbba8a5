"""How many extra requests may be sent: hedges and retries, over the last ten seconds.

The budget is a share of the reads plus a burst. When a node suddenly stops, every read in flight
needs its second try at the same moment, which would exhaust a mere share at once. When the whole
cluster is sick, the share keeps retries from doubling the load that made it sick. Pure.
"""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_S: Final = 10
BURST: Final = 100


class Budget:
    """`share` of the reads of the last WINDOW_S seconds, and `burst` more. Share 0: nothing."""

    def __init__(self, share: float, burst: int = BURST) -> None:
        self._share = share
        self._burst = burst
        #: [second, reads, spent], ascending
        self._seconds: deque[list[int]] = deque()
        self._reads = self._spent = 0

    @property
    def is_off(self) -> bool:
        """Whether no extra requests are wanted, not even free ones."""
        return self._share <= 0

    def read(self, now_s: float, count: int = 1) -> None:
        """Reads arrived."""
        self._second(now_s)[1] += count
        self._reads += count

    def take(self, now_s: float) -> bool:
        """Spend one extra request, if one is left."""
        second = self._second(now_s)
        if self.is_off or self._spent >= self._burst + self._share * self._reads:
            return False
        second[2] += 1
        self._spent += 1
        return True

    def _second(self, now_s: float) -> list[int]:
        now = int(now_s)
        while self._seconds and self._seconds[0][0] <= now - WINDOW_S:
            _, reads, spent = self._seconds.popleft()
            self._reads -= reads
            self._spent -= spent
        if not self._seconds or self._seconds[-1][0] != now:
            self._seconds.append([now, 0, 0])
        return self._seconds[-1]


class ForwardLatency:
    """How long recent forwards took, and from when on a forward counts as slow."""

    #: FIRST_MS holds until ENOUGH are known; LOW_MS is the least; the last KEPT count
    FIRST_MS: Final = 50.0
    LOW_MS: Final = 1.0
    KEPT: Final = 256
    ENOUGH: Final = 20
    EVERY: Final = 32

    def __init__(self) -> None:
        self._taken_ms: deque[float] = deque(maxlen=self.KEPT)
        self._count = 0
        self.slow_ms = self.FIRST_MS

    def took(self, ms: float) -> None:
        """A forward was answered. The p95 is computed again after each EVERY of them."""
        self._taken_ms.append(ms)
        self._count += 1
        if len(self._taken_ms) >= self.ENOUGH and self._count % self.EVERY in (0, self.ENOUGH):
            ranked = sorted(self._taken_ms)
            self.slow_ms = max(self.LOW_MS, ranked[int(len(ranked) * 0.95)])
