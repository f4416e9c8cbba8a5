"""A user's DataFrame as a served table, whatever happens to the user's program.

examples/serve_dataframe.py against a cluster that has no pipeline: nodes and the user's Spark are a
complete set-up. At random moments, sixty times: `make serve-kills`. Two programs at once, of which
one is paused and comes back: test_serve_fenced.py (`make stories`).
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.e2e.cluster import TestCluster
from tests.e2e.user_programs import (
    USERS,
    Purchases,
    feed_until_death,
    programs,
    shown,
    verify,
    wait_for_holder,
)

import standpipe


@pytest.mark.timeout(1500)
def test_every_row_survives_the_death_of_its_program(
    nodes_alone: TestCluster, tmp_path: Path
) -> None:
    nodes_alone.topic("purchases")
    purchases = Purchases(nodes_alone)
    with programs(nodes_alone, tmp_path) as started:
        first = started(fails_at="before-progress@2")
        purchases.send()
        first.wait_for("SCORES is served")
        purchases.check()
        wait_for_holder(nodes_alone, first)
        query = shown(nodes_alone)
        assert (query["state"], query["isExternal"]) == ("RUNNING", True)

        second = started(fails_at="after-progress@5")
        second.wait_for("standing by: SCORES is written by")
        feed_until_death(purchases, first)
        assert first.process.returncode == -signal.SIGKILL, "rows are written, not committed"
        second.wait_for("SCORES is served")
        purchases.check()

        third = started()
        feed_until_death(purchases, second)
        assert second.process.returncode == -signal.SIGKILL, "committed; Spark has not noted it"
        third.wait_for("SCORES is served")
        purchases.check()
        verify(nodes_alone)
        check_that_it_is_as_others(nodes_alone)


def check_that_it_is_as_others(cluster: TestCluster) -> None:
    """For routing and push queries, nothing is special about a table that a program writes."""
    nodes = [address for _, address in cluster.addresses]
    (route,) = cluster.sql("EXPLAIN ROUTE SELECT * FROM SCORES WHERE USER_ID = 'a0';")
    assert route["partitions"][0]["activeHost"] in nodes
    with standpipe.connect(nodes) as client:
        text = "SELECT * FROM SCORES EMIT CHANGES LIMIT 3;"
        rows = list(client.stream(text, from_beginning=True))
    assert len(rows) == 3
    assert {row["USER_ID"] for row in rows} <= set(USERS)
