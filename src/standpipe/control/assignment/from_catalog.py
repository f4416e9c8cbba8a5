"""The planner's input, from the catalog and from what a node has observed of the cluster.

    Catalog ────────────┐
                        ├─► problem ─► rebalance ─► Step ─► CommitAssignment, if anything changes
    ClusterObservation ─┘

A silent node is away, but not yet gone: it keeps its copies until `gone_after_ms`, but its lags
count as unknown, so another copy is the active meanwhile. While too little is known (the leader has
just been elected), owners stay and only partitions without any holder are placed.

Not here: clocks, reports, commits (`node.controller.leader`); where copies should be (`plan.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from standpipe.control.assignment.model import (
    DEFAULT_RULES,
    HeldCopies,
    Holdings,
    PlanNode,
    PlanRules,
    TablePartition,
)
from standpipe.control.assignment.readiness import BadReport, Lag, Lags
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
    Source,
)
from standpipe.model_liveness import ReplicaLag


class MoveLimits(msgspec.Struct, frozen=True):
    """The leader's own settings. Not logged: a leader with other settings moves nothing back."""

    acceptable_lag_records: int | None = DEFAULT_RULES.acceptable_lag_records
    throttle: Throttle = DEFAULT_THROTTLE
    #: silence after which a node's copies are rebuilt elsewhere
    gone_after_ms: int = 600_000


DEFAULT_LIMITS: Final = MoveLimits()


class ClusterObservation(msgspec.Struct, frozen=True):
    """What one node has observed of the cluster at one instant."""

    #: node without heartbeats -> how long it has been silent
    away_ms: Mapping[NodeId, int] = {}
    #: node -> its report of its copies; only nodes whose report is complete
    reports: Mapping[NodeId, Mapping[TablePartition, ReplicaLag]] = {}
    #: node -> copies that recently reported to be at their end (`Ledger.current`)
    current: Mapping[NodeId, AbstractSet[TablePartition]] = {}
    #: the furthest committed ends, from reports of any age
    ends: Mapping[TablePartition, Offset] = {}


class Problem(msgspec.Struct, frozen=True):
    """The input of `rebalance.rebalance`: all that a step depends on."""

    cluster: Cluster
    current: Holdings
    standby_count: int
    rules: PlanRules
    throttle: Throttle

    @property
    def size(self) -> int:
        """Grows with the amount of work."""
        return len(self.cluster.nodes) * len(self.cluster.partitions)

    def solve(self) -> Step:
        """Plan, and take the next step towards the plan."""
        return rebalance(self.cluster, self.current, self.standby_count, self.rules, self.throttle)


def problem(
    catalog: Catalog, heard: ClusterObservation, limits: MoveLimits = DEFAULT_LIMITS
) -> Problem:
    """What has to be placed, on which nodes, and how far each copy has caught up."""
    rules_logged = catalog.placement_rules or PlacementRules()
    rules = PlanRules(
        rack_aware_tags=rules_logged.rack_aware_tags,
        forced=rules_logged.forced,
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
    return Problem(cluster, current, rules_logged.standby_count, rules, limits.throttle)


def members(
    catalog: Catalog, heard: ClusterObservation, gone_after_ms: int
) -> tuple[PlanNode, ...]:
    """Nodes that may hold copies; those that drain have no capacity. A tag named `rack` is a
    node's rack where client.rack is not set."""
    return tuple(
        PlanNode(
            node.node_id,
            node.tags,
            capacity=0 if node.node_id in catalog.draining else node.capacity,
            rack=node.rack or node.tags.get("rack", ""),
        )
        for node in catalog.nodes.values()
        if heard.away_ms.get(node.node_id, 0) < gone_after_ms
    )


def command(catalog: Catalog, step: Step) -> CommitAssignment | None:
    """The command that commits a step; None: its holdings are already committed."""
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


def still_fits(then: Catalog, now: Catalog) -> bool:
    """Whether a step that was computed from one catalog may be committed in a newer one. A table
    that was added meanwhile is placed by the next step; one that is gone must not be placed."""

    def basis(catalog: Catalog) -> object:
        rules = catalog.placement_rules
        return (catalog.assignment.epoch, catalog.nodes, catalog.draining, rules)

    return basis(then) == basis(now) and _placed_tables(then) <= _placed_tables(now)


def _placed_tables(catalog: Catalog) -> set[tuple[str | None, int]]:
    return {(s.table_id, s.generation) for s in catalog.generations if s.is_materialized}


def unplaced(catalog: Catalog, query_id: str | None) -> Source | None:
    """The table that a query writes, if a partition of it has no replicas; else None."""
    for source in catalog.generations:
        if query_id is None or source.query_id != query_id or not source.is_materialized:
            continue
        placed = {
            each.partition
            for each in catalog.assignment.placements
            if (each.table_id, each.generation) == (source.table_id, source.generation)
        }
        return None if len(placed) >= source.partitions else source
    return None


def holdings(assignment: Assignment) -> dict[TablePartition, HeldCopies]:
    """Which nodes hold which copies, as committed."""
    return {
        TablePartition(each.table_id, each.generation, each.partition): HeldCopies(
            each.replicas, each.warmups
        )
        for each in assignment.placements
    }


# --------------------------------------------------------------------------------------- lags


def _lags(current: Holdings, heard: ClusterObservation, limit: int | None) -> Lags:
    """Of holders only: leftovers on the disks of other nodes are not looked for."""
    return {
        partition: {node: _lag(partition, node, held, heard, limit) for node in held.nodes}
        for partition, held in current.items()
    }


def _lag(
    partition: TablePartition,
    node: NodeId,
    held: HeldCopies,
    heard: ClusterObservation,
    limit: int | None,
) -> Lag:
    """What is not a number is never promoted: a copy must answer, and on a node that is there."""
    reports = heard.reports.get(node)
    if reports is None or node in heard.away_ms:
        return BadReport.UNKNOWN
    report = reports.get(partition)
    if report is None or report.state is ReplicaState.ABSENT:
        return BadReport.NOTHING
    lag = offset_lag(_ends(partition, node, held, heard), report.position)
    if report.state is ReplicaState.BOOTSTRAP:
        # No whole batch: it cannot answer, however little it still has to read. Return a number
        # anyway, so that a young table keeps the owner that it was given.
        return max(lag or 0, 0 if limit is None else limit + 1)
    return lag if lag is not None and report.state.answers else BadReport.UNKNOWN


def _ends(
    partition: TablePartition, node: NodeId, held: HeldCopies, heard: ClusterObservation
) -> list[Offset]:
    """The ends against which a copy's lag is measured."""
    if partition in heard.current.get(node, ()):
        return [heard.reports[node][partition].committed_end]  # the others' may be newer
    told = (heard.reports.get(holder, {}).get(partition) for holder in held.nodes)
    return [heard.ends.get(partition, NO_END), *(lag.committed_end for lag in told if lag)]


def _sizes(heard: ClusterObservation) -> dict[TablePartition, int]:
    """Bytes of the largest copy of each partition: what a move costs at most."""
    sizes: dict[TablePartition, int] = {}
    for reports in heard.reports.values():
        for partition, report in reports.items():
            sizes[partition] = max(sizes.get(partition, 0), report.store_bytes)
    return sizes
