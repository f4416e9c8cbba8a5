"""A query that ends its driver whenever it runs is failed by name, and the others go on.

The failpoint stands for what a query may do to a JVM: it kills the driver in each batch of one
table, with SIGKILL, however often the driver is restarted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import TestCluster, start, wait_until

from standpipe.pipeline.commit import failpoint
from standpipe.pipeline.commit.blame import DEATHS_MAX

STATEMENTS = """
CREATE STREAM EVENTS (K STRING KEY, V STRING)
    WITH (KAFKA_TOPIC='events', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE GOOD AS SELECT K, COUNT(*) AS N FROM EVENTS GROUP BY K;
CREATE TABLE POISON AS SELECT K, COUNT(*) AS N FROM EVENTS GROUP BY K;
CREATE TABLE ALSO_GOOD AS SELECT K, LATEST_BY_OFFSET(V) AS V FROM EVENTS GROUP BY K;
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestCluster]:
    """A cluster of its own, each of whose drivers dies in a batch of POISON."""
    monkeypatch.setenv(failpoint.VARIABLE, "in-batch@POISON")
    running = start(tmp_path / "cluster", nodes=1)
    try:
        yield running
    finally:
        running.close()


def insert(cluster: TestCluster, value: str) -> None:
    cluster.sql(f"INSERT INTO EVENTS (K, V) VALUES ('a', '{value}');")


def state_of(cluster: TestCluster, query_id: str) -> tuple[str, str, str]:
    """Its state, the reason and the message, as SHOW QUERIES says them."""
    (shown,) = (
        query
        for entity in cluster.sql("SHOW QUERIES;")
        for query in entity["queries"]
        if query["id"] == query_id
    )
    said = shown["standpipe"] or {"reason": "", "message": ""}
    return shown["state"], said["reason"], said["message"]


def deaths(cluster: TestCluster) -> int:
    assert cluster.local.pipeline is not None
    return cluster.local.pipeline.restarts


def wait_for_rows(cluster: TestCluster, count: int, value: str) -> None:
    cluster.wait_for_rows("SELECT K, N FROM GOOD WHERE K = 'a';", [["a", count]])
    cluster.wait_for_rows("SELECT K, V FROM ALSO_GOOD WHERE K = 'a';", [["a", value]])


@pytest.mark.timeout(900)
def test_a_query_that_ends_its_driver_is_failed_and_the_others_go_on(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.sql(STATEMENTS)
    insert(cluster, "first")
    poison = cluster.query_of("POISON")

    def is_failed() -> bool | None:
        return state_of(cluster, poison)[:2] == ("ERROR", "DRIVER_DIED") or None

    wait_until(is_failed, "POISON failed", lambda: str(state_of(cluster, poison)))
    died = deaths(cluster)
    most = DEATHS_MAX + 1 + DEATHS_MAX
    assert DEATHS_MAX <= died <= most, "with its group, among others, then alone"
    wait_for_rows(cluster, 1, "first")
    for count in (2, 3):
        insert(cluster, f"event {count}")
        wait_for_rows(cluster, count, f"event {count}")
    assert deaths(cluster) == died, "the others run undisturbed"
    assert f"PAUSE {poison}; and then RESUME {poison}" in state_of(cluster, poison)[2]

    monkeypatch.delenv(failpoint.VARIABLE)  # the driver after the next one no longer has it
    cluster.sql(f"PAUSE {poison};")
    cluster.sql(f"RESUME {poison};")
    cluster.wait_for_rows("SELECT K, N FROM POISON WHERE K = 'a';", [["a", 3]])
    assert deaths(cluster) == died + 1, "it was tried again, and then ran alone"
    insert(cluster, "last")
    wait_for_rows(cluster, 4, "last")
    cluster.wait_for_rows("SELECT K, N FROM POISON WHERE K = 'a';", [["a", 4]])
    assert deaths(cluster) == died + 1
