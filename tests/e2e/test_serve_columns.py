"""A served table gets a column while another program writes it that does not know the column."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from tests.e2e.cluster import TestCluster
from tests.e2e.user_programs import programs, verify

from standpipe.local.demo.flights import Event

PROGRAM = Path(__file__).with_name("more_columns.py")


@pytest.mark.timeout(1500)
def test_a_column_is_added_in_place(nodes_alone: TestCluster, tmp_path: Path) -> None:
    nodes_alone.topic("purchases")

    def send(**cents: int) -> None:
        values = [{"user_id": user, "cents": each} for user, each in cents.items()]
        nodes_alone.send(
            "purchases",
            [Event(str(v["user_id"]).encode(), json.dumps(v).encode(), 1) for v in values],
        )

    def check(*rows: list[object]) -> None:
        nodes_alone.wait_for_rows("SELECT * FROM SCORES;", rows)
        one, *_ = rows
        for columns in ("*", "USER_ID, CENTS, EUROS")[: len(one) - 1]:
            text = f"SELECT {columns} FROM SCORES WHERE USER_ID = '{one[0]}';"
            nodes_alone.wait_for_rows(text, [one])
        if len(rows) > 1:
            many = "SELECT * FROM SCORES WHERE USER_ID IN ({});"
            keys = ", ".join(f"'{row[0]}'" for row in rows)
            nodes_alone.wait_for_rows(many.format(keys), rows)

    with programs(nodes_alone, tmp_path) as started:
        before = started(example=PROGRAM)
        send(ada=100, bob=200)
        before.wait_for("SCORES is served")
        check(["ada", 100], ["bob", 200])

        standby = started(example=PROGRAM, MORE="1")
        standby.wait_for("standing by: SCORES is written by")
        check(["ada", 100, None], ["bob", 200, None])
        send(eve=50)
        check(["ada", 100, None], ["bob", 200, None], ["eve", 50, None])

        before.signal(signal.SIGKILL)
        standby.wait_for("SCORES is served")
        send(ada=25, eve=0)  # whether the program before it had eve's batch noted is not known
        check(["ada", 125, 1.25], ["bob", 200, None], ["eve", 50, 0.5])
        verify(nodes_alone)

        standby.signal(signal.SIGKILL)
        again = started(example=PROGRAM)
        again.wait_for("SCORES is served")
        send(bob=1, ada=0, eve=0)
        check(["ada", 125, None], ["bob", 201, None], ["eve", 50, None])
        verify(nodes_alone)
