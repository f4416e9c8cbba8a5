"""Values on their way from a literal to a column."""

from __future__ import annotations

import sys
from decimal import Decimal

import pytest

from standpipe.sql.types.types import parse_type
from standpipe.sql.types.values import (
    coerce,
    is_finite,
    parse_date,
    parse_time,
    parse_timestamp,
    plain_text,
)


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1970", 0),
        ("1970-01-02", 86_400_000),
        ("2020-02-23T23:45:12.000", 1_582_501_512_000),
        ("2020-02-23 23:45:12", 1_582_501_512_000),
        ("2020-02-24T00:45:12+0100", 1_582_501_512_000),
        ("2020-02-23T23:45:12Z", 1_582_501_512_000),
        ("1970-01-01T00:00:00.5", 500),
        ("1969-12-31T23:59:59.999", -1),
        ("1970-01-01T24", 86_400_000),
    ],
)
def test_datetime_text(text: str, millis: int) -> None:
    assert parse_timestamp(text) == millis


@pytest.mark.parametrize(
    "text", ["2020" + " " * 100_000 + "Z", "2020-01-01T00:00" + "\t" * 100 + "+01:00", "2" * 101]
)
def test_a_long_text_is_no_timestamp_and_is_not_kept(text: str) -> None:
    """4,096 texts are kept, and a scan could bring them at a megabyte each."""
    references = sys.getrefcount(text)
    with pytest.raises(ValueError, match="Failed to parse timestamp"):
        parse_timestamp(text)
    assert sys.getrefcount(text) == references
    assert parse_timestamp(f"{' ' * 100_000}2020 ") == parse_timestamp("2020"), "it is trimmed"


@pytest.mark.parametrize("text", ["", "now", "2020-13", "2020-02-30", "2020-01-01T25", "10"[:0]])
def test_no_datetime(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - datetime's own message is as good
        parse_timestamp(text)


def test_dates_and_times() -> None:
    assert parse_date("1970-01-11") == 10
    assert parse_time("01:02:03.004") == 3_723_004
    with pytest.raises(ValueError, match="date"):
        parse_date("1970-01-01T12")
    with pytest.raises(ValueError, match="time"):
        parse_time("24:00")


@pytest.mark.parametrize(
    ("value", "source", "target", "result"),
    [
        (1, "INT", "BIGINT", 1),
        (1, "INT", "DOUBLE", 1.0),
        (1, "INT", "DECIMAL(4, 2)", Decimal("1.00")),
        (Decimal("1.5"), "DECIMAL(2, 1)", "DOUBLE", 1.5),
        (Decimal("1.5"), "DECIMAL(2, 1)", "DECIMAL(4, 2)", Decimal("1.50")),
        ("1970-01-02", "STRING", "DATE", 1),
        ("AAE=", "STRING", "BYTES", b"\x00\x01"),
        (None, "INT", "STRING", None),
        ([1, None], "ARRAY<INT>", "ARRAY<BIGINT>", [1, None]),
        ({"a": 1}, "MAP<STRING, INT>", "MAP<STRING, DOUBLE>", {"a": 1.0}),
        ({"X": 1}, "STRUCT<X INT>", "STRUCT<X BIGINT, Y INT>", {"X": 1, "Y": None}),
    ],
)
def test_coerce(value: object, source: str, target: str, result: object) -> None:
    found = coerce(value, parse_type(source), parse_type(target))
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(
    ("value", "source", "target"),
    [
        ("10", "STRING", "INT"),
        (10, "INT", "STRING"),
        (2**40, "BIGINT", "INT"),
        (Decimal("1.5"), "DECIMAL(2, 1)", "INT"),
        (Decimal("1.55"), "DECIMAL(3, 2)", "DECIMAL(4, 1)"),
        (1000, "INT", "DECIMAL(4, 2)"),
        (True, "BOOLEAN", "INT"),
        ("#", "STRING", "BYTES"),
        ([1], "ARRAY<INT>", "ARRAY<STRING>"),
        ({"X": "1"}, "STRUCT<X STRING>", "STRUCT<X INT>"),
    ],
)
def test_coerce_refuses(value: object, source: str, target: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the caller has the words
        coerce(value, parse_type(source), parse_type(target))


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_what_is_no_number_is_found_however_deep(number: float) -> None:
    for value in (number, [1.0, [number]], {"a": {"b": number}}, {number: "a"}):
        assert not is_finite(value)
    assert is_finite({"a": [1.7976931348623157e308, "inf", None]})


def test_decimals_of_38_digits() -> None:
    """More than Python's default context has."""
    text = "1234567890123456789012345678.5"
    wide = parse_type("DECIMAL(38, 10)")
    assert coerce(Decimal(text), parse_type("DECIMAL(29, 1)"), wide) == Decimal(text)


def test_fields_that_the_target_lacks_are_left_out() -> None:
    """ksqlDB: DefaultSqlValueCoercer.coerceToStruct."""
    source, target = parse_type("STRUCT<X INT, Z INT>"), parse_type("STRUCT<X BIGINT, Y STRING>")
    assert coerce({"X": 1, "Z": 2}, source, target) == {"X": 1, "Y": None}


@pytest.mark.parametrize(
    ("number", "text"),
    [("1E3", "1000"), ("-1.50", "-1.50"), ("1E-7", "0.0000001"), ("1E1000", "1" + "0" * 1000)],
)
def test_plain_text(number: str, text: str) -> None:
    assert plain_text(Decimal(number)) == text


@pytest.mark.parametrize("number", ["1E1001", "1E4000000000", "1E-4000000000", "NaN", "-Infinity"])
def test_plain_text_writes_no_gigabytes_of_zeros(number: str) -> None:
    with pytest.raises(ValueError, match="Numeric field overflow"):
        plain_text(Decimal(number))
