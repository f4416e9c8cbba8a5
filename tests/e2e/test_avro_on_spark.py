"""AVRO in Spark: the same cells as in a node, and no record that ends a JVM."""

from __future__ import annotations

import json
import random
import threading
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from tests.e2e import avro_values
from tests.e2e.avro_values import number

from standpipe.data.encoding import avro_reading
from standpipe.data.encoding.avro_program import program_of_cells
from standpipe.data.encoding.framed_values import framed
from standpipe.model import Column
from standpipe.pipeline.io.avro import java_rows
from standpipe.sql.schemas import avro
from standpipe.sql.schemas.avro import BadSchema

pytestmark = pytest.mark.e2e

BAD = "bad"


def cell(value: Any) -> Any:
    """A value of Spark in the form of `avro_reading.to_cells`."""
    if isinstance(value, Row):
        return {name: cell(part) for name, part in value.asDict().items()}
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode()
    if isinstance(value, list):
        return [cell(each) for each in value]
    return {key: cell(part) for key, part in value.items()} if isinstance(value, dict) else value


def shown(value: Any) -> str:
    """A text by which NaN is NaN, and 1 is neither 1.0 nor True; maps in one order."""
    if isinstance(value, dict):
        return str(sorted((str(key), shown(part)) for key, part in value.items()))
    return str([shown(each) for each in value]) if isinstance(value, list) else repr(value)


def programs_of(
    writers: Mapping[int, avro.AvroType], columns: Sequence[Column], *, wraps: bool = True
) -> dict[int, str]:
    made: dict[int, str] = {}
    for schema_id, writer in writers.items():
        try:
            made[schema_id] = program_of_cells(writer, columns, wraps=wraps).text()
        except BadSchema:
            continue
    return made


def read(
    spark: SparkSession,
    records: Sequence[bytes | None],
    columns: Sequence[Column],
    programs: Mapping[int, str],
    *,
    is_complete: bool = True,
) -> list[Any]:
    """What Spark makes of the records: cells, BAD, or None for a null."""
    java_rows.prepare(spark)
    of = java_rows.row_type(columns, "__corrupt")
    given = [(at, None if each is None else bytearray(each)) for at, each in enumerate(records)]
    frame: DataFrame = spark.createDataFrame(given, "at INT, value BINARY")
    column = java_rows.rows_of(spark, f.col("value"), of, programs, is_complete=is_complete)
    rows = frame.select("at", "value", column.alias("made")).sort("at").collect()
    return [
        None
        if row["value"] is None
        else BAD
        if row["made"] is None
        else cell(list(row["made"])[:-1])
        for row in rows
    ]


def expected(data: bytes, writer: avro.AvroType, columns: Sequence[Column], *, wraps: bool) -> Any:
    try:
        return avro_reading.to_cells(writer, columns, wraps=wraps)(data)
    except (BadSchema, ValueError):
        return BAD


def of(schema: Any) -> avro.AvroType:
    return avro.parse(json.dumps(schema))


@pytest.mark.parametrize("seed", range(12))
def test_the_same_cells_as_in_a_node(spark: SparkSession, seed: int) -> None:
    """40 schemas of the same columns, each with values of its own; a third of them broken."""
    chance = random.Random(seed)
    wraps = bool(seed % 4)
    names = ("A", "B", "Mixed", "d")[: chance.randrange(1, 5) if wraps else 1]
    types = [(name, avro_values.sql_type(chance, 3)) for name in names]
    columns = [Column(name=name, type=str(sql)) for name, sql in types]
    writers: dict[int, avro.AvroType] = {}
    records: list[bytes] = []
    wanted: list[Any] = []
    for schema_id in range(1, 41):
        drawn = avro_values.Writers(chance)
        writer = of(drawn.record(types) if wraps else drawn.optional(drawn.of(types[0][1], 3)))
        writers[schema_id] = writer
        for turn in range(24):
            data = avro_values.value(writer, chance)
            data = avro_values.broken(data, chance) if turn % 3 == 0 else data
            records.append(framed(schema_id, data))
            wanted.append(expected(data, writer, columns, wraps=wraps))
    found = read(spark, records, columns, programs_of(writers, columns, wraps=wraps))
    for record, one, other in zip(records, found, wanted, strict=True):
        assert shown(one) == shown(other), (record.hex(), writers[record[4]], columns)
    assert 0.2 < sum(each == BAD for each in wanted) / len(wanted) < 0.9


NEXT = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "R"]}],
}
LISTED = {
    "type": "record",
    "name": "R",
    "fields": [
        {
            "name": "v",
            "type": {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}},
        }
    ],
}
ITEMS = "V ARRAY<STRUCT<`X` INTEGER>>"


def symbols(symbol: str) -> dict[str, Any]:
    """An array of enums."""
    items = {"type": "enum", "name": "E", "symbols": [symbol]}
    of_array = {"type": "array", "items": items}
    return {"type": "record", "name": "R", "fields": [{"name": "v", "type": of_array}]}


@pytest.mark.parametrize(
    ("schema", "column", "data", "why"),
    [
        (LISTED, ITEMS, number(2**62) + b"\0", "a record of ten bytes, a long array"),
        (LISTED, ITEMS, number(-(2**63)) + b"\0\0", "whose length has no positive"),
        (LISTED, "W INTEGER", number(2**62) + b"\0", "passed over"),
        (NEXT, "V INTEGER", b"\x02\x02" * 400_000, "deeper than a stack"),
        (symbols("S" * 400_000), "V ARRAY<STRING>", number(6000) + b"\0" * 6001, "2.4 GB of text"),
        (symbols("ü" * 362), "V ARRAY<STRING>", number(100) + b"\0" * 101, "just above the bound"),
        ("string", "V STRING", number(2**31) + b"a", "a text longer than its record"),
        ("string", "V STRING", number(2) + b"\xc3\x28", "no UTF-8"),
        ("bytes", "V BYTES", number(2**40), "bytes longer than its record"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2000, "scale": 1000},
         "V DECIMAL(9, 2)", number(400_000) + b"\x7f" * 400_000, "a million digits"),
    ],
)  # fmt: skip
def test_a_hostile_record_is_bad(
    spark: SparkSession, schema: Any, column: str, data: bytes, why: str
) -> None:
    """Bad in a node, too; and what follows it is read."""
    name, sql = column.split(" ", 1)
    columns, wraps = [Column(name=name, type=sql)], isinstance(schema, dict) and "fields" in schema
    writer = of(schema)
    programs = programs_of({1: writer}, columns, wraps=wraps)
    assert 1 in programs, why
    assert read(spark, [framed(1, data), None], columns, programs) == [BAD, None], why
    assert expected(data, writer, columns, wraps=wraps) == BAD, why


def test_symbols_within_the_bound(spark: SparkSession) -> None:
    """The same number of bytes in a node: `test_few_bytes_make_little_text`."""
    columns = [Column(name="V", type="ARRAY<STRING>")]
    programs = programs_of({1: of(symbols("ü" * 360))}, columns)
    record = framed(1, number(100) + b"\0" * 101)
    assert read(spark, [record], columns, programs) == [[["ü" * 360] * 100]]


def test_a_thread_that_added_no_jar(spark: SparkSession) -> None:
    """As that of a stream, which calls the source of its batches."""
    columns = [Column(name="V", type="BIGINT")]
    programs = programs_of({7: of("int")}, columns, wraps=False)
    java_rows.prepare(spark)
    made: list[Any] = []

    def make() -> None:
        row = java_rows.row_type(columns, "__corrupt")
        made.append(java_rows.rows_of(spark, f.col("v"), row, programs, is_complete=True))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    rows = spark.createDataFrame([(bytearray(framed(7, b"\x02")),)], "v BINARY").select(*made)
    assert [row[0]["V"] for row in rows.collect()] == [1]


def test_records_without_a_program(spark: SparkSession) -> None:
    """An id that the registry does not know, no frame, nothing; and an id that nobody looked up,
    whose record must not be left out."""
    columns = [Column(name="V", type="BIGINT")]
    programs = programs_of({7: of("int")}, columns, wraps=False)
    records = [framed(7, b"\x02"), framed(8, b"\x02"), b"", b"\0\0\0\0", b"\1\0\0\0\7\2", b"{}"]
    records += [framed(-7, b"\x02"), framed(2**31 - 1, b"\x02")]
    assert read(spark, records, columns, programs) == [[1], *[BAD] * 7]
    with pytest.raises(Exception, match="schema 8 has not been looked up"):
        read(spark, records, columns, programs, is_complete=False)
