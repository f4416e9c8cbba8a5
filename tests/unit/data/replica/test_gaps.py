"""When a replica that met a gap may call its rows a batch's rows again."""

from __future__ import annotations

import pytest
from tests.unit.data.rows import commit, record

from standpipe.data.commit.progress import TargetSet
from standpipe.data.encoding.store_keys import commit_header
from standpipe.data.replica.gaps import Gaps
from standpipe.model import Offset

B0, ZOMBIE = commit(1, 0), commit(0, 9)
END, LOG_END = Offset(5), Offset(8)


def gaps(*, strict_from: int = 2, since_ms: int = 50, gone_ms: int = 0) -> Gaps:
    found = Gaps(Offset(0), gone_ms)
    target = TargetSet(commit=B0, end=END, since_ms=since_ms)
    found.met(target, strict_from, committed_end=END, log_end=LOG_END)
    return found


def is_whole(
    of: Gaps, end: int, *, judged: int, next_offset: int, clean: int = 0, committed_ms: int = 0
) -> bool:
    return of.are_rows_whole(
        TargetSet(commit=B0, end=Offset(end), committed_at_ms=committed_ms),
        judged=Offset(judged),
        next_offset=Offset(next_offset),
        clean_through=Offset(clean),
    )


@pytest.mark.parametrize(
    ("end", "judged", "next_offset", "whole", "why"),
    [
        (4, 4, 8, False, "short of the newest target of that moment"),
        (5, 5, 7, False, "records that were in the log then are not fetched"),
        (5, 5, 8, True, "what was in the log then is not committed yet, so not applied"),
        (5, 6, 8, False, "and partly judged for a later target"),
        (8, 9, 9, True, "all that was in the log then is applied"),
    ],
)
def test_whole_again(end: int, judged: int, next_offset: int, whole: bool, why: str) -> None:
    assert is_whole(gaps(), end, judged=judged, next_offset=next_offset) is whole, why


def test_a_foreign_record_hides_a_row_until_it_is_ended() -> None:
    one = gaps()
    foreign, row = record(6, "a", 2, ZOMBIE), record(7, "a", 1, B0)
    one.judged([foreign], commit_header(B0), 0, some_are_foreign=True)
    assert not is_whole(one, 8, judged=8, next_offset=8)
    one.judged([row], commit_header(B0), 0, some_are_foreign=False)
    assert is_whole(one, 8, judged=8, next_offset=8)


def test_a_later_gap_waits_for_what_the_log_had_by_then() -> None:
    one = gaps()
    later = TargetSet(commit=B0, end=Offset(9))
    one.met(later, 6, committed_end=Offset(9), log_end=Offset(12))
    assert not is_whole(one, 9, judged=9, next_offset=9)
    assert is_whole(one, 9, judged=9, next_offset=12)


@pytest.mark.parametrize(
    ("committed_ms", "whole", "why"),
    [
        (100, True, "all tombstones since then are still there"),
        (99, False, "a foreign tombstone behind the last batch took a row along, and left"),
    ],
)
def test_what_left_the_end_of_the_log_may_hide_a_row(
    committed_ms: int, whole: bool, why: str
) -> None:
    """Seed 218: of a row below `clean_through`, too: the tombstone came after it was called so."""
    one = gaps(strict_from=5, gone_ms=100)
    assert is_whole(one, 5, judged=5, next_offset=8, committed_ms=committed_ms) is whole, why
    assert bool(one.doubt(Offset(7))) is not whole
    assert not one.doubt(Offset(8)), "somebody looked in time"


def test_foreign_records_from_before_any_gap_hide_nothing() -> None:
    one = Gaps(Offset(0), 0)
    one.judged([record(1, "a", 2, ZOMBIE)], commit_header(B0), 0, some_are_foreign=True)
    one.met(TargetSet(commit=B0, end=END), 3, committed_end=END, log_end=LOG_END)
    assert is_whole(one, 8, judged=8, next_offset=8)


@pytest.mark.parametrize(
    ("strict_from", "since_ms", "clean", "in_doubt", "why"),
    [
        (2, 50, 0, True, "what tombstones told of that time is forgotten"),
        (2, 50, 5, False, "somebody looked in time"),
        (5, 50, 0, False, "what is missing was called clean"),
        (2, 150, 0, False, "all tombstones are still there"),
    ],
)
def test_doubt(strict_from: int, since_ms: int, clean: int, in_doubt: bool, why: str) -> None:
    one = gaps(strict_from=strict_from, since_ms=since_ms, gone_ms=100)
    assert bool(one.doubt(Offset(clean))) is in_doubt, why
    assert is_whole(one, 8, judged=8, next_offset=8, clean=clean) is not in_doubt
