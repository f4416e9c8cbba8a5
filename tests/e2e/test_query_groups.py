"""Tables over one stream share one streaming query, and stay tables of their own.

The demo's three tables and one more. Their first driver dies between two of their progress records;
then one is paused and resumed, one dropped, one fails: whatever happens to one, each row of the
others equals the recompute.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.test_poison import state_of

from standpipe.config import keys
from standpipe.local.demo import check, feed, flights
from standpipe.local.demo.progress import DemoProgress
from standpipe.local.demo.wait import Arrival
from standpipe.pipeline.commit import failpoint
from standpipe.pipeline.commit.query_group import QueryGroup, groups_below

PORTION = 3_000
#: beside the demo's tables
DEST = "CREATE TABLE OF_DEST AS SELECT DEST, COUNT(*) AS N FROM FLIGHTS GROUP BY DEST EMIT CHANGES;"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestCluster]:
    """A cluster of its own; its first driver dies when CARRIER_DAY is committed, and others of its
    group are not."""
    monkeypatch.setenv(failpoint.VARIABLE, "after-a-progress@CARRIER_DAY")
    config = {keys.QUERY_GROUPS.name: "true", "num.standby.replicas": "0"}
    running = start(tmp_path / "cluster", nodes=1, config=config)
    monkeypatch.delenv(failpoint.VARIABLE)
    try:
        yield running
    finally:
        running.close()


class Flow:
    """Flights in portions, and how far the demo's tables are."""

    def __init__(self, cluster: TestCluster) -> None:
        self.cluster = cluster
        cluster.topic(flights.FLIGHTS_TOPIC)
        cluster.sql(flights.STREAM)
        pipeline = cluster.local.pipeline
        assert pipeline is not None
        pipeline.signal_group(signal.SIGSTOP)  # a query that comes a second later joins no group
        cluster.sql("\n".join([*flights.TABLES.values(), DEST]))
        pipeline.signal_group(signal.SIGCONT)
        self.progress = DemoProgress(cluster.bootstrap_servers, "default_")
        self.arrival = Arrival(cluster.addresses, self.progress, flights.FLIGHTS_TOPIC, str)
        self.arrival.queries = {table: cluster.query_of(table) for table in flights.TABLES}
        self.progress.start()
        self.feed = feed.Feed(cluster.bootstrap_servers)
        self.events = iter(flights.load(None).events)
        self.sent = 0

    def send(self) -> None:
        self.feed.send_all(flights.FLIGHTS_TOPIC, islice(self.events, PORTION))
        self.sent += PORTION

    def check(self) -> None:
        """Every row of the demo's tables is the recompute's."""
        self.arrival.wait_for_events(self.sent)
        self.arrival.wait_for_replicas()
        public = [address for _, address in self.cluster.addresses]
        found = check.check(public, check.recompute(self.sent))
        assert (found.wrong[:5], found.failed[:5]) == ([], [])
        assert found.rows > 1_000

    def wait_for_all_in_dest(self) -> None:
        def is_there() -> bool | None:
            rows = self.cluster.pull("SELECT * FROM OF_DEST;").rows
            return sum(int(row[1]) for row in rows) == self.sent or None

        wait_until(is_there, f"{self.sent} flights in OF_DEST")

    def group(self) -> QueryGroup:
        directory = self.cluster.local.options.directory
        (group,) = groups_below(directory / "checkpoints", "default_")
        return group

    def shown(self) -> dict[str, str | None]:
        """{table: the group that its query is in}, as SHOW QUERIES says."""
        queries = [each for said in self.cluster.sql("SHOW QUERIES;") for each in said["queries"]]
        return {each["sinks"][0]: (each["standpipe"] or {}).get("group") for each in queries}

    def wait_until_shown(self, table: str, group_id: str | None) -> None:
        """The pipeline reports once a second: rows may be there before its report."""
        wait_until(
            lambda: self.shown()[table] == group_id,
            f"{table} in {group_id}",
            lambda: str(self.shown()),
        )

    def together(self, *tables: str) -> bool | None:
        ids = {self.cluster.query_of(table) for table in tables}
        return set(self.group().together) == ids or None


@pytest.mark.timeout(1200)
def test_tables_of_a_group_are_tables_of_their_own(cluster: TestCluster) -> None:
    flow = Flow(cluster)
    try:
        _run(cluster, flow)
    finally:
        flow.progress.stop()


def _run(cluster: TestCluster, flow: Flow) -> None:
    pipeline = cluster.local.pipeline
    assert pipeline is not None
    flow.send()
    wait_until(lambda: pipeline.restarts >= 1 or None, "the driver died at the failpoint")
    flow.check()
    assert flow.together(*flights.TABLES, "OF_DEST"), "all of them"
    for table in flow.shown():
        flow.wait_until_shown(table, flow.group().group_id)

    dest = cluster.query_of("OF_DEST")
    cluster.sql(f"PAUSE {dest};")
    wait_until(lambda: flow.together(*flights.TABLES), "the group goes on without it")
    flow.send()
    flow.check()
    cluster.sql(f"RESUME {dest};")
    flow.wait_for_all_in_dest()
    assert flow.together(*flights.TABLES), "it runs alone from its copy of the checkpoint"
    flow.wait_until_shown("OF_DEST", None)

    cluster.local.kill_pipeline()
    flow.send()
    wait_until(lambda: pipeline.restarts >= 2 or None, "another driver")
    flow.check()
    flow.wait_for_all_in_dest()

    cluster.sql("DROP TABLE OF_DEST;")
    flow.send()
    flow.check()
    assert flow.together(*flights.TABLES)

    # a checkpoint that is not its own: one table cannot start, the others can
    week = cluster.query_of("ORIGIN_CARRIER_WEEK")
    identity = cluster.local.options.directory / "checkpoints" / f"{week}-1" / "standpipe.json"
    right = identity.read_text()
    identity.write_text(right.replace(week, "ANOTHER"))
    cluster.local.kill_pipeline()
    wait_until(lambda: "CHECKPOINT_MISMATCH" in state_of(cluster, week) or None, "it failed")
    day = cluster.query_of("CARRIER_DAY")
    wait_until(lambda: state_of(cluster, day)[0] == "RUNNING" or None, "the other goes on")
    assert flow.group().together == (), "the group is divided"
    flow.send()
    identity.write_text(right)
    cluster.local.kill_pipeline()  # the next driver tries again, each query alone
    flow.check()
