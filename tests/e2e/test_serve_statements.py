"""POST /ksql with a real control process and a real Kafka: what is logged, written and shown."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import msgspec
import pytest
from tests.e2e.forked import fork
from tests.e2e.test_serve import Cluster, Node, Reply, ask, json_bytes

from standpipe.data.encoding.store_keys import partition_of
from standpipe.local.cluster.broker import Broker
from standpipe.node import configuration

pytestmark = pytest.mark.e2e

CREATE = (
    "CREATE STREAM S1 (ID STRING KEY, N BIGINT, PRICE DECIMAL(6, 2)) "
    "WITH (KAFKA_TOPIC='s1', VALUE_FORMAT='JSON', PARTITIONS=4);"
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[Node]:
    """A node of control and one worker."""
    cluster = Cluster.make(tmp_path_factory.mktemp("statements"), 1)
    made = cluster.nodes[0]
    made.config = msgspec.structs.replace(made.config, bootstrap_servers=broker.bootstrap_servers)
    node_file = Path(made.config.data_dir) / "node.json"
    configuration.save(node_file, made.config)
    log = made.config.paths.logs / "control.log"
    control = fork("standpipe.node.controller.main", [f"--node-file={node_file}"], log)
    try:
        made.start()
        made.wait_ready()
        until = time.monotonic() + 60
        while ask(made.port(), "/info").status != 200:
            assert time.monotonic() < until
            time.sleep(0.05)
        yield made
    finally:
        made.stop()
        control.terminate()
        control.wait(60)


def ksql(node: Node, text: str) -> Reply:
    return ask(node.port(), "/ksql", json_bytes({"ksql": text}))


def consume(broker: Broker, topic: str, count: int) -> list[Any]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "t",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    partitions = consumer.list_topics(timeout=60).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])
    found: list[Any] = []
    until = time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        found += consumer.consume(count, timeout=0.2)
    consumer.close()
    return found


def test_statements(node: Node, broker: Broker) -> None:
    """One request creates, fills and shows: every statement sees those before it."""
    inserts = "".join(
        f"INSERT INTO S1 (ROWTIME, ID, N, PRICE) VALUES (1000, 'k{i}', {i}, 1.50);"
        for i in range(8)
    )
    reply = ksql(node, f"{CREATE} {inserts} SHOW STREAMS; DESCRIBE S1 EXTENDED;")
    assert reply.status == 200, reply.body
    entities = json.loads(reply.body)
    assert [entity["@type"] for entity in entities] == [
        "currentStatus",
        "streams",
        "sourceDescription",
    ]
    assert entities[0]["commandId"] == "stream/S1/create"
    assert entities[0]["commandStatus"]["status"] == "SUCCESS"
    assert [stream["name"] for stream in entities[1]["streams"]] == ["S1"]
    assert ask(node.port(), "/status/stream/S1/create").json["status"] == "SUCCESS"

    records = consume(broker, "s1", 8)
    assert {record.key(): json.loads(record.value()) for record in records} == {
        b"k%d" % i: {"N": i, "PRICE": 1.5} for i in range(8)
    }
    assert all(b'"PRICE":1.50' in record.value() for record in records), "scale is kept"
    for record in records:
        assert record.partition() == partition_of(record.key(), 4)
        assert record.timestamp()[1] == 1000


def test_same_name_again(node: Node) -> None:
    reply = ksql(node, CREATE)
    assert (reply.status, reply.json["error_code"]) == (400, 40001)
    assert "already exists" in str(reply.json["message"])


def test_all_or_nothing(node: Node) -> None:
    other = CREATE.replace("S1", "S2").replace("s1", "s2")
    reply = ksql(node, f"{other} {other}")
    assert reply.status == 400
    assert reply.json["entities"] == []
    names = [s["name"] for s in json.loads(ksql(node, "SHOW STREAMS;").body)[0]["streams"]]
    assert "S2" not in names


GOOD = (
    "CREATE STREAM X (ID STRING KEY, N BIGINT) "
    "WITH (KAFKA_TOPIC='x', VALUE_FORMAT='JSON', PARTITIONS=2);"
)
#: each is wrong at its end, after all that could have been begun
WRONG = (
    "CREATE TABLE Y AS SELECT ID, COUNT(*) FROM X GROUP BY NOBODY;",
    "CREATE TABLE Y AS SELECT ID, NO_SUCH(N) FROM X GROUP BY ID;",
    "CREATE TABLE Y AS SELECT ID, SUM(ID) FROM X GROUP BY ID;",
    "CREATE TABLE Y AS SELECT N, COUNT(*) FROM X GROUP BY ID;",
    "CREATE STREAM Y WITH (PARTITIONS=0) AS SELECT * FROM X;",
    "CREATE STREAM Y WITH (VALUE_FORMAT='PROTOBUF') AS SELECT * FROM X;",
    "CREATE STREAM Y AS SELECT ID, N / 'a' AS Q FROM X;",
    "CREATE STREAM Y AS SELECT * FROM X JOIN NOWHERE WITHIN 1 HOUR ON X.ID = NOWHERE.ID;",
    "CREATE STREAM Y AS SELECT reflect('java.lang.System', 'exit', 1) AS Q FROM X;",
    "INSERT INTO X SELECT N, ID FROM X;",
    "INSERT INTO X (ID, NOBODY) VALUES ('a', 1);",
    "DROP STREAM NOBODY;",
    "CREATE STREAM Y AS SELECT * FROM X; CREATE STREAM Y AS SELECT * FROM X;",
    "CREATE TABLE Y AS SELECT ID, COUNT(*) AS C FROM X GROUP BY ID; SELECT;",
)


def everything(node: Node, broker: Broker) -> tuple[str, set[str]]:
    """What is there: sources, queries and topics; the statements' numbers aside, and Kafka's own
    topics, which it makes when a client looks for its group."""
    reply = ksql(node, "SHOW STREAMS; SHOW TABLES; SHOW QUERIES;")
    shown = [{**entity, "statementText": ""} for entity in json.loads(reply.body)]
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topics = {*admin.list_topics(timeout=60).topics}
    return json.dumps(shown, sort_keys=True), topics - {"__consumer_offsets"}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_failed_statement_leaves_nothing(node: Node, broker: Broker, wrong: str) -> None:
    """Statements of a request are checked whole before the first of them happens."""
    before = everything(node, broker)
    reply = ksql(node, GOOD + wrong)
    assert (reply.status, reply.json["entities"]) == (400, []), reply.body
    assert everything(node, broker) == before


def test_table_over_a_stream_of_the_same_request(node: Node) -> None:
    other = CREATE.replace("S1", "S3").replace("s1", "s3")
    table = "CREATE TABLE T3 AS SELECT ID, COUNT(*) AS C FROM S3 GROUP BY ID EMIT CHANGES;"
    reply = ksql(node, f"{other} {table} SHOW TABLES; SHOW QUERIES; SHOW TOPICS;")
    assert reply.status == 200, reply.body
    entities = json.loads(reply.body)
    assert entities[2]["tables"][0]["name"] == "T3"
    (query,) = entities[3]["queries"]
    assert query["state"] == "UNRESPONSIVE", "no pipeline runs here"
    assert {"name": "s3", "replicaInfo": [1, 1, 1, 1]} in entities[4]["topics"]
    dropped = ksql(node, f"TERMINATE {query['id']}; DROP TABLE T3 DELETE TOPIC; DROP STREAM S3;")
    assert dropped.status == 200, dropped.body


def test_a_stream_is_read_from_its_topic(node: Node) -> None:
    """Whole and by key, up to the end that the topic had when it was asked."""
    made = CREATE.replace("S1", "S4").replace("s1", "s4")
    rows = "".join(f"INSERT INTO S4 (ID, N, PRICE) VALUES ('k{i}', {i}, 1.50);" for i in range(3))
    assert ksql(node, f"{made} {rows}").status == 200

    def pulled(where: str) -> list[list[object]]:
        reply = ask(node.port(), "/query", json_bytes({"ksql": f"SELECT * FROM S4{where};"}))
        assert reply.status == 200, reply.body
        return sorted(one["row"]["columns"] for one in reply.json if "row" in one)  # type: ignore[operator]

    assert pulled(" WHERE ID = 'k1'") == [["k1", 1, 1.5]]
    assert pulled("") == [[f"k{i}", i, 1.5] for i in range(3)]
    assert pulled(" WHERE ID = 'nobody'") == []
