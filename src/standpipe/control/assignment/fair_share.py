"""Fair shares of indivisible work among nodes of unequal capacity: D'Hondt's rule.

Each unit goes to the node whose load (count / capacity) is lowest after taking it. No single move
can improve the result: max load <= min load + one unit, hence balanced within 1 per capacity unit.
Rounding each node's proportional share cannot promise that.
There is a choice only among nodes that tie for the last units. `Shares` leaves it open, so that
actives can stay where they are.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shares:
    """A fair division of new units, on top of what nodes already hold."""

    #: node -> units that it gets in every fair division
    sure: tuple[int, ...]
    #: nodes that may get one unit more ...
    maybe: frozenset[int]
    #: ... and how many of them do
    spare: int


class Levels:
    """Loads as integers that compare exactly: count / capacity over a common denominator."""

    def __init__(self, capacities: Sequence[int]) -> None:
        common = math.lcm(*capacities) if capacities else 1
        #: node -> height that one unit adds
        self.unit = [common // capacity for capacity in capacities]

    def level(self, node: int, count: int) -> int:
        """Height of a node that has `count` units."""
        return count * self.unit[node]


def fair_shares(capacities: Sequence[int], total: int, held: Sequence[int]) -> Shares:
    """Divide `total` units among nodes that already hold `held` units, which cannot move."""
    levels = Levels(capacities)
    sure = [0] * len(capacities)
    heap = [(levels.level(n, held[n] + 1), n) for n in range(len(capacities))]
    heapq.heapify(heap)
    left = total
    while heap and left:
        height = heap[0][0]
        tied: list[int] = []
        while heap and heap[0][0] == height:
            tied.append(heapq.heappop(heap)[1])
        if len(tied) > left:
            return Shares(tuple(sure), frozenset(tied), left)
        left -= len(tied)
        for n in tied:
            sure[n] += 1
            heapq.heappush(heap, (height + levels.unit[n], n))
    return Shares(tuple(sure), frozenset(), 0)
