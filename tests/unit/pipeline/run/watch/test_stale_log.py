"""When a node whose log is followed is cut off, from what its pages and renewals say."""

from __future__ import annotations

import pytest

from standpipe.control.metadata.commands import LogPage
from standpipe.model import LogIndex, NodeId
from standpipe.pipeline.run.watch.stale_log import STALE_S, StaleLog, is_better


def page(last_index: int, leader: str = "a") -> LogPage:
    return LogPage(
        entries=(), last_index=LogIndex(last_index), leader=NodeId(leader), cluster_id="c"
    )


#: (seconds, newest entry of the page, its leader, newest entry that the leader told) -> stale
@pytest.mark.parametrize(
    ("pages", "expected", "why"),
    [
        ([(0, 7, "a", 7), (60, 7, "a", 7)], "", "a quiet cluster"),
        ([(0, 7, "a", 0), (60, 7, "a", 0)], "", "nothing was renewed yet"),
        ([(0, 7, "", 7), (STALE_S - 0.1, 7, "", 7)], "", "an election"),
        ([(0, 7, "", 7), (STALE_S, 7, "", 7)], "it has known no leader for 3 s", "no election"),
        ([(0, 7, "", 7), (1, 7, "a", 7), (STALE_S, 7, "", 7)], "", "two elections"),
        ([(0, 7, "a", 8), (STALE_S - 0.1, 7, "a", 9)], "", "it comes in a moment"),
        ([(0, 7, "a", 8), (STALE_S, 7, "a", 9)], "it has lacked entry 8 for 3 s", "cut off"),
        ([(0, 7, "a", 9), (STALE_S, 8, "a", 9)], "it has lacked entry 9 for 3 s", "not all of it"),
        ([(0, 7, "a", 8), (1, 8, "a", 9), (STALE_S, 9, "a", 10)], "", "always one entry behind"),
        ([(0, 7, "a", 8), (1, 7, "a", 7), (STALE_S, 7, "a", 7)], "", "the log is another one"),
    ],
)
def test_stale(pages: list[tuple[float, int, str, int]], expected: str, why: str) -> None:
    stale = StaleLog()
    *before, last = [
        stale.take(page(last_index, leader), confirmed, 100.0 + at_s)
        for at_s, last_index, leader, confirmed in pages
    ]
    assert set(before) <= {""}
    assert last == expected, why


def test_stale_is_said_once_in_a_while() -> None:
    """Each time, all other nodes are asked."""
    stale = StaleLog()
    said = [bool(stale.take(page(7, ""), 9, float(at_s))) for at_s in range(10)]
    assert said == [at_s in {3, 7} for at_s in range(10)]


@pytest.mark.parametrize(
    ("other", "served", "expected", "why"),
    [
        (page(8), page(7), True, "newer entries"),
        (page(8, ""), page(7, ""), True, "newer entries, although it has no leader either"),
        (page(7), page(7, ""), True, "a leader"),
        (page(7, ""), page(7, ""), False, "an election"),
        (page(7), page(7), False, "the same"),
        (page(6), page(7, ""), False, "it is behind, although it has a leader"),
    ],
)
def test_is_better(other: LogPage, served: LogPage, *, expected: bool, why: str) -> None:
    assert is_better(other, served) is expected, why
