"""Does every row equal a recompute, however often parts of a Spark cluster die?

    make spark-kills KILLS=20

A Spark master and two workers (`spark_cluster.py`), Kafka, a node and a driver, and events at a
steady rate. Again and again an executor, a worker with its executor or the master gets SIGKILL, or
the master removes the application, and the driver is started again. After every fifth time the
events that were sent are waited for, and every row of a join, a windowed aggregation and a session
window is compared. Spark's event log shows how many tasks died with their executors.

Not here: the driver that is killed (driver_kills.py).
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import Progress as Bar
from tests import report
from tests.e2e import kill_runs
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.spark_cluster import SparkCluster, event_log, tasks_lost

from standpipe.local.demo.flights import Event
from standpipe.local.demo.progress import DemoProgress

RESULTS = report.RESULTS / "spark_kills.json"
CHECK_EVERY = 5
KEYS = [f"k{number}" for number in range(4)]
#: events of one key are 2 s apart, and now and then a session's gap apart
STEP_MS, JUMP_EVERY, JUMP_MS, GAP_MS, MINUTE_MS = 500, 50, 12_000, 10_000, 60_000
PIECE, PIECE_EVERY_S = 4, 0.2
CANARY = "canary-5b1d"

STATEMENTS = (
    "CREATE STREAM ORDERS (ID STRING KEY, K STRING, N BIGINT) "
    "WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=2);"
    "CREATE STREAM PAYMENTS (ID STRING KEY, P BIGINT) "
    "WITH (KAFKA_TOPIC='payments', VALUE_FORMAT='JSON', PARTITIONS=2);"
    "CREATE STREAM PAID AS SELECT O.ID AS ID, O.K AS K, O.N AS N, P.P AS P FROM ORDERS O "
    "INNER JOIN PAYMENTS P WITHIN 1 HOUR ON O.ID = P.ID EMIT CHANGES;"
    "CREATE TABLE PAID_BY_K AS SELECT K, COUNT(*) AS C, SUM(N + P) AS S FROM PAID "
    "GROUP BY K EMIT CHANGES;"
    "CREATE TABLE MINUTES AS SELECT K, COUNT(*) AS C, SUM(N) AS S FROM ORDERS "
    "WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 4 HOURS) GROUP BY K EMIT CHANGES;"
    "CREATE TABLE VISITS AS SELECT K, COUNT(*) AS C, SUM(N) AS S FROM ORDERS "
    "WINDOW SESSION (10 SECONDS, GRACE PERIOD 4 HOURS) GROUP BY K EMIT CHANGES;"
)


@dataclass
class Orders:
    """Orders, each with a payment, at a steady rate from `start` to `stop`."""

    cluster: TestCluster
    #: (key, number, Unix ms) of each order that Kafka has acknowledged, with its payment
    sent: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    _at_ms: int = field(default_factory=lambda: (int(time.time()) - 3_600) * 1000)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Returns once all that was sent is acknowledged."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PIECE_EVERY_S):
            self._send()

    def _send(self) -> None:
        piece: list[tuple[str, int, int]] = []
        for number in range(len(self.sent), len(self.sent) + PIECE):
            self._at_ms += STEP_MS + (JUMP_MS if number % JUMP_EVERY == 0 else 0)
            piece.append((KEYS[number % len(KEYS)], number, self._at_ms))
        for topic, value in (("orders", '{{"K": "{0}", "N": {1}}}'), ("payments", '{{"P": {1}}}')):
            events = [
                Event(f"o{each[1]}".encode(), value.format(*each).encode(), each[2])
                for each in piece
            ]
            self.cluster.send(topic, events)
        self.sent += piece

    def rows(self) -> dict[str, list[list[object]]]:
        """Query -> its rows, computed from what was sent."""
        return {query: rows for key in KEYS for query, rows in self._rows_of(key)}

    def _rows_of(self, key: str) -> Iterator[tuple[str, list[list[object]]]]:
        own = [(number, at_ms) for owner, number, at_ms in self.sent if owner == key]
        numbers = [number for number, _ in own]
        yield _query("PAID_BY_K", key), [[key, len(own), 2 * sum(numbers)]]
        minutes: dict[int, list[int]] = defaultdict(list)
        visits: list[list[tuple[int, int]]] = []
        for number, at_ms in own:
            minutes[at_ms - at_ms % MINUTE_MS].append(number)
            if not visits or at_ms - visits[-1][-1][1] > GAP_MS:
                visits.append([])
            visits[-1].append((number, at_ms))
        yield (
            _query("MINUTES", key),
            [[key, at, at + MINUTE_MS, len(each), sum(each)] for at, each in minutes.items()],
        )
        yield (
            _query("VISITS", key),
            [[key, v[0][1], v[-1][1], len(v), sum(number for number, _ in v)] for v in visits],
        )


def _query(table: str, key: str) -> str:
    return f"SELECT * FROM {table} WHERE K = '{key}';"


@dataclass
class SparkKills:
    """Everything that runs. A method that is a kind of kill returns when there is a successor."""

    spark: SparkCluster
    cluster: TestCluster
    events: Path
    random: random.Random
    kinds: Counter[str] = field(default_factory=Counter[str])
    rows_compared: int = 0

    def __post_init__(self) -> None:
        self.cluster.sql(STATEMENTS)
        self.orders = Orders(self.cluster)
        self.progress = DemoProgress(self.cluster.bootstrap_servers, "default_")
        self.progress.start()

    def an_executor(self) -> None:
        self.spark.kill_executor(self.random.randrange(2))

    def a_worker(self) -> None:
        self.spark.kill_worker(self.random.randrange(2))

    def the_master(self) -> None:
        self.spark.kill_master()

    def the_application(self) -> None:
        """The driver must end by itself: its JVM lives, and no query can run in it any more."""
        driver = self.cluster.local.pipeline
        assert driver is not None
        driver.restarts, before = 0, driver.pid
        self.spark.remove_application()
        wait_until(lambda: driver.pid not in (None, before), "another driver")

    def one_more(self, kind: Callable[[SparkKills], None]) -> None:
        """A kill while batches run, and the next commit after it."""
        self.await_commits(1)
        time.sleep(self.random.uniform(0, 1))  # anywhere in the batches that follow
        kind(self)
        self.kinds[kind.__name__] += 1
        self.await_commits(2)  # one of them may be older than the kill

    def await_commits(self, count: int) -> None:
        """Until some query has committed so many batches more."""
        before = {name: each.commit.batch for name, each in self.progress.newest.items()}

        def are_there() -> bool:
            now = {name: each.commit.batch for name, each in self.progress.newest.items()}
            return any(batch >= before.get(name, -1) + count for name, batch in now.items())

        wait_until(are_there, f"{count} commits")

    def check(self) -> None:
        """Every row of every table. Raises AssertionError."""
        for query, rows in self.orders.rows().items():
            self.cluster.wait_for_rows(query, rows)
            self.rows_compared += len(rows)

    def close(self) -> None:
        self.orders.stop()
        self.progress.stop()
        self.cluster.close()


KINDS = (
    *(SparkKills.an_executor, SparkKills.a_worker),
    *(SparkKills.the_master, SparkKills.the_application),
)


@contextmanager
def running(folder: Path, seed: int) -> Iterator[SparkKills]:
    """The cluster and its queries, without events yet."""
    events, secrets = folder / "events", folder / "spark.properties"
    folder.mkdir(exist_ok=True)
    secrets.touch(0o600)
    secrets.write_text(f"spark.hadoop.fs.s3a.secret.key {CANARY}\n")
    logged = {"spark.properties.file": str(secrets), **event_log(events)}
    with SparkCluster(folder / "spark") as spark:
        cluster = start(
            folder / "cluster", nodes=1, master=spark.url, config={**spark.settings(), **logged}
        )
        story = SparkKills(spark, cluster, events, random.Random(seed))
        try:
            yield story
        finally:
            story.close()


def run(kills: int, seed: int) -> Mapping[str, object]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, running(Path(name), seed) as story, Bar() as bar:
        task = bar.add_task("kills", total=kills)
        for number in range(1, kills + 1):
            if number % CHECK_EVERY == 1:
                story.orders.start()
            kind = story.random.choice(KINDS)
            story.one_more(kind)
            bar.console.print(f"kill {number}: {kind.__name__}")
            bar.advance(task)
            if number % CHECK_EVERY == 0 or number == kills:
                story.orders.stop()
                story.check()
        return {
            "question": kill_runs.question(__doc__),
            "seed": seed,
            "kills": kills,
            "kinds": dict(story.kinds.most_common()),
            "tasks_lost": tasks_lost(story.events),
            "events": len(story.orders.sent),
            "rows_compared": story.rows_compared,
            "seconds": round(time.monotonic() - began, 1),
        }


def main() -> int:
    given = kill_runs.options(__doc__, kills=20, result=RESULTS).parse_args()
    ran = kill_runs.record(given, lambda: run(given.kills, given.seed))
    print(ran)
    return 0 if ran["tasks_lost"] else 1  # else no kill was in the middle of a batch


if __name__ == "__main__":
    sys.exit(main())
