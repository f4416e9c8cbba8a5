"""Does every table equal a recompute, however often the Spark driver dies?

    make driver-kills KILLS=60       adds to bench/results/driver_kills.json
    make driver-kills KILLS=60 HDFS=1        with the checkpoints on a real HDFS, which dies, too

A real cluster (Kafka, three nodes, Spark) and flights in portions. While a portion is under way the
driver, its JVM or both get SIGKILL: at a random moment, right after a commit, at a named step of a
batch, while state is uploaded; at times Spark's newest commit-log entry is gone as well. After
every tenth kill everything that was sent is waited for; then each row of each table, asked through
every node, is compared with pandas, and the digests of all replicas with one another.

Not here: nodes that die (test_crash.py), two drivers at once (test_pipeline.py).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, cast

import psutil
from rich.progress import Progress as Bar
from tests import report
from tests.e2e import hdfs_server, kill_runs
from tests.e2e.cluster import TestCluster, start, wait_until
from tests.e2e.hdfs_server import Hdfs, HdfsFile
from tests.e2e.processes import is_dead

from standpipe.client import NodesUnreachable, ServerRefused
from standpipe.config import keys
from standpipe.local.client.rest_client import NodesClient
from standpipe.local.cluster.process_group import ManagedProcess
from standpipe.local.demo import check as demo_check
from standpipe.local.demo import feed, flights
from standpipe.local.demo.progress import DemoProgress
from standpipe.local.demo.wait import Arrival
from standpipe.pipeline.commit import failpoint
from standpipe.pipeline.commit.query_group import QueryGroup, groups_below

PORTION = 1_500
LITTLE = 200
CHECK_EVERY = 10
LOOK_EVERY_S = 5.0
#: on HDFS
CHECKPOINTS = "/standpipe/checkpoints"
DEATH_S_MAX = 600.0  # generous: a busy machine is no failure
RESULTS = report.RESULTS / "driver_kills.json"


class Operator(threading.Thread):
    """Resumes queries that were failed by name because they were alone in a batch at several
    deaths in a row (`pipeline/commit/blame.py`): so many kills make that a matter of luck."""

    def __init__(self, cluster: TestCluster) -> None:
        super().__init__(daemon=True)
        self.addresses = [address for _, address in cluster.addresses]
        self.is_over, self.resumed = threading.Event(), 0

    def run(self) -> None:
        with NodesClient(self.addresses) as client:
            while not self.is_over.wait(LOOK_EVERY_S):
                with suppress(ServerRefused, NodesUnreachable):
                    self._look(client)

    def _look(self, client: NodesClient) -> None:
        for entity in client.execute("SHOW QUERIES;"):
            for query in entity.get("queries", ()):
                said = query["standpipe"]
                if said is not None and said["reason"] == "DRIVER_DIED":
                    client.execute(f"PAUSE {query['id']}; RESUME {query['id']};")
                    self.resumed += 1


@dataclass
class Kills:
    """A cluster whose driver is killed. Each method that is a kind of kill returns when the driver
    is dead, or has been."""

    cluster: TestCluster
    random: random.Random
    #: where the checkpoints are; None: with the cluster
    hdfs: Hdfs | None = None
    sent: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        cluster = self.cluster
        cluster.topic(flights.FLIGHTS_TOPIC)
        cluster.sql(flights.STREAM)
        for statement in flights.TABLES.values():
            cluster.sql(statement)
        self.progress = DemoProgress(cluster.bootstrap_servers, "default_")
        self.arrival = Arrival(cluster.addresses, self.progress, flights.FLIGHTS_TOPIC, str)
        self.arrival.queries = {table: cluster.query_of(table) for table in flights.TABLES}
        self.progress.start()
        self.operator = Operator(cluster)
        self.operator.start()
        self.feed = feed.Feed(cluster.bootstrap_servers)
        self.events = iter(flights.load(None).events)

    @property
    def driver(self) -> ManagedProcess:
        assert self.cluster.local.pipeline is not None
        return self.cluster.local.pipeline

    @property
    def checkpoints(self) -> Path | HdfsFile:
        if self.hdfs is not None:
            return self.hdfs.server.folder(CHECKPOINTS)
        return self.cluster.local.options.directory / "checkpoints"

    def send(self, count: int = PORTION) -> None:
        portion = list(islice(self.events, count))
        assert portion, "there are no flights left"
        self.feed.send_all(flights.FLIGHTS_TOPIC, iter(portion))
        self.sent += len(portion)

    def one_more(self) -> str:
        """A portion of flights, and a kill while it is under way."""
        self.send()
        self.driver.restarts = 0  # no pause before the next start
        kind = self.random.choice(KINDS + (KINDS_OF_HDFS if self.hdfs is not None else ()))
        kind(self)
        self.kinds[kind.__name__] += 1
        return kind.__name__

    # ------------------------------------------------------------------------- kinds of kills

    def at_a_random_moment(self) -> None:
        """Also while it starts."""
        time.sleep(self.random.uniform(0.5, 25))
        self._kill()

    def right_after_a_commit(self) -> None:
        """Between two batches of one query, in the middle of one of another."""
        self._await_commit()
        time.sleep(self.random.uniform(0, 0.5))
        self._kill()

    def the_jvm_alone(self) -> None:
        self._await_commit()
        (jvm,) = [p for p in self._family() if p.name() == "java"]
        jvm.kill()
        self._await_death(jvm)

    def python_alone(self) -> None:
        self._await_commit()
        family = self._family()
        os.kill(family[0].pid, 9)
        for process in family:
            self._await_death(process)

    def between_sink_and_progress(self) -> None:
        self._at("before-progress")

    def before_the_sink(self) -> None:
        self._at("before-sink")

    def between_two_tables_of_a_group(self) -> None:
        """One table is committed, others are not; without groups each table is the first."""
        self._at("after-a-progress", table=self.random.choice(sorted(flights.TABLES)))

    def between_progress_and_commit_log(self) -> None:
        self._at("after-progress")

    def with_the_newest_commit_log_entry_gone(self) -> None:
        """As a crash of the checkpoint's storage leaves it. One entry: with two gone, Spark's state
        is of nobody knows which attempt, and the query says CHECKPOINT_LOST."""
        self._await_commit()
        with self.cluster.local._lock:  # nobody starts it again meanwhile
            self._kill()
            time.sleep(1)  # until the last progress record is read, too
            for root in self.checkpoints.glob("*"):
                committed = self._committed(root.name.rpartition("-")[0])
                if committed is not None:  # else it died before its first commit
                    self._lose_commit(root, committed)

    def _committed(self, owner: str) -> int | None:
        """The newest batch that readers have seen of a query, or of each query of a group."""
        groups = {each.group_id: each.together for each in self.groups()}
        seen = [self.progress.newest.get(each) for each in groups.get(owner, (owner,))]
        batches = [each.commit.batch for each in seen if each is not None]
        return min(batches) if batches and len(batches) == len(seen) else None

    def groups(self) -> list[QueryGroup]:
        """As they are now."""
        return groups_below(cast(Path, self.checkpoints), "default_")

    def _lose_commit(self, root: Path | HdfsFile, committed: int) -> None:
        """Of a batch that readers have seen, in whichever directory it is."""
        for log in root.glob("*/commits"):
            entries = [int(path.name) for path in log.iterdir() if path.name.isdigit()]
            if entries and max(entries) >= committed:
                (log / str(max(entries))).unlink()

    def while_state_is_uploaded(self) -> None:
        """As soon as a new file of state is there, perhaps half of it."""
        self._await_commit()
        before = set(self.checkpoints.glob("*/*/state/*/*/*"))
        self.send()
        wait_until(
            lambda: set(self.checkpoints.glob("*/*/state/*/*/*")) - before or None, "new state"
        )
        self._kill()

    def the_file_system(self) -> None:
        """HDFS dies under the driver, at times both; it is back after a while, and nobody has to
        do anything."""
        assert self.hdfs is not None
        self._await_commit()
        self.hdfs.kill()
        if self.random.random() < 0.5:
            self._kill()
        time.sleep(self.random.uniform(0, 20))  # for retries and for starts meanwhile
        self.hdfs.start()

    # ---------------------------------------------------------------------------------- parts

    def _at(self, place: str, table: str = "") -> None:
        """The next driver dies at a place of one of its first batches; in the first of a table."""
        newest = max((p.commit.batch for p in self.progress.newest.values()), default=-1)
        batch = table or newest + self.random.randint(1, 3)
        os.environ[failpoint.VARIABLE] = f"{place}@{batch}"
        try:
            before = self.driver.pid
            self._kill()
            # for a moment the one that was killed still stands there, and may be reaped while it
            # is looked at; its death is not the one that is waited for
            pid = wait_until(lambda: self.driver.pid != before and self.driver.pid, "a driver")
            dies, deadline = psutil.Process(pid), time.monotonic() + DEATH_S_MAX
            while not is_dead(dies):
                assert time.monotonic() < deadline, f"{place}@{batch} was not reached"
                self.send(LITTLE)  # until there are so many batches
                time.sleep(2)
        finally:
            del os.environ[failpoint.VARIABLE]
        self.driver.restarts = 0

    def _await_commit(self) -> None:
        before = {query: p.commit for query, p in self.progress.newest.items()}

        def is_new() -> bool | None:
            now = {query: p.commit for query, p in self.progress.newest.items()}
            return now != before or None

        wait_until(is_new, "another commit")

    def _family(self) -> list[psutil.Process]:
        """The driver and what it started; itself first."""
        pid = wait_until(lambda: self.driver.pid, "a driver")
        assert pid is not None
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]

    def _kill(self) -> None:
        family = self._family()
        self.cluster.local.kill_pipeline()
        for process in family:
            self._await_death(process)

    def _await_death(self, process: psutil.Process) -> None:
        wait_until(lambda: is_dead(process), f"{process.pid} to be gone")

    # ----------------------------------------------------------------------------- the judges

    def check(self) -> dict[str, Any]:
        """Everything that was sent is in the tables, once. Raises AssertionError."""
        self.arrival.wait_for_events(self.sent)
        self.arrival.wait_for_replicas()
        public = [address for _, address in self.cluster.addresses]
        found = demo_check.check(public, demo_check.recompute(self.sent))
        assert (found.wrong[:5], found.failed[:5]) == ([], [])
        replicas = wait_until(self._equal_digests, "equal digests of all replicas")
        together = max((len(each.together) for each in self.groups()), default=0)
        figures = {"events": self.sent, "rows": found.rows, "replicas": replicas}
        return {**figures, "together": together}

    def _equal_digests(self) -> int | None:
        """How many replicas there are, when those of each partition say the same."""
        said: dict[tuple[str, int], set[tuple[int, int, int]]] = {}
        count = 0
        for plan in self.cluster.local.plans:
            for one in json.loads((plan.data_directory / "run" / "tailer.json").read_text())[
                "replicas"
            ]:
                figures = (one["position"], one["batch"], one["digest"])
                said.setdefault((one["table"], one["partition"]), set()).add(figures)
                count += 1
        return count if count and all(len(each) == 1 for each in said.values()) else None

    def close(self) -> None:
        self.operator.is_over.set()
        self.operator.join()
        self.progress.stop()
        self.cluster.close()


KINDS: tuple[Callable[[Kills], None], ...] = (
    Kills.at_a_random_moment,
    Kills.at_a_random_moment,
    Kills.at_a_random_moment,
    Kills.right_after_a_commit,
    Kills.the_jvm_alone,
    Kills.python_alone,
    Kills.before_the_sink,
    Kills.between_sink_and_progress,
    Kills.between_two_tables_of_a_group,
    Kills.between_progress_and_commit_log,
    Kills.with_the_newest_commit_log_entry_gone,
    Kills.while_state_is_uploaded,
)


KINDS_OF_HDFS: tuple[Callable[[Kills], None], ...] = (Kills.the_file_system,) * 2


@contextmanager
def kept_on_failure(prefix: str) -> Generator[Path]:
    """A folder that goes away unless there is something to look at."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield folder
    except Exception:
        print(f"what was there is kept in {folder}", file=sys.stderr)
        raise
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def story_of(
    folder: Path, seed: int, *, is_grouped: bool = True, is_on_hdfs: bool = False
) -> Generator[Kills]:
    """A cluster that runs, and the kills of its driver."""
    with ExitStack() as stack:
        hdfs = stack.enter_context(hdfs_server.restartable(folder / "hdfs")) if is_on_hdfs else None
        config = {keys.QUERY_GROUPS.name: str(is_grouped).lower()}
        place = f"{hdfs.server.url}{CHECKPOINTS}" if hdfs else ""
        cluster = start(folder / "cluster", config=config, checkpoints=place)
        try:
            story = Kills(cluster, random.Random(seed), hdfs)
        except BaseException:
            cluster.close()
            raise
        stack.callback(story.close)
        yield story


def run(
    kills: int, seed: int, *, is_grouped: bool = True, is_on_hdfs: bool = False
) -> dict[str, Any]:
    checks: list[dict[str, Any]] = []
    with (
        kept_on_failure("driver-kills-") as folder,
        story_of(folder, seed, is_grouped=is_grouped, is_on_hdfs=is_on_hdfs) as story,
        Bar() as bar,
    ):
        task = bar.add_task("kills", total=kills)
        for number in range(1, kills + 1):
            kind = story.one_more()
            bar.console.print(f"kill {number}: {kind}")
            bar.update(task, advance=1)
            if number % CHECK_EVERY == 0 or number == kills:
                checks.append(story.check())
    # of each check: how many tables still shared a query when it began
    grouped = {"together": [each["together"] for each in checks]} if is_grouped else {}
    resumed = {"resumed": story.operator.resumed}
    place = {"checkpoints": "HDFS"} if is_on_hdfs else {}
    ran = {"kills": kills, "seed": seed, **place, **resumed, **grouped}
    return {**ran, "kinds": dict(story.kinds), "checks": checks}


def on_record(before: Mapping[str, Any], ran: Mapping[str, Any]) -> dict[str, Any]:
    """The record with one more run: sums, and one line for each run."""
    checks = ran["checks"]
    compared = {"checks": len(checks), "rows": sum(check["rows"] for check in checks)}
    head = {name: value for name, value in ran.items() if name not in ("kinds", "checks")}
    runs = [*before.get("runs", []), {**head, **compared}]
    kinds = Counter(before.get("kinds", {})) + Counter(ran["kinds"])
    return {
        "question": kill_runs.question(__doc__),
        **{name: sum(run[name] for run in runs) for name in ("kills", "checks", "rows")},
        "kinds": dict(kinds.most_common()),
        "runs": runs,
    }


def main() -> int:
    options = kill_runs.options(__doc__, kills=60, result=RESULTS)
    options.add_argument("--alone", action="store_true", help="each table has a query of its own")
    options.add_argument("--hdfs", action="store_true", help="checkpoints are on HDFS")
    given = options.parse_args()
    ran = kill_runs.record(
        given,
        lambda: run(given.kills, given.seed, is_grouped=not given.alone, is_on_hdfs=given.hdfs),
        on_record,
    )
    print(f"{ran['kinds']}\n{given.kills} kills, {len(ran['checks'])} checks, 0 wrong")
    return 0 if sum(ran["kinds"].values()) == given.kills else 1


if __name__ == "__main__":
    sys.exit(main())
