"""Scans, filters and computed cells over a store in memory."""

from __future__ import annotations

import msgspec
import pytest

from standpipe.data import pull, scan
from standpipe.data.records import full_store_key, store_key
from standpipe.data.rows import pack_row
from standpipe.errors import BadRequest
from standpipe.sql.plans import PullPlan

from .rows import HOUR_MS, table, tumbling
from .test_pull import TABLE, SortedStore

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


def test_a_scan_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "SCAN_ROWS_MAX", 2)
    with pytest.raises(BadRequest, match="more than 2 rows"):
        pull.lookup(plan(), PLAIN, 0)
