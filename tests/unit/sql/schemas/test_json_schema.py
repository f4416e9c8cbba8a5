"""Which texts are JSON Schemas, and what each says; no text costs more than its size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.sql.schemas import json_columns, json_schema
from standpipe.sql.schemas.json_schema import JsonType, _JsonSchemaReader
from standpipe.sql.schemas.registry import BadSchema


def parsed(schema: Any) -> JsonType:
    return json_schema.parse(json.dumps(schema))


def properties(of: JsonType) -> dict[str, str]:
    return {each.name: each.of.kind for each in of.properties}


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, "string"),
        ({"type": ["string"]}, "optional"),
        ({"oneOf": [{"type": "null"}, {"type": "string"}]}, "optional"),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "optional"),
        ({"oneOf": [{"type": "null"}, {"oneOf": [{"type": "null"}]}]}, "optional"),
        ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "union"),
        ({"type": ["string", "null", "integer"]}, "union"),
        ({"oneOf": [{"type": "null"}, {"type": "null"}]}, "none"),
        ({"oneOf": []}, "none"),
        ({"type": ["null", "null"]}, "none"),
        ({"type": []}, "none"),
        ({"enum": ["a", 1]}, "string"),
        ({"type": "integer", "enum": [1]}, "integer"),
        ({"items": {"type": "string"}}, "array"),
        ({"type": "array", "items": [{"type": "string"}]}, "none"),
        ({"type": "array", "items": True}, "none"),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, "none"),
        ({"properties": {"a": {}}}, "object"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "map"),
        ({"type": "object", "additionalProperties": False}, "object"),
        ({"type": "object", "connect.type": "map"}, "map"),
        ({"type": "date"}, "none"),
        ({"type": {"type": "string"}}, "none"),
        ({"const": 1}, "none"),
        ({}, "none"),
        (True, "none"),
        (False, "none"),
        ([], "none"),
        (1, "none"),
        (None, "none"),
    ],
)
def test_kinds(schema: Any, kind: str) -> None:
    assert parsed(schema).kind == kind


def test_the_order_of_properties_is_connects_else_that_of_the_text() -> None:
    of = {"b": {"connect.index": 1}, "a": {"connect.index": 0}}
    assert list(properties(parsed({"properties": of}))) == ["a", "b"]
    others = {"b": {}, "a": {"connect.index": 2**70}, "c": {"connect.index": True}, "d": True}
    assert list(properties(parsed({"properties": others}))) == ["b", "c", "d", "a"]


@pytest.mark.parametrize(
    ("place", "reference"),
    [
        ("definitions", "#/definitions/a~1b~0"),
        ("definitions", "#/definitions/a~1b%7E0"),
        ("$defs", "#/$defs/a~1b~0"),
        ("$defs", "#/%24defs/a~1b~0"),
        ("$defs", "http://shop/order.json#/$defs/a~1b~0"),
    ],
)
def test_references_within_the_schema(place: str, reference: str) -> None:
    schema = {
        "$id": "http://shop/order.json",
        place: {"a/b~": {"type": "integer"}},
        "properties": {"x": {"$ref": reference}, "y": {"items": {"$ref": reference}}},
    }
    assert properties(parsed(schema)) == {"x": "integer", "y": "array"}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("other.json", "refers to 'other.json', which is not supported"),
        ("http://shop/x#/definitions/a", "which is not supported"),
        ("#anchor", "which is not supported"),
        ("#/definitions/none", "where there is nothing"),
        ("#/list/1", "where there is nothing"),
        ("#/list/00000000000000000000", "where there is nothing"),
        ("#/list/x", "where there is nothing"),
        ("#/definitions/itself", "refers to itself"),
        ("#/definitions/one", "more than 10000 parts"),
    ],
)
def test_references_that_lead_nowhere(reference: str, message: str) -> None:
    definitions = {
        "itself": {"$ref": "#/definitions/itself"},
        "one": {"$ref": "#/definitions/other"},
        "other": {"$ref": "#/definitions/one"},
    }
    schema = {"definitions": definitions, "list": [{}], "properties": {"x": {"$ref": reference}}}
    with pytest.raises(BadSchema, match=message):
        parsed(schema)


def test_a_type_may_contain_itself() -> None:
    found = parsed({"properties": {"next": {"$ref": "#"}, "all": {"items": {"$ref": "#"}}}})
    assert found.properties[0].of is found
    assert found.properties[1].of.parts == (found,)


def test_all_of_is_one_object() -> None:
    base = {"properties": {"id": {"type": "integer"}, "v": {"type": "null"}}, "required": ["id"]}
    schema = {
        "definitions": {"base": base, "more": {"allOf": [{"$ref": "#/definitions/base"}]}},
        "allOf": [
            {"$ref": "#/definitions/more"},
            {"properties": {"v": {"type": "string"}}, "required": ["v", 3]},
        ],
    }
    found = parsed(schema)
    assert properties(found) == {"id": "integer", "v": "string"}
    assert [each.is_required for each in found.properties] == [True, True]


def test_all_of_may_name_itself() -> None:
    schema = {"allOf": [{"$ref": "#"}, {"properties": {"a": {}}}, {"allOf": [{"$ref": "#"}]}]}
    assert properties(parsed(schema)) == {"a": "none"}


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([{"type": "string"}, {"maxLength": 3}], "string"),
        ([{"type": "string"}, {"oneOf": [{"type": "null"}, {"type": "string"}]}], "optional"),
        ([{"maxLength": 3}], "none"),
        ([True, 3], "none"),
        ([], "none"),
    ],
)
def test_all_of_without_properties(parts: list[Any], kind: str) -> None:
    assert parsed({"allOf": parts}).kind == kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ('{"maximum": 1e999}', "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"title": "\ud800"}', "no JSON"),
        (" " * 1_000_001, "more than 1000000 characters"),
        (json.dumps({"properties": {f"p{n}": {} for n in range(10_001)}}), "10000 parts"),
        (json.dumps({"oneOf": [{"type": "null"}] * 10_001}), "10000 parts"),
        (json.dumps({"oneOf": [{"$ref": "#/x"}] * 9_000, "x": {}}), "10000 parts"),
        (json.dumps({"type": ["string"] * 8}), "more than 7 types"),
        (json.dumps({"properties": {"n" * 1_001: {}}}), "name has more than 1000 characters"),
        (json.dumps({"allOf": [{"properties": {"n" * 1_001: {}}}]}), "more than 1000 characters"),
        (json.dumps({"$id": "n" * 1_001}), "id has more than 1000 characters"),
        (json.dumps({"allOf": [0] * 10_001}), "10000 parts"),
    ],
)
def test_texts_that_are_too_large_or_none(text: str, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        json_schema.parse(text)


def test_sizes_at_their_limits() -> None:
    name = "n" * 1_000
    found = parsed({"$id": name, "properties": {name: {"$ref": f"{name}#/d"}}, "d": {}})
    assert properties(found) == {name: "none"}
    assert parsed({"type": ["string"] * 7}).kind == "optional"


@pytest.mark.parametrize(
    ("others", "kept"), [([], 0), ([{"type": "string"}], 1), ([{"type": "string"}, {}], 0)]
)
def test_a_union_keeps_one_type_at_most(others: list[Any], kept: int) -> None:
    """A schema may use it thousands of times, and each use looks at what it keeps."""
    of = parsed({"oneOf": [*[{"type": "null"}] * 4_500, *others]})
    assert (len(of.parts), of.takes_null) == (kept, True)


def test_a_long_list_of_types_is_not_read_for_each_use() -> None:
    """`type` counts its entries before it looks at any."""
    looked = 0

    class Entries(list[str]):
        def __iter__(self) -> Iterator[str]:
            nonlocal looked
            looked += 1
            return super().__iter__()

    base = {"type": Entries(["string"] * 20_000)}
    with pytest.raises(BadSchema, match="more than 7 types"):
        _JsonSchemaReader({"properties": {"a": {"allOf": [base]}}}).whole()
    assert looked == 0


def test_what_many_parts_refer_to_is_not_read_again_for_each() -> None:
    """Properties of an `allOf` count wherever it is named: 100 of 100 are the limit."""
    base = {"properties": {f"p{n}": {} for n in range(100)}}
    schema = {"definitions": {"base": base}, "properties": {
        f"q{n}": {"allOf": [{"$ref": "#/definitions/base"}]} for n in range(100)
    }}  # fmt: skip
    with pytest.raises(BadSchema, match="10000 parts"):
        parsed(schema)


WORDS = st.sampled_from(
    [
        *("type", "properties", "items", "oneOf", "anyOf", "allOf", "$ref", "title", "required"),
        *("connect.type", "connect.index", "connect.parameters", "additionalProperties", "$id"),
        *("definitions", "enum", "key", "value", "scale", "connect.decimal.precision"),
    ]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [
            *("null", "boolean", "integer", "number", "string", "array", "object", "map", "bytes"),
            *("int32", "float64", "#", "#/definitions/key", "#/properties/value", "#/items", "12"),
            *("org.apache.kafka.connect.data.Decimal", "org.apache.kafka.connect.data.Date", "x#/"),
        ]
    ),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=6)),
    max_leaves=30,
)


@given(SCHEMAS, st.booleans(), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_any_json_is_columns_or_a_bad_schema(schema: Any, unwraps: bool, keeps_case: bool) -> None:
    try:
        found = json_columns.inferred(
            parsed(schema), is_key=unwraps, keeps_case=keeps_case, unwraps=unwraps
        )
    except BadSchema:
        return
    assert len({column.name for column in found}) == len(found) > 0
