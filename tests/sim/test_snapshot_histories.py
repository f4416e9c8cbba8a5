"""The judge of reads at level `snapshot`: histories with and without an answer of two batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sim.session_histories import NO_VALUE, SessionAnswer, Writes
from tests.sim.snapshot_histories import snapshot_violations

WRITES = Writes({"x": [0, 4, 8], "y": [2, 6], "z": [4, 6]})
KEYS = ("x", "y", "z")


def answer(**values: int) -> SessionAnswer:
    return SessionAnswer("r", 0, 1, values, "n:1")


@pytest.mark.parametrize(
    ("values", "said", "why"),
    [
        ({}, "", "no row"),
        ({"x": 4}, "", "a lone key is of one batch"),
        ({"x": 4, "y": 2}, "", "of batch 4 or 5"),
        ({"x": 4, "y": 6}, "", "of batch 6 or 7"),
        ({"x": 0, "y": 6}, "y as of batch 6 or later, and x as of one before batch 4", "x is old"),
        ({"x": 8, "y": 2}, "x as of batch 8 or later, and y as of one before batch 6", "y is old"),
        ({"x": 8, "y": 6}, "", "the newest of all"),
        ({"x": NO_VALUE, "y": NO_VALUE}, "", "before the first batch"),
        ({"x": 0, "y": NO_VALUE}, "", "of batch 0 or 1"),
        ({"x": 4, "y": NO_VALUE}, "y as of one before batch 2", "y's row was there by then"),
        ({"x": 4, "y": 2, "z": NO_VALUE}, "z as of one before batch 4", "of one batch, all three"),
        ({"x": 4, "y": 2, "z": 4}, "", "likewise"),
        ({"x": 4, "z": 6, "y": 2}, "z as of batch 6", "x fits both, and these two not each other"),
        ({"x": 5}, "x = 5, which no batch wrote", "a value of nobody"),
        ({"x": 4, "w": 4}, "w = 4, which no batch wrote", "a key of nobody"),
    ],
)
def test_the_judge(values: dict[str, int], said: str, why: str) -> None:
    found = snapshot_violations(WRITES, [answer(**values)])
    assert len(found) == bool(said), why
    assert said in "".join(found), why


@given(
    of=st.lists(st.sets(st.sampled_from(KEYS)), max_size=8),
    asked=st.dictionaries(st.sampled_from(KEYS), st.integers(-1, 8)),
)
def test_it_finds_exactly_what_is_of_no_batch(of: list[set[str]], asked: dict[str, int]) -> None:
    """Each key of an answer is read at some batch: right if one batch would show the same."""
    writes = Writes()
    for batch, keys in enumerate(of):
        writes.add(batch, sorted(keys))
    shown = answer(**{key: writes.value_at(key, batch) for key, batch in asked.items()})
    is_right = any(
        all(writes.value_at(key, batch) == value for key, value in shown.values.items())
        for batch in range(-1, len(of))
    )
    assert (snapshot_violations(writes, [shown]) == []) is is_right
