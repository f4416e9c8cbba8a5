"""The order of standbys, planned ahead, so that no node inherits all actives of a lost one.

The first standby of a partition is promoted first if it has caught up (`transition.py` decides
which copy is the active). For every node, the first standbys of its actives are spread over the
others: no survivor gets more than another could have got instead, per unit of capacity. Reordering
is free, so it comes first; then standbys are placed elsewhere or exchanged where neither spread nor
balance suffers, first those that must be copied anyway. Kafka has no such rule: placement there is
per task, so after a crash one server can inherit everything that the dead one did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from standpipe.control.assignment.standbys import Copies

#: changes tried in one run; nodes that are still overloaded then are reported, which is no fault
LOOKS_MAX: Final = 300_000
#: ... and for one overloaded pair of nodes, so that a hopeless pair does not use up the budget
LOOKS_PER_PAIR_MAX: Final = 3_000


def spread_takeovers(copies: Copies) -> bool:
    """Reorder standbys, and move some if necessary. Returns whether one moved."""
    takeover, changed = _Takeover(copies), False
    takeover.reorder()
    while takeover.repair():
        takeover.reorder()
        changed = True
    return changed


def overloaded_successors(copies: Copies) -> list[tuple[int, int, int]]:
    """(lost node, survivor, actives it would promote) where another node could take one."""
    takeover = _Takeover(copies)
    return [
        (lost, successor, takeover.successors[lost][successor])
        for lost in range(len(takeover.successors))
        for successor in takeover.overloaded(lost)
    ]


@dataclass(frozen=True, slots=True)
class _Change:
    """Move the standby of `partition` from `old` to `new`, and that of `other`, if any, back."""

    partition: int
    old: int
    new: int
    other: int | None = None


class _Takeover:
    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._unit = copies.levels.unit
        self._looks = 0
        nodes = range(len(copies.count))
        #: node -> partitions that it is the active of and that have a standby
        self._actives: list[list[int]] = [[] for _ in nodes]
        #: lost node -> survivor -> actives that it would promote
        self.successors: list[dict[int, int]] = [{} for _ in nodes]
        for partition, holders in enumerate(copies.of):
            if len(holders) > 1:
                self._actives[holders[0]].append(partition)
                self._count(partition, 1)

    def _count(self, partition: int, more: int) -> None:
        lost, successor = self._copies.of[partition][:2]
        self.successors[lost][successor] = self.successors[lost].get(successor, 0) + more

    def _height(self, lost: int, successor: int, more: int = 0) -> int:
        return (self.successors[lost].get(successor, 0) + more) * self._unit[successor]

    def overloaded(self, lost: int) -> list[int]:
        """Successors that would carry more than another node would with one more; worst first."""
        successors = self.successors[lost]
        if max(successors.values(), default=0) < 2:
            return []
        others = [n for n in range(len(self._unit)) if n != lost]
        worst_first = sorted(
            successors, key=lambda successor: (-self._height(lost, successor), successor)
        )
        return [h for h in worst_first if any(self._is_unfair(lost, h, n) for n in others)]

    def _is_unfair(self, lost: int, successor: int, other: int) -> bool:
        """Whether one takes over at least two more than the other, also relative to capacity."""
        successors = self.successors[lost]
        return successors[successor] >= successors.get(other, 0) + 2 and (
            self._height(lost, successor) > self._height(lost, other, 1)
        )

    # ------------------------------------------------------------------ free: another order

    def reorder(self) -> None:
        for lost in range(len(self.successors)):
            while path := self._first_order_path(lost):
                for partition, promoted in path:
                    self._promote_first(partition, promoted)

    def _first_order_path(self, lost: int) -> list[tuple[int, int]]:
        for successor in self.overloaded(lost):
            if path := self._order_path(lost, successor):
                return path
        return []

    def _promote_first(self, partition: int, node: int) -> None:
        self._count(partition, -1)
        holders = self._copies.of[partition]
        holders.remove(node)
        holders.insert(1, node)
        self._count(partition, 1)

    def _order_path(self, lost: int, successor: int) -> list[tuple[int, int]]:
        """(partition, its new first standby): shortest chain to a successor that stays lower."""
        came_by: dict[int, tuple[int, int] | None] = {successor: None}
        queue = deque([successor])
        while queue:
            node = queue.popleft()
            for partition in self._actives[lost]:
                holders = self._copies.of[partition]
                for other in holders[2:] if holders[1] == node else ():
                    if other in came_by:
                        continue
                    came_by[other] = (partition, node)
                    if self._is_unfair(lost, successor, other):
                        return self._order_back(came_by, other)
                    queue.append(other)
        return []

    @staticmethod
    def _order_back(came_by: dict[int, tuple[int, int] | None], node: int) -> list[tuple[int, int]]:
        path: list[tuple[int, int]] = []
        while (step := came_by[node]) is not None:
            path.append((step[0], node))
            node = step[1]
        return path

    # ------------------------------------------------------------------ costly: another place

    def repair(self) -> bool:
        """One round over all nodes; whether anything changed. It ends: a sum of squares falls."""
        progress = False
        for lost in range(len(self.successors)):
            for successor in self.overloaded(lost) if self._looks < LOOKS_MAX else ():
                change = self._find_change(lost, successor)
                if change:
                    self._apply(change)
                    progress = True
        return progress

    def _find_change(self, lost: int, successor: int) -> _Change | None:
        """The first change that helps and moves the least data."""
        looks_max = self._looks + LOOKS_PER_PAIR_MAX
        best: tuple[int, _Change] | None = None
        for change in self._changes(lost, successor):
            self._looks += 1
            if best and self._looks > looks_max:
                break
            cost = self._data_moved(change)
            if (best is None or cost < best[0]) and self._helps(lost, change):
                best = cost, change
                if cost <= 0:
                    break
            if self._looks > looks_max:
                break
        return best[1] if best else None

    def _changes(self, lost: int, successor: int) -> Iterator[_Change]:
        lower = sorted(
            (self._height(lost, n, 1), n)
            for n in range(len(self._unit))
            if n not in (lost, successor) and self._is_unfair(lost, successor, n)
        )
        copies = self._copies
        mine = [p for p in self._actives[lost] if copies.of[p][1] == successor]
        for _, node in lower:
            for partition in mine:
                if not copies.may_replace(partition, successor, node):
                    self._looks += 1
                    continue
                if copies.keeps_level(successor, node):
                    yield _Change(partition, successor, node)
                for other in sorted(copies.standing[node]):
                    yield _Change(partition, successor, node, other)

    def _data_moved(self, change: _Change) -> int:
        """Copies that the change adds, less the pending copies that it makes unnecessary."""
        copies = self._copies
        moves = [(change.partition, change.old, change.new)]
        if change.other is not None:
            moves.append((change.other, change.new, change.old))
        return sum(copies.holds_data(p, old) - copies.holds_data(p, new) for p, old, new in moves)

    def _helps(self, lost: int, change: _Change) -> bool:
        """Whether the sum of squares of all affected loads falls; otherwise two nodes could
        pass the excess load back and forth indefinitely."""
        copies, other = self._copies, change.other
        delta = self._delta(lost, change.old, change.new)
        if other is None:
            return delta < 0
        if copies.of[other][0] == lost or not copies.may_replace(other, change.new, change.old):
            return False
        if copies.of[other][1] == change.new:
            delta += self._delta(copies.of[other][0], change.new, change.old)
        return delta < 0

    def _delta(self, lost: int, old: int, new: int) -> int:
        successors = self.successors[lost]
        return self._unit[new] * (2 * successors.get(new, 0) + 1) - self._unit[old] * (
            2 * successors.get(old, 0) - 1
        )

    def _apply(self, change: _Change) -> None:
        moves = [(change.partition, change.old, change.new)]
        if change.other is not None:
            moves.append((change.other, change.new, change.old))
        for partition, old, new in moves:
            self._count(partition, -1)
            self._copies.replace(partition, old, new)
            self._count(partition, 1)
