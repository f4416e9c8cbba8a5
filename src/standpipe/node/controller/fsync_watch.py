"""How long this replica's disk takes to make writes of the quorum durable.

A disk that is slower than the quorum's time-outs leaves the cluster without a leader, and nothing
else shows the cause. So the slowest write of the last minute is a metric, and a write that is too
slow is logged. Not here: what the time-outs are (`control.raft.timeouts.RaftSettings`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import structlog

from standpipe.config.keys import FETCH_TIMEOUT

WINDOW_MS: Final = 60_000
WARN_EVERY_MS: Final = 30_000

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class SyncWatch:
    """Watches one disk, which makes one write at a time. A stopped process or a busy event loop
    counts as a slow disk: to a waiting peer they are the same."""

    def __init__(self, fetch_ms: int, now_ms: Callable[[], int]) -> None:
        """`fetch_ms`: the quorum's fetch time-out. In simulation there is nearly always a leader
        while no write takes more than four fifths of it (docs/ARCHITECTURE.md, "Time-outs")."""
        self.slow_ms: Final = fetch_ms * 4 // 5
        self._now_ms = now_ms
        #: (end, ms that it took) of writes, slower ones before quicker ones
        self._ended: deque[tuple[int, int]] = deque()
        self._begun_ms: int | None = None
        self._warned_ms: int | None = None

    @contextmanager
    def timed(self) -> Generator[None]:
        """Times a write until it is durable."""
        self._begun_ms = self._now_ms()
        try:
            yield
        finally:
            took_ms = self._running_ms()
            while self._ended and self._ended[-1][1] <= took_ms:
                self._ended.pop()
            self._ended.append((self._now_ms(), took_ms))
            self._begun_ms = None
            self._warn_if_slow(took_ms)

    def slowest_ms(self) -> int:
        """Slowest write of the last minute, including one in progress; 0: none."""
        since_ms = self._now_ms() - WINDOW_MS
        while self._ended and self._ended[0][0] <= since_ms:
            self._ended.popleft()
        self._warn_if_slow(self._running_ms())
        return max(self._ended[0][1] if self._ended else 0, self._running_ms())

    def _running_ms(self) -> int:
        return 0 if self._begun_ms is None else self._now_ms() - self._begun_ms

    def _warn_if_slow(self, took_ms: int) -> None:
        now_ms = self._now_ms()
        is_due = self._warned_ms is None or now_ms - self._warned_ms >= WARN_EVERY_MS
        if took_ms > self.slow_ms and is_due:
            self._warned_ms = now_ms
            _log.warning(
                "the disk is slow for the quorum",
                took_ms=took_ms,
                slow_ms=self.slow_ms,
                next_step=f"put log/ on a faster disk, or set a longer {FETCH_TIMEOUT.name} on "
                "every node",
            )
