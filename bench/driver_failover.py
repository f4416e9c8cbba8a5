"""How long do tables stand still when Spark's driver is killed and another is warm?  Goal: ≤ 20 s.

One embedded Kafka, one node, two pipelines, one table. A feed sends RATE events/s, a reader asks
over HTTP all the time. The pipeline that holds the table's lease gets SIGKILL, together with its
JVM; freshness resumes when an event that was due after the kill is readable. The supervisor starts
the killed one again, and it becomes the warm one of the next run.

    python bench/driver_failover.py [--runs 10] [--rate 200] [--hdfs]

writes bench/results/driver_failover.json, or with `--hdfs`, where the checkpoints are on a real
HDFS, driver_failover_hdfs.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import httpx2
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.freshness import PARTITIONS, STREAM, TABLE, Feed, Probes, Reader  # noqa: E402
from tests import report  # noqa: E402
from tests.e2e import hdfs_server  # noqa: E402
from tests.sealed_http import sealed_client  # noqa: E402

from standpipe.local.cluster.process_group import ManagedProcess  # noqa: E402
from standpipe.local.cluster.steps import Steps  # noqa: E402
from standpipe.local.cluster.supervisor import ClusterOptions, LocalCluster  # noqa: E402

RESULT = report.RESULTS / "driver_failover.json"
RESULT_ON_HDFS = report.RESULTS / "driver_failover_hdfs.json"
WAIT_S_MAX = 180.0
#: before each kill: tables are fresh, and the other driver idles
PAUSE_S = 3.0


class CountingReader(Reader):
    """Also counts what it asked and what failed, and the longest time without an answer."""

    def __init__(self, url: str, table: str, probes: Probes) -> None:
        super().__init__(url, table, probes)
        self.reads = self.failed = 0
        self.silence_s_max = 0.0
        self._answered = time.monotonic()

    def _newest(self, http: httpx2.Client) -> int:
        self.reads += 1
        try:
            number = super()._newest(http)
        except httpx2.TransportError:
            number = -1
        now = time.monotonic()
        if number < 0:
            self.failed += 1
        else:
            self.silence_s_max = max(self.silence_s_max, now - self._answered)
            self._answered = now
        return number


class Leases:
    """Who holds what, as the log says."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        secret = cluster.directory.secret_file.read_text().strip()
        url = f"http://{cluster.plans[0].internal}"
        self._http = sealed_client(secret, base_url=url)

    def registered(self) -> int:
        return len(self._http.get("/describe").json()["pipelines"])

    def holder(self) -> str:
        """Id of the only query's pipeline."""
        (lease,) = self._http.get("/describe").json()["leases"].values()
        return str(lease["pipeline_id"])

    def process_of(self, pipeline_id: str) -> ManagedProcess:
        """An id has its process id in it."""
        pid = int(pipeline_id.split("-")[-2])
        return next(child for child in self._cluster.pipelines if child.pid == pid)

    def other_is_warm(self, holder: str) -> bool:
        """Whether the one without work has rehearsed since it was started."""
        held = self.process_of(holder)
        (other,) = (child for child in self._cluster.pipelines if child is not held)
        said = other.log.read_text().rpartition('"registered"')[2]
        return '"rehearsed"' in said


def until(what: str, holds: object) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not holds():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {WAIT_S_MAX:g} s for {what}")
        time.sleep(0.05)


def kill_once(cluster: LocalCluster, leases: Leases, probes: Probes) -> dict[str, float]:
    until("two pipelines", lambda: leases.registered() == 2)
    until("fresh answers", lambda: len(probes.due) - len(probes.seen) < 200)
    victim = leases.holder()
    until("a warm standby", lambda: leases.other_is_warm(victim))
    time.sleep(PAUSE_S)
    first = len(probes.due)
    killed = time.monotonic()
    cluster.kill_pipeline(leases.process_of(victim))
    until("another holder", lambda: leases.holder() != victim)
    moved = time.monotonic()
    until("an event from after the kill", lambda: len(probes.seen) > first)
    resumed = probes.seen[first] - killed
    return {"lease_moved_s": round(moved - killed, 2), "resumed_s": round(resumed, 2)}


def measure(cluster: LocalCluster, options: argparse.Namespace) -> dict[str, object]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    for answer in admin.create_topics([NewTopic("events", PARTITIONS, 1)]).values():
        answer.result()
    url = f"http://{cluster.plans[0].public}"
    with httpx2.Client(base_url=url, trust_env=False, timeout=60) as http:
        for text in (STREAM, TABLE.format(number=1)):
            http.post("/ksql", json={"ksql": text}).raise_for_status()
    probes, leases = Probes(), Leases(cluster)
    feed = Feed(cluster.bootstrap_servers, options.rate, probes)
    reader = CountingReader(url, "T1", probes)
    feed.start()
    runs: list[dict[str, float]] = []
    try:
        reader.start()
        until("the first row", lambda: probes.seen)
        reader.failed = reader.reads = 0  # before it there was no row to read
        reader.silence_s_max = 0.0
        for _ in range(options.runs):
            runs.append(kill_once(cluster, leases, probes))
            print(runs[-1], flush=True)
    finally:
        for thread in (feed, reader):
            thread.stop.set()
            thread.join(5)
    resumed = [run["resumed_s"] for run in runs]
    return {
        "kills": len(runs),
        "resumed_s": {"p50": round(statistics.median(resumed), 2), "max": max(resumed)},
        "reads": reader.reads,
        "reads_failed": reader.failed,
        "longest_time_without_an_answer_s": round(reader.silence_s_max, 3),
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rate", type=int, default=200, help="events per second")
    parser.add_argument("--hdfs", action="store_true", help="with the checkpoints on HDFS")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    output = options.output or (RESULT_ON_HDFS if options.hdfs else RESULT)
    described = report.circumstances()
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="bench-driver-failover-")
        folder = Path(stack.enter_context(made))
        checkpoints = ""
        if options.hdfs:
            hdfs = stack.enter_context(hdfs_server.restartable(folder / "hdfs"))
            checkpoints = f"{hdfs.server.url}/checkpoints"
        chosen = ClusterOptions(
            directory=folder / "cluster", nodes=1, workers=1, pipelines=2, checkpoints=checkpoints
        )
        cluster = stack.enter_context(LocalCluster(chosen, Steps(Console())))
        measured = measure(cluster, options)
    question = (__doc__ or "").splitlines()[0]
    place = {"checkpoints": "HDFS"} if options.hdfs else {}
    result = {"question": question, **described, **place, **measured}
    print(json.dumps(report.write_summary(output, result), indent=2))


if __name__ == "__main__":
    main()
