"""Idle queries sleep, and are woken when there is something to do: on real Kafka and real Spark.

Those that only a waking can wake sleep for an hour: a waking that is lost fails the test.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from tests.e2e.cluster import wait_until

from standpipe.errors import KafkaUnavailable
from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.ports import any_port
from standpipe.model import BatchId, Commit, LeaseEpoch, Progress
from standpipe.pipeline.io.arrivals import Arrivals
from standpipe.pipeline.io.committed_source import CommittedFeed, Upstream
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.io.topic_reader import ReadPortion, TopicReader
from standpipe.pipeline.run.watch.source_probe import SourceProbe
from standpipe.pipeline.run.watch.trigger_clocks import TriggerClocks
from standpipe.topics import progress_topic

pytestmark = pytest.mark.e2e

HOUR_S = 3600.0
SERVICE = "default_"


class Topics:
    """The topics of one test, on a broker that can be stopped and started."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.servers = broker.bootstrap_servers
        self.log = ProgressLog(self.servers, SERVICE)
        self._common = {"bootstrap.servers": self.servers, "log_level": 0}
        self.admin: Any = AdminClient(self._common)

    def make(self, topic: str, partitions: int = 2) -> None:
        for answer in self.admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            answer.result()
        wait_until(lambda: self.log.ends_of({topic: partitions}).get(topic), f"leaders of {topic}")
        # another one for each topic: it would believe in the partitions of one that is gone
        self._producer: Any = Producer({**self._common, "linger.ms": 0})

    def delete(self, topic: str) -> None:
        for answer in self.admin.delete_topics([topic]).values():
            answer.result()
        wait_until(lambda: not self.log.ask_topics([topic])(), f"{topic} is gone")

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._producer.produce(topic, value.encode(), partition=partition)
        assert self._producer.flush(120) == 0


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    with Broker(tmp_path / "kafka", any_port()) as broker:
        yield Topics(broker)


class Woken:
    """A probe of one topic, whose query is `Q`, and how often it was woken."""

    def __init__(self, topics: Topics, topic: str) -> None:
        self.times = threading.Semaphore(0)
        self.probe = SourceProbe(log=topics.log, arrivals=Arrivals(topics.servers), wake=self._note)
        self.probe.follow("Q", [topic], 0)
        self.is_woken()  # the topic is seen first
        assert self.probe.ends(topic) is not None

    def _note(self, names: Collection[str]) -> None:
        assert [*names] == ["Q"]
        self.times.release()

    def is_woken(self) -> None:
        assert self.times.acquire(timeout=120)

    def rest(self) -> None:
        """Until nothing more is told about what was written before."""
        while self.times.acquire(timeout=1.0):  # four requests of the probe
            pass


class Running:
    """Streaming queries over topics: `seen` has the values of each."""

    def __init__(self, spark: SparkSession, folder: Path, sleep_s_max: float) -> None:
        self.clocks = TriggerClocks(spark, sleep_s_max)
        self._spark, self._folder = spark, folder
        self.seen: dict[str, list[str]] = {}
        self.queries: list[StreamingQuery] = []

    def values(self, servers: str, topic: str) -> DataFrame:
        return (
            self._spark.newSession()
            .readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr("CAST(value AS STRING) AS value")
        )

    def start(self, name: str, plan: DataFrame, output_mode: str = "update") -> StreamingQuery:
        seen = self.seen[name] = []

        def take(rows: DataFrame, _batch: int) -> None:
            seen.extend(row[0] for row in rows.collect())

        folder = self._folder / f"checkpoint-{name}"
        query = self.clocks.start(plan, output_mode, name=name, checkpoint=folder, batches=take)
        self.queries.append(query)
        return query

    def sees(self, name: str, *values: str) -> None:
        def is_there() -> bool:
            for query in self.queries:
                assert query.exception() is None
            return self.seen[name] == [*values]

        wait_until(is_there, f"{name} sees {values}", lambda: str(self.seen))

    def sleeps(self, *names: str) -> None:
        wait_until(lambda: self.clocks.asleep() == {*names}, f"{names} sleep")


@pytest.fixture
def stopped() -> Iterator[list[Running]]:
    """Its queries are stopped in the end."""
    started: list[Running] = []
    yield started
    for each in started:
        for query in each.queries:
            query.stop()


def test_only_the_queries_of_a_topic_that_grew_wake(
    spark: SparkSession, topics: Topics, tmp_path: Path, stopped: list[Running]
) -> None:
    running = Running(spark, tmp_path, HOUR_S)
    stopped.append(running)
    probe = SourceProbe(log=topics.log, arrivals=Arrivals(topics.servers), wake=running.clocks.wake)
    for name in ("one", "other"):
        topics.make(name)
        probe.follow(name, [name], 0)
        running.start(name, running.values(topics.servers, name))
    try:
        running.sleeps("one", "other")
        for number in range(5):
            topics.send("one", str(number), partition=number % 2)
            running.sees("one", *map(str, range(number + 1)))
            running.sleeps("one", "other")
        topics.send("other", "x")
        running.sees("other", "x")
        assert not running.seen["one"][5:]
    finally:
        probe.stop()


def test_a_query_whose_waking_is_lost_looks_by_itself(
    spark: SparkSession, topics: Topics, tmp_path: Path, stopped: list[Running]
) -> None:
    """As if the probe had died, or Kafka did not answer it."""
    running = Running(spark, tmp_path, sleep_s_max=2.0)
    stopped.append(running)
    topics.make("one")
    query = running.start("one", running.values(topics.servers, "one"))
    running.sleeps("one")
    topics.send("one", "x")
    running.sees("one", "x")
    running.sleeps("one")
    query.stop()
    assert query.exception() is None, "stopped in its sleep"
    assert running.clocks.asleep() == set()


def test_a_batch_without_data_is_not_slept_over(
    spark: SparkSession, topics: Topics, tmp_path: Path, stopped: list[Running]
) -> None:
    """The watermark moves after the batch of the second event, which closes the first window."""
    running = Running(spark, tmp_path, HOUR_S)
    stopped.append(running)
    topics.make("one")
    windows = (
        running.values(topics.servers, "one")
        .selectExpr("timestamp_seconds(CAST(value AS BIGINT)) AS at")
        .withWatermark("at", "1 second")
        .groupBy(F.window("at", "10 seconds"))
        .count()
        .selectExpr("CAST(count AS STRING)")
    )
    running.start("windows", windows, output_mode="append")
    running.sleeps("windows")
    topics.send("one", "5")
    topics.send("one", "100")
    running.clocks.wake(["windows"])
    running.sees("windows", "1")
    running.sleeps("windows")


def test_a_topic_made_anew_wakes_its_queries(topics: Topics) -> None:
    topics.make("one")
    woken = Woken(topics, "one")
    for number in range(3):
        topics.send("one", str(number))
    woken.is_woken()
    woken.rest()
    topics.delete("one")
    topics.make("one", partitions=3)
    woken.is_woken()
    woken.rest()
    topics.send("one", "x", partition=2)
    woken.is_woken()
    woken.probe.stop()


def test_new_records_of_a_topic_made_anew_are_heard_of(topics: Topics) -> None:
    """They are below where the topic before had been read to."""
    topics.make("one")
    for number in range(3):
        topics.send("one", str(number))
    heard = Arrivals(topics.servers)
    heard.watch(topics.log.ends_of({"one": 2}))
    topics.send("one", "3")
    wait_until(lambda: ("one", 0, 3) in heard.wait(1), "a record is heard of")
    topics.delete("one")
    topics.make("one")
    ends = {"one": {0: 0, 1: 0}}
    wait_until(lambda: topics.log.ends_of({"one": 2}) == ends, "the new topic has leaders")
    heard.watch(ends)
    topics.send("one", "x")
    wait_until(lambda: ("one", 0, 0) in heard.wait(1), "the first one of the new topic is, too")
    heard.close()


def test_a_record_that_came_after_kafka_was_down_wakes(topics: Topics) -> None:
    topics.make("one")
    woken = Woken(topics, "one")
    topics.broker.stop()
    wait_until(lambda: woken.probe.ends("one") is None, "Kafka does not answer")
    topics.broker.start()
    wait_until(lambda: woken.probe.ends("one") is not None, "it answers again")
    woken.rest()
    topics.send("one", "x")
    woken.is_woken()
    woken.probe.stop()


def test_a_topic_that_is_never_at_rest_does_not_hide_another_one(topics: Topics) -> None:
    for topic in ("busy", "one"):
        topics.make(topic)
    heard = Arrivals(topics.servers)
    heard.watch(topics.log.ends_of({"busy": 2, "one": 2}))
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            topics.send("busy", "x")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_until(lambda: {each.topic for each in heard.wait(1)} == {"busy"}, "it is heard")
        topics.send("one", "x", partition=1)
        wait_until(
            lambda: ("one", 1, 0) in heard.wait(1), "the record of the other one is heard, too"
        )
    finally:
        is_over.set()
        writer.join()
        heard.close()


def test_what_is_committed_wakes_its_readers(topics: Topics) -> None:
    topics.make(progress_topic(SERVICE), partitions=1)
    topics.make("rows")
    news = threading.Semaphore(0)
    upstream = Upstream(query_id="Q", log=topics.log, directory=Path(), has_news=news.release)
    feed = CommittedFeed(topics.servers, upstream)
    for query_id, batch in (("R", 0), ("Q", 0), ("R", 1), ("Q", 1)):
        commit = Commit(lease_epoch=LeaseEpoch(1), batch=BatchId(batch), attempt=1)
        progress = Progress(query_id=query_id, commit=commit, sinks={0: batch}, starts={0: 0})
        topics.log.append(progress)
        if query_id == "Q":
            assert news.acquire(timeout=120)
    feed.stop()


def test_a_reader_of_committed_rows_that_fails_is_noticed(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its query would sleep on: Spark learns of it by the next trigger."""

    def refuse(_reader: TopicReader, _wait_s: float) -> list[ReadPortion]:
        raise KafkaUnavailable("no right to read")

    monkeypatch.setattr(TopicReader, "poll", refuse)
    topics.make(progress_topic(SERVICE), partitions=1)
    news = threading.Semaphore(0)
    upstream = Upstream(query_id="Q", log=topics.log, directory=Path(), has_news=news.release)
    feed = CommittedFeed(topics.servers, upstream)
    assert news.acquire(timeout=120)
    with pytest.raises(KafkaUnavailable, match="no right to read"):
        feed.next_ends({0: 0}, 10)
