"""Tables that are held: the generation that answers commits nothing while reads move to the next.

Otherwise reads could go back: the old generation would commit more batches while the switch is
decided, and a client that has read its newest batch would then read the next generation, which has
processed less. A held query gets a new lease epoch. The pipeline that holds its lease appends a
fence under that epoch, so that readers ignore later commits of other runs. It then knows what was
committed.

A hold belongs to one generation of one table, and is void without its successor. Not here:
when a table is held, and for how long (`control.assignment.switchover`); the fence
(`pipeline/run/held_query.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import CommandRejected, HoldTable
from standpipe.model import LeaseEpoch, QueryLease

#: {source topic: {partition: offset}}
Offsets = Mapping[str, Mapping[int, int]]


def hold(catalog: Catalog, command: HoldTable) -> Catalog:
    """The catalog after the command. Raises CommandRejected."""
    there, successor = catalog.sources.get(command.name), catalog.successors.get(command.name)
    if there is None or successor is None or successor.generation != command.generation:
        raise CommandRejected(f"{command.name} has no generation {command.generation} to hold for")
    table_id, query_id = there.table_id or "", there.query_id or ""
    others = {table: to for table, to in catalog.held.items() if table != table_id}
    if not command.is_held:
        return replace(catalog, held=others)
    held = {**others, table_id: command.generation}
    lease = catalog.leases.get(query_id)
    if lease is None:  # its first one is granted while it is held: nobody commits before
        return replace(catalog, held=held)
    epoch = LeaseEpoch(catalog.pipeline_epoch + 1)
    granted = QueryLease(pipeline_id=lease.pipeline_id, lease_epoch=epoch)
    leases = {**catalog.leases, query_id: granted}
    return replace(catalog, held=held, leases=leases, pipeline_epoch=epoch)


def held_queries(catalog: Catalog) -> frozenset[str]:
    """The queries that may commit nothing now."""
    return frozenset(
        there.query_id
        for name, successor in catalog.successors.items()
        if (there := catalog.sources.get(name)) is not None
        and there.query_id is not None
        and catalog.held.get(there.table_id or "") == successor.generation
    )


def covers(read: Offsets, floor: Offsets) -> bool:
    """Whether a generation that has read up to `read` has read all that is below `floor`, of the
    topics that it reads at all: a new statement may read others."""
    return all(
        read[topic].get(partition, 0) >= offset
        for topic, partitions in floor.items()
        if topic in read
        for partition, offset in partitions.items()
    )
