"""CAST of values, against what java.lang's methods give. Spark's: tests/e2e/both_ways.py."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from standpipe.sql.types.casts import cast_value, double_text
from standpipe.sql.types.types import NULL, parse_type


@pytest.mark.parametrize(
    ("value", "source", "target", "result", "why"),
    [
        ("42", "STRING", "INT", 42, ""),
        (" +7\t", "STRING", "INT", 7, "blanks around it and a plus"),
        (1.9, "DOUBLE", "INT", 1, "cut"),
        (-1.9, "DOUBLE", "INT", -1, "towards zero"),
        (3e9, "DOUBLE", "INT", 2**31 - 1, "at most the largest"),
        (math.nan, "DOUBLE", "BIGINT", 0, "NaN"),
        (-math.inf, "DOUBLE", "BIGINT", -(2**63), "infinity"),
        (2**31 - 1, "BIGINT", "INT", 2**31 - 1, "the largest INT"),
        (2**31, "BIGINT", "INT", -(2**31), "... and one more wraps"),
        (42, "INT", "STRING", "42", ""),
        (True, "BOOLEAN", "STRING", "true", ""),
        ("yes", "STRING", "BOOLEAN", True, ""),
        ("Tr", "STRING", "BOOLEAN", True, "any beginning"),
        ("1", "STRING", "BOOLEAN", False, "and nothing else"),
        ("1.25", "STRING", "DECIMAL(4, 1)", Decimal("1.3"), "half up"),
        ("12d", "STRING", "DOUBLE", 12.0, "Java's suffix"),
        (Decimal("0E-10"), "DECIMAL(20, 10)", "STRING", "0.0000000000", "no exponent"),
        (1, "DATE", "STRING", "1970-01-02", ""),
        (2_932_897, "DATE", "STRING", "+10000-01-01", "a year of five digits"),
        (1, "DATE", "TIMESTAMP", 86_400_000, ""),
        (-1, "TIMESTAMP", "DATE", -1, "the day before"),
        (-1, "TIMESTAMP", "TIME", 86_399_999, ""),
        (-1, "TIMESTAMP", "STRING", "1969-12-31T23:59:59.999", ""),
        (45_000_000, "TIME", "STRING", "12:30", "no seconds"),
        (45_000_001, "TIME", "STRING", "12:30:00.001", "or all digits"),
        ([1, None], "ARRAY<INT>", "ARRAY<STRING>", ["1", None], "by parts"),
        (["x", "2"], "ARRAY<STRING>", "ARRAY<INT>", [None, 2], "a part that does not fit"),
        ([1.0, None], "ARRAY<DOUBLE>", "STRING", "[1.0, null]", "Java's list"),
        ({"a": 1e7}, "MAP<STRING, DOUBLE>", "STRING", "{a=1.0E7}", "Java's map"),
        ({"A": 1, "B": None}, "STRUCT<A INT, B INT>", "STRING", "Struct{A=1}", "Connect's struct"),
    ],
)
def test_cast(value: object, source: str, target: str, result: object, why: str) -> None:
    found = cast_value(value, parse_type(source), parse_type(target))
    assert (found, type(found)) == (result, type(result)), why


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("1.5", "INT"), ("1e3", "BIGINT"), ("", "INT"), ("2147483648", "INT"), ("NaN", "DOUBLE"),
        ("1e999", "DOUBLE"), ("x", "DECIMAL(4, 1)"), ("1000", "DECIMAL(4, 1)"), ("1_0", "INT"),
        ("1e999999999", "BIGINT"), ("1e999999999", "DECIMAL(38, 0)"),
    ],
)  # fmt: skip
def test_text_that_is_no_such_number(text: str, target: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the caller has the words
        cast_value(text, parse_type("STRING"), parse_type(target))


def test_null_casts_to_anything() -> None:
    assert cast_value(None, NULL, parse_type("INT")) is None


def test_decimals_of_38_digits() -> None:
    """More than Python's default context has."""
    text = "1234567890123456789012345678.5000000000"
    wide = parse_type("DECIMAL(38, 10)")
    assert cast_value(text, parse_type("STRING"), wide) == Decimal(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (0.001, "0.001"), (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"), (1e7, "1.0E7"), (-1.25e10, "-1.25E10"), (1e300, "1.0E300"),
        (math.nan, "NaN"), (-math.inf, "-Infinity"), (1e22, "1.0E22"),
    ],
)  # fmt: skip
def test_a_double_as_java_prints_it(number: float, text: str) -> None:
    assert double_text(number) == text


@pytest.mark.parametrize("days", [106751991, -(2**31)])
def test_a_day_whose_midnight_is_no_instant(days: int) -> None:
    """Spark's CAST would end the query."""
    assert cast_value(106751990, parse_type("DATE"), parse_type("TIMESTAMP")) == 9223371936000000
    with pytest.raises(ValueError, match="Cannot convert day"):
        cast_value(days, parse_type("DATE"), parse_type("TIMESTAMP"))


def test_a_key_that_does_not_fit_is_left_out() -> None:
    source, target = parse_type("MAP<STRING, INT>"), parse_type("MAP<INT, STRING>")
    assert cast_value({"a": 1, "2": 3}, source, target) == {2: "3"}
