"""Which replicas a node holds, according to the map that the controller publishes.

Not here: which replica answers (`control/routing/route.py`); opening it (`node/tailer/main.py`).
"""

from __future__ import annotations

from standpipe.model import Record, ReplicaId, Snapshot, Source
from standpipe.topics import DIRECT_TOMBSTONES_MS, TOMBSTONES_MS


class Holding(Record, frozen=True, kw_only=True):
    """A table partition of which a node keeps a replica."""

    source: Source
    replica_id: ReplicaId

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self.replica_id.partition

    @property
    def query_id(self) -> str:
        """Query that writes the table; only such tables have progress records. "": none does."""
        return self.source.query_id or ""

    @property
    def is_direct(self) -> bool:
        """Whether its topic is that of another program."""
        return bool(self.source.is_direct)

    @property
    def tombstones_ms(self) -> int:
        """For how long its topic is sure to keep tombstones."""
        return DIRECT_TOMBSTONES_MS if self.is_direct else TOMBSTONES_MS


def holdings(snapshot: Snapshot) -> dict[ReplicaId, Holding]:
    """Replicas on the snapshot's own node. A placement of an unknown table is skipped."""
    tables = {
        (source.table_id, source.generation): source.stored_form()
        for source in (*snapshot.sources, *snapshot.successors)
        if source.is_materialized and (source.query_id is not None or source.is_direct)
    }
    held: dict[ReplicaId, Holding] = {}
    for placement in snapshot.assignment.placements:
        source = tables.get((placement.table_id, placement.generation))
        if source is None or snapshot.node_id not in placement.holders:
            continue
        replica_id = placement.replica_id
        held[replica_id] = Holding(source=source, replica_id=replica_id)
    return held
