"""Spelling, widening and arithmetic of ksqlDB's types."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.errors import StatementError
from standpipe.sql.types import types
from standpipe.sql.types.types import (
    LONG_KEPT_MAX,
    TYPE_CHARS_MAX,
    SqlType,
    arithmetic_type,
    common_type,
    parse_type,
    widens,
)


def maybe(text: str) -> SqlType:
    return types.NULL if text == "NULL" else parse_type(text)


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("int", "INTEGER"),
        ("VARCHAR", "STRING"),
        ("decimal(10,2)", "DECIMAL(10, 2)"),
        ("array<map<string,int>>", "ARRAY<MAP<STRING, INTEGER>>"),
        ("STRUCT<a INT, `b ``c` ARRAY<STRING>>", "STRUCT<`A` INTEGER, `b ``c` ARRAY<STRING>>"),
        ("STRUCT<>", "STRUCT<>"),
    ],
)
def test_spelling(text: str, spelled: str) -> None:
    assert str(parse_type(text)) == spelled
    assert parse_type(spelled) == parse_type(text)


def test_few_long_types_are_kept() -> None:
    """Thousands of texts are kept, and a client could bring them at 16 KB each."""

    def struct_of(fields: int) -> str:
        return f"STRUCT<{', '.join(f'F{number} INTEGER' for number in range(fields))}>"

    first, short = parse_type(struct_of(500)), parse_type(struct_of(2))
    assert parse_type(struct_of(500)) is first, "each row of a scan asks for it"
    for more in range(LONG_KEPT_MAX):
        parse_type(struct_of(501 + more))
    assert parse_type(struct_of(500)) is not first
    assert parse_type(struct_of(2)) is short


SCALARS = st.sampled_from(["BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "STRING", "BYTES", "DATE"])
TYPES = st.recursive(
    SCALARS.map(SqlType) | st.builds(types.decimal, st.integers(1, 38), st.just(1)),
    lambda inner: (
        inner.map(types.array)
        | st.tuples(SCALARS.map(SqlType), inner).map(lambda pair: types.map_of(*pair))
        | st.lists(st.tuples(st.text(min_size=1), inner), max_size=3).map(
            lambda fields: types.struct(tuple(dict(fields).items()))
        )
    ),
    max_leaves=6,
)


@given(TYPES)
def test_what_is_printed_can_be_read(of: SqlType) -> None:
    assert parse_type(str(of)) == of


@pytest.mark.parametrize(
    "text", ["", "FOO", "DECIMAL", "DECIMAL(a)", "ARRAY<", "MAP<INT>", "INT x", "ARRAY<" * 49]
)
def test_no_type(text: str) -> None:
    with pytest.raises(StatementError, match="unknown type"):
        parse_type(text)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (types.STRING, False),
        (types.struct((("a" * TYPE_CHARS_MAX, types.STRING),)), True),
        (types.struct(tuple((f"f{n}", types.BIGINT) for n in range(3_000))), False),
        (types.struct(tuple((f"f{n}", types.BIGINT) for n in range(4_000))), True),
        (types.map_of(types.STRING, types.array(types.STRING)), False),
    ],
)
def test_which_types_are_too_long(of: SqlType, expected: bool) -> None:
    assert of.is_too_long() is expected


def test_a_long_type_is_known_without_looking_at_all_of_it() -> None:
    """Of 2^60 parts."""
    of = types.STRING
    for _ in range(60):
        of = types.struct((("A", of), ("B", of)))
    assert of.is_too_long()


def test_types_are_nested_to_a_bound() -> None:
    deepest = "ARRAY<" * 50 + "INTEGER" + ">" * 50
    assert parse_type(deepest).nesting == 50
    with pytest.raises(StatementError, match="nested deeper than 50 levels"):
        parse_type(f"STRUCT<X {deepest}>")


@pytest.mark.parametrize(
    ("one", "two", "common", "why"),
    [
        ("INT", "BIGINT", "BIGINT", ""),
        ("BIGINT", "DECIMAL(4, 2)", "DECIMAL(21, 2)", "19 digits before the point"),
        ("INT", "DECIMAL(4, 2)", "DECIMAL(12, 2)", "10 digits before the point"),
        ("DECIMAL(9, 0)", "DOUBLE", "DOUBLE", "DOUBLE is the widest"),
        ("DECIMAL(4, 1)", "DECIMAL(4, 3)", "DECIMAL(6, 3)", "both sides of the point"),
        ("NULL", "STRING", "STRING", "null fits everywhere"),
        ("ARRAY<INT>", "ARRAY<BIGINT>", "ARRAY<BIGINT>", "element by element"),
        ("STRING", "INT", None, ""),
        ("BOOLEAN", "INT", None, ""),
        ("ARRAY<INT>", "ARRAY<STRING>", None, ""),
    ],
)
def test_common_type(one: str, two: str, common: str | None, why: str) -> None:
    expected = None if common is None else parse_type(common)
    assert common_type(maybe(one), maybe(two)) == expected, why
    assert common_type(maybe(two), maybe(one)) == expected, "the order does not matter"


@pytest.mark.parametrize(
    ("source", "target", "does"),
    [("INT", "BIGINT", True), ("BIGINT", "INT", False), ("INT", "INT", True),
     ("INT", "DECIMAL(10, 0)", True), ("INT", "DECIMAL(9, 0)", False), ("DOUBLE", "BIGINT", False)],
)  # fmt: skip
def test_widens(source: str, target: str, does: bool) -> None:
    assert widens(parse_type(source), parse_type(target)) is does


@pytest.mark.parametrize(
    ("operator", "one", "two", "result", "why"),
    [
        ("/", "INT", "INT", "INTEGER", "integers stay integers"),
        ("*", "INT", "BIGINT", "BIGINT", ""),
        ("+", "INT", "DOUBLE", "DOUBLE", ""),
        ("+", "DECIMAL(4, 2)", "DECIMAL(6, 3)", "DECIMAL(7, 3)", "one digit more"),
        ("*", "DECIMAL(4, 2)", "DECIMAL(6, 3)", "DECIMAL(11, 5)", "digits add up"),
        ("/", "DECIMAL(4, 2)", "DECIMAL(6, 3)", "DECIMAL(14, 9)", "at least 6 places"),
        ("%", "DECIMAL(4, 2)", "DECIMAL(6, 3)", "DECIMAL(5, 3)", ""),
        ("+", "DECIMAL(4, 2)", "INT", "DECIMAL(13, 2)", "an INTEGER is DECIMAL(10, 0)"),
        ("+", "STRING", "STRING", "STRING", "ksqlDB adds text"),
        ("-", "STRING", "STRING", None, "but takes none away"),
        ("+", "STRING", "INT", None, ""),
        ("+", "BOOLEAN", "BOOLEAN", None, ""),
    ],
)
def test_arithmetic(operator: str, one: str, two: str, result: str | None, why: str) -> None:
    found = arithmetic_type(operator, parse_type(one), parse_type(two))
    assert found == (None if result is None else parse_type(result)), why


@pytest.mark.parametrize(
    ("text", "of"),
    [("1.50", "DECIMAL(3, 2)"), ("-0.05", "DECIMAL(3, 2)"), ("10.", "DECIMAL(2, 0)"),
     (".5", "DECIMAL(2, 1)"), ("0.0", "DECIMAL(2, 1)"), ("0.8", "DECIMAL(2, 1)"),
     ("007.5", "DECIMAL(2, 1)"), ("0", "DECIMAL(1, 0)"), ("1.00", "DECIMAL(3, 2)")],
)  # fmt: skip
def test_a_literal_is_as_precise_as_it_is_written(text: str, of: str) -> None:
    assert str(types.literal_decimal(text)) == of
