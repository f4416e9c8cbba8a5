"""A real registry and that of unit tests under one contract; and a real one that misbehaves."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from decimal import Decimal

import msgspec
import pytest
from tests.e2e import registry_server
from tests.e2e.registry_server import RegistryServer
from tests.known_schemas import KnownSchemas

from standpipe.adapters.schema_registry import RegistryConnection, SchemaRegistry
from standpipe.data.encoding import framed_values
from standpipe.data.query.record_rows import RecordRows, TopicRecord, schema_ids_of
from standpipe.model import Column, Source
from standpipe.node.worker.statements.insert_record import record_of
from standpipe.sql.analyzer import analyze
from standpipe.sql.context import Context
from standpipe.sql.plans import CreateSourcePlan, InsertValuesPlan, Plan
from standpipe.sql.schemas import avro_columns, json_columns
from standpipe.sql.schemas.registry import (
    RegisteredSchema,
    SchemaRefused,
    SchemaRegistryUnavailable,
    Schemas,
    UnknownSchema,
)
from standpipe.sql.syntax import parser


def created_source(plan: Plan) -> Source:
    assert isinstance(plan, CreateSourcePlan)
    return plan.source


ONE = '{"type":"record","name":"R","fields":[{"name":"id","type":"int"}]}'
COLUMNS = [
    Column(name="ID", type="BIGINT"),
    Column(name="TAGS", type="MAP<STRING, DECIMAL(5, 2)>"),
    Column(name="AT", type="STRUCT<`D` DATE, `T` TIMESTAMP>"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with registry_server.running(tmp_path_factory.mktemp("registry") / "log") as found:
        yield found


@pytest.fixture(params=["real", "in memory"])
def client(request: pytest.FixtureRequest, server: RegistryServer) -> Schemas:
    """The contract of both: unit tests use the second."""
    if request.param == "in memory":
        return KnownSchemas()
    return SchemaRegistry(RegistryConnection(urls=(server.url,)))


def test_a_schema_has_one_id_and_is_found_by_it(client: Schemas) -> None:
    """Also under a subject that must be escaped in a path."""
    made = client.register("ids/1-value", "AVRO", ONE)
    assert client.register("ids/1-value", "AVRO", ONE) == made
    other = client.register("ids/1-value", "AVRO", ONE.replace('"int"', '["null","int"]'))
    assert other != made
    assert client.by_id(made) == RegisteredSchema(made, "AVRO", ONE)
    assert client.latest("ids/1-value").schema_id == other


def test_another_client_finds_it(server: RegistryServer) -> None:
    """Nothing is kept from the call that registered it."""
    one, other = (SchemaRegistry(RegistryConnection(urls=(server.url,))) for _ in range(2))
    made = one.register("found-value", "AVRO", ONE)
    assert other.register("found-value", "AVRO", ONE) == made
    assert other.by_id(made) == RegisteredSchema(made, "AVRO", ONE)
    assert other.latest("found-value") == other.by_id(made)


def test_our_own_schema_is_one_to_the_registry(client: Schemas) -> None:
    text = avro_columns.schema_text(COLUMNS, avro_columns.VALUE_NAME, wraps=True)
    made = client.register("own-value", "AVRO", text)
    latest = client.latest("own-value")
    assert latest.schema_id == made
    found = avro_columns.inferred(
        framed_values.parsed(latest), is_key=False, keeps_case=False, unwraps=False
    )
    assert found == COLUMNS


def test_our_own_json_schema_is_one_to_the_registry(client: Schemas) -> None:
    text = json_columns.schema_text(COLUMNS, "shop.Order", wraps=True)
    made = client.register("own-json-value", "JSON", text)
    latest = client.latest("own-json-value")
    assert (latest.schema_id, latest.kind) == (made, "JSON")
    found = json_columns.inferred(
        framed_values.parsed_json(latest), is_key=False, keeps_case=False, unwraps=False
    )
    assert found == COLUMNS


def test_the_kind_of_a_schema(client: Schemas) -> None:
    text = '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}'
    made = client.register("json-value", "JSON", text)
    assert client.latest("json-value").kind == "JSON"
    assert client.by_id(made).kind == "JSON"


def test_a_row_of_insert_is_a_row_of_its_stream(client: Schemas) -> None:
    """Its schema is inferred again as the same columns, and a newer one reads with it."""
    (declared,) = parser.parse(
        "CREATE STREAM S (K INT KEY, A STRING, M MAP<STRING, DECIMAL(5, 2)>)"
        " WITH (KAFKA_TOPIC='rows', FORMAT='AVRO');"
    )
    context = Context(topics={"rows": 1}, schemas=client)
    source = created_source(analyze(declared, {}, context))
    row = (7, "x", {"k": Decimal("1.50")})
    plan = InsertValuesPlan(source=source, values=row, rowtime_ms=None)
    key, value = record_of(plan, client)
    (bare,) = parser.parse("CREATE STREAM S WITH (KAFKA_TOPIC='rows', FORMAT='AVRO');")
    inferred = created_source(analyze(bare, {}, context))
    assert [each.type for each in inferred.columns] == [each.type for each in source.columns]
    wider = msgspec.structs.replace(
        source, columns=(*source.columns, Column(name="Z", type="INTEGER"))
    )
    newer = InsertValuesPlan(source=wider, values=(*row, 9), rowtime_ms=None)
    records = [TopicRecord(*each, 5, ()) for each in ((key, value), record_of(newer, client))]
    assert len({schema_id for each in records for schema_id in schema_ids_of(source, each)}) == 3
    found = [RecordRows(inferred, client).row(each) for each in records]
    assert [each and tuple(each.cells[:3]) for each in found] == [row, row]


def test_a_row_of_insert_in_json_sr_is_a_row_of_its_stream(client: Schemas) -> None:
    """Its schemas are those of its columns; that a row is read needs no registry."""
    (declared,) = parser.parse(
        "CREATE STREAM S (K INT KEY, A STRING, M MAP<STRING, DECIMAL(5, 2)>)"
        " WITH (KAFKA_TOPIC='json-rows', FORMAT='JSON_SR');"
    )
    context = Context(topics={"json-rows": 1}, schemas=client)
    source = created_source(analyze(declared, {}, context))
    row = (7, "x", {"k": Decimal("1.50")})
    plan = InsertValuesPlan(source=source, values=row, rowtime_ms=None)
    key, value = record_of(plan, client)
    (bare,) = parser.parse("CREATE STREAM S WITH (KAFKA_TOPIC='json-rows', FORMAT='JSON_SR');")
    inferred = created_source(analyze(bare, {}, context))
    assert [each.type for each in inferred.columns] == [each.type for each in source.columns]
    ids = tuple(framed_values.schema_id_of(each) for each in (key, value))
    assert ids == inferred.schema_ids
    found = RecordRows(inferred).row(TopicRecord(key, value, 5, ()))
    assert found is not None
    assert tuple(found.cells[:3]) == row


def test_what_is_not_there(client: Schemas) -> None:
    with pytest.raises(UnknownSchema):
        client.by_id(2**31 - 1)
    with pytest.raises(UnknownSchema):
        client.latest("nobody-value")


def test_what_is_rejected(client: Schemas) -> None:
    with pytest.raises(SchemaRefused):
        client.register("bad-value", "AVRO", '{"type":"record"}')


def test_another_path_is_no_registry(server: RegistryServer) -> None:
    elsewhere = server.url.removesuffix(registry_server.PATH) + "/elsewhere"
    client = SchemaRegistry(RegistryConnection(urls=(elsewhere,)))
    with pytest.raises(SchemaRegistryUnavailable, match="also its path"):
        client.by_id(1)


def test_a_registry_that_hangs(server: RegistryServer) -> None:
    client = SchemaRegistry(RegistryConnection(urls=(server.url,)))
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(SchemaRegistryUnavailable, match="does not answer"):
            client.by_id(12345)
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
