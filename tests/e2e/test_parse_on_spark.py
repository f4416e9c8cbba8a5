"""Bytes of records ↔ columns, by Spark: where ksqlDB reads or writes otherwise than Spark would."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from standpipe.data.encoding.kafka_keys import encode_key
from standpipe.model import Column, Source, SparkInput, Window
from standpipe.pipeline.io.sink import records_of
from standpipe.pipeline.io.source import parse, visible_columns

pytestmark = pytest.mark.e2e

RECORDS = "key BINARY, value BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP"


def columns(text: str) -> tuple[Column, ...]:
    named = [each.split(" ", 1) for each in text.split("; ")]
    return tuple(Column(name=name, type=of) for name, of in named)


def parsed(
    spark: SparkSession, source: SparkInput, records: Sequence[tuple[bytes | None, bytes | None]]
) -> list[dict[str, Any]]:
    rows = [
        (None if k is None else bytearray(k), None if v is None else bytearray(v), 0, n, None)
        for n, (k, v) in enumerate(records)
    ]
    frame = spark.createDataFrame(rows, RECORDS).selectExpr(
        "key", "value", "partition", "offset", "timestamp_millis(1000) AS timestamp"
    )
    return [row.asDict(recursive=True) for row in parse(frame, source, bytes_max=2**20).collect()]


def visible(spark: SparkSession, source: SparkInput, value: bytes) -> dict[str, Any]:
    """The columns that a query sees of a record."""
    frame = spark.createDataFrame([(None, bytearray(value), 0, 0, None)], RECORDS)
    frame = frame.withColumn("timestamp", f.timestamp_millis(f.lit(1000)))
    (row,) = parse(frame, source, bytes_max=2**20).select(*visible_columns(source)).collect()
    found = row.asDict(recursive=True)
    return {column.name: found[column.name] for column in source.columns}


def source_of(text: str, **changes: Any) -> SparkInput:
    given: dict[str, Any] = {
        "source": "S",
        "topic": "s",
        "view": "V",
        "columns": columns(text),
        "key_format": "NONE",
        "value_format": "JSON",
        **changes,
    }
    return SparkInput(**given)


JSON = [
    ("A INTEGER", '{"A": 1}', 1, "the exact name"),
    ("A INTEGER", '{"a": 2}', 2, "in small letters"),
    ("A INTEGER; B STRING", '{"A": "2", "B": "x"}', 2, "a number out of text"),
    ("A INTEGER", '{"a": "2"}', 2, "under a name in small letters"),
    ("A INTEGER", '{"a": 2.7}', 2, ""),
    ("A INTEGER", '{"A": 2.7}', 2, "is cut"),
    ("A ARRAY<INTEGER>", '{"A": ["5", null, 7]}', [5, None, 7], "numbers in an ARRAY"),
    ("a ARRAY<INTEGER>", '{"a": ["5"]}', [5], ""),
    ("A ARRAY<ARRAY<DOUBLE>>", '{"A": [["1.5"]]}', [[1.5]], ""),
    ("A ARRAY<STRING>", '{"A": ["5"]}', ["5"], "text stays text"),
    ("M MAP<STRING, BIGINT>", '{"m": {"a": "4", "B": null}}', {"a": 4, "B": None}, "in a MAP"),
    ("M MAP<STRING, BIGINT>", '{"M": {"a": "x"}}', "bad", "no number"),
    ("A:B`C> INTEGER", '{"A:B`C>": "2"}', 2, "whatever the name"),
    (
        "A INTEGER; B STRING",
        '{"aB": 1, "b": "x", "A": "no"}',
        "bad",
        "no number beside other names",
    ),
    ("A INTEGER", '{"A": "1", ', "bad", "the rest is missing"),
    ("A INTEGER", "{'A': 1}", "bad", "no JSON"),
    ("A INTEGER", '{"A": true}', "bad", "true is no 1"),
    ("A DECIMAL(4, 2)", '{"a": false}', "bad", ""),
    ("A ARRAY<DOUBLE>", '{"A": ["1", true]}', "bad", "nor is it in an ARRAY"),
    ("A BOOLEAN; B INTEGER", '{"A": true, "B": "2"}', True, "beside a number out of text"),
    ("A DECIMAL(4, 2)", '{"a": "1.50"}', "1.50", "DECIMAL"),
    ("TAILNUM STRING", '{"tailNum": "N1"}', "N1", "any case"),
    ("TAILNUM STRING", '{"tailNum": 1, "TAILNUM": 2}', "2", "the exact name first"),
    ("TAILNUM STRING", '{"TAILNUM": null, "tailNum": 1}', None, "… whatever it says"),
    ("tailnum STRING", '{"tailNum": "N1"}', None, "but a name in small letters is itself"),
    ("TAILNUM BYTES", '{"tailNum": "aGk="}', b"hi", "base64 under a mixed name"),
    ("TAILNUM BYTES", '{"tailNum": "?"}', "bad", "no base64"),
    ("LIST ARRAY<INTEGER>", '{"List": [1, 2]}', [1, 2], "an ARRAY under a mixed name"),
    ("LIST ARRAY<INTEGER>", '{"List": [1, "x"]}', "bad", "with something else in it"),
    ("A INTEGER", '{"A": "x"}', "bad", "no number"),
    ("A INTEGER", '{"A": null}', None, "null is none"),
    ("A ARRAY<INTEGER>", '{"A": [1, "x"]}', "bad", "inside of arrays"),
    ("A BYTES", '{"a": "aGk=", "B": 1}', b"hi", "base64"),
    ("A BOOLEAN", '{"A": 1}', "bad", "a number is no BOOLEAN"),
    ("A INTEGER", "[1]", "bad", "no object"),
    ("A INTEGER", "{", "bad", "no JSON"),
]


@pytest.mark.parametrize(("text", "value", "expected", "why"), JSON)
def test_json_is_read_as_ksqldb_reads_it(
    spark: SparkSession, text: str, value: str, expected: object, why: str
) -> None:
    (row,) = parsed(spark, source_of(text), [(None, value.encode())])
    if expected == "bad":
        assert row["__bad"] == "VALUE", why
        return
    assert row["__bad"] is None, why
    found = [each for name, each in row["__value"].items() if not name.startswith("__")]
    first = next((each for each in found if each is not None), None)
    assert (str(first) if isinstance(expected, str) else first) == expected, why


def test_fields_of_structs_are_found_in_any_case(spark: SparkSession) -> None:
    text = "A STRUCT<`TOWN` STRING, `NO` INTEGER>; L ARRAY<STRUCT<`TOWN` STRING>>; B INTEGER"
    value = b'{"a": {"Town": "Oxford", "no": 3}, "l": [{"Town": "Bath"}, null], "B": "1"}'
    (row,) = parsed(spark, source_of(text), [(None, value)])
    found = row["__value"]
    whole, items = found["A"] or found["a"], found["L"] or found["l"]
    assert (row["__bad"], whole["TOWN"], whole["NO"], found["B"]) == (None, "Oxford", 3, 1)
    assert [item and item["TOWN"] for item in items] == ["Bath", None]


@pytest.mark.parametrize("at_ms", [2**63 - 1, -(2**63), 9_223_372_036_854_775])
def test_an_instant_beyond_sparks_harms_its_own_record_only(
    spark: SparkSession, at_ms: int
) -> None:
    source = source_of("T TIMESTAMP; L ARRAY<TIMESTAMP>", timestamp_column="T")
    texts = (f'{{"T": {at_ms}, "L": [{at_ms}]}}', f'{{"T": 5, "L": [{at_ms}]}}')
    bad, good = parsed(spark, source, [(None, text.encode()) for text in texts])
    assert bad["__bad"] == "TIMESTAMP"
    assert (good["__bad"], good["ROWTIME"]) == (None, 5)


def test_numbers_in_structs_are_taken_out_of_text(spark: SparkSession) -> None:
    text = "S STRUCT<`AT` DATE, `NAME` STRING, `OF` STRUCT<`NO` INTEGER>>"
    value = b'{"s": {"AT": "1", "name": "5", "OF": {"no": "7"}}}'
    good, bad = parsed(spark, source_of(text), [(None, value), (None, value.replace(b"7", b"x"))])
    found = good["__value"]["S"] or good["__value"]["s"]
    assert good["__bad"] is None
    assert (found["AT"], found["NAME"] or found["name"]) == (1, "5")
    inner = found["OF"] or found["of"]
    assert (inner["NO"] or inner["no"]) == 7
    assert bad["__bad"] == "VALUE"


@pytest.mark.parametrize(
    ("text", "value", "row"),
    [
        ("v INTEGER; V INTEGER", '{"v": 1, "V": 2}', {"v": 1, "V": 2}),
        ("V INTEGER; v INTEGER", '{"v": "1", "V": "2"}', {"v": 1, "V": 2}),
        ("S STRUCT<V INT, `v` STRING>", '{"S": {"v": "1", "V": 2}}', {"S": {"v": "1", "V": 2}}),
        ("VV INTEGER; Vv INTEGER", '{"Vv": 1, "VV": 2}', {"Vv": 1, "VV": 2}),
    ],
)
def test_columns_whose_names_differ_in_case_only(
    spark: SparkSession, text: str, value: str, row: dict[str, Any]
) -> None:
    """Spark refused their schema as ambiguous, and every query over the stream failed."""
    assert visible(spark, source_of(text), value.encode()) == row


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
@pytest.mark.parametrize(
    ("text", "value", "row"),
    [
        ("A STRING; B INTEGER", "x,1", {"A": "x", "B": 1}),
        ("A INTEGER; B STRING", "1,x", {"A": 1, "B": "x"}),
        ("my-col INTEGER; a`.c STRING", '1,"x\ny"', {"my-col": 1, "a`.c": "x\ny"}),
        ("ü BIGINT; B BYTES", "1,aGk=", {"ü": 1, "B": b"hi"}),
    ],
)
def test_a_line_may_end_as_lines_do_and_columns_have_any_name(
    spark: SparkSession, text: str, value: str, row: dict[str, Any], end: str
) -> None:
    """The line break became a part of the last column: each record was bad, or had another text. A
    name such as my-col failed every query over the stream."""
    source = source_of(text, value_format="DELIMITED")
    assert visible(spark, source, (value + end).encode()) == row


def test_bytes_in_csv_are_base64(spark: SparkSession) -> None:
    source = source_of("A STRING; B BYTES", value_format="DELIMITED")
    good, bad = parsed(spark, source, [(None, b"x,aGk="), (None, b"x,?")])
    assert (good["__bad"], good["__value"]["B"]) == (None, b"hi")
    assert bad["__bad"] == "VALUE"


@pytest.mark.parametrize("start", [0, 12, 200, 1581323504000])
def test_bounds_of_windowed_keys_are_bytes_not_characters(spark: SparkSession, start: int) -> None:
    """Bytes above 127 are no characters: counted as such, a bound would move."""
    end = start + 465
    for kind, tail in (("SESSION", (end, start)), ("TUMBLING", (start,))):
        window = Window(kind=kind, size_ms=465, advance_ms=465, grace_ms=0, retention_ms=0)  # type: ignore[arg-type]
        key = Column(name="K", type="STRING", is_key=True)
        source = source_of("A INTEGER", window=window, key_format="KAFKA")
        source = SparkInput(**{**_fields(source), "columns": (key, *source.columns)})
        raw = b"k" + b"".join(struct.pack(">q", each) for each in tail)
        (row,) = parsed(spark, source, [(raw, b'{"A": 1}')])
        assert (row["WINDOWSTART"], row["WINDOWEND"], row["__key"]["K"]) == (start, end, "k")


def _fields(source: SparkInput) -> dict[str, Any]:
    return {name: getattr(source, name) for name in source.__struct_fields__}


def test_csv_is_written_as_keys_are(spark: SparkSession) -> None:
    """`sink` and `data.encoding.kafka_keys` must give a key the same bytes (its partition)."""
    texts = ["a", "", " a", "a ", "#a", "!a", "ü", 'x"y', "x;y", "a\nb", "-"]
    keys = tuple(
        Column(name=name, type=of, is_key=True)
        for name, of in (("A", "STRING"), ("B", "STRING"), ("C", "INTEGER"))
    )
    rows = [(one, two, n - 3) for n, one in enumerate(texts) for two in texts]
    rows += [("a", None, None)]
    frame = spark.createDataFrame(
        [(*row, 1, 5, True) for row in rows],
        "A STRING, B STRING, C INT, V INT, __ROWTIME BIGINT, __LIVE BOOLEAN",
    )
    table = Source(
        name="T",
        kind="STREAM",
        columns=(*keys, Column(name="V", type="INTEGER")),
        topic="t",
        partitions=1,
        key_format="DELIMITED",
        value_format="JSON",
        statement="",
        key_delimiter=";",
    )
    written = [bytes(row["key"]) for row in records_of(frame, table).collect()]
    assert written == [encode_key(row, keys, "DELIMITED", ";") for row in rows]
