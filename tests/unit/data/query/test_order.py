"""Rows in the order of their keys, in pages, over several partitions; counts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.query.test_pull import SortedStore
from tests.unit.data.rows import key_columns, session, table, tumbling

from standpipe.data.encoding.store_keys import full_store_key, store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query import order, pull
from standpipe.model import Source
from standpipe.sql.plans import PullPlan

PARTITIONS = 3
TABLE = table(partitions=PARTITIONS)
TYPES = ("STRING",)
#: beyond what a key in a store has room for, and alike for longer than that
LONG = "x" * 600


def stores(source: Source, rows: list[tuple[Any, ...]]) -> list[SortedStore]:
    """One a partition; a row is (key, start, end): as much as the source's windows have."""
    placed: list[dict[bytes, bytes]] = [{} for _ in range(PARTITIONS)]
    for number, (key, *window_ms) in enumerate(rows):
        short, full = (made((key,), TYPES, *window_ms) for made in (store_key, full_store_key))
        row = pack_row(b"[%d]" % number, 5, full if full != short else b"")
        placed[pull.partition_of_key(source, (key,))][short] = row
    return [SortedStore(each) for each in placed]


def plan(source: Source = TABLE, **changes: object) -> PullPlan:
    names = tuple(column.name for column in source.columns)
    bounds = ("WINDOWSTART", "WINDOWEND") if source.window else ()
    made = PullPlan(
        source=source,
        keys=(),
        schema="",
        column_names=(names[0], *bounds, *names[1:]),
        column_types=("STRING", *("BIGINT" for _ in bounds), "BIGINT"),
        is_scan=True,
        is_ordered=True,
    )
    return msgspec.structs.replace(made, **changes)


def answer(asked: PullPlan, placed: list[SortedStore]) -> list[list[Any]]:
    """As a node makes it of the rows of all partitions."""
    rows = [row for number, store in enumerate(placed) for row in pull.lookup(asked, store, number)]
    return [json.loads(row) for row in order.merged(asked, rows, is_final=True)]


KEYS = st.one_of(
    st.text("ab\0é", max_size=4),
    st.text("ab", min_size=1, max_size=2).map(lambda tail: LONG + tail),
)


@given(st.sets(KEYS, max_size=25), st.integers(1, 4))
def test_pages_show_every_row_once_and_in_order(keys: set[str], limit: int) -> None:
    placed = stores(TABLE, [(key,) for key in keys])
    seen: list[str] = []
    while True:
        after = tuple(seen[-1:])
        page = [row[0] for row in answer(plan(limit=limit, after=after), placed)]
        seen += page
        if len(page) < limit:
            break
    assert seen == sorted(keys, key=lambda key: key.encode())
    assert seen == [row[0] for row in answer(plan(), placed)], "without pages"


@given(st.sets(st.tuples(st.sampled_from(["a", "b", LONG]), st.integers(0, 5)), max_size=18))
def test_windows_of_a_key_come_by_their_start(rows: set[tuple[str, int]]) -> None:
    source = table(partitions=PARTITIONS, window=tumbling())
    placed = stores(source, [*rows])
    expected = [list(row) for row in sorted(rows)]
    assert [row[:2] for row in answer(plan(source), placed)] == expected
    for place, (key, start_ms) in enumerate(sorted(rows)):
        behind = answer(plan(source, after=(key, start_ms)), placed)
        assert [row[:2] for row in behind] == expected[place + 1 :]
        other_keys = answer(plan(source, after=(key,)), placed)
        assert [row[:2] for row in other_keys] == [row for row in expected if row[0] > key]


def test_a_session_is_named_by_start_and_end() -> None:
    source = table(partitions=PARTITIONS, window=session(10))
    placed = stores(source, [("a", 1, 4), ("a", 20, 25), ("b", 1, 2)])
    assert [row[:3] for row in answer(plan(source, after=("a", 1, 4)), placed)] == [
        ["a", 20, 25],
        ["b", 1, 2],
    ]


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"key_low": "b"}, ["b", "ba", "c", LONG + "1", LONG + "2"]),
        ({"key_high": "ba"}, ["a", "b", "ba"]),
        ({"key_low": "b", "key_high": "b"}, ["b"]),
        ({"key_low": LONG + "2"}, [LONG + "1", LONG + "2"]),
        ({"key_low": "c", "key_high": "a"}, []),
        ({"key_high": "c", "after": ("b",)}, ["ba", "c"]),
    ],
)
def test_a_range_bounds_what_is_read(changes: dict[str, object], keys: list[str]) -> None:
    """No less than the range; what is more, WHERE leaves out."""
    placed = stores(TABLE, [(key,) for key in ("a", "b", "ba", "c", LONG + "1", LONG + "2")])
    assert [row[0] for row in answer(plan(**changes), placed)] == keys


def test_named_keys_come_in_order_too() -> None:
    placed = stores(TABLE, [(key,) for key in "abcd"])
    asked = plan(keys=(("d",), ("a",), ("c",)), is_scan=False, limit=2)
    assert [row[0] for row in answer(asked, placed)] == ["a", "c"]


def test_the_order_does_not_depend_on_what_is_shown() -> None:
    placed = stores(TABLE, [(key,) for key in "cab"])
    asked = plan(projection=(1,), column_names=("N",), column_types=("BIGINT",))
    assert answer(asked, placed) == [[1], [2], [0]]


def test_a_count_is_one_row_of_all_partitions() -> None:
    placed = stores(TABLE, [(str(number),) for number in range(50)])
    asked = plan(is_ordered=False, is_count=True, where=lambda row: row[1] % 2 == 0)
    assert answer(asked, placed) == [[25]]
    assert answer(asked, stores(TABLE, [])) == [[0]]


def test_rows_for_a_peer_keep_their_keys() -> None:
    placed = stores(TABLE, [("b",), ("a",)])
    rows = [row for n, store in enumerate(placed) for row in pull.lookup(plan(), store, n)]
    forwarded = order.merged(plan(limit=1), rows, is_final=False)
    assert forwarded == sorted(rows)[:1]
    assert order.merged(plan(), forwarded, is_final=True) == [b'["a",1]']


BOUNDARIES = {
    "STRING": st.text("ab\0\xff", max_size=3) | st.sampled_from(["x" * 400, "x" * 600]),
    "INTEGER": st.sampled_from([-(2**31), -1, 0, 1, 255, 256, 2**31 - 1]),
    "BIGINT": st.sampled_from([-(2**63), -1, 0, 255, 2**63 - 1]),
}


@given(st.data(), st.sampled_from([*BOUNDARIES]), st.booleans(), st.booleans())
def test_exact_bounds_leave_the_keys_of_the_range_and_no_others(
    data: st.DataObject, type_: str, is_low_open: bool, is_high_open: bool
) -> None:
    keys = data.draw(st.sets(BOUNDARIES[type_], max_size=8))
    low, high = (data.draw(st.none() | BOUNDARIES[type_]) for _ in range(2))
    source = msgspec.structs.replace(TABLE, columns=(*key_columns(type_), *TABLE.value_columns))
    asked = plan(
        source,
        where=bool,
        conditions=(),
        key_low=low,
        key_high=high,
        is_low_open=is_low_open,
        is_high_open=is_high_open,
    )
    least, end = order.bounds(asked)
    found = {key for key in keys if least <= store_key((key,), (type_,)) < end}
    wanted = {
        key
        for key in keys
        if (low is None or key > low or (key == low and not is_low_open))
        and (high is None or key < high or (key == high and not is_high_open))
    }
    assert found >= wanted, "none is missed"
    if order.has_exact_bounds(asked):
        assert found == wanted
    else:
        assert "x" * 600 in (low, high)
