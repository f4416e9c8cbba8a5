"""When a tailer publishes status pages."""

from __future__ import annotations

import random

import pytest

from standpipe.data.replica.page_pace import ALL_MS, EARLY_MS, PagePace, Round

BEGAN_MS = 1_000


def after_a_round(*, told: int, took_ms: int = 0) -> PagePace:
    pace = PagePace()
    assert pace.next(BEGAN_MS, 0) is Round.ALL, "the first is due at once"
    pace.ended(Round.ALL, BEGAN_MS, BEGAN_MS + took_ms, told)
    return pace


@pytest.mark.parametrize(
    ("after_ms", "barrier_end", "due", "why"),
    [
        (ALL_MS - 1, 0, Round.NONE, "nobody waits"),
        (ALL_MS - 1, 7, Round.NONE, "the pages have that barrier"),
        (ALL_MS, 7, Round.ALL, "a sign of life"),
        (EARLY_MS - 1, 8, Round.NONE, "too soon after the round before"),
        (EARLY_MS, 8, Round.AWAITED, "a barrier that a page does not have"),
        (ALL_MS - 1, 8, Round.AWAITED, "likewise, as late as can be"),
        (ALL_MS, 8, Round.ALL, "which has it, too"),
    ],
)
def test_which_pages_are_due(after_ms: int, barrier_end: int, due: Round, why: str) -> None:
    assert after_a_round(told=7).next(BEGAN_MS + after_ms, barrier_end) is due, why


@pytest.mark.parametrize(
    ("took_ms", "after_ms", "due"),
    [
        (0, EARLY_MS, Round.AWAITED),
        (2, 2 + 17, Round.NONE),
        (2, 2 + 18, Round.AWAITED),
    ],
)
def test_rounds_of_many_replicas_leave_time_for_their_batches(
    took_ms: int, after_ms: int, due: Round
) -> None:
    pace = after_a_round(told=7, took_ms=took_ms)
    assert pace.next(BEGAN_MS + after_ms, 8) is due


def test_an_early_round_does_not_put_off_the_next_one_of_all() -> None:
    pace = after_a_round(told=7)
    pace.ended(Round.AWAITED, BEGAN_MS + 40, BEGAN_MS + 40, 8)
    assert pace.next(BEGAN_MS + ALL_MS - 1, 8) is Round.NONE, "the barrier is told"
    assert pace.next(BEGAN_MS + ALL_MS, 8) is Round.ALL


@pytest.mark.parametrize("took_ms", [0, 1, 4])
def test_however_many_barriers_come_rounds_are_bounded(took_ms: int) -> None:
    """And each barrier is told in time: within the pause that the round before it asked for."""
    draw, pace, now_ms, barrier_end, told = random.Random(took_ms), PagePace(), 0, 0, 0
    early = rounds_of_all = busy_ms = 0
    asked_ms = None
    while now_ms < 10_000:
        if draw.random() < 0.7:
            barrier_end += 1
            asked_ms = now_ms if asked_ms is None else asked_ms
        due = pace.next(now_ms, barrier_end)
        if due is not Round.NONE:
            told, began_ms = barrier_end, now_ms
            now_ms += took_ms
            pace.ended(due, began_ms, now_ms, told)
            early, rounds_of_all = (
                early + (due is Round.AWAITED),
                rounds_of_all + (due is Round.ALL),
            )
            busy_ms += took_ms if due is Round.AWAITED else 0
            asked_ms = None
        now_ms += 1
        if asked_ms is not None:
            assert now_ms - asked_ms <= max(EARLY_MS, 9 * took_ms) + 1
    assert early <= 10_000 / EARLY_MS
    assert busy_ms <= 10_000 / 10
    assert rounds_of_all <= 10_000 / ALL_MS
