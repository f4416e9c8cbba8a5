"""Bytes of an inserted row."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest
from tests.known_schemas import KnownSchemas
from tests.samples import sample_stream

from standpipe.data.encoding import framed_values
from standpipe.errors import BadRequest
from standpipe.model import Column, Source
from standpipe.node.worker.statements.insert_record import ResolvedSchemas, encode_value, record_of
from standpipe.sql.declarations import registered
from standpipe.sql.plans import InsertValuesPlan, Value
from standpipe.sql.schemas.registry import SchemaRegistryUnavailable

SOURCE = sample_stream(columns=())
A, P = Column(name="A", type="STRING"), Column(name="P", type="DECIMAL(6, 2)")


@pytest.mark.parametrize(
    ("changes", "columns", "values", "expected", "why"),
    [
        ({}, (A, P), ("x", Decimal("1.50")), b'{"A":"x","P":1.50}', "the scale is kept"),
        ({}, (A, P), (None, None), b'{"A":null,"P":null}', "all columns are there"),
        ({}, (A,), ("x",), b'{"A":"x"}', "a single value is wrapped"),
        ({"wrap_single_value": False}, (A,), ("x",), b'"x"', "or not"),
        ({}, (), (), None, "no value columns"),
        ({"value_format": "KAFKA"}, (A,), ("x",), b"x", "bare"),
        ({"value_format": "DELIMITED"}, (A, P), ("x", Decimal("1.50")), b"x,1.50", "CSV"),
        ({"value_format": "DELIMITED"}, (A, P), (None, None), b",", "NULLs are no tombstone"),
        ({"value_format": "DELIMITED"}, (P,), (None,), b"", "also one"),
        ({"value_format": "KAFKA"}, (A,), (None,), None, "there is no other NULL"),
        ({"value_format": "NONE"}, (), (), None, "none"),
    ],
)
def test_encode_value(
    changes: dict[str, object],
    columns: tuple[Column, ...],
    values: tuple[Value, ...],
    expected: bytes | None,
    why: str,
) -> None:
    source = msgspec.structs.replace(SOURCE, **changes)
    assert encode_value(source, values, columns) == expected, why


def test_values_are_quoted_where_they_hold_their_delimiter() -> None:
    source = msgspec.structs.replace(SOURCE, value_format="DELIMITED", value_delimiter="|")
    assert encode_value(source, ("x|", Decimal("1.50")), (A, P)) == b'"x|"|1.50'


@pytest.mark.parametrize(
    ("value_format", "expected"), [("JSON", b'{"A":"x","P":1.50}'), ("DELIMITED", b"x,1.50")]
)
def test_columns_of_headers_are_no_part_of_a_value(value_format: str, expected: bytes) -> None:
    """A reader counts the fields of a line."""
    header = Column(name="H", type="BYTES", header="h")
    source = msgspec.structs.replace(
        SOURCE, columns=(A, header, P), value_format=value_format, wrap_single_value=True
    )
    plan = InsertValuesPlan(source=source, values=("x", None, Decimal("1.50")), rowtime_ms=None)
    assert record_of(plan) == (None, expected)


AVRO = sample_stream(
    topic="t",
    key_format="AVRO",
    value_format="AVRO",
    columns=(Column(name="K", type="INTEGER", is_key=True), A, P),
)


def avro_record(
    source: Source, row: tuple[Value, ...], schemas: KnownSchemas | None
) -> tuple[bytes | None, bytes | None]:
    return record_of(InsertValuesPlan(source=source, values=row, rowtime_ms=None), schemas)


def test_a_row_in_avro_registers_its_schemas_once() -> None:
    known = KnownSchemas()
    for _ in range(2):
        key, value = avro_record(AVRO, (7, "x", Decimal("1.50")), known)
    assert {name: len(versions) for name, versions in known.subjects.items()} == {
        "t-value": 1, "t-key": 1
    }  # fmt: skip
    assert key is not None
    assert value is not None
    texts = framed_values.avro_texts(known)
    assert (texts.read(key), texts.read(value)) == ("7", '{"A": "x", "P": "1.50"}')
    no_key, _ = avro_record(AVRO, (None, "x", None), known)
    assert no_key is None


JSON_SR = msgspec.structs.replace(AVRO, key_format="JSON_SR", value_format="JSON_SR")


def test_a_row_in_json_sr_registers_its_schemas() -> None:
    known = KnownSchemas()
    key, value = avro_record(JSON_SR, (7, "x", Decimal("1.50")), known)
    assert (key, value) == (b"\0\0\0\0\x027", b'\0\0\0\0\1{"A":"x","P":1.50}')
    kinds = {name: [each.kind for each in of] for name, of in known.subjects.items()}
    assert kinds == {"t-value": ["JSON"], "t-key": ["JSON"]}
    assert avro_record(JSON_SR, (None, None, None), known) == (
        None, b'\0\0\0\0\1{"A":null,"P":null}'
    )  # fmt: skip


def test_a_row_in_json_sr_is_written_under_the_schema_that_its_source_names() -> None:
    known = KnownSchemas()
    avro = known.register("t-value", "AVRO", '"string"')
    text = '{"properties":{"a":{"type":"string"},"p":{"type":"number"}},"required":["a"]}'
    given = known.register("t-value", "JSON", text)
    columns = (*JSON_SR.columns[:2], Column(name="P", type="DOUBLE"))
    source = msgspec.structs.replace(JSON_SR, schema_ids=(None, given), columns=columns)
    _, value = avro_record(source, (7, "x", None), known)
    assert value == framed_values.framed(given, b'{"a":"x"}')
    with pytest.raises(BadRequest, match=r"into 'S'\. Could not serialize value: a is NULL"):
        avro_record(source, (7, None, 1.5), known)
    other = msgspec.structs.replace(source, schema_ids=(None, avro))
    with pytest.raises(BadRequest, match="it is of kind AVRO, not JSON"):
        avro_record(other, (7, "x", 1.5), known)


def test_a_row_that_is_only_judged_registers_nothing() -> None:
    known = KnownSchemas()
    plan = InsertValuesPlan(source=AVRO, values=(7, "x", None), rowtime_ms=None)
    assert record_of(plan, known, registers=False)[0] == b"\0\0\0\0\0\x0e"
    assert known.subjects == {}


def test_schemas_of_a_stream_of_rows_are_asked_for_once() -> None:
    known = KnownSchemas()
    given = known.register("t-value", "AVRO", registered.own_schema(AVRO, "VALUE"))
    source = msgspec.structs.replace(AVRO, schema_ids=(None, given))
    resolved = ResolvedSchemas(source, known)
    known.is_down = True
    plan = InsertValuesPlan(source=source, values=(7, "x", None), rowtime_ms=None)
    key, value = record_of(plan, resolved)
    assert (framed_values.schema_id_of(key), framed_values.schema_id_of(value)) == (2, given)
    for changes in ({"schema_ids": (None, 9)}, {"columns": (A, *AVRO.columns), "schema_ids": None}):
        other = msgspec.structs.replace(source, **changes)
        changed = InsertValuesPlan(
            source=other, values=tuple(None for _ in other.columns), rowtime_ms=None
        )
        with pytest.raises(BadRequest, match="has changed: open the stream again"):
            record_of(changed, resolved)
    with pytest.raises(SchemaRegistryUnavailable):
        ResolvedSchemas(source, known)
    known.is_down = False
    with pytest.raises(BadRequest, match="no schema 9"):
        ResolvedSchemas(msgspec.structs.replace(AVRO, schema_ids=(9, None)), known)
    assert vars(ResolvedSchemas(SOURCE, known))["_by_id"] == {}, "its formats have none"


def test_a_row_is_written_under_the_schema_that_its_source_names() -> None:
    known = KnownSchemas()
    text = (
        '{"type":"record","name":"R","fields":[{"name":"a","type":"string"},'
        '{"name":"more","type":"int","default":3},{"name":"p","type":["null","double"]}]}'
    )
    given = known.register("t-value", "AVRO", text)
    source = msgspec.structs.replace(
        AVRO, schema_ids=(None, given), columns=(*AVRO.columns[:2], Column(name="P", type="DOUBLE"))
    )
    _, value = avro_record(source, (7, "x", 1.5), known)
    assert value is not None
    assert framed_values.avro_texts(known).read(value) == '{"a": "x", "more": 3, "p": 1.5}'
    with pytest.raises(BadRequest, match=r"into 'S'\. Could not serialize value: a is NULL"):
        avro_record(source, (7, None, 1.5), known)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_ids": (None, 77)}, "Could not serialize value: no schema 77"),
        ({"columns": (A, Column(name="a b", type="INTEGER"))}, "Illegal character in: a b"),
    ],
)
def test_a_row_that_avro_cannot_have(changes: dict[str, object], message: str) -> None:
    source = msgspec.structs.replace(AVRO, **changes)
    row = tuple(None for _ in source.columns)
    with pytest.raises(BadRequest, match=message):
        avro_record(source, row, KnownSchemas())


def test_without_a_registry_that_answers() -> None:
    with pytest.raises(SchemaRegistryUnavailable):
        avro_record(AVRO, (7, "x", None), KnownSchemas(is_down=True))
    with pytest.raises(BadRequest, match=r"ksql\.schema\.registry\.url"):
        avro_record(AVRO, (7, "x", None), None)
