"""Bytes of an inserted row."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from tests.samples import sample_stream

from standpipe.model import Column
from standpipe.node.worker.statements.insert_record import encode_value, record_of
from standpipe.sql.plans import InsertValuesPlan, Value

SOURCE = sample_stream(columns=())
A, P = Column(name="A", type="STRING"), Column(name="P", type="DECIMAL(6, 2)")


@pytest.mark.parametrize(
    ("changes", "columns", "values", "expected", "why"),
    [
        ({}, (A, P), ("x", Decimal("1.50")), b'{"A":"x","P":1.50}', "the scale is kept"),
        ({}, (A, P), (None, None), b'{"A":null,"P":null}', "all columns are there"),
        ({}, (A,), ("x",), b'{"A":"x"}', "a single value is wrapped"),
        ({"wrap_single_value": False}, (A,), ("x",), b'"x"', "or not"),
        ({}, (), (), None, "no value columns"),
        ({"value_format": "KAFKA"}, (A,), ("x",), b"x", "bare"),
        ({"value_format": "DELIMITED"}, (A, P), ("x", Decimal("1.50")), b"x,1.50", "CSV"),
        ({"value_format": "DELIMITED"}, (A, P), (None, None), b",", "NULLs are no tombstone"),
        ({"value_format": "DELIMITED"}, (P,), (None,), b"", "also one"),
        ({"value_format": "KAFKA"}, (A,), (None,), None, "there is no other NULL"),
        ({"value_format": "NONE"}, (), (), None, "none"),
    ],
)
def test_encode_value(
    changes: dict[str, object],
    columns: tuple[Column, ...],
    values: tuple[Value, ...],
    expected: bytes | None,
    why: str,
) -> None:
    source = msgspec.structs.replace(SOURCE, **changes)
    assert encode_value(source, values, columns) == expected, why


def test_values_are_quoted_where_they_hold_their_delimiter() -> None:
    source = msgspec.structs.replace(SOURCE, value_format="DELIMITED", value_delimiter="|")
    assert encode_value(source, ("x|", Decimal("1.50")), (A, P)) == b'"x|"|1.50'


@pytest.mark.parametrize(
    ("value_format", "expected"), [("JSON", b'{"A":"x","P":1.50}'), ("DELIMITED", b"x,1.50")]
)
def test_columns_of_headers_are_no_part_of_a_value(value_format: str, expected: bytes) -> None:
    """A reader counts the fields of a line."""
    header = Column(name="H", type="BYTES", header="h")
    source = msgspec.structs.replace(
        SOURCE, columns=(A, header, P), value_format=value_format, wrap_single_value=True
    )
    plan = InsertValuesPlan(source=source, values=("x", None, Decimal("1.50")), rowtime_ms=None)
    assert record_of(plan) == (None, expected)
