"""Kill -9 of the driver mid-batch and of nodes mid-transaction: the final answers are right.

While flights stream in, these die, each by SIGKILL and each started again on its own data:
the Python driver between a batch's records and its progress record, the JVM alone, both together,
a node while its tailer applies, and the node that holds the log. In the end every row of every
table, asked through every node, equals the recompute. Then one replica is given another row: the
nodes find it and make it anew.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from tests.e2e.cluster import WAIT_S_MAX, TestCluster, start, wait_until
from tests.e2e.processes import descendants

from standpipe.adapters.store.reader import StoreReader
from standpipe.adapters.store.writer import StoreWriter
from standpipe.config import keys
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.errors import StandpipeError
from standpipe.local.cli.table import UNKNOWN
from standpipe.local.client.rest_client import NodesClient
from standpipe.local.demo import check, feed, flights
from standpipe.local.demo.progress import DemoProgress
from standpipe.local.demo.wait import Arrival
from standpipe.model import NodeId
from standpipe.pipeline.commit import failpoint

EVENTS = 9_000
PORTION = 1_500
#: three replicas, of which two can outvote one. Digests seldom enough that two slow cores keep up
COPIES = 3
CONFIG = {"num.standby.replicas": str(COPIES - 1), keys.DIGEST_INTERVAL.name: "20000"}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestCluster]:
    """A cluster of its own, whose first driver dies between batch 1 and its progress record."""
    monkeypatch.setenv(failpoint.VARIABLE, "before-progress@1")
    running = start(tmp_path / "cluster", config=CONFIG)
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
        return next(iter(descendants(pid, "java")), None)

    found = wait_until(jvm, "a JVM of the driver")
    assert found is not None
    found.kill()


class Flow:
    """Flights in portions, and how far they are. A crash comes while a portion is under way."""

    def __init__(self, cluster: TestCluster) -> None:
        cluster.topic(flights.FLIGHTS_TOPIC)
        cluster.sql(flights.STREAM)
        for statement in flights.TABLES.values():
            cluster.sql(statement)
        self.progress = DemoProgress(cluster.bootstrap_servers, "default_")
        self.arrival = Arrival(cluster.addresses, self.progress, flights.FLIGHTS_TOPIC, str)
        self.arrival.queries = {table: cluster.query_of(table) for table in flights.TABLES}
        self.progress.start()
        self.feed = feed.Feed(cluster.bootstrap_servers)
        self.events = iter(flights.load(EVENTS + PORTION).events)
        self.sent = 0

    def send(self) -> None:
        """One portion more, acknowledged by Kafka."""
        self.feed.send_all(flights.FLIGHTS_TOPIC, islice(self.events, PORTION))
        self.sent += PORTION

    def wait_for_a_commit(self) -> None:
        """Another batch, unless all is committed already: this process may be slow, too."""
        before = self.arrival.events_in_tables()

        def is_committed() -> bool:
            now = self.arrival.events_in_tables()
            return now > before or now == self.sent

        wait_until(is_committed, "another batch")


@pytest.mark.timeout(1800)
def test_answers_are_right_after_crashes_of_everything(cluster: TestCluster) -> None:
    flow = Flow(cluster)
    flow.send()
    flow.wait_for_a_commit()
    flow.send()
    wait_for_restart(cluster, 1)  # the failpoint
    flow.send()
    flow.wait_for_a_commit()  # now the tailers have it to apply
    restart(cluster, NodeId("node-2"))
    flow.send()
    kill_jvm_alone(cluster)
    wait_for_restart(cluster, 2)
    flow.send()
    flow.wait_for_a_commit()
    restart(cluster, NodeId("node-1"))  # the log's holder
    flow.send()
    cluster.local.kill_pipeline()
    wait_for_restart(cluster, 3)
    restart(cluster, NodeId("node-3"))
    flow.arrival.wait_for_events(EVENTS)
    flow.arrival.wait_for_replicas(COPIES)

    public = [address for _, address in cluster.addresses]
    found = check.check(public, check.recompute(EVENTS))
    assert (found.wrong[:5], found.failed[:5]) == ([], [])
    assert found.rows > 2_500
    for table in flights.TABLES:
        verified = verify_all(cluster, table)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        assert f"all replicas of {table} hold the same rows" in verified.stdout
    check_that_an_odd_replica_is_made_anew(cluster, NodeId("node-2"))
    check_that_a_bound_is_kept_from_the_first_answer_on(cluster, flow, NodeId("node-3"))
    flow.progress.stop()


def check_that_a_bound_is_kept_from_the_first_answer_on(
    cluster: TestCluster, flow: Flow, node: NodeId
) -> None:
    """A node that starts again knows nothing of what was committed while it was away: not by what
    its tailer had said before, not by the progress that it has read so far."""
    table = "SELECT * FROM AIRCRAFT;"
    before = {row[0]: list(row) for row in cluster.pull(table).rows}
    cluster.local.kill_node(node)
    flow.send()
    flow.arrival.wait_for_events(EVENTS + PORTION)
    # the other nodes may learn of what is committed later than this process
    flow.arrival.wait_for_replicas(COPIES - 1)
    bound = {"ksql.query.pull.max.allowed.offset.lag": "0"}
    refused: list[str] = []

    def rows() -> dict[Any, list[Any]] | None:
        try:
            return {row[0]: list(row) for row in cluster.pull(table, bound).rows}
        except StandpipeError as error:  # lags are not known yet
            refused[:] = [str(error)]
            return None

    wanted = wait_until(rows, "all rows, with no lag", lambda: str(refused))
    assert wanted is not None
    changed = [key for key, row in wanted.items() if before.get(key) != row]
    assert len(changed) > 100, "some of them in a partition that it is the active of"
    del changed[300:]  # as many show it; thousands took minutes on a slow machine
    cluster.local.restart_node(node)
    served_itself = 0
    with NodesClient([dict(cluster.addresses)[node]]) as client:
        deadline = time.monotonic() + WAIT_S_MAX
        while served_itself < len(changed):
            assert time.monotonic() < deadline, f"{served_itself} answers of {node} itself"
            for key in changed:
                try:
                    answer = client.pull(f"SELECT * FROM AIRCRAFT WHERE TAILNUM = '{key}';", bound)
                except (StandpipeError, httpx2.HTTPError):
                    continue  # it may refuse; it may not be there yet
                assert [list(row) for row in answer.rows] == [wanted[key]], answer
                served_itself += answer.fresh.served_by == node


def check_that_an_odd_replica_is_made_anew(cluster: TestCluster, node: NodeId) -> None:
    (plan,) = (plan for plan in cluster.local.plans if plan.node_id == node)
    cluster.local.kill_node(node)
    store = next(path for path in (plan.data_directory / "state").glob("*/*/data.mdb")).parent
    name = give_another_row(store)
    cluster.local.restart_node(node)
    log = plan.data_directory / "logs" / "tailer.log"
    said = f'"replica": "{name}"'

    def made_anew() -> bool | None:
        lines = log.read_text().splitlines()
        return any("replica is rebuilt" in line and said in line for line in lines) or None

    wait_until(made_anew, f"{name} made anew at {node}")
    for table in flights.TABLES:

        def is_equal(table: str = table) -> bool | None:
            return verify(cluster, table).returncode == 0 or None

        wait_until(is_equal, f"equal replicas of {table}")


def give_another_row(path: Path) -> str:
    """A row that nobody wrote, under a key that is there (of a window that has not expired), the
    batch, and a digest that fits: as a faulty tailer would leave it. Returns the replica's name."""
    reader = StoreReader(path)
    identity = reader.meta().identity
    [(key, _)] = reader.scan(b"", b"\xff" * 512, 1)
    reader.close()
    store = StoreWriter(path, identity)
    store.apply([(key, pack_row(b"[1]", 0))], [], store.meta())
    store.close()
    return str(identity.replica_id)


def verify(cluster: TestCluster, table: str) -> subprocess.CompletedProcess[str]:
    """Every row of every replica, as an operator would have it."""
    command = [sys.executable, "-m", "standpipe", "table", "verify", table, "--recompute"]
    command += ["--directory", str(cluster.local.options.directory)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def verify_all(cluster: TestCluster, table: str) -> subprocess.CompletedProcess[str]:
    """The same, once every replica has answered: a busy one is no other one."""
    found: list[subprocess.CompletedProcess[str]] = []

    def is_known() -> bool:
        found[:] = [verify(cluster, table)]
        return found[0].returncode != UNKNOWN

    wait_until(is_known, f"answers of all replicas of {table}", lambda: found[0].stdout)
    return found[0]


def restart(cluster: TestCluster, node: NodeId) -> None:
    """SIGKILL to the whole node, and start it on its data."""
    cluster.local.kill_node(node)
    cluster.local.restart_node(node)
