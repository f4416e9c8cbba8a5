"""JSON Schema's types as columns, and columns as the schema that ksqlDB would register."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.model import Column
from standpipe.sql.schemas import json_columns, json_schema
from standpipe.sql.schemas.json_schema import JsonProperty, JsonType
from standpipe.sql.schemas.registry import BadSchema
from standpipe.sql.types import types
from standpipe.sql.types.types import SqlType

LOGICAL = "org.apache.kafka.connect.data."
ENTRY = {"type": "object", "properties": {"key": {"type": "integer"}, "value": {"type": "string"}}}
NONE: dict[str, Any] = {"type": "null"}


def columns(schema: Any, *, keeps_case: bool = False, unwraps: bool = False) -> dict[str, str]:
    of = json_schema.parse(json.dumps(schema))
    found = json_columns.inferred(of, is_key=False, keeps_case=keeps_case, unwraps=unwraps)
    return {column.name: column.type for column in found}


def row(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def decimal(**parameters: str) -> dict[str, Any]:
    made = {"type": "number", "connect.type": "bytes", "title": f"{LOGICAL}Decimal"}
    return {**made, "connect.parameters": parameters}


@pytest.mark.parametrize(
    ("schema", "sql"),
    [
        ({"type": "boolean"}, "BOOLEAN"),
        ({"type": "integer"}, "BIGINT"),
        ({"type": "integer", "connect.type": "int8"}, "INTEGER"),
        ({"type": "integer", "connect.type": "int16"}, "INTEGER"),
        ({"type": "number", "connect.type": "int32"}, "INTEGER"),
        ({"type": "integer", "connect.type": "int64"}, "BIGINT"),
        ({"type": "number"}, "DOUBLE"),
        ({"type": "number", "connect.type": "float32"}, "DOUBLE"),
        ({"type": "string", "format": "date-time"}, "STRING"),
        ({"type": "string", "connect.type": "bytes"}, "BYTES"),
        (decimal(scale="2", **{"connect.decimal.precision": "6"}), "DECIMAL(6, 2)"),
        (decimal(**{"connect.decimal.precision": "6"}), "DECIMAL(6, 0)"),
        ({"type": "integer", "connect.type": "int32", "title": f"{LOGICAL}Date"}, "DATE"),
        ({"type": "integer", "connect.type": "int32", "title": f"{LOGICAL}Time"}, "TIME"),
        ({"type": "integer", "title": f"{LOGICAL}Timestamp"}, "TIMESTAMP"),
        ({"type": "integer", "title": f"{LOGICAL}Date"}, "BIGINT"),
        ({"type": "string", "title": f"{LOGICAL}Date"}, "STRING"),
        ({"oneOf": [NONE, {"type": "string"}]}, "STRING"),
        ({"anyOf": [{"type": "string"}, NONE]}, "STRING"),
        ({"type": ["integer", "null"]}, "BIGINT"),
        ({"type": "array", "items": {"type": "string"}}, "ARRAY<STRING>"),
        ({"type": "array", "items": ENTRY}, "ARRAY<STRUCT<`KEY` BIGINT, `VALUE` STRING>>"),
        ({"type": "array", "connect.type": "map", "items": ENTRY}, "MAP<STRING, STRING>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "MAP<STRING, DOUBLE>"),
        (row(x={"type": "string"}, y={}), "STRUCT<`X` STRING>"),
        ({"oneOf": [NONE, {"oneOf": [{"type": "string"}]}]}, "STRING"),
        ({"type": ["array", "null"], "items": {"type": "string"}}, "ARRAY<STRING>"),
    ],
)
def test_types(schema: Any, sql: str) -> None:
    assert columns(row(c=schema)) == {"C": sql}


@pytest.mark.parametrize(
    "left_out",
    [
        {},
        True,
        NONE,
        {"oneOf": [NONE, NONE]},
        {"oneOf": [NONE, {"type": "integer"}, {"type": "string"}]},
        {"anyOf": [row(x={"type": "string"}), row(y={"type": "string"})]},
        {"type": ["integer", "string", "null"]},
        {"oneOf": [NONE, {"oneOf": [{"type": "integer"}, {"type": "string"}]}]},
        {"items": {"type": ["integer", "string"]}},
        row(x={"type": ["integer", "string"]}),
        {"$ref": "#"},
        {"type": "array", "items": {"$ref": "#"}},
        {"oneOf": [NONE, {"$ref": "#"}]},
        decimal(),
        decimal(**{"connect.decimal.precision": "39"}),
        decimal(scale="3", **{"connect.decimal.precision": "2"}),
        row(),
        {"type": "array", "connect.type": "map", "items": row(key={"type": "number"}, value=NONE)},
        {"type": "object", "connect.type": "map"},
    ],
)
def test_a_field_that_sql_has_no_type_for_is_left_out(left_out: Any) -> None:
    assert columns(row(a={"type": "string"}, b=left_out)) == {"A": "STRING"}


def test_names_keep_their_case_only_under_an_id() -> None:
    of = row(aB=row(xY={"type": "string"}))
    assert columns(of) == {"AB": "STRUCT<`XY` STRING>"}
    assert columns(of, keeps_case=True) == {"aB": "STRUCT<`xY` STRING>"}


@pytest.mark.parametrize("around", [lambda of: of, lambda of: row(c=of)])
def test_names_that_differ_only_in_case(around: Any) -> None:
    of = around(row(ab={"type": "string"}, aB={"type": "string"}))
    with pytest.raises(BadSchema, match="because of field name duplication AB"):
        columns(of)
    assert columns(of, keeps_case=True)
    assert columns(row(ab={"type": "string"}, aB={})) == {"AB": "STRING"}, "one makes no column"


@pytest.mark.parametrize(
    ("schema", "unwraps", "message"),
    [
        ({"type": "string"}, False, "WRAP_SINGLE_VALUE=false"),
        (True, False, "WRAP_SINGLE_VALUE=false"),
        ({"type": "object", "connect.type": "map"}, False, "WRAP_SINGLE_VALUE=false"),
        (row(), False, "does not include any columns"),
        (row(a={}), False, "does not include any columns"),
        ({}, True, "Unsupported type at root of schema: Unsupported type: a schema without a type"),
        (False, True, "root of schema"),
        (
            {"oneOf": [row(a={"type": "string"}), NONE, row(b={"type": "string"})]},
            False,
            "Unsupported type at root of schema: a union of several types",
        ),
        ({"type": ["integer", "string"]}, True, "root of schema: Unsupported type: union"),
        (row(a={"type": "integer", "connect.type": "int128"}), False, "Unsupported type int128"),
    ],
)
def test_no_column_at_all(schema: Any, unwraps: bool, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        columns(schema, unwraps=unwraps)


def test_a_schema_of_one_column() -> None:
    assert columns({"type": ["null", "string"]}, unwraps=True) == {"ROWVAL": "STRING"}
    key = json_columns.inferred(
        json_schema.parse('{"type":"integer"}'), is_key=True, keeps_case=False, unwraps=True
    )
    assert key == [Column(name="ROWKEY", type="BIGINT", is_key=True)]


def test_a_root_that_may_be_null() -> None:
    assert columns({"oneOf": [NONE, row(a={"type": "string"})]}) == {"A": "STRING"}


def doubled(levels: int, leaf: Any) -> dict[str, Any]:
    """An object with two fields of an object with two fields of …"""
    definitions: dict[str, Any] = {"r0": row(x=leaf)}
    for level in range(1, levels):
        twice = {name: {"$ref": f"#/definitions/r{level - 1}"} for name in ("a", "b")}
        definitions[f"r{level}"] = row(**twice)
    return {"definitions": definitions, "$ref": f"#/definitions/r{levels - 1}"}


@pytest.mark.parametrize("leaf", [{"type": "string"}, NONE, {"$ref": "#"}])
def test_a_small_schema_that_stands_for_many_types(leaf: Any) -> None:
    assert len(json.dumps(doubled(15, leaf))) < 2_000
    with pytest.raises(BadSchema, match=r"more than 10000 types|more than 32768 characters"):
        columns(doubled(15, leaf))


def test_a_union_of_thousands() -> None:
    branches = [{"type": "string", "title": str(number)} for number in range(5_000)]
    assert columns(row(a={"oneOf": branches}, b={"type": "string"})) == {"B": "STRING"}


def test_a_name_becomes_upper_case_once() -> None:
    """Upper case of a long name is costly, and a small schema uses a name thousands of times."""
    conversions = 0

    class Name(str):
        __slots__ = ()

        def upper(self) -> str:
            nonlocal conversions
            conversions += 1
            return super().upper()

    inner = JsonType("object", properties=(JsonProperty(Name("x"), JsonType("string")),))
    uses = tuple(JsonProperty(f"a{n}", inner) for n in range(50))
    found = json_columns.inferred(
        JsonType("object", properties=uses), is_key=False, keeps_case=False, unwraps=False
    )
    assert [column.type for column in found] == ["STRUCT<`X` STRING>"] * 50
    assert conversions == 1


def test_a_key_that_no_map_has_is_not_written_out() -> None:
    """Its type may have 32768 characters, and the field is left out anyway, each time."""
    key = row(**{f"{n:0>1000}": {"type": "string"} for n in range(20)})
    entries = {"type": "array", "connect.type": "map", "items": row(key=key, value=NONE)}
    with pytest.raises(BadSchema, match=r"Unsupported type for map key: STRUCT$"):
        columns(entries, unwraps=True)


def nested(levels: int, step: Any) -> Any:
    of: Any = {"type": "string"}
    for _ in range(levels):
        of = step(of)
    return of


@pytest.mark.parametrize("levels", [1, 50])
def test_types_within_types_have_sqls_limit(levels: int) -> None:
    def arrays(count: int) -> dict[str, str]:
        return columns(row(a={"type": "string"}, b=nested(count, lambda of: {"items": of})))

    assert len(arrays(levels)) == 2
    assert len(arrays(levels + 50)) == 1


def test_unions_within_unions_without_end() -> None:
    """References are followed one after another, so nothing is nested in the text."""
    definitions = {
        f"u{n}": {"oneOf": [NONE, {"$ref": f"#/definitions/u{n + 1}"}]} for n in range(3_000)
    }
    schema = {**row(a={"type": "string"}, b={"$ref": "#/definitions/u0"}),
              "definitions": {**definitions, "u3000": {"type": "string"}}}  # fmt: skip
    assert columns(schema) == {"A": "STRING"}


SCALARS = [types.BOOLEAN, types.INTEGER, types.BIGINT, types.DOUBLE, types.STRING, types.BYTES,
           types.DATE, types.TIME, types.TIMESTAMP]  # fmt: skip
DECIMALS = st.integers(1, 38).flatmap(
    lambda precision: st.builds(types.decimal, st.just(precision), st.integers(0, precision))
)
NAMES = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=8)


def structs(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    fields = st.dictionaries(NAMES, inner, min_size=1, max_size=3)
    return fields.map(lambda found: types.struct(tuple(found.items())))


TYPES = st.recursive(
    st.one_of(st.sampled_from(SCALARS), DECIMALS),
    lambda inner: st.one_of(
        st.builds(types.array, inner),
        st.builds(types.map_of, st.just(types.STRING), inner),
        structs(inner),
    ),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, TYPES, min_size=1, max_size=5), st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_our_schema_means_the_same_columns(of: dict[str, SqlType], wraps: bool) -> None:
    made = [Column(name=name, type=str(kind)) for name, kind in of.items()]
    if not wraps:
        made = [Column(name="ROWVAL", type=made[0].type)]
    text = json_columns.schema_text(made, "x.Y", wraps=wraps)
    found = json_columns.inferred(
        json_schema.parse(text), is_key=False, keeps_case=True, unwraps=not wraps
    )
    assert found == made


def test_our_schema_of_the_deepest_type() -> None:
    deep = nested(
        50, lambda of: f"MAP<STRING, {of}>" if isinstance(of, str) else "MAP<STRING, INTEGER>"
    )
    made = [Column(name="A", type=deep)]
    text = json_columns.schema_text(made, None, wraps=True)
    assert columns(json.loads(text)) == {"A": deep}


def test_our_schema_is_ksqldbs() -> None:
    made = [
        Column(name="B", type="INTEGER"),
        Column(name="A", type="DECIMAL(6, 2)"),
        Column(name="M", type="MAP<STRING, DATE>"),
    ]
    text = json_columns.schema_text(made, "shop.Order", wraps=True)
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    of = json.loads(text)
    assert (of["title"], of["type"]) == ("shop.Order", "object")
    assert of["properties"]["B"] == {
        "connect.index": 0,
        "oneOf": [NONE, {"type": "integer", "connect.type": "int32"}],
    }
    assert of["properties"]["A"]["oneOf"][1] == {
        "type": "number",
        "title": f"{LOGICAL}Decimal",
        "connect.type": "bytes",
        "connect.version": 1,
        "connect.parameters": {"connect.decimal.precision": "6", "scale": "2"},
    }
    of_map = of["properties"]["M"]["oneOf"][1]
    assert (of_map["type"], of_map["connect.type"]) == ("array", "map")
    assert of_map["items"]["properties"]["key"] == {
        "connect.index": 0,
        "oneOf": [NONE, {"type": "string"}],
    }
    key = [Column(name="K", type="BIGINT", is_key=True)]
    assert json.loads(json_columns.schema_text(key, None, wraps=False)) == {
        "$schema": json_columns.DRAFT,
        "oneOf": [NONE, {"type": "integer", "connect.type": "int64"}],
    }
