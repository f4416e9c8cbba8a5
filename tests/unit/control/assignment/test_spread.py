"""How far apart copies can get: look-ahead, limits, and a twin that tries every set."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.control.assignment.spread import UNKNOWN, Spread

VALUES = st.sampled_from([0, 1, 2, UNKNOWN])


def spread_of(corners: list[tuple[int, ...]], limit: int | None = None) -> Spread:
    dimensions = len(corners[0])
    return Spread(corners, [1] * len(corners), 4, [limit] * dimensions)


def test_a_pick_that_leads_into_the_trap_is_refused() -> None:
    """(cluster, zone): active (0, 0); (1, 1) blocks both of the others."""
    spread = spread_of([(0, 0), (1, 1), (1, 2), (2, 1)])
    assert not spread.leads_to_best((0,), 1, more=2)
    assert spread.leads_to_best((0,), 2, more=2)
    assert spread.leads_to_best((0,), 3, more=2)


def test_a_forced_limit_leaves_copies_out() -> None:
    spread = spread_of([(0,), (0,), (1,)], limit=1)
    assert spread.gain((0,), 1) == 0, "value 0 is full"
    assert spread.gain((0,), 2) > 0
    assert spread.best((0, 2), 1) == 0, "nothing may follow"


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6), st.integers(1, 3))
@settings(max_examples=examples(50), deadline=None)
def test_best_agrees_with_trying_every_set(corners: list[tuple[int, ...]], more: int) -> None:
    spread = spread_of(corners)
    rest = range(1, len(corners))
    sets = itertools.combinations(rest, min(more, len(rest)))
    best = max(spread.score((0, *chosen)) for chosen in sets)
    assert spread.best((0,), more) == best - spread.score((0,))
