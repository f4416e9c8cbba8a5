"""`/clusterStatus`: lags in records against the largest end that anybody knows, lags in ms as old
as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.node.workers import Worker, page

STORE = "CTAS_USERS_1#Aggregate-Aggregate-Materialize"


def status_of(tmp_path: Path, own_end: int, reported_end: int, reported_ms_ago: int = 0) -> Any:
    """Seen from a, which holds partition 0 with b; both have applied 100."""
    worker = Worker(tmp_path, "a", {})
    worker.publish(["a", "b"], {0: ["a", "b"]})
    worker.hold(0, page(100, own_end))
    worker.hear(("b", 0, 100, reported_end), reported_ms_ago=reported_ms_ago)
    found = worker.cluster_status()
    worker.replicas.close()
    return found


@pytest.mark.parametrize(
    ("own_end", "reported_end", "lag", "why"),
    [
        (100, 100, 0, "nobody knows of more"),
        (5000, 100, 4900, "this node does"),
        (100, 5000, 4900, "the peer does"),
    ],
)
def test_every_lag_counts_against_the_largest_end(
    tmp_path: Path, own_end: int, reported_end: int, lag: int, why: str
) -> None:
    hosts = status_of(tmp_path, own_end, reported_end)
    for host in ("a", "b"):
        assert hosts[host]["standpipe"]["replicas"]["T1-1-0"]["offsetLag"] == lag, why
        told = hosts[host]["hostStoreLags"]["stateStoreLags"][STORE]["lagByPartition"]["0"]
        assert (told["offsetLag"], told["endOffsetPosition"]) == (lag, 100 + lag), why


def test_a_peers_lag_in_ms_is_as_old_as_it_was_told(tmp_path: Path) -> None:
    """Beats renewed it just now, without a word on the lag in ms: 40 ms, and that 4 s ago."""
    told = status_of(tmp_path, 100, 100, 4000)["b"]["standpipe"]["replicas"]["T1-1-0"]
    assert told["replicaLagMs"] >= 4040
    assert told["sourceLagMs"] >= 4900
    assert told["ageMs"] < 4000
