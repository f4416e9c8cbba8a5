"""Several tables from one query of a user's program: each batch is in all of them, or replayed.

examples/serve_many.py against a cluster that has no pipeline. It commits SCORES before SPENDING.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.e2e.cluster import TestCluster, wait_until
from tests.e2e.user_programs import (
    EXAMPLE,
    Program,
    Purchases,
    feed_until_death,
    programs,
    verify,
    wait_for_holder,
)

MANY = EXAMPLE.with_name("serve_many.py")
SERVED = "SCORES and SPENDING are served"
SPENDING = "SELECT * FROM SPENDING;"


def spent(purchases: Purchases, since: int = 0) -> list[list[object]]:
    """The rows of SPENDING: of the users that have an event from number `since` on."""
    found = Counter[str]()
    for each in purchases.sent:
        found[str(each["user_id"])] += int(str(each["cents"]))
    recent = {str(each["user_id"]) for each in purchases.sent[since:]}
    return [[user, cents] for user, cents in found.items() if user in recent]


def rows_of_spending(cluster: TestCluster) -> list[list[object]] | None:
    with suppress(Exception):  # no batch of it is committed
        return sorted(map(list, cluster.pull(SPENDING).rows))
    return None


@pytest.mark.timeout(1500)
def test_all_tables_have_every_batch(nodes_alone: TestCluster, tmp_path: Path) -> None:
    nodes_alone.topic("purchases")
    purchases = Purchases(nodes_alone)

    def check(since: int = 0) -> None:
        purchases.check()
        nodes_alone.wait_for_rows(SPENDING, spent(purchases, since))

    with programs(nodes_alone, tmp_path) as begin:

        def started(fails_at: str = "") -> Program:
            return begin(fails_at=fails_at, example=MANY)

        purchases.send()
        first = started("after-a-progress@SCORES")
        assert first.wait_for_end() == -signal.SIGKILL
        purchases.check()
        assert rows_of_spending(nodes_alone) is None, "the batch is in one of the tables"

        second = started("before-progress@2")
        second.wait_for(SERVED)
        check()
        feed_until_death(purchases, second)
        before = rows_of_spending(nodes_alone)

        third = started("after-a-progress@SCORES")
        assert third.wait_for_end() == -signal.SIGKILL
        purchases.check()
        assert rows_of_spending(nodes_alone) == before != sorted(spent(purchases))

        fourth = started()
        fourth.wait_for(SERVED)
        check()
        last = check_takeover(nodes_alone, purchases, fourth, started, check)
        check_a_new_table(nodes_alone, purchases, last, started, check)


def check_takeover(
    cluster: TestCluster,
    purchases: Purchases,
    running: Program,
    started: Callable[[], Program],
    check: Callable[[], None],
) -> Program:
    """A standby takes all tables over, and the program that was paused is fenced. Returns it."""
    standby = started()
    standby.wait_for("standing by: SCORES is written by")
    wait_for_holder(cluster, running)
    running.signal(signal.SIGSTOP)
    standby.wait_for(SERVED)
    purchases.send()
    check()
    running.signal(signal.SIGCONT)
    assert running.wait_for_end() == 1
    assert "FENCED: this application lost the lease of S" in running.said()
    purchases.send()
    check()
    verify(cluster)
    return standby


def check_a_new_table(
    cluster: TestCluster,
    purchases: Purchases,
    running: Program,
    started: Callable[[], Program],
    check: Callable[[int], None],
) -> None:
    """What ends one of them ends the program. A table that is created again begins with the next
    batch; the other one goes on."""
    cluster.sql("DROP TABLE SPENDING;")
    assert running.wait_for_end() == 1
    assert "DROPPED: SPENDING was dropped" in running.said()

    def is_gone() -> bool:
        return all(
            each["name"] != "SPENDING" for e in cluster.sql("SHOW TABLES;") for each in e["tables"]
        )

    wait_until(is_gone, "SPENDING is gone")
    again, since = started(), len(purchases.sent)
    again.wait_for(SERVED)
    purchases.send(3)
    check(since)
    verify(cluster)
