"""Cells of answers as Python values; the nodes' own writer of cells is the other side."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.data.encoding.answer_values import CellReader, reader_of
from standpipe.data.encoding.cells import cell_json
from standpipe.errors import ServerError
from standpipe.sql.types.types import SqlType, parse_type
from standpipe.sql.types.values import EPOCH

NESTED = "STRUCT<`A` DECIMAL(5, 2), `b` ARRAY<DATE>, `C` MAP<STRING, BYTES>>"


@pytest.mark.parametrize(
    ("type_", "cell", "value", "why"),
    [
        ("STRING", b'"a"', "a", ""),
        ("STRING", b"null", None, "null is None in every type"),
        ("BIGINT", b"9007199254740993", 2**53 + 1, "no way over a double"),
        ("DOUBLE", b"1", 1.0, "a whole number is a float, too"),
        ("DOUBLE", b'"NaN"', float("nan"), "JSON has no NaN"),
        ("DOUBLE", b'"-Infinity"', float("-inf"), ""),
        ("DECIMAL(6, 2)", b"1.5", Decimal("1.50"), "at its scale"),
        ("DECIMAL(6, 2)", b'"1.50"', Decimal("1.50"), "as some producers write it"),
        ("DECIMAL(38, 2)", b"1" * 36 + b".25", Decimal("1" * 36 + ".25"), "all 38 digits"),
        ("BYTES", b'"AP8="', b"\x00\xff", ""),
        ("DATE", b'"2020-02-29"', date(2020, 2, 29), ""),
        ("DATE", b"1", date(1970, 1, 2), "as it is stored"),
        ("TIME", b'"12:30"', time(12, 30), "nodes leave seconds of 0 out"),
        ("TIME", b"1500", time(0, 0, 1, 500000), "as it is stored"),
        ("TIMESTAMP", b'"2020-01-01T00:00:00.001"', datetime(2020, 1, 1, 0, 0, 0, 1000, UTC), ""),
        ("TIMESTAMP", b"-1", datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), "as it is stored"),
        ("ARRAY<TIME>", b'["01:00",null]', [time(1), None], ""),
        ("MAP<STRING, DOUBLE>", b'{"a":1}', {"a": 1.0}, ""),
        (
            NESTED,
            b'{"a":1.5,"B":["2020-01-01"],"C":{"k":"YQ=="}}',
            {"A": Decimal("1.50"), "b": [date(2020, 1, 1)], "C": {"k": b"a"}},
            "names of fields are stored in any case",
        ),
        (NESTED, b"{}", {"A": None, "b": None, "C": None}, "an absent field is null"),
        ("GEOMETRY", b'{"x":1}', {"x": 1}, "a type of a later release stays as it is"),
    ],
)
def test_a_cell(type_: str, cell: bytes, value: object, why: str) -> None:
    (found,) = CellReader([type_]).row(b"[" + cell + b"]")
    assert repr(found) == repr(value), why


@pytest.mark.parametrize(
    ("type_", "line"),
    [
        ("DATE", b'["2020-13-01"]'),
        ("DECIMAL(4, 2)", b'["x"]'),
        ("BYTES", b'["?"]'),
        ("STRING", b'["a","b"]'),
        ("STRING", b'{"a":1}'),
        ("STRUCT<`A` STRING>", b"[5]"),
        ("STRING", b"[1"),
    ],
)
def test_a_cell_of_no_value_is_an_error(type_: str, line: bytes) -> None:
    with pytest.raises(ServerError, match="cannot be read"):
        CellReader([type_]).row(line)


@pytest.mark.parametrize(
    ("types", "lines", "why"),
    [
        ([], [b"[]"], "no columns"),
        (["STRING", "BIGINT"], [], "no rows"),
        (["STRING", "BIGINT"], [b'["a",1]', b"[null,2]"], "cells that are values"),
        (["DECIMAL(6, 2)", "DATE"], [b'[1.5,"2020-01-01"]', b"[1,null]"], "and others"),
    ],
)
def test_many_rows_are_read_as_one(types: list[str], lines: list[bytes], why: str) -> None:
    reader = CellReader(types)
    assert reader.rows(lines) == [reader.row(line) for line in lines], why


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([b'["a",1]', b'["a"]'], "a cell too few"),
        ([b'["a",1]', b'["a",1,2]'], "one too many"),
        ([b'["a",1],["b",2]'], "two rows"),
        ([b'["a",1]', b""], "none"),
        ([b'["a"', b"1]"], "halves of one"),
        ([b'{"a":1}'], "no array"),
        ([b'["a",1', b"]"], "not closed"),
        ([b'["\xff",1]'], "no UTF-8"),
    ],
)
def test_a_line_that_is_not_one_row_is_an_error(lines: list[bytes], why: str) -> None:
    with pytest.raises(ServerError):
        CellReader(["STRING", "BIGINT"]).rows(lines)


def test_readers_are_kept() -> None:
    assert reader_of(("STRING",)) is reader_of(("STRING",))


SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "STRING": st.text(st.characters(exclude_categories=["Cs"])),
    "BYTES": st.binary(),
    "DATE": st.integers(-700_000, 2_900_000),
    "TIME": st.integers(0, 86_399).map(lambda seconds: seconds * 1000),
    "TIMESTAMP": st.integers(-(10**13), 10**14),
    "DECIMAL(12, 3)": st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
}


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[SqlType, Any]:
    """A type, and a value of it as the nodes have it."""
    kinds = [*SCALARS, *(["ARRAY", "MAP", "STRUCT"] if depth else [])]
    kind = draw(st.sampled_from(kinds))
    if kind in SCALARS:
        return parse_type(kind), draw(st.none() | SCALARS[kind])
    of, value = draw(typed(depth - 1))
    if kind == "ARRAY":
        return parse_type(f"ARRAY<{of}>"), [value, None]
    if kind == "MAP":
        return parse_type(f"MAP<STRING, {of}>"), {"k'": value}
    return parse_type(f"STRUCT<`F` {of}, `g` STRING>"), {"F": value, "g": None}


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(typed(), min_size=1, max_size=3))
def test_what_a_node_writes_is_read(columns: list[tuple[SqlType, Any]]) -> None:
    line = b"[" + b",".join(cell_json(value, of) for of, value in columns) + b"]"
    found = CellReader([str(of) for of, _ in columns]).row(line)
    for (of, value), read in zip(columns, found, strict=True):
        assert stored(read, of) == value


def stored(value: Any, of: SqlType) -> Any:
    """The inverse of reading: a value as the nodes have it."""
    if value is None:
        return None
    match of.base:
        case "DATE":
            return (value - date(1970, 1, 1)).days
        case "TIME":
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000
        case "TIMESTAMP":
            since = value - EPOCH
            return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
        case "ARRAY":
            return [stored(each, of.arguments[0]) for each in value]
        case "MAP":
            return {key: stored(each, of.arguments[1]) for key, each in value.items()}
        case "STRUCT":
            return {name: stored(value[name], of.field(name) or of) for name in value}
    return value
