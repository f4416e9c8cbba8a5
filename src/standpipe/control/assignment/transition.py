"""One table partition on its way to the plan: its active, its standbys, and its warm-ups.

These are the rules of KIP-441 for a single partition. Not here: the throttle that all partitions
share (`rebalance.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from standpipe.control.assignment.model import HeldCopies, PlanNode, PlanRules, TablePartition
from standpipe.control.assignment.racks import Place, places
from standpipe.control.assignment.readiness import BadReport, Lag, Lags, catch_up_key, is_caught_up
from standpipe.model import NodeId

#: sets of standbys compared for one partition; with more than about five standbys, readiness alone
#: decides which copies serve during the transition
SETS_MAX: Final = 500


class Draft(msgspec.Struct, frozen=True):
    """Holdings of one partition before the throttle is applied."""

    partition: TablePartition
    goal: tuple[NodeId, ...]
    replicas: tuple[NodeId, ...]
    #: planned copies that are not among `replicas`: each needs a warm-up
    wanted: tuple[NodeId, ...]
    #: those of `wanted` that exist already
    begun: frozenset[NodeId]
    #: those of `wanted` that can each replace a copy without bringing copies closer together
    usable: frozenset[NodeId] = frozenset()


def on_nodes(held: HeldCopies, live: Collection[NodeId]) -> HeldCopies:
    """The copies that remain on these nodes; a warm-up is the active only if
    nothing else remains."""
    replicas = tuple(n for n in held.replicas if n in live)
    warmups = tuple(n for n in held.warmups if n in live)
    return HeldCopies(replicas, warmups) if replicas else HeldCopies(warmups)


class Transition:
    """Decisions for one partition at a time."""

    def __init__(
        self,
        nodes: Iterable[PlanNode],
        lags: Lags,
        rules: PlanRules,
        leaving_lag_records: int | None,
    ) -> None:
        ordered = sorted(nodes, key=lambda n: n.node_id)
        self.nodes = {node.node_id: node for node in ordered}
        stands = places([(node.tags, node.rack) for node in ordered], rules.rack_aware_tags)
        self._place: dict[NodeId, Place] = dict(zip(self.nodes, stands, strict=True))
        self._lags = lags
        self._limit = rules.acceptable_lag_records
        self._leaving = leaving_lag_records
        #: node -> unplanned actives assigned in this step, so that stand-ins are spread
        self._extra = dict.fromkeys(self.nodes, 0)

    def _lag(self, partition: TablePartition, node: NodeId) -> Lag:
        return self._lags.get(partition, {}).get(node, BadReport.NOTHING)

    def _ready(self, partition: TablePartition, node: NodeId) -> bool:
        return is_caught_up(self._lag(partition, node), self._limit)

    def draft(
        self, partition: TablePartition, committed: HeldCopies, goal: tuple[NodeId, ...]
    ) -> Draft:
        """The next holders of one partition, and the copies that it still waits for."""
        held = on_nodes(committed, self.nodes)
        if not goal:
            return Draft(partition, goal, held.replicas, (), frozenset())
        owner = committed.active if committed.active in self.nodes else None
        active = self._active(partition, owner, held, goal)
        standbys = self._standbys(partition, held, goal, active)
        wanted = tuple(n for n in goal if n != active and n not in standbys)
        begun = frozenset(n for n in wanted if n in held.nodes)
        usable = frozenset(
            n for n in wanted if n == goal[0] or self._is_usable(n, active, standbys, held, goal)
        )
        return Draft(partition, goal, (active, *standbys), wanted, begun, usable)

    def _active(
        self,
        partition: TablePartition,
        owner: NodeId | None,
        held: HeldCopies,
        goal: tuple[NodeId, ...],
    ) -> NodeId:
        """Rules in order; the first that names a node decides. `owner` None: it is gone."""
        planned = goal[0]
        if self._ready(partition, planned):
            return planned
        if owner and self._may_stay(partition, owner):
            return owner
        ready = [n for n in self._with_data(partition) if self._ready(partition, n)]
        able = [n for n in ready if self.nodes[n].capacity > 0]
        if able or ready:
            return self._stand_in(able or ready, held, goal)
        # No copy has caught up: take the one with least to read. Equal lag is not better, so the
        # owner, then the planned node wins ties; an unknown lag is never better than a known one.
        keys = {n: catch_up_key(self._lag(partition, n)) for n in self._with_data(partition)}
        least = min(keys.values(), default=catch_up_key(BadReport.NOTHING))
        if owner and keys.get(owner) == least:
            return owner
        if catch_up_key(self._lag(partition, planned)) == least:
            return planned
        return self._stand_in([n for n, key in keys.items() if key == least], held, goal)

    def _may_stay(self, partition: TablePartition, owner: NodeId) -> bool:
        """An owner keeps serving until another is ready, within the wider of the two limits.

        A draining owner stays only while no other copy is ready.
        """
        lag = self._lag(partition, owner)
        if self.nodes[owner].capacity <= 0:
            return False
        if is_caught_up(lag, self._limit):
            return True
        return isinstance(lag, int) and (self._leaving is None or lag <= self._leaving)

    def _with_data(self, partition: TablePartition) -> list[NodeId]:
        return sorted(
            node
            for node, lag in self._lags.get(partition, {}).items()
            if node in self.nodes and lag is not BadReport.NOTHING
        )

    def _stand_in(
        self, candidates: Sequence[NodeId], held: HeldCopies, goal: tuple[NodeId, ...]
    ) -> NodeId:
        """The active until the planned one is ready: the first planned standby, as
        `first_standbys.py` has spread them, then a planned copy, then a current one, then the node
        that stands in for the fewest partitions, relative to its capacity.
        """
        chosen = min(
            candidates,
            key=lambda n: (
                n not in goal[:2],
                n not in goal,
                n not in held.nodes,
                self._extra[n] / max(1, self.nodes[n].capacity),
                n,
            ),
        )
        self._extra[chosen] += 1
        return chosen

    # ------------------------------------------------------------------ standbys on the way

    def _standbys(
        self, partition: TablePartition, held: HeldCopies, goal: tuple[NodeId, ...], active: NodeId
    ) -> tuple[NodeId, ...]:
        """As many as planned, from planned and current copies: the readiest, planned ones first.

        So a caught-up copy that has to go stays until its successor has caught up too, also while
        its node is silent: a successor of unknown lag, or without data, does not replace it. Copies
        also never come closer together than both before and in the plan: if the readiest set
        would, the most spread set is taken.
        """
        count = len(goal) - 1
        pool = [n for n in dict.fromkeys((*goal, *held.nodes)) if n != active]
        if count >= len(pool) or set(goal[1:]) == set(pool):
            return tuple(pool[:count])
        free = self._best_set(partition, pool, active, goal, held, floor=0)
        floor = self._floor(held, goal)
        if self._distinct((active, *free)) >= floor:
            return free
        spread = self._best_set(partition, pool, active, goal, held, floor=floor)
        waiting = [n for n in goal if n != active and n not in spread]
        # If no single copy can be replaced without coming closer, progress matters more.
        is_moving = any(self._is_usable(n, active, spread, held, goal) for n in waiting)
        return spread if is_moving or not waiting else free

    def _best_set(
        self,
        partition: TablePartition,
        pool: Sequence[NodeId],
        active: NodeId,
        goal: tuple[NodeId, ...],
        held: HeldCopies,
        *,
        floor: int,
    ) -> tuple[NodeId, ...]:
        """The readiest set, then most planned copies, then most spread; in the pool's order."""
        count = len(goal) - 1
        ranks = {n: self._rank(partition, n, held) for n in pool}
        if math.comb(len(pool), count) > SETS_MAX:
            best = sorted(pool, key=lambda n: (ranks[n], n not in goal))[:count]
            return tuple(n for n in pool if n in best)

        def key(nodes: tuple[NodeId, ...]) -> tuple[bool, list[tuple[int, int]], int, int]:
            distinct = self._distinct((active, *nodes))
            planned = sum(n in goal for n in nodes)
            return (distinct < floor, sorted(ranks[n] for n in nodes), -planned, -distinct)

        return min(itertools.combinations(pool, count), key=key)

    def _floor(self, held: HeldCopies, goal: tuple[NodeId, ...]) -> int:
        """The number of distinct values below which copies must not fall on the way."""
        return min(self._distinct(goal), self._distinct(held.replicas or goal))

    def _is_usable(
        self,
        node: NodeId,
        active: NodeId,
        standbys: Sequence[NodeId],
        held: HeldCopies,
        goal: tuple[NodeId, ...],
    ) -> bool:
        """Whether `node` could take the place of one copy that has to go."""
        return any(
            self._distinct((active, node, *(s for s in standbys if s != leaving)))
            >= self._floor(held, goal)
            for leaving in standbys
            if leaving not in goal
        )

    def _rank(self, partition: TablePartition, node: NodeId, held: HeldCopies) -> tuple[int, int]:
        """Copies that have caught up are equal; others sort by what they still have to read. A
        replica whose node is silent most likely has its data still: it comes before copies that
        are as unknown, or have nothing."""
        if self._ready(partition, node):
            return (0, 0)
        lag = self._lag(partition, node)
        is_silent = lag is BadReport.UNKNOWN and node in held.replicas
        sort_class, records = catch_up_key(lag)
        return (1 + sort_class, records if is_silent or not sort_class else 1)

    def _distinct(self, nodes: Iterable[NodeId]) -> int:
        """Distinct known values over all dimensions; nodes that are gone do not count."""
        stands = [self._place[n] for n in nodes if n in self._place]
        return sum(len(set(column) - {None}) for column in zip(*stands, strict=True))
