"""Scans, filters and computed cells over a store in memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.samples import WIDE_ITEMS, json_items
from tests.unit.data.query.test_pull import TABLE, SortedStore
from tests.unit.data.rows import HOUR_MS, table, tumbling

from standpipe.data.encoding.store_keys import full_store_key, store_key
from standpipe.data.encoding.stored_rows import DamagedRow, pack_row
from standpipe.data.query import order, pull, scan
from standpipe.errors import BadRequest, NotComputable
from standpipe.model import Column
from standpipe.sql.plans import PullPlan

PLAIN = SortedStore(
    {store_key((key,), ("STRING",)): pack_row(b"[%d]" % n, 100 + n) for n, key in enumerate("abc")}
)


def plan(**changes: object) -> PullPlan:
    names = tuple(column.name for column in TABLE.columns)
    types = tuple(column.type for column in TABLE.columns)
    made = PullPlan(
        source=TABLE, keys=(), schema="", column_names=names, column_types=types, is_scan=True
    )
    return msgspec.structs.replace(made, **changes)


@pytest.mark.parametrize(
    ("changes", "rows", "why"),
    [
        ({}, [b'["a",0]', b'["b",1]', b'["c",2]'], "in the order of keys"),
        ({"limit": 2}, [b'["a",0]', b'["b",1]'], ""),
        ({"limit": 0}, [], ""),
        ({"where": lambda row: row[1] > 0}, [b'["b",1]', b'["c",2]'], "by a value column"),
        ({"where": lambda row: row[2] == 101}, [b'["b",1]'], "ROWTIME stands last"),
        ({"where": lambda row: row[1] > 0, "limit": 1}, [b'["b",1]'], "LIMIT counts what is left"),
        (
            {"cells": (lambda row: row[1] * 2,), "column_types": ("BIGINT",)},
            [b"[0]", b"[2]", b"[4]"],
            "computed",
        ),
        (
            {"is_scan": False, "keys": (("b",), ("x",)), "where": lambda row: row[1] > 1},
            [],
            "a filter over keys",
        ),
    ],
)
def test_scans(changes: dict[str, object], rows: list[bytes], why: str) -> None:
    assert pull.lookup(plan(**changes), PLAIN, 0) == rows, why


def test_every_partition_is_scanned() -> None:
    assert pull.partitions(plan(source=table(partitions=4))) == (0, 1, 2, 3)


def test_windows_and_their_bounds() -> None:
    source = table(window=tumbling())
    width = len(source.value_columns)
    cells = b"[" + b",".join([b"1"] * width) + b"]"
    types = [column.type for column in source.key_columns]
    starts = (0, HOUR_MS, 2 * HOUR_MS)
    rows = {store_key(("a",), types, start): pack_row(cells, 5) for start in starts}
    made = plan(
        source=source,
        cells=(lambda row: row[1],),
        column_types=("BIGINT",),
        window_start_low_ms=HOUR_MS,
        window_end_high_ms=2 * HOUR_MS,
    )
    assert pull.lookup(made, SortedStore(rows), 0) == [b"[%d]" % HOUR_MS]


def test_a_long_key_is_shown_whole() -> None:
    key = "k" * 600
    row = pack_row(b"[1]", 0, full_store_key((key,), ("STRING",)))
    rows = {store_key((key,), ("STRING",)): row}
    assert pull.lookup(plan(), SortedStore(rows), 0) == [b'["%b",1]' % key.encode()]


KEYS = st.sets(
    st.one_of(
        st.text("ab", max_size=4),
        st.text("ab", min_size=1, max_size=3).map(lambda tail: "x" * 600 + tail),
    ),
    max_size=25,
)


def at_once(asked: PullPlan, rows: dict[bytes, bytes]) -> list[bytes]:
    """The dull twin: everything is read, put in order, decoded and cut."""
    pairs = [pair for pair in sorted(rows.items()) if pair[0] >= order.bounds(asked)[0]]
    found = scan.rows_of(asked, order.in_key_order(asked, pairs) if asked.is_ordered else pairs)
    if asked.is_count:
        return [b"[%d]" % len([*found])]
    return [*found][: asked.limit]


@given(
    keys=KEYS,
    changes=st.fixed_dictionaries(
        {
            "limit": st.one_of(st.none(), st.integers(0, 6)),
            "is_ordered": st.booleans(),
            "is_count": st.booleans(),
            "where": st.sampled_from([None, lambda row: row[1] % 2 == 0]),
            "after": st.sampled_from([(), ("ab",), ("x" * 600 + "a",)]),
        }
    ),
    step_rows=st.integers(1, 4),
    copied_bytes_max=st.sampled_from([0, 700, 1_000_000]),
)
def test_step_by_step_is_like_at_once(
    keys: set[str], changes: dict[str, Any], step_rows: int, copied_bytes_max: int
) -> None:
    if not changes["is_ordered"]:
        changes["after"] = ()
    stored: dict[bytes, bytes] = {}
    for number, key in enumerate(sorted(keys)):
        short, full = (made((key,), ("STRING",)) for made in (store_key, full_store_key))
        stored[short] = pack_row(b"[%d]" % number, 5, full if full != short else b"")
    asked = plan(**changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "STEP_ROWS", step_rows)
        patch.setattr(scan, "COPIED_BYTES_MAX", copied_bytes_max)
        assert pull.lookup(asked, SortedStore(stored), 0) == at_once(asked, stored)


@pytest.mark.parametrize(
    ("changes", "copied_bytes_max", "copies_at", "why"),
    [
        ({}, 1000, [0, 1, 2, 3], "all is copied first; the fourth look finds the end"),
        ({}, 0, [0, 2, 4, 6], "no room: decoded before more is copied"),
        ({"limit": 3}, 1000, [0, 2, 4], "a LIMIT may end it early, and does"),
        ({"limit": 1}, 1000, [0], ""),
        ({"limit": 0}, 1000, [], ""),
        ({"limit": 1, "is_ordered": True}, 1000, [0, 2], "the next key tells that it is complete"),
        ({"key_low": "c", "key_high": "a"}, 1000, [], "an empty range"),
    ],
)
def test_when_the_store_is_read(
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, object],
    copied_bytes_max: int,
    copies_at: list[int],
    why: str,
) -> None:
    monkeypatch.setattr(scan, "STEP_ROWS", 1)
    monkeypatch.setattr(scan, "COPIED_BYTES_MAX", copied_bytes_max)
    seen: list[int] = []

    class Watched(SortedStore):
        def scan(self, low: bytes, high: bytes, limit: int, /) -> list[tuple[bytes, bytes]]:
            seen.append(steps)
            return super().scan(low, high, limit)

    store, steps = Watched(dict(PLAIN.scan(b"", b"\xff", 9))), 0
    made = scan.Scan(plan(**changes))
    while not made.is_over:
        made.step(store)
        steps += 1
    assert seen == copies_at, why


@pytest.mark.parametrize("clause", ["where", "cells"])
@pytest.mark.parametrize("is_scan", [True, False])
def test_what_cannot_be_computed_is_the_statements_fault(clause: str, is_scan: bool) -> None:
    """It was taken for a damaged replica, and tried on every other one."""

    def fails(row: object) -> bool:
        raise LookupError("no time zone 'Mars/Base'")

    given: dict[str, object] = {"where": fails} if clause == "where" else {"cells": (fails,)}
    with pytest.raises(NotComputable, match="no value for a row: no time zone 'Mars/Base'"):
        pull.lookup(plan(is_scan=is_scan, keys=(("a",),), **given), PLAIN, 0)


def test_a_step_has_fewer_rows_the_more_each_computes() -> None:
    """A WHERE of 5,000 expressions kept the event loop for 128 rows at a time."""

    def steps(expressions: int) -> int:
        made, count = scan.Scan(plan(where=bool, expression_count=expressions)), 0
        while not made.is_over:
            made.step(PLAIN)
            count += 1
        return count

    assert [steps(1), steps(1_500), steps(5_000)] == [2, 3, 4], "3 rows, and one step to copy them"


@pytest.mark.parametrize("changes", [{}, {"is_ordered": True}, {"limit": 2}, {"is_count": True}])
def test_a_step_ends_after_the_row_with_which_it_is_due(changes: dict[str, object]) -> None:
    """One row may take as long as all that a step may have."""
    asked = plan(where=bool, **changes)
    whole, made = scan.Scan(asked), scan.Scan(asked)
    while not whole.is_over:
        whole.step(PLAIN)
    made.step(PLAIN)
    assert not made.is_copying, "the store is read"
    steps = 0
    while not made.is_over:
        made.step(PLAIN, lambda: True)
        steps += 1
    assert steps == changes.get("limit", 3), "a row each"
    assert made.rows() == whole.rows()


def test_a_count_of_a_range_of_keys_decodes_no_row() -> None:
    damaged = SortedStore({key: b"" for key, _ in PLAIN.scan(b"", b"\xff", 9)})
    counted = plan(is_count=True, key_low="b", where=bool, conditions=())
    assert pull.lookup(counted, damaged, 0) == [b"[2]"]
    with pytest.raises(DamagedRow):
        pull.lookup(msgspec.structs.replace(counted, conditions=None), damaged, 0)


def test_too_many_rows_are_refused_before_any_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "SCAN_ROWS_MAX", 2)
    decoded: list[object] = []
    with pytest.raises(BadRequest, match="more than 2 rows"):
        pull.lookup(plan(where=decoded.append), PLAIN, 0)
    assert decoded == []


def test_scan_refuses_a_row_that_would_make_too_many_fields() -> None:
    source = msgspec.structs.replace(
        TABLE, columns=(TABLE.columns[0], Column(name="V", type=WIDE_ITEMS))
    )
    row = pack_row(b"[%b]" % json_items("{}", 6_000), 0)
    store = SortedStore({store_key(("a",), ("STRING",)): row})
    asked = plan(source=source, column_types=("STRING", WIDE_ITEMS), where=lambda _: True)
    with pytest.raises(NotComputable, match="more fields than its bytes allow"):
        pull.lookup(asked, store, 0)
