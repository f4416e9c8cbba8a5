"""Which node is the active of each table partition: balanced, then with the fewest moves.

Order of the rules:
 1. every node has its fair share of the actives (`fair_share.py`);
 2. an active stays where it is unless its node holds more than its share;
 3. an active that must move goes to a node that holds its data, the readiest first;
 4. within each table a node's actives are its fair share, rounded up or down, so that one hot
    table does not overload one node. Repaired by swapping actives along the shortest cycle.
Nodes, tables and partitions are indices here; `plan.py` translates.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from standpipe.control.assignment.fair_share import Levels, fair_shares

NO_NODE: Final = -1
#: nodes expanded in one search for a cycle; a typical search ends at the first node
EXPANSIONS_MAX: Final = 200
#: failed searches after which table skew is left as it is: with unequal capacities, rules 1 and 4
#: can exclude each other
FAILURES_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class ActiveWork:
    """What is to be decided."""

    #: node -> weight, > 0
    capacities: Sequence[int]
    #: partition -> table
    tables: Sequence[int]
    #: partition -> active so far, or NO_NODE
    owners: Sequence[int]
    #: partition -> nodes that hold its data, the readiest first
    holders: Sequence[Sequence[int]]
    #: node -> units of other work that count for balance and do not move
    loads: Sequence[int]


def choose_actives(work: ActiveWork) -> list[int]:
    """partition -> node; NO_NODE for all of them when there are no nodes."""
    if not work.capacities:
        return [NO_NODE] * len(work.tables)
    placement = _ActivePlacement(work)
    placement.keep_owners()
    placement.place_orphans_on_replicas()
    placement.move_surplus()
    placement.place_the_rest()
    placement.even_out_tables()
    placement.prefer_warmups()
    return placement.active


#: table, from node, to node
Shift = tuple[int, int, int]


class _ActivePlacement:
    def __init__(self, work: ActiveWork) -> None:
        nodes = range(len(work.capacities))
        shares = fair_shares(work.capacities, len(work.tables), work.loads)
        self._work = work
        self._levels = Levels(work.capacities)
        self._sure, self._maybe, self._spare = shares.sure, shares.maybe, shares.spare
        self.active = [NO_NODE] * len(work.tables)
        #: node -> actives so far
        self._count = [0 for _ in nodes]
        #: node -> table -> its partitions that are active there
        self._cells: list[dict[int, list[int]]] = [{} for _ in nodes]
        self._table_size: dict[int, int] = {}
        for table in work.tables:
            self._table_size[table] = self._table_size.get(table, 0) + 1
        #: table size -> node -> fair bounds
        self._bounds_of_size: dict[int, list[tuple[int, int]]] = {}

    # ------------------------------------------------------------------ small moves

    def _put(self, partition: int, node: int) -> None:
        if self._count[node] == self._sure[node] and node in self._maybe:
            self._spare -= 1
        self._count[node] += 1
        self.active[partition] = node
        self._cells[node].setdefault(self._work.tables[partition], []).append(partition)

    def _take(self, partition: int) -> None:
        node = self.active[partition]
        self._count[node] -= 1
        if self._count[node] == self._sure[node] and node in self._maybe:
            self._spare += 1
        self.active[partition] = NO_NODE
        table = self._work.tables[partition]
        self._cells[node][table].remove(partition)
        if not self._cells[node][table]:
            del self._cells[node][table]

    def _has_room(self, node: int) -> bool:
        if self._count[node] < self._sure[node]:
            return True
        at_tie = self._count[node] == self._sure[node] and node in self._maybe
        return at_tie and self._spare > 0

    def _cell(self, table: int, node: int) -> int:
        return len(self._cells[node].get(table, ()))

    def _is_full(self, table: int, node: int) -> bool:
        return self._cell(table, node) >= self._fair_high(table, node)

    def _fair_low(self, table: int, node: int) -> int:
        return self._bounds(self._table_size[table])[node][0]

    def _fair_high(self, table: int, node: int) -> int:
        return self._bounds(self._table_size[table])[node][1]

    def _bounds(self, size: int) -> list[tuple[int, int]]:
        """node -> fewest and most actives of a table of this size that count as fair.

        Both the rounded proportional share and the share by D'Hondt's rule are fair: rule 1 uses
        the latter, and a node must not have to give away what rule 1 gave it.
        """
        known = self._bounds_of_size.get(size)
        if known is None:
            capacities, total = self._work.capacities, sum(self._work.capacities)
            shares = fair_shares(capacities, size, [0] * len(capacities))
            known = self._bounds_of_size[size] = [
                (
                    min(sure, size * c // total),
                    max(sure + (n in shares.maybe), -(-size * c // total)),
                )
                for n, (c, sure) in enumerate(zip(capacities, shares.sure, strict=True))
            ]
        return known

    # ------------------------------------------------------------------ the steps

    def keep_owners(self) -> None:
        for partition, owner in enumerate(self._work.owners):
            if owner != NO_NODE:
                self._put(partition, owner)

    def place_orphans_on_replicas(self) -> None:
        """As many orphans as possible: a bipartite matching, by shortest augmenting paths."""
        orphans = [p for p, node in enumerate(self.active) if node == NO_NODE]
        settled: dict[int, list[int]] = {}
        for orphan in sorted(orphans, key=lambda p: (len(self._work.holders[p]), p)):
            for partition, node in self._augmenting_path(orphan, settled):
                if self.active[partition] != NO_NODE:
                    settled[self.active[partition]].remove(partition)
                    self._take(partition)
                self._put(partition, node)
                settled.setdefault(node, []).append(partition)

    def _augmenting_path(self, orphan: int, settled: dict[int, list[int]]) -> list[tuple[int, int]]:
        """(partition, node) pairs to place in this order; empty: all holders are full."""
        came_by: dict[int, tuple[int, int]] = {}  # partition -> (one that wants its node, the node)
        queue, seen = deque([orphan]), set[int]()
        while queue:
            partition = queue.popleft()
            table = self._work.tables[partition]
            for node in sorted(
                self._work.holders[partition], key=lambda n: self._is_full(table, n)
            ):
                if node in seen:
                    continue
                seen.add(node)
                if self._has_room(node):
                    path = [(partition, node)]
                    while path[-1][0] != orphan:
                        path.append(came_by[path[-1][0]])
                    return path
                for other in settled.get(node, ()):
                    came_by[other] = (partition, node)
                    queue.append(other)
        return []

    def move_surplus(self) -> None:
        """Nodes over their share give away actives, first those with a ready copy elsewhere."""
        over = [n for n, count in enumerate(self._count) if count > self._allowed(n)]
        open_nodes = self._open_nodes()
        for node in over:
            self._give_to_holders(node)
        for node in over:
            while self._count[node] > self._allowed(node):
                target = self._next_open(open_nodes)
                table = self._table_to_give(node, target)
                partition = min(self._cells[node][table])
                self._take(partition)
                self._put(partition, target)

    def _table_to_give(self, node: int, target: int) -> int:
        """Preferably a table of which the giver has too many or the taker too few: what rule 4
        has just moved here must not be sent back."""

        def gain(table: int) -> tuple[int, int, int]:
            gains = self._is_uneven(table, node, is_over=True)
            gains += self._is_uneven(table, target, is_over=False)
            return (gains, self._cell(table, node) - self._cell(table, target), -table)

        return max(self._cells[node], key=gain)

    def _allowed(self, node: int) -> int:
        """A tied node may keep one more, as long as there are spare units."""
        may_keep_tie = node in self._maybe and self._spare >= 0
        return self._sure[node] + (1 if may_keep_tie else 0)

    def _give_to_holders(self, node: int) -> None:
        offers: list[tuple[bool, int, int, int]] = []
        for table, partitions in self._cells[node].items():
            overloaded = self._cell(table, node) > self._fair_high(table, node)
            for partition in partitions:
                offers += [
                    (not overloaded, rank, partition, holder)
                    for rank, holder in enumerate(self._work.holders[partition])
                    if holder != node and self._has_room(holder)
                ]
        for _, _, partition, holder in sorted(offers):
            if self._count[node] <= self._allowed(node):
                return
            table = self._work.tables[partition]
            fits = self._has_room(holder) and not self._is_full(table, holder)
            if self.active[partition] == node and fits:
                self._take(partition)
                self._put(partition, holder)

    def place_the_rest(self) -> None:
        """Orphans without data anywhere, in order: a table's partitions go to nodes in turn."""
        open_nodes = self._open_nodes()
        for partition, node in enumerate(self.active):
            if node == NO_NODE:
                self._put(partition, self._next_open(open_nodes))

    def _open_nodes(self) -> list[tuple[int, int]]:
        heap = [
            (self._levels.level(n, self._work.loads[n] + count + 1), n)
            for n, count in enumerate(self._count)
            if self._has_room(n)
        ]
        heapq.heapify(heap)
        return heap

    def _next_open(self, heap: list[tuple[int, int]]) -> int:
        """The node with the lowest load after one more. The heap may hold stale heights."""
        while True:
            height, node = heapq.heappop(heap)
            now = self._levels.level(node, self._work.loads[node] + self._count[node] + 1)
            if not self._has_room(node):
                continue
            heapq.heappush(heap, (now, node))
            if now == height:
                return node

    # ------------------------------------------------------------------ rule 4: tables

    def even_out_tables(self) -> None:
        failures = 0
        for table, node, is_over in self._uneven_cells():
            while failures < FAILURES_MAX and self._is_uneven(table, node, is_over):
                shifts = self._cycle(table, node, is_over)
                if not shifts:
                    failures += 1
                    break
                for shift in shifts:
                    self._apply(shift)

    def prefer_warmups(self) -> None:
        """If a node gets a partition of a table, it gets the one that it is already copying.

        Loads are the same either way, but two equally good plans that differ in this would undo
        each other's warm-ups repeatedly.
        """
        owners = self._work.owners
        for partition, holders in enumerate(self._work.holders):
            giver, taker = self.active[partition], holders[0] if holders else NO_NODE
            if NO_NODE in (giver, taker) or giver == taker or owners[partition] != giver:
                continue
            newcomers = [
                other
                for other in self._cells[taker].get(self._work.tables[partition], ())
                if owners[other] == giver and self._work.holders[other][:1] != [taker]
            ]
            if newcomers:
                other = min(newcomers)
                self._take(partition)
                self._take(other)
                self._put(partition, taker)
                self._put(other, giver)

    def _uneven_cells(self) -> list[tuple[int, int, bool]]:
        over = [
            (table, node, True)
            for node, cells in enumerate(self._cells)
            for table in cells
            if self._is_uneven(table, node, is_over=True)
        ]
        under = [
            (table, node, False)
            for table, size in self._table_size.items()
            if any(low for low, _ in self._bounds(size))
            for node in range(len(self._cells))
            if self._is_uneven(table, node, is_over=False)
        ]
        return sorted(over) + sorted(under)

    def _is_uneven(self, table: int, node: int, is_over: bool) -> bool:
        if is_over:
            return self._cell(table, node) > self._fair_high(table, node)
        return self._cell(table, node) < self._fair_low(table, node)

    def _cycle(self, table: int, node: int, is_over: bool) -> list[Shift]:
        """Shifts that bring one cell nearer to its share and keep every node's count.

        Actives that move anyway cost nothing, so a cycle of these is tried first.
        """
        nodes = range(len(self._cells))
        for free_only in (True, False):
            if is_over:
                if free_only and not self._movable(table, node, free_only=True):
                    continue
                starts = [n for n in nodes if not self._is_full(table, n)]
                tie = [n for n in starts if self._may_swap_tie(node, n)]
                if tie:
                    return [(table, node, tie[0])]
                path = self._path(starts, {node}, free_only)
                if path:
                    return [(table, node, path[0][1]), *path]
            else:
                goals = {
                    n
                    for n in nodes
                    if self._cell(table, n) > self._fair_low(table, n)
                    and self._movable(table, n, free_only=free_only)
                }
                tie = sorted(n for n in goals if self._may_swap_tie(n, node))
                if tie:
                    return [(table, tie[0], node)]
                path = self._path([node], goals, free_only)
                if path:
                    return [(table, path[-1][2], node), *path]
        return []

    def _may_swap_tie(self, giver: int, taker: int) -> bool:
        """Whether both tie for a spare unit, the giver has one and the taker has none."""
        gives = giver in self._maybe and self._count[giver] > self._sure[giver]
        return gives and taker in self._maybe and self._count[taker] == self._sure[taker]

    def _movable(self, table: int, node: int, *, free_only: bool) -> int | None:
        """A partition of this cell; preferably one that leaves its owner anyway."""
        members = self._cells[node].get(table, ())
        free = [p for p in members if self._work.owners[p] != node]
        return min(free, default=None) if free or free_only else min(members, default=None)

    def _path(self, starts: Iterable[int], goals: set[int], free_only: bool) -> list[Shift]:
        """Shortest chain of shifts of other actives from a start to a goal."""
        came_by: dict[int, Shift | None] = dict.fromkeys(starts)
        queue, expansions = deque(came_by), 0
        while queue and expansions < EXPANSIONS_MAX:
            node = queue.popleft()
            expansions += 1
            movable = [
                table
                for table in self._cells[node]
                if self._cell(table, node) > self._fair_low(table, node)
                and self._movable(table, node, free_only=free_only) is not None
            ]
            for targets in (sorted(goals), range(len(self._cells))):
                for table in movable:
                    for target in targets:
                        if target in came_by or target == node:
                            continue
                        if self._is_full(table, target):
                            continue
                        came_by[target] = (table, node, target)
                        if target in goals:
                            return self._walk_back(came_by, target)
                        queue.append(target)
        return []

    @staticmethod
    def _walk_back(came_by: dict[int, Shift | None], node: int) -> list[Shift]:
        path: list[Shift] = []
        while (step := came_by[node]) is not None:
            path.append(step)
            node = step[1]
        return path[::-1]

    def _apply(self, shift: Shift) -> None:
        table, giver, taker = shift
        partition = self._movable(table, giver, free_only=False)
        assert partition is not None, f"nothing of table {table} on node {giver}"
        self._take(partition)
        self._put(partition, taker)
