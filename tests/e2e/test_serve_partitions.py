"""Scans of one partition over real workers: each node gives its rows and no others. No Kafka."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.test_serve import PARTITIONS, ROWS, Cluster, Reply, ask, json_bytes, partition

from standpipe.client.core.whole_tables import PARTITION_PROPERTY as AS_CLIENTS_NAME_IT
from standpipe.node.worker.request.body import PARTITION_PROPERTY
from standpipe.session_token import LEVEL_PROPERTY

SCAN = "SELECT * FROM USERS;"


def scan(port: int, number: object, text: str = SCAN, **more: object) -> Reply:
    properties = {PARTITION_PROPERTY: number, **more}
    return ask(port, "/query-stream", json_bytes({"sql": text, "properties": properties}))


def rows_in(reply: Reply) -> list[list[object]]:
    assert reply.status == 200, reply.body
    return [json.loads(line) for line in reply.body.splitlines()[1:]]


def rows_of(number: int) -> list[list[object]]:
    return sorted([key, *ROWS[key]] for key in ROWS if partition(key) == number)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster.make(tmp_path, 3)
    made.fill(ROWS)
    made.publish()
    made.start()
    yield made
    made.stop()


def test_the_rows_of_each_partition(cluster: Cluster) -> None:
    """Asked of any node, also of one without a replica; and after one of the nodes was killed."""
    assert AS_CLIENTS_NAME_IT == PARTITION_PROPERTY
    for level in ("eventual", "snapshot"):
        for node in cluster.nodes:
            for number in range(PARTITIONS):
                reply = scan(node.port(), str(number), **{LEVEL_PROPERTY: level})
                assert sorted(rows_in(reply)) == rows_of(number)
    victim, *others = cluster.nodes
    victim.workers[0].send_signal(signal.SIGKILL)
    victim.workers[0].wait(60)
    for number in range(PARTITIONS):
        reply = scan(others[0].port(), number)
        assert sorted(rows_in(reply)) == rows_of(number)
        assert reply.headers["standpipe-served-by"] != victim.config.node_id


def test_other_parts_of_a_statement(cluster: Cluster) -> None:
    port, wanted = cluster.nodes[0].port(), rows_of(2)
    assert rows_in(scan(port, 2, "SELECT COUNT(*) FROM USERS;")) == [[len(wanted)]]
    assert rows_in(scan(port, 2, "SELECT * FROM USERS WHERE N < 0;")) == []
    first = rows_in(scan(port, 2, "SELECT * FROM USERS ORDER BY ID LIMIT 1;"))
    assert first == sorted(wanted)[:1]


@pytest.mark.parametrize(
    ("number", "text", "says"),
    [
        (PARTITIONS, SCAN, "USERS has 4 partitions, from 0 on"),
        (-1, SCAN, "is not a number of a partition, 0 or more"),
        (0, "SELECT * FROM USERS WHERE ID = 'k1';", "this query names keys"),
        (0, "SELECT * FROM USERS WHERE ID IN ('k1', 'k2');", "this query names keys"),
        (0, "SELECT * FROM EVENTS;", "is for pull queries on tables, not for streams"),
        (0, "SELECT * FROM USERS EMIT CHANGES;", "not for push queries"),
    ],
)
def test_a_partition_is_never_ignored(cluster: Cluster, number: int, text: str, says: str) -> None:
    for _ in range(3):  # also when the statement is known
        reply = scan(cluster.nodes[0].port(), number, text)
        assert reply.status == 400, reply.body
        assert says in reply.body.decode()
        if number == 0 and "WHERE" in text:
            plain = ask(cluster.nodes[0].port(), "/query-stream", json_bytes({"sql": text}))
            assert rows_in(plain)


def test_a_batch_names_keys(cluster: Cluster) -> None:
    body = {"table": "USERS", "keys": ["k1"], "properties": {PARTITION_PROPERTY: 0}}
    reply = ask(
        cluster.nodes[0].port(), "/query-batch", json_bytes(body), content_type="application/json"
    )
    assert reply.status == 400
    assert "a batch names keys" in reply.body.decode()
