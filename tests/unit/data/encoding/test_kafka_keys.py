"""Keys as Kafka holds them, as tables. The DELIMITED and JSON rows are what Spark 4.2 printed."""

from __future__ import annotations

from decimal import Decimal

import pytest
from tests.unit.data.rows import key_columns

from standpipe.data.encoding import kafka_keys
from standpipe.data.encoding.kafka_keys import UnfitKey


@pytest.mark.parametrize(
    ("types", "values", "key_format", "data", "why"),
    [
        (("STRING",), ("Zü",), "KAFKA", b"Z\xc3\xbc", "UTF-8, bare"),
        (("VARCHAR",), ("",), "KAFKA", b"", "an empty key is a key"),
        (("INTEGER",), (-2,), "KAFKA", b"\xff\xff\xff\xfe", "4 bytes, big-endian"),
        (("INT",), (5,), "KAFKA", b"\0\0\0\5", "INT is INTEGER"),
        (("BIGINT",), (5,), "KAFKA", b"\0" * 7 + b"\5", "8 bytes"),
        (("DOUBLE",), (1.0,), "KAFKA", b"\x3f\xf0" + b"\0" * 6, "IEEE, big-endian"),
        (("BYTES",), (b"\0\1",), "KAFKA", b"\0\1", "as they are"),
        (("STRING",), ('a"\x01ü',), "JSON", b'"a\\"\\u0001\xc3\xbc"', "one column is not wrapped"),
        (("STRING",), ("\x1f\n",), "JSON", b'"\\u001F\\n"', "Jackson's hex is in upper case"),
        (("BIGINT",), (12,), "JSON", b"12", "a bare number"),
        (("DOUBLE",), (1e7,), "JSON", b"1.0E7", "as Double.toString writes it"),
        (("BOOLEAN",), (True,), "JSON", b"true", ""),
        (("BYTES",), (b"hi",), "JSON", b'"aGk="', "base64"),
        (("DECIMAL(4, 2)",), (Decimal("2.50"),), "JSON", b"2.50", "the scale stays"),
        (("ARRAY<STRING>",), (["a", None],), "JSON", b'["a",null]', "an ARRAY is JSON"),
        (
            ("STRUCT<`A` DOUBLE, `b` ARRAY<INTEGER>>",),
            ({"A": Decimal("1.5"), "b": [1]},),
            "JSON",
            b'{"A":1.5,"b":[1]}',
            "a STRUCT, in the order of its type",
        ),
        (("STRING", "INTEGER"), ("x", 1), "JSON", b'{"A":"x","B":1}', "several are an object"),
        (("STRING", "INTEGER"), ('x,"y', 1), "DELIMITED", b'"x,""y",1', "quoted where needed"),
        (("STRING", "BOOLEAN"), ("", False), "DELIMITED", b'"",false', "empty is not null"),
        (("STRING", "STRING"), ("a", "\\"), "DELIMITED", b"a,\\", "no more than needed"),
        (
            ("STRING", "STRING"),
            ("\u00fc", "\u00fc"),
            "DELIMITED",
            '"\u00fc",\u00fc'.encode(),
            "first",
        ),
        (("INTEGER", "INTEGER"), (-1, -1), "DELIMITED", b'"-1",-1', "a first that is no letter"),
        (("STRING", "STRING"), ("a ", "b "), "DELIMITED", b'"a ","b "', "a blank at the end"),
        (("STRING", "STRING"), ("a", " b"), "DELIMITED", b'a," b"', "or in front"),
        (("STRING", "STRING"), ("#a", "#a"), "DELIMITED", b'"#a","#a"', "it would be a comment"),
    ],
)
def test_keys(
    types: tuple[str, ...], values: tuple[object, ...], key_format: str, data: bytes, why: str
) -> None:
    columns = key_columns(*types)
    assert kafka_keys.encode_key(values, columns, key_format) == data, why
    assert kafka_keys.decode_key(data, columns, key_format) == values, why


@pytest.mark.parametrize(("delimiter", "data"), [(",", b'"a,b",c;d'), (";", b'a,b;"c;d"')])
def test_key_delimiter(delimiter: str, data: bytes) -> None:
    columns, values = key_columns("STRING", "STRING"), ("a,b", "c;d")
    assert kafka_keys.encode_key(values, columns, "DELIMITED", delimiter) == data
    assert kafka_keys.decode_key(data, columns, "DELIMITED", delimiter) == values


@pytest.mark.parametrize(
    ("types", "values", "key_format", "why"),
    [
        (("STRING", "STRING"), ("a", "b"), "KAFKA", "one column only"),
        (("BOOLEAN",), (True,), "KAFKA", "ksqlDB has no such serializer"),
        (("INTEGER",), (2**31,), "KAFKA", "more than 32 bits"),
        (("INTEGER",), ("5",), "KAFKA", "a string is no number"),
        (("MAP<STRING, INTEGER>",), ({"a": 1},), "JSON", "no key at all"),
        (("STRING",), (5,), "JSON", "a number is no string"),
        (("STRING",), ("a",), "AVRO", "no registry"),
    ],
)
def test_keys_that_do_not_fit(
    types: tuple[str, ...], values: tuple[object, ...], key_format: str, why: str
) -> None:
    assert why
    with pytest.raises(UnfitKey):
        kafka_keys.encode_key(values, key_columns(*types), key_format)


@pytest.mark.parametrize(
    ("types", "data", "key_format"),
    [
        (("INTEGER",), b"\0", "KAFKA"),
        (("STRING",), b"\xff", "KAFKA"),
        (("STRING",), b"5", "JSON"),
        (("STRING", "INTEGER"), b'{"A":"x"}', "JSON"),
        (("STRING", "INTEGER"), b"x", "DELIMITED"),
        (("BYTES",), b'"?"', "JSON"),
        (("DECIMAL(4, 2)",), b"x", "DELIMITED"),
        (("STRING",), b"x", "PROTOBUF"),
        (("STRING",), b"[" * 10_000, "JSON"),
    ],
)
def test_bytes_that_are_no_key(types: tuple[str, ...], data: bytes, key_format: str) -> None:
    with pytest.raises(UnfitKey):
        kafka_keys.decode_key(data, key_columns(*types), key_format)


def test_null_keys_and_no_format_have_no_bytes() -> None:
    assert kafka_keys.encode_key((None,), key_columns("STRING"), "KAFKA") is None
    assert kafka_keys.encode_key(("a",), key_columns("STRING"), "NONE") is None


def test_json_keys_match_names_without_case_if_they_must() -> None:
    columns = key_columns("STRING", "INTEGER")
    assert kafka_keys.decode_key(b'{"b":1,"a":"x"}', columns, "JSON") == ("x", 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "0.0"),
        (100.0, "100.0"),
        (-12.25, "-12.25"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1.5e300, "1.5E300"),
        (5e-324, "4.9E-324"),
        (2e-323, "2.0E-323"),
        (123456789.125, "1.23456789125E8"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert kafka_keys.encode_key((value,), key_columns("DOUBLE"), "JSON") == text.encode()


def test_keys_of_sessions_have_the_end_before_the_start() -> None:
    data = kafka_keys.session_key(b"k", 1, 258)
    assert data == b"k" + b"\0" * 6 + b"\1\2" + b"\0" * 7 + b"\1"
    assert kafka_keys.split_session_key(data) == (b"k", 1, 258)
    with pytest.raises(UnfitKey):
        kafka_keys.split_session_key(data[2:])


def test_windowed_keys() -> None:
    data = kafka_keys.windowed_key(b"k", 258)
    assert data == b"k" + b"\0" * 6 + b"\1\2"
    assert kafka_keys.split_windowed_key(data) == (b"k", 258)
    with pytest.raises(UnfitKey):
        kafka_keys.split_windowed_key(b"1234567")
