"""The program that says how a row is written as JSON under a schema. What is written in Spark:
test_json_sr_sinks_on_spark.py."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from standpipe.model import Column
from standpipe.sql.schemas import json_schema
from standpipe.sql.schemas.json_write_program import STEPS_MAX, JsonStep, program
from standpipe.sql.schemas.registry import BadSchema

TEXT: Final = {"type": "string"}
NUMBER: Final = {"type": "integer"}
TEXT_OR_NULL: Final = {"oneOf": [{"type": "null"}, TEXT]}


def made(schema: Any, *, wraps: bool = True, **types: str) -> JsonStep:
    columns = [Column(name=name, type=of) for name, of in types.items()]
    return program(json_schema.parse(json.dumps(schema)), columns, wraps=wraps)


def an_object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": properties}


def test_a_column_is_written_into_the_property_of_its_name() -> None:
    step = made(an_object(("b",), b=NUMBER, x=NUMBER, A=TEXT), A="STRING", B="INTEGER")
    assert [(each.name, each.column, each.is_required) for each in step.properties] == [
        ("b", "B", True),
        ("A", "A", False),
    ]
    assert [part.op for part in step.parts] == ["VALUE", "VALUE"]


def test_only_a_schema_with_null_everywhere_has_every_value() -> None:
    assert made(an_object(A=TEXT_OR_NULL), A="STRING").has_every_part
    assert not made(an_object(A=TEXT), A="STRING").has_every_part
    deep = an_object(A={"oneOf": [{"type": "null"}, an_object(B=TEXT)]})
    assert not made(deep, A="STRUCT<`B` STRING>").has_every_part


@pytest.mark.parametrize(
    ("schema", "types", "why"),
    [
        (an_object(A=TEXT), {"A": "INTEGER"}, "Cannot serialize type INTEGER as string"),
        (an_object(A=NUMBER), {"A": "DOUBLE"}, "Cannot serialize type DOUBLE as integer"),
        (an_object(A=TEXT), {"A": "BYTES"}, "Cannot serialize type BYTES"),
        (an_object(A=TEXT), {"A": "STRING", "B": "STRING"}, "has no property for B"),
        (an_object(("x",), A=TEXT, x=TEXT), {"A": "STRING"}, "no column has a value for x"),
    ],
)
def test_a_schema_that_no_row_fits(schema: Any, types: dict[str, str], why: str) -> None:
    with pytest.raises(BadSchema, match=why):
        made(schema, wraps=True, **types)


def test_a_bare_value_has_no_property() -> None:
    step = made({"type": "array", "items": TEXT}, wraps=False, V="ARRAY<STRING>")
    assert (step.op, step.path, [part.op for part in step.parts]) == ("ARRAY", "V", ["VALUE"])


def test_the_key_of_an_entry_is_a_text() -> None:
    entry = {"properties": {"key": NUMBER, "value": NUMBER}}
    schema = an_object(A={"type": "array", "connect.type": "map", "items": entry})
    with pytest.raises(BadSchema, match="Cannot serialize type STRING as integer: ->A->MAP_KEY"):
        made(schema, wraps=True, A="MAP<STRING, INTEGER>")


def test_a_union_of_null_and_itself_is_refused() -> None:
    schema = an_object(A={"$ref": "#/definitions/loop"})
    schema["definitions"] = {"loop": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/loop"}]}}
    with pytest.raises(BadSchema, match="a type contains itself"):
        made(schema, wraps=True, A="STRING")


def test_a_schema_that_stands_for_very_many_types_is_refused() -> None:
    """Properties that no column has are looked at, too: the leader's turn pays for each."""
    names = ("A", "B", "C")
    one = an_object(X=TEXT)
    one["properties"].update((f"p{n}", TEXT) for n in range(STEPS_MAX // len(names)))
    schema = an_object()
    schema["properties"] = {name: {"$ref": "#/definitions/one"} for name in names}
    schema["definitions"] = {"one": one}
    assert made(schema, A="STRUCT<`X` STRING>").op == "OBJECT"
    with pytest.raises(BadSchema, match=f"more than {STEPS_MAX} types"):
        made(schema, wraps=True, **dict.fromkeys(names, "STRUCT<`X` STRING>"))
