"""The program that says how a row is written under a schema. What it writes: test_avro_writing.py
and, in Spark, test_avro_sinks_on_spark.py."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest

from standpipe.model import Column
from standpipe.sql.schemas import avro, avro_write_program
from standpipe.sql.schemas.avro import BadSchema
from standpipe.sql.schemas.avro_write_program import (
    WriteStep,
    int_bytes,
    long_bytes,
    program,
    to_text,
)


def record(*fields: tuple[str, Any], **more: Any) -> avro.AvroType:
    named = [{"name": name, "type": of, **more} for name, of in fields]
    return avro.parse(json.dumps({"type": "record", "name": "R", "fields": named}))


def only(column_type: str, writer: Any) -> WriteStep:
    return program(
        avro.parse(json.dumps(writer)), [Column(name="V", type=column_type)], wraps=False
    )


def test_a_record_takes_its_values_by_their_places() -> None:
    writer = record(("b", "int"), ("x", ["null", "int"]), ("A", "string"), default=None)
    columns = [Column(name="A", type="STRING"), Column(name="B", type="INTEGER")]
    made = program(writer, columns, wraps=True)
    assert made == WriteStep(
        "RECORD",
        "",
        (WriteStep("INT", "->b"), WriteStep("CONSTANT", data=b"\x00"), WriteStep("STRING", "->A")),
        (1, -1, 0),
        ("A", "B"),
    )
    assert msgspec.json.decode(to_text(made), type=WriteStep) == made


@pytest.mark.parametrize(
    ("column_type", "writer", "step"),
    [
        ("BIGINT", ["long", "null"], WriteStep("OPTIONAL", "V", (WriteStep("LONG", "V"),), (1, 0))),
        ("DOUBLE", "float", WriteStep("FLOAT", "V")),
        (
            "STRING",
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            WriteStep("ENUM", "V", names=("A", "B")),
        ),
        ("BYTES", {"type": "fixed", "name": "F", "size": 4}, WriteStep("FIXED", "V", numbers=(4,))),
        (
            "DECIMAL(4, 1)",
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            WriteStep("DECIMAL", "V", numbers=(9, 2, -1)),
        ),
        (
            "ARRAY<DATE>",
            {"type": "array", "items": {"type": "int", "logicalType": "date"}},
            WriteStep("ARRAY", "V", (WriteStep("INT", "V->ARRAY"),)),
        ),
        (
            "MAP<STRING, BOOLEAN>",
            {"type": "map", "values": "boolean"},
            WriteStep("MAP", "V", (WriteStep("BOOLEAN", "V->MAP_VAL"),)),
        ),
    ],
)
def test_what_a_type_becomes(column_type: str, writer: Any, step: WriteStep) -> None:
    assert only(column_type, writer) == step


def test_a_map_as_an_array_of_entries() -> None:
    entry = {
        "type": "record",
        "name": "E",
        "connect.internal.type": "MapEntry",
        "fields": [{"name": "value", "type": "int"}, {"name": "key", "type": "string"}],
    }
    made = only("MAP<STRING, INTEGER>", {"type": "array", "items": entry})
    assert (made.op, made.parts[0].numbers) == ("ENTRIES", (1, 0)), "in the order of the schema"


@pytest.mark.parametrize(
    ("column_type", "writer"),
    [
        ("BIGINT", "int"),
        ("STRING", "bytes"),
        ("DATE", {"type": "int", "logicalType": "time-millis"}),
    ],
)
def test_what_no_value_of_a_type_can_be(column_type: str, writer: Any) -> None:
    with pytest.raises(BadSchema, match="Cannot serialize type"):
        only(column_type, writer)


@pytest.mark.parametrize(
    ("number", "data"),
    [(0, "00"), (-1, "01"), (63, "7e"), (64, "8001"), (-(2**63), "ff" * 9 + "01")],
)
def test_numbers_take_as_few_bytes_as_they_need(number: int, data: str) -> None:
    assert long_bytes(number).hex() == data


@pytest.mark.parametrize(("write", "number"), [(long_bytes, 2**63), (int_bytes, -(2**31) - 1)])
def test_numbers_beyond_their_bits(write: Any, number: int) -> None:
    with pytest.raises(ValueError, match="bits"):
        write(number)


def test_branches_that_are_tried_in_vain_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level tries two records, which both fail at the innermost type: twice as many steps."""
    monkeypatch.setattr(avro_write_program, "STEPS_MAX", 1000)
    of, column_type = cast(Any, "string"), "INTEGER"
    for level in range(12):
        inner = {"type": "record", "name": f"A{level}", "fields": [{"name": "A", "type": of}]}
        again = [{"name": "A", "type": of if level == 0 else [f"A{level - 1}", f"B{level - 1}"]}]
        of = [inner, {"type": "record", "name": f"B{level}", "fields": again}]
        column_type = f"STRUCT<`A` {column_type}>"
    with pytest.raises(BadSchema, match="it stands for more than 1000 types"):
        program(record(("V", of)), [Column(name="V", type=column_type)], wraps=True)


def test_a_short_schema_may_stand_for_more_types_than_memory_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A named record has its fields wherever it is used."""
    monkeypatch.setattr(avro_write_program, "STEPS_MAX", 1000)
    fillers = [{"name": f"f{n}", "type": "int", "default": 0} for n in range(300)]
    inner = {"type": "record", "name": "I", "fields": [{"name": "A", "type": "int"}, *fillers]}
    names = ("V0", "V1", "V2", "V3")
    types: list[Any] = [inner, "I", "I", "I"]
    writer = record(*zip(names, types, strict=True))
    columns = [Column(name=name, type="STRUCT<`A` INTEGER>") for name in names]
    assert program(record(("V0", inner)), columns[:1], wraps=True)
    with pytest.raises(BadSchema, match="it stands for more than 1000 types"):
        program(writer, columns, wraps=True)
