"""What the pipeline reads and writes, byte by byte: parsing and rendering on a real Spark.

Keys must be those of `data/encoding/store_keys.py`: the bytes decide the partition. Static frames,
no Kafka.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from standpipe.data.encoding import store_keys
from standpipe.model import Column, Source, SparkInput, Window
from standpipe.pipeline.io.sink import records_of
from standpipe.pipeline.io.sink_writer import WriteLimits, fitting, parsed
from standpipe.pipeline.io.source import RAW_BYTES_MAX, parse, visible_columns

DAY_MS = 86_400_000
KAFKA_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"
)
AT = datetime(2013, 1, 1, tzinfo=UTC)


# -------------------------------------------------------------------------------------- reading


def column(name: str, type_: str, *, key: bool = False) -> Column:
    return Column(name=name, type=type_, is_key=key)


def read(
    spark: SparkSession, columns: list[Column], key: bytes | None, value: bytes | None, **how: Any
) -> tuple[dict[str, Any], str | None]:
    """(the row that a query would see, why it is bad or None)."""
    made = {"key_format": "NONE", "value_format": "JSON"} | how
    source = SparkInput(source="S", topic="s", view="v", columns=tuple(columns), **made)
    frame = spark.createDataFrame([(key, value, "s", 3, 5, AT)], KAFKA_SCHEMA)
    parsed = parse(frame, source, bytes_max=2**20)
    (row,) = parsed.select(*visible_columns(source), "__bad").collect()
    return row.asDict(recursive=True), row["__bad"]


@pytest.mark.parametrize(
    ("type_", "text", "value", "why"),
    [
        ("BOOLEAN", "true", True, ""),
        ("INTEGER", "-7", -7, ""),
        ("BIGINT", "9223372036854775807", 9223372036854775807, ""),
        ("DOUBLE", "1.5", 1.5, ""),
        ("DOUBLE", "3", 3.0, "an integer fits a DOUBLE"),
        ("STRING", '"Zürich"', "Zürich", ""),
        ("STRING", "5", "5", "ksqlDB takes any value as text"),
        ("DECIMAL(6, 2)", "12.34", Decimal("12.34"), ""),
        ("BYTES", '"aGk="', b"hi", "base64"),
        ("TIMESTAMP", "1000", datetime.fromisoformat("1970-01-01T00:00:01"), "ms"),
        ("DATE", "1", date(1970, 1, 2), "days"),
        ("ARRAY<INTEGER>", "[1,null,3]", [1, None, 3], ""),
        ("MAP<STRING, INTEGER>", '{"a":1}', {"a": 1}, ""),
        (
            "STRUCT<A INTEGER, B STRING>",
            '{"a":1,"B":"x"}',
            {"A": 1, "B": "x"},
            "fields in any case",
        ),
        ("ARRAY<STRUCT<A INTEGER>>", '[{"a":1},{"A":2}]', [{"A": 1}, {"A": 2}], "also inside"),
        ("INTEGER", "null", None, ""),
    ],
)
def test_json_values(spark: SparkSession, type_: str, text: str, value: object, why: str) -> None:
    for name in ("V", "v"):
        seen, bad = read(spark, [column("V", type_)], None, f'{{"{name}":{text}}}'.encode())
        assert (seen["V"], bad) == (value, None), why


@pytest.mark.parametrize(
    ("value", "why_bad"),
    [
        (b"{", "VALUE"),
        (b"", "VALUE"),
        (b"  ", "VALUE"),
        (b"[1]", "VALUE"),
        (b'"x"', "VALUE"),
        (b'{"N":"x"}', "VALUE"),
        (b'{"N":1.5}', None),  # cut, as ksqlDB does
        (b'{"N":"1.5"}', "VALUE"),
        (b'{"N":99999999999}', "VALUE"),
        (b"\xff\xfe", "VALUE"),
        (b"{}", None),
        (b'{"N":1,"OTHER":{}}', None),
        (None, None),
    ],
)
def test_bad_values(spark: SparkSession, value: bytes | None, why_bad: str | None) -> None:
    assert read(spark, [column("N", "INTEGER")], None, value)[1] == why_bad


@pytest.mark.parametrize(
    ("type_", "format_", "key", "value"),
    [
        ("STRING", "KAFKA", b"N1", "N1"),
        ("INTEGER", "KAFKA", b"\xff\xff\xff\xfe", -2),
        ("BIGINT", "KAFKA", b"\0\0\0\0\0\0\1\0", 256),
        ("BIGINT", "KAFKA", b"\xff" * 8, -1),
        ("DOUBLE", "KAFKA", b"\x3f\xf8\0\0\0\0\0\0", 1.5),
        ("STRING", "JSON", b'"N1"', "N1"),
        ("INTEGER", "JSON", b"5", 5),
        ("INTEGER", "DELIMITED", b"5", 5),
    ],
)
def test_keys(spark: SparkSession, type_: str, format_: str, key: bytes, value: object) -> None:
    columns = [column("K", type_, key=True), column("V", "INTEGER")]
    seen, bad = read(spark, columns, key, b'{"V":1}', key_format=format_)
    assert (seen["K"], seen["V"], bad) == (value, 1, None)


@pytest.mark.parametrize(
    ("type_", "format_", "key"),
    [
        ("INTEGER", "KAFKA", b"abc"),
        ("DOUBLE", "KAFKA", b"1"),
        ("STRING", "KAFKA", b"\xff"),
        ("INTEGER", "JSON", b'"x"'),
    ],
)
def test_bad_keys(spark: SparkSession, type_: str, format_: str, key: bytes) -> None:
    columns = [column("K", type_, key=True), column("V", "INTEGER")]
    assert read(spark, columns, key, b'{"V":1}', key_format=format_)[1] == "KEY"


def test_delimited_values(spark: SparkSession) -> None:
    columns = [column("A", "INTEGER"), column("B", "STRING"), column("C", "DOUBLE")]
    how = {"value_format": "DELIMITED"}
    seen, bad = read(spark, columns, None, b'1,"a ""b"", c",2.5', **how)
    assert (seen["A"], seen["B"], seen["C"], bad) == (1, 'a "b", c', 2.5, None)
    assert read(spark, columns, None, b"x,b,2.5", **how)[1] == "VALUE"
    seen, _ = read(spark, columns, None, b"1|b|2.5", value_delimiter="|", **how)
    assert seen["B"] == "b"


@pytest.mark.parametrize(
    ("how", "type_", "text", "rowtime_ms", "why"),
    [
        ({}, "BIGINT", "5", 1356998400000, "the record's own"),
        ({"timestamp_column": "AT"}, "BIGINT", "5", 5, "a column of ms"),
        ({"timestamp_column": "AT"}, "TIMESTAMP", "5", 5, ""),
        (
            {"timestamp_column": "AT", "timestamp_format": "yyyy-MM-dd HH:mm"},
            "STRING",
            '"1970-01-01 00:01"',
            60_000,
            "text, with its pattern",
        ),
        (
            {"timestamp_column": "AT", "timestamp_format": "EEE yyyy-MM-dd'T'HH:mmXXX"},
            "STRING",
            '"Fri 1970-01-02T24:00+01:00"',
            47 * 3_600_000,
            "as PARSE_TIMESTAMP reads it",
        ),
    ],
)
def test_rowtime(
    spark: SparkSession, how: dict[str, Any], type_: str, text: str, rowtime_ms: int, why: str
) -> None:
    seen, bad = read(spark, [column("AT", type_)], None, f'{{"AT":{text}}}'.encode(), **how)
    assert (seen["ROWTIME"], bad) == (rowtime_ms, None), why
    assert (seen["ROWPARTITION"], seen["ROWOFFSET"], seen["__ORDER"]) == (3, 5, 5 * 65_536 + 3)


def test_a_timestamp_that_is_none_is_bad(spark: SparkSession) -> None:
    how = {"timestamp_column": "AT", "timestamp_format": "yyyy-MM-dd"}
    assert read(spark, [column("AT", "STRING")], None, b'{"AT":"noon"}', **how)[1] == "TIMESTAMP"


# -------------------------------------------------------------------------------------- writing


def table(
    columns: list[Column], key_format: str, window: Window | None = None, **how: Any
) -> Source:
    return Source(
        name="T",
        kind="TABLE",
        columns=tuple(columns),
        topic="T",
        partitions=7,
        key_format=key_format,
        value_format="JSON",
        statement="",
        window=window,
        **how,
    )


SPARK_TYPES = {
    "STRING": t.StringType(),
    "INTEGER": t.IntegerType(),
    "BIGINT": t.LongType(),
    "DOUBLE": t.DoubleType(),
    "BOOLEAN": t.BooleanType(),
    "DECIMAL(6, 2)": t.DecimalType(6, 2),
    "BYTES": t.BinaryType(),
}
KEYS = [
    ("KAFKA", [("STRING", "N1ü")]),
    ("KAFKA", [("INTEGER", -2)]),
    ("KAFKA", [("BIGINT", 2**40)]),
    ("KAFKA", [("DOUBLE", -1.5)]),
    ("KAFKA", [("BYTES", b"\0\xff")]),
    ("JSON", [("STRING", 'a"\\b\n')]),
    ("JSON", [("INTEGER", 5)]),
    ("JSON", [("DOUBLE", 1e10)]),
    ("JSON", [("BOOLEAN", True)]),
    ("JSON", [("DECIMAL(6, 2)", Decimal("1.50"))]),
    ("JSON", [("STRING", "x"), ("BIGINT", 7)]),
    ("DELIMITED", [("STRING", "x"), ("INTEGER", 7)]),
    ("DELIMITED", [("STRING", 'a,"b" '), ("DOUBLE", 0.5)]),
    ("DELIMITED", [("STRING", "plain")]),
]


@pytest.mark.parametrize(("key_format", "parts"), KEYS, ids=str)
@pytest.mark.parametrize("windowed", [False, True])
def test_keys_are_those_of_records(
    spark: SparkSession, key_format: str, parts: list[tuple[str, Any]], windowed: bool
) -> None:
    keys = [column(f"K{at}", type_, key=True) for at, (type_, _) in enumerate(parts)]
    window = Window(kind="TUMBLING", size_ms=1, advance_ms=1, grace_ms=0, retention_ms=1)
    made = table([*keys, column("N", "BIGINT")], key_format, window if windowed else None)
    bounds = ["START", "END"] if windowed else []
    schema = t.StructType()
    for name, type_ in [(key.name, SPARK_TYPES[key.type]) for key in keys]:
        schema = schema.add(name, type_)
    for name in (*bounds, "N", "R"):
        schema = schema.add(name, t.LongType())
    values = [value for _, value in parts]
    row = [*values, *([5, 6] if windowed else []), 1, 9]
    result = spark.createDataFrame([tuple(row)], schema).withColumn("LIVE", f.lit(True))
    (record,) = records_of(result, made).collect()
    raw = store_keys.encode_key(values, keys, key_format)
    assert raw is not None
    assert bytes(record["key"]) == (store_keys.windowed_key(raw, 5) if windowed else raw)
    if windowed:
        assert record["partition"] == store_keys.partition_of(raw, made.partitions)
    assert bytes(record["rowtime"]) == store_keys.rowtime_header(9)


def values_of(spark: SparkSession, select: str, made: Source) -> DataFrame:
    return records_of(spark.sql(f"SELECT 'k' AS K, {select}"), made)


def test_values_are_ksqldbs_json(spark: SparkSession) -> None:
    columns = [column("K", "STRING", key=True), column("A", "STRING"), column("B", "TIMESTAMP")]
    columns += [column("C", "DATE"), column("D", "ARRAY<TIMESTAMP>"), column("e", "DECIMAL(4, 2)")]
    select = (
        "cast(null AS STRING) AS A, timestamp_millis(1500) AS B, date_from_unix_date(3) AS C, "
        "array(timestamp_millis(7)) AS D, cast(1.5 AS DECIMAL(4, 2)) AS e, 9L AS R, true AS LIVE"
    )
    (record,) = values_of(spark, select, table(columns, "KAFKA")).collect()
    assert record["value"] == '{"A":null,"B":1500,"C":3,"D":[7],"e":1.50}'
    assert json.loads(record["value"]) == {"A": None, "B": 1500, "C": 3, "D": [7], "e": 1.5}


def test_tombstones_null_keys_and_a_bare_value(spark: SparkSession) -> None:
    columns = [column("K", "STRING", key=True), column("A", "STRING")]
    made = table(columns, "KAFKA")
    (dead,) = values_of(spark, "'x' AS A, 9L AS R, false AS LIVE", made).collect()
    assert dead["value"] is None, "HAVING took it out"
    nobody = spark.sql("SELECT cast(null AS STRING) AS K, 'x' AS A, 9L AS R, true AS LIVE")
    assert records_of(nobody, made).collect() == []
    bare = table(columns, "KAFKA", wrap_single_value=False)
    (record,) = values_of(spark, "'a\"b' AS A, 9L AS R, true AS LIVE", bare).collect()
    assert record["value"] == '"a\\"b"'


def test_a_result_of_another_width_is_refused(spark: SparkSession) -> None:
    made = table([column("K", "STRING", key=True), column("A", "STRING")], "KAFKA")
    with pytest.raises(ValueError, match="needs"):
        records_of(spark.sql("SELECT 'k' AS K"), made)


@pytest.mark.parametrize(
    ("is_table", "written", "why"),
    [
        (True, [(b"a", "1"), (b"big", None), (b"c", None)], "no older row passes for the current"),
        (False, [(b"a", "1"), (b"c", None)], "a stream has no older row"),
    ],
)
def test_rows_that_are_too_large_are_left_out_and_told(
    spark: SparkSession, is_table: bool, written: list[tuple[bytes, str | None]], why: str
) -> None:
    rows = spark.createDataFrame(
        [(b"a", "1", "t"), (b"big", "x" * 8, "t"), (b"k" * 11, "1", "t"), (b"c", None, "t")],
        "key BINARY, value STRING, topic STRING",
    )
    fits = fitting(rows, WriteLimits(bytes_max=10, samples_max=1), is_table=is_table)
    execution = cast(Any, fits)._jdf.queryExecution()
    execution.toRdd().count()
    told = parsed(execution.observedMetrics().get("rows too large").get().json(), 10)
    assert sorted((bytes(row["key"]), row["value"]) for row in fits.collect()) == written, why
    assert told.count == 2
    (sample,) = told.samples
    assert (sample["topic"], sample["bytes"]) == ("t", 12), "the largest one"


POISON = [
    (b"k" * 9, b"{}", "TOO_LARGE", "key and value together"),
    (b"k", b'{"A": "' + b"x" * 2000 + b'"}', "TOO_LARGE", "only its head is parsed and shown"),
    (None, b'{"A": "x"}', "NULL_KEY", "a row of a table has a key"),
    (None, b"x" * 2000, "TOO_LARGE", ""),
    (b"k", None, None, "a deletion"),
]


@pytest.mark.parametrize(("key", "value", "bad", "why"), POISON)
def test_why_a_record_is_bad(
    spark: SparkSession, key: bytes | None, value: bytes | None, bad: str | None, why: str
) -> None:
    columns = (column("K", "STRING", key=True), column("A", "STRING"))
    source = SparkInput(
        source="S",
        topic="s",
        view="v",
        columns=columns,
        key_format="KAFKA",
        value_format="JSON",
        is_table=True,
    )
    frame = spark.createDataFrame([(key, value, "s", 3, 5, AT)], KAFKA_SCHEMA)
    (row,) = parse(frame, source, bytes_max=10).collect()
    assert row["__bad"] == bad, why
    assert row["value"] is None or len(row["value"]) <= RAW_BYTES_MAX


DEEP = 10_000


@pytest.mark.parametrize("type_", ["STRING", "INTEGER", "ARRAY<INTEGER>", "STRUCT<X INTEGER>"])
@pytest.mark.parametrize(
    "text",
    [
        '{"A": %s}' % ("[" * DEEP + "]" * DEEP),
        '{"A": 1, "x": %s}' % ("[" * DEEP + "]" * DEEP),
        '{"aB": 1, "A": %s}' % ('{"a":' * DEEP + "1" + "}" * DEEP),
        '{"A": %s' % ("[" * DEEP),
    ],
    ids=["the column", "beside it", "objects", "not closed"],
)
def test_a_deeply_nested_record_is_bad_and_ends_nothing(
    spark: SparkSession, text: str, type_: str
) -> None:
    """Parsers that call themselves overflow their stack at a depth that a producer chooses."""
    _, bad = read(spark, [column("A", type_)], None, text.encode())
    assert bad == "VALUE"
