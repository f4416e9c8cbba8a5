"""A batch DataFrame becomes rows of a table in one commit, beside a program that serves it.

examples/load_history.py runs as a user would run it, against a cluster without a pipeline. It reads
the table back as a DataFrame, too.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.e2e.cluster import TestCluster, wait_until
from tests.e2e.test_pipeline import read_all
from tests.e2e.user_programs import (
    EXAMPLE,
    PORTIONS_MAX,
    Program,
    Purchases,
    programs,
    verify,
    wait_for_holder,
)

from standpipe.adapters.kafka.read_once import log_ends
from standpipe.pipeline.commit import failpoint

HISTORY = EXAMPLE.with_name("load_history.py")
#: before a load writes its rows, and before it commits them
PAUSES = ("before-sink@0", "before-progress@0")
Rows = list[list[object]]


def of_history(users: range, cents: int) -> Rows:
    return [[f"h{n}", "basic", 1, cents + n, n / 2] for n in users]


def saved(path: Path, rows: Rows) -> str:
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    return str(path)


def shown(cluster: TestCluster) -> Rows:
    with suppress(Exception):  # there is no batch yet
        return by_key(map(list, cluster.pull("SELECT * FROM SCORES;").rows))
    return []


def by_key(rows: Iterable[list[object]]) -> Rows:
    return sorted(rows, key=repr)


def end_of(program: Program, status: int = 0) -> str:
    found = program.wait_for_end()
    assert found == status, (found, program.said()[-4000:])
    return program.said()


def feed_until_death(
    cluster: TestCluster, purchases: Purchases, program: Program, others: Rows
) -> None:
    """Portion after portion, until one kills the program in the middle of its batch. Each is of few
    users, so that most have no event after it, even if it falls into two batches."""
    for _ in range(PORTIONS_MAX):
        purchases.send(3)
        expected = by_key([*others, *purchases.rows()])

        def is_over(expected: Rows = expected) -> bool | None:
            return program.process.poll() is not None or shown(cluster) == expected or None

        wait_until(is_over, "its rows, or its death", program.said)
        if program.process.poll() is not None:
            assert program.process.returncode == -signal.SIGKILL
            return
    raise AssertionError(f"the failpoint was not reached: {program.said()[-2000:]}")


def users_behind(cluster: TestCluster, checkpoint: Path, batch: int) -> set[str]:
    """Who has events behind those of a batch."""
    (file,) = checkpoint.glob(f"*/epoch-*/offsets/{batch}")
    ends: dict[str, int] = json.loads(file.read_text().splitlines()[-1])["purchases"]
    return {
        str(json.loads(message.value() or b"")["user_id"])
        for message in read_all(cluster.bootstrap_servers, "purchases", len(ends))
        if (message.offset() or 0) >= ends[str(message.partition())]
    }


@pytest.mark.timeout(1800)
def test_a_table_begins_with_its_history(nodes_alone: TestCluster, tmp_path: Path) -> None:
    nodes_alone.topic("purchases")
    purchases, old = Purchases(nodes_alone), of_history(range(500), cents=100)
    file = saved(tmp_path / "history.csv", old)
    with programs(nodes_alone, tmp_path) as started:
        killed = started(example=HISTORY, HISTORY=file, fails_at="before-progress@0")
        end_of(killed, -signal.SIGKILL)  # all rows are written, none is committed
        assert shown(nodes_alone) == []

        said = end_of(started(example=HISTORY, HISTORY=file))
        assert "loaded with batch 0 under lease" in said
        assert "SCORES has 500 rows in batch 0" in said
        nodes_alone.wait_for_rows("SELECT * FROM SCORES;", old)

        # a program that serves it goes on from there
        first = started(fails_at="after-progress@2")
        purchases.send()
        first.wait_for("SCORES is served")
        nodes_alone.wait_for_rows("SELECT * FROM SCORES;", [*old, *purchases.rows()])
        refused = end_of(started(example=HISTORY, HISTORY=file), 1)
        assert "SCORES cannot be loaded now: standing by: SCORES is written by" in refused
        feed_until_death(nodes_alone, purchases, first, old)

        # what is loaded after batch 2 stays, although Spark runs that batch again
        changed = of_history(range(20), cents=7_000)
        late: Rows = [[user, "loaded", 9, 9, 9.0] for user, *_ in purchases.rows()]
        file = saved(tmp_path / "changed.csv", [*changed, *late])
        said = end_of(started(example=HISTORY, HISTORY=file))
        assert "loaded with batch 2 under lease" in said
        others = [*changed, *old[20:]]
        nodes_alone.wait_for_rows("SELECT * FROM SCORES;", [*others, *late])
        purchases.send(3)
        newer = users_behind(nodes_alone, tmp_path / "checkpoint", 2)
        assert users_behind(nodes_alone, tmp_path / "checkpoint", 1) - newer, (
            "rows of batch 2 alone"
        )
        second = started()
        second.wait_for("SCORES is served")
        assert newer & {str(row[0]) for row in purchases.rows()}, "a row that is written again"
        expected = [*others, *(row for row in late if row[0] not in newer)]
        expected += [row for row in purchases.rows() if row[0] in newer]
        nodes_alone.wait_for_rows("SELECT * FROM SCORES;", expected)
        wait_for_holder(nodes_alone, second)

        # a load that waits for the program to end, and gives the same rows again
        waiting = started(example=HISTORY, HISTORY=file, WAIT="yes")
        waiting.wait_for("standing by: SCORES is written by")
        second.signal(signal.SIGTERM)
        end_of(waiting)
        nodes_alone.wait_for_rows("SELECT * FROM SCORES;", [*others, *late])
        verify(nodes_alone)


def wait_until_paused(program: Program) -> None:
    state = Path(f"/proc/{program.process.pid}/stat")

    def is_paused() -> bool | None:
        assert program.process.poll() is None, program.said()[-4000:]
        return state.read_text().rpartition(")")[2].split()[0] == "T" or None

    wait_until(is_paused, "its pause", program.said)


@pytest.mark.timeout(1800)
def test_a_load_that_was_paused_is_seen_by_nobody(nodes_alone: TestCluster, tmp_path: Path) -> None:
    """It goes on after another one has taken over, and writes its rows only then, or has written
    them before."""
    few, void = of_history(range(30), cents=1), of_history(range(100), cents=2)
    file, void_file = saved(tmp_path / "few.csv", few), saved(tmp_path / "void.csv", void)

    def end() -> int:
        return sum(log_ends(nodes_alone.bootstrap_servers, "SCORES", 4).values())

    with programs(nodes_alone, tmp_path) as started:
        end_of(started(example=HISTORY, HISTORY=file))
        paused: list[Program] = []
        for place in PAUSES:
            how = {failpoint.SIGNAL_VARIABLE: "SIGSTOP", "WAIT": "yes"}
            paused.append(started(example=HISTORY, HISTORY=void_file, fails_at=place, **how))
            wait_until_paused(paused[-1])
        others = of_history(range(30), cents=3)
        other = saved(tmp_path / "others.csv", others)
        said = end_of(started(example=HISTORY, HISTORY=other, WAIT="yes"))
        assert "SCORES has 30 rows in batch 0" in said
        before = end()
        for program in paused:
            program.signal(signal.SIGCONT)
            assert "FENCED" in end_of(program, 1)
        assert end() == before + len(void), "one of them writes now, and in vain"
        nodes_alone.wait_for_rows("SELECT * FROM SCORES;", others)

        end_of(started(example=HISTORY, HISTORY=file))  # it repairs what was written since
        nodes_alone.wait_for_rows("SELECT * FROM SCORES;", few)
        verify(nodes_alone)
