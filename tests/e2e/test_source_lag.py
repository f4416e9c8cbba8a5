"""How old a chain of queries is while nothing is written, and while Spark stands still.

Real Kafka, Spark and nodes. The nodes ask Kafka themselves where the source topics end.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.e2e.cluster import TestCluster, wait_until

from standpipe.config import lags
from standpipe.errors import StandpipeError

STATEMENTS = """
CREATE STREAM IDLE_EVENTS (K STRING KEY, V BIGINT)
    WITH (KAFKA_TOPIC='idle_events', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE STREAM IDLE_CHOSEN AS SELECT * FROM IDLE_EVENTS WHERE V > 0;
CREATE TABLE IDLE_SUMS AS SELECT K, SUM(V) AS S FROM IDLE_CHOSEN GROUP BY K;
"""
ONE = "SELECT K, S FROM IDLE_SUMS WHERE K = 'a';"
BOUND = lags.SOURCE_LAG_MAX.name
#: far above what an idle table shows, 0.5 to 1 s, and far below how long the test stays idle
YOUNG_MS = 4_000


def lag_ms(cluster: TestCluster) -> int:
    """-1: not known now, as while the node that answers has not asked Kafka yet."""
    found = cluster.pull(ONE).fresh.source_lag_ms
    return -1 if found is None else found


def shown(cluster: TestCluster) -> dict[str, Any]:
    """The table's line of SHOW LAG, from a node that holds a replica of it: others do not ask."""
    (found,) = cluster.sql("SHOW LAG IDLE_SUMS;")
    return found["tables"][0]


def wait_for_backlog(cluster: TestCluster, records: int) -> dict[str, Any]:
    def is_shown() -> dict[str, Any] | None:
        table = shown(cluster)
        return table if table["sourceBacklogRecords"] == records else None

    found = wait_until(is_shown, f"a backlog of {records}", lambda: str(shown(cluster)))
    assert found is not None
    return found


@contextmanager
def without_spark(cluster: TestCluster) -> Iterator[None]:
    """The pipeline and its JVM stand still: as while a cluster is short of processors."""
    pipeline = cluster.local.pipeline
    assert pipeline is not None
    pipeline.signal_group(signal.SIGSTOP)
    try:
        yield
    finally:
        pipeline.signal_group(signal.SIGCONT)


def young_rows(cluster: TestCluster, rows: tuple[tuple[str, int], ...]) -> None:
    """A read with a bound is answered; on a busy machine not each time."""

    def is_answered() -> bool | None:
        try:
            return cluster.pull(ONE, {BOUND: str(YOUNG_MS)}).rows == rows or None
        except StandpipeError:
            return None

    wait_until(is_answered, f"{rows} of {YOUNG_MS} ms", lambda: str(cluster.pull(ONE)))


@pytest.mark.timeout(600)
def test_source_lag_with_nothing_to_read_and_with_nobody_to_read_it(cluster: TestCluster) -> None:
    cluster.sql(STATEMENTS)
    cluster.sql("INSERT INTO IDLE_EVENTS (K, V) VALUES ('a', 1);")
    cluster.wait_for_rows(ONE, [["a", 1]])
    time.sleep(2 * YOUNG_MS / 1000)  # longer than the lag that is asked for below
    young_rows(cluster, (("a", 1),))
    table = wait_for_backlog(cluster, 0)
    assert (table["queryState"], "sourceBacklogRecords" in table["unknown"]) == ("RUNNING", False)
    with without_spark(cluster):
        time.sleep(2 * YOUNG_MS / 1000)  # as long again, now without Spark
        young_rows(cluster, (("a", 1),))  # there is nothing that Spark could do
        cluster.sql("INSERT INTO IDLE_EVENTS (K, V) VALUES ('a', 2);")
        wait_until(lambda: lag_ms(cluster) > 2 * YOUNG_MS or None, "a record waits for Spark")
        wait_for_backlog(cluster, 1)
        wait_until(
            lambda: (shown(cluster)["sourceLagMs"] or -1) > YOUNG_MS,
            "the lag, of the first topic of the chain",
            lambda: str(shown(cluster)),
        )
        with pytest.raises(StandpipeError, match="exceeds maximum allowed source lag"):
            cluster.pull(ONE, {BOUND: str(YOUNG_MS)})
        assert cluster.pull(ONE).rows == (("a", 1),), "who sets no bound reads on"
    cluster.wait_for_rows(ONE, [["a", 3]])
    wait_for_backlog(cluster, 0)
    young_rows(cluster, (("a", 3),))
    cluster.sql("DROP TABLE IDLE_SUMS; DROP STREAM IDLE_CHOSEN; DROP STREAM IDLE_EVENTS;")
