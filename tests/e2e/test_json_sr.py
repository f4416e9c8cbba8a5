"""JSON_SR with a real registry, a real Kafka and a real node: written, read, inferred, broken."""

from __future__ import annotations

import json
import os
import signal

import pytest
from tests.e2e.registry_server import RegistryServer
from tests.e2e.test_avro import (
    COLUMNS,
    ROW,
    VALUES,
    broker,
    done,
    ksql,
    node,
    produce,
    registry,
    rows,
    server,
)
from tests.e2e.test_http2 import curl
from tests.e2e.test_push import EARLIEST, LINES, Push, push
from tests.e2e.test_serve import Node, ask, json_bytes
from tests.e2e.test_serve_inserts import lines as lines_of
from tests.e2e.test_serve_statements import consume

from standpipe.adapters.schema_registry import SchemaRegistry
from standpipe.data.encoding.framed_values import framed, unframed
from standpipe.local.cluster.broker import Broker

__all__ = ["broker", "node", "registry", "server"]  # fixtures


def test_a_row_of_every_type(node: Node, broker: Broker, registry: SchemaRegistry) -> None:
    """Declared columns: the schemas are registered by CREATE, and INSERT writes under them."""
    done(node, f"CREATE STREAM ALL_TYPES ({COLUMNS}) WITH (KAFKA_TOPIC='all', FORMAT='JSON_SR',"
               " PARTITIONS=1);")  # fmt: skip
    schemas = [registry.latest(f"all-{part}") for part in ("key", "value")]
    assert [each.kind for each in schemas] == ["JSON", "JSON"]
    done(node, f"INSERT INTO ALL_TYPES VALUES ({VALUES});")
    (record,) = consume(broker, "all", 1)
    (key_id, key), (value_id, value) = unframed(record.key()), unframed(record.value())
    assert [key_id, value_id] == [each.schema_id for each in schemas]
    assert (key, json.loads(value)["M"]) == (b"7", [{"key": "k", "value": 5}])
    assert rows(node, "SELECT * FROM ALL_TYPES;") == [ROW]
    with push(node, "SELECT * FROM ALL_TYPES EMIT CHANGES;", EARLIEST) as asked:
        assert asked.lines(2)[1] == ROW
    described = ksql(node, "DESCRIBE ALL_TYPES;").json[0]["sourceDescription"]
    assert (described["keyFormat"], described["valueFormat"]) == ("JSON_SR", "JSON_SR")


def test_print(node: Node) -> None:
    """Runs after the test of all types, whose topic it shows."""
    printed = Push(node, "PRINT 'all' FROM BEGINNING LIMIT 1;", "/query-stream", LINES)
    lines = [printed.reply.readline().decode() for _ in range(3)]
    printed.close()
    assert lines[0].startswith("Key format: ")
    assert "JSON_SR" in lines[0]
    assert lines[1].startswith("Value format: JSON_SR")
    assert '"S":"ü","X":"AAE="' in lines[2]


def test_rows_of_inserts_stream(node: Node) -> None:
    done(node, "CREATE STREAM STREAMED (K INT KEY, V STRING) WITH (KAFKA_TOPIC='streamed',"
               " FORMAT='JSON_SR', PARTITIONS=1);")  # fmt: skip
    body = lines_of({"target": "streamed"}, {"K": 1, "V": "a"}, {"K": 2, "V": None})
    line, answer = curl(node, "/inserts-stream", body=body)
    assert line == "2 200", answer
    assert [json.loads(ack)["status"] for ack in answer.splitlines()] == ["ok", "ok"]
    assert rows(node, "SELECT * FROM STREAMED;") == [[1, "a"], [2, None]]


ORDER = '{"type":"object","properties":{"orderId":{"type":"integer","connect.type":"int32"}%s}}'
NOTE = ',"note":{"oneOf":[{"type":"null"},{"type":"string"}]}'
SIZE = ',"size":{"type":"number"}'


def test_columns_are_inferred_and_schemas_evolve(
    node: Node, broker: Broker, registry: SchemaRegistry
) -> None:
    """No schema is asked for to read: an unknown one is as good. Left out is what is no JSON, has a
    value of another type, or no frame."""
    plain, noted, sized = (
        registry.register("orders-value", "JSON", text)
        for text in (ORDER % "", ORDER % NOTE, ORDER % SIZE)
    )
    done(node, "CREATE STREAM TOPIC_OF_ORDERS (V INT) WITH (KAFKA_TOPIC='orders',"
               " VALUE_FORMAT='JSON', PARTITIONS=1);")  # fmt: skip
    done(node, "CREATE STREAM ORDERS WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON_SR',"
               f" VALUE_SCHEMA_ID={noted});")  # fmt: skip
    unknown = framed(2**31 - 2, b'{"orderId":3}')
    good = (framed(plain, b'{"orderId":1}'), framed(noted, b'{"orderId":2,"note":"two"}'), unknown)
    bad = (framed(noted, b'{"orderId":'), framed(noted, b'{"orderId":"x"}'), b'{"orderId":9}')
    produce(broker, "orders", *good, *bad, framed(sized, b'{"orderId":4,"size":0.5}'))
    assert rows(node, "SELECT * FROM ORDERS;") == [[1, None], [2, "two"], [3, None], [4, None]]
    done(node, "INSERT INTO ORDERS (`orderId`, `note`) VALUES (5, 'five');")
    written = consume(broker, "orders", 8)[-1].value()
    assert written == framed(noted, b'{"orderId":5,"note":"five"}')
    done(node, "CREATE STREAM NEWEST WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON_SR');")
    assert rows(node, "SELECT ORDERID, SIZE FROM NEWEST;")[3] == [4, 0.5]


@pytest.mark.parametrize(
    ("statement", "status", "message"),
    [
        ("WITH (KAFKA_TOPIC='all', VALUE_FORMAT='JSON_SR', VALUE_SCHEMA_ID=2147483646)", 400,
         "with id 2147483646 does not exist in the Schema Registry"),
        ("WITH (KAFKA_TOPIC='all', VALUE_FORMAT='AVRO')", 400, "set VALUE_FORMAT to 'JSON_SR'"),
    ],
)  # fmt: skip
def test_refused(node: Node, statement: str, status: int, message: str) -> None:
    """Runs after the test of all types, whose topic it names."""
    reply = ksql(node, f"CREATE STREAM REFUSED {statement};")
    assert reply.status == status, reply.body
    assert message in str(reply.json["message"])


def test_a_registry_that_hangs(node: Node, broker: Broker, server: RegistryServer) -> None:
    """Records are read on; what needs a schema is refused."""
    done(node, "CREATE STREAM LATE (V BIGINT) WITH (KAFKA_TOPIC='late', VALUE_FORMAT='JSON_SR',"
               " PARTITIONS=1);")  # fmt: skip
    produce(broker, "late", framed(1, b'{"V":1}'))
    with push(node, "SELECT V FROM LATE EMIT CHANGES;", EARLIEST) as asked:
        assert asked.lines(2)[1] == [1]
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            produce(broker, "late", framed(2, b'{"V":2}'))
            assert asked.line() == [2]
            refused = ksql(node, "CREATE STREAM X WITH (KAFKA_TOPIC='late', FORMAT='JSON_SR');")
            assert (refused.status, refused.json["error_code"]) == (503, 50315), refused.body
            pulled = ask(node.port(), "/query", json_bytes({"ksql": "SELECT V FROM LATE;"}))
            assert (pulled.status, b"[2]" in pulled.body) == (200, True), pulled.body
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
