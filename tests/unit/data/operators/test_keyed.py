"""data/operators/keyed.py: one key at a time, batch after batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.operators.keyed import (
    Row,
    changes,
    foreign,
    lookup,
    members,
    session_windows,
    streams,
)

NONE: dict[str, int] = {}


def _row(order: int, row: str = "r", **more: Any) -> Row:
    return {"__ORDER": order, "__ROWTIME": order, "__ROW": row, **more}


def _signed(rows: Sequence[Row]) -> list[tuple[int, str]]:
    return [(row["__SIGN"], row["__ROW"]) for row in rows]


def test_changes_tells_the_row_before_and_the_row_now() -> None:
    first = changes(None, [_row(1, "a", __LIVE=True)], NONE, 0)
    assert _signed(first.rows) == [(1, "a")]
    second = changes(first.state, [_row(3, "c", __LIVE=True), _row(2, "b", __LIVE=True)], NONE, 0)
    assert _signed(second.rows) == [(-1, "a"), (-1, "b"), (1, "c")], "b was there in passing"
    again = changes(second.state, [_row(4, "c", __LIVE=True), _row(5, "c", __LIVE=True)], NONE, 0)
    assert _signed(again.rows) == [(-1, "c"), (1, "c")]
    gone = changes(second.state, [_row(4, "", __LIVE=False)], NONE, 0)
    assert (_signed(gone.rows), gone.state) == ([(-1, "c")], None)
    assert not gone.rows[0]["__STAYS"]


def test_a_group_is_put_out_whole_and_stays_when_it_is_empty() -> None:
    first = members(
        None, [_row(1, "a", __ID="1", __SIGN=1), _row(2, "b", __ID="2", __SIGN=1)], NONE, 0
    )
    assert [row["__ROW"] for row in first.rows] == ["a", "b"]
    second = members(first.state, [_row(3, "a", __ID="1", __SIGN=-1)], NONE, 0)
    assert [(row["__ROW"], row["__ROWTIME"]) for row in second.rows] == [("b", 3)]
    empty = members(second.state, [_row(4, "b", __ID="2", __SIGN=-1)], NONE, 0)
    assert [(row["__MEMBER"], row["__ROW"]) for row in empty.rows] == [(False, None)]


def test_a_group_that_had_rows_within_a_batch_only_is_known() -> None:
    passing = [_row(1, "a", __LIVE=True), _row(2, "", __LIVE=False)]
    signed = changes(None, passing, NONE, 0).rows
    rows = [_row(2, row["__ROW"], __ID="1", __SIGN=row["__SIGN"]) for row in signed]
    assert [row["__MEMBER"] for row in members(None, rows, NONE, 0).rows] == [False]


def test_final_sessions_are_put_out_once_when_they_are_over() -> None:
    options = {"gap_ms": 5, "is_final": 1}
    first = session_windows(None, [_row(n, f"r{n}") for n in (1, 4, 20)], options, 0)
    assert (first.rows, first.wakes_ms) == ([], 10)
    none = session_windows(first.state, [], options, 9)
    assert none.rows == [], "an event at 9 would still belong to it"
    over = session_windows(none.state, [_row(14, "late"), _row(17, "r17")], options, 21)
    bounds = [(row["WINDOWSTART"], row["WINDOWEND"], row["__ROW"]) for row in over.rows]
    assert (bounds, over.wakes_ms) == ([(1, 4, "r1"), (1, 4, "r4")], 26)
    last = session_windows(over.state, [], options, 26)
    assert [(row["WINDOWSTART"], row["WINDOWEND"]) for row in last.rows] == [(17, 20)] * 2
    assert last.state is None


def test_sessions_leave_out_what_is_late_within_a_batch() -> None:
    options = {"gap_ms": 5, "grace_ms": 0, "retention_ms": 5}
    rows = [_row(0, "a", __T=0), _row(20, "b", __T=20), _row(21, "late", __T=21)]
    rows[2]["__ROWTIME"] = 14
    for more, at_once in (({}, True), ({"is_final": 1}, False)):
        made = session_windows(None, rows, {**options, **more}, 0)
        kept = [row["__ROW"] for row in made.rows] if at_once else made.state
        assert kept is not None
        assert "late" not in kept
        assert ("b" in kept) is True
    older = session_windows(None, rows, {"gap_ms": 5}, 0)
    assert "late" in [row["__ROW"] for row in older.rows], "a plan of before has no stream time"


def test_no_event_of_a_later_batch_joins_a_session_that_is_expired() -> None:
    """The state has events only: sessions are made from them, and these would be one."""
    options = {"gap_ms": 10, "grace_ms": 5, "retention_ms": 15}
    times = {1: (0, 0), 2: (15, 15), 3: (10, 15), 4: (12, 15)}
    rows = [
        {**_row(order, f"r{order}", __T=stream_ms), "__ROWTIME": at_ms}
        for order, (at_ms, stream_ms) in times.items()
    ]
    first = session_windows(None, rows[:3], options, 0)
    assert {(row["WINDOWSTART"], row["WINDOWEND"]) for row in first.rows} == {(0, 0), (10, 15)}
    second = session_windows(first.state, rows[3:], options, 0)
    found = [(row["WINDOWSTART"], row["WINDOWEND"], row["__ROW"]) for row in second.rows]
    assert sorted(found) == [(10, 15, "r2"), (10, 15, "r3"), (10, 15, "r4")]
    final = session_windows(None, rows[:3], {**options, "is_final": 1}, 0)
    assert [(row["WINDOWSTART"], row["__ROW"]) for row in final.rows] == [(0, "r1")]


def test_a_foreign_join_has_the_time_of_its_later_row() -> None:
    right = _row(5, "r", __SIDE=1, __SIGN=1, __LIVE=True)
    first = foreign(None, [_left(3, "1", 1), right], NONE, 0)
    assert [row["__ROWTIME"] for row in first.rows] == [5]
    second = foreign(first.state, [_left(4, "1", 1)], NONE, 0)
    assert [row["__ROWTIME"] for row in second.rows] == [5], "the right row's, from before"
    gone = foreign(second.state, [_row(9, "", __SIDE=1, __SIGN=1, __LIVE=False)], NONE, 0)
    assert [(row["__ROWTIME"], row["__RIGHT"]) for row in gone.rows] == [(9, None)]
    later = foreign(gone.state, [_left(6, "1", 1)], NONE, 0)
    assert [row["__ROWTIME"] for row in later.rows] == [6], "a row that is gone has no time"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), max_size=20))
def test_groups_of_a_table_hold_what_the_table_holds(
    events: list[tuple[int, int, bool]],
) -> None:
    """CHANGES and MEMBERS together against a table that is simply looked at."""
    table: dict[int, str] = {}
    states: dict[int, str | None] = {}
    groups: dict[str, str | None] = {}
    shown: dict[str, list[str]] = {}
    for order, (key, group, is_live) in enumerate(events):
        row = f"{group}:{key}:{order}"
        result = changes(states.get(key), [_row(order, row, __LIVE=is_live)], NONE, 0)
        states[key] = result.state
        table.pop(key, None)
        if is_live:
            table[key] = row
        for change in result.rows:
            of = change["__ROW"].split(":")[0]
            member = {**change, "__ID": str(key)}
            made = members(groups.get(of), [member], NONE, 0)
            groups[of] = made.state
            shown[of] = [each["__ROW"] for each in made.rows if each["__MEMBER"]]
    for of, rows in shown.items():
        assert sorted(rows) == sorted(r for r in table.values() if r.split(":")[0] == of)


def test_a_session_that_grew_deletes_its_old_window() -> None:
    options = {"gap_ms": 10}
    first = session_windows(None, [_row(0, "a")], options, 0)
    assert [(r["WINDOWSTART"], r["WINDOWEND"]) for r in first.rows] == [(0, 0)]
    second = session_windows(first.state, [_row(5, "b")], options, 0)
    windows = [(r["WINDOWSTART"], r["WINDOWEND"], r["__MEMBER"], r["__ROW"]) for r in second.rows]
    assert windows == [(0, 5, True, "a"), (0, 5, True, "b"), (0, 0, False, None)]


def test_a_session_that_no_event_can_reach_is_forgotten_and_its_rows_stay() -> None:
    options = {"gap_ms": 10}
    first = session_windows(None, [_row(0, "a")], options, 0)
    assert first.wakes_ms == 11
    kept = session_windows(first.state, [], options, 10)
    assert (kept.rows, kept.state) == ([], first.state)
    over = session_windows(first.state, [], options, 11)
    assert (over.rows, over.state) == ([], None)


def test_an_event_finds_the_row_of_its_time() -> None:
    table = [_row(5, "new", __SIDE=1, __LIVE=True)]
    events = [_row(4, "early", __SIDE=0), _row(5, "same", __SIDE=0), _row(6, "late", __SIDE=0)]
    before = lookup(None, [_row(1, "old", __SIDE=1, __LIVE=True)], NONE, 0)
    assert before.rows == []
    result = lookup(before.state, [*events, *table], NONE, 0)
    found = [(row["__LEFT"], row["__RIGHT"]) for row in result.rows]
    assert found == [("early", "old"), ("same", "new"), ("late", "new")]
    gone = lookup(result.state, [_row(7, "", __SIDE=1, __LIVE=False)], NONE, 0)
    assert gone.state is None


def _left(order: int, identity: str, sign: int, *, stays: bool = True, loose: bool = False) -> Row:
    return _row(
        order, f"L{identity}", __SIDE=0, __ID=identity, __SIGN=sign, __STAYS=stays, __LOOSE=loose
    )


def _right(order: int, *, live: bool = True) -> Row:
    return _row(
        order, "R", __SIDE=1, __ID=None, __SIGN=0, __STAYS=False, __LIVE=live, __LOOSE=False
    )


def _pairs(rows: Sequence[Row]) -> list[tuple[str, str | None, str | None]]:
    return [(row["__ID"], row["__LEFT"], row["__RIGHT"]) for row in rows]


def test_a_foreign_row_that_comes_later_reaches_all_that_name_it() -> None:
    first = foreign(None, [_left(1, "1", 1), _left(2, "2", 1)], NONE, 0)
    assert _pairs(first.rows) == [("1", "L1", None), ("2", "L2", None)]
    second = foreign(first.state, [_right(3)], NONE, 0)
    assert _pairs(second.rows) == [("1", "L1", "R"), ("2", "L2", "R")]
    third = foreign(second.state, [_right(4, live=False)], NONE, 0)
    assert _pairs(third.rows) == [("1", "L1", None), ("2", "L2", None)]


def test_a_left_row_that_moves_away_says_nothing_here_and_one_that_goes_is_deleted() -> None:
    known = foreign(None, [_left(1, "1", 1), _left(2, "2", 1), _right(3)], NONE, 0)
    moved = foreign(known.state, [_left(4, "1", -1, stays=True)], NONE, 0)
    assert moved.rows == []
    gone = foreign(moved.state, [_left(5, "2", -1, stays=False)], NONE, 0)
    assert _pairs(gone.rows) == [("2", None, None)]


def test_a_left_row_without_a_key_waits_for_nothing() -> None:
    loose = foreign(None, [_left(1, "1", 1, loose=True)], NONE, 0)
    assert (_pairs(loose.rows), loose.state) == ([("1", "L1", None)], None)


OUTER = {"before_ms": 5, "after_ms": 5, "grace_ms": -1, "keeps_left": 1, "keeps_right": 1}


def _found(rows: Sequence[Row]) -> list[tuple[str | None, str | None]]:
    return [(row["__LEFT"], row["__RIGHT"]) for row in rows]


def test_streams_are_paired_within_the_window() -> None:
    rows = [_row(0, "l0", __SIDE=0), _row(5, "r5", __SIDE=1), _row(6, "r6", __SIDE=1)]
    inner = {**OUTER, "keeps_left": 0, "keeps_right": 0}
    assert _found(streams(None, rows, inner, 0).rows) == [("l0", "r5")]
    assert _found(streams(None, rows, OUTER, 0).rows) == [
        ("l0", None),
        ("l0", "r5"),
        (None, "r6"),
    ], "without a grace period what has no partner yet is put out at once"


def test_with_a_grace_period_the_lonely_wait_for_the_end_of_their_window() -> None:
    options = {**OUTER, "grace_ms": 0}
    first = streams(None, [_row(0, "l0", __SIDE=0)], options, 0)
    assert (first.rows, first.wakes_ms) == ([], 6)
    assert streams(first.state, [], options, 5).rows == []
    over = streams(first.state, [], options, 6)
    assert (_found(over.rows), over.state) == ([("l0", None)], None)
