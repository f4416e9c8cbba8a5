"""Rows as Avro's bytes: under our own schema, and under one of somebody else."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from standpipe.data.encoding import avro_reading, avro_writing
from standpipe.model import Column
from standpipe.sql.schemas import avro, avro_columns
from standpipe.sql.schemas.avro import BadSchema


def schema(*fields: Any) -> avro.AvroType:
    return avro.parse(json.dumps({"type": "record", "name": "R", "fields": list(fields)}))


def field(name: str, of: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": of, **more}


#: type, a strategy of its values, and how a value is read again as a cell
VALUES: list[tuple[str, st.SearchStrategy[Any]]] = [
    ("BOOLEAN", st.booleans()),
    ("INTEGER", st.integers(-(2**31), 2**31 - 1)),
    ("BIGINT", st.integers(-(2**63), 2**63 - 1)),
    ("DOUBLE", st.floats(allow_nan=False)),
    ("STRING", st.text(st.characters(codec="utf-8"))),
    ("DECIMAL(20, 3)", st.decimals(-(10**16), 10**16, places=3)),
    ("DATE", st.integers(-(2**31), 2**31 - 1)),
    ("TIME", st.integers(0, 86_399_999)),
    ("TIMESTAMP", st.integers(-(2**62), 2**62)),
    ("ARRAY<INTEGER>", st.lists(st.none() | st.integers(0, 9), max_size=3)),
    ("MAP<STRING, BIGINT>", st.dictionaries(st.text(max_size=3), st.none() | st.integers(0, 9))),
    ("STRUCT<`X` INTEGER>", st.fixed_dictionaries({"X": st.none() | st.integers(0, 9)})),
]
COLUMNS = [Column(name=f"C{n}", type=of) for n, (of, _) in enumerate(VALUES)]
OWN = avro.parse(avro_columns.schema_text(COLUMNS, avro_columns.VALUE_NAME, wraps=True))
_write = avro_writing.to_bytes(OWN, COLUMNS, wraps=True)
_read = avro_reading.to_cells(OWN, COLUMNS, wraps=True)


@given(st.tuples(*(st.none() | values for _, values in VALUES)))
def test_a_row_is_read_as_it_was_written(row: tuple[Any, ...]) -> None:
    assert _read(_write(row)) == list(row)


def test_bytes_are_read_as_base64() -> None:
    columns = [Column(name="Y", type="BYTES")]
    own = avro.parse(avro_columns.schema_text(columns, "N", wraps=True))
    data = avro_writing.to_bytes(own, columns, wraps=True)([b"\x00\xff"])
    assert data == b"\x02\x04\x00\xff"
    assert avro_reading.to_cells(own, columns, wraps=True)(data) == ["AP8="]


@pytest.mark.parametrize(
    ("number", "data"),
    [
        ("0.00", "0200"),
        ("1.27", "027f"),
        ("1.28", "040080"),
        ("-1.28", "0280"),
        ("-1.29", "04ff7f"),
    ],
)
def test_decimals_take_as_few_bytes_as_javas(number: str, data: str) -> None:
    """BigInteger.toByteArray: one more byte where the sign would be lost."""
    writer = avro.parse('{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}')
    write = avro_writing.to_bytes(writer, [Column(name="N", type="DECIMAL(9, 2)")], wraps=False)
    assert write([Decimal(number)]).hex() == data


def test_somebody_elses_schema() -> None:
    """Names in another case, defaults for fields that no column has, and maps of Avro's own."""
    writer = schema(
        field("id", "long"),
        field("kind", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, default="B"),
        field("note", ["null", "string"], default=None),
        field("size", ["int", "null"], default=7),
        field("tags", {"type": "map", "values": "int"}),
        field("none", {"type": "array", "items": "int"}, default=[]),
    )
    columns = [Column(name="TAGS", type="MAP<STRING, INTEGER>"), Column(name="ID", type="INTEGER")]
    write = avro_writing.to_bytes(writer, columns, wraps=True)
    shown = json.loads(avro_reading.to_text(writer)(write([{"a": 1}, 5])))
    assert shown == {
        "id": 5, "kind": "B", "note": None, "size": 7, "tags": {"a": 1}, "none": []
    }  # fmt: skip
    with pytest.raises(ValueError, match="id is NULL"):
        write([{}, None])


@pytest.mark.parametrize(
    ("writer", "message"),
    [
        (schema(field("other", "int", default=1)), "no field for ID"),
        (schema(field("ID", "long"), field("x", "int")), "field x, which has no default"),
        (schema(field("ID", "string")), "Cannot serialize type BIGINT as string"),
        (schema(field("ID", ["null", "string"])), "any of a union"),
        (schema(field("ID", {"type": "long", "logicalType": "timestamp-micros"})), "micros"),
        (avro.parse('"long"'), "no record"),
    ],
)
def test_a_schema_that_cannot_have_the_columns(writer: avro.AvroType, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        avro_writing.to_bytes(writer, [Column(name="ID", type="BIGINT")], wraps=True)


@pytest.mark.parametrize(
    ("column_type", "writer", "value", "data"),
    [
        ("STRING", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "02"),
        ("STRING", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "C", None),
        ("BYTES", {"type": "fixed", "name": "F", "size": 2}, b"\x00\x01", "0001"),
        ("BYTES", {"type": "fixed", "name": "F", "size": 2}, b"\x00", None),
        ("DOUBLE", "float", 1.5, "0000c03f"),
        ("DOUBLE", "float", 1e300, None),
        ("INTEGER", "int", None, None),
        ("ARRAY<INTEGER>", {"type": "array", "items": "int"}, [1, None], None),
        (
            "DECIMAL(4, 0)",
            {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 4},
            Decimal(128),
            None,
        ),
    ],
)
def test_a_value_that_a_schema_has_or_has_not(
    column_type: str, writer: Any, value: object, data: str | None
) -> None:
    write = avro_writing.to_bytes(
        avro.parse(json.dumps(writer)), [Column(name="V", type=column_type)], wraps=False
    )
    if data is not None:
        assert write([value]).hex() == data
        return
    with pytest.raises(ValueError, match=r"."):
        write([value])
