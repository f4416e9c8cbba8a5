"""One committed batch of a table as a DataFrame: on real Kafka and real Spark, with foreign records
between the rows, whatever the settings of the user's session."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import json
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from msgspec.structs import replace
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.e2e.cluster import wait_until
from tests.e2e.test_frame_rows_on_spark import ROWS, table_of
from tests.samples import sample_table

from standpipe.adapters.kafka.admin import KafkaAdmin
from standpipe.config import registry
from standpipe.control.metadata.topic_reconciler import CreateTopic
from standpipe.data.commit import progress as progress_log
from standpipe.data.encoding.store_keys import (
    HEADER_COMMIT,
    HEADER_ROWTIME,
    commit_header,
    rowtime_header,
)
from standpipe.errors import KafkaUnavailable
from standpipe.local.cluster.broker import Broker
from standpipe.local.cluster.ports import any_port
from standpipe.model import BatchId, Commit, LeaseEpoch, Progress, Source, Window
from standpipe.pipeline.commit.janitor import COMPACTION_LAG_MS
from standpipe.pipeline.io.kafka_options import KafkaReads
from standpipe.pipeline.io.progress_log import ProgressLog
from standpipe.spark.changes import changed_rows
from standpipe.spark.complete import Differences
from standpipe.spark.read import (
    USABLE_MS_MAX,
    CommittedFrame,
    NewestBatch,
    committed_frame,
    newest_batch,
)
from standpipe.spark.rows import RowRules, records

PARTITIONS = 2
SERVICE = "default_"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Broker(tmp_path_factory.mktemp("kafka"), any_port()) as broker:
        KafkaAdmin(broker.bootstrap_servers).carry_out(CreateTopic(f"{SERVICE}_progress", 1, {}))
        yield broker.bootstrap_servers


@pytest.fixture(params=["true", "false"], ids=["ansi", "not ansi"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    """As a program's own: ANSI mode is on by default, and names are in any case."""
    own = spark.newSession()
    own.conf.set("spark.sql.ansi.enabled", request.param)
    own.conf.set("spark.sql.caseSensitive", "false")
    own.conf.set("spark.sql.session.timeZone", "America/Lima")
    return own


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Writer:
    """Writes a table step by step, as programs, zombies and strangers do."""

    servers: str
    table: Source
    ends: dict[int, int] = field(default_factory=dict[int, int])
    clean: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        topic = CreateTopic(self.table.topic, self.table.partitions, {})
        KafkaAdmin(self.servers).carry_out(topic)
        self.log = ProgressLog(self.servers, SERVICE)
        self.producer = confluent_kafka.Producer({"bootstrap.servers": self.servers})
        self.ends = dict.fromkeys(range(self.table.partitions), 0)
        said = ""

        def has_leaders() -> bool:
            nonlocal said
            try:
                self.log.end_offsets(self.log.topic, 1)
                return bool(self.log.end_offsets(self.table.topic, self.table.partitions))
            except KafkaUnavailable as error:
                said = error.message
                return False

        wait_until(has_leaders, "leaders of the topics", lambda: said)

    def write(
        self,
        rows: Sequence[tuple[bytes, bytes | None]],
        by: Commit | None,
        *,
        partition: int = 0,
        written_ms: int = 0,
    ) -> None:
        headers: list[tuple[str, str | bytes | None]] = [(HEADER_ROWTIME, rowtime_header(7))]
        if by is not None:
            headers.insert(0, (HEADER_COMMIT, commit_header(by)))
        for key, value in rows:
            self.producer.produce(
                self.table.topic,
                value,
                key,
                partition=partition,
                headers=headers,
                timestamp=written_ms or now_ms(),
            )
        assert self.producer.flush(60) == 0

    def commit(self, by: Commit, *, clean: bool = False, watermark_ms: int = 0) -> None:
        sinks = self.log.end_offsets(self.table.topic, self.table.partitions)
        self.clean = sinks if clean else self.clean
        record = Progress(
            query_id=str(self.table.query_id),
            commit=by,
            sinks=sinks,
            starts=self.ends,
            clean_through=self.clean,
            watermark_ms=watermark_ms,
            committed_at_ms=now_ms(),
        )
        self.log.append(record)
        self.ends = sinks

    def found(self) -> NewestBatch:
        return newest_batch(self.table, self.log, now_ms())

    def read(self, session: SparkSession, found: NewestBatch | None = None) -> CommittedFrame:
        reads = KafkaReads(kafka=self.servers, config=registry.load({}))
        return committed_frame(session, found or self.found(), reads)


def of(epoch: int, batch: int, attempt: int = 1) -> Commit:
    return Commit(lease_epoch=LeaseEpoch(epoch), batch=BatchId(batch), attempt=attempt)


def table(name: str, **changes: object) -> Source:
    fields = {"query_id": f"Q_{name}", "topic": name, "partitions": PARTITIONS, **changes}
    return sample_table(name=name, **fields)


def row(key: str, n: int) -> tuple[bytes, bytes]:
    return key.encode(), b'{"N":%d}' % n


def test_rows_of_every_type_come_back(
    servers: str, session: SparkSession, request: pytest.FixtureRequest
) -> None:
    frame = session.sql(ROWS.replace("TIMESTAMP'2026-01-02 03:04:05.678'", "timestamp_millis(678)"))
    name = f"types-{request.node.callspec.id.replace(' ', '-')}"
    own = replace(table_of(frame, "k"), topic=name, query_id=name)
    writer = Writer(servers, own)
    for each in records(frame, own, RowRules()).collect():
        writer.write([(bytes(each["key"]), each["value"].encode())], of(1, 0))
    writer.commit(of(1, 0))
    read = writer.read(session)
    (found,) = read.collect()
    assert found.asDict(recursive=True) == {
        "K": "ada",
        "N": -2,
        "I": 7,
        "F": 1.5,
        "D": 0.1,
        "MONEY": decimal.Decimal("12.30"),
        "BYTES": bytearray(b"\x00\xff"),
        "FLAG": True,
        "DAY": dt.date(2026, 1, 2),
        "AT": session.sql("SELECT timestamp_millis(678) AS at").collect()[0]["at"],
        "SMALL": [1],
        "COUNTS": {"a": 1},
        "DEEP": {"X Y": 1, "Z": dt.date(1970, 1, 3)},
    }
    joined = read.join(frame.withColumnRenamed("n", "other"), on="k")
    assert [each["other"] for each in joined.collect()] == [-2], "a DataFrame of this session"


def test_only_the_newest_committed_row_of_a_key(servers: str, session: SparkSession) -> None:
    writer = Writer(servers, table(f"newest-{now_ms()}"))
    writer.write([row("ada", 1), row("bob", 1), row("eve", 1), row("gone", 1)], of(1, 0))
    writer.write([row("far", 1)], of(1, 0), partition=1)
    writer.write([row("ada", 66)], None)  # a stranger, whom the janitor repairs
    writer.commit(of(1, 0))
    writer.write([row("ada", 1)], of(1, 0, attempt=2))
    writer.commit(of(1, 0, attempt=2), clean=True)
    writer.write([row("bob", 67)], of(1, 1, attempt=1))  # an attempt that failed
    writer.write([row("bob", 2), (b"gone", None)], of(1, 1, attempt=2))
    writer.write([row("eve", 68), (b"ada", None)], of(1, 0))  # a straggler
    writer.commit(of(1, 1, attempt=2))
    writer.write([row("ada", 69), row("new", 69)], of(2, 2))  # a batch that nobody has committed
    writer.log.append(progress_log.fence(str(writer.table.query_id), LeaseEpoch(3), nonce=1))
    zombie = replace(of(2, 2), attempt=9)
    writer.write([row("far", 70)], zombie, partition=1)
    writer.commit(zombie)

    read = writer.read(session)
    assert (read.lease_epoch, read.batch) == (1, 1)
    assert abs(read.committed_at_ms - now_ms()) < 600_000
    assert sorted(map(tuple, read.collect())) == [("ada", 1), ("bob", 2), ("eve", 1), ("far", 1)]

    writer.ends = dict(writer.found().progress.sinks)
    writer.write([row("ada", 3)], of(3, 2))
    writer.commit(of(3, 2))
    assert ("ada", 1) in set(map(tuple, read.collect())), "it stays the batch that was read"
    later = writer.read(session)
    assert (later.lease_epoch, later.batch) == (3, 2)
    assert ("ada", 3) in set(map(tuple, later.collect()))


def follow(
    session: SparkSession, writer: Writer, checkpoint: Path, of: Source | None = None
) -> tuple[DataFrame, list[tuple[Any, ...]]]:
    """A streaming query over the changes, until it has all that is committed now. `of`: another
    table at the same topic."""
    reads = KafkaReads(kafka=writer.servers, config=registry.load({}))
    changes = changed_rows(session, of or writer.table, writer.log, reads, "_deleted")
    return changes, drained(changes, checkpoint)


def drained(changes: DataFrame, checkpoint: Path) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    query = (
        changes.writeStream.option("checkpointLocation", str(checkpoint))
        .foreachBatch(lambda rows, _: found.extend(map(tuple, rows.collect())))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def test_each_committed_change_is_seen_once(
    servers: str, session: SparkSession, tmp_path: Path
) -> None:
    writer, checkpoint = Writer(servers, table(f"changes-{now_ms()}")), tmp_path / "c"
    writer.write([row("ada", 1), row("bob", 1)], of(1, 0))
    writer.write([row("far", 1)], of(1, 0), partition=1)
    writer.write([row("ada", 66)], None)  # a stranger
    writer.commit(of(1, 0))
    writer.write([row("bob", 67)], of(1, 1, attempt=1))  # an attempt that failed
    writer.write([row("ada", 2), (b"bob", None)], of(1, 1, attempt=2))
    writer.commit(of(1, 1, attempt=2))
    writer.write([row("ada", 68)], of(1, 2))  # nobody has committed it yet

    changes, found = follow(session, writer, checkpoint)
    assert changes.columns == ["K", "N", "_deleted"]
    assert changes.isStreaming
    first = [("ada", 1, False), ("bob", 1, False), ("far", 1, False)]
    second = [("ada", 2, False), ("bob", None, True)]
    assert sorted(found, key=repr) == sorted(first + second, key=repr)
    of_ada = [each for each in found if each[0] == "ada"]
    assert of_ada == [("ada", 1, False), ("ada", 2, False)], "in their order"

    writer.commit(of(1, 2))
    assert follow(session, writer, checkpoint)[1] == [("ada", 68, False)], "it goes on from there"
    assert len(follow(session, writer, tmp_path / "another")[1]) == len(found) + 1
    with pytest.raises(StreamingQueryException, match="another query has read this DataFrame"):
        drained(changes, tmp_path / "third")


def test_a_table_that_was_made_again_is_not_followed(
    servers: str, session: SparkSession, tmp_path: Path
) -> None:
    """Its rows would be left out up to where the old one was."""
    writer, checkpoint = Writer(servers, table(f"old-{now_ms()}")), tmp_path / "c"
    writer.write([row("ada", 1), row("bob", 1)], of(1, 0))
    writer.commit(of(1, 0))
    assert len(follow(session, writer, checkpoint)[1]) == 2
    again = replace(writer.table, query_id=f"again-{now_ms()}")
    with pytest.raises(StreamingQueryException, match="further than what was ever committed"):
        follow(session, writer, checkpoint, of=again)


def test_changes_of_windows(servers: str, session: SparkSession, tmp_path: Path) -> None:
    window = Window(kind="TUMBLING", size_ms=10, advance_ms=10, grace_ms=0, retention_ms=0)
    writer = Writer(servers, table(f"changed-windows-{now_ms()}", window=window))
    key = b"ada" + struct.pack(">q", 20)
    writer.write([(key, b'{"N":1}'), (key, None)], of(1, 0))
    writer.commit(of(1, 0))
    changes, found = follow(session, writer, tmp_path / "c")
    assert changes.columns == ["K", "WINDOWSTART", "WINDOWEND", "N", "_deleted"]
    assert found == [("ada", 20, 30, 1, False), ("ada", 20, 30, None, True)]


def test_what_a_whole_result_changes(servers: str, session: SparkSession) -> None:
    own = table(f"complete-{now_ms()}", partitions=1)
    writer = Writer(servers, own)
    differences = Differences(
        table=own, log=writer.log, reads=KafkaReads(kafka=servers, config=registry.load({}))
    )

    def found(*rows: tuple[str, int]) -> dict[str, object]:
        frame = session.createDataFrame(rows, "k STRING, n BIGINT")
        changed = differences(records(frame, own, RowRules()), now_ms()).collect()
        assert all(len(each["rowtime"]) == 8 for each in changed)
        values = {bytes(each["key"]).decode(): each["value"] for each in changed}
        return {key: value and json.loads(bytes(value))["N"] for key, value in values.items()}

    assert found(("ada", 1)) == {"ada": 1}, "nothing is committed yet"
    writer.write([row("ada", 1), row("bob", 1), row("eve", 1), (b"old", None)], of(1, 0))
    writer.commit(of(1, 0), clean=True)
    writer.write([row("ada", 66), row("new", 66)], of(1, 1))  # an attempt that failed
    assert found(("ada", 1), ("bob", 2), ("tom", 1)) == {"bob": 2, "tom": 1, "eve": None}
    assert found(("ada", 1), ("bob", 1), ("eve", 1)) == {}, "a replay"
    long_ago_ms = now_ms() - COMPACTION_LAG_MS - 60_000
    writer.write([row("lost", 66)], of(1, 1), written_ms=long_ago_ms)
    same = ("ada", 1), ("bob", 1), ("eve", 1)
    assert found(*same) == {"lost": None}, "replicas may have a row that the topic has lost"
    assert found(*same, ("lost", 1)) == {"lost": 1}


def test_windows_that_have_expired_are_left_out(servers: str, session: SparkSession) -> None:
    window = Window(kind="TUMBLING", size_ms=10, advance_ms=10, grace_ms=5, retention_ms=15)
    writer = Writer(servers, table(f"windows-{now_ms()}", window=window))
    rows = [(b"ada" + struct.pack(">q", at), b'{"N":%d}' % at) for at in (0, 10, 20, 30)]
    writer.write(rows, of(1, 0))
    writer.commit(of(1, 0), watermark_ms=20)  # event time is at 25: 10 has expired
    read = writer.read(session)
    assert read.columns == ["K", "WINDOWSTART", "WINDOWEND", "N"]
    assert sorted(map(tuple, read.collect())) == [("ada", 20, 30, 20), ("ada", 30, 40, 30)]


def test_a_foreign_record_that_is_older_than_compaction_is_an_error(
    servers: str, session: SparkSession
) -> None:
    writer = Writer(servers, table(f"shadows-{now_ms()}"))
    writer.write([row("ada", 1)], of(1, 0))
    writer.commit(of(1, 0), clean=True)
    long_ago_ms = now_ms() - COMPACTION_LAG_MS
    writer.write([row("ada", 66)], of(1, 1), written_ms=long_ago_ms - 60_000)
    writer.write([row("new", 66)], of(1, 1), written_ms=long_ago_ms + 600_000)
    read = writer.read(session)
    assert list(map(tuple, read.collect())) == [("ada", 1)], "its row is there; the other is young"
    writer.write([row("bob", 66)], of(1, 1), written_ms=long_ago_ms - 60_000)
    with pytest.raises(Exception, match="cannot be read from its topic: at offset 3 of partition"):
        writer.read(session).select("K").collect()
    assert list(map(tuple, read.collect())) == [("ada", 1)], "it ends where it was read"


@pytest.mark.parametrize("rows", [1, 0])
def test_it_cannot_be_used_once_records_may_be_gone(
    servers: str, session: SparkSession, rows: int
) -> None:
    writer = Writer(servers, table(f"late-{rows}-{now_ms()}"))
    writer.write([row("ada", 1)][:rows], of(1, 0))
    writer.commit(of(1, 0))
    found = writer.found()
    assert abs(found.usable_until_ms - USABLE_MS_MAX - now_ms()) < 600_000
    assert writer.read(session, found).count() == rows
    kept = writer.read(session).persist()
    assert kept.count() == rows
    late = writer.read(session, dataclasses.replace(found, usable_until_ms=now_ms() - 1))
    with pytest.raises(Exception, match="is too old: compaction may have removed its"):
        late.count()
    kept.unpersist()


def test_missing_records_are_an_error_where_tombstones_may_be_gone(
    servers: str, session: SparkSession
) -> None:
    writer = Writer(servers, table(f"doubts-{now_ms()}"))
    writer.write([row("ada", 1), row("bob", 1), row("eve", 1)], of(1, 0))
    writer.commit(of(1, 0))
    found = dataclasses.replace(writer.found(), doubtful={0: (0, 3)})
    assert writer.read(session, found).count() == 3, "all records are there, whatever their age"
    lacking = dataclasses.replace(found, doubtful={0: (0, 4)})
    with pytest.raises(Exception, match="no longer tells all rows of doubts"):
        writer.read(session, lacking)
