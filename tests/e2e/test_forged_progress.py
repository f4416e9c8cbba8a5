"""Forged records in the progress topic, written by a producer with direct access to Kafka.

Without the secret, they change nothing, and the node counts them. A fence that has a MAC, as of
another cluster with the same secret, ends the query with a name instead of letting its table stand
still with a lag of zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.e2e.cluster import TestCluster, wait_until
from tests.e2e.test_poison import state_of

from standpipe.adapters.http.sync_client import SyncClient
from standpipe.data.commit.progress import fence, serialise
from standpipe.data.commit.seal import NO_SEAL, ProgressSeal
from standpipe.model import LeaseEpoch
from standpipe.topics import progress_topic

STATEMENTS = """
CREATE STREAM FORGED_EVENTS (K STRING KEY, V STRING)
    WITH (KAFKA_TOPIC='forged_events', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE FORGED_A AS SELECT K, COUNT(*) AS N FROM FORGED_EVENTS GROUP BY K;
CREATE TABLE FORGED_B AS SELECT K, COUNT(*) AS N FROM FORGED_EVENTS GROUP BY K;
"""
TOPIC = progress_topic("default_")
IGNORED = 'standpipe_progress_records_ignored_total{reason="%s"}'


def forge(cluster: TestCluster, query_ids: Iterable[str], seal: ProgressSeal) -> None:
    """A fence of each, of a lease epoch that nobody was granted."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for query_id in query_ids:
        key, value = serialise(fence(query_id, LeaseEpoch(10**6), nonce=1))
        headers: Any = seal.headers(key, value)
        producer.produce(TOPIC, value, key, headers=headers)
    assert producer.flush(120) == 0


def ignored(cluster: TestCluster, reason: str) -> float:
    """How many records the first node says that it ignores."""
    with SyncClient(timeout_s=5.0) as client:
        lines = client.get(cluster.addresses[0][1], "/metrics").body.decode().splitlines()
    name = IGNORED % reason
    return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)), 0.0)


def wait_until_running(cluster: TestCluster, query_id: str) -> None:
    """Its rows may be there before its pipeline's next report."""
    wait_until(
        lambda: state_of(cluster, query_id)[0] == "RUNNING",
        f"{query_id} runs",
        lambda: str(state_of(cluster, query_id)),
    )


def insert(cluster: TestCluster, *expected: tuple[str, int]) -> None:
    cluster.sql("INSERT INTO FORGED_EVENTS (K, V) VALUES ('a', 'x');")
    for table, count in expected:
        cluster.wait_for_rows(f"SELECT K, N FROM {table} WHERE K = 'a';", [["a", count]])


@pytest.mark.timeout(900)
def test_a_forged_fence_freezes_no_table(cluster: TestCluster) -> None:
    # ids that its query may get, before it writes its first record
    forge(cluster, (f"CTAS_FORGED_A_{index}" for index in range(500)), NO_SEAL)
    cluster.sql(STATEMENTS)
    insert(cluster, ("FORGED_A", 1), ("FORGED_B", 1))
    attacked, other = (cluster.query_of(name) for name in ("FORGED_A", "FORGED_B"))
    assert attacked in {f"CTAS_FORGED_A_{index}" for index in range(500)}, "it was forged for"

    for reason, seal in (("UNSIGNED", NO_SEAL), ("FORGED", ProgressSeal("a guess", TOPIC))):
        before = ignored(cluster, reason)
        forge(cluster, [attacked], seal)
        wait_until(
            lambda reason=reason, before=before: ignored(cluster, reason) > before or None,
            f"{reason} is counted",
        )
    insert(cluster, ("FORGED_A", 2), ("FORGED_B", 2))
    wait_until_running(cluster, attacked)

    secret = cluster.local.directory.secret_file.read_text().strip()
    forge(cluster, [attacked], ProgressSeal(secret, TOPIC))

    def is_failed() -> bool | None:
        return state_of(cluster, attacked)[:2] == ("ERROR", "FOREIGN_FENCE") or None

    wait_until(is_failed, "the foreign fence is noticed", lambda: str(state_of(cluster, attacked)))
    message = state_of(cluster, attacked)[2]
    assert "lease epoch 1000000" in message
    assert "DROP TABLE FORGED_A; and then CREATE TABLE FORGED_A" in message
    insert(cluster, ("FORGED_B", 3))
    wait_until_running(cluster, other)  # the others go on

    cluster.sql("DROP TABLE FORGED_A;")
    cluster.sql("CREATE TABLE FORGED_A AS SELECT K, COUNT(*) AS N FROM FORGED_EVENTS GROUP BY K;")
    cluster.wait_for_rows("SELECT K, N FROM FORGED_A WHERE K = 'a';", [["a", 3]])
    cluster.sql("DROP TABLE FORGED_A; DROP TABLE FORGED_B; DROP STREAM FORGED_EVENTS;")
