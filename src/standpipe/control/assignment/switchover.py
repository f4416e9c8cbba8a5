"""When reads move to a table's next generation. Pure.

A generation that is built beside another one has caught up when two things hold: a batch of its
query read all available input (its backlog is 0), and on every live node that keeps a replica, the
replica shows that batch. But the old generation has committed more batches meanwhile, and a client
may have read them. So it is held first (`control.metadata.holds`). Once its query reports all that
it committed, the *floor*, both conditions must hold of a batch that covers the floor. Then one
command moves reads; each node switches when it applies it. Until then, and while any of this is
unknown, reads stay where they are, and after HOLD_MS_MAX the hold ends.

Below feature level HOLDS nothing is held, and reads may go back by what was committed meanwhile.

Source: none. ksqlDB changes a query in place, or refuses CREATE OR REPLACE. Not here: what the
command changes (`control/metadata/apply.py`); the caller (`node/controller/leader.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from standpipe.control.assignment.from_catalog import ClusterObservation
from standpipe.control.assignment.model import TablePartition
from standpipe.control.liveness.lag import offset_lag
from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import HoldTable, SwitchTable
from standpipe.control.metadata.holds import Offsets, covers, held_queries
from standpipe.model import NO_BATCH, BatchId, LeaseEpoch, Offset, QueryStatus, ReplicaState, Source
from standpipe.model_liveness import ReplicaLag

#: for how long a table is held at most. Its rows grow older meanwhile; and how long until it is
#: held again if its next generation did not get there
HOLD_MS_MAX: Final = 30_000
HOLD_AGAIN_MS: Final = 120_000

Order = HoldTable | SwitchTable


class Watch:
    """Called repeatedly. Of each query it keeps the first of consecutive batches that are enough.
    With rare reports, no replica would ever show the newest such batch."""

    def __init__(self) -> None:
        self._enough: dict[tuple[str, LeaseEpoch, bool], BatchId] = {}
        #: table -> ms at which this leader saw it held, or released it
        self._held_ms: dict[str, int] = {}
        self._released_ms: dict[str, int] = {}

    def due(
        self,
        catalog: Catalog,
        statuses: Mapping[str, QueryStatus],
        heard: ClusterObservation,
        now_ms: int,
    ) -> Order | None:
        """The next step for a table whose next generation has caught up; None: there is none.
        `now_ms`: of any clock that does not jump."""
        before, self._enough = self._enough, {}
        self._held_ms = {name: at for name, at in self._held_ms.items() if _is_held(catalog, name)}
        found: Order | None = None
        for successor in catalog.successors.values():
            status = statuses.get(successor.query_id or "")
            floor = _floor(successor.name, catalog, statuses)
            is_held = _is_held(catalog, successor.name)
            is_enough = (
                status is not None
                and _is_written(status, catalog)
                and (_reaches(status, floor) if is_held else status.backlog_records == 0)
            )
            is_shown = False
            if status is not None and is_enough:
                query = (status.query_id, status.lease_epoch, is_held)
                batch = self._enough[query] = before.get(query, status.batch)
                is_shown = _is_shown(successor, batch, catalog, heard)
            if found is None:
                found = self._step(successor, catalog, floor, is_shown=is_shown, now_ms=now_ms)
        return found

    def _step(
        self,
        successor: Source,
        catalog: Catalog,
        floor: Offsets | None,
        *,
        is_shown: bool,
        now_ms: int,
    ) -> Order | None:
        name, to = successor.name, successor.generation
        if catalog.feature_level < feature_levels.HOLDS:
            return SwitchTable(name=name, generation=to) if is_shown else None
        if not _is_held(catalog, name):
            released_ms = self._released_ms.get(name, now_ms - HOLD_AGAIN_MS)
            may_hold = is_shown and now_ms - released_ms >= HOLD_AGAIN_MS
            return HoldTable(name=name, generation=to) if may_hold else None
        if is_shown and floor is not None:
            offsets = {topic: dict(partitions) for topic, partitions in floor.items()}
            return SwitchTable(name=name, generation=to, floor=offsets)
        if now_ms - self._held_ms.setdefault(name, now_ms) < HOLD_MS_MAX:
            return None
        self._released_ms[name] = now_ms
        return HoldTable(name=name, generation=to, is_held=False)


def _is_held(catalog: Catalog, name: str) -> bool:
    there = catalog.sources.get(name)
    return there is not None and there.query_id in held_queries(catalog)


def _is_written(status: QueryStatus, catalog: Catalog) -> bool:
    """Whether the query runs, and the pipeline that reported so holds its lease."""
    lease = catalog.leases.get(status.query_id)
    is_current = lease is not None and status.lease_epoch == lease.lease_epoch
    return is_current and status.state == "RUNNING" and status.batch != NO_BATCH


def _floor(name: str, catalog: Catalog, statuses: Mapping[str, QueryStatus]) -> Offsets | None:
    """Up to where the generation that answers has read, once nothing can change that; else None."""
    there = catalog.sources.get(name)
    status = statuses.get(there.query_id or "") if there is not None else None
    lease = None if status is None else catalog.leases.get(status.query_id)
    if status is None or lease is None or status.lease_epoch != lease.lease_epoch:
        return None  # said before it was held, or by a pipeline that may be fenced
    return status.covered if status.reason == "HELD" else None


def _reaches(status: QueryStatus, floor: Offsets | None) -> bool:
    return floor is not None and status.covered is not None and covers(status.covered, floor)


def _is_shown(
    successor: Source, batch: BatchId, catalog: Catalog, heard: ClusterObservation
) -> bool:
    """Whether each partition has a replica, and all that can be reached show the batch."""
    copies: dict[TablePartition, list[ReplicaLag | None]] = defaultdict(list)
    for placement in catalog.assignment.placements:
        if (placement.table_id, placement.generation) != _named(successor):
            continue
        partition = TablePartition(placement.table_id, placement.generation, placement.partition)
        for node in placement.replicas:
            if node not in heard.away_ms:
                copies[partition].append(heard.reports.get(node, {}).get(partition))
    return len(copies) == successor.partitions and all(
        all(lag is not None and _shows(lag, batch, _end(lags)) for lag in lags)
        for lags in copies.values()
    )


def _named(source: Source) -> tuple[str, int]:
    return (source.table_id or "", source.generation)


def _end(lags: Iterable[ReplicaLag | None]) -> Offset:
    """The largest committed end that any copy of a partition reported."""
    return max((lag.committed_end for lag in lags if lag is not None), default=Offset(-1))


def _shows(lag: ReplicaLag, batch: BatchId, end: Offset) -> bool:
    """A replica restored from a compacted topic does not know its batch, only its end."""
    if lag.state is not ReplicaState.RUNNING:
        return False
    if lag.batch != NO_BATCH:
        return lag.batch >= batch  # a copy that does not know the batch yet would seem at its end
    return offset_lag((end,), lag.position) == 0
