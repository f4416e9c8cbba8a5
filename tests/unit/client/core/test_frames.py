"""Rows as tables of pyarrow and pandas."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal

import pandas as pd
import pytest

from standpipe.client.core.frames import to_arrow, to_pandas, to_polars

COLUMNS = [
    ("K", "STRING", "string", "a"),
    ("B", "BOOLEAN", "bool", True),
    ("I", "INTEGER", "int32", 1),
    ("L", "BIGINT", "int64", 2**40),
    ("F", "DOUBLE", "double", 1.5),
    ("M", "DECIMAL(5, 2)", "decimal128(5, 2)", Decimal("1.50")),
    ("R", "BYTES", "binary", b"x"),
    ("D", "DATE", "date32[day]", date(2020, 1, 1)),
    ("T", "TIME", "time32[ms]", time(1)),
    ("TS", "TIMESTAMP", "timestamp[ms, tz=UTC]", datetime(2020, 1, 1, tzinfo=UTC)),
    ("A", "ARRAY<DATE>", "list<item: date32[day]>", [date(2020, 1, 1)]),
    ("S", "STRUCT<`X` DOUBLE>", "struct<X: double>", {"X": 1.5}),
]
NAMES, TYPES, ARROW, VALUES = zip(*COLUMNS, strict=True)


@pytest.mark.parametrize("rows", [[], [VALUES], [VALUES, (None,) * len(VALUES)]])
def test_arrow_has_the_columns_types(rows: list[tuple[object, ...]]) -> None:
    table = to_arrow(NAMES, TYPES, rows)
    assert [str(field.type) for field in table.schema] == list(ARROW)
    assert [tuple(row.values()) for row in table.to_pylist()] == rows


def test_a_map() -> None:
    table = to_arrow(["M"], ["MAP<STRING, BIGINT>"], [({"k": 1},)])
    assert table.to_pylist() == [{"M": [("k", 1)]}]


def test_a_type_of_a_later_release() -> None:
    assert to_arrow(["G"], ["GEOMETRY"], [("x",)]).to_pylist() == [{"G": "x"}]


def test_pandas_keeps_the_values() -> None:
    frame = to_pandas(NAMES, TYPES, [VALUES])
    assert list(frame.columns) == list(NAMES)
    assert frame["M"][0] == Decimal("1.50")
    assert to_pandas(NAMES, TYPES, []).shape == (0, len(NAMES))


def test_pandas_keeps_the_values_beside_a_null() -> None:
    """A float64 has no 2**53 + 1."""
    large = 2**53 + 1
    values = tuple(
        large if of == "BIGINT" else value for of, value in zip(TYPES, VALUES, strict=True)
    )
    for nulls in ([(None,) * len(VALUES)], []):
        frame = to_pandas(NAMES, TYPES, [values, *nulls])
        kept = [frame[name][0] for name in NAMES]
        assert kept == list(values)
        assert int(frame["L"][0]) == large
        assert [frame[name].isna().sum() for name in NAMES] == [len(nulls)] * len(NAMES)
        found = {name: str(frame[name].dtype) for name in ("I", "L", "F", "B")}
        whole = "Int64" if nulls else "int64"
        assert found == {"I": whole, "L": whole, "F": "float64", "B": "object" if nulls else "bool"}


@pytest.mark.parametrize("cells", [[2**63 - 1, None], [None, -(2**63)], [None, None]])
def test_pandas_has_whole_numbers_as_they_are(cells: list[int | None]) -> None:
    """Also in two columns of one name, of which only one has a NULL."""
    frame = to_pandas(["N", "N"], ["BIGINT", "BIGINT"], [(each, 1) for each in cells])
    assert [str(of) for of in frame.dtypes] == ["Int64", "int64"]
    found = frame.iloc[:, 0].astype(object).tolist()
    assert [None if each is pd.NA else each for each in found] == cells


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(ImportError, match="pip install polars"):
        to_polars(["K"], ["STRING"], [])
