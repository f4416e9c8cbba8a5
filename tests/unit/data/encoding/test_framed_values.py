"""Values behind the ids of their schemas: known, unknown, broken and too many."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from standpipe.data.encoding import framed_values
from standpipe.data.encoding.row_values import UnreadableValue
from standpipe.model import Column
from standpipe.sql.schemas.avro import BadSchema
from standpipe.sql.schemas.registry import (
    RegisteredSchema,
    SchemaKind,
    SchemaRegistryUnavailable,
    UnknownSchema,
    subject_of,
)

ONE = '{"type":"record","name":"R","fields":[{"name":"id","type":"int"}]}'
TWO = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"ID","type":"long"}]}'
)
OTHER = '{"type":"record","name":"R","fields":[{"name":"id","type":"string"}]}'
ID = [Column(name="ID", type="BIGINT")]


@dataclass
class Known:
    """Schemas by id; asking for one that is not there is counted too."""

    schemas: dict[int, RegisteredSchema] = field(default_factory=dict[int, RegisteredSchema])
    asked: list[int] = field(default_factory=list[int])

    @classmethod
    def of(cls, *texts: str, kind: str = "AVRO") -> Known:
        made = enumerate(texts, start=1)
        return cls({number: RegisteredSchema(number, kind, text) for number, text in made})

    def by_id(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        if schema_id == 503:
            raise SchemaRegistryUnavailable("no answer")
        if schema_id not in self.schemas:
            raise UnknownSchema(f"no schema {schema_id}")
        return self.schemas[schema_id]

    def latest(self, subject: str) -> RegisteredSchema:
        raise UnknownSchema(subject)

    def register(self, subject: str, kind: SchemaKind, text: str, *, asks: bool = False) -> int:
        raise AssertionError((subject, kind, text, asks))


def test_records_of_several_schemas_have_the_same_columns() -> None:
    known = Known.of(ONE, TWO)
    reader = framed_values.avro_cells(known, ID, wraps=True)
    values = [b"\0\0\0\0\1\x04", b"\0\0\0\0\2\x02\x06", b"\0\0\0\0\1\x08"]
    assert [reader.read(each) for each in values] == [[2], [3], [4]]
    assert known.asked == [1, 2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin with 0"),
        (b"\0\0\0\1", "does not begin with 0"),
        (b'{"ID":1}', "does not begin with 0"),
        (b"\0\0\0\0\7\2", "no schema 7"),
        (b"\0\0\0\0\1", "under schema 1"),
        (b"\0\0\0\0\1\2\2", "left over"),
        (b"\0\0\0\0\2\2a", "Cannot deserialize type string as type BIGINT"),
        (b"\0\0\0\0\3\2", "schema 3: the schema is no JSON"),
    ],
)
def test_unreadable(data: bytes, message: str) -> None:
    reader = framed_values.avro_cells(Known.of(ONE, OTHER, "{"), ID, wraps=True)
    with pytest.raises(UnreadableValue, match=message):
        reader.read(data)


def test_a_broken_schema_is_asked_for_once_and_an_unknown_one_again() -> None:
    known = Known.of("{")
    reader = framed_values.avro_cells(known, ID, wraps=True)
    for data in (b"\0\0\0\0\1\2", b"\0\0\0\0\1\2", b"\0\0\0\0\2\2", b"\0\0\0\0\2\2"):
        with pytest.raises(UnreadableValue):
            reader.read(data)
    assert known.asked == [1, 2, 2]
    known.schemas[2] = RegisteredSchema(2, "AVRO", ONE)
    assert reader.read(b"\0\0\0\0\2\2") == [1]


def test_a_registry_that_does_not_answer_is_no_broken_record() -> None:
    reader = framed_values.avro_texts(Known())
    with pytest.raises(SchemaRegistryUnavailable):
        reader.read(framed_values.framed(503, b"\2"))


def test_a_producer_cannot_fill_the_memory_with_schemas() -> None:
    known = Known.of(*[ONE] * 250)
    reader = framed_values.avro_cells(known, ID, wraps=True)
    for number in range(1, 251):
        reader.read(framed_values.framed(number, b"\2"))
    assert len(vars(reader)["_kept"]) <= 100


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (RegisteredSchema(1, "PROTOBUF", 'syntax = "proto3";'), "kind PROTOBUF"),
        (RegisteredSchema(1, "AVRO", ONE, has_references=True), "other subjects"),
    ],
)
def test_schemas_that_are_not_read(schema: RegisteredSchema, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        framed_values.avro_row(schema, ID, wraps=True)


def test_values_of_json_sr_are_shown_where_their_schema_is_one() -> None:
    reader = framed_values.json_texts(Known.of("true", kind="JSON"))
    assert reader.read(b'\0\0\0\0\1{"a": 1}') == '{"a": 1}'
    with pytest.raises(UnreadableValue, match="under schema 1"):
        reader.read(b"\0\0\0\0\1{")
    with pytest.raises(UnreadableValue, match="it is of kind AVRO, not JSON"):
        framed_values.json_texts(Known.of(ONE)).read(b"\0\0\0\0\1{}")


OBJECT = '{"properties":{"id":{"type":"integer"}}}'


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (RegisteredSchema(1, "AVRO", ONE), "kind AVRO, not JSON"),
        (RegisteredSchema(1, "JSON", OBJECT, has_references=True), "other subjects"),
        (RegisteredSchema(1, "JSON", "{"), "no JSON"),
        (
            RegisteredSchema(1, "JSON", (
                '{"properties":{"id":{"$ref":"#/a"}},"a":{"oneOf":[{"type":"null"},'
                '{"$ref":"#/b"}]},"b":{"oneOf":[{"type":"null"},{"$ref":"#/a"}]}}'
            )),
            "contains itself",
        ),
    ],
)  # fmt: skip
def test_json_schemas_under_which_nothing_is_written(
    schema: RegisteredSchema, message: str
) -> None:
    with pytest.raises(BadSchema, match=message):
        framed_values.json_row(schema, ID, wraps=True)


def test_a_row_of_json_sr_has_its_frame() -> None:
    schema = RegisteredSchema(7, "JSON", OBJECT)
    assert framed_values.json_row(schema, ID, wraps=True)([5]) == b'\0\0\0\0\7{"id":5}'


def test_a_row_is_read_as_it_was_written() -> None:
    schema = RegisteredSchema(2**31 - 1, "AVRO", ONE)
    columns = [Column(name="ID", type="INTEGER")]
    data = framed_values.avro_row(schema, columns, wraps=True)([5])
    assert data == b"\0\x7f\xff\xff\xff\x0a"
    reader = framed_values.avro_texts(Known({schema.schema_id: schema}))
    assert reader.read(data) == '{"id": 5}'


def test_subjects() -> None:
    assert [subject_of("t", is_key=each) for each in (True, False)] == ["t-key", "t-value"]
