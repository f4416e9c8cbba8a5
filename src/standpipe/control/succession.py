"""When reads move to a table's next generation: pure.

A generation that is built beside another one has caught up when a batch of its query took all that
there was (its backlog is 0), and a replica of each of its partitions shows that batch, on every
node that lives and keeps one. Then one command moves reads, all at once on each node that applies
it. Until then, and where anything of this is not known, reads stay where they are.

Source: ksqlDB has no such thing (CREATE OR REPLACE changes a query in place or is refused). Not
here: what the command changes (`source_changes.switch_table`), who looks (`node.leading`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from standpipe.control.assignment import TablePartition
from standpipe.control.catalog import Catalog, SwitchTable
from standpipe.control.lag import offset_lag
from standpipe.control.placement import Heard
from standpipe.model import (
    NO_BATCH,
    BatchId,
    Offset,
    QueryStatus,
    ReplicaLag,
    ReplicaState,
    Source,
)


def due(catalog: Catalog, statuses: Mapping[str, QueryStatus], heard: Heard) -> SwitchTable | None:
    """The first table whose next generation can take over; None: there is none."""
    for successor in catalog.successors.values():
        query_id = successor.query_id or ""
        status, lease = statuses.get(query_id), catalog.leases.get(query_id)
        if status is None or lease is None or status.lease_epoch != lease.lease_epoch:
            continue  # who said it does not write the query any more
        if status.state != "RUNNING" or status.backlog_records != 0 or status.batch == NO_BATCH:
            continue
        if _is_shown(successor, status.batch, catalog, heard):
            return SwitchTable(name=successor.name, generation=successor.generation)
    return None


def _is_shown(successor: Source, batch: BatchId, catalog: Catalog, heard: Heard) -> bool:
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
    """The largest committed end that any copy of a partition knows."""
    return max((lag.committed_end for lag in lags if lag is not None), default=Offset(-1))


def _shows(lag: ReplicaLag, batch: BatchId, end: Offset) -> bool:
    """A replica that was made from a compacted topic does not know its batch, only its end."""
    if lag.state is not ReplicaState.RUNNING:
        return False
    if lag.batch != NO_BATCH:
        return lag.batch >= batch  # one that has not heard of the batch would seem to be at its end
    return offset_lag((end,), lag.position) == 0
