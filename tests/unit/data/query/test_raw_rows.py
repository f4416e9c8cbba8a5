"""Rows that are not decoded are as those that are, of whatever key, window and column."""

from __future__ import annotations

from collections.abc import Sequence
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.rows import HOUR_MS, key_columns, session, table, tumbling

from standpipe.data.encoding import native
from standpipe.data.encoding.kafka_keys import bounds_of
from standpipe.data.encoding.store_keys import full_store_key, store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.query import raw_rows, scan
from standpipe.model import Column, Source, Window
from standpipe.sql.plans import PlanCondition, PullPlan

compiled = pytest.mark.skipif(not native.IS_COMPILED, reason="no C compiler")
LONG = "x" * 600
KEYS = {
    "STRING": st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.just(LONG),
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


def undecoded(asked: PullPlan, pairs: Sequence[scan.Pair]) -> list[bytes] | None:
    """Those that the plan wants; None: they are left to who decodes them."""
    raw = raw_rows.raw_rows(asked)
    assert raw is not None
    found = raw.of(pairs)
    return None if found is None else [row for row in found if row is not None]


def is_usual(key: object) -> bool:
    return str(key) != LONG and msgspec.json.encode(key) in (f'"{key}"'.encode(), f"{key}".encode())


@compiled
@given(st.data(), st.sampled_from([*KEYS]), st.sampled_from([None, tumbling(), session(HOUR_MS)]))
def test_raw_rows_are_those_that_would_be_decoded(
    data: st.DataObject, type_: str, window: Window | None
) -> None:
    source = source_of(type_, window)
    asked = plan(source)
    keys = data.draw(st.lists(KEYS[type_], unique=True, max_size=6))
    values = data.draw(st.lists(VALUES, min_size=len(keys), max_size=len(keys)))
    pairs = pairs_of(source, keys, values)
    found = undecoded(asked, pairs)
    if window is None:
        assert (found is not None) == all(map(is_usual, keys))
    if found is not None:
        assert found == [*scan.rows_of(asked, pairs)]


SIGNS = {"=": eq, "<>": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


@compiled
@given(
    st.lists(VALUES, max_size=6),
    st.sampled_from([*SIGNS]),
    st.integers(-5, 5),
    st.sampled_from([*SIGNS]),
    st.text('aé😀"', max_size=2),
    st.sampled_from([None, (2, 0), (3,)]),
)
def test_raw_rows_satisfy_conditions_as_decoded_ones_do(
    values: Sequence[tuple[int | None, str | None]],
    sign: str,
    number: int,
    other_sign: str,
    text: str,
    projection: tuple[int, ...] | None,
) -> None:
    def where(row: Sequence[Any]) -> bool:
        (_, n, s, _) = row
        is_wanted = n is not None and SIGNS[sign](n, number)
        return is_wanted and s is not None and SIGNS[other_sign](s, text)

    source = source_of("STRING", None)
    conditions = (
        condition(1, sign, f"{abs(number)}", "BIGINT", is_negated=number < 0),
        condition(2, other_sign, text, "STRING"),
    )
    asked = plan(source, where=where, conditions=conditions, projection=projection)
    if projection is not None:
        types = ("STRING", "BIGINT", "STRING", "BIGINT")
        asked = msgspec.structs.replace(asked, column_types=tuple(types[n] for n in projection))
    keys = [f"k{number}" for number in range(len(values))]
    pairs = pairs_of(source, keys, values)
    found = undecoded(asked, pairs)
    is_escaped = any(b"\\" in row for _, row in pairs)
    has_long = any(n is not None and abs(n) >= 10**18 for n, _ in values)
    assert found is not None or is_escaped or has_long
    if found is not None:
        assert found == [*scan.rows_of(asked, pairs)]


def condition(
    column: int, sign: str, literal: str, compared: str, *, is_negated: bool = False
) -> PlanCondition:
    return PlanCondition(
        column=column,
        sign=sign,
        literal=literal.encode(),
        is_negated=is_negated,
        compared=compared,
    )


@compiled
@pytest.mark.parametrize("window", [None, tumbling()])
def test_raw_rows_of_a_damaged_store_are_left_to_who_decodes_them(window: Window | None) -> None:
    source = source_of("STRING", window)
    (key, row), *rest = pairs_of(source, ["a", "b"], [(1, "x"), (2, "y")])
    assert undecoded(plan(source), [(key, row[:-2] + b"0]"), *rest]) is None


@compiled
@pytest.mark.parametrize(
    ("window", "changes", "is_raw"),
    [
        (tumbling(), {}, True),
        (tumbling(), {"limit": 3, "is_ordered": True}, True),
        (tumbling(), {"where": bool, "key_low": "a", "conditions": ()}, True),
        (tumbling(), {"where": bool, "key_low": "a"}, False),
        (tumbling(), {"where": bool, "key_low": "a" * 600, "conditions": ()}, False),
        (tumbling(), {"window_start_low_ms": 5}, False),
        (tumbling(), {"projection": (1, 0)}, False),
        (None, {"projection": (1, 0)}, True),
        (None, {"cells": (len,)}, False),
        (None, {"where": bool, "conditions": (condition(1, ">", "5", "BIGINT"),)}, True),
        (None, {"where": bool, "conditions": (condition(1, ">", "5", "BIGINT"),) * 300}, False),
        (None, {"where": bool, "conditions": (condition(0, ">", "5", "STRING"),)}, False),
        (tumbling(), {"where": bool, "conditions": (condition(3, ">", "5", "BIGINT"),)}, False),
    ],
)
def test_raw_rows_which_plans_show_them(
    window: Window | None, changes: dict[str, object], is_raw: bool
) -> None:
    asked = plan(source_of("STRING", window), **changes)
    assert (raw_rows.raw_rows(asked) is not None) == is_raw
