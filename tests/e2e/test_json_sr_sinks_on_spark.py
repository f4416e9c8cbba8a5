"""Rows that Spark writes in JSON_SR: those of INSERT … VALUES, under our schemas and others'; the
records of streams, tables and copies. Static frames, no Kafka."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, Final

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from tests.e2e.test_avro_sinks_on_spark import KINDS, typed, value_of
from tests.samples import sample_stream, sample_table

from standpipe.data.encoding.framed_values import json_row, unframed
from standpipe.model import Column, Source
from standpipe.pipeline.io import json_sr_rows
from standpipe.pipeline.io.sink import records_of
from standpipe.sql.declarations.published import kept_form, public_form
from standpipe.sql.declarations.registered import own_schema
from standpipe.sql.schemas.registry import RegisteredSchema
from standpipe.sql.types.types import parse_type

pytestmark = pytest.mark.e2e

SCHEMA_ID: Final = 0x01020384
NESTED: Final = (
    "MAP<STRING, ARRAY<DATE>>",
    "STRUCT<`A` MAP<STRING, TIMESTAMP>, `B c` DECIMAL(4, 4)>",
    "ARRAY<STRUCT<`A` INTEGER>>",
)
TEXT: Final[dict[str, Any]] = {"type": "string"}
NUMBER: Final[dict[str, Any]] = {"type": "integer"}
OR_NULL: Final[dict[str, Any]] = {"oneOf": [{"type": "null"}, TEXT]}
#: of another program: NULL is left out in `s`, null in `n`, and refused elsewhere
STRICT: Final = {
    "type": "object",
    "required": ["r"],
    "properties": {
        "r": NUMBER,
        "s": TEXT,
        "n": OR_NULL,
        "list": {"type": "array", "items": TEXT},
        "map": {"additionalProperties": NUMBER},
        "entries": {
            "type": "array",
            "connect.type": "map",
            "items": {"properties": {"key": TEXT, "value": NUMBER}},
        },
        "in": {"properties": {"x": NUMBER, "y": TEXT}, "required": ["x"]},
        "more": TEXT,
    },
}
STRICT_COLUMNS: Final = {
    "R": "INTEGER",
    "S": "STRING",
    "N": "STRING",
    "LIST": "ARRAY<STRING>",
    "MAP": "MAP<STRING, BIGINT>",
    "ENTRIES": "MAP<STRING, BIGINT>",
    "IN": "STRUCT<`X` INTEGER, `Y` STRING>",
}


def source_of(**types: str) -> Source:
    columns = tuple(Column(name=name, type=of) for name, of in types.items())
    return sample_stream(columns=columns, value_format="JSON_SR")


def check(spark: SparkSession, source: Source, text: str, rows: list[list[Any]]) -> int:
    """Compare what Spark writes with what a node writes; how many the schema cannot have."""
    wraps = source.wrap_single_value or len(source.value_columns) != 1
    write = json_row(RegisteredSchema(SCHEMA_ID, "JSON", text), source.value_columns, wraps=wraps)
    named = [(column, f.col(f"`{column.name}`")) for column in source.value_columns]
    made = json_sr_rows.written((SCHEMA_ID, text), named, wraps=wraps).alias("made")
    found = typed(spark, source, rows).select("n", made).sort("n").collect()
    unwritable = 0
    for given, row in zip(rows, found, strict=True):
        try:
            expected = unframed(write(given))
        except ValueError:
            unwritable += 1
            assert row["made"] is None, given
            continue
        assert row["made"] is not None, given
        schema_id, value = unframed(bytes(row["made"]))
        assert schema_id == expected[0]
        assert json.loads(value) == json.loads(expected[1]), given
    return unwritable


def test_rows_are_those_of_inserts_under_our_own_schemas(spark: SparkSession) -> None:
    types = [kind.type for kind in KINDS] + list(NESTED)
    source = source_of(**{f"C{n}": of for n, of in enumerate(types)})
    rows = [[value_of(parse_type(of)) for of in types] for _ in range(100)]
    assert check(spark, source, own_schema(source, "VALUE"), rows) == 0


def test_rows_are_those_of_inserts_under_a_schema_of_others(spark: SparkSession) -> None:
    source = source_of(**STRICT_COLUMNS)
    types = [parse_type(of) for of in STRICT_COLUMNS.values()]
    rows = [[value_of(of) for of in types] for _ in range(200)]
    assert 20 < check(spark, source, json.dumps(STRICT), rows) < 190


@pytest.mark.parametrize(
    ("of", "values"),
    [
        (
            "DOUBLE",
            [0.0, -0.0, 3.0, 1.5, 1e7, 9999999.5, 1e-3, 1e-4, 123456789.125, 1e300, -1e-300],
        ),
        ("DECIMAL(5, 2)", [Decimal("1.00"), Decimal("0.00"), Decimal("-0.05"), Decimal("999.99")]),
        (
            "DECIMAL(38, 20)",
            [Decimal(n).scaleb(-20) for n in (0, 1, -1, 10**8, 10**12, 10**20)],
        ),
        ("STRING", ["", 'a"\\/', "\x00\x1f\n\x7f\u2028ü😀"]),
        ("BIGINT", [0, -(2**63)]),
        ("BYTES", [b"", b"\0\xff"]),
        ("STRUCT<`Ü` DOUBLE, `B` DECIMAL(5, 2)>", [{"Ü": 1e10, "B": Decimal("1.10")}]),
    ],
)
def test_keys_have_the_bytes_of_inserts(spark: SparkSession, of: str, values: list[Any]) -> None:
    """They decide the partition, and what compaction keeps. Under a schema of others, too, where
    Spark writes part by part."""
    source = source_of(V=of)
    column = source.value_columns[0]
    ours = own_schema(replace(source, wrap_single_value=False), "VALUE")
    theirs = json.dumps(json.loads(ours) | {"oneOf": json.loads(ours)["oneOf"][1:]})
    for text in (ours, theirs):
        write = json_row(RegisteredSchema(SCHEMA_ID, "JSON", text), [column], wraps=False)
        made = json_sr_rows.written((SCHEMA_ID, text), [(column, f.col("V"))], wraps=False)
        frame = typed(spark, source, [[value] for value in values])
        found = frame.select("n", made.alias("made")).sort("n").collect()
        assert [bytes(each["made"]) for each in found] == [write([value]) for value in values]


def test_what_is_no_number_of_json_is_null(spark: SparkSession) -> None:
    source = source_of(A="DOUBLE", B="ARRAY<DOUBLE>")
    values = [1.5, -1.5, math.nan, math.inf, -math.inf, None]
    rows: list[list[Any]] = [[value, [value]] for value in values]
    assert check(spark, source, own_schema(source, "VALUE"), rows) == 0
    number = {"type": "number"}
    lists = {"type": "array", "items": {"oneOf": [{"type": "null"}, number]}}
    for required, unwritable in ([], 0), (["a"], 4):
        strict = {"properties": {"a": number, "b": lists}, "required": required}
        assert check(spark, source, json.dumps(strict), rows) == unwritable


def test_the_expression_is_as_long_as_the_schema(spark: SparkSession) -> None:
    def chars(depth: int) -> int:
        of, schema = "INTEGER", NUMBER
        for _ in range(depth):
            of, schema = f"STRUCT<`A` {of}>", {"properties": {"a": schema}}
        source = source_of(S=of, N="INTEGER")
        text = json.dumps({"properties": {"s": schema, "n": NUMBER}})
        named = [(column, f.col(column.name)) for column in source.value_columns]
        return len(str(json_sr_rows.written((1, text), named, wraps=True)))

    # by itself an object is named in its own text and in what tests it for NULL
    assert chars(8) < 6 * chars(4)


def test_a_bare_value(spark: SparkSession) -> None:
    source = replace(source_of(V="MAP<STRING, DATE>"), wrap_single_value=False)
    rows = [[{"a": 1, "b": None}], [{}], [None]]
    assert check(spark, source, own_schema(source, "VALUE"), rows) == 0


COLUMNS: Final = (
    Column(name="K", type="INTEGER", is_key=True),
    Column(name="N", type="INTEGER"),
)
FORMATS: Final[dict[str, Any]] = {"key_format": "JSON_SR", "value_format": "JSON_SR"}
STREAM: Final = sample_stream(columns=COLUMNS, **FORMATS)
TABLE: Final = kept_form(
    sample_table(columns=COLUMNS, query_id="CTAS_T_1", table_id="T_1", partitions=7, **FORMATS)
)


def records(spark: SparkSession, source: Source, value: str | None = None) -> list[Any]:
    public = public_form(source)
    schemas = ((5, own_schema(public, "KEY")), (6, value or own_schema(public, "VALUE")))
    rows = ("1, 2, 9L, true", "2, CAST(NULL AS INT), 9L, true", "3, 4, 9L, false")
    result = spark.sql(" UNION ALL ".join(f"SELECT {row}" for row in rows))
    return records_of(result, source, schemas=schemas).collect()


def test_a_stream(spark: SparkSession) -> None:
    rows = records(spark, STREAM)
    assert [bytes(each["key"]) for each in rows] == [b"\0\0\0\0\5%d" % n for n in (1, 2, 3)]
    assert [each["value"] and bytes(each["value"]) for each in rows] == [
        b'\0\0\0\0\6{"N":2}', b'\0\0\0\0\6{"N":null}', None,
    ]  # fmt: skip
    assert "unwritable" not in rows[0], "our own schema has all rows"


def test_a_table_and_its_copy(spark: SparkSession) -> None:
    alive, _, dead = records(spark, TABLE)
    assert json.loads(alive["value"]) == {"N": 2}, "its own topic is in JSON"
    assert bytes(alive["key"]) == (1).to_bytes(4, "big")
    assert bytes(alive["public_key"]) == b"\0\0\0\0\0051"
    assert bytes(alive["public_value"]) == b'\0\0\0\0\6{"N":2}'
    assert (dead["value"], dead["public_value"]) == (None, None)


def test_a_row_that_a_given_schema_cannot_have(spark: SparkSession) -> None:
    strict = json.dumps({"type": "object", "properties": {"n": NUMBER}, "required": ["n"]})
    rows = records(spark, STREAM, strict)
    assert [each["unwritable"] for each in rows] == [False, True, False]


def test_a_bare_value_that_is_null_is_none(spark: SparkSession) -> None:
    """As in ksqlDB, and as in AVRO."""
    bare = replace(STREAM, wrap_single_value=False)
    rows = records(spark, bare)
    assert [each["value"] and bytes(each["value"]) for each in rows] == [
        b"\0\0\0\0\0062", None, None,
    ]  # fmt: skip
