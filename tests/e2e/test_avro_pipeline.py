"""AVRO through everything: a real registry, a real Kafka, nodes and a pipeline.

The records are written by our own writer, which `test_schema_registry.py` compares with a registry
of another make, and by Confluent's serializer (`confluent_avro.py`).
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any, cast

import confluent_kafka
import pytest
from tests.e2e import confluent_avro, registry_server
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.registry_server import RegistryServer
from tests.e2e.test_serve_statements import consume

from standpipe.adapters.schema_registry import RegistryConnection, SchemaRegistry
from standpipe.data.encoding.framed_values import avro_row, framed
from standpipe.local.demo.flights import Event
from standpipe.model import Column
from standpipe.sql.schemas.registry import RegisteredSchema

PROCESSING_LOG = "default_ksql_processing_log"
KEY = '"string"'
ORDER = (
    '{"type":"record","name":"Order","namespace":"shop","fields":['
    '{"name":"customer","type":"string"},{"name":"amount","type":"long"}%s]}'
)
#: one field more, before the others
NOTED = (
    '{"type":"record","name":"Order","namespace":"shop","fields":['
    '{"name":"note","type":["null","string"],"default":null},{"name":"amount","type":"long"},'
    '{"name":"customer","type":"string"}]}'
)
CUSTOMER = '{"type":"record","name":"Customer","fields":[{"name":"town","type":["null","string"]}]}'
CUSTOMER_COLUMN, AMOUNT, NOTE, TOWN = (
    Column(name=name, type=of)
    for name, of in (("customer", "STRING"), ("amount", "BIGINT"), ("note", "STRING"),
                     ("town", "STRING"))
)  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    with registry_server.running(tmp_path_factory.mktemp("registry") / "log") as found:
        yield found


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, server: RegistryServer
) -> Iterator[TestCluster]:
    config = {"ksql.schema.registry.url": server.url}
    running = start(tmp_path_factory.mktemp("cluster"), nodes=1, config=config)
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(RegistryConnection(urls=(server.url,)), unknown_s=0.0)


class Producer:
    """Writes the topics of one test."""

    def __init__(self, cluster: TestCluster, registry: SchemaRegistry) -> None:
        self.cluster, self.registry, self.at_ms = cluster, registry, 1_700_000_000_000

    def schema(self, subject: str, text: str) -> RegisteredSchema:
        return RegisteredSchema(self.registry.register(subject, "AVRO", text), "AVRO", text)

    def key(self, topic: str, key: str) -> bytes:
        schema = self.schema(f"{topic}-key", KEY)
        return avro_row(schema, [Column(name="K", type="STRING")], wraps=False)([key])

    def send(self, topic: str, key: str, value: bytes | None) -> None:
        self.at_ms += 1000
        self.cluster.send(topic, [Event(self.key(topic, key), cast(Any, value), self.at_ms)])

    def order(self, topic: str, text: str, *row: Any) -> bytes:
        columns = [CUSTOMER_COLUMN, AMOUNT, *([NOTE] if NOTE.name in text else [])]
        return avro_row(self.schema(f"{topic}-value", text), columns, wraps=True)(row)


@pytest.fixture
def producer(cluster: TestCluster, registry: SchemaRegistry) -> Producer:
    return Producer(cluster, registry)


def sampled(cluster: TestCluster, topic: str, count: int) -> Sequence[dict[str, Any]]:
    """What the processing log has of a topic, once there is so much."""

    broker = cluster.local.broker
    assert broker is not None

    def look() -> list[dict[str, Any]] | None:
        asker = confluent_kafka.Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "t"}
        )
        _, end = asker.get_watermark_offsets(confluent_kafka.TopicPartition(PROCESSING_LOG, 0))
        asker.close()
        lines = [json.loads(each.value()) for each in consume(broker, PROCESSING_LOG, end)]
        found = [line for line in lines if line["topic"] == topic]
        return found if len(found) >= count else None

    found = wait_until(look, f"{count} samples of {topic}")
    assert found is not None
    return found


def test_an_aggregate_over_avro(cluster: TestCluster, producer: Producer) -> None:
    """Columns are inferred; a newer schema, a broken record and an unknown id are in the middle."""
    topic = "orders"
    cluster.topic(topic)
    producer.schema(f"{topic}-key", KEY)
    producer.schema(f"{topic}-value", ORDER % "")
    cluster.sql(
        "CREATE STREAM ORDERS (K STRING KEY, CUSTOMER STRING, AMOUNT BIGINT, NOTE STRING)"
        f" WITH (KAFKA_TOPIC='{topic}', FORMAT='AVRO');"
        "CREATE TABLE SUMS WITH (FORMAT='JSON') AS SELECT CUSTOMER, SUM(AMOUNT) AS TOTAL,"
        " COUNT(*) AS N, LATEST_BY_OFFSET(NOTE) AS LAST FROM ORDERS GROUP BY CUSTOMER"
        " EMIT CHANGES;"
    )
    producer.send(topic, "a", producer.order(topic, ORDER % "", "ada", 1))
    cluster.wait_for_rows("SELECT * FROM SUMS WHERE CUSTOMER = 'ada';", [["ada", 1, 1, None]])
    good = producer.order(topic, NOTED, "ada", 10, "ten")
    producer.send(topic, "a", good)
    producer.send(topic, "a", good[:-1])
    producer.send(topic, "a", framed(2**31 - 2, b"\x02"))
    producer.send(topic, "a", b'{"CUSTOMER": "ada"}')
    producer.send(topic, "a", producer.order(topic, ORDER % "", "ada", 100))
    cluster.wait_for_rows("SELECT * FROM SUMS WHERE CUSTOMER = 'ada';", [["ada", 111, 3, "ten"]])
    bad = sampled(cluster, topic, 3)
    assert [line["reason"] for line in bad] == ["VALUE"] * 3
    assert len({line["value_base64"] for line in bad}) == 3


def test_a_stream_joined_with_a_table_both_in_avro(
    cluster: TestCluster, producer: Producer
) -> None:
    stream, table = "visits", "customers"
    for topic in (stream, table):
        cluster.topic(topic)
    town = producer.schema(f"{table}-value", CUSTOMER)
    cluster.sql(
        f"CREATE TABLE CUSTOMERS (ID STRING PRIMARY KEY, TOWN STRING) WITH (KAFKA_TOPIC='{table}',"
        " FORMAT='AVRO');"
        "CREATE STREAM VISITS (ID STRING KEY, CUSTOMER STRING, AMOUNT BIGINT, NOTE STRING)"
        f" WITH (KAFKA_TOPIC='{stream}', FORMAT='AVRO');"
    )
    # before the query begins: its first batch then has all of the table
    write = avro_row(town, [TOWN], wraps=True)
    producer.send(table, "a", write(["Oxford"]))
    producer.send(table, "b", write(["Bath"]))
    cluster.sql(
        "CREATE TABLE TOWNS WITH (FORMAT='JSON') AS SELECT C.TOWN AS TOWN, SUM(V.AMOUNT) AS TOTAL"
        " FROM VISITS V JOIN CUSTOMERS C ON V.ID = C.ID GROUP BY C.TOWN EMIT CHANGES;"
    )
    producer.send(stream, "a", producer.order(stream, ORDER % "", "x", 1))
    cluster.wait_for_rows("SELECT * FROM TOWNS WHERE TOWN = 'Oxford';", [["Oxford", 1]])
    producer.send(stream, "a", producer.order(stream, NOTED, "x", 10, None))
    producer.send(stream, "b", producer.order(stream, ORDER % "", "x", 5))
    cluster.wait_for_rows("SELECT * FROM TOWNS WHERE TOWN = 'Oxford';", [["Oxford", 11]])
    cluster.wait_for_rows("SELECT * FROM TOWNS WHERE TOWN = 'Bath';", [["Bath", 5]])


def test_a_source_table_in_avro(cluster: TestCluster, producer: Producer) -> None:
    """Rows are looked up by a key in Kafka's own format; a record without a value removes one."""
    topic = "towns"
    cluster.topic(topic)
    town = producer.schema(f"{topic}-value", CUSTOMER)
    cluster.sql(
        f"CREATE SOURCE TABLE AT_HOME (ID STRING PRIMARY KEY, TOWN STRING) WITH"
        f" (KAFKA_TOPIC='{topic}', VALUE_FORMAT='AVRO');"
    )
    write = avro_row(town, [TOWN], wraps=True)
    for at_ms, key in enumerate((b"a", b"b"), 1_700_000_000_000):
        cluster.send(topic, [Event(key, write([f"town of {key.decode()}"]), at_ms)])
    cluster.wait_for_rows("SELECT * FROM AT_HOME WHERE ID = 'b';", [["b", "town of b"]])
    cluster.send(topic, [Event(b"a", cast(Any, None), 1_700_000_001_000)])
    cluster.wait_for_rows("SELECT * FROM AT_HOME WHERE ID = 'a';", [])


def test_while_the_registry_hangs_no_record_is_lost(
    cluster: TestCluster, producer: Producer, server: RegistryServer
) -> None:
    """Known schemas go on. A new one stops the query, which says why, and goes on by itself."""
    topic = "late"
    cluster.topic(topic)
    cluster.sql(
        "CREATE STREAM LATE (K STRING KEY, CUSTOMER STRING, AMOUNT BIGINT, NOTE STRING)"
        f" WITH (KAFKA_TOPIC='{topic}', FORMAT='AVRO');"
        "CREATE TABLE LATE_SUMS WITH (FORMAT='JSON') AS SELECT CUSTOMER, SUM(AMOUNT) AS TOTAL"
        " FROM LATE GROUP BY CUSTOMER EMIT CHANGES;"
    )
    first = producer.order(topic, ORDER % "", "ada", 1)
    # equal schemas have one id, whatever their subjects: another test's would be known
    second = producer.order(topic, NOTED.replace('"shop"', '"late"'), "ada", 10, None)
    producer.send(topic, "a", first)
    rows = "SELECT * FROM LATE_SUMS WHERE CUSTOMER = 'ada';"
    cluster.wait_for_rows(rows, [["ada", 1]])
    key = producer.key(topic, "a")
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        cluster.send(topic, [Event(key, first, producer.at_ms + 1)])
        cluster.wait_for_rows(rows, [["ada", 2]])
        cluster.send(topic, [Event(key, second, producer.at_ms + 2)])
        wait_until(
            lambda: "SCHEMA_REGISTRY_UNAVAILABLE" in json.dumps(cluster.sql("SHOW QUERIES;")),
            "the query says that the registry is away",
        )
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    cluster.wait_for_rows(rows, [["ada", 12]])


def test_what_confluents_serializer_writes(cluster: TestCluster, server: RegistryServer) -> None:
    """Keys and values. It registers their schemas, of which the columns of values are inferred."""
    topic = "theirs"
    cluster.topic(topic)
    orders = [("ada", 7), ("eve", 5), ("ada", 30)]
    written = [(topic, "key", KEY, customer) for customer, _ in orders]
    written += [
        (topic, "value", ORDER % "", {"customer": customer, "amount": amount})
        for customer, amount in orders
    ]
    made = confluent_avro.serialized(server.url, written)
    cluster.sql(
        f"CREATE STREAM THEIRS (K STRING KEY) WITH (KAFKA_TOPIC='{topic}', KEY_FORMAT='AVRO',"
        " VALUE_FORMAT='AVRO');"
        "CREATE TABLE THEIR_SUMS WITH (FORMAT='JSON') AS SELECT K, SUM(AMOUNT) AS TOTAL,"
        " LATEST_BY_OFFSET(CUSTOMER) AS CUSTOMER FROM THEIRS GROUP BY K EMIT CHANGES;"
    )
    pairs = zip(made[: len(orders)], made[len(orders) :], strict=True)
    cluster.send(topic, [Event(*pair, 1_700_000_000_000 + at) for at, pair in enumerate(pairs)])
    for customer, total in (("ada", 37), ("eve", 5)):
        row = [customer, total, customer]
        cluster.wait_for_rows(f"SELECT * FROM THEIR_SUMS WHERE K = '{customer}';", [row])
