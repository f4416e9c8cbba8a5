"""How many reads of a worker may wait, by what they wait for.

Each kind has a limit of its own: sessions whose replicas are far behind leave room for linearizable
reads, and the other way round. A read holds its place while it waits, and no longer. It takes some
20 KB meanwhile, so a worker that is short of memory lets none wait.

Not here: waiting (`node.worker.pull.session_waits`, `node.worker.pull.linearizable`,
`node.worker.request.row_thread`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from standpipe.adapters.metrics import Metrics
from standpipe.errors import TooManyRequests

#: of each kind
WAITERS_MAX: Final = 10_000
#: each may take a second, one after the other
COSTLY_WAITERS_MAX: Final = 100


class WaitKind(Enum):
    """What a read waits for, as metrics name it."""

    #: that rows of this node cover its token
    SESSION = "session"
    #: that rows of this node are of a batch that another part of the answer shows
    SNAPSHOT = "snapshot"
    #: that rows of this node have all that is below its barrier
    LINEARIZABLE = "linearizable"
    #: the barrier itself, and a map that has the read index
    BARRIER = "barrier"
    #: that its rows, which may take long, are computed in the worker's thread for that
    COSTLY_ROWS = "costly_rows"


_WHAT: Final = {
    WaitKind.SESSION: "reads wait for replicas to cover their tokens",
    WaitKind.SNAPSHOT: "reads wait for replicas to reach the batch of their other parts",
    WaitKind.LINEARIZABLE: "linearizable reads wait for replicas to reach their barriers",
    WaitKind.BARRIER: "linearizable reads wait for a barrier",
    WaitKind.COSTLY_ROWS: "reads wait for rows whose computation may take long",
}


@dataclass
class WaitLimit:
    """Of one kind."""

    kind: WaitKind
    metrics: Metrics
    waiters_max: int = WAITERS_MAX
    #: raises TooManyRequests while the worker has no memory for one more
    may_begin: Callable[[], None] = lambda: None
    count: int = 0

    def __post_init__(self) -> None:
        self._add(0)

    @contextmanager
    def place(self) -> Generator[None]:
        """For one read, while it waits. Raises TooManyRequests."""
        try:
            self.may_begin()
            if self.count >= self.waiters_max:
                raise TooManyRequests(f"{self.count} {_WHAT[self.kind]} already")
        except TooManyRequests:
            self.metrics.count("standpipe_waiting_reads_refused", self.kind.value)
            raise
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def _add(self, change: int) -> None:
        self.count += change
        self.metrics.gauge("standpipe_waiting_reads", self.kind.value, self.count)


@dataclass
class WaitLimits:
    """Of one worker."""

    metrics: Metrics
    may_begin: Callable[[], None] = lambda: None
    session: WaitLimit = field(init=False)
    snapshot: WaitLimit = field(init=False)
    linearizable: WaitLimit = field(init=False)
    barrier: WaitLimit = field(init=False)
    costly_rows: WaitLimit = field(init=False)

    def __post_init__(self) -> None:
        self.session = self._limit(WaitKind.SESSION)
        self.snapshot = self._limit(WaitKind.SNAPSHOT)
        self.linearizable = self._limit(WaitKind.LINEARIZABLE)
        self.barrier = self._limit(WaitKind.BARRIER)
        self.costly_rows = self._limit(WaitKind.COSTLY_ROWS, COSTLY_WAITERS_MAX)

    def _limit(self, kind: WaitKind, waiters_max: int = WAITERS_MAX) -> WaitLimit:
        return WaitLimit(kind, self.metrics, waiters_max, self.may_begin)
