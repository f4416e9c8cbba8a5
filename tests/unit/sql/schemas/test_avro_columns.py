"""Avro's types as columns, and columns as the schema that ksqlDB would register."""

from __future__ import annotations

import json
from typing import Any

import pytest

from standpipe.model import Column
from standpipe.sql.schemas import avro, avro_columns
from standpipe.sql.schemas.avro import BadSchema

ENTRY = {
    "type": "record",
    "name": "Entry",
    "connect.internal.type": "MapEntry",
    "fields": [{"name": "key", "type": "long"}, {"name": "value", "type": ["null", "int"]}],
}


def row(**fields: Any) -> avro.AvroType:
    named = [{"name": name, "type": of} for name, of in fields.items()]
    return avro.parse(json.dumps({"type": "record", "name": "R", "fields": named}))


def columns(of: avro.AvroType, *, keeps_case: bool = False) -> dict[str, str]:
    found = avro_columns.inferred(of, is_key=False, keeps_case=keeps_case, unwraps=False)
    return {column.name: column.type for column in found}


@pytest.mark.parametrize(
    ("avro_type", "sql"),
    [
        ("boolean", "BOOLEAN"),
        ("int", "INTEGER"),
        ("long", "BIGINT"),
        ("float", "DOUBLE"),
        ("double", "DOUBLE"),
        ("string", "STRING"),
        ("bytes", "BYTES"),
        ({"type": "fixed", "name": "F", "size": 4}, "BYTES"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        ({"type": "int", "logicalType": "time-millis"}, "TIME"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "BIGINT"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "DECIMAL(9, 2)",
        ),
        (["null", "int"], "INTEGER"),
        (["int", "null"], "INTEGER"),
        (["int"], "INTEGER"),
        (["null", "int", "string"], "STRUCT<`INT` INTEGER, `STRING` STRING>"),
        ({"type": "array", "items": ["null", "int"]}, "ARRAY<INTEGER>"),
        ({"type": "map", "values": "double"}, "MAP<STRING, DOUBLE>"),
        ({"type": "array", "items": ENTRY}, "MAP<STRING, INTEGER>"),
        (
            {
                "type": "record",
                "name": "S",
                "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "null"}],
            },
            "STRUCT<`X` INTEGER>",
        ),
    ],
)
def test_types(avro_type: Any, sql: str) -> None:
    assert columns(row(c=avro_type)) == {"C": sql}


def test_names_keep_their_case_only_under_an_id() -> None:
    inner = {"type": "record", "name": "S", "fields": [{"name": "xY", "type": "int"}]}
    assert columns(row(aB=inner)) == {"AB": "STRUCT<`XY` INTEGER>"}
    assert columns(row(aB=inner), keeps_case=True) == {"aB": "STRUCT<`xY` INTEGER>"}


@pytest.mark.parametrize(
    "left_out",
    [
        "null",
        ["null", "R"],
        {"type": "array", "items": "R"},
        {"type": "bytes", "logicalType": "decimal", "precision": 39},
        {"type": "record", "name": "Empty", "fields": []},
        {"type": "array", "items": {**ENTRY, "fields": [
            {"name": "key", "type": "double"}, {"name": "value", "type": "int"}]}},
    ],
)  # fmt: skip
def test_a_field_that_sql_has_no_type_for_is_left_out(left_out: Any) -> None:
    assert columns(row(a="int", b=left_out)) == {"A": "INTEGER"}


def test_a_schema_that_is_no_record() -> None:
    plain = avro.parse('"long"')
    with pytest.raises(BadSchema, match="WRAP_SINGLE_VALUE=false"):
        avro_columns.inferred(plain, is_key=False, keeps_case=False, unwraps=False)
    value = avro_columns.inferred(plain, is_key=False, keeps_case=False, unwraps=True)
    assert value == [Column(name="ROWVAL", type="BIGINT")]
    key = avro_columns.inferred(row(a="int"), is_key=True, keeps_case=False, unwraps=True)
    assert key == [Column(name="ROWKEY", type="STRUCT<`A` INTEGER>", is_key=True)]


@pytest.mark.parametrize(("fields", "unwraps"), [({}, False), ({"a": "null"}, False), ({}, True)])
def test_no_column_at_all(fields: dict[str, Any], unwraps: bool) -> None:
    with pytest.raises(BadSchema, match=r"does not include any columns|root of schema"):
        avro_columns.inferred(row(**fields), is_key=False, keeps_case=False, unwraps=unwraps)


def doubled(levels: int) -> avro.AvroType:
    """A record with two fields of a record with two fields of …"""
    last: Any = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}
    fields = [{"name": "r0", "type": last}]
    for level in range(1, levels):
        twice = [{"name": name, "type": f"R{level - 1}"} for name in ("a", "b")]
        made = {"type": "record", "name": f"R{level}", "fields": twice}
        fields.append({"name": f"r{level}", "type": made})
    return avro.parse(json.dumps({"type": "record", "name": "R", "fields": fields}))


@pytest.mark.parametrize("leaf", ["int", "null"])
def test_a_small_schema_that_stands_for_many_types(leaf: str) -> None:
    """Types that SQL has, and types that are left out, which never make a long text."""
    assert list(columns(doubled(5))) == ["R0", "R1", "R2", "R3", "R4"]
    many = doubled(40)
    many.fields[0].of.fields[0].of.kind = leaf
    with pytest.raises(BadSchema, match=r"more than 10000 types|more than 32768 characters"):
        columns(many)


ALL = [
    Column(name="B", type="BOOLEAN"),
    Column(name="I", type="INTEGER"),
    Column(name="L", type="BIGINT"),
    Column(name="D", type="DOUBLE"),
    Column(name="S", type="STRING"),
    Column(name="Y", type="BYTES"),
    Column(name="N", type="DECIMAL(9, 2)"),
    Column(name="DD", type="DATE"),
    Column(name="T", type="TIME"),
    Column(name="TS", type="TIMESTAMP"),
    Column(name="A", type="ARRAY<ARRAY<INTEGER>>"),
    Column(name="M", type="MAP<STRING, STRUCT<`Q` INTEGER>>"),
    Column(name="R", type="STRUCT<`Q` STRUCT<`Z` STRING>>"),
]


def test_our_schema_means_the_same_columns() -> None:
    text = avro_columns.schema_text(ALL, avro_columns.VALUE_NAME, wraps=True)
    found = avro_columns.inferred(avro.parse(text), is_key=False, keeps_case=True, unwraps=False)
    assert found == ALL


def test_our_schema_is_ksqldbs() -> None:
    (schema,) = [json.loads(avro_columns.schema_text(ALL[-2:], "x.y.Name", wraps=True))]
    assert (schema["namespace"], schema["name"]) == ("x.y", "Name")
    map_, struct = schema["fields"]
    assert map_["default"] is None
    entry = map_["type"][1]["items"]
    assert (entry["name"], entry["connect.internal.type"]) == ("Name_M", "MapEntry")
    assert entry["fields"][1]["type"][1]["name"] == "Name_M_MapValue"
    assert struct["type"][1]["name"] == "Name_R"
    assert struct["type"][1]["fields"][0]["type"][1]["name"] == "Name_R_Q"
    bare = [Column(name="K", type="BIGINT", is_key=True)]
    assert avro_columns.schema_text(bare, "x.K", wraps=False) == '"long"'


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (Column(name="a b", type="INTEGER"), "Illegal character in: a b"),
        (Column(name="1R", type="INTEGER"), "Illegal initial character: 1R"),
        (Column(name="R", type="STRUCT<`x-y` INTEGER>"), "Illegal character in: x-y"),
        (Column(name="M", type="MAP<INTEGER, INTEGER>"), "STRING keys"),
    ],
)
def test_no_schema(column: Column, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        avro_columns.schema_text([column], "N", wraps=True)


def test_two_records_of_one_name() -> None:
    clash = [
        Column(name="A", type="STRUCT<`B` STRUCT<`X` INTEGER>>"),
        Column(name="A_B", type="STRUCT<`X` INTEGER>"),
    ]
    with pytest.raises(BadSchema, match="Can't redefine: N_A_B"):
        avro_columns.schema_text(clash, "N", wraps=True)


def test_key_name() -> None:
    assert avro_columns.key_name("MY_STREAM2").endswith(".MyStream2Key")
