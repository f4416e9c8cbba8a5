"""Topics that are deleted and made anew, or given partitions, under queries that run.

Each ends in a state with a name in SHOW QUERIES and the statements that resolve it, and nobody is
served a row that was not committed: not by a replica that is restored from the new topic either,
though that holds as many records as the old one.
"""

from __future__ import annotations

import shutil
from typing import Any

import httpx2
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.e2e.cluster import TestCluster, wait_until

from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_ROWTIME,
    commit_header,
    rowtime_header,
)
from standpipe.errors import StandpipeError
from standpipe.local.client import status
from standpipe.local.client.rest_client import NodesClient
from standpipe.local.demo.flights import Event
from standpipe.model import Commit, LeaseEpoch, NodeId, Progress
from standpipe.pipeline.io.progress_log import ProgressLog

PARTITIONS = 4
KEYS = [f"k{n}" for n in range(40)]
NAMES = ("ANEW", "LOST", "WIDER", "WIDE_TABLE")


@pytest.fixture
def admin(cluster: TestCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers})


def make_anew(admin: AdminClient, topic: str, partitions: int = PARTITIONS) -> None:
    admin.delete_topics([topic])[topic].result()

    def is_made() -> bool:
        try:  # the name is free a moment later
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
        except Exception:
            return False
        return True

    wait_until(is_made, f"{topic} again")


def widen(admin: AdminClient, topic: str) -> None:
    admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result()


def send(cluster: TestCluster, topic: str, number: int) -> None:
    cluster.send(topic, [Event(key.encode(), b'{"N":%d}' % number, 0) for key in KEYS])


def report(cluster: TestCluster, name: str) -> dict[str, Any]:
    """What SHOW QUERIES says of the query that fills a table."""
    (entity,) = cluster.sql("SHOW QUERIES;")
    (query,) = (query for query in entity["queries"] if f"{name}_T" in query["sinks"])
    return query["standpipe"] or {}


def wait_for_state(cluster: TestCluster, name: str, state: str, reason: str) -> str:
    """The message that comes with them."""
    seen: list[object] = []

    def is_there() -> str | None:
        seen[:] = [found := report(cluster, name)]
        told = (found.get("state"), found.get("reason"))
        return found["message"] if told == (state, reason) else None

    message = wait_until(is_there, f"{name} is {state} {reason}", lambda: str(seen))
    assert message is not None
    return message


def newest_progress(cluster: TestCluster, query_id: str) -> Progress:
    log = ProgressLog(cluster.bootstrap_servers, "default_")
    return [record for record in log.records() if record.query_id == query_id and record.sinks][-1]


def fill(cluster: TestCluster, topic: str, ends: dict[int, int], by: Commit) -> None:
    """Records beyond the ends that were committed, under the very name of the commit."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    marks = {HEADER_COMMIT: commit_header(by), HEADER_ROWTIME: rowtime_header(1)}
    for partition, end in ends.items():
        for number in range(end + 5):
            key = KEYS[number % len(KEYS)].encode()
            producer.produce(topic, b'{"S":666}', key, partition=partition, headers=marks)
    assert producer.flush(30) == 0


def check_answers(cluster: TestCluster, name: str, number: int) -> None:
    """Through every node: the committed row of a key, or a refusal."""
    for node, address in cluster.addresses:
        with NodesClient([address], timeout_s=5.0) as client:
            for key in KEYS:
                try:
                    rows = client.pull(f"SELECT * FROM {name}_T WHERE K = '{key}';").rows
                except (StandpipeError, httpx2.HTTPError):
                    continue
                assert [*map(list, rows)] == [[key, number]], (name, node)


def states(cluster: TestCluster, query_id: str, node: NodeId) -> set[str]:
    found = status.gather(cluster.addresses).replicas
    return {one.state for one in found if one.query_id == query_id and one.node == node}


def set_up(cluster: TestCluster) -> None:
    for name in NAMES:
        cluster.topic(f"src_{name}")
    cluster.sql(
        "".join(
            f"CREATE STREAM {name} (K STRING KEY, N INTEGER) WITH (KAFKA_TOPIC='src_{name}',"
            " VALUE_FORMAT='JSON');"
            f"CREATE TABLE {name}_T WITH (PARTITIONS={PARTITIONS}) AS"
            f" SELECT K, SUM(N) AS S FROM {name} GROUP BY K EMIT CHANGES;"
            for name in NAMES
        )
    )
    for name in NAMES:
        send(cluster, f"src_{name}", 1)
    for name in NAMES:
        cluster.wait_for_rows(f"SELECT * FROM {name}_T;", [[key, 1] for key in KEYS])


@pytest.mark.timeout(900)
def test_topics_that_change_under_running_queries(cluster: TestCluster, admin: AdminClient) -> None:
    set_up(cluster)
    lost = cluster.query_of("LOST_T")
    committed = newest_progress(cluster, lost)
    assert committed.topic_id
    assert committed.source_topic_ids.keys() == {"src_LOST"}

    # a source with more records than before: by offsets alone the first ones would be skipped
    make_anew(admin, "src_ANEW")
    for _ in range(3):
        send(cluster, "src_ANEW", 100)
    make_anew(admin, "LOST_T")
    widen(admin, "src_WIDER")
    widen(admin, "WIDE_TABLE_T")
    send(cluster, "src_LOST", 1)

    message = wait_for_state(cluster, "ANEW", "FAILED", "TOPIC_CHANGED")
    assert "topic src_ANEW was deleted and recreated" in message
    assert "DROP TABLE ANEW_T; and then CREATE TABLE ANEW_T" in message
    message = wait_for_state(cluster, "LOST", "FAILED", "TOPIC_CHANGED")
    assert "topic LOST_T was deleted and recreated" in message
    message = wait_for_state(cluster, "WIDER", "FAILED", "TOPIC_CHANGED")
    assert "topic src_WIDER has 6 partitions, and the catalog says 4" in message
    message = wait_for_state(cluster, "WIDE_TABLE", "RUNNING", "TOPIC_CHANGED")
    assert "topic WIDE_TABLE_T has 6 partitions, and the catalog says 4" in message
    # whatever Spark's producer knows of the topic by now: it had moved keys in one run of many
    for pipeline in range(2):
        send(cluster, "src_WIDE_TABLE", 1)
        cluster.wait_for_rows("SELECT * FROM WIDE_TABLE_T;", [[key, 2 + pipeline] for key in KEYS])
        if pipeline == 0:
            cluster.local.kill_pipeline()  # the next one's producer sees six partitions
    for name in ("ANEW", "LOST", "WIDER"):
        check_answers(cluster, name, 1)

    check_that_no_replica_is_restored(cluster, lost, committed)
    check_that_the_statements_resolve_it(cluster)


def check_that_no_replica_is_restored(
    cluster: TestCluster, query_id: str, committed: Progress
) -> None:
    """A node without the store finds a topic that is long enough, in the name of the commit."""
    by = Commit(
        lease_epoch=LeaseEpoch(committed.commit.lease_epoch),
        batch=committed.commit.batch,
        attempt=committed.commit.attempt,
    )
    fill(cluster, "LOST_T", dict(committed.sinks), by)
    (plan, *_) = (
        plan for plan in cluster.local.plans if states(cluster, query_id, NodeId(plan.node_id))
    )
    node = NodeId(plan.node_id)
    cluster.local.kill_node(node)
    for store in (plan.data_directory / "state").iterdir():
        shutil.rmtree(store)
    cluster.local.restart_node(node)
    lost = {"DATA_LOSS"}
    wait_until(
        lambda: states(cluster, query_id, node) == lost or check_answers(cluster, "LOST", 1),
        f"replicas of {node} are in DATA_LOSS",
        lambda: str(states(cluster, query_id, node)),
    )
    check_answers(cluster, "LOST", 1)


def check_that_the_statements_resolve_it(cluster: TestCluster) -> None:
    table = "AS SELECT K, SUM(N) AS S FROM {0} GROUP BY K EMIT CHANGES;"
    cluster.sql("DROP TABLE ANEW_T;")
    cluster.sql(f"CREATE TABLE ANEW_T WITH (PARTITIONS={PARTITIONS}) {table.format('ANEW')}")
    cluster.sql("DROP TABLE LOST_T DELETE TOPIC;")
    cluster.sql(f"CREATE TABLE LOST_T WITH (PARTITIONS={PARTITIONS}) {table.format('LOST')}")
    cluster.sql("DROP TABLE WIDER_T; DROP STREAM WIDER;")
    cluster.sql(
        "CREATE STREAM WIDER (K STRING KEY, N INTEGER) WITH (KAFKA_TOPIC='src_WIDER',"
        " VALUE_FORMAT='JSON');"
        f"CREATE TABLE WIDER_T WITH (PARTITIONS={PARTITIONS}) {table.format('WIDER')}"
    )
    for name, number in (("ANEW", 300), ("LOST", 2), ("WIDER", 1)):
        cluster.wait_for_rows(f"SELECT * FROM {name}_T;", [[key, number] for key in KEYS])
    cluster.sql("DROP TABLE WIDE_TABLE_T;")
