"""Whether the next batch of a query waits for the replicas of its table. Pure.

A replica that falls behind is of little use when the active dies. With a bound on its lag, the
pipeline lets replicas catch up before it writes more:

    nodes ── positions of their replicas ──► ReplicaPositions ─┐
    progress ── ends of the newest batch ──────────────────────┴─► Pressure.holds ─► a batch waits

A wait begins at half of the bound and ends at a quarter; a batch has at most half of the bound of
source records of each topic. So a replica that passes the first threshold while a batch is being
written stays within the bound, unless the query makes more rows than it reads of one topic, or the
limits below let a batch go on.

Which replicas count: those that a node reports as replicas, not as warm-ups, that may answer reads.
One that has not been heard of for SILENT_S, or that has been behind for STUCK_S without a move, is
taken for dead: it must not hold up the others. No batch waits longer than its limit, and in one
minute all waits together take three quarters of it at most: freshness is bounded as well. So the
bound holds for a replica that takes a quarter of what the query makes, or more.

Instants are in seconds on a clock that never goes back. Source: Kafka's `min.insync.replicas` and
`replica.lag.time.max.ms`, for the idea that only replicas that move count. Not here: who asks the
nodes (`pipeline/run/control_client.py`), the batch that waits (`pipeline/commit/replica_wait.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from standpipe.model import NodeId, Offset, ReplicaId
from standpipe.model_liveness import ReplicaLag

SILENT_S: Final = 3.0
STUCK_S: Final = 10.0
MINUTE_S: Final = 60.0
#: Of a minute, spent in waits at most. With half, a standby that ran a tenth of the time was beyond
#: the bound as soon as Spark made twice what it took.
WAITED_SHARE_MAX: Final = 0.75


class LagBound(NamedTuple):
    """How far a replica may fall behind, in records of its partition and in ms; 0: no bound.

    `wait_s_max`: how long one batch waits at most.
    """

    records: int
    ms: int
    wait_s_max: float

    @property
    def is_set(self) -> bool:
        """Whether any batch may have to wait."""
        return self.records > 0 or self.ms > 0

    def batch_records_max(self, configured: int) -> int:
        """Source records of one batch. `configured`: the limit without a bound."""
        return min(configured, max(1, self.records // 2)) if self.records else configured


class Behind(NamedTuple):
    """The replica that is furthest behind, as a part of the bound: 1.0 is at the bound."""

    part: float
    node: NodeId
    partition: int
    records: int
    ms: int | None

    def text(self, bound: LagBound) -> str:
        """For the status of the query."""
        told = f"{self.records} records" if bound.records else ""
        if bound.ms and self.ms is not None:
            told = f"{told}, {self.ms} ms" if told else f"{self.ms} ms"
        return f"the replica of partition {self.partition} on {self.node} is {told} behind"


@dataclass
class _Position:
    lag: ReplicaLag
    heard_s: float
    #: since when it has been behind without a move; None: it was at the end, or has just moved
    stuck_s: float | None


class ReplicaPositions:
    """What the nodes said of their replicas last."""

    def __init__(self) -> None:
        self._of: dict[tuple[NodeId, ReplicaId], _Position] = {}

    def take(self, node: NodeId, lags: Iterable[ReplicaLag], now_s: float) -> None:
        """A node's answer: all of its replicas that count. One that it does not name is gone."""
        named = {(node, lag.replica_id): lag for lag in lags}
        for gone in [each for each in self._of if each[0] == node and each not in named]:
            del self._of[gone]
        for place, lag in named.items():
            known = self._of.get(place)
            has_moved = known is None or known.lag.position != lag.position
            stuck_s = None if has_moved or known is None else known.stuck_s
            self._of[place] = _Position(lag, now_s, stuck_s)

    def furthest_behind(
        self, table: tuple[str, int], ends: Mapping[int, int], bound: LagBound, now_s: float
    ) -> Behind | None:
        """Of the replicas of a table that count; None: none does. `table`: its id and generation;
        `ends`: {partition: end of what is committed}."""
        found: Behind | None = None
        for (node, replica), position in self._of.items():
            if (replica.table_id, replica.generation) != table:
                continue
            behind = _behind(node, position, Offset(ends.get(replica.partition, 0)), bound, now_s)
            if behind is not None and (found is None or behind.part > found.part):
                found = behind
        return found


def _behind(
    node: NodeId, position: _Position, end: Offset, bound: LagBound, now_s: float
) -> Behind | None:
    lag = position.lag
    records = max(0, end - lag.position)
    if not records:
        position.stuck_s = None
    elif position.stuck_s is None:
        position.stuck_s = now_s
    if now_s - position.heard_s > SILENT_S:
        return None
    if position.stuck_s is not None and now_s - position.stuck_s > STUCK_S:
        return None
    ms = lag.replica_lag_ms
    parts = [records / bound.records if bound.records else 0.0]
    if bound.ms and ms is not None and records:
        parts.append((ms + (now_s - position.heard_s) * 1000) / bound.ms)
    return Behind(max(parts), node, lag.partition, records, ms)


#: parts of the bound at which a wait begins and ends
BEGIN: Final = 0.5
END: Final = 0.25


@dataclass
class Pressure:
    """The waits of one query. Call `begin` at the start of a batch, then `holds` until it is
    False."""

    bound: LagBound
    #: which replica the batches wait for, or waited for last; None: they do not wait
    behind: Behind | None = None
    _began_s: float = 0.0
    #: whether this batch has waited
    _has_held: bool = False
    #: (start, end) of the waits of the last minute
    _waits: deque[tuple[float, float]] = field(default_factory=deque[tuple[float, float]])

    def begin(self, now_s: float) -> None:
        """A batch begins."""
        self._began_s, self._has_held = now_s, False

    def holds(self, furthest: Behind | None, now_s: float) -> bool:
        """Whether the batch waits on. `furthest`: as of `ReplicaPositions.furthest_behind`."""
        limit = END if self.behind is not None else BEGIN
        if furthest is None or furthest.part <= limit:
            self.behind = None
        else:
            self.behind = furthest
            if now_s - self._began_s < self._left_s(now_s):
                self._has_held = True
                return True
        if self._has_held:
            self._waits.append((self._began_s, now_s))
        return False

    def _left_s(self, now_s: float) -> float:
        """How long this batch may wait, from its begin."""
        since_s = now_s - MINUTE_S
        while self._waits and self._waits[0][1] <= since_s:
            self._waits.popleft()
        waited_s = sum(end - max(start, since_s) for start, end in self._waits)
        return min(self.bound.wait_s_max, MINUTE_S * WAITED_SHARE_MAX - waited_s)
