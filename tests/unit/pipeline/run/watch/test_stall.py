"""When a silent query is reported, and when it is started anew."""

from __future__ import annotations

import pytest

from standpipe.pipeline.run.watch.stall import (
    ASK_EVERY_S,
    ASK_S,
    FORGET_S,
    REPORT_S,
    RESTART_S_FIRST,
    RESTART_S_MAX,
    Signs,
    StallWatch,
    Work,
)


def signs(batch: int, work: Work | None = None, *, has_data: bool = True) -> Signs:
    return Signs(mark=(batch,), work=work, has_data=has_data)


def task(records: int, stage: int = 1) -> Work:
    return ((stage, 0, 0, records),)


@pytest.mark.parametrize(
    ("looks", "silences", "why"),
    [
        ([(10, signs(1)), (15, signs(1)), (20, signs(2)), (21, signs(2))], [0, 5, 0, 1], "commits"),
        ([(10, signs(1)), (30, signs(1, has_data=False)), (31, signs(1))], [0, 0, 1], "idleness"),
        (
            [(10, signs(1)), (100, signs(1, task(5))), (200, signs(1, task(5)))],
            [0, 90, 190],
            "tasks that stand still: a batch that hangs",
        ),
        (
            [(10, signs(1)), (100, signs(1, task(5))), (190, signs(1, task(6))), (200, signs(1))],
            [0, 90, 0, 10],
            "a batch over 180 s was ended, though its tasks got somewhere",
        ),
        (
            [(10, signs(1)), (100, signs(1, task(9))), (190, signs(1, task(0, stage=2)))],
            [0, 90, 0],
            "the next stage",
        ),
        ([(10, signs(1)), (100, signs(1, ())), (190, signs(1, ()))], [0, 90, 180], "no tasks"),
        (
            [(10, signs(1)), (11, signs(1, task(5))), (12, signs(2)), (40, signs(2, task(6)))],
            [0, 1, 0, 28],
            "the first sight of a batch's tasks is no progress of theirs",
        ),
    ],
)
def test_what_is_progress(
    looks: list[tuple[float, Signs]], silences: list[float], why: str
) -> None:
    watch = StallWatch()
    watch.began(0)
    assert [watch.look(seen, now) for now, seen in looks] == silences, why


def test_tasks_are_asked_about_once_a_query_is_silent_and_not_at_each_look() -> None:
    watch = StallWatch()
    watch.began(0)
    watch.look(signs(1), 0)
    assert not watch.wants_work(ASK_S - 0.1)
    assert watch.wants_work(ASK_S)
    watch.look(signs(1, ()), ASK_S)
    assert not watch.wants_work(ASK_S + ASK_EVERY_S - 0.1)
    assert watch.wants_work(ASK_S + ASK_EVERY_S)
    assert ASK_S + ASK_EVERY_S < REPORT_S, "it is known before anything is said"


@pytest.mark.parametrize(
    ("restarts", "after_s"),
    [(0, RESTART_S_FIRST), (1, 2 * RESTART_S_FIRST), (99, RESTART_S_MAX)],
)
def test_restarts_back_off(restarts: int, after_s: float) -> None:
    watch = StallWatch(restarts=restarts)
    assert not watch.is_restarted(after_s - 0.1)
    assert watch.is_restarted(after_s)


@pytest.mark.parametrize(
    ("after_s", "restarts", "why"),
    [
        (1, 1, "the next batch may need as long: each lost 180 s, for ever"),
        (FORGET_S - 1, 1, ""),
        (FORGET_S, 0, "long ago"),
    ],
)
def test_progress_ends_the_back_off_after_a_while(after_s: float, restarts: int, why: str) -> None:
    watch = StallWatch()
    watch.began(0)
    watch.look(signs(1), 1)
    watch.restarted(200)
    watch.began(200)
    watch.look(signs(1), 200)
    watch.look(signs(2), 200 + after_s)
    assert watch.restarts == restarts, why


def test_a_start_is_no_progress() -> None:
    watch = StallWatch(restarts=2)
    watch.began(0)
    watch.look(signs(1), 1)
    assert watch.restarts == 2, "the first look of a run tells nothing"
    watch.look(signs(2), 2)
    assert watch.restarts == 0
