"""AVRO with a real registry, a real Kafka and a real node: written, read, inferred, and broken."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import msgspec
import pytest
from tests.e2e import registry_server
from tests.e2e.forked import fork
from tests.e2e.registry_server import RegistryServer
from tests.e2e.test_http2 import curl
from tests.e2e.test_push import EARLIEST, LINES, Push, eventually, push
from tests.e2e.test_serve import Cluster, Node, Reply, ask, json_bytes
from tests.e2e.test_serve_inserts import lines as lines_of
from tests.e2e.test_serve_statements import consume

from standpipe.adapters.schema_registry import RegistryConnection, SchemaRegistry
from standpipe.data.encoding import framed_values
from standpipe.local.cluster.broker import Broker
from standpipe.model import Column
from standpipe.node import configuration
from standpipe.sql.schemas.registry import RegisteredSchema

COLUMNS = (
    "K INT KEY, T BOOLEAN, L BIGINT, D DOUBLE, P DECIMAL(6, 2), S STRING, X BYTES, DAY DATE,"
    " OCLOCK TIME, AT TIMESTAMP, A ARRAY<INT>, M MAP<STRING, BIGINT>, R STRUCT<F INT>"
)
VALUES = (
    "7, true, 9007199254740993, 1.5e0, 1.10, 'ü', 'AAE=', '2020-01-02', '12:30:01',"
    " '2020-01-02T03:04:05.678', ARRAY[1, 2], MAP('k' := CAST(5 AS BIGINT)), STRUCT(F := 1)"
)
ROW = [
    *(7, True, 9007199254740993, 1.5, 1.10, "ü", "AAE=", "2020-01-02", "12:30:01"),
    *("2020-01-02T03:04:05.678", [1, 2], {"k": 5}, {"F": 1}),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with registry_server.running(tmp_path_factory.mktemp("registry") / "log") as found:
        yield found


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, broker: Broker, server: RegistryServer
) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("avro")
    keys: dict[str, Any] = {"ksql.schema.registry.url": server.url}
    made = Cluster.make(folder, 1, **keys).nodes[0]
    made.config = msgspec.structs.replace(made.config, bootstrap_servers=broker.bootstrap_servers)
    node_file = Path(made.config.data_dir) / "node.json"
    configuration.save(node_file, made.config)
    log = made.config.paths.logs / "control.log"
    control = fork("standpipe.node.controller.main", [f"--node-file={node_file}"], log)
    try:
        made.start(0)
        made.wait_ready()
        eventually(lambda: ask(made.port(), "/info").status == 200, "it has a map")
        yield made
    finally:
        made.stop()
        control.terminate()
        control.wait(5)


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(RegistryConnection(urls=(server.url,)))


def ksql(node: Node, text: str) -> Reply:
    return ask(node.port(), "/ksql", json_bytes({"ksql": text}))


def done(node: Node, text: str) -> None:
    """As clients do, it asks again after 503: a registry that has just begun loads its classes
    with its first request, for over 10 s (`ANSWER_S` in `adapters/schema_registry.py`) on a machine
    with other work."""
    reply = ksql(node, text)
    for _ in range(5):
        if reply.status == 503:
            time.sleep(float(reply.headers["retry-after"]))
            reply = ksql(node, text)
    assert reply.status == 200, reply.body


def rows(node: Node, text: str) -> list[Any]:
    """Of a pull query: its rows."""
    reply = ask(node.port(), "/query", json_bytes({"ksql": text}))
    assert reply.status == 200, reply.body
    return [each["row"]["columns"] for each in json.loads(reply.body) if "row" in each]


def produce(broker: Broker, topic: str, *values: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def test_a_row_of_every_type(node: Node, broker: Broker, registry: SchemaRegistry) -> None:
    """Declared columns: the schemas are registered by CREATE, and INSERT writes under them."""
    done(node, f"CREATE STREAM ALL_TYPES ({COLUMNS}) WITH (KAFKA_TOPIC='all', FORMAT='AVRO',"
               " PARTITIONS=1);")  # fmt: skip
    schemas = [registry.latest(f"all-{part}") for part in ("key", "value")]
    done(node, f"INSERT INTO ALL_TYPES VALUES ({VALUES});")
    (record,) = consume(broker, "all", 1)
    ids = [framed_values.schema_id_of(each) for each in (record.key(), record.value())]
    assert ids == [each.schema_id for each in schemas]
    assert rows(node, "SELECT * FROM ALL_TYPES;") == [ROW]
    with push(node, "SELECT * FROM ALL_TYPES EMIT CHANGES;", EARLIEST) as asked:
        assert asked.lines(2)[1] == ROW
    printed = Push(node, "PRINT 'all' FROM BEGINNING LIMIT 1;", "/query-stream", LINES)
    lines = [printed.reply.readline().decode() for _ in range(3)]
    printed.close()
    assert lines[0].startswith("Key format: ")
    assert "AVRO" in lines[0]
    assert lines[1].startswith("Value format: AVRO")
    assert '"S": "ü", "X": "' in lines[2]


def test_rows_of_inserts_stream(node: Node) -> None:
    done(node, "CREATE STREAM STREAMED (K INT KEY, V STRING) WITH (KAFKA_TOPIC='streamed',"
               " FORMAT='AVRO', PARTITIONS=1);")  # fmt: skip
    body = lines_of({"target": "streamed"}, {"K": 1, "V": "a"}, {"K": 2, "V": None})
    line, answer = curl(node, "/inserts-stream", body=body)
    assert line == "2 200", answer
    assert [json.loads(ack)["status"] for ack in answer.splitlines()] == ["ok", "ok"]
    assert rows(node, "SELECT * FROM STREAMED;") == [[1, "a"], [2, None]]


ORDER = '{"type":"record","name":"Order","fields":[{"name":"orderId","type":"int"}%s]}'
NOTE = ',{"name":"note","type":["null","string"],"default":null}'
SIZE = ',{"name":"size","type":"double"}'


def written(schema: RegisteredSchema, *row: Any) -> bytes:
    """A row as some producer writes it: orderId, then what the schema has beside it."""
    columns = [Column(name="orderId", type="INTEGER"), Column(name="note", type="STRING")]
    if "size" in schema.text:
        columns[1] = Column(name="size", type="DOUBLE")
    return framed_values.avro_row(schema, columns[: len(row)], wraps=True)(row)


def test_columns_are_inferred_and_schemas_evolve(
    node: Node, broker: Broker, registry: SchemaRegistry
) -> None:
    """What no schema can read is left out: an unknown one, a broken value, JSON."""
    plain, noted, sized = (
        RegisteredSchema(registry.register("orders-value", "AVRO", text), "AVRO", text)
        for text in (ORDER % "", ORDER % NOTE, ORDER % SIZE)
    )
    done(node, "CREATE STREAM TOPIC_OF_ORDERS (V INT) WITH (KAFKA_TOPIC='orders',"
               " VALUE_FORMAT='JSON', PARTITIONS=1);")  # fmt: skip
    done(node, "CREATE STREAM ORDERS WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='AVRO',"
               f" VALUE_SCHEMA_ID={noted.schema_id});")  # fmt: skip
    unknown = framed_values.framed(2**31 - 2, b"\x02")
    values = (written(plain, 1), written(noted, 2, "two"), unknown, written(noted, 3, None)[:-1])
    produce(broker, "orders", *values, b"{}", written(sized, 4, 0.5))
    assert rows(node, "SELECT * FROM ORDERS;") == [[1, None], [2, "two"], [4, None]]
    done(node, "INSERT INTO ORDERS (`orderId`, `note`) VALUES (5, 'five');")
    assert rows(node, "SELECT `note` FROM ORDERS;")[-1] == ["five"]
    assert framed_values.schema_id_of(consume(broker, "orders", 7)[-1].value()) == noted.schema_id
    done(node, "CREATE STREAM NEWEST WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='AVRO');")
    assert rows(node, "SELECT ORDERID, SIZE FROM NEWEST;")[2] == [4, 0.5]


@pytest.mark.parametrize(
    ("statement", "status", "message"),
    [
        ("WITH (KAFKA_TOPIC='all', VALUE_FORMAT='AVRO', VALUE_SCHEMA_ID=2147483646)", 400,
         "with id 2147483646 does not exist in the Schema Registry"),
        ("(V INT) WITH (KAFKA_TOPIC='all', VALUE_FORMAT='PROTOBUF')", 400, "PROTOBUF"),
    ],
)  # fmt: skip
def test_refused(node: Node, statement: str, status: int, message: str) -> None:
    """Runs after the test of all types, whose topic it names."""
    reply = ksql(node, f"CREATE STREAM REFUSED {statement};")
    assert reply.status == status, reply.body
    assert message in str(reply.json["message"])


def test_a_registry_that_hangs(
    node: Node, broker: Broker, server: RegistryServer, registry: SchemaRegistry
) -> None:
    """Known schemas go on; what needs a new one waits, or is refused, and then goes on."""
    text = '{"type":"record","name":"Late","fields":[{"name":"V","type":"int"}]}'
    first = RegisteredSchema(registry.register("late-value", "AVRO", text), "AVRO", text)
    newer = text.replace('"int"', '"long"')
    second = RegisteredSchema(registry.register("late-value", "AVRO", newer), "AVRO", newer)
    done(node, "CREATE STREAM LATE (V BIGINT) WITH (KAFKA_TOPIC='late', VALUE_FORMAT='AVRO',"
               " PARTITIONS=1);")  # fmt: skip
    integer, long_ = Column(name="V", type="INTEGER"), Column(name="V", type="BIGINT")
    produce(broker, "late", framed_values.avro_row(first, [integer], wraps=True)([1]))
    with push(node, "SELECT V FROM LATE EMIT CHANGES;", EARLIEST) as asked:
        assert asked.lines(2)[1] == [1]
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            produce(broker, "late", framed_values.avro_row(first, [integer], wraps=True)([2]))
            assert asked.line() == [2]
            produce(broker, "late", framed_values.avro_row(second, [long_], wraps=True)([3]))
            refused = ksql(node, "CREATE STREAM X WITH (KAFKA_TOPIC='late', VALUE_FORMAT='AVRO');")
            assert (refused.status, refused.json["error_code"]) == (503, 50315), refused.body
            pulled = ask(node.port(), "/query", json_bytes({"ksql": "SELECT V FROM LATE;"}))
            assert b"50315" in pulled.body, pulled.body
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        assert asked.line() == [3]
    assert rows(node, "SELECT V FROM LATE;") == [[1], [2], [3]]
