"""Seeds and planted bugs of push queries in sessions that fit into a test run; the rest:
`make sim-sessions`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.sim import push_planted, runner, sessions
from tests.sim.push_histories import (
    NO_COMMIT,
    Began,
    CommittedChanges,
    Delivered,
    Drained,
    Event,
    Opened,
    Pulled,
    PushJudge,
    Whole,
)
from tests.sim.push_planted import PUSH_PLANTS


def test_seeds() -> None:
    total: Counter[str] = Counter()
    for seed in range(8):
        _, failure, counts, _, _ = sessions.run_push_seed(seed)
        assert failure is None, failure
        total += counts
    assert [name for name in sessions.EXPECTED_OF_PUSH if not total[name]] == []


def test_seeds_of_a_stream() -> None:
    total: Counter[str] = Counter()
    for seed in range(8):
        _, failure, counts, _, _ = sessions.run_stream_seed(seed)
        assert failure is None, failure
        total += counts
    assert [name for name in sessions.EXPECTED_OF_STREAM if not total[name]] == []


#: those of positions, and of what the client does with its tokens
STREAM_PLANTS = [
    push_planted.one_record_too_far,
    push_planted.one_record_too_few,
    push_planted.position_of_the_wrong_partition,
    push_planted.begin_where_the_request_says,
    push_planted.the_token_comes_before_its_rows,
    push_planted.keep_rows_of_a_broken_connection,
    push_planted.the_session_is_ahead_of_its_rows,
    push_planted.keep_the_last_token,
]


@pytest.mark.parametrize("plant", STREAM_PLANTS, ids=lambda plant: plant.__name__)
def test_the_judge_catches_on_a_stream(plant: Callable[[], list[runner.Plant]]) -> None:
    seed, by = runner.catch(plant, sessions.run_stream_seed, range(20))
    assert seed is not None, by


@pytest.mark.parametrize("plant", PUSH_PLANTS, ids=lambda plant: plant.__name__)
def test_the_judge_catches(plant: Callable[[], list[runner.Plant]]) -> None:
    seed, by = runner.catch(plant, sessions.run_push_seed, range(20))
    assert seed is not None, by


def changes() -> CommittedChanges:
    """Numbers tell what they are: 12 is the third change of partition 1."""
    made = CommittedChanges(2)
    made.commit([(0, 0), (1, 10)])
    made.commit([(0, 1), (0, 2)])
    made.commit([(1, 11)])
    made.commit([(1, 12), (0, 3)])
    return made


def read(begin: int, end: int, *parts: int, session: str = "s") -> Pulled:
    return Pulled(session, begin, end, dict(enumerate(parts)))


def began(at: int, *, query: int = 1, session: str = "s", from_beginning: bool = False) -> Began:
    return Began(session, query, at, from_beginning)


def got(*numbers: int, query: int = 1, at: int = 20) -> list[Event]:
    return [Delivered(query, at, number) for number in numbers]


#: a push query from the beginning; all that came with its last row was taken; one after it
ALL, WHOLE, NEXT = began(2, from_beginning=True), Whole(1, 21), began(22, query=2)


@pytest.mark.parametrize(
    ("events", "count", "why"),
    [
        ([read(0, 1, 1, 1), began(2), *got(11, 3, 12), Drained(1, 30)], 0, "all after the read"),
        ([read(0, 1, 1, 1), began(2), *got(3, 11, 12)], 0, "of two partitions in any order"),
        ([read(0, 1, 1, 1), began(2), *got(2, 3)], 1, "the read has shown 2 already"),
        ([read(0, 1, 1, 1), began(2), *got(12)], 1, "11 is left out"),
        ([read(0, 1, 1, 1), began(2), *got(11, 12), Drained(1, 30)], 1, "3 is left out at the end"),
        ([read(0, 1, 1, 1), began(2), *got(11, 11, 12)], 1, "11 comes twice"),
        ([read(0, 1, 1, 1), began(2), *got(12, 11)], 2, "in the wrong order"),
        ([read(0, 1, 1, 1), began(2), *got(99)], 1, "nobody has committed that"),
        ([read(0, 1, 1, 0), began(2), *got(1, 2, 11)], 0, "one part was older: from there"),
        ([read(0, 1, 1, 0), began(2), *got(3)], 1, "and not from the newer one"),
        ([read(0, 1, 1, session="t"), began(2), *got(10)], 0, "another session's read"),
        ([ALL, *got(0, 10, 1)], 0, "from the beginning"),
        ([read(0, 1, 1), ALL, *got(0)], 0, "whatever was seen"),
        ([ALL, *got(1)], 1, "0 is left out"),
        ([began(2), Opened(1, 3), Drained(1, 4)], 0, "at the end, where nothing comes"),
        ([began(2), Opened(1, 3), *got(3)], 1, "what was committed before it is not for it"),
        (
            [ALL, *got(0, 10), WHOLE, NEXT, *got(1, 11, query=2)],
            0,
            "the next one goes on behind it",
        ),
        (
            [ALL, *got(0, 10), WHOLE, NEXT, *got(10, query=2)],
            1,
            "and shows nothing twice",
        ),
        (
            [ALL, *got(0), WHOLE, *got(1), NEXT, *got(1, query=2)],
            0,
            "what was left between two rows comes again",
        ),
        (
            [ALL, *got(0), WHOLE, *got(1), NEXT, *got(2, query=2)],
            1,
            "and must, with all that came with it",
        ),
        (
            [ALL, *got(0), WHOLE, read(21, 22, 2, 2), *got(1, 2, 10)],
            0,
            "a read beside it does not move it",
        ),
        ([ALL, *got(0, 1, at=5), read(6, 7, 0)], 1, "older than 1"),
        ([ALL, *got(0, 1, at=5), read(6, 7, 1)], 0, "not older"),
        ([ALL, *got(0, 1, at=5), read(5, 7, 0)], 0, "side by side"),
        ([ALL, *got(0, 1, at=5), read(6, 7, 1, 0)], 1, "in no part"),
        ([read(0, 1, 2), read(2, 3, 1)], 1, "a read after a read"),
        ([read(0, 1, 2), read(1, 3, 1)], 0, "side by side"),
        ([read(0, 1, NO_COMMIT), began(2), Opened(1, 3), Drained(1, 4)], 0, "of an empty table"),
    ],
)
def test_the_judge(events: list[Event], count: int, why: str) -> None:
    judge = PushJudge(changes())
    for event in events:
        judge.take(event)
    assert len(judge.found) == count, (why, judge.found)
