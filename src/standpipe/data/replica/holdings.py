"""Which replicas a node holds, according to the map that control publishes.

Not here: who answers reads (`control/routing/route.py`); opening anything (`node/tailer/main.py`).
"""

from __future__ import annotations

from standpipe.data.replica.positions import StoreIdentity
from standpipe.model import Record, Snapshot, Source
from standpipe.sql.stored import stored


class Holding(Record, frozen=True, kw_only=True):
    """A table partition that a node keeps a replica of."""

    source: Source
    identity: StoreIdentity

    @property
    def partition(self) -> int:
        return self.identity.partition

    @property
    def query_id(self) -> str:
        """Query that writes the table; only such tables have progress records."""
        assert self.source.query_id is not None, self.source.name
        return self.source.query_id


def holdings(snapshot: Snapshot) -> dict[StoreIdentity, Holding]:
    """Replicas of the snapshot's own node. A placement of an unknown table is passed over."""
    tables = {
        (source.table_id, source.generation): stored(source)
        for source in (*snapshot.sources, *snapshot.successors)
        if source.is_materialized and source.query_id is not None
    }
    held: dict[StoreIdentity, Holding] = {}
    for placement in snapshot.assignment.placements:
        source = tables.get((placement.table_id, placement.generation))
        if source is None or snapshot.node_id not in placement.holders:
            continue
        identity = StoreIdentity(
            table_id=placement.table_id,
            generation=placement.generation,
            partition=placement.partition,
        )
        held[identity] = Holding(source=source, identity=identity)
    return held
