"""Rows that are spliced are those that would be decoded, of whatever key, window and column."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.rows import HOUR_MS, key_columns, session, table, tumbling

from standpipe.data.encoding import native
from standpipe.data.encoding.kafka_keys import bounds_of
from standpipe.data.encoding.store_keys import full_store_key, store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query import scan, whole_rows
from standpipe.model import Column, Source, Window
from standpipe.sql.plans import PullPlan

compiled = pytest.mark.skipif(not native.IS_COMPILED, reason="no C compiler")
KEYS = {
    "STRING": st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.just("x" * 600),
    "INTEGER": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
}
VALUES = st.tuples(
    st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.text('aé😀"\\\n', max_size=4)
)


def source_of(type_: str, window: Window | None) -> Source:
    columns = (
        *key_columns(type_),
        Column(name="N", type="BIGINT"),
        Column(name="S", type="STRING"),
    )
    return msgspec.structs.replace(table(window=window), columns=columns)


def plan(source: Source, **changes: object) -> PullPlan:
    bounds = ("BIGINT",) * (2 if source.window else 0)
    key, *values = (column.type for column in source.columns)
    made = PullPlan(
        source=source,
        keys=(),
        schema="",
        column_names=(),
        column_types=(key, *bounds, *values),
        is_scan=True,
    )
    return msgspec.structs.replace(made, **changes)


def pairs_of(source: Source, keys: Sequence[object], values: Sequence[object]) -> list[scan.Pair]:
    """In the order of a store; each key has two windows, if any."""
    (type_,) = (column.type for column in source.key_columns)
    bounds = bounds_of(source.window)
    found: dict[bytes, bytes] = {}
    for number, (key, cells) in enumerate(zip(keys, values, strict=True)):
        for start_ms in (0, HOUR_MS) if bounds else (0,):
            window_ms = (start_ms, start_ms + number)[:bounds]
            short, full = (
                made((key,), (type_,), *window_ms) for made in (store_key, full_store_key)
            )
            row = pack_row(msgspec.json.encode(cells), 5, full if full != short else b"")
            found[short] = row
    return sorted(found.items())


@compiled
@given(
    st.data(),
    st.sampled_from([*KEYS]),
    st.sampled_from([None, tumbling(), session(HOUR_MS)]),
)
def test_whole_rows_are_those_that_would_be_decoded(
    data: st.DataObject, type_: str, window: Window | None
) -> None:
    source = source_of(type_, window)
    asked = plan(source)
    keys = data.draw(st.lists(KEYS[type_], unique=True, max_size=6))
    values = data.draw(st.lists(VALUES, min_size=len(keys), max_size=len(keys)))
    pairs = pairs_of(source, keys, values)
    assert whole_rows.shows_whole_rows(asked)
    found = whole_rows.whole_rows(asked, pairs)
    is_long = any(len(str(key)) == 600 for key in keys)
    is_escaped = any(msgspec.json.encode(key) != f'"{key}"'.encode() for key in keys)
    is_unusual = is_long or (type_ == "STRING" and is_escaped and window is None)
    assert is_unusual == (found is None)
    if found is not None:
        assert found == [*scan.rows_of(asked, pairs)]


@compiled
@pytest.mark.parametrize("window", [None, tumbling()])
def test_whole_rows_of_a_damaged_store_are_left_to_who_decodes_them(window: Window | None) -> None:
    source = source_of("STRING", window)
    (key, row), *rest = pairs_of(source, ["a", "b"], [(1, "x"), (2, "y")])
    damaged = [(key, row[:-2] + b"0]"), *rest]
    assert whole_rows.whole_rows(plan(source), damaged) is None


@compiled
@pytest.mark.parametrize(
    ("changes", "is_whole"),
    [
        ({}, True),
        ({"limit": 3, "is_ordered": True}, True),
        ({"where": bool, "key_low": "a", "where_is_range": True}, True),
        ({"where": bool, "key_low": "a"}, False),
        ({"where": bool, "key_low": "a" * 600, "where_is_range": True}, False),
        ({"projection": (1, 0)}, False),
        ({"is_count": True}, False),
        ({"cells": (len,)}, False),
        ({"window_start_low_ms": 5}, False),
    ],
)
def test_whole_rows_which_plans_show_them(changes: dict[str, object], is_whole: bool) -> None:
    asked = plan(source_of("STRING", tumbling()), **changes)
    assert whole_rows.shows_whole_rows(asked) == is_whole
