"""When a silent query is reported, and when it is started anew."""

from __future__ import annotations

import pytest

from standpipe.pipeline.stall import RESTART_S_FIRST, RESTART_S_MAX, Signs, StallWatch


def signs(batch: int, *, has_data: bool = True) -> Signs:
    return Signs(mark=(batch,), has_data=has_data)


def test_progress_and_idleness_are_no_silence() -> None:
    watch = StallWatch()
    watch.began(0)
    silences = [
        watch.look(signs(1), 10),
        watch.look(signs(1), 15),
        watch.look(signs(2), 20),
        watch.look(signs(2, has_data=False), 30),
        watch.look(signs(2), 31),
    ]
    assert silences == [0, 5, 0, 0, 1]


@pytest.mark.parametrize(
    ("restarts", "after_s"),
    [(0, RESTART_S_FIRST), (1, 2 * RESTART_S_FIRST), (99, RESTART_S_MAX)],
)
def test_restarts_back_off(restarts: int, after_s: float) -> None:
    watch = StallWatch(restarts=restarts)
    assert not watch.is_restarted(after_s - 0.1)
    assert watch.is_restarted(after_s)


def test_progress_ends_the_back_off_but_a_start_does_not() -> None:
    watch = StallWatch(restarts=2)
    watch.began(0)
    watch.look(signs(1), 1)
    assert watch.restarts == 2, "the first look of a run tells nothing"
    watch.look(signs(2), 2)
    assert watch.restarts == 0
