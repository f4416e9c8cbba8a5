"""The real parts that cases run on: an embedded Kafka, one Spark session, one tailer process.

The runner stands in for control only: it publishes the map that the tailer and the readers follow.
"""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from pyspark.sql.streaming.query import StreamingQuery

from standpipe.adapters.files import published
from standpipe.adapters.files.private import write_secret
from standpipe.config import registry
from standpipe.data.encoding.store_keys import partition_of
from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.ports import any_port
from standpipe.model import (
    Assignment,
    AssignmentEpoch,
    LeaseEpoch,
    LogIndex,
    NodeId,
    NodeInfo,
    PersistentQuery,
    Placement,
    Snapshot,
    Source,
)
from standpipe.node import configuration
from standpipe.node.configuration import NodeConfig
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.pipeline.run import session
from standpipe.pipeline.run.start.query_run import PipelineContext, QueryRun, start_query
from standpipe.pipeline.run.watch.source_probe import SourceProbe
from standpipe.pipeline.wanted import WantedQuery

NODE = NodeId("node-1")
SERVICE = "conformance_"
#: which seals progress records: the tailer ignores those without a seal
SECRET = "secret"
QUERY_S_MAX = 600.0
READ_S_MAX = 120.0


@dataclass(frozen=True)
class Record:
    """A record of a topic, as it was read back."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int


@dataclass(frozen=True)
class ToSend:
    """A record to produce; its partition is that of its key, without a window, or the first."""

    topic: str
    partitions: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


@dataclass
class World:
    """Start it, use it from one thread (queries run in several), close it."""

    directory: Path
    _stamp: int = field(default=0)

    def __post_init__(self) -> None:
        # a busy machine must not make the only broker look dead to its own controller
        self.broker = Broker(
            self.directory / "kafka",
            any_port(),
            say=lambda _: None,
            session_ms=120_000,
            start_s_max=300,
        )
        self.broker.start()
        self.servers = self.broker.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        self.config = registry.load({"standpipe.pipeline.shuffle.partitions": 1})
        self.log = ProgressLog(self.servers, SERVICE, SECRET)
        self.make_topics({self.log.topic: 1, f"{SERVICE}ksql_processing_log": 1})
        self.spark = self._open_spark()
        self.around = PipelineContext(
            spark=self.spark,
            reads=KafkaReads(kafka=self.servers, config=self.config),
            log=self.log,
            probe=SourceProbe(log=self.log),
            service_id=SERVICE,
            checkpoints=self.directory / "checkpoints",
            check_lease=lambda _query, _epoch: None,
            stops_when_drained=True,
        )
        options = self.spark._jvm.java.util.HashMap()
        options["bootstrap.servers"] = self.servers
        # one request at a time: the records of a topic keep their order
        options["max.in.flight.requests.per.connection"] = "1"
        for part in ("key", "value"):
            name = "org.apache.kafka.common.serialization.ByteArraySerializer"
            options[f"{part}.serializer"] = name
        producers = self.spark._jvm.org.apache.kafka.clients.producer
        self._producer = producers.KafkaProducer(options)
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="case")
        self._start_tailer()

    def _open_spark(self) -> Any:
        command = [sys.executable, "-m", "standpipe.local.cluster.jvm"]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        spark = session.open_session(
            self.config,
            master="local[2]",
            jars=[Path(path) for path in found["jars"]],
            java_home=Path(found["java_home"]),
            java_options=found["java_options"],
        )
        spark.sparkContext.setLogLevel("OFF")
        return spark

    # ------------------------------------------------------------------------------ tailer

    def _start_tailer(self) -> None:
        secret = self.directory / "secret"
        write_secret(secret, SECRET)
        self.node = NodeConfig(
            node_id=NODE,
            data_dir=str(self.directory / "node"),
            bootstrap_servers=self.servers,
            public="127.0.0.1:1",
            internal="127.0.0.1:2",
            peer="127.0.0.1:3",
            secret_file=str(secret),
            service_id=SERVICE.removesuffix("_") + "_",
            config={"standpipe.store.map.bytes.start": 1024 * 1024},
        )
        self.node.paths.make()
        file = self.directory / "node.json"
        configuration.save(file, self.node)
        self.publish([])
        output = (self.directory / "tailer.log").open("wb")
        command = [sys.executable, "-m", "standpipe.node.tailer.main", "--node-file", str(file)]
        self._tailer = subprocess.Popen(command, stdout=output, stderr=output)

    def snapshot(self, sources: Iterable[Source]) -> Snapshot:
        """A map in which this one node holds every partition of every table."""
        known = tuple(sources)
        self._stamp += 1
        placements = tuple(
            Placement(
                table_id=source.table_id or "",
                generation=source.generation,
                partition=partition,
                replicas=(NODE,),
            )
            for source in known
            if source.is_materialized
            for partition in range(source.partitions)
        )
        info = NodeInfo(node_id=NODE, public="a:1", internal="a:2", peer="a:3", incarnation="i")
        return Snapshot(
            stamp=self._stamp,
            node_id=NODE,
            service_id=SERVICE,
            cluster_id="cluster",
            log_index=LogIndex(self._stamp),
            leader=NODE,
            nodes=(info,),
            sources=known,
            queries=(),
            assignment=Assignment(epoch=AssignmentEpoch(self._stamp), placements=placements),
        )

    def publish(self, sources: Iterable[Source]) -> None:
        """What the tailer is to hold from now on."""
        published.write(self.node.paths.snapshot, self.snapshot(sources))

    # -------------------------------------------------------------------------------- Kafka

    def make_topics(self, topics: dict[str, int]) -> None:
        if not topics:
            return
        # records of cases are from 1970: retention would take them within half a minute
        for_ever = {"retention.ms": "-1"}
        wanted = [NewTopic(name, count, 1, config=for_ever) for name, count in topics.items()]
        for made in self.admin.create_topics(wanted, operation_timeout=30).values():
            made.result()

    def drop_topics(self, topics: Sequence[str]) -> None:
        if topics:
            for gone in self.admin.delete_topics(list(topics), operation_timeout=30).values():
                gone.exception()

    def send(self, records: Iterable[ToSend]) -> None:
        """Produce and wait. By the JVM's client: librdkafka takes timestamp 0 for "now"."""
        jvm: Any = self.spark._jvm
        client = jvm.org.apache.kafka.clients.producer
        header = jvm.org.apache.kafka.common.header.internals.RecordHeader
        for each in records:
            if each.partition is None and each.key is not None:
                place = partition_of(each.key, each.partitions)
            else:
                place = each.partition or 0
            headers = jvm.java.util.ArrayList()
            for name, value in each.headers:
                headers.add(header(name, value))
            self._producer.send(
                client.ProducerRecord(
                    each.topic, place, each.timestamp_ms, each.key, each.value, headers
                )
            )
        self._producer.flush()

    def read(self, topics: dict[str, int]) -> dict[str, list[Record]]:
        """All records of the topics, partition by partition in the order of offsets."""
        ends = self.ends(topics)
        records: dict[str, list[Record]] = {topic: [] for topic in topics}
        left = {place for place, end in ends.items() if end}
        if left:
            self._consume(left, ends, records)
        for found in records.values():
            found.sort(key=lambda record: (record.partition, record.offset))
        return records

    def ends(self, topics: dict[str, int]) -> dict[tuple[str, int], int]:
        """End offset of each (topic, partition)."""
        places = [TopicPartition(t, p) for t, count in topics.items() for p in range(count)]
        latest = OffsetSpec.latest()
        asked = self.admin.list_offsets(dict.fromkeys(places, latest), request_timeout=60)
        return {(at.topic, at.partition): end.result().offset for at, end in asked.items()}

    def _consume(
        self,
        left: set[tuple[str, int]],
        ends: dict[tuple[str, int], int],
        records: dict[str, list[Record]],
    ) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "c",
                "log_level": 0,
                "enable.partition.eof": True,
            }
        )
        try:
            consumer.assign([TopicPartition(t, p, OFFSET_BEGINNING) for t, p in sorted(left)])
            deadline = time.monotonic() + READ_S_MAX
            while left:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"Kafka did not give all records of {sorted(left)[:5]}")

                for message in consumer.consume(500, 0.2):
                    place = (str(message.topic()), int(message.partition() or 0))
                    offset, error = int(message.offset() or 0), message.error()
                    if error is not None:
                        # an end without the record before it: whoever misses it will say so
                        if error.code() == KafkaError._PARTITION_EOF and offset >= ends[place]:
                            left.discard(place)
                        continue
                    records[place[0]].append(
                        Record(
                            place[1],
                            offset,
                            message.key(),
                            message.value(),
                            list(message.headers() or ()),
                            message.timestamp()[1],
                        )
                    )
                    if offset + 1 >= ends[place]:
                        left.discard(place)
        finally:
            consumer.close()

    # -------------------------------------------------------------------------------- Spark

    def run_chain(
        self, queries: Sequence[tuple[PersistentQuery, Source]], writers: dict[str, str]
    ) -> Future[str]:
        """Run queries one after the other, each until its topics are drained: "" or what failed.

        `writers`: the queries that write topics alone, by topic.
        """
        return self._pool.submit(self._run_chain, queries, writers)

    def _run_chain(
        self, queries: Sequence[tuple[PersistentQuery, Source]], writers: dict[str, str]
    ) -> str:
        for query, table in queries:
            run: QueryRun | None = None
            try:
                epoch = LeaseEpoch(1)
                wanted = WantedQuery(query=query, table=table, lease_epoch=epoch, writers=writers)
                run = start_query(wanted, self.around)
                drained = run.streaming_query.awaitTermination(QUERY_S_MAX)
                if not drained:
                    return f"query {query.query_id} did not end within {QUERY_S_MAX:.0f} s"
                if run.counts.failure is not None:
                    return f"query {query.query_id}: {run.counts.failure}"
            except Exception as error:
                why = run.counts.failure if run is not None else None
                return f"query {query.query_id}: {why or error!r}"
            finally:
                if run is not None:
                    run.stop()  # its janitor too: the topics are dropped after the verdict
                shutil.rmtree(
                    self.around.checkpoints / f"{query.query_id}-{table.generation}",
                    ignore_errors=True,
                )
        return ""

    def queries_kept(self) -> int:
        """Streaming queries that Python refers to. The JVM keeps each of them, with all its plans,
        so once all cases have ended there must be none."""
        gc.collect()
        return sum(isinstance(each, StreamingQuery) for each in gc.get_objects())

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        watchdog = threading.Timer(20, session.kill_jvm)
        watchdog.daemon = True
        watchdog.start()
        self._tailer.terminate()
        session.kill_jvm()
        watchdog.cancel()
        self.broker.stop()
