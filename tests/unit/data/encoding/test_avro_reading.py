"""Avro's bytes as another implementation writes them, and bytes that are none."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from standpipe.data.encoding import avro_reading
from standpipe.model import Column
from standpipe.sql.schemas import avro
from standpipe.sql.schemas.avro import BadSchema

#: schemas and values drawn at random, as fastavro 1.13 writes them: its own value as text
GOLDEN = json.loads((Path(__file__).parent / "avro_golden.json").read_text())
UNREADABLE = (ValueError, OverflowError, RecursionError)


def columns(*pairs: tuple[str, str]) -> list[Column]:
    return [Column(name=name, type=of) for name, of in pairs]


def schema(*fields: tuple[str, Any]) -> avro.AvroType:
    named = [{"name": name, "type": of} for name, of in fields]
    return avro.parse(json.dumps({"type": "record", "name": "R", "fields": named}))


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(case["hex"])[:16])
def test_golden(case: dict[str, Any]) -> None:
    show = avro_reading.to_text(avro.parse(json.dumps(case["schema"])))
    data = bytes.fromhex(case["hex"])
    assert show(data) == case["value"]
    for size in range(len(data)):
        with pytest.raises(UNREADABLE):
            show(data[:size])
    with pytest.raises(ValueError, match="left over"):
        show(data + b"\0")


def test_fields_are_matched_by_name() -> None:
    """Two of the writer's fields have one name in upper case: the exact one counts."""
    writer = schema(("old", "string"), ("id", "int"), ("Id", "int"), ("note", ["null", "string"]))
    read = avro_reading.to_cells(
        writer,
        columns(("Id", "BIGINT"), ("NOTE", "STRING"), ("NEW", "INTEGER")),
        wraps=True,
    )
    data = b"\x02x" + b"\x02" + b"\x04" + b"\x02\x04hi"
    assert read(data) == [2, "hi", None]


@pytest.mark.parametrize(
    ("avro_type", "sql", "data", "cell"),
    [
        ("int", "BIGINT", "03", -2),
        ("float", "DOUBLE", "0000c03f", 1.5),
        ("int", "STRING", "04", "2"),
        ("double", "STRING", "0000000000002440", "10.0"),
        ("boolean", "STRING", "01", "true"),
        ("bytes", "BYTES", "0400ff", "AP8="),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "STRING", "02", "B"),
        ({"type": "int", "logicalType": "date"}, "DATE", "04", 2),
        ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP", "9e1f", 1),
        ({"type": "long", "logicalType": "timestamp-micros"}, "BIGINT", "9e1f", 1999),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
            "DECIMAL(9, 2)",
            "0404d3",
            Decimal("1.24"),  # 1.235, rounded half up
        ),
        (["null", "int", "string"], "STRUCT<`INT` INTEGER, `STRING` STRING>", "040278",
         {"INT": None, "STRING": "x"}),
        (["null", "int", "string"], "STRUCT<`INT` INTEGER, `STRING` STRING>", "00", None),
        ({"type": "map", "values": "int"}, "MAP<STRING, BIGINT>", "0202610200", {"a": 1}),
        ({"type": "array", "items": "int"}, "ARRAY<INTEGER>", "0304" + "0204" + "00", [1, 2]),
    ],
)  # fmt: skip
def test_conversions(avro_type: Any, sql: str, data: str, cell: Any) -> None:
    """The array is written in a block that gives its size, as Java's BlockingBinaryEncoder does."""
    read = avro_reading.to_cells(schema(("C", avro_type)), columns(("C", sql)), wraps=True)
    assert read(bytes.fromhex(data)) == [cell]


@pytest.mark.parametrize(
    ("avro_type", "sql"),
    [
        ("string", "INTEGER"),
        ("long", "INTEGER"),
        ("bytes", "STRING"),
        ("bytes", "DECIMAL(9, 2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "BYTES"),
        ("int", "ARRAY<INTEGER>"),
        ({"type": "map", "values": "string"}, "MAP<STRING, INTEGER>"),
        (["null", "string"], "BIGINT"),
    ],
)
def test_a_type_that_does_not_fit_its_column(avro_type: Any, sql: str) -> None:
    with pytest.raises(BadSchema, match="Cannot deserialize type"):
        avro_reading.to_cells(schema(("C", avro_type)), columns(("C", sql)), wraps=True)


def test_a_bare_value() -> None:
    read = avro_reading.to_cells(avro.parse('"string"'), columns(("C", "STRING")), wraps=False)
    assert read(b"\x04hi") == ["hi"]
    with pytest.raises(BadSchema, match="no record"):
        avro_reading.to_cells(avro.parse('"string"'), columns(("C", "STRING")), wraps=True)


@pytest.mark.parametrize(
    ("avro_type", "data", "message"),
    [
        ("long", "ff" * 10 + "01", "64 bits"),
        ("long", "ffffffffffffffffff7f", "64 bits"),
        ("int", "80808080808001", "32 bits"),
        ("boolean", "02", "no boolean"),
        ("string", "01", "announced"),
        ("string", "02ff", "utf-8"),
        (["null", "int"], "04", "no branch"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "02", "no symbol"),
        ({"type": "array", "items": "null"}, "feffffffffffffffff01", "more items"),
    ],
)
def test_bytes_that_are_none(avro_type: Any, data: str, message: str) -> None:
    """The last array would be of 2^63 - 1 nulls, which take no byte."""
    with pytest.raises(UNREADABLE, match=message):
        avro_reading.to_text(schema(("C", avro_type)))(bytes.fromhex(data))


def test_a_decimal_is_rounded_once() -> None:
    """0.5, 40 zeros and a 1 are above half: no digit is cut before."""
    writer = {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 42}
    read = avro_reading.to_cells(schema(("C", writer)), columns(("C", "DECIMAL(3, 0)")), wraps=True)
    digits = (5 * 10**41 + 1).to_bytes(18, "big")
    assert read(bytes([2 * len(digits)]) + digits) == [Decimal(1)]
    with pytest.raises(ValueError, match="more than 500 bytes"):
        read(b"\xea\x07" + b"\0" * 501)
    with pytest.raises(ValueError, match="does not fit"):
        read(bytes([38]) + (999 * 10**42 + 5 * 10**41).to_bytes(19, "big"))


def test_a_time_beyond_32_bits() -> None:
    of = {"type": "long", "logicalType": "time-micros"}
    read = avro_reading.to_cells(schema(("C", of)), columns(("C", "TIME")), wraps=True)
    assert read(bytes.fromhex("ce0f")) == [0]  # 999 µs
    assert read(bytes.fromhex("cd0f")) == [-1]  # -999 µs: rounded down
    with pytest.raises(ValueError, match="32 bits"):
        read(bytes.fromhex("ffffffffffffffffff01"))


def test_few_bytes_make_few_fields() -> None:
    """An item of one byte would make a struct of 1,000 fields, of which the writer has one."""
    inner = {"type": "record", "name": "S", "fields": [{"name": "F0", "type": "int"}]}
    fields = ", ".join(f"`F{n}` INTEGER" for n in range(1000))
    read = avro_reading.to_cells(
        schema(("C", {"type": "array", "items": inner})),
        columns(("C", f"ARRAY<STRUCT<{fields}>>")),
        wraps=True,
    )
    assert len(read(bytes([2 * 60]) + b"\0" * 60 + b"\0")[0]) == 60
    with pytest.raises(ValueError, match="more fields"):
        read(b"\x80\x7d" + b"\0" * 8000 + b"\0")


def items(count: int) -> bytes:
    """An array with so many items of the byte 0, fewer than 2**13."""
    number = 2 * count
    return bytes([number & 0x7F | 0x80, number >> 7]) + b"\0" * count + b"\0"


def test_few_bytes_make_little_text() -> None:
    """A symbol of 400,000 characters would be there for each byte. 100 bytes may have 64 times as
    many bytes of symbols, and 64 KB more; a symbol that no column has is not counted."""
    kind = {"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["S" * 400_000]}}
    (column,) = columns(("C", "ARRAY<STRING>"))
    read = avro_reading.to_cells(schema(("C", kind)), [column], wraps=True)
    passed = avro_reading.to_cells(schema(("D", kind)), [column], wraps=True)
    for count in (1, 6000):
        with pytest.raises(ValueError, match="more text of its schema"):
            read(items(count))
        assert passed(items(count)) == [None]
    kind["items"]["symbols"] = ["ü" * 360]  # 720 bytes
    read = avro_reading.to_cells(schema(("C", kind)), [column], wraps=True)
    assert read(items(100)) == [["ü" * 360] * 100]
    kind["items"]["symbols"] = ["ü" * 362]
    read = avro_reading.to_cells(schema(("C", kind)), [column], wraps=True)
    with pytest.raises(ValueError, match="more text of its schema"):
        read(items(100))


def test_names_that_are_shown_are_text_of_the_schema() -> None:
    """A column's own names are not: a client has written them, and rows of Spark have none."""
    name = "N" * 100_000
    inner = {"type": "record", "name": "S", "fields": [{"name": name, "type": "int"}]}
    writer = schema(("C", {"type": "array", "items": inner}))
    with pytest.raises(ValueError, match="more text of its schema"):
        avro_reading.to_text(writer)(items(100))
    read = avro_reading.to_cells(
        writer, columns(("C", f"ARRAY<STRUCT<`{name}` INTEGER>>")), wraps=True
    )
    assert read(items(100)) == [[{name: 0}] * 100]


def test_a_value_nested_without_end() -> None:
    show = avro_reading.to_text(schema(("next", ["null", "R"])))
    assert show(b"\x02\x00") == '{"next": {"next": null}}'
    assert show(b"\x02" * 99 + b"\x00")
    for deep in (100, 100_000):
        with pytest.raises(ValueError, match="nested deeper"):
            show(b"\x02" * deep + b"\x00")
