"""JSON cells to values and back, type by type."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.samples import WIDE_ITEMS, json_items

from standpipe.data.encoding.cells import cell_json, row_of, value_of
from standpipe.sql.types.made_fields import TooManyFields
from standpipe.sql.types.types import parse_type


@pytest.mark.parametrize(
    ("type_", "stored", "shown", "why"),
    [
        ("INTEGER", b"7", b"7", ""),
        ("DOUBLE", b"1", b"1.0", "a DOUBLE that looks like an integer"),
        ("DECIMAL(4, 2)", b"1.5", b"1.50", "at its scale"),
        ("STRING", b'"a"', b'"a"', ""),
        ("STRING", b"12", b'"12"', "ksqlDB takes any JSON for a STRING"),
        ("BYTES", b'"IQ=="', b'"IQ=="', ""),
        ("DATE", b"18315", b'"2020-02-23"', "stored as days"),
        ("TIME", b"3600000", b'"01:00"', "seconds only where there are some"),
        ("TIME", b"3601000", b'"01:00:01"', ""),
        ("TIMESTAMP", b"-1", b'"1969-12-31T23:59:59.999"', "before 1970"),
        ("ARRAY<DATE>", b"[0,null]", b'["1970-01-01",null]', "also inside"),
        ("MAP<STRING, BIGINT>", b'{"a":1}', b'{"a":1}', ""),
        ("STRUCT<`A` INTEGER, `B` STRING>", b'{"a":1}', b'{"A":1,"B":null}', "in any case"),
        ("INTEGER", b'"x"', b"null", "not of the type"),
        ("BIGINT", b"1e18", b"1000000000000000000", ""),
        ("BIGINT", b"1e999999999", b"null", "its digits are not written out"),
        ("DATE", b"4000000", b"null", "no year that a calendar has"),
        ("DATE", b"1e999999999", b"null", "nor here"),
        (
            "DECIMAL(38, 10)",
            b"1234567890123456789012345678.5",
            b"1234567890123456789012345678.5000000000",
            "38 digits",
        ),
        ("DECIMAL(38, 10)", b"1e28", b"null", "39 digits"),
        ("DECIMAL(4, 2)", b"1e999999999", b"null", "what computes with it would overflow"),
        ("DECIMAL(4, 2)", b'"NaN"', b"null", "no number"),
        ("DECIMAL(2, 2)", b"0", b"0.00", "no digit before the point"),
    ],
)
def test_cells(type_: str, stored: bytes, shown: bytes, why: str) -> None:
    of = parse_type(type_)
    (value,) = row_of(b"[%b]" % stored, (of,))
    assert cell_json(value, of) == shown, why


def test_a_computed_decimal_with_too_many_digits_is_null() -> None:
    assert cell_json(Decimal(10) ** 28, parse_type("DECIMAL(38, 10)")) == b"null"


def test_cells_make_no_more_fields_than_their_array_allows() -> None:
    types = (parse_type("STRING"), parse_type(WIDE_ITEMS))
    with pytest.raises(TooManyFields):
        row_of(b'["a",%b]' % json_items("{}", 6_000), types)
    _, items = row_of(b'["a",%b]' % json_items('{"FIELD_007":1234}', 6_000), types)
    assert (len(items), len(items[0])) == (6_000, 50)


def test_cells_that_were_read_before_are_not_counted_again() -> None:
    items = value_of([{} for _ in range(6_000)], parse_type(WIDE_ITEMS))
    assert (len(items), len(items[0])) == (6_000, 50)
