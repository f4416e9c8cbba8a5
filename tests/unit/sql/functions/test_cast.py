"""What may be cast to what, and how Spark spells a type."""

from __future__ import annotations

import pytest

from standpipe.sql.functions.cast import castable, convert, spark_name
from standpipe.sql.types.typed_expression import Operation, TypedColumn
from standpipe.sql.types.types import NULL, parse_type


@pytest.mark.parametrize(
    ("source", "target", "may"),
    [
        ("INT", "STRING", True),
        ("STRING", "TIMESTAMP", True),
        ("STRING", "BYTES", True),
        ("BYTES", "STRING", False),
        ("MAP<STRING, BYTES>", "MAP<STRING, STRING>", False),
        ("BOOLEAN", "INT", False),
        ("DATE", "INT", False),
        ("STRING", "ARRAY<INT>", False),
        ("ARRAY<INT>", "ARRAY<STRING>", True),
        ("ARRAY<BOOLEAN>", "ARRAY<INT>", False),
        ("STRUCT<A INT, B INT>", "STRUCT<A STRING>", True),
    ],
)
def test_castable(source: str, target: str, may: bool) -> None:
    assert castable(parse_type(source), parse_type(target)) is may
    assert castable(NULL, parse_type(target))


@pytest.mark.parametrize(
    ("of", "name"),
    [
        ("INT", "INT"),
        ("BYTES", "BINARY"),
        ("TIME", "INT"),
        ("DECIMAL(4, 2)", "DECIMAL(4, 2)"),
        ("MAP<STRING, ARRAY<INT>>", "MAP<STRING, ARRAY<INT>>"),
        ("STRUCT<`a ``b` BYTES>", "STRUCT<`a ``b`: BINARY>"),
    ],
)
def test_spark_name(of: str, name: str) -> None:
    assert spark_name(parse_type(of)) == name


@pytest.mark.parametrize(
    ("source", "target", "guard"),
    [
        ("DATE", "TIMESTAMP", "if(unix_date({0}) BETWEEN -106751990 AND 106751990, {0}, NULL)"),
        ("MAP<STRING, INT>", "MAP<INT, INT>", "e -> e.key IS NOT NULL"),
    ],
)
def test_what_spark_cannot_convert_ends_no_query(source: str, target: str, guard: str) -> None:
    made = convert(TypedColumn(parse_type(source), "A"), parse_type(target))
    assert isinstance(made, Operation)
    assert guard in made.template
