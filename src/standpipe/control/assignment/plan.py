"""Which node should hold which table partition: a pure function of the cluster and its history.

Read `plan` from top to bottom. Each goal has its own module:
  actives.py         each node's share of the actives, with the fewest moves
  standbys.py        copies as far apart as the tags allow
  balance.py         nodes equally full
  first_standbys.py  the work of a lost node spread over the others
A goal that cannot be met is reported as a `Violation`; nothing here fails, waits, or depends on
the order of its input (KIP-708: an assignment that is not ideal is still an assignment).

Not here: the rule that a copy must catch up before it may be the active (`rebalance.py` takes the
steps). Why: DESIGN.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from standpipe.control.assignment.actives import NO_NODE, ActiveWork, choose_actives
from standpipe.control.assignment.balance import level
from standpipe.control.assignment.first_standbys import overloaded_successors, spread_takeovers
from standpipe.control.assignment.model import (
    DEFAULT_RULES,
    PlanNode,
    PlanRules,
    Replicas,
    TablePartition,
)
from standpipe.control.assignment.racks import Place, copies_per_value_max, places
from standpipe.control.assignment.readiness import BadReport, Lags, is_caught_up
from standpipe.control.assignment.spread import UNKNOWN, Spread
from standpipe.control.assignment.standbys import Copies, StandbyWork, place_standbys
from standpipe.model import NodeId

#: rounds of levelling and of spreading takeovers; small clusters need two
ROUNDS_MAX: Final = 10


class Goal(StrEnum):
    """A goal that a plan can fail to meet."""

    COPIES = "copies"  # fewer copies than asked for
    SPREAD = "spread"  # two copies share a value of a tag
    FORCED = "forced"  # a copy left out because forced awareness keeps its place free
    BALANCE = "balance"  # nodes are not equally full
    FAILOVER = "failover"  # the loss of a node would fall on too few others


class Violation(msgspec.Struct, frozen=True):
    """A goal that was not met, and why. `partition` None: it is about nodes."""

    wish: Goal
    why: str
    partition: TablePartition | None = None


class Plan(msgspec.Struct, frozen=True):
    """Where copies should be once all of them have caught up."""

    replicas: Replicas
    unmet: tuple[Violation, ...] = ()


def assign(
    nodes: Iterable[PlanNode],
    partitions: Iterable[TablePartition],
    previous: Replicas,
    standby_count: int,
) -> dict[TablePartition, tuple[NodeId, ...]]:
    """Holders of each table partition, the active first; shorter where nodes are too few."""
    return dict(plan(nodes, partitions, previous, standby_count).replicas)


def plan(
    nodes: Iterable[PlanNode],
    partitions: Iterable[TablePartition],
    previous: Replicas,
    standby_count: int,
    *,
    rules: PlanRules = DEFAULT_RULES,
    lags: Lags | None = None,
    actives: Mapping[TablePartition, NodeId] | None = None,
    begun: Replicas | None = None,
) -> Plan:
    """The placement to aim for. `lags` only tell which copies are ready; they never rank nodes.

    `actives`: actives that are already settled; those partitions only get standbys.
    `begun`: warm-ups of an earlier plan, among `previous`. They are preferred to other copies;
    otherwise equally good plans could alternate and none would be reached.
    Partitions without state (`TablePartition.stateful`) go to the nodes with fewer actives.
    """
    everything = sorted(set(partitions))
    able = sorted((n for n in nodes if n.capacity > 0), key=lambda n: n.node_id)
    stateful = _Problem(able, [p for p in everything if p.stateful], rules)
    stateless = _Problem(able, [p for p in everything if not p.stateful], rules)

    warming = stateful.rows(begun or {})
    holders = stateful.holders(previous, lags, warming)
    found = stateful.with_leftovers(holders, lags)
    chosen = stateful.indices(actives) if actives else stateful.actives(previous, found)
    copies = stateful.with_standbys(chosen, holders, standby_count, warming)
    replicas = stateful.named(copies.of)

    loads = [chosen.count(n) for n in range(len(able))] if stateless.partitions else []
    anywhere = [()] * len(stateless.partitions)
    alone = stateless.actives(previous, anywhere, loads)
    replicas.update(stateless.named([[n] if n != NO_NODE else [] for n in alone]))
    return Plan(replicas, tuple(_unmet(stateful, copies)))


def place_stateless(
    nodes: Iterable[PlanNode],
    partitions: Iterable[TablePartition],
    previous: Replicas,
    serving: Iterable[NodeId],
) -> dict[TablePartition, tuple[NodeId, ...]]:
    """One holder for each partition without state, in addition to the actives that nodes serve."""
    able = sorted((n for n in nodes if n.capacity > 0), key=lambda n: n.node_id)
    problem = _Problem(able, sorted({p for p in partitions if not p.stateful}), DEFAULT_RULES)
    loads = [0] * len(able)
    for node_id in serving:
        if node_id in problem.index:
            loads[problem.index[node_id]] += 1
    alone = problem.actives(previous, [()] * len(problem.partitions), loads)
    return problem.named([[n] if n != NO_NODE else [] for n in alone])


# ------------------------------------------------------- from names to indices, and back


@dataclass(frozen=True, slots=True)
class _Grid:
    """The nodes' tag values, as codes: nodes with equal values share a corner."""

    names: tuple[str, ...]
    corners: list[tuple[int, ...]]
    corner_of: list[int]
    nodes_of_corner: list[int]
    limits: list[int | None]


class _Problem:
    """Nodes and partitions as indices, in the order of their ids."""

    def __init__(
        self, nodes: Sequence[PlanNode], partitions: Sequence[TablePartition], rules: PlanRules
    ) -> None:
        self.nodes = nodes
        self.partitions = partitions
        self.rules = rules
        self.index = {node.node_id: i for i, node in enumerate(nodes)}
        self.capacities = [node.capacity for node in nodes]

    def indices(self, actives: Mapping[TablePartition, NodeId]) -> list[int]:
        return [
            self.index.get(actives[p], NO_NODE) if p in actives else NO_NODE
            for p in self.partitions
        ]

    def named(self, rows: Sequence[Sequence[int]]) -> dict[TablePartition, tuple[NodeId, ...]]:
        ids = [node.node_id for node in self.nodes]
        return {p: tuple(ids[n] for n in row) for p, row in zip(self.partitions, rows, strict=True)}

    def rows(self, named: Replicas) -> list[list[int]]:
        """partition -> its nodes that may hold copies."""
        return [
            [self.index[n] for n in named.get(p, ()) if n in self.index] for p in self.partitions
        ]

    def holders(
        self, previous: Replicas, lags: Lags | None, begun: Sequence[Collection[int]]
    ) -> list[list[int]]:
        """partition -> nodes that it is assigned to: begun warm-ups, then caught-up ones."""
        rows: list[list[int]] = []
        for partition, row, first in zip(self.partitions, self.rows(previous), begun, strict=True):
            ready = self._ready(partition, lags)
            in_front = [n for n in row if n in first]
            rest = [n for n in row if n not in first]
            behind = [n for n in rest if n not in ready]
            rows.append([*in_front, *(n for n in rest if n in ready), *behind])
        return rows

    def with_leftovers(
        self, holders: Sequence[Sequence[int]], lags: Lags | None
    ) -> list[Sequence[int]]:
        """... and for a partition without any, the nodes whose disk has a copy that caught up.

        Copies that are not assigned are used for nothing else: leftovers of old assignments
        would attract copies.
        """
        return [
            row or sorted(self._ready(partition, lags))
            for partition, row in zip(self.partitions, holders, strict=True)
        ]

    def _ready(self, partition: TablePartition, lags: Lags | None) -> set[int]:
        limit = self.rules.acceptable_lag_records
        reports = lags.get(partition) if lags is not None else None
        return {
            self.index[node]
            for node, lag in (reports or {}).items()
            if node in self.index and lag is not BadReport.NOTHING and is_caught_up(lag, limit)
        }

    def actives(
        self,
        previous: Replicas,
        holders: Sequence[Sequence[int]],
        loads: Sequence[int] | None = None,
    ) -> list[int]:
        tables: dict[tuple[str, int], int] = {}
        for p in self.partitions:
            tables.setdefault((p.table_id, p.generation), len(tables))
        work = ActiveWork(
            capacities=self.capacities,
            tables=[tables[p.table_id, p.generation] for p in self.partitions],
            owners=[
                self.index.get(previous[p][0], NO_NODE) if previous.get(p) else NO_NODE
                for p in self.partitions
            ],
            holders=holders,
            loads=loads or [0] * len(self.nodes),
        )
        return choose_actives(work)

    def with_standbys(
        self,
        actives: Sequence[int],
        holders: Sequence[Sequence[int]],
        standby_count: int,
        begun: Sequence[Collection[int]],
    ) -> Copies:
        copies_max = min(len(self.nodes), 1 + standby_count)
        grid = self.grid(copies_max)
        work = StandbyWork(
            capacities=self.capacities,
            corners=grid.corner_of,
            spread=Spread(grid.corners, grid.nodes_of_corner, copies_max, grid.limits),
            actives=actives,
            holders=holders,
            standby_count=standby_count,
            begun=begun,
        )
        copies = place_standbys(work)
        level(copies)
        for _ in range(ROUNDS_MAX):
            # A change by one can make room for the other. They never cycle, since the sum of
            # squared loads does not grow in one and falls in the other.
            if not spread_takeovers(copies):
                break
            level(copies)
        return copies

    def grid(self, copies: int) -> _Grid:
        forced = [tag for tag in self.rules.forced if tag not in self.rules.rack_aware_tags]
        names = (*self.rules.rack_aware_tags, *sorted(forced))
        rows = places([(node.tags, node.rack) for node in self.nodes], names)
        names = names or ("rack",) * (len(rows[0]) if rows else 0)
        kept = [d for d, name in enumerate(names) if not self._is_idle(name, [r[d] for r in rows])]
        codes = [sorted({v for r in rows if (v := r[d]) is not None}) for d in kept]
        coded = [
            tuple(
                UNKNOWN if (value := row[d]) is None else values.index(value)
                for d, values in zip(kept, codes, strict=True)
            )
            for row in rows
        ]
        corners = sorted(set(coded))
        corner_of = [corners.index(code) for code in coded]
        return _Grid(
            names=tuple(names[d] for d in kept),
            corners=corners,
            corner_of=corner_of,
            nodes_of_corner=[corner_of.count(c) for c in range(len(corners))],
            limits=[self._limit(names[d], [r[d] for r in rows], copies) for d in kept],
        )

    def _is_idle(self, name: str, values: Place | list[str | None]) -> bool:
        """Whether each node has a different value: copies then differ there wherever they are.
        (Without this, a tag like `host` would make each node a corner and the search slow.)"""
        return (
            None not in values
            and len(set(values)) == len(values)
            and (name not in self.rules.forced)
        )

    def _limit(self, name: str, values: list[str | None], copies: int) -> int | None:
        if name not in self.rules.forced:
            return None
        present = {value for value in values if value is not None}
        return copies_per_value_max(copies, self.rules.forced[name], present)


# ---------------------------------------------------------------- what could not be had


def _unmet(problem: _Problem, copies: Copies) -> list[Violation]:
    wanted = 1 + copies.work.standby_count
    grid = problem.grid(min(len(problem.nodes), wanted))
    found: list[Violation] = []
    seen: dict[tuple[int, ...], list[tuple[Goal, str]]] = {}
    for partition, row in zip(problem.partitions, copies.of, strict=True):
        corners = tuple(sorted(grid.corner_of[n] for n in row))
        if corners not in seen:
            seen[corners] = [*_missing(problem, grid, len(row), wanted), *_shared(grid, corners)]
        found += [Violation(wish, why, partition) for wish, why in seen[corners]]
    return found + _unmet_between_nodes(problem, copies)


def _missing(problem: _Problem, grid: _Grid, count: int, wanted: int) -> list[tuple[Goal, str]]:
    if count >= wanted:
        return []
    if count >= len(problem.nodes):
        return [(Goal.COPIES, f"{count} of {wanted} copies: no other node can take one")]
    limits = ", ".join(
        f"{name} allows {limit} per value"
        for name, limit in zip(grid.names, grid.limits, strict=True)
        if limit is not None
    )
    return [
        (Goal.FORCED, f"{count} of {wanted} copies: {limits}, and no node with another value is up")
    ]


def _shared(grid: _Grid, corners: tuple[int, ...]) -> list[tuple[Goal, str]]:
    """For each tag, why the copies do not all differ."""
    reasons: list[tuple[Goal, str]] = []
    for d, name in enumerate(grid.names):
        values = {grid.corners[c][d] for c in corners} - {UNKNOWN}
        if len(values) >= len(corners):
            continue
        existing = len({corner[d] for corner in grid.corners} - {UNKNOWN})
        cause = (
            f"nodes carry only {existing}"
            if existing == len(values)
            else "more would cost another tag, or no such set contains the active's node"
        )
        reasons.append(
            (Goal.SPREAD, f"{name}: {len(values)} values for {len(corners)} copies; {cause}")
        )
    return reasons


def _unmet_between_nodes(problem: _Problem, copies: Copies) -> list[Violation]:
    found: list[Violation] = []
    nodes = range(len(problem.nodes))
    if nodes:
        name = [node.node_id for node in problem.nodes]
        full = max(nodes, key=lambda n: (copies.height(n), -n))
        empty = min(nodes, key=lambda n: (copies.height(n, 1), n))
        if copies.height(full) > copies.height(empty, 1):
            found.append(
                Violation(
                    Goal.BALANCE,
                    f"{name[full]} holds {copies.count[full]} copies, {name[empty]} "
                    f"{copies.count[empty]}: none can move without losing spread",
                )
            )
        found += [
            Violation(
                Goal.FAILOVER,
                f"after the loss of {name[lost]}, {name[successor]} would take over {count} "
                "actives: no change that helps keeps spread and balance",
            )
            for lost, successor, count in overloaded_successors(copies)
        ]
    return found
