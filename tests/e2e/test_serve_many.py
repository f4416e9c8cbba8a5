"""Several tables from one query of a user's program: each batch is in all of them, or replayed.

examples/serve_many.py and many_results.py against a cluster that has no pipeline. Tables are
committed in the order of their names, here: SCORES before SPENDING.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
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

from standpipe.local.demo.flights import Event

MANY = EXAMPLE.with_name("serve_many.py")
RESULTS = Path(__file__).with_name("many_results.py")
HOUR_MS = 3_600_000
SERVED = "SCORES and SPENDING are served"
SPENDING = "SELECT * FROM SPENDING;"


def spent(purchases: Purchases, since: int = 0) -> list[list[object]]:
    """The rows of SPENDING: of the users that have an event from number `since` on."""
    found = Counter[str]()
    for each in purchases.sent:
        found[str(each["user_id"])] += int(str(each["cents"]))
    recent = {str(each["user_id"]) for each in purchases.sent[since:]}
    return [[user, cents] for user, cents in found.items() if user in recent]


def rows_of(table: str, cluster: TestCluster) -> list[list[object]] | None:
    with suppress(Exception):  # no batch of it is committed
        return sorted(map(list, cluster.pull(f"SELECT * FROM {table};").rows))
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
        assert rows_of("SPENDING", nodes_alone) is None, "the batch is in one of the tables"

        second = started("before-progress@2")
        second.wait_for(SERVED)
        check()
        feed_until_death(purchases, second)
        scores, spending = (rows_of(each, nodes_alone) for each in ("SCORES", "SPENDING"))

        # the batch that it replays may have a part of what was sent
        third = started("after-a-progress@SCORES")
        assert third.wait_for_end() == -signal.SIGKILL
        wait_until(
            lambda: rows_of("SCORES", nodes_alone) not in (None, scores), "newer rows of SCORES"
        )
        assert rows_of("SPENDING", nodes_alone) == spending != sorted(spent(purchases))

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


@dataclass
class Payments:
    """Who has paid what in which hour, and the rows that follow from it."""

    cluster: TestCluster
    paid: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])

    def send(self, hour: int, **cents: int) -> None:
        self.paid.update({(user, hour * HOUR_MS): each for user, each in cents.items()})
        events = [
            Event(
                user.encode(),
                json.dumps({"user_id": user, "cents": each}).encode(),
                hour * HOUR_MS + 1,
            )
            for user, each in cents.items()
        ]
        self.cluster.send("purchases", events)

    def totals(self) -> Counter[str]:
        found = Counter[str]()
        for (user, _), cents in self.paid.items():
            found[user] += cents
        return found

    def scores(self) -> list[list[object]]:
        found = sorted(self.totals().items(), key=lambda each: (-each[1], each[0]))
        return [list(each) for each in found[:3]]

    def initials(self) -> list[list[object]]:
        found = Counter[str]()
        for user, cents in self.totals().items():
            if cents < 1000:
                found[user[0]] += cents
        return [list(each) for each in found.items()]

    def hours(self, since: int) -> list[list[object]]:
        return [[user, at, n] for (user, at), n in self.paid.items() if at >= since * HOUR_MS]

    def newest(self) -> list[list[object]]:
        last = dict(sorted(self.paid, key=lambda each: each[1]))
        return [[user, at, self.paid[user, at]] for user, at in last.items()]

    def check(self, since: int) -> None:
        wait = self.cluster.wait_for_rows
        wait("SELECT * FROM SCORES;", self.scores())
        wait("SELECT * FROM INITIALS;", self.initials())
        wait("SELECT USER_ID, WINDOWSTART, CENTS FROM HOURS;", self.hours(since))
        wait("SELECT * FROM NEWEST;", self.newest())


@pytest.mark.timeout(1500)
def test_whole_results_and_windows(nodes_alone: TestCluster, tmp_path: Path) -> None:
    """Killed between two tables, in output mode complete and with windows that are dropped."""
    nodes_alone.topic("purchases")
    payments = Payments(nodes_alone)
    with programs(nodes_alone, tmp_path) as begin:

        def started(fails_at: str = "") -> Program:
            return begin(fails_at=fails_at, example=RESULTS)

        payments.send(0, ada=10, bob=20, eve=30, tom=5)
        first = started()
        payments.check(since=0)
        scores = payments.scores()
        first.signal(signal.SIGKILL)
        first.wait_for_end()

        payments.send(0, bill=5_000, tom=2_000)  # who was among the best is not, nor a T
        second = started("after-a-progress@INITIALS")
        assert second.wait_for_end() == -signal.SIGKILL
        nodes_alone.wait_for_rows("SELECT * FROM INITIALS;", payments.initials())
        nodes_alone.wait_for_rows("SELECT * FROM SCORES;", scores)

        third = started()
        payments.check(since=0)
        payments.send(2, ada=1)
        payments.check(since=0)
        third.signal(signal.SIGKILL)
        third.wait_for_end()

        payments.send(3, ada=1)
        fourth = started("after-a-progress@HOURS")
        assert fourth.wait_for_end() == -signal.SIGKILL
        fifth = started()
        fifth.wait_for("all are served")
        payments.send(3, eve=7)  # the next batch has the watermark of hour 3
        payments.check(since=1)
        verify(nodes_alone)
