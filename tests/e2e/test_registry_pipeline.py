"""AVRO and JSON_SR through everything: a real registry, a real Kafka, nodes and a pipeline.

The records are written by our own writers, which `test_schema_registry.py` compares with a registry
of another make, and by Confluent's serializers (`confluent_serdes.py`).
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import confluent_kafka
import pytest
from tests.e2e import confluent_serdes, registry_server
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.registry_formats import AVRO, FORMATS, JSON_SR, RegistryFormat
from tests.e2e.registry_server import RegistryServer
from tests.e2e.test_push_tables import Followed
from tests.e2e.test_serve_statements import consume
from tests.e2e.topic_ends import end_offset

from standpipe.adapters.schema_registry import RegistryConnection, SchemaRegistry
from standpipe.data.encoding.framed_values import framed
from standpipe.local.demo.flights import Event
from standpipe.model import Column
from standpipe.sql.schemas.registry import RegisteredSchema

PROCESSING_LOG = "default_ksql_processing_log"
ORDER: Final = {"customer": "string", "amount": "long"}
#: one field more, before the others
NOTED: Final = {"note": "string?", **ORDER}
CUSTOMER: Final = {"town": "string?"}
COLUMNS: Final = {"customer": "STRING", "amount": "BIGINT", "note": "STRING", "town": "STRING"}
#: of a stream of orders
ORDERS: Final = "CUSTOMER STRING, AMOUNT BIGINT, NOTE STRING"

both_formats = pytest.mark.parametrize("of", FORMATS, ids=lambda of: of.name)


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
    """Writes the topics of one test, in one format."""

    def __init__(self, cluster: TestCluster, registry: SchemaRegistry, of: RegistryFormat) -> None:
        self.cluster, self.registry, self.of = cluster, registry, of
        self.at_ms = 1_700_000_000_000

    def schema(self, subject: str, text: str) -> RegisteredSchema:
        schema_id = self.registry.register(subject, self.of.kind, text)
        return RegisteredSchema(schema_id, self.of.kind, text)

    def key(self, topic: str, key: str) -> bytes:
        schema = self.schema(f"{topic}-key", self.of.text)
        return self.of.row(schema, [Column(name="K", type="STRING")], wraps=False)([key])

    def value(
        self, topic: str, properties: dict[str, str], *row: Any, name: str = "Order"
    ) -> bytes:
        """The value of a record: a property of the schema for each of `row`."""
        schema = self.schema(f"{topic}-value", self.of.schema(name, properties))
        columns = [Column(name=each, type=COLUMNS[each]) for each in properties]
        return self.of.row(schema, columns, wraps=True)(row)

    def send(self, topic: str, key: str, value: bytes | None) -> None:
        self.at_ms += 1000
        self.cluster.send(topic, [Event(self.key(topic, key), cast(Any, value), self.at_ms)])


@pytest.fixture
def producer(cluster: TestCluster, registry: SchemaRegistry, of: RegistryFormat) -> Producer:
    return Producer(cluster, registry, of)


def sampled(cluster: TestCluster, topic: str, count: int) -> Sequence[dict[str, Any]]:
    """What the processing log has of a topic, once there is so much."""

    broker = cluster.local.broker
    assert broker is not None

    def look() -> list[dict[str, Any]] | None:
        asker = confluent_kafka.Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "t"}
        )
        end = end_offset(asker, confluent_kafka.TopicPartition(PROCESSING_LOG, 0))
        asker.close()
        lines = [json.loads(each.value()) for each in consume(broker, PROCESSING_LOG, end)]
        found = [line for line in lines if line["topic"] == topic]
        return found if len(found) >= count else None

    found = wait_until(look, f"{count} samples of {topic}")
    assert found is not None
    return found


@both_formats
def test_an_aggregate(cluster: TestCluster, producer: Producer, of: RegistryFormat) -> None:
    """A newer schema, a broken record and an unknown id are in the middle."""
    topic = f"orders_{of.name}"
    cluster.topic(topic)
    producer.schema(f"{topic}-key", of.text)
    producer.schema(f"{topic}-value", of.schema("Order", ORDER))
    cluster.sql(
        f"CREATE STREAM ORDERS_{of.name} (K STRING KEY, {ORDERS})"
        f" WITH (KAFKA_TOPIC='{topic}', FORMAT='{of.name}');"
        f"CREATE TABLE SUMS_{of.name} WITH (FORMAT='JSON') AS SELECT CUSTOMER,"
        " SUM(AMOUNT) AS TOTAL, COUNT(*) AS N, LATEST_BY_OFFSET(NOTE) AS LAST"
        f" FROM ORDERS_{of.name} GROUP BY CUSTOMER EMIT CHANGES;"
    )
    rows = f"SELECT * FROM SUMS_{of.name} WHERE CUSTOMER = 'ada';"
    producer.send(topic, "a", producer.value(topic, ORDER, "ada", 1))
    cluster.wait_for_rows(rows, [["ada", 1, 1, None]])
    good = producer.value(topic, NOTED, "ten", "ada", 10)
    producer.send(topic, "a", good)
    producer.send(topic, "a", good[:-1])
    producer.send(topic, "a", framed(2**31 - 2, b"\x02"))
    producer.send(topic, "a", b'{"CUSTOMER": "ada"}')
    producer.send(topic, "a", producer.value(topic, ORDER, "ada", 100))
    cluster.wait_for_rows(rows, [["ada", 111, 3, "ten"]])
    bad = sampled(cluster, topic, 3)
    assert [line["reason"] for line in bad] == ["VALUE"] * 3
    assert len({line["value_base64"] for line in bad}) == 3


@both_formats
def test_a_stream_joined_with_a_table(
    cluster: TestCluster, producer: Producer, of: RegistryFormat
) -> None:
    stream, table = f"visits_{of.name}", f"customers_{of.name}"
    for topic in (stream, table):
        cluster.topic(topic)
    cluster.sql(
        f"CREATE TABLE CUSTOMERS_{of.name} (ID STRING PRIMARY KEY, TOWN STRING)"
        f" WITH (KAFKA_TOPIC='{table}', FORMAT='{of.name}');"
        f"CREATE STREAM VISITS_{of.name} (ID STRING KEY, {ORDERS})"
        f" WITH (KAFKA_TOPIC='{stream}', FORMAT='{of.name}');"
    )
    # before the query begins: its first batch then has all of the table
    for key, town in (("a", "Oxford"), ("b", "Bath")):
        producer.send(table, key, producer.value(table, CUSTOMER, town, name="Customer"))
    cluster.sql(
        f"CREATE TABLE TOWNS_{of.name} WITH (FORMAT='JSON') AS SELECT C.TOWN AS TOWN,"
        f" SUM(V.AMOUNT) AS TOTAL FROM VISITS_{of.name} V JOIN CUSTOMERS_{of.name} C"
        " ON V.ID = C.ID GROUP BY C.TOWN EMIT CHANGES;"
    )
    rows = f"SELECT * FROM TOWNS_{of.name} WHERE TOWN = '%s';"
    producer.send(stream, "a", producer.value(stream, ORDER, "x", 1))
    cluster.wait_for_rows(rows % "Oxford", [["Oxford", 1]])
    producer.send(stream, "a", producer.value(stream, NOTED, None, "x", 10))
    producer.send(stream, "b", producer.value(stream, ORDER, "x", 5))
    cluster.wait_for_rows(rows % "Oxford", [["Oxford", 11]])
    cluster.wait_for_rows(rows % "Bath", [["Bath", 5]])


@both_formats
def test_two_streams_joined(cluster: TestCluster, producer: Producer, of: RegistryFormat) -> None:
    """Into a third stream, which has their format; a push query of Spark sums it up."""
    asked, paid = f"asked_{of.name}", f"paid_{of.name}"
    for topic in (asked, paid):
        cluster.topic(topic)
    cluster.sql(
        f"CREATE STREAM ASKED_{of.name} (ID STRING KEY, {ORDERS})"
        f" WITH (KAFKA_TOPIC='{asked}', FORMAT='{of.name}');"
        f"CREATE STREAM PAID_{of.name} (ID STRING KEY, {ORDERS})"
        f" WITH (KAFKA_TOPIC='{paid}', FORMAT='{of.name}');"
        f"CREATE STREAM SETTLED_{of.name} AS SELECT A.ID AS ID, A.AMOUNT AS ASKED,"
        f" P.AMOUNT AS PAID FROM ASKED_{of.name} A JOIN PAID_{of.name} P WITHIN 1 HOUR"
        " ON A.ID = P.ID EMIT CHANGES;"
    )
    producer.send(asked, "a", producer.value(asked, ORDER, "ada", 10))
    producer.send(asked, "b", producer.value(asked, ORDER, "eve", 5))
    producer.send(paid, "a", producer.value(paid, NOTED, "first", "ada", 4))
    producer.send(paid, "a", producer.value(paid, ORDER, "ada", 6))
    rows = [["a", 10, 4], ["a", 10, 6]]
    cluster.wait_for_rows(f"SELECT ID, ASKED, PAID FROM SETTLED_{of.name};", rows)
    (described,) = cluster.sql(f"DESCRIBE SETTLED_{of.name};")
    shown = described["sourceDescription"]
    assert (shown["keyFormat"], shown["valueFormat"]) == (of.name, of.name)
    text = f"SELECT ID, SUM(PAID) AS S FROM SETTLED_{of.name} GROUP BY ID EMIT CHANGES;"
    followed = Followed(cluster, text)
    followed.rows_until({"columns": ["a", 10]})
    producer.send(paid, "b", producer.value(paid, ORDER, "eve", 5))
    followed.rows_until({"columns": ["b", 5]})
    followed.close()


@both_formats
def test_a_source_table(cluster: TestCluster, producer: Producer, of: RegistryFormat) -> None:
    """Rows are looked up by a key in Kafka's own format; a record without a value removes one."""
    topic = f"towns_{of.name}"
    cluster.topic(topic)
    cluster.sql(
        f"CREATE SOURCE TABLE AT_HOME_{of.name} (ID STRING PRIMARY KEY, TOWN STRING) WITH"
        f" (KAFKA_TOPIC='{topic}', VALUE_FORMAT='{of.name}');"
    )
    rows = f"SELECT * FROM AT_HOME_{of.name} WHERE ID = '%s';"
    for at_ms, key in enumerate((b"a", b"b"), 1_700_000_000_000):
        town = producer.value(topic, CUSTOMER, f"town of {key.decode()}", name="Customer")
        cluster.send(topic, [Event(key, town, at_ms)])
    cluster.wait_for_rows(rows % "b", [["b", "town of b"]])
    cluster.send(topic, [Event(b"a", cast(Any, None), 1_700_000_001_000)])
    cluster.wait_for_rows(rows % "a", [])


@pytest.mark.parametrize("of", [AVRO], ids=["AVRO"])
def test_while_the_registry_hangs_no_record_is_lost(
    cluster: TestCluster, producer: Producer, server: RegistryServer, of: RegistryFormat
) -> None:
    """Known schemas go on. A new one stops the query, which says why, and goes on by itself."""
    topic = "late"
    cluster.topic(topic)
    cluster.sql(
        f"CREATE STREAM LATE (K STRING KEY, {ORDERS}) WITH (KAFKA_TOPIC='{topic}',"
        f" FORMAT='{of.name}');"
        "CREATE TABLE LATE_SUMS WITH (FORMAT='JSON') AS SELECT CUSTOMER, SUM(AMOUNT) AS TOTAL"
        " FROM LATE GROUP BY CUSTOMER EMIT CHANGES;"
    )
    first = producer.value(topic, ORDER, "ada", 1)
    # equal schemas have one id, whatever their subjects: another test's would be known
    second = producer.value(topic, NOTED, None, "ada", 10, name="Late")
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


@pytest.mark.parametrize("of", [JSON_SR], ids=["JSON_SR"])
def test_while_the_registry_hangs_records_in_json_sr_are_read(
    cluster: TestCluster, producer: Producer, server: RegistryServer, of: RegistryFormat
) -> None:
    """Under new schemas, too, and by a driver that starts meanwhile: none is asked for."""
    topic = "late_json"
    cluster.topic(topic)
    cluster.sql(
        f"CREATE STREAM LATE_JSON (K STRING KEY, {ORDERS}) WITH (KAFKA_TOPIC='{topic}',"
        f" FORMAT='{of.name}');"
        "CREATE TABLE LATE_JSON_SUMS AS SELECT CUSTOMER, SUM(AMOUNT) AS TOTAL"
        " FROM LATE_JSON GROUP BY CUSTOMER EMIT CHANGES;"
    )
    key, first = producer.key(topic, "a"), producer.value(topic, ORDER, "ada", 1)
    second = producer.value(topic, NOTED, None, "ada", 10, name="Late")
    cluster.send(topic, [Event(key, first, producer.at_ms)])
    rows = "SELECT * FROM LATE_JSON_SUMS WHERE CUSTOMER = 'ada';"
    cluster.wait_for_rows(rows, [["ada", 1]])
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        cluster.send(topic, [Event(key, second, producer.at_ms + 1)])
        cluster.wait_for_rows(rows, [["ada", 11]])
        cluster.local.kill_pipeline()
        cluster.send(topic, [Event(key, first, producer.at_ms + 2)])
        cluster.wait_for_rows(rows, [["ada", 12]])
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


@both_formats
def test_what_confluents_serializer_writes(
    cluster: TestCluster, server: RegistryServer, of: RegistryFormat
) -> None:
    """Keys and values. It registers their schemas, of which the columns of values are inferred."""
    topic = f"theirs_{of.name}"
    cluster.topic(topic)
    orders = [("ada", 7), ("eve", 5), ("ada", 30)]
    schema = of.schema("Order", ORDER)
    written = [(topic, "key", of.text, customer) for customer, _ in orders]
    written += [
        (topic, "value", schema, {"customer": customer, "amount": amount})
        for customer, amount in orders
    ]
    made = confluent_serdes.serialized(server.url, written, of.kind)
    cluster.sql(
        f"CREATE STREAM THEIRS_{of.name} (K STRING KEY) WITH (KAFKA_TOPIC='{topic}',"
        f" KEY_FORMAT='{of.name}', VALUE_FORMAT='{of.name}');"
        f"CREATE TABLE THEIR_SUMS_{of.name} WITH (FORMAT='JSON') AS SELECT K, SUM(AMOUNT) AS TOTAL,"
        f" LATEST_BY_OFFSET(CUSTOMER) AS CUSTOMER FROM THEIRS_{of.name} GROUP BY K EMIT CHANGES;"
    )
    pairs = zip(made[: len(orders)], made[len(orders) :], strict=True)
    cluster.send(topic, [Event(*pair, 1_700_000_000_000 + at) for at, pair in enumerate(pairs)])
    for customer, total in (("ada", 37), ("eve", 5)):
        row = [customer, total, customer]
        rows = f"SELECT * FROM THEIR_SUMS_{of.name} WHERE K = '{customer}';"
        cluster.wait_for_rows(rows, [row])
