"""Threads in which a worker judges statements: a lane for each kind of work, bounded.

| lane | what | threads | waiting at most |
|---|---|---|---|
| SMALL | short texts without remote calls: SHOW, DESCRIBE, EXPLAIN, SET | 2 | 64 |
| KAFKA | short texts that may ask Kafka, and SHOW TOPICS and ASSERT | 4 | 64 |
| LARGE | long texts | 1 | 16 |

A short text never waits behind a long one, and one without remote calls never behind one that waits
for Kafka. A full lane refuses texts, since clients that wait for long send their request again.

Not here: judging (`node.worker.statements.execute`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from standpipe.errors import TooManyRequests

#: Characters of a short text: some 30 ms to judge.
SHORT_CHARS_MAX: Final = 1_000
#: Statements that may ask Kafka about topics while they are judged.
_ASKS_KAFKA: Final = re.compile(r"\b(CREATE|INSERT|ALTER|DROP|ASSERT)\b", re.IGNORECASE)

Result = TypeVar("Result")


class StatementLane(Enum):
    """Name, threads, and how many may wait for them."""

    SMALL = ("small", 2, 64)
    KAFKA = ("kafka", 4, 64)
    LARGE = ("large", 1, 16)

    @property
    def threads(self) -> int:
        """Threads of the lane."""
        return self.value[1]

    @property
    def waiting_max(self) -> int:
        """Pieces of work that may wait for a thread."""
        return self.value[2]


def lane_of(text: str) -> StatementLane:
    """The lane in which a request's statements are judged."""
    if len(text) > SHORT_CHARS_MAX:
        return StatementLane.LARGE
    return StatementLane.KAFKA if may_ask_kafka(text) else StatementLane.SMALL


def may_ask_kafka(text: str) -> bool:
    """Whether Kafka may be asked about topics while the statements are judged."""
    return _ASKS_KAFKA.search(text) is not None


@dataclass
class _Threads:
    pool: ThreadPoolExecutor
    pending: int = 0


class StatementLanes:
    """The lanes of one worker."""

    def __init__(self) -> None:
        self._lanes = {lane: _Threads(_pool(lane)) for lane in StatementLane}

    async def run(self, lane: StatementLane, work: Callable[[], Result]) -> Result:
        """What `work` returns, from a thread of the lane. Raises TooManyRequests."""
        threads = self._lanes[lane]
        if threads.pending >= lane.threads + lane.waiting_max:
            raise TooManyRequests("too many statements wait at this worker: retry in a second")
        threads.pending += 1
        loop = asyncio.get_running_loop()
        running = threads.pool.submit(work)
        # not in a `finally` here: a client that leaves does not end the thread's work
        running.add_done_callback(lambda _: _in_loop(loop, threads))
        return await asyncio.wrap_future(running)

    def close(self) -> None:
        """End the threads; what waits for them is cancelled."""
        for threads in self._lanes.values():
            threads.pool.shutdown(wait=False, cancel_futures=True)


def _pool(lane: StatementLane) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(lane.threads, thread_name_prefix=f"statements-{lane.value[0]}")


def _in_loop(loop: asyncio.AbstractEventLoop, threads: _Threads) -> None:
    def count() -> None:
        threads.pending -= 1

    with suppress(RuntimeError):  # the worker's loop has ended
        loop.call_soon_threadsafe(count)
