"""Which nodes hold the standbys of each table partition, once its active is settled.

Order of goals:
 1. as many copies as asked for, never two on one node;
 2. as far apart as is possible for this active (spread.py: every pick looks ahead);
 3. nodes carry their fair share of all copies (`balance.py` improves it);
 4. after the loss of any one node its actives' first standbys are spread over the others
    (`first_standbys.py`);
 5. a copy stays where its data is.
Nodes and partitions are indices here; `plan.py` translates.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from standpipe.control.assignment.actives import NO_NODE
from standpipe.control.assignment.fair_share import Levels
from standpipe.control.assignment.spread import Chosen, Corner, Spread, with_corner

#: equally loaded nodes that are compared for one pick; more of them hardly differ
TIED_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class StandbyWork:
    """What is to be decided."""

    #: node -> weight, > 0
    capacities: Sequence[int]
    #: node -> its corner in `spread`
    corners: Sequence[int]
    spread: Spread
    #: partition -> its active
    actives: Sequence[int]
    #: partition -> nodes that hold its data, the readiest first
    holders: Sequence[Sequence[int]]
    standby_count: int
    #: partition -> those of its holders that are warm-ups. They stay where they are: otherwise two
    #: equally good plans would repeatedly undo each other
    begun: Sequence[Collection[int]]


class Copies:
    """Copies of all partitions during placement, with the sums that decisions need."""

    def __init__(self, work: StandbyWork) -> None:
        nodes = len(work.capacities)
        self.work = work
        self.levels = Levels(work.capacities)
        #: partition -> its nodes, active first
        self.of: list[list[int]] = [[a] if a != NO_NODE else [] for a in work.actives]
        #: node -> copies, actives included
        self.count = [0] * nodes
        #: node -> partitions that it is a standby of
        self.standing: list[set[int]] = [set() for _ in range(nodes)]
        #: active's node -> standby's node -> partitions (each standby counts, not only the first)
        self.pairs: list[dict[int, int]] = [{} for _ in range(nodes)]
        for active in work.actives:
            if active != NO_NODE:
                self.count[active] += 1

    def add(self, partition: int, node: int) -> None:
        """Add a copy, as the last standby in the order of promotion."""
        self.of[partition].append(node)
        self.count[node] += 1
        self.standing[node].add(partition)
        pairs = self.pairs[self.of[partition][0]]
        pairs[node] = pairs.get(node, 0) + 1

    def remove(self, partition: int, node: int) -> None:
        """Remove a copy. It must exist."""
        self.of[partition].remove(node)
        self.count[node] -= 1
        self.standing[node].remove(partition)
        self.pairs[self.of[partition][0]][node] -= 1

    def replace(self, partition: int, old: int, new: int) -> None:
        """Move a standby; it keeps its place in the order of promotion."""
        place = self.of[partition].index(old)
        self.remove(partition, old)
        self.add(partition, new)
        self.of[partition].insert(place, self.of[partition].pop())

    def height(self, node: int, more: int = 0) -> int:
        """Load of a node after `more` further copies, comparable between nodes."""
        return self.levels.level(node, self.count[node] + more)

    def chosen(self, partition: int, without: int = NO_NODE) -> Chosen:
        """Corners of a partition's copies, sorted, except the copy on node `without`."""
        corners = self.work.corners
        return tuple(sorted(corners[n] for n in self.of[partition] if n != without))

    def may_replace(self, partition: int, old: int, new: int) -> bool:
        """Whether a standby can move without losing any spread."""
        if new in self.of[partition] or old in self.work.begun[partition]:
            return False
        corners, spread = self.work.corners, self.work.spread
        if corners[old] == corners[new]:
            return True
        rest = self.chosen(partition, old)
        return 0 < spread.gain(rest, corners[old]) <= spread.gain(rest, corners[new])

    def crowding(self, partition: int, old: int, new: int) -> int:
        """What a move adds to the sum of squares of what each node backs up for this active's
        node. Of two equal moves, the one that adds less leaves less to `first_standbys.py`."""
        pairs, unit = self.pairs[self.of[partition][0]], self.levels.unit
        added = unit[new] * (2 * pairs.get(new, 0) + 1)
        return added - unit[old] * (2 * pairs.get(old, 0) - 1)

    def keeps_level(self, old: int, new: int) -> bool:
        """Whether moving one copy does not increase the sum of squared loads."""
        added = self.levels.unit[new] * (2 * self.count[new] + 1)
        return added <= self.levels.unit[old] * (2 * self.count[old] - 1)

    def holds_data(self, partition: int, node: int) -> bool:
        """Whether the node already has data of the partition, so that a copy there is cheap."""
        return node in self.work.holders[partition]


def place_standbys(work: StandbyWork) -> Copies:
    """Standbys of all partitions with an active; `balance.py`, `first_standbys.py` refine them."""
    copies = Copies(work)
    _keep(copies)
    _fill(copies)
    return copies


def _keep(copies: Copies) -> None:
    """Copies that exist stay, as long as the best spread remains reachable around them."""
    work = copies.work
    for partition, active in enumerate(work.actives):
        chosen = copies.chosen(partition)
        more = work.standby_count if active != NO_NODE else 0
        for node in work.holders[partition]:
            if not more:
                break
            if node != active and work.spread.leads_to_best(chosen, work.corners[node], more):
                copies.add(partition, node)
                chosen, more = with_corner(chosen, work.corners[node]), more - 1


def _fill(copies: Copies) -> None:
    """New copies go to the emptiest node that still leads to the best spread."""
    emptiest = Emptiest(copies)
    for partition, active in enumerate(copies.work.actives):
        if active != NO_NODE:
            emptiest.fill(partition)


class Emptiest:
    """Nodes by load, one heap per corner, since spread decides by corner.

    Heaps are lazy: heights in them may be stale, and are corrected when they reach the top.
    """

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._nodes: dict[Corner, list[tuple[int, int]]] = {}
        for node, corner in enumerate(copies.work.corners):
            self._nodes.setdefault(corner, []).append((copies.height(node, 1), node))
        for heap in self._nodes.values():
            heapq.heapify(heap)
        turns = [(turn, c) for turn, c in enumerate(copies.work.spread.order) if c in self._nodes]
        self._corners = [(self._nodes[c][0][0], turn, c) for turn, c in turns]
        heapq.heapify(self._corners)

    def fill(self, partition: int) -> None:
        """Add the standbys that a partition lacks, as far as nodes and forced limits permit."""
        copies = self._copies
        while len(copies.of[partition]) <= copies.work.standby_count:
            node = self._pick(partition)
            if node is None:
                break
            copies.add(partition, node)

    def _pick(self, partition: int) -> int | None:
        """The lowest node that leads to the best spread; among equals the one that backs up this
        active's node least (goal 4)."""
        work, holders = self._copies.work, self._copies.of[partition]
        chosen, more = self._copies.chosen(partition), work.standby_count + 1 - len(holders)
        passed: list[tuple[int, int, Corner]] = []
        best: tuple[int, int, int] | None = None
        while self._corners and (best is None or len(passed) < TIED_MAX):
            height, _, corner = self._lowest_corner()
            if best and height > best[0]:
                break
            passed.append(heapq.heappop(self._corners))
            if not work.spread.leads_to_best(chosen, corner, more):
                continue
            found = self._lowest_in(corner, holders)
            if found and (best is None or found < best):
                best = found
            if best and best[:2] <= (height, self._fair_backing(holders[0])):
                break
        for entry in passed:
            heapq.heappush(self._corners, entry)
        return best[2] if best else None

    def _fair_backing(self, active: int) -> int:
        pairs = self._copies.pairs[active]
        return sum(pairs.values()) // max(1, len(self._copies.count) - 1)

    def _lowest_corner(self) -> tuple[int, int, Corner]:
        while True:
            height, turn, corner = self._corners[0]
            now = self._lowest_node(self._nodes[corner])[0]
            if now == height:
                return self._corners[0]
            heapq.heapreplace(self._corners, (now, turn, corner))

    def _lowest_node(self, heap: list[tuple[int, int]]) -> tuple[int, int]:
        while True:
            height, node = heap[0]
            now = self._copies.height(node, 1)
            if now == height:
                return height, node
            heapq.heapreplace(heap, (now, node))

    def _lowest_in(self, corner: Corner, holders: Sequence[int]) -> tuple[int, int, int] | None:
        """(height, backing, node) of a corner's best node that is not a holder yet."""
        heap, pairs = self._nodes[corner], self._copies.pairs[holders[0]]
        fair = self._fair_backing(holders[0])
        passed: list[tuple[int, int]] = []
        best: tuple[int, int, int] | None = None
        while heap and len(passed) < TIED_MAX + len(holders):
            height, node = self._lowest_node(heap)
            if best and height > best[0]:
                break
            passed.append(heapq.heappop(heap))
            if node not in holders:
                row = (height, pairs.get(node, 0), node)
                best = row if best is None else min(best, row)
                if best[1] <= fair:
                    break
        for entry in passed:
            heapq.heappush(heap, entry)
        return best
