"""What the sender of a forward says beside the query, and what its target makes of that. Pure.

The target answers from its own store or refuses with a reason: it holds the rows to the table id,
generation and partition that the sender means, and its lag to the furthest committed end that the
sender knows. What the assignment epoch is for: `node.worker.pull.refusals.with_map`.

A time is not compared: the clocks of two hosts differ, and when a request came in is not known to a
process that stood still meanwhile. What is known is whether its sender still waits: it closes the
connection when its time is over, and `adapters.http.server` looks at that.

Not here: headers (`node.worker.pull.forward` writes them, `node.worker.routes` reads them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from standpipe.control.liveness.lag import offset_lag
from standpipe.control.routing.route import Bounds
from standpipe.model import NodeId, Offset, Placement, ReplicaId, ReplicaStatus, Source
from standpipe.node.worker.pull.forward import Refused
from standpipe.node.worker.request.bodies import Form

Placed = Mapping[ReplicaId, Placement]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a forwarding node says beside the query. Such a read is answered here or refused."""

    partition: int | None = None
    table: str = ""  # `<table id>-<generation>`; empty: not said
    timeout_ms: int | None = None  # what is left of the client's patience
    assignment_epoch: int | None = None  # of the map that the sender goes by
    committed_end: Offset | None = None  # furthest that the sender knows, where a lag is bounded
    working_ms: int | None = None  # how often the sender of a scan wants a sign of work


@dataclass(frozen=True)
class Ask:
    """How the head of a request wants it: the layout, and the terms of a forward."""

    form: Form
    terms: Terms | None = None
    #: response head up to the freshness headers
    head: bytes = field(init=False)

    def __post_init__(self) -> None:
        line = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\n" % self.form.value
        object.__setattr__(self, "head", line)


def table_name(source: Source) -> str:
    return f"{source.table_id}-{source.generation}"


def check(terms: Terms, source: Source, held: Sequence[int]) -> None:
    """Raises Refused when the two nodes mean different tables or count partitions differently.

    `held`: partitions that hold keys of the query, as this node counts.
    """
    if terms.timeout_ms is not None and terms.timeout_ms <= 0:
        raise Refused("The request came too late: its time was over.")
    if terms.partition is not None and terms.partition not in held:
        why = f"NOT_OWNER: no key of the query is in partition {terms.partition}."
        raise Refused(why, is_not_owner=True)
    if terms.table and terms.table != table_name(source):
        why = f"NOT_OWNER: {source.name} is {table_name(source)} here, not {terms.table}."
        raise Refused(why, is_not_owner=True)


def owners(terms: Terms, source: Source, held: Sequence[int], placed: Placed) -> Sequence[NodeId]:
    """Who holds what a forward asked for, by this node's map; empty: the map knows no such thing.

    `held`: as of `check`; `placed`: this node's map.
    """
    partition = terms.partition if terms.partition is not None else next(iter(held), -1)
    try:
        asked = ReplicaId.parse(f"{terms.table or table_name(source)}-{partition}")
    except ValueError:
        return ()
    placement = placed.get(asked)
    return placement.replicas if placement is not None else ()


def furthest(terms: Terms | None, heard_end: Offset) -> Offset:
    """Committed end that others know: who reported to this node, and the sender of a forward."""
    told = terms.committed_end if terms is not None else None
    return heard_end if told is None else max(told, heard_end)


def lag_beyond(terms: Terms | None, status: ReplicaStatus, bounds: Bounds) -> int | None:
    """A lag that exceeds the bound by what the sender of a forward knows; None: it does not."""
    if terms is None or terms.committed_end is None:
        return None
    lag = offset_lag((terms.committed_end,), status.position)
    return lag if lag is not None and lag > bounds.lag_records_max else None
