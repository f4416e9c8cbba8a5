"""Is each insert read back with its token, at another node, through one query and through three?

    make read-your-writes WRITES=10000       writes its result file in bench/results

The story of test_session_writes.py with many sessions: each inserts a row at one node, and reads it
at others, in a table that is one query away from the stream and in one that is three away, of which
one leaves rows out. Tailers are killed meanwhile, one after the other.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.progress import Progress as Bar
from tests import report
from tests.e2e.cluster import TestCluster, start
from tests.e2e.counted_keys import tailer_of
from tests.e2e.driver_kills import kept_on_failure
from tests.e2e.test_session_writes import (
    STATEMENTS,
    TABLES,
    History,
    beyond_the_batch_ms,
    committed_ms,
    session,
    text_of,
)

#: A batch ends the wait of most sessions at once, and their threads share one interpreter: with
#: more of them, the wait is for this process.
SESSIONS = 24
KILL_EVERY_S = 20.0
#: of the wait beyond the batch, whose p50 counts
GOAL_BEYOND_MS = 40
RESULT = report.RESULTS / "read_your_writes.json"


class TailerKills(threading.Thread):
    """Kills the tailer of one node after the other."""

    def __init__(self, cluster: TestCluster) -> None:
        super().__init__()
        self.cluster, self.is_over = cluster, threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self.is_over.wait(KILL_EVERY_S):
            with suppress(AssertionError, ProcessLookupError):  # it has just been started again
                os.kill(tailer_of(self.cluster, self.count % 3), signal.SIGKILL)
                self.count += 1


def run(folder: Path, writes: int, sessions: int) -> dict[str, Any]:
    """The figures of one cluster. Raises AssertionError if not all was read back."""
    cluster = start(folder / "cluster")
    try:
        return _run(cluster, sessions, -(-writes // sessions))
    finally:
        cluster.close()


def _run(cluster: TestCluster, sessions: int, inserts: int) -> dict[str, Any]:
    cluster.sql(STATEMENTS)
    cluster.sql("INSERT INTO W_EVENTS (K, V) VALUES ('first', 1);")
    for table in TABLES:
        cluster.wait_for_rows(text_of(table, "first"), [[1]])
    histories = [History() for _ in range(sessions)]
    threads = [
        threading.Thread(target=session, args=(cluster, number, each), kwargs={"inserts": inserts})
        for number, each in enumerate(histories)
    ]
    kills = TailerKills(cluster)
    kills.start()
    for thread in threads:
        thread.start()
    with Bar() as bar:
        due = sessions * inserts * len(TABLES)
        task = bar.add_task("read back", total=due)
        while any(thread.is_alive() for thread in threads):
            time.sleep(1)  # the pace of the progress bar, not a wait for anything
            bar.update(task, completed=sum(len(each.read) for each in histories))
    kills.is_over.set()
    kills.join()
    read = [one for each in histories for one in each.read]
    misses = [one for each in histories for one in each.misses]
    assert misses == [], misses[:5]
    assert len(read) == due, f"{len(read)} of {due}: a session has failed"
    assert kills.count > 0, "no tailer was killed"
    whole = History(read, misses, sum(each.refused for each in histories))
    return {
        "inserts": sessions * inserts,
        "read_back": len(read),
        "misses": len(misses),
        "asked_again": whole.refused,
        "tailers_killed": kills.count,
        "goal_beyond_p50_ms": GOAL_BEYOND_MS,
        "tables": {table: _figures(cluster, whole, table) for table in TABLES},
    }


def _figures(cluster: TestCluster, whole: History, table: str) -> dict[str, Any]:
    took_ms = [one.answered_ms - one.asked_ms for one in whole.read if one.table == table]
    beyond_ms = beyond_the_batch_ms(whole, table, committed_ms(cluster, table))
    return {
        "wait_p50_ms": round(statistics.median(took_ms)),
        "waited": len(beyond_ms),
        "beyond_the_batch_p50_ms": round(statistics.median(beyond_ms or [0])),
    }


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--writes", type=int, default=10_000)
    options.add_argument("--sessions", type=int, default=SESSIONS)
    options.add_argument("--result", type=Path, default=RESULT)
    given = options.parse_args()
    head = {"question": (__doc__ or "").splitlines()[0], **report.circumstances()}
    with kept_on_failure("read-your-writes-") as folder:
        ran = run(folder, given.writes, given.sessions)
    report.write(given.result, {**head, "sessions": given.sessions, **ran})
    print(ran)
    return 0


if __name__ == "__main__":
    sys.exit(main())
