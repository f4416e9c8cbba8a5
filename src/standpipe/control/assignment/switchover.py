"""When reads move to a table's next generation. Pure.

A generation that is built beside another one has caught up when two things hold: a batch of its
query read all available input (its backlog is 0), and on every live node that keeps a replica, the
replica shows that batch. Then one command moves reads; each node switches when it applies it. Until
then, and while any of this is unknown, reads stay where they are.

Source: none. ksqlDB changes a query in place, or refuses CREATE OR REPLACE. Not here: what the
command changes (`control/metadata/apply.py`); the caller (`node/controller/leader.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from standpipe.control.assignment.from_catalog import ClusterObservation
from standpipe.control.assignment.model import TablePartition
from standpipe.control.liveness.lag import offset_lag
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import SwitchTable
from standpipe.model import NO_BATCH, BatchId, LeaseEpoch, Offset, QueryStatus, ReplicaState, Source
from standpipe.model_liveness import ReplicaLag


class Watch:
    """Called repeatedly. Of each query it keeps the first of consecutive batches that read all
    available input. With rare reports, no replica would ever show the newest such batch."""

    def __init__(self) -> None:
        self._caught_up: dict[tuple[str, LeaseEpoch], BatchId] = {}

    def due(
        self, catalog: Catalog, statuses: Mapping[str, QueryStatus], heard: ClusterObservation
    ) -> SwitchTable | None:
        """The first table whose next generation can take over; None: there is none."""
        before, self._caught_up = self._caught_up, {}
        found: SwitchTable | None = None
        for successor in catalog.successors.values():
            status = statuses.get(successor.query_id or "")
            if status is None or not _took_everything(status, catalog):
                continue
            query = (status.query_id, status.lease_epoch)
            batch = self._caught_up[query] = before.get(query, status.batch)
            if found is None and _is_shown(successor, batch, catalog, heard):
                found = SwitchTable(name=successor.name, generation=successor.generation)
        return found


def _took_everything(status: QueryStatus, catalog: Catalog) -> bool:
    lease = catalog.leases.get(status.query_id)
    if lease is None or status.lease_epoch != lease.lease_epoch:
        return False  # its sender no longer writes the query
    return (status.state, status.backlog_records) == ("RUNNING", 0) and status.batch != NO_BATCH


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
