"""Whether this node may answer a forwarded read, and from which committed end its lag counts. Pure.

The target of a forward answers from its own store or refuses with a reason. It checks that both
nodes mean the same table id, generation and partition, and it counts its lag against the furthest
committed end that either of them knows. An assignment epoch alone never causes a refusal
(`node.worker.pull.refusals.with_map`).

No instants are compared: the clocks of two hosts differ, and a process that was stopped does not
know when a request arrived. What the target can know is whether the sender still waits: a sender
closes the connection when its time is over, and `adapters.http.server` checks for that.

Not here: the headers (`node.worker.pull.forward_headers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from standpipe.control.liveness.lag import offset_lag
from standpipe.control.routing.bounds import Bounds
from standpipe.control.routing.route import BETWEEN_BATCHES
from standpipe.data.replica.positions import StoreMeta, replica_lag_ms, source_lag_ms
from standpipe.model import NodeId, Offset, Placement, ReplicaId, ReplicaStatus, Source
from standpipe.node.worker.pull.forward import ForwardRefused
from standpipe.node.worker.pull.forward_headers import ForwardHeaders
from standpipe.node.worker.request.answer import Freshness
from standpipe.sql.declarations.added_columns import count_added

_ADDED: Final = "+"


def table_name(source: Source) -> str:
    """`<table id>-<generation>`, as the table header says it; `+<n>` if n columns were added, since
    the answer of a node that knows fewer or more of them would not fit."""
    name, added = f"{source.table_id}-{source.generation}", count_added(source)
    return f"{name}{_ADDED}{added}" if added else name


def check(forward: ForwardHeaders, source: Source, partitions: Sequence[int]) -> None:
    """Raises ForwardRefused when the two nodes mean different tables or count partitions
    differently.

    `partitions`: those that hold keys of the query, as this node counts.
    """
    if forward.timeout_ms is not None and forward.timeout_ms <= 0:
        raise ForwardRefused("The request arrived after its deadline.")
    if forward.partition is not None and forward.partition not in partitions:
        why = f"NOT_OWNER: no key of the query is in partition {forward.partition}."
        raise ForwardRefused(why, is_not_owner=True)
    if forward.table and forward.table != table_name(source):
        why = f"NOT_OWNER: {source.name} is {table_name(source)} here, not {forward.table}."
        raise ForwardRefused(why, is_not_owner=True)


def check_answer(fresh: Freshness, bounds: Bounds) -> None:
    """Raises ForwardRefused when a target answered a bounded read with rows of no batch, or too old
    ones. One of an older release does: it judges rows by their lag in records."""
    if bounds.is_bounded and fresh.batch is None:
        raise ForwardRefused(BETWEEN_BATCHES)
    if why := bounds.late(fresh.replica_lag_ms, fresh.source_lag_ms):
        raise ForwardRefused(why)


def check_age(
    page: ReplicaStatus, rows: StoreMeta, bounds: Bounds, *, boot_ms: int, unix_ms: int
) -> None:
    """Raises ForwardRefused when this node's rows are too old, at an instant on both clocks."""
    source_ms = source_lag_ms(page, rows.source_instant_ms, now_ms=unix_ms, now_boot_ms=boot_ms)
    if why := bounds.late(replica_lag_ms(page, boot_ms), source_ms):
        raise ForwardRefused(why)


def owners(
    forward: ForwardHeaders,
    source: Source,
    partitions: Sequence[int],
    placements: Mapping[ReplicaId, Placement],
) -> Sequence[NodeId]:
    """Holders of what a forward asks for, the active first; empty: this node's map has no such
    replica.

    `partitions`: as of `check`; `placements`: this node's map.
    """
    partition = forward.partition if forward.partition is not None else next(iter(partitions), -1)
    try:
        named, _, _ = (forward.table or table_name(source)).partition(_ADDED)
        asked = ReplicaId.parse(f"{named}-{partition}")
    except ValueError:
        return ()
    placement = placements.get(asked)
    return placement.replicas if placement is not None else ()


def furthest(forward: ForwardHeaders | None, reported_end: Offset) -> Offset:
    """The furthest committed end that other nodes sent: in reports, and with this forward."""
    sent = forward.committed_end if forward is not None else None
    return reported_end if sent is None else max(sent, reported_end)


def excess_lag(forward: ForwardHeaders | None, status: ReplicaStatus, bounds: Bounds) -> int | None:
    """The lag in records against the sender's committed end, if it exceeds the bound; else None.

    `SlowPath._here_only` refuses the forwarded read by it (KLIP-12). The target counts from its own
    position, which is newer than the one that the sender knows. All other checks and the reported
    lag use the end from `furthest`.
    """
    if forward is None or forward.committed_end is None:
        return None
    lag = offset_lag((forward.committed_end,), status.position)
    return lag if lag is not None and lag > bounds.lag_records_max else None
