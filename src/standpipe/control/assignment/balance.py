"""Makes nodes equally full: standbys shift from full nodes to empty ones without losing spread.

A shift that helps may need others before it: with zones of unequal size the emptiest node is
often reached only by a chain (p: 1 → 2, q: 2 → 3). The search is breadth first from the fullest
node. Nodes that a failed search reached are settled too, since none of them could reach more.
The search takes the shortest chain. It prefers a last step that copies nothing: to a node that
already holds the data (a warm-up, say), else one that moves a copy that is new anyway.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import Final

from standpipe.control.assignment.spread import Chosen, Corner
from standpipe.control.assignment.standbys import Copies, Emptiest

#: steps tried in one run, about a second; 12 nodes need < 10,000. Beyond this, nodes stay as they
#: are and the plan reports it
LOOKS_MAX: Final = 1_000_000
#: ... and for one step, once a step to the emptiest node is found
LOOKS_PER_STEP: Final = 500
#: equally empty nodes of a corner that are compared
TIED_MAX: Final = 12


def level(copies: Copies) -> None:
    """Move standbys until nothing improves."""
    _Levelling(copies).run()


@dataclass(frozen=True, slots=True)
class _Step:
    partition: int
    giver: int
    taker: int


class _Levelling:
    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._nodes = range(len(copies.count))
        self._looks = 0
        #: (corners of the other copies, own corner) -> corners where the spread stays as good
        self._corners: dict[tuple[Chosen, Corner], tuple[Corner, ...]] = {}
        #: corner -> its nodes
        self._members: dict[Corner, list[int]] = {}
        for node, corner in enumerate(copies.work.corners):
            self._members.setdefault(corner, []).append(node)

    def run(self) -> None:
        progress = True
        while progress and not self._is_level() and self._looks < LOOKS_MAX:
            progress = self._shift_directly() or self._shift_chains() or self._place_one_again()

    def _is_level(self) -> bool:
        heights = [self._copies.height(n) for n in self._nodes]
        return not heights or max(heights) <= min(self._copies.height(n, 1) for n in self._nodes)

    # ------------------------------------------------------------------ single shifts

    def _shift_directly(self) -> bool:
        """Always from the fullest node that can shift one. A chain would move two copies where the
        next fullest node can move just one, so chains come later."""
        copies, progress = self._copies, False
        heap = [(-copies.height(n), n) for n in self._nodes]
        heapq.heapify(heap)
        while heap and self._looks < LOOKS_MAX:
            height, node = heapq.heappop(heap)
            if -height != copies.height(node):
                heapq.heappush(heap, (-copies.height(node), node))
                continue
            lower = {n for n in self._nodes if copies.height(n, 1) < -height}
            step = self._last_step(node, self._shiftable(node), lower) if lower else None
            if step:
                copies.replace(step.partition, step.giver, step.taker)
                heapq.heappush(heap, (-copies.height(node), node))
                progress = True
        return progress

    # ------------------------------------------------------------------ chains of shifts

    def _shift_chains(self) -> bool:
        copies, settled, progress = self._copies, set[int](), False
        for node in sorted(self._nodes, key=lambda n: (-copies.height(n), n)):
            while node not in settled and self._looks < LOOKS_MAX:
                reached: set[int] = set()
                path = self._chain_to_lower(node, reached)
                if not path:
                    settled |= {n for n in reached if copies.height(n) <= copies.height(node)}
                for step in path:
                    copies.replace(step.partition, step.giver, step.taker)
                    progress = True
        return progress

    def _chain_to_lower(self, start: int, reached: set[int]) -> list[_Step]:
        """Shortest chain to a node that stays lower than `start` is. Adds to `reached`."""
        copies, ceiling = self._copies, self._copies.height(start)
        reached.add(start)
        lower = {n for n in self._nodes if copies.height(n, 1) < ceiling}
        came_by: dict[int, _Step | None] = {start: None}
        unseen = {c: [n for n in nodes if n != start] for c, nodes in self._members.items()}
        queue = deque([start] if lower else [])
        while queue and self._looks < LOOKS_MAX:
            node = queue.popleft()
            path = self._walk_back(came_by, node)
            # If a partition moved twice in one chain, the check of its spread would be void.
            moved = {step.partition for step in path}
            standing = [p for p in self._shiftable(node) if p not in moved]
            last = self._last_step(node, standing, lower)
            if last:
                return [*path, last]
            for step in self._steps(node, standing, unseen):
                came_by[step.taker] = step
                reached.add(step.taker)
                queue.append(step.taker)
        return []

    def _shiftable(self, node: int) -> list[int]:
        begun = self._copies.work.begun
        return sorted(p for p in self._copies.standing[node] if node not in begun[p])

    def _steps(
        self, giver: int, standing: list[int], unseen: dict[Corner, list[int]]
    ) -> list[_Step]:
        """One step to each node that was not seen yet; `unseen` shrinks by them."""
        steps: list[_Step] = []
        for partition in standing:
            holders = self._copies.of[partition]
            for corner in self._allowed(partition, giver):
                self._looks += 1
                if not unseen[corner]:
                    continue
                steps += [_Step(partition, giver, n) for n in unseen[corner] if n not in holders]
                unseen[corner] = [n for n in unseen[corner] if n in holders]
        return steps

    def _last_step(self, giver: int, standing: list[int], lower: set[int]) -> _Step | None:
        for partition in standing:
            for taker in self._copies.work.holders[partition]:
                if taker in lower and self._copies.may_replace(partition, giver, taker):
                    return _Step(partition, giver, taker)
        new = [p for p in standing if not self._copies.holds_data(p, giver)]
        return self._to_emptiest(giver, new, lower) or self._to_emptiest(giver, standing, lower)

    def _to_emptiest(self, giver: int, partitions: list[int], lower: set[int]) -> _Step | None:
        copies = self._copies
        self._looks += len(self._nodes)
        emptiest = {
            corner: sorted((copies.height(n, 1), n) for n in nodes if n in lower)
            for corner, nodes in self._members.items()
        }
        least = min((rows[0][0] for rows in emptiest.values() if rows), default=0)
        best: tuple[int, int, int, int] | None = None
        enough = self._looks + LOOKS_PER_STEP
        for partition in partitions:
            holders = copies.of[partition]
            for corner in self._allowed(partition, giver):
                self._looks += 1
                rows = emptiest[corner]
                for height, node in (row for row in rows[:TIED_MAX] if row[1] not in holders):
                    if best and height > best[0]:
                        break
                    crowding = copies.crowding(partition, giver, node)
                    found = (height, crowding, node, partition)
                    best = found if best is None else min(best, found)
            if best and best[0] == least and self._looks > enough:
                break
        return _Step(best[3], giver, best[2]) if best else None

    def _allowed(self, partition: int, node: int) -> tuple[Corner, ...]:
        """Corners to which this standby may shift without losing spread."""
        copies, spread = self._copies, self._copies.work.spread
        own = copies.work.corners[node]
        key = (copies.chosen(partition, node), own)
        known = self._corners.get(key)
        if known is None:
            self._looks += len(self._members)
            gain = spread.gain(key[0], own)
            found = (c for c in self._members if c != own and spread.gain(key[0], c) >= gain)
            known = self._corners[key] = (own, *found)
        return known

    @staticmethod
    def _walk_back(came_by: dict[int, _Step | None], node: int) -> list[_Step]:
        path: list[_Step] = []
        while (step := came_by[node]) is not None:
            path.append(step)
            node = step.giver
        return path[::-1]

    # ------------------------------------------------------------------ several at once

    def _place_one_again(self) -> bool:
        """Choose all standbys of some partition again, if that lowers the sum of squared loads.

        Where a full spread ties standbys together (KIP-708: nodes 5 and 9, or 6 and 8), none of
        them can move alone.
        """
        copies = self._copies
        lowest = min(copies.height(n, 1) for n in self._nodes)
        for node in sorted(self._nodes, key=lambda n: (-copies.height(n), n)):
            if copies.height(node) <= lowest:
                return False
            for partition in sorted(copies.standing[node]):
                self._looks += len(self._nodes)
                if self._looks >= LOOKS_MAX:
                    return False
                tied = len(copies.of[partition]) > 2 and not copies.work.begun[partition]
                if tied and self._improves_when_replaced(partition):
                    return True
        return False

    def _improves_when_replaced(self, partition: int) -> bool:
        copies, before = self._copies, self._copies.of[partition][1:]
        unevenness = self._unevenness()
        for standby in before:
            copies.remove(partition, standby)
        Emptiest(copies).fill(partition)
        after = copies.of[partition][1:]
        if len(after) >= len(before) and self._unevenness() < unevenness:
            return True
        for standby in after:
            copies.remove(partition, standby)
        for standby in before:
            copies.add(partition, standby)
        return False

    def _unevenness(self) -> int:
        return sum(self._copies.height(n) * count for n, count in enumerate(self._copies.count))
