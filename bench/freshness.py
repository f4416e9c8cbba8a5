"""How long after an event is produced can it be read?  Budget: one table p50 ≤ 300, p99 ≤ 650 ms.

Sketch: an event waits for the batch that runs (half of one on average), then for its own. A batch
of one table takes about 200 ms, so p50 is 300. Tables over one stream that share a query cost one
batch, and each table a little more; three that do not share one cost three batches.

One embedded Kafka, one Spark, and the tables of a case, grouped per key. A producer sends RATE
events/s in all, evenly; a hundred of them a second belong to one key and carry a number that grows.
A reader asks a node for that key of the last table every 5 ms; an event is readable when an answer
holds its number or a later one. Events count from the instant at which they were due. `busy_cores`:
what the pipeline (driver, JVM, Python workers) took of the processor. Not here: how many events it
takes (`bench/pipeline.py`).

    python bench/freshness.py [--case one …] [--rate 1000] [--windows 5] [--seconds 10] [--warm 60]

writes bench/results/freshness.json. Each case begins with WARM_S that are not counted: the JVM
compiles what it runs often, and meanwhile a batch takes up to twice as long.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import report  # noqa: E402

from standpipe.config import keys  # noqa: E402
from standpipe.local.cluster.steps import Steps  # noqa: E402
from standpipe.local.cluster.supervisor import ClusterOptions, LocalCluster  # noqa: E402

PARTITIONS = 4
KEYS = 4000
PROBES_PER_SECOND = 100
POLL_S = 0.005
WARM_S = 60.0
RESULT = report.RESULTS / "freshness.json"
STREAM = """
CREATE STREAM EVENTS{stream} (ID STRING KEY, SEQ BIGINT, AMOUNT DOUBLE, PLACE STRING)
  WITH (KAFKA_TOPIC='events{stream}', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""
TABLE = """
CREATE TABLE T{number} WITH (PARTITIONS=4) AS SELECT ID, COUNT(*) AS EVENTS,
    MAX(SEQ) AS SEQ, AVG(AMOUNT) AS MEAN, LATEST_BY_OFFSET(PLACE) AS PLACE
  FROM EVENTS{stream} GROUP BY ID EMIT CHANGES;
"""


@dataclass(frozen=True)
class Case:
    """`together`: tables over one stream share a query, as they do by default. `reads_per_s`: of
    other keys, beside the reader of the probe."""

    tables: int = 1
    streams: int = 1
    nodes: int = 1
    reads_per_s: int = 0
    together: bool = True
    #: goals in ms, if there are any
    p50_ms_max: int | None = None
    p99_ms_max: int | None = None


CASES = {
    "one": Case(p50_ms_max=300, p99_ms_max=650),
    "three": Case(tables=3),
    "three_alone": Case(tables=3, together=False),
    "three_streams": Case(tables=3, streams=3),
    "three_nodes": Case(tables=3, nodes=3, reads_per_s=200, p50_ms_max=700, p99_ms_max=1800),
    "ten": Case(tables=10, p50_ms_max=1200),
}


@dataclass
class Probes:
    """When each number was due, and when an answer first held it. Seconds, monotonic."""

    due: list[float] = field(default_factory=list[float])
    seen: list[float] = field(default_factory=list[float])

    def between(self, start: float, end: float) -> list[float]:
        """Freshness in ms of the numbers that were due in an interval."""
        return [
            (seen - due) * 1000
            for due, seen in zip(self.due, self.seen, strict=False)
            if start <= due < end
        ]


class Stopped(threading.Thread):
    """A thread that runs until `stop` is set."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()


class Feed(Stopped):
    """Sends events at an even rate, to each topic in turn; the probe to the last one."""

    def __init__(self, servers: str, topics: list[str], rate: int, probes: Probes) -> None:
        super().__init__()
        self._topics, self._rate, self._probes = topics, rate, probes
        self._producer: Any = Producer(
            {
                "bootstrap.servers": servers,
                "log_level": 2,
                "partitioner": "murmur2_random",
                "linger.ms": 0,
            }
        )

    def run(self) -> None:
        start, sent = time.monotonic(), 0
        step = max(1, self._rate // PROBES_PER_SECOND)
        while not self.stop.is_set():
            due = start + sent / self._rate
            time.sleep(max(0.0, due - time.monotonic()))
            for _ in range(step):
                self._send(sent, due, is_probe=sent % step == 0)
                sent += 1
            self._producer.poll(0)
        self._producer.flush()

    def _send(self, sent: int, due: float, *, is_probe: bool) -> None:
        number = len(self._probes.due)
        key = "probe" if is_probe else f"N{sent * 7919 % KEYS:05d}"
        value = {"SEQ": number, "AMOUNT": sent % 1000 / 10, "PLACE": f"P{sent % 97}"}
        if is_probe:
            self._probes.due.append(due)
        topic = self._topics[-1 if is_probe else sent % len(self._topics)]
        self._producer.produce(topic, json.dumps(value).encode(), key.encode())


class Reader(Stopped):
    """Asks for the probe key, again and again."""

    def __init__(self, url: str, table: str, probes: Probes) -> None:
        super().__init__()
        self._url, self._probes = url, probes
        self._body = {"ksql": f"SELECT SEQ FROM {table} WHERE ID = 'probe';"}

    def run(self) -> None:
        with httpx2.Client(base_url=self._url, trust_env=False, timeout=5) as http:
            while not self.stop.wait(POLL_S):
                number = self._newest(http)
                now = time.monotonic()
                self._probes.seen += [now] * (number + 1 - len(self._probes.seen))

    def _newest(self, http: httpx2.Client) -> int:
        answer = http.post("/query", json=self._body)
        if answer.status_code != 200:
            return -1
        rows = [row["row"]["columns"] for row in answer.json() if "row" in row]
        return int(rows[0][0]) if rows else -1


class OtherReads(Stopped):
    """Lookups of other keys at an even rate, of all tables at all nodes in turn."""

    def __init__(self, urls: list[str], tables: int, per_s: int) -> None:
        super().__init__()
        self._urls, self._tables, self._per_s = urls, tables, per_s
        self.failed = 0

    def run(self) -> None:
        start = time.monotonic()
        clients = [httpx2.Client(base_url=url, trust_env=False, timeout=5) for url in self._urls]
        for number in itertools.count():
            if self.stop.wait(max(0.0, start + number / self._per_s - time.monotonic())):
                break
            table, key = number % self._tables + 1, f"N{number * 31 % KEYS:05d}"
            body = {"ksql": f"SELECT * FROM T{table} WHERE ID = '{key}';"}
            answer = clients[number % len(clients)].post("/query", json=body)
            self.failed += answer.status_code != 200
        for client in clients:
            client.close()


def declare(cluster: LocalCluster, case: Case, url: str) -> list[str]:
    """The streams and tables of a case, and their topics."""
    topics = [f"events{stream}" for stream in range(case.streams)]
    admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    made = admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
    for answer in made.values():
        answer.result()
    text = "".join(STREAM.format(stream=stream) for stream in range(case.streams))
    for number in range(1, case.tables + 1):
        text += TABLE.format(number=number, stream=(number - 1) % case.streams)
    with httpx2.Client(base_url=url, trust_env=False, timeout=60) as http:
        http.post("/ksql", json={"ksql": text}).raise_for_status()
    return topics


def measure(
    cluster: LocalCluster, case: Case, options: argparse.Namespace
) -> list[dict[str, float]]:
    urls = [f"http://{plan.public}" for plan in cluster.plans]
    topics = declare(cluster, case, urls[0])
    probes = Probes()
    last = topics[(case.tables - 1) % case.streams]
    topics = [*(topic for topic in topics if topic != last), last]
    threads: list[Stopped] = [
        Feed(cluster.bootstrap_servers, topics, options.rate, probes),
        Reader(urls[0], f"T{case.tables}", probes),
    ]
    if case.reads_per_s:
        threads.append(OtherReads(urls, case.tables, case.reads_per_s))
    for thread in threads:
        thread.start()
    windows: list[dict[str, float]] = []
    try:
        while not probes.seen:
            time.sleep(0.1)
        for number in range(options.windows + 1):
            window = one_window(cluster, probes, options.seconds if number else options.warm)
            print("  warm-up" if number == 0 else f"  window {number}", window, flush=True)
            if number:
                windows.append(window)
    finally:
        for thread in threads:
            thread.stop.set()
            thread.join(5)
    return windows


def one_window(cluster: LocalCluster, probes: Probes, seconds: float) -> dict[str, float]:
    start, used = time.monotonic(), processor_s(cluster)
    time.sleep(seconds)
    end, used = time.monotonic(), processor_s(cluster) - used
    while len(probes.seen) < len(probes.due) and probes.due[len(probes.seen)] < end:
        time.sleep(0.05)
    cuts = statistics.quantiles(values := probes.between(start, end), n=100)
    return {
        "p50_ms": round(cuts[49]),
        "p99_ms": round(cuts[98]),
        "max_ms": round(max(values)),
        "busy_cores": round(used / (end - start), 2),
        "probes": len(values),
        "load": round(os.getloadavg()[0], 2),
    }


def processor_s(cluster: LocalCluster) -> float:
    """Processor time of the pipeline and of all that it has started."""
    assert cluster.pipeline is not None
    driver = psutil.Process(cluster.pipeline.pid)
    times = [each.cpu_times() for each in [driver, *driver.children(recursive=True)]]
    return sum(each.user + each.system for each in times)


def run(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """What came of one case, on a cluster of its own."""
    given = dict(pair.split("=", 1) for pair in options.set)
    together = {keys.QUERY_GROUPS.name: str(case.together).lower()}
    with tempfile.TemporaryDirectory(prefix="bench-freshness-") as directory:
        cluster_options = ClusterOptions(
            directory=Path(directory) / "cluster",
            nodes=case.nodes,
            workers=1,
            config={**together, **given},
        )
        with LocalCluster(cluster_options, Steps(Console())) as cluster:
            windows = measure(cluster, case, options)
    goals = {"p50_ms_max": case.p50_ms_max, "p99_ms_max": case.p99_ms_max}
    medians = {
        f"{name}_median": statistics.median(window[name] for window in windows)
        for name in ("p50_ms", "p99_ms", "busy_cores")
    }
    return {
        **{name: goal for name, goal in goals.items() if goal is not None},
        **medians,
        "windows": windows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", action="append", choices=CASES, help="default: all")
    parser.add_argument("--rate", type=int, default=1000, help="events per second, in all")
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="of one window")
    parser.add_argument("--warm", type=float, default=WARM_S, help="seconds before the first one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    described = report.circumstances()
    cases: dict[str, Any] = {}
    for name in options.case or CASES:
        print(name, flush=True)
        cases[name] = run(CASES[name], options)
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **described,
        "rate": options.rate,
        "cases": cases,
    }
    print(json.dumps(report.write_summary(options.output, result), indent=2))


if __name__ == "__main__":
    main()
