"""Fair shares by D'Hondt's rule, and the choice among ties that they leave open."""

from __future__ import annotations

import pytest

from standpipe.control.assignment.fair_share import fair_shares


@pytest.mark.parametrize(
    ("capacities", "total", "held", "sure", "maybe", "spare", "why"),
    [
        ([1, 1, 1], 9, [0, 0, 0], (3, 3, 3), set(), 0, "nothing is left open"),
        ([1, 1, 1], 10, [0, 0, 0], (3, 3, 3), {0, 1, 2}, 1, "any one may have the tenth"),
        ([1, 2, 3], 6, [0, 0, 0], (1, 2, 3), set(), 0, "by capacity"),
        ([1, 3], 3, [0, 0], (0, 2), {0, 1}, 1, "1/1 and 3/3 tie"),
        ([1, 1], 3, [4, 0], (0, 3), set(), 0, "on top of what is held already"),
        ([], 3, [], (), set(), 0, "nobody to share with"),
    ],
)
def test_fair_shares(
    capacities: list[int],
    total: int,
    held: list[int],
    sure: tuple[int, ...],
    maybe: set[int],
    spare: int,
    why: str,
) -> None:
    shares = fair_shares(capacities, total, held)
    assert (shares.sure, shares.maybe, shares.spare) == (sure, maybe, spare), why
