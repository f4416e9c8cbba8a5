"""The next assignment of a catalog: its tables and nodes, and what was heard of the copies.

    Catalog ──┐
              ├─► problem ─► moves.rebalance ─► Step ─► CommitAssignment, if anything changes
    Heard   ──┘

Away is not gone: a node that is silent keeps its copies until `gone_after_ms`, but its lags count
as unknown, so another copy leads meanwhile. Where too little is known (a leader that has just been
elected), owners stay and only what nobody holds is placed.
Not here: clocks, reports, who commits (`node.controller.leader`); where copies should be
(`assignment`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from standpipe.control.assignment.model import DEFAULT_RULES, Held, Holdings, Node, Rules
from standpipe.control.assignment.plan import TablePartition
from standpipe.control.assignment.readiness import Lag, Lags, Report
from standpipe.control.assignment.rebalance import (
    DEFAULT_THROTTLE,
    Cluster,
    Step,
    Throttle,
    rebalance,
)
from standpipe.control.liveness.lag import NO_END, offset_lag
from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import CommitAssignment
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    NodeId,
    Offset,
    Placement,
    PlacementRules,
    ReplicaState,
)
from standpipe.model_liveness import ReplicaLag


class Limits(msgspec.Struct, frozen=True):
    """What the leader's own file says; not part of the rules, for it moves nothing to and fro."""

    acceptable_lag_records: int | None = DEFAULT_RULES.acceptable_lag_records
    throttle: Throttle = DEFAULT_THROTTLE
    #: silence after which a node's copies are made anew elsewhere
    gone_after_ms: int = 600_000


DEFAULT_LIMITS: Final = Limits()


class Heard(msgspec.Struct, frozen=True):
    """What one node knows of the cluster at one instant."""

    #: nodes that do not beat -> for how long
    away_ms: Mapping[NodeId, int] = {}
    #: node -> what it says of its copies; only nodes that have told everything
    reports: Mapping[NodeId, Mapping[TablePartition, ReplicaLag]] = {}
    #: node -> copies that were at their end of late, by their own word (`Ledger.current`)
    current: Mapping[NodeId, AbstractSet[TablePartition]] = {}
    #: the furthest committed ends, by reports of any age
    ends: Mapping[TablePartition, Offset] = {}


class Problem(msgspec.Struct, frozen=True):
    """The input of `moves.rebalance`: all that a step depends on."""

    cluster: Cluster
    current: Holdings
    standby_count: int
    rules: Rules
    throttle: Throttle

    @property
    def size(self) -> int:
        """Grows as the work does."""
        return len(self.cluster.nodes) * len(self.cluster.partitions)

    def solve(self) -> Step:
        """Plan, and take the next step towards the plan."""
        return rebalance(self.cluster, self.current, self.standby_count, self.rules, self.throttle)


def problem(catalog: Catalog, heard: Heard, limits: Limits = DEFAULT_LIMITS) -> Problem:
    """What has to be placed, on which nodes, and how far each copy is."""
    wished = catalog.placement_rules or PlacementRules()
    rules = Rules(
        rack_aware_tags=wished.rack_aware_tags,
        forced=wished.forced,
        acceptable_lag_records=limits.acceptable_lag_records,
    )
    current = holdings(catalog.assignment)
    partitions = tuple(
        TablePartition(source.table_id or "", source.generation, partition)
        for source in catalog.generations
        if source.is_materialized
        for partition in range(source.partitions)
    )
    cluster = Cluster(
        nodes=members(catalog, heard, limits.gone_after_ms),
        partitions=partitions,
        lags=_lags(current, heard, limits.acceptable_lag_records),
        sizes_bytes=_sizes(heard),
    )
    return Problem(cluster, current, wished.standby_count, rules, limits.throttle)


def members(catalog: Catalog, heard: Heard, gone_after_ms: int) -> tuple[Node, ...]:
    """Nodes that may hold copies; those that drain have no capacity. A tag named `rack` is a
    node's rack where client.rack is not set."""
    return tuple(
        Node(
            node.node_id,
            node.tags,
            capacity=0 if node.node_id in catalog.draining else node.capacity,
            rack=node.rack or node.tags.get("rack", ""),
        )
        for node in catalog.nodes.values()
        if heard.away_ms.get(node.node_id, 0) < gone_after_ms
    )


def command(catalog: Catalog, step: Step) -> CommitAssignment | None:
    """What commits a step; None: everything is as it says."""
    if step.holdings == holdings(catalog.assignment):
        return None
    placements = tuple(
        Placement(
            table_id=at.table_id,
            generation=at.generation,
            partition=at.partition,
            replicas=held.replicas,
            warmups=held.warmups,
        )
        for at, held in sorted(step.holdings.items())
    )
    epoch = AssignmentEpoch(catalog.assignment.epoch + 1)
    return CommitAssignment(assignment=Assignment(epoch=epoch, placements=placements))


def holdings(assignment: Assignment) -> dict[TablePartition, Held]:
    """Who holds what, as committed."""
    return {
        TablePartition(each.table_id, each.generation, each.partition): Held(
            each.replicas, each.warmups
        )
        for each in assignment.placements
    }


# --------------------------------------------------------------------------------------- lags


def _lags(current: Holdings, heard: Heard, limit: int | None) -> Lags:
    """Only holders are asked: what another node may have left on its disk is not looked for."""
    return {
        partition: {node: _lag(partition, node, held, heard, limit) for node in held.nodes}
        for partition, held in current.items()
    }


def _lag(
    partition: TablePartition, node: NodeId, held: Held, heard: Heard, limit: int | None
) -> Lag:
    reports = heard.reports.get(node)
    if reports is None or node in heard.away_ms:
        return Report.UNKNOWN
    report = reports.get(partition)
    if report is None or report.state is ReplicaState.ABSENT:
        return Report.NOTHING
    lag = offset_lag(_ends(partition, node, held, heard), report.position)
    if report.state is ReplicaState.BOOTSTRAP:
        # No whole batch: it cannot answer, however little it still has to read. A number all the
        # same, so that a young table keeps the owner that it was given.
        return max(lag or 0, 0 if limit is None else limit + 1)
    return lag if lag is not None and report.state.answers else Report.UNKNOWN


def _ends(partition: TablePartition, node: NodeId, held: Held, heard: Heard) -> list[Offset]:
    """Against which a copy's position counts."""
    if partition in heard.current.get(node, ()):
        return [heard.reports[node][partition].committed_end]  # the others' may be newer
    told = (heard.reports.get(holder, {}).get(partition) for holder in held.nodes)
    return [heard.ends.get(partition, NO_END), *(lag.committed_end for lag in told if lag)]


def _sizes(heard: Heard) -> dict[TablePartition, int]:
    """Bytes of the largest copy of each partition: what a move costs at the most."""
    sizes: dict[TablePartition, int] = {}
    for reports in heard.reports.values():
        for partition, report in reports.items():
            sizes[partition] = max(sizes.get(partition, 0), report.store_bytes)
    return sizes
