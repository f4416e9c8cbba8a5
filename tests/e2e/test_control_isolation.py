"""An isolated query stays isolated while drivers, leaders and the whole quorum die.

The nodes are real; the drivers only register and renew, as the connection of a real one does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.control_cluster import NAMES, SECRET, ControlCluster, until

from standpipe.config import keys
from standpipe.pipeline.run.control_client import Follower

STATEMENTS = (
    "CREATE STREAM S (K STRING KEY) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON', PARTITIONS=1);",
    "CREATE TABLE GOOD AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;",
    "CREATE TABLE RISKY AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;",
)


#: a driver that never renews has so long to be seen at all nodes
LEASE_MS = 6_000


def cluster_of(directory: Path, **settings: int) -> Iterator[ControlCluster]:
    cluster = ControlCluster(directory, settings={**settings})
    try:
        cluster.start(*NAMES)
        cluster.until_voters(*NAMES)
        cluster.until_members(3, *NAMES)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ControlCluster]:
    yield from cluster_of(tmp_path, **{keys.LEASE_TIMEOUT.name: LEASE_MS})


@pytest.fixture
def older(tmp_path: Path) -> Iterator[ControlCluster]:
    """A cluster whose nodes know no level above the one before isolation."""
    yield from cluster_of(tmp_path, **{keys.FEATURE_LEVEL_MAX.name: 6})


def isolate(cluster: ControlCluster, *arguments: str) -> tuple[int, str]:
    """Status and everything that `standpipe query isolate …` says, asked through all nodes."""
    asked = [word for name in NAMES for word in ("--node", cluster.configs[name].internal)]
    asked += ["--secret-file", str(cluster.directory / "secret")]
    command = [sys.executable, "-m", "standpipe", "query", "isolate", *arguments, *asked]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return ran.returncode, " ".join((ran.stdout + ran.stderr).split())


def holders(cluster: ControlCluster, name: str) -> dict[str, str] | None:
    """{table: the pipeline that writes it}, as this node has it."""
    described = cluster.describe(name)
    if described is None:
        return None
    leases = described["leases"].items()
    return {query.split("_")[1]: lease["pipeline_id"] for query, lease in leases}


def until_held(cluster: ControlCluster, why: str, **wanted: str) -> None:
    for name in NAMES:
        until(f"{wanted} at {name}: {why}", lambda name=name: holders(cluster, name) == wanted)


def starts(cluster: ControlCluster, pipeline: str) -> None:
    """A driver of RISKY registers, and then never renews."""
    body = {"pipeline_id": pipeline, "isolates": "RISKY", "request_id": pipeline}
    until(
        f"{pipeline} registered",
        lambda: cluster.post(cluster.leader(), "/pipeline/start", body).status_code == 200,
    )


def message(cluster: ControlCluster) -> str:
    """What a node shows of RISKY."""
    statuses = cluster.snapshot(NAMES[0]).query_statuses
    return next((each.message for each in statuses if "RISKY" in each.query_id), "")


@pytest.mark.timeout(300)
def test_an_isolation_outlives_drivers_and_nodes(cluster: ControlCluster) -> None:
    for number, statement in enumerate(STATEMENTS):
        assert cluster.execute(NAMES[0], statement, f"r{number}").status_code == 200
    shared = Follower([cluster.configs[name].internal for name in NAMES], SECRET, list)
    shared.start()
    try:
        assert shared.register("shared", is_over=lambda: False) is not None
        until_held(cluster, "all are shared", GOOD="shared", RISKY="shared")

        status, said = isolate(cluster, "risky")
        assert (status, "its drivers: none yet" in said) == (0, True), said
        until_held(cluster, "it waits for its driver", GOOD="shared")
        until("the next step", lambda: "`standpipe pipeline --isolate RISKY`" in message(cluster))
        starts(cluster, "own-1")
        until_held(cluster, "it has its own", GOOD="shared", RISKY="own-1")
        assert message(cluster) == "", "before it is silent for too long"
        until("own-1 is given up", lambda: "--isolate RISKY" in message(cluster))
        until_held(cluster, "nobody else gets it", GOOD="shared", RISKY="own-1")

        cluster.kill(leader := cluster.leader())
        cluster.leader(*(name for name in NAMES if name != leader))
        cluster.start(leader)
        starts(cluster, "own-2")
        until_held(cluster, "the next leader knows it", GOOD="shared", RISKY="own-2")

        for name in NAMES:
            cluster.kill(name)
        cluster.start(*NAMES)
        cluster.until_voters(*NAMES)
        until("own-2 is given up", lambda: "--isolate RISKY" in message(cluster))
        until_held(cluster, "so do all after a restart", GOOD="shared", RISKY="own-2")

        status, said = isolate(cluster, "RISKY", "--undo")
        assert (status, "isolated no longer: shared pipelines run CTAS_RISKY" in said) == (0, True)
        until_held(cluster, "given back", GOOD="shared", RISKY="shared")
        status, said = isolate(cluster, "RISKY", "--undo")
        assert (status, "RISKY is not isolated. Isolated are: none" in said) == (1, True)
    finally:
        shared.close()


@pytest.mark.timeout(300)
def test_below_its_feature_level_nothing_is_isolated(older: ControlCluster) -> None:
    """An older node would let the shared pipelines run it."""
    status, said = isolate(older, "RISKY")
    assert status == 1
    assert "isolate_query needs feature level 7, this cluster is at 6: `standpipe quorum up" in said
    body = {"pipeline_id": "own", "isolates": "RISKY"}
    answer = older.post(older.leader(), "/pipeline/start", body)
    assert (answer.status_code, "needs feature level 7" in answer.text) == (400, True)
    assert (older.describe(NAMES[0]) or {})["pipelines"] == []
