"""A standby that runs a tenth of the time, and a pipeline with a bound on replication lag.

Real Kafka, Spark and nodes. The lag is measured from outside: what the active knows to be
committed, less what the standby has applied.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.e2e.cluster import TestCluster, start, wait_until

from standpipe.adapters.files.published import read_snapshot
from standpipe.adapters.process import read_pid
from standpipe.adapters.store.status_page import StatusReader, page_path
from standpipe.config import lags
from standpipe.local.demo.flights import Event
from standpipe.model import NodeId
from standpipe.node.configuration import NodePaths

BOUND = 1_000
EVENTS = 6_000
#: of the slowed tailer
STOPPED_S, RUNS_S = 1.35, 0.15
#: … until SHOW QUERIES has said so once, however slow Spark is: less than a replica may stand still
#: and still count
STOPPED_S_MAX = 8.0
STATEMENTS = """
CREATE STREAM PRESSED (K STRING KEY, V BIGINT)
    WITH (KAFKA_TOPIC='pressed', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE TABLE PRESSED_SUMS AS SELECT K, SUM(V) AS S FROM PRESSED GROUP BY K;
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TestCluster]:
    config = {
        lags.REPLICATION_LAG_MAX.name: str(BOUND),
        lags.REPLICATION_WAIT_MAX.name: "9000",
    }
    running = start(tmp_path / "cluster", nodes=2, config=config)
    try:
        yield running
    finally:
        running.close()


@dataclass
class Slowed:
    """A tailer that is stopped nine tenths of the time."""

    pid: int
    stops: int = 0
    said: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._over.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            self.stops += 1
            if self.said.is_set():
                self._over.wait(STOPPED_S)
            else:
                self.said.wait(STOPPED_S_MAX)
            os.kill(self.pid, signal.SIGCONT)
            self._over.wait(RUNS_S)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run, name="slowed")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            self.said.set()
            thread.join()


@dataclass
class Lag:
    """Of the standby, measured a hundred times a second."""

    active: StatusReader
    standby: StatusReader
    most: int = 0

    def measure(self) -> int:
        behind, ahead = self.standby.read(), self.active.read()  # the end is read last: no less
        assert behind is not None
        assert ahead is not None
        lag = max(0, ahead.committed_end - behind.position)
        again = self.standby.read()
        if again is not None and again.position == behind.position:  # else it is too large
            self.most = max(self.most, lag)
        return lag


def paths_of(cluster: TestCluster, node: NodeId) -> NodePaths:
    plan = next(plan for plan in cluster.local.plans if plan.node_id == node)
    return NodePaths(plan.data_directory)


def pressed(cluster: TestCluster) -> tuple[Lag, Slowed, NodeId]:
    """The table with its first row, how far its standby is behind, and that standby, slowed."""
    cluster.sql(STATEMENTS)
    cluster.sql("INSERT INTO PRESSED (K, V) VALUES ('first', 1);")
    cluster.wait_for_rows("SELECT K, S FROM PRESSED_SUMS WHERE K = 'first';", [["first", 1]])
    active = cluster.active_of(cluster.query_of("PRESSED_SUMS"))
    (standby,) = {plan.node_id for plan in cluster.local.plans} - {active}
    lag = Lag(page_of(cluster, active), page_of(cluster, standby))
    tailer = read_pid(paths_of(cluster, standby).run / "tailer.pid")
    assert tailer is not None
    return lag, Slowed(tailer), standby


@pytest.mark.timeout(600)
def test_a_slow_standby_stays_within_the_bound(cluster: TestCluster) -> None:
    (lag, slowed, standby), shown = pressed(cluster), ""
    values = (Event(f"k{number}".encode(), b'{"V": 1}', 0) for number in range(EVENTS))
    with slowed.going_on():
        cluster.send("pressed", values)
        look_at = time.monotonic()
        while rows_there(lag.active) < EVENTS + 1:
            lag.measure()
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + 0.5
                shown = str(cluster.sql("SHOW QUERIES;"))
                if "THROTTLED" in shown and standby in shown:
                    slowed.said.set()
            time.sleep(0.01)
        assert slowed.said.is_set(), shown
    assert slowed.stops > 3, "it was slow"
    assert lag.most > BOUND / 2, "it fell behind"
    assert lag.most <= BOUND, "never further than the bound"
    wait_until(lambda: lag.measure() == 0, "the standby has everything")
    wait_until(lambda: "THROTTLED" not in str(cluster.sql("SHOW QUERIES;")), "batches do not wait")
    for page in (lag.active, lag.standby):
        page.close()


def page_of(cluster: TestCluster, node: NodeId) -> StatusReader:
    paths = paths_of(cluster, node)
    snapshot = read_snapshot(paths.snapshot)
    assert snapshot is not None
    (placement,) = snapshot.assignment.placements
    return StatusReader(page_path(paths.run, placement.replica_id))


def rows_there(page: StatusReader) -> int:
    status = page.read()
    assert status is not None
    return status.rows
