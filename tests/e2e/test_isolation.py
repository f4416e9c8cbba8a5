"""A query in a driver of its own: whatever ends that driver, the other queries go on.

`standpipe up` starts the driver as soon as the query is isolated, and starts it again whenever it
dies. A second driver for the same name stands by and takes over.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.test_poison import state_of

from standpipe.local.cluster.process_group import ManagedProcess

STATEMENTS = """
CREATE STREAM EVENTS (K STRING KEY, V STRING)
    WITH (KAFKA_TOPIC='events', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE GOOD AS SELECT K, COUNT(*) AS N FROM EVENTS GROUP BY K;
CREATE TABLE RISKY AS SELECT K, COUNT(*) AS N FROM EVENTS GROUP BY K;
"""
KILLS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    """A cluster of its own, with one shared driver. Few events need few tasks."""
    running = start(
        tmp_path / "cluster", nodes=1, config={"standpipe.pipeline.shuffle.partitions": "1"}
    )
    try:
        yield running
    finally:
        running.close()


def isolate(cluster: TestCluster, *arguments: str) -> str:
    """As an operator would."""
    command = [sys.executable, "-m", "standpipe", "query", "isolate", *arguments]
    command += ["--directory", str(cluster.local.options.directory)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def wait_for_count(cluster: TestCluster, table: str, count: int) -> None:
    cluster.wait_for_rows(f"SELECT K, N FROM {table} WHERE K = 'a';", [["a", count]])


def holder(cluster: TestCluster, query_id: str) -> str:
    """The pipeline that last reported the query, as SHOW QUERIES says."""
    (query,) = (
        each
        for entity in cluster.sql("SHOW QUERIES;")
        for each in entity["queries"]
        if each["id"] == query_id
    )
    return str((query["standpipe"] or {}).get("pipeline"))


def wait_for_holder(cluster: TestCluster, query_id: str, pid: int | None, why: str) -> None:
    """Until this process reports the query. It reports once a second, so a row may come first."""
    seen = [""]

    def is_it() -> bool:
        seen[:] = [holder(cluster, query_id)]  # names its process
        return f"-{pid}-" in seen[0]

    wait_until(is_it, f"{pid} holds {query_id}: {why}", lambda: seen[0])


@pytest.mark.timeout(900)
def test_a_query_in_a_driver_of_its_own_ends_no_other(cluster: TestCluster) -> None:
    said = isolate(cluster, "risky")
    assert "RISKY is isolated: no query yet" in said, "before it is created"
    cluster.sql(STATEMENTS)
    good, risky = cluster.query_of("GOOD"), cluster.query_of("RISKY")

    def own() -> ManagedProcess | None:
        return cluster.local.isolated.drivers.get("RISKY")

    driver = wait_until(own, "its driver starts by itself")
    assert driver is not None
    events = 0

    def send() -> None:
        nonlocal events
        cluster.sql("INSERT INTO EVENTS (K, V) VALUES ('a', 'x');")
        events += 1

    send()
    wait_for_count(cluster, "GOOD", events)
    assert cluster.local.pipeline is not None
    shared = cluster.local.pipeline.pid
    wait_for_count(cluster, "RISKY", events)
    wait_for_holder(cluster, risky, driver.pid, "it is isolated")
    wait_for_holder(cluster, good, shared, "it is not")

    for kill in range(1, KILLS + 1):  # the first in a running query, others while it starts
        driver.signal_group(signal.SIGKILL)
        send()
        wait_for_count(cluster, "GOOD", events)
        wait_until(lambda kill=kill: driver.restarts >= kill, f"restart {kill}")
    wait_for_count(cluster, "RISKY", events)
    wait_for_holder(cluster, risky, driver.pid, "it is served again, by its own driver")
    assert (cluster.local.pipeline.pid, cluster.local.pipeline.restarts) == (shared, 0)

    isolate(cluster, risky, "--undo")
    send()
    wait_for_count(cluster, "RISKY", events)
    wait_until(lambda: driver.pid is None or None, "its driver ends")
    wait_for_holder(cluster, risky, shared, "shared again")
    assert driver.restarts == KILLS, "it ended because it was told to"
    for query_id in (risky, good):
        wait_until(lambda q=query_id: state_of(cluster, q)[0] == "RUNNING", f"{query_id} runs")
