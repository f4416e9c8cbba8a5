"""What the statements of a client may name and use up: a worker, control and a real Kafka."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.e2e.test_serve import Node, ask, json_bytes
from tests.e2e.test_serve_statements import broker, ksql, node

from standpipe.adapters.kafka.admin import KafkaAdmin
from standpipe.adapters.kafka.read_once import log_ends
from standpipe.local.cluster.broker import Broker

__all__ = ["broker", "node"]
pytestmark = pytest.mark.e2e

PROGRESS = "default__progress"
OVER = "CREATE STREAM {} (ID STRING KEY, V INT) WITH (KAFKA_TOPIC='{}', {}VALUE_FORMAT='JSON');"
AS = "CREATE STREAM F WITH (KAFKA_TOPIC='{}') AS SELECT * FROM OK;"
FORGED = OVER.format("F", PROGRESS, "") + "INSERT INTO F VALUES ('q', 1);"


def text_of(node: Node, path: str) -> str:
    return ask(node.port(), path).body.decode()


def page_of(node: Node, path: str) -> Any:
    return json.loads(text_of(node, path))


def refusal_of(node: Node, text: str, **more: object) -> str:
    reply = ask(node.port(), "/ksql", json_bytes({"ksql": text, **more}))
    assert (reply.status, reply.json["error_code"]) == (400, 40001), reply.body
    return str(reply.json["message"])


def test_no_statement_reaches_the_progress_topic(node: Node, broker: Broker) -> None:
    """A stream over it and one INSERT of a forged fence stopped a table for good, with lag 0."""
    until = time.monotonic() + 60
    admin = KafkaAdmin(broker.bootstrap_servers)
    while PROGRESS not in admin.partition_counts():
        assert time.monotonic() < until
        time.sleep(0.05)
    for text in (
        FORGED,
        f"DEFINE t = '_progress'; {FORGED.replace('_progress', '${t}', 1)}",
        OVER.format("F", PROGRESS, "PARTITIONS=1, "),
        OVER.format("F", "__consumer_offsets", ""),
        f"ASSERT TOPIC '{PROGRESS}';",
        OVER.format("OK", "ok", "PARTITIONS=1, ") + AS.format(PROGRESS),
    ):
        assert "is internal: " in refusal_of(node, text)
    variables = {"topic": PROGRESS}
    assert "is internal: " in refusal_of(
        node, OVER.format("F", "${topic}", ""), sessionVariables=variables
    )
    for path, key in (("/query", "ksql"), ("/query-stream", "sql")):
        printed = ask(node.port(), path, json_bytes({key: f"PRINT '{PROGRESS}';"}))
        assert printed.status == 400
        assert "is internal: " in str(printed.json["message"])
    assert log_ends(broker.bootstrap_servers, PROGRESS, 1) == {0: 0}
    assert b'"OK"' not in ksql(node, "SHOW STREAMS;").body, "nor was the first of two carried out"


def test_a_million_partitions(node: Node) -> None:
    message = refusal_of(node, OVER.format("BIG", "big", "PARTITIONS=1000000, "))
    assert "BIG would have 1000000 partitions" in message
    assert "standpipe.source.partitions.max allows 1000" in message
    assert ksql(node, OVER.format("SMALL", "small", "PARTITIONS=1, ")).status == 200


def test_a_name_that_cannot_be_seen(node: Node) -> None:
    assert "U+202E" in refusal_of(node, OVER.format("`a\u202eb`", "x", "PARTITIONS=1, "))
    assert "U+200B" in refusal_of(node, "SHOW STREAMS;", sessionVariables={"a\u200bb": "x"})


def test_health_says_which_topic_kafka_refuses(node: Node) -> None:
    def settled(*, is_healthy: bool) -> Any:
        until, both = time.monotonic() + 60, (is_healthy, is_healthy)
        while _health(page := page_of(node, "/healthcheck")) != both:
            assert time.monotonic() < until, page
            time.sleep(0.05)
        return page["details"]["topics"]

    assert settled(is_healthy=True) == {"isHealthy": True}
    assert ksql(node, OVER.format("U", "u_v", "PARTITIONS=1, ")).status == 200
    assert b"collides" in ksql(node, OVER.format("C", "u.v", "PARTITIONS=1, ")).body
    (failure,) = settled(is_healthy=False)["failures"]
    assert failure.startswith("topic u.v: ")
    assert "standpipe_topics_failing 1.0" in text_of(node, "/metrics")
    status = page_of(node, "/clusterStatus")["clusterStatus"]
    assert [host["standpipe"]["topicFailures"] for host in status.values()] == [[failure]]
    assert ksql(node, "DROP STREAM C;").status == 200
    settled(is_healthy=True)
    assert "standpipe_topics_failing 0.0" in text_of(node, "/metrics")


def _health(page: Any) -> tuple[bool, bool]:
    """Of the node, and of its topics: a busy node is unwell for other reasons, too."""
    return page["isHealthy"], page["details"]["topics"]["isHealthy"]
