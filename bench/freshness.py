"""How long after an event is produced can it be read?  Budget: p50 ≤ 600 ms, p99 ≤ 1.5 s.

Sketch: an event waits for the batch that runs (half of one on average), then for its own; with
batches of about 300 ms that is 450 ms, and the tailer adds about 10.

One embedded Kafka, one Spark, one node, tables grouped per key. A producer sends RATE events/s,
evenly; a hundred of them a second belong to one key and carry a number that grows. A reader asks
for that key over HTTP every 5 ms; an event is readable when an answer holds its number or a later
one. Events count from the instant at which they were due. Not here: `bench/pipeline.py`.

    python bench/freshness.py [--rate 1000] [--tables 1] [--windows 5] [--seconds 20]

writes bench/results/freshness.json; the first window is warm-up and not counted.
"""

from __future__ import annotations

import argparse
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
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import report  # noqa: E402

from standpipe.local.cluster.steps import Steps  # noqa: E402
from standpipe.local.cluster.supervisor import ClusterOptions, LocalCluster  # noqa: E402

PARTITIONS = 4
KEYS = 4000
PROBES_PER_SECOND = 100
POLL_S = 0.005
RESULT = report.RESULTS / "freshness.json"
STREAM = """
CREATE STREAM EVENTS (ID STRING KEY, SEQ BIGINT, AMOUNT DOUBLE, PLACE STRING)
  WITH (KAFKA_TOPIC='events', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
"""
TABLE = """
CREATE TABLE T{number} WITH (PARTITIONS=4) AS SELECT ID, COUNT(*) AS EVENTS,
    MAX(SEQ) AS SEQ, AVG(AMOUNT) AS MEAN, LATEST_BY_OFFSET(PLACE) AS PLACE
  FROM EVENTS GROUP BY ID EMIT CHANGES;
"""


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


class Feed(threading.Thread):
    """Sends events at an even rate. `stop` ends it."""

    def __init__(self, bootstrap_servers: str, rate: int, probes: Probes) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self._rate, self._probes = rate, probes
        self._producer: Any = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
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
                is_probe = sent % step == 0
                number = len(self._probes.due)
                key = "probe" if is_probe else f"N{sent * 7919 % KEYS:05d}"
                value = {"SEQ": number, "AMOUNT": sent % 1000 / 10, "PLACE": f"P{sent % 97}"}
                if is_probe:
                    self._probes.due.append(due)
                self._producer.produce("events", json.dumps(value).encode(), key.encode())
                sent += 1
            self._producer.poll(0)
        self._producer.flush()


class Reader(threading.Thread):
    """Asks for the probe key, again and again. `stop` ends it."""

    def __init__(self, url: str, table: str, probes: Probes) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
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


def measure(cluster: LocalCluster, options: argparse.Namespace) -> list[dict[str, float]]:
    admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 2})
    for answer in admin.create_topics([NewTopic("events", PARTITIONS, 1)]).values():
        answer.result()
    url = f"http://{cluster.plans[0].public}"
    with httpx2.Client(base_url=url, trust_env=False, timeout=60) as http:
        for text in [STREAM, *(TABLE.format(number=n) for n in range(1, options.tables + 1))]:
            http.post("/ksql", json={"ksql": text}).raise_for_status()
    probes = Probes()
    feed = Feed(cluster.bootstrap_servers, options.rate, probes)
    reader = Reader(url, f"T{options.tables}", probes)
    feed.start()
    reader.start()
    windows: list[dict[str, float]] = []
    try:
        while not probes.seen:
            time.sleep(0.1)
        for number in range(options.windows + 1):
            start = time.monotonic()
            time.sleep(options.seconds)
            end = time.monotonic()
            while len(probes.seen) < len(probes.due) and probes.due[len(probes.seen)] < end:
                time.sleep(0.05)
            window = spread(probes.between(start, end))
            print("warm-up" if number == 0 else f"window {number}", window, flush=True)
            if number:
                windows.append(window)
    finally:
        for thread in (feed, reader):
            thread.stop.set()
            thread.join(5)
    return windows


def spread(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {
        "p50_ms": round(cuts[49]),
        "p99_ms": round(cuts[98]),
        "max_ms": round(max(values)),
        "probes": len(values),
        "load": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=int, default=1000, help="events per second")
    parser.add_argument("--tables", type=int, default=1, help="each with a query of its own")
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20, help="of one window")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    described = report.circumstances()
    with tempfile.TemporaryDirectory(prefix="bench-freshness-") as directory:
        cluster_options = ClusterOptions(
            directory=Path(directory) / "cluster",
            nodes=1,
            workers=1,
            config=dict(pair.split("=", 1) for pair in options.set),
        )
        with LocalCluster(cluster_options, Steps(Console())) as cluster:
            windows = measure(cluster, options)
    result = {
        "question": (__doc__ or "").splitlines()[0],
        **described,
        "rate": options.rate,
        "tables": options.tables,
        "p50_ms_median": statistics.median(window["p50_ms"] for window in windows),
        "p99_ms_median": statistics.median(window["p99_ms"] for window in windows),
        "windows": windows,
    }
    print(json.dumps(report.write_summary(options.output, result), indent=2))


if __name__ == "__main__":
    main()
