"""A served table gets a column while another program writes it that does not know the column."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.cluster import TestCluster
from tests.e2e.user_programs import Program, programs, verify

import standpipe
from standpipe.local.demo.flights import Event
from standpipe.model import NodeId

PROGRAM = Path(__file__).with_name("more_columns.py")
Started = Callable[..., Program]


def send(cluster: TestCluster, **cents: int) -> None:
    values = [{"user_id": user, "cents": each} for user, each in cents.items()]
    cluster.send(
        "purchases", [Event(str(v["user_id"]).encode(), json.dumps(v).encode(), 1) for v in values]
    )


def check(cluster: TestCluster, *rows: list[object]) -> None:
    """By a scan, by one key, with its columns and with a condition, and by a list."""
    cluster.wait_for_rows("SELECT * FROM SCORES;", rows)
    one, *_ = rows
    for columns in ("*", "USER_ID, CENTS, EUROS")[: len(one) - 1]:
        for more in ("", " AND CENTS >= 0"):
            text = f"SELECT {columns} FROM SCORES WHERE USER_ID = '{one[0]}'{more};"
            for _ in range(3):  # by then its short way is known
                cluster.wait_for_rows(text, [one])
    if len(rows) > 1:
        many = "SELECT * FROM SCORES WHERE USER_ID IN ({});"
        keys = ", ".join(f"'{row[0]}'" for row in rows)
        for _ in range(3):
            cluster.wait_for_rows(many.format(keys), rows)


@pytest.mark.timeout(1500)
def test_a_column_is_added_in_place(nodes_alone: TestCluster, tmp_path: Path) -> None:
    nodes_alone.topic("purchases")
    with programs(nodes_alone, tmp_path) as started:
        check_old_and_new_programs(nodes_alone, started)
        check_a_load_of_an_old_program(nodes_alone, started)
    check_that_it_is_shown(nodes_alone)
    check_that_it_is_restored(nodes_alone)


def check_old_and_new_programs(cluster: TestCluster, started: Started) -> None:
    before = started(example=PROGRAM)
    send(cluster, ada=100, bob=200)
    before.wait_for("SCORES is served")
    check(cluster, ["ada", 100], ["bob", 200])

    standby = started(example=PROGRAM, MORE="1")
    standby.wait_for("standing by: SCORES is written by")
    check(cluster, ["ada", 100, None], ["bob", 200, None])
    send(cluster, eve=50)
    check(cluster, ["ada", 100, None], ["bob", 200, None], ["eve", 50, None])

    before.signal(signal.SIGKILL)
    standby.wait_for("SCORES is served")
    send(cluster, eve=0)  # whether the program before it had her batch noted is not known
    check(cluster, ["ada", 100, None], ["bob", 200, None], ["eve", 50, 0.5])
    send(cluster, ada=25)
    check(cluster, ["ada", 125, 1.25], ["bob", 200, None], ["eve", 50, 0.5])
    verify(cluster)

    standby.signal(signal.SIGKILL)
    again = started(example=PROGRAM)
    again.wait_for("SCORES is served")
    send(cluster, ada=0)
    check(cluster, ["ada", 125, None], ["bob", 200, None], ["eve", 50, 0.5])
    verify(cluster)
    again.signal(signal.SIGKILL)


ROWS: tuple[list[object], ...] = (
    ["ada", 125, None],  # written by a program that knows the column only from the table
    ["bob", 200, None],  # from before
    ["eve", 50, 0.5],
    ["zoe", 7, None],  # loaded
)


def check_a_load_of_an_old_program(cluster: TestCluster, started: Started) -> None:
    load = started(example=PROGRAM, LOAD="1")
    assert load.wait_for_end() == 0, load.said()
    check(cluster, *ROWS)
    for user, cents, euros in ROWS:
        row = f"Row(USER_ID={user!r}, CENTS={cents}, EUROS={euros})"
        assert row in load.said(), "read back as a DataFrame"


def check_that_it_is_shown(cluster: TestCluster) -> None:
    names = ["USER_ID", "CENTS", "EUROS"]
    (described,) = cluster.sql("DESCRIBE SCORES;")
    assert [each["name"] for each in described["sourceDescription"]["fields"]] == names
    (explained,) = cluster.sql(f"EXPLAIN {cluster.query_of('SCORES')};")
    assert [each["name"] for each in explained["queryDescription"]["fields"]] == names
    nodes = [address for _, address in cluster.addresses]
    with standpipe.connect(nodes) as client:
        text = "SELECT * FROM SCORES EMIT CHANGES LIMIT 7;"
        changes = list(client.stream(text, from_beginning=True))
        euros = {(row["USER_ID"], row["EUROS"]) for row in changes}
        assert {("bob", None), ("eve", None), ("eve", 0.5), ("ada", 1.25)} <= euros
        assert client.get("SCORES", user_id="bob") is not None


def check_that_it_is_restored(cluster: TestCluster) -> None:
    """One node from the other, then both from the topic."""
    for lost in (cluster.local.plans[:1], cluster.local.plans):
        for plan in lost:
            cluster.local.kill_node(NodeId(plan.node_id))
            shutil.rmtree(plan.data_directory / "state")
        for plan in lost:
            cluster.local.restart_node(NodeId(plan.node_id))
        check(cluster, *ROWS)
        verify(cluster)
