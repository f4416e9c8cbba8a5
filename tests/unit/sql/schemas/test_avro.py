"""Texts of schemas as Avro's specification has them, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from standpipe.sql.schemas import avro


def parsed(schema: Any) -> avro.AvroType:
    return avro.parse(json.dumps(schema))


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    named = [{"name": f"f{n}", "type": each} for n, each in enumerate(fields)]
    return {"type": "record", "name": "R", "fields": named, **more}


def test_names_are_resolved_within_their_namespaces() -> None:
    inner = {"type": "enum", "name": "E", "symbols": ["A"]}
    other = {"type": "fixed", "name": "x.y.F", "size": 2}
    found = parsed(record(inner, "E", "a.b.E", other, "x.y.F", namespace="a.b"))
    assert found.name == "a.b.R"
    assert [each.of.name for each in found.fields] == ["a.b.E"] * 3 + ["x.y.F"] * 2
    assert found.fields[0].of is found.fields[1].of
    assert found.short_name == "R"


def test_a_type_may_contain_itself() -> None:
    found = parsed(record("int", ["null", "R"]))
    assert found.fields[1].of.parts[1] is found


@pytest.mark.parametrize(
    ("schema", "logical", "why"),
    [
        ({"type": "int", "logicalType": "date"}, "date", "known"),
        ({"type": "long", "logicalType": "date"}, "", "of another type: ignored"),
        ({"type": "string", "logicalType": "uuid"}, "", "SQL has no such type"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "decimal", "scale 0"),
        ({"type": "bytes", "logicalType": "decimal"}, "", "no precision: ignored"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
            "",
            "more digits after the point than there are",
        ),
        ({"type": {"type": "int", "logicalType": "time-millis"}}, "time-millis", "nested"),
    ],
)
def test_logical(schema: Any, logical: str, why: str) -> None:
    assert parsed(schema).logical == logical, why


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("3", "no type"),
        ('"nope"', "unknown type"),
        ("[]", "no branch"),
        ('["int", "int"]', "one type twice"),
        ('["int", ["null"]]', "another union"),
        ('{"type": "record", "name": "R"}', "no fields"),
        ('{"type": "record", "name": "1", "fields": []}', "no name"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "without a name or a type"),
        (json.dumps(record("int", {"type": "fixed", "name": "R", "size": 1})), "defined twice"),
        ('{"type": "fixed", "name": "F", "size": -1}', "no size"),
        ('{"type": "fixed", "name": "F", "size": 4294967300}', "more than 2147483647 bytes"),
        ('{"type": "enum", "name": "E"}', "no symbols"),
        ('{"type":"array","items":' * 61 + '"int"' + "}" * 61, "types within types"),
        (f'"{"x" * 1_000_000}"', "1000000 characters"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(avro.BadSchema, match=message):
        avro.parse(text)


def test_two_fields_of_one_name() -> None:
    fields = [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]
    with pytest.raises(avro.BadSchema, match="two fields"):
        parsed({"type": "record", "name": "R", "fields": fields})
