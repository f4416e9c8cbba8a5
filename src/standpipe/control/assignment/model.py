"""What is placed, on which nodes and under which rules: the planner's own view of the cluster.

These are not the records of `standpipe.model`: those are logged, these are for planning. A
`PlanNode` has no addresses, and capacity 0 if it drains; `HeldCopies` is a `Placement` without key;
`PlanRules` adds this leader's own limit to the logged `PlacementRules`. `from_catalog.py`
translates in both directions.

Not here: the plan (`plan.py`), and the steps towards it (`rebalance.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from standpipe.model import NodeId


class PlanNode(msgspec.Struct, frozen=True):
    """A node that may hold copies (`NodeInfo`). A node that is gone is not in the input."""

    node_id: NodeId
    tags: Mapping[str, str] = {}
    #: weight, > 0. 0 = draining: it must end up empty, and serves until others are ready
    capacity: int = 1
    #: client.rack: the only dimension of the spread if no tag is named
    rack: str = ""


class TablePartition(msgspec.Struct, frozen=True, order=True):
    """What is placed: one partition of one generation of a table. Ordered by its fields.

    On a node it is a replica (`ReplicaId`); here it has no node yet.
    """

    table_id: str
    generation: int
    partition: int
    #: False: nothing on disk, e.g. a lease. One holder, no standby, and moving it is free
    stateful: bool = True


class PlanRules(msgspec.Struct, frozen=True):
    """The logged rules (`PlacementRules`) and the planning leader's recovery lag."""

    #: rack.aware.assignment.tags; their order only breaks ties (`spread.py`)
    rack_aware_tags: tuple[str, ...] = ()
    #: standpipe.rack.aware.forced: tag -> values that count whether or not a node has them
    forced: Mapping[str, Collection[str]] = {}
    #: acceptable.recovery.lag, records, inclusive; None: any copy may become active (KIP-441)
    acceptable_lag_records: int | None = 10_000


DEFAULT_RULES: Final = PlanRules()

#: table partition -> its nodes, the active first
Replicas = Mapping[TablePartition, tuple[NodeId, ...]]


class HeldCopies(msgspec.Struct, frozen=True):
    """The copies of one table partition, as committed (`Placement` without its key)."""

    #: active first, then standbys in order of promotion
    replicas: tuple[NodeId, ...] = ()
    #: copies beyond the wanted number; each will replace one of `replicas`
    warmups: tuple[NodeId, ...] = ()

    @property
    def active(self) -> NodeId | None:
        """The node that reads go to first; None: there is no copy."""
        return self.replicas[0] if self.replicas else None

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """All nodes that keep a copy, warm-ups included."""
        return (*self.replicas, *self.warmups)


Holdings = Mapping[TablePartition, HeldCopies]
