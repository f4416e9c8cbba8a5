"""A DataFrame in output mode complete: rows that leave the result leave the table, also when its
program dies in the middle of a batch. Beside it, two with windows: by the watermark, these leave
the one, and come into the other, which is of output mode append.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from tests.e2e.cluster import TestCluster, wait_until
from tests.e2e.user_programs import PORTIONS_MAX, programs, verify, wait_for_holder

from standpipe.local.demo.flights import Event

BEST_CUSTOMERS = Path(__file__).with_name("best_customers.py")
HOUR_MS = 3_600_000


@pytest.mark.timeout(1500)
def test_who_is_overtaken_leaves_the_table(nodes_alone: TestCluster, tmp_path: Path) -> None:
    nodes_alone.topic("purchases")
    paid, in_hours = Counter[str](), Counter[tuple[str, int]]()

    def send(hour: int = 0, **cents: int) -> None:
        paid.update(cents)
        in_hours.update({(user, hour * HOUR_MS): each for user, each in cents.items()})
        values = [{"user_id": user, "cents": each} for user, each in cents.items()]
        nodes_alone.send(
            "purchases",
            [
                Event(str(v["user_id"]).encode(), json.dumps(v).encode(), hour * HOUR_MS + 1)
                for v in values
            ],
        )

    def best() -> list[list[object]]:
        return [list(each) for each in sorted(paid.items(), key=lambda e: (-e[1], e[0]))[:3]]

    def check() -> None:
        nodes_alone.wait_for_rows("SELECT * FROM SCORES;", best())

    def check_hours(since: int) -> None:
        rows = [[user, at, n] for (user, at), n in in_hours.items() if at >= since * HOUR_MS]
        nodes_alone.wait_for_rows("SELECT USER_ID, WINDOWSTART, CENTS FROM HOURS;", rows)

    def is_shown() -> bool:
        with suppress(Exception):  # a node has not read of the table yet
            rows = nodes_alone.pull("SELECT * FROM SCORES;").rows
            return sorted(map(list, rows)) == sorted(best())
        return False

    with programs(nodes_alone, tmp_path) as started:
        first = started(example=BEST_CUSTOMERS, fails_at="before-progress@2")
        send(ada=10, bob=20, eve=30, tom=5)
        first.wait_for("SCORES is served")
        check()
        for number in range(PORTIONS_MAX):
            send(**{f"new{number}": 100 + number})

            def is_over() -> bool | None:
                return first.process.poll() is not None or is_shown() or None

            wait_until(is_over, "its rows, or its death", first.said)
            if first.process.poll() is not None:
                break
        assert first.wait_for_end() == -signal.SIGKILL, "written, and not committed"

        second = started(example=BEST_CUSTOMERS)
        second.wait_for("SCORES is served")
        check()
        wait_for_holder(nodes_alone, second)
        send(ada=1_000)
        check()
        send(eve=2_000, bob=3_000, tom=4_000)
        check()
        second.wait_for("HOURS is served")
        second.wait_for("ENDED is served")
        check_hours(since=0)
        verify(nodes_alone)
        send(hour=2, ada=1)
        check_hours(since=0)
        send(hour=3, ada=1)  # the watermark is a minute behind it: two hours after hour 0 began
        check()
        check_hours(since=1)
        ended = [[user, at, n] for (user, at), n in in_hours.items() if at == 0]
        nodes_alone.wait_for_rows("SELECT USER_ID, WINDOWSTART, CENTS FROM ENDED;", ended)
