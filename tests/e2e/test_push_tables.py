"""Push queries on what Spark writes: committed batches only, on tables, windows and streams."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.e2e.cluster import WAIT_S_MAX, TestCluster, wait_until
from tests.e2e.test_push import ARRAY, EARLIEST

from standpipe.data.encoding.kafka_keys import windowed_key
from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_ROWTIME,
    commit_header,
    partition_of,
    rowtime_header,
)
from standpipe.errors import LogUnavailable, NoPipeline
from standpipe.local.demo.flights import Event
from standpipe.model import BatchId, Commit, LeaseEpoch

pytestmark = pytest.mark.e2e

#: of a lease that nobody had, and none of whose batches is in the progress topic
STRANGER = Commit(lease_epoch=LeaseEpoch(999), batch=BatchId(1), attempt=7)
HOUR_MS = 3_600_000


class Followed:
    """A push query over /query, from the beginning unless its properties say otherwise."""

    def __init__(
        self,
        cluster: TestCluster,
        text: str,
        properties: Mapping[str, str] = EARLIEST,
        node: int | None = None,
    ) -> None:
        """`node`: default: the one that takes statements, as others learn of them a little later.
        While nobody leads, or the pipeline registers again, a query that needs them is repeated."""
        address = cluster.client.addresses[0] if node is None else cluster.addresses[node][1]
        body = json.dumps({"ksql": text, "streamsProperties": dict(properties)})

        def answered() -> tuple[http.client.HTTPConnection, http.client.HTTPResponse] | None:
            connection = http.client.HTTPConnection(address, timeout=WAIT_S_MAX)
            connection.request("POST", "/query", body, {"accept": ARRAY})
            reply = connection.getresponse()
            if reply.status == 200:
                return connection, reply
            said = reply.read()
            connection.close()
            passes = (LogUnavailable.code, NoPipeline.code)
            assert json.loads(said)["error_code"] in passes, said
            return None

        found = wait_until(answered, f"a leader and a pipeline for {text}")
        assert found is not None
        self.connection, self.reply = found
        self.header = self.item()

    def item(self) -> dict[str, Any]:
        text = self.reply.readline().strip()
        return json.loads(text.removeprefix(b"[").removesuffix(b",").removesuffix(b"]"))

    def rows_until(self, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        """All rows up to the one that is wanted."""
        rows = [self.item()["row"]]
        while rows[-1] != wanted:
            rows.append(self.item()["row"])
        return rows

    def close(self) -> None:
        self.reply.close()
        self.connection.close()


def plant(cluster: TestCluster, topic: str, raw: bytes, key: bytes, value: bytes | None) -> None:
    """What a driver of the past would write, where the key belongs."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    marks = {HEADER_COMMIT: commit_header(STRANGER), HEADER_ROWTIME: rowtime_header(1)}
    partitions = len(producer.list_topics(topic, timeout=10).topics[topic].partitions)
    producer.produce(topic, value, key, partition=partition_of(raw, partitions), headers=marks)
    assert producer.flush(120) == 0


def test_a_table_shows_committed_batches_and_nothing_else(cluster: TestCluster) -> None:
    """A row of a driver of the past lies between two batches; the query passes over it."""
    cluster.topic("pushed")
    cluster.sql(
        "CREATE STREAM PUSHED (K STRING KEY, N INTEGER) WITH (KAFKA_TOPIC='pushed',"
        " VALUE_FORMAT='JSON');"
        "CREATE TABLE PUSHED_T AS SELECT K, SUM(N) AS S FROM PUSHED GROUP BY K HAVING SUM(N) < 100"
        " EMIT CHANGES;"
    )
    followed = Followed(cluster, "SELECT * FROM PUSHED_T EMIT CHANGES;")
    assert followed.header["header"]["schema"] == "`K` STRING, `S` INTEGER"
    cluster.send("pushed", [Event(b"a", b'{"N":1}', 0)])
    assert followed.rows_until({"columns": ["a", 1]}) == [{"columns": ["a", 1]}]
    plant(cluster, "PUSHED_T", b"a", b"a", b'{"S":666}')
    plant(cluster, "PUSHED_T", b"a", b"a", None)
    cluster.send("pushed", [Event(b"a", b'{"N":2}', 0)])
    assert followed.rows_until({"columns": ["a", 3]}) == [{"columns": ["a", 3]}]
    cluster.send("pushed", [Event(b"a", b'{"N":200}', 0)])
    gone = {"columns": ["a", None], "tombstone": True}
    assert followed.rows_until(gone) == [gone], "HAVING takes it back"
    followed.close()
    again = Followed(cluster, "SELECT S FROM PUSHED_T WHERE K = 'a' EMIT CHANGES LIMIT 3;")
    seen = [again.item() for _ in range(4)]
    again.close()
    shown = [item["row"]["columns"] for item in seen if "row" in item]
    assert [666] not in shown
    assert shown == [[1], [3], [None]], "from the beginning, the same"


def test_windows_and_streams(cluster: TestCluster) -> None:
    cluster.topic("pushed_w")
    cluster.sql(
        "CREATE STREAM PUSHED_W (K STRING KEY, N INTEGER) WITH (KAFKA_TOPIC='pushed_w',"
        " VALUE_FORMAT='JSON');"
        "CREATE TABLE PUSHED_HOURS AS SELECT K, COUNT(*) AS C FROM PUSHED_W"
        " WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY K EMIT CHANGES;"
        "CREATE STREAM PUSHED_COPY AS SELECT K, N * 2 AS D FROM PUSHED_W EMIT CHANGES;"
    )
    hours = Followed(cluster, "SELECT * FROM PUSHED_HOURS EMIT CHANGES;")
    copy = Followed(cluster, "SELECT D, K FROM PUSHED_COPY WHERE D > 2 EMIT CHANGES;")
    at_ms = 5 * HOUR_MS + 1
    cluster.send("pushed_w", [Event(b"a", b'{"N":%d}' % n, at_ms) for n in (1, 2)])
    window = [5 * HOUR_MS, 6 * HOUR_MS]
    rows = hours.rows_until({"columns": ["a", *window, 2]})
    assert {tuple(row["columns"][:3]) for row in rows} == {("a", *window)}
    assert copy.rows_until({"columns": [4, "a"]}) == [{"columns": [4, "a"]}]
    plant(cluster, "PUSHED_HOURS", b"a", windowed_key(b"a", 5 * HOUR_MS), b'{"C":666}')
    plant(cluster, "PUSHED_COPY", b"a", b"a", b'{"D":666}')
    cluster.send("pushed_w", [Event(b"a", b'{"N":3}', at_ms)])
    assert hours.rows_until({"columns": ["a", *window, 3]}) == [{"columns": ["a", *window, 3]}]
    assert copy.rows_until({"columns": [6, "a"]}) == [{"columns": [6, "a"]}]
    hours.close()
    copy.close()
