"""How far apart copies are, and how far apart they could still get.

A *corner* is a combination of tag values, such as (zone a, cluster 1); nodes of one corner are
interchangeable here. Choosing standbys one by one can walk into a trap: with the active on
(c1, a) and nodes at (c2, b), (c2, c), (c3, b), the first fit (c2, b) rules out a full spread,
although (c2, c) + (c3, b) would be one. So each pick asks `best` what remains reachable.

A score is one integer, most important part first:
  copies placed > distinct known values, summed over the dimensions (KIP-708's ideal: all of
  them) > fewest pairs that share a value (2+2 beats 3+1) > distinct values in order of the tags.
An unknown value is never distinct, and shares with other unknowns.
Finding the best set is a multi-dimensional matching, so the search is bounded. In each dimension,
filling the emptiest values first is an upper bound, which is nearly always met at once. Where it
is not, the search is exhaustive up to VISITS_MAX states per question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: states tried per question before the best so far is good enough; 8 nodes need < 1000
VISITS_MAX: Final = 5_000

Corner = int
#: corners of the copies chosen so far, sorted; a corner appears once for each copy that it holds
Chosen = tuple[Corner, ...]
UNKNOWN: Final = -1


def with_corner(chosen: Chosen, corner: Corner) -> Chosen:
    """The corners of one more copy; the order never matters, so they stay sorted."""
    return tuple(sorted((*chosen, corner)))


class Spread:
    """Scores of sets of corners. It caches answers and has no other state."""

    def __init__(
        self,
        corners: Sequence[tuple[int, ...]],
        nodes_of_corner: Sequence[int],
        copies_max: int,
        limits: Sequence[int | None],
    ) -> None:
        """`corners[c]`: value code per dimension, UNKNOWN for none. `limits`: copies that one
        value of a forced dimension may hold, None where it is not forced."""
        dimensions = len(limits)
        base = copies_max + 2
        self._corners = corners
        self._room = nodes_of_corner
        self._limits = limits
        self._values = [len({c[d] for c in corners} - {UNKNOWN}) for d in range(dimensions)]
        self._has_unknown = [any(c[d] == UNKNOWN for c in corners) for d in range(dimensions)]
        self._pair = base**dimensions
        distinct = self._pair * (dimensions * base * base + 1)
        self._placed = distinct * (dimensions * base + 1)
        self._distinct = [distinct + base ** (dimensions - 1 - d) for d in range(dimensions)]
        #: corners in the order in which they are tried; it also breaks ties
        self.order = self._interleaved()
        self._best: dict[tuple[Chosen, int], int] = {}
        self._visits = 0

    def _interleaved(self) -> list[Corner]:
        """Corners in turn from each value of the tag with the fewest values: neighbours differ
        there, so a search soon finds a corner that adds a new value."""
        fewest = min(range(len(self._values)), key=lambda d: self._values[d], default=None)
        if fewest is None:
            return list(range(len(self._corners)))
        met: dict[int, int] = {}
        turns: list[tuple[int, Corner]] = []
        for corner, values in enumerate(self._corners):
            turn = met[values[fewest]] = met.get(values[fewest], 0) + 1
            turns.append((turn, corner))
        return [corner for _, corner in sorted(turns)]

    def gain(self, chosen: Chosen, corner: Corner) -> int:
        """What one more copy at `corner` adds to the score; 0: it must not be placed there."""
        if chosen.count(corner) >= self._room[corner]:
            return 0
        total = self._placed
        for d, value in enumerate(self._corners[corner]):
            same = 0
            for other in chosen:
                if self._corners[other][d] == value:
                    same += 1
            limit = self._limits[d]
            if limit is not None and same >= limit:
                return 0
            if same:
                total -= same * self._pair
            elif value != UNKNOWN:
                total += self._distinct[d]
        return total

    def score(self, chosen: Chosen) -> int:
        """Score of a whole set; forced limits make no difference to it."""
        total = 0
        for d, worth in enumerate(self._distinct):
            values = [self._corners[c][d] for c in chosen]
            total += worth * len(set(values) - {UNKNOWN})
            total -= self._pair * sum(n * (n - 1) // 2 for n in map(values.count, set(values)))
        return total + self._placed * len(chosen)

    def distinct(self, chosen: Chosen) -> tuple[int, ...]:
        """Known values among the copies, per dimension."""
        return tuple(
            len({self._corners[c][d] for c in chosen} - {UNKNOWN}) for d in range(len(self._limits))
        )

    def best(self, chosen: Chosen, more: int) -> int:
        """The most that `more` further copies can add to the score."""
        self._visits = 0
        return self._search(chosen, more)

    def leads_to_best(self, chosen: Chosen, corner: Corner, more: int) -> bool:
        """Whether a copy at `corner` leaves `best(chosen, more)` reachable."""
        gain = self.gain(chosen, corner)
        if not gain:
            return False
        rest = self.best(with_corner(chosen, corner), more - 1) if more > 1 else 0
        return gain + rest >= self.best(chosen, more)

    def _search(self, chosen: Chosen, more: int) -> int:
        if more == 0:
            return 0
        known = self._best.get((chosen, more))
        if known is not None:
            return known
        bound = self._bound(chosen, more)
        found = 0
        for corner in self.order:
            gain = self.gain(chosen, corner)
            if not gain or (self._visits > VISITS_MAX and found):
                continue
            self._visits += 1
            if more > 1:
                larger = with_corner(chosen, corner)
                if gain + self._bound(larger, more - 1) <= found:
                    continue
                gain += self._search(larger, more - 1)
            found = max(found, gain)
            if found >= bound:
                break
        self._best[chosen, more] = found
        return found

    def _bound(self, chosen: Chosen, more: int) -> int:
        """No set of `more` copies adds more than this: each dimension alone, emptiest first."""
        total = self._placed * more
        for d, worth in enumerate(self._distinct):
            values = [self._corners[c][d] for c in chosen]
            known = {value: values.count(value) for value in values if value != UNKNOWN}
            fresh = min(more, self._values[d] - len(known))
            total += worth * fresh
            if fresh == more:
                continue
            counts = [*known.values(), *[1] * fresh]
            if self._has_unknown[d]:
                counts.append(values.count(UNKNOWN))
            for _ in range(more - fresh):
                least = counts.index(min(counts))
                total -= counts[least] * self._pair
                counts[least] += 1
        return total
