"""Rows that Spark writes in AVRO: byte for byte those of INSERT … VALUES, under any schema."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NamedTuple, cast

import msgspec
import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.samples import sample_stream

from standpipe.data.encoding import avro_writing
from standpipe.data.encoding.framed_values import framed
from standpipe.model import Column, Source, SparkPlan, WrittenSchema
from standpipe.pipeline.io import type_mapping
from standpipe.pipeline.io.avro import avro_rows
from standpipe.pipeline.run.start import session_functions
from standpipe.sql.declarations import registered
from standpipe.sql.schemas import avro
from standpipe.sql.types.types import SqlType, parse_type

ROWS: Final = 200
SCHEMAS: Final = 12
SCHEMA_ID: Final = 0x01020384
CHANCE: Final = random.Random(28)
TEXTS: Final = ("", "a", "Zürich", "𝄞 € ", "A", "B", "x" * 200, "\x00")
_json: Final = msgspec.json.Encoder(decimal_format="number")


def test_rows_have_the_bytes_of_inserts_under_our_own_schemas(spark: SparkSession) -> None:
    columns = tuple(
        Column(name=f"C{n}", type=str(of)) for n, of in enumerate(map(any_type, range(60)))
    )
    source = sample_stream(columns=columns, value_format="AVRO")
    rows = [[value_of(parse_type(column.type)) for column in columns] for _ in range(ROWS)]
    text = registered.own_schema(source, "VALUE")
    check(spark, source, text, rows)


def test_rows_have_the_bytes_of_inserts_under_any_schema(spark: SparkSession) -> None:
    """Others' schemas: without null branches, with enums, fixed, floats, maps of Avro's own,
    defaults, fields in another order and case. Some rows they cannot have."""
    unwritable = 0
    for number in range(SCHEMAS):
        types = [any_type(CHANCE.randrange(60)) for _ in range(4)]
        columns = tuple(Column(name=f"C{n}", type=str(of)) for n, of in enumerate(types))
        source = sample_stream(columns=columns, value_format="AVRO", schema_ids=(None, SCHEMA_ID))
        rows = [[value_of(of) for of in types] for _ in range(ROWS)]
        text = json.dumps(_Schema(number).record(columns))
        unwritable += check(spark, source, text, rows)
    assert unwritable > SCHEMAS, "the schemas are not all kind"


def test_avros_own_reader_takes_them(spark: SparkSession) -> None:
    """Apache Avro's, in Java: what it reads and writes again has the same bytes."""
    columns = tuple(Column(name=kind.type.split("(")[0], type=kind.type) for kind in KINDS[:10])
    nested = "ARRAY<STRUCT<`A` MAP<STRING, DATE>, `B` DECIMAL(4, 4)>>"
    source = sample_stream(
        columns=(*columns, Column(name="NESTED", type=nested)), value_format="AVRO"
    )
    text = registered.own_schema(source, "VALUE")
    java: Any = cast(Any, spark)._jvm
    schema = getattr(java.org.apache.avro, "Schema$Parser")().parse(text)
    reader = java.org.apache.avro.generic.GenericDatumReader(schema)
    writer = java.org.apache.avro.generic.GenericDatumWriter(schema)
    for _ in range(20):
        row = [value_of(parse_type(column.type)) for column in source.value_columns]
        made = (expected_bytes(source, text, row) or b"")[5:]
        decoder = java.org.apache.avro.io.DecoderFactory.get().binaryDecoder(made, None)
        record = reader.read(None, decoder)
        assert decoder.isEnd()
        output = java.java.io.ByteArrayOutputStream()
        encoder = java.org.apache.avro.io.EncoderFactory.get().binaryEncoder(output, None)
        writer.write(record, encoder)
        encoder.flush()
        assert bytes(output.toByteArray()) == made, record.toString()


@pytest.mark.parametrize("of", ["INTEGER", "STRING", "DECIMAL(9, 2)", "ARRAY<BOOLEAN>"])
def test_bare_values(spark: SparkSession, of: str) -> None:
    source = sample_stream(
        columns=(Column(name="V", type=of),), value_format="AVRO", wrap_single_value=False
    )
    rows = [[value_of(parse_type(of))] for _ in range(ROWS)]
    assert check(spark, source, registered.own_schema(source, "VALUE"), rows) > 0, "NULLs"


# ----------------------------------------------------------------------------------- comparison


def check(spark: SparkSession, source: Source, text: str, rows: list[list[Any]]) -> int:
    """Compare what Spark writes of these rows; how many the schema cannot have."""
    expected = [expected_bytes(source, text, row) for row in rows]
    session = spark.newSession()
    schemas: tuple[WrittenSchema | None, WrittenSchema | None] = (None, (SCHEMA_ID, text))
    plan = replace(PLAN, schemas=schemas)
    session_functions.register_avro(session, avro_rows.writers_of(source, plan))
    frame = typed(session, source, rows)
    named = [(column, f.col(column.name)) for column in source.value_columns]
    found = frame.select("n", avro_rows.written("VALUE", named).alias("made")).collect()
    made = {row["n"]: None if row["made"] is None else bytes(row["made"]) for row in found}
    for number, (row, wanted) in enumerate(zip(rows, expected, strict=True)):
        assert made[number] == wanted, f"{text}\n{row}"
    return expected.count(None)


PLAN: Final = SparkPlan(version=1, inputs=(), sql="", output_mode="append", is_windowed=False)


def expected_bytes(source: Source, text: str, row: list[Any]) -> bytes | None:
    wraps = source.wrap_single_value or len(source.value_columns) != 1
    write = avro_writing.to_bytes(avro.parse(text), source.value_columns, wraps=wraps)
    try:
        return framed(SCHEMA_ID, write(row))
    except ValueError:
        return None


def typed(session: SparkSession, source: Source, rows: list[list[Any]]) -> DataFrame:
    """The rows as a query's result: parsed from JSON, which keeps the order of maps."""
    names = [column.name for column in source.value_columns]
    texts = [
        (n, _json.encode(dict(zip(names, row, strict=True))).decode()) for n, row in enumerate(rows)
    ]
    schema = type_mapping.wire_schema(source.value_columns, any_case=False)
    frame = session.createDataFrame(texts, "n INT, text STRING")
    parsed = frame.select("n", f.from_json("text", schema).alias("row"))
    fields = type_mapping.fields_of(f.col("row"), source.value_columns, any_case=False)
    return parsed.select("n", *(field.alias(name) for name, field in fields.items()))


# --------------------------------------------------------------------------- types and values


class _Kind(NamedTuple):
    type: str
    value: Callable[[], Any]


KINDS: Final = (
    _Kind("BOOLEAN", lambda: CHANCE.random() < 0.5),
    _Kind("INTEGER", lambda: CHANCE.choice((0, -1, 2**31 - 1, -(2**31), CHANCE.getrandbits(20)))),
    _Kind("BIGINT", lambda: CHANCE.choice((0, 64, -(2**63), 2**63 - 1, CHANCE.getrandbits(40)))),
    _Kind("DOUBLE", lambda: CHANCE.choice((0.0, -0.0, 1e300, 1.5, CHANCE.random()))),
    _Kind("STRING", lambda: CHANCE.choice(TEXTS)),
    _Kind("BYTES", lambda: CHANCE.randbytes(CHANCE.choice((0, 2, 4, 70)))),
    _Kind("DATE", lambda: CHANCE.randrange(-100_000, 100_000)),
    _Kind("TIME", lambda: CHANCE.randrange(86_400_000)),
    _Kind("TIMESTAMP", lambda: CHANCE.randrange(-(10**12), 10**13)),
    _Kind("DECIMAL(9, 2)", lambda: Decimal(CHANCE.randrange(-(10**9) + 1, 10**9)).scaleb(-2)),
    _Kind("DECIMAL(38, 0)", lambda: Decimal(CHANCE.randrange(-(10**38) + 1, 10**38))),
    _Kind("DECIMAL(4, 4)", lambda: Decimal(CHANCE.choice((0, 1, -1, 9999, -9999, 128))).scaleb(-4)),
)
_VALUES: Final = {kind.type: kind.value for kind in KINDS}


def any_type(number: int) -> SqlType:
    """Each plain type, then nested ones of growing depth."""
    if number < len(KINDS):
        return parse_type(KINDS[number].type)
    inner = any_type(CHANCE.randrange(number - len(KINDS) + 1))
    match number % 3:
        case 0:
            return parse_type(f"ARRAY<{inner}>")
        case 1:
            return parse_type(f"MAP<STRING, {inner}>")
        case _:
            return parse_type(f"STRUCT<`A` {inner}, `B` {any_type(CHANCE.randrange(9))}>")


def value_of(of: SqlType) -> Any:
    """A value as in a topic; often NULL."""
    if CHANCE.random() < 0.12:
        return None
    match of.base:
        case "ARRAY":
            return [value_of(of.arguments[0]) for _ in range(CHANCE.randrange(4))]
        case "MAP":
            keys = [f"k{CHANCE.randrange(100)}" for _ in range(CHANCE.randrange(9))]
            return {key: value_of(of.arguments[1]) for key in keys}
        case "STRUCT":
            return {
                name: value_of(part)
                for name, part in zip(of.field_names, of.arguments, strict=True)
            }
        case _:
            return _VALUES[str(of)]()


class _Schema:
    """A schema of somebody else for columns, by chance."""

    def __init__(self, number: int) -> None:
        self._chance = random.Random(number)
        self._names = 0

    def record(self, columns: tuple[Column, ...]) -> dict[str, Any]:
        fields = [(column.name, parse_type(column.type)) for column in columns]
        return self._record(fields)

    def _name(self) -> str:
        self._names += 1
        return f"N{self._names}"

    def _record(self, fields: list[tuple[str, SqlType]]) -> dict[str, Any]:
        made: list[dict[str, Any]] = [
            {"name": self._chance.choice((name, name.lower())), "type": self._of(of)}
            for name, of in fields
        ]
        if self._chance.random() < 0.5:
            made.append({"name": "more", "type": ["null", "string"], "default": None})
        if self._chance.random() < 0.5:
            made.append({"name": "size", "type": "int", "default": 7})
        self._chance.shuffle(made)
        return {"type": "record", "name": self._name(), "fields": made}

    def _of(self, of: SqlType) -> Any:
        made = self._plain(of)
        return self._chance.choice((made, ["null", made], ["null", made], [made, "null"]))

    def _plain(self, of: SqlType) -> Any:
        match of.base:
            case "ARRAY":
                return {"type": "array", "items": self._of(of.arguments[0])}
            case "MAP" if self._chance.random() < 0.5:
                return {"type": "map", "values": self._of(of.arguments[1])}
            case "MAP":
                entry = self._record([("value", of.arguments[1])])
                entry["fields"] = [
                    {"name": "key", "type": "string"},
                    *(each for each in entry["fields"] if each["name"] == "value"),
                ]
                if len(entry["fields"]) == 1:
                    entry["fields"].append({"name": "value", "type": self._of(of.arguments[1])})
                entry["connect.internal.type"] = "MapEntry"
                return {"type": "array", "items": entry}
            case "STRUCT":
                return self._record(list(zip(of.field_names, of.arguments, strict=True)))
            case "DECIMAL":
                size = {"size": self._chance.choice((2, 17)), "name": self._name()}
                kind = self._chance.choice(({"type": "bytes"}, {"type": "fixed", **size}))
                sizes = {"precision": of.precision, "scale": of.scale}
                return {**kind, "logicalType": "decimal", **sizes}
            case base:
                return self._chance.choice(self._scalars(base))

    def _scalars(self, base: str) -> list[Any]:
        found: dict[str, list[Any]] = {
            "BOOLEAN": ["boolean"],
            "INTEGER": ["int", "long"],
            "BIGINT": ["long"],
            "DOUBLE": ["double", "float"],
            "STRING": ["string", {"type": "enum", "name": self._name(), "symbols": ["A", "B"]}],
            "BYTES": ["bytes", {"type": "fixed", "name": self._name(), "size": 2}],
            "DATE": ["int", {"type": "int", "logicalType": "date"}],
            "TIME": ["int", {"type": "int", "logicalType": "time-millis"}],
            "TIMESTAMP": ["long", {"type": "long", "logicalType": "timestamp-millis"}],
        }
        return found[base]
