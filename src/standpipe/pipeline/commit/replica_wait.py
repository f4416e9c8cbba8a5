"""Lets batches wait while a replica of their table is too far behind.

One `ReplicaWait` for each pipeline: a thread that asks the nodes feeds it, the batches of all
queries read it. A batch waits before it checks its lease, so a pipeline that loses the lease while
it waits commits nothing. Not here: the decision (`data/commit/back_pressure.py`), who asks the
nodes (`run/control_client.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from standpipe.data.commit.back_pressure import Behind, LagBound, Pressure, ReplicaPositions
from standpipe.model import NodeId, Source
from standpipe.model_liveness import ReplicaLag

#: how often a batch that waits looks again
LOOK_S = 0.05


class ReplicaWait:
    """What the nodes said of their replicas, and the waits of batches."""

    def __init__(
        self,
        bound: LagBound,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.bound = bound
        #: asks the nodes now, and not with their next turn: what they said last is soon too old
        self.ask: Callable[[], object] = lambda: None
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._positions = ReplicaPositions()

    def take(self, node: NodeId, lags: Sequence[ReplicaLag]) -> None:
        """A node's answer: those of its replicas that count. May be called from any thread."""
        with self._lock:
            self._positions.take(node, lags, self._clock())

    def before_batch(
        self,
        pressure: Pressure,
        tables: Sequence[tuple[Source, Mapping[int, int]]],
        *,
        told: Callable[[str], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        """Return when the next batch may begin. `tables`: those that it commits, with the ends of
        what is committed; `told`: gets what it waits for, while it waits."""
        pressure.begin(self._clock())
        while not is_stopped() and pressure.holds(self._furthest_behind(tables), self._clock()):
            if pressure.behind is not None:
                told(pressure.behind.text(self.bound))
            self.ask()
            self._sleep(LOOK_S)

    def _furthest_behind(self, tables: Sequence[tuple[Source, Mapping[int, int]]]) -> Behind | None:
        now_s = self._clock()
        with self._lock:
            found = [
                self._positions.furthest_behind(
                    (table.table_id or "", table.generation), ends, self.bound, now_s
                )
                for table, ends in tables
            ]
        known = (each for each in found if each is not None)
        return max(known, key=lambda behind: behind.part, default=None)
