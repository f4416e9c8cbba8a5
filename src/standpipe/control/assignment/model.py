"""What is placed, on what, and under which rules: the input of plan.py and rebalance.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from standpipe.model import NodeId


class Node(msgspec.Struct, frozen=True):
    """A node that may hold copies. A node that is gone is simply not in the input."""

    node_id: NodeId
    tags: Mapping[str, str] = {}
    #: weight, > 0; 0 = draining: it must end up empty, and serves until others are ready
    capacity: int = 1
    #: client.rack: the one dimension of the spread where no tag is named
    rack: str = ""


class TablePartition(msgspec.Struct, frozen=True, order=True):
    """What is placed: one partition of one generation of a table. Ordered by its fields."""

    table_id: str
    generation: int
    partition: int
    #: False: nothing on disk (a lease, say); one holder, no standby, moves at will
    stateful: bool = True


class Rules(msgspec.Struct, frozen=True):
    """Cluster-wide settings that placement obeys; they live in the quorum."""

    #: rack.aware.assignment.tags; the order breaks ties only (see spread.py)
    rack_aware_tags: tuple[str, ...] = ()
    #: standpipe.rack.aware.forced: tag -> values that count whether or not a node of them is up
    forced: Mapping[str, Collection[str]] = {}
    #: acceptable.recovery.lag, records, inclusive; None: any copy may become active (KIP-441)
    acceptable_lag_records: int | None = 10_000


DEFAULT_RULES: Final = Rules()

#: table partition -> its nodes, the active first
Replicas = Mapping[TablePartition, tuple[NodeId, ...]]


class Held(msgspec.Struct, frozen=True):
    """Copies of one table partition as committed."""

    #: active first, then standbys in order of promotion
    replicas: tuple[NodeId, ...] = ()
    #: copies beyond the wanted number, on the way to replace one of `replicas`
    warmups: tuple[NodeId, ...] = ()

    @property
    def active(self) -> NodeId | None:
        return self.replicas[0] if self.replicas else None

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        return (*self.replicas, *self.warmups)


Holdings = Mapping[TablePartition, Held]
