"""Kill -9 of the driver mid-batch and of nodes mid-transaction: the final answers are right.

While flights stream in, these die, each by SIGKILL and each started again on its own data:
the Python driver between a batch's records and its progress record, the JVM alone, both together,
a node while its tailer applies, and the node that holds the log. In the end every row of every
table, asked through every node, equals the recompute.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.e2e.cluster import TestCluster, start, wait_until

from standpipe.local import demo_check, demo_feed, demo_flights
from standpipe.local.demo_progress import ProgressFollower
from standpipe.local.demo_wait import Arrival
from standpipe.model import NodeId
from standpipe.pipeline import failpoint

EVENTS = 30_000
EVENTS_PER_SECOND = 500.0


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestCluster]:
    """A cluster of its own, whose first driver dies between batch 1 and its progress record."""
    monkeypatch.setenv(failpoint.VARIABLE, "before-progress@1")
    running = start(tmp_path / "cluster")
    monkeypatch.delenv(failpoint.VARIABLE)  # drivers that are started later do not inherit it
    try:
        yield running
    finally:
        running.close()


def restarts(cluster: TestCluster) -> int:
    assert cluster.local.pipeline is not None
    return cluster.local.pipeline.restarts


def wait_for_restart(cluster: TestCluster, count: int) -> None:
    wait_until(lambda: restarts(cluster) >= count or None, f"driver started again ({count})")


def kill_jvm_alone(cluster: TestCluster) -> None:
    """SIGKILL to the JVM; its Python driver must notice."""

    def jvm() -> psutil.Process | None:
        pid = cluster.local.pipeline.pid if cluster.local.pipeline else None
        if pid is None:
            return None
        children = psutil.Process(pid).children(recursive=True)
        return next((child for child in children if child.name() == "java"), None)

    found = wait_until(jvm, "a JVM of the driver")
    assert found is not None
    found.kill()


@pytest.mark.timeout(600)
def test_answers_are_right_after_crashes_of_everything(cluster: TestCluster) -> None:
    flights = demo_flights.load(EVENTS)
    cluster.topic(demo_flights.FLIGHTS_TOPIC)
    cluster.sql(demo_flights.STREAM)
    for statement in demo_flights.TABLES.values():
        cluster.sql(statement)
    progress = ProgressFollower(cluster.bootstrap_servers, "default_")
    arrival = Arrival(cluster.addresses, progress, demo_flights.FLIGHTS_TOPIC, str)
    arrival.queries = {table: cluster.query_of(table) for table in demo_flights.TABLES}
    progress.start()
    feed = demo_feed.Feed(cluster.bootstrap_servers)
    stop = threading.Event()
    pace = demo_feed.Pace(EVENTS_PER_SECOND, lambda _: None, stop)
    sender = threading.Thread(
        target=feed.send_paced, args=(demo_flights.FLIGHTS_TOPIC, flights.events, pace)
    )
    sender.start()
    try:
        crash_everything(cluster, arrival)
    finally:
        stop.set()  # the rest at once
        sender.join(60)
    arrival.wait_for_events(EVENTS)
    arrival.wait_for_replicas()
    progress.stop()

    public = [address for _, address in cluster.addresses]
    found = demo_check.check(public, demo_check.recompute(EVENTS))
    assert (found.wrong[:5], found.failed[:5]) == ([], [])
    assert found.rows > 10_000


def crash_everything(cluster: TestCluster, arrival: Arrival) -> None:
    wait_for_restart(cluster, 1)  # the failpoint
    kill_while_applying(cluster, arrival, NodeId("node-2"))
    kill_jvm_alone(cluster)
    wait_for_restart(cluster, 2)
    kill_while_applying(cluster, arrival, NodeId("node-1"))  # the log's holder
    cluster.local.kill_pipeline()
    wait_for_restart(cluster, 3)
    kill_while_applying(cluster, arrival, NodeId("node-3"))


def kill_while_applying(cluster: TestCluster, arrival: Arrival, node: NodeId) -> None:
    """Kill the node right after a batch was committed, when its tailer has it to apply."""
    before = arrival.events_in_tables()
    wait_until(lambda: arrival.events_in_tables() > before or None, "another batch")
    cluster.local.kill_node(node)
    cluster.local.restart_node(node)
