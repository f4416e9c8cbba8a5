"""A topic in AVRO as a query reads it, over records in memory in place of Spark's Kafka source.

With Kafka and a real registry: `test_registry_pipeline.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.known_schemas import KnownSchemas

from standpipe.data.encoding.framed_values import avro_row, framed
from standpipe.model import Column, SparkInput, Window
from standpipe.pipeline.io.avro import avro_source, java_rows
from standpipe.pipeline.io.avro.avro_source import AvroSource
from standpipe.pipeline.io.avro.kept_answers import KeptAnswers
from standpipe.pipeline.io.avro.writer_schemas import ASKED_MAX, WriterSchemas, parts_of
from standpipe.pipeline.io.source import parse, visible_columns
from standpipe.pipeline.io.source_v1 import offsets_of, stream_of
from standpipe.sql.schemas.registry import RegisteredSchema

pytestmark = pytest.mark.e2e

TOPIC, BYTES_MAX = "t", 10_000
RECORDS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,"
    " timestampType INT"
)
COLUMNS = (
    Column(name="K", type="BIGINT", is_key=True),
    Column(name="N", type="INTEGER"),
    Column(name="NOTE", type="STRING"),
)
KEYS = '"long"'
PLAIN = '{"type":"record","name":"V","fields":[{"name":"n","type":"int"}]}'
NOTED = (
    '{"type":"record","name":"V","fields":[{"name":"note","type":["null","string"]},'
    '{"name":"n","type":"int"},{"name":"more","type":"double"}]}'
)


class Registry(KnownSchemas):
    """Counts what is asked of it."""

    asked: int = 0

    def by_id(self, schema_id: int) -> RegisteredSchema:
        self.asked += 1
        return super().by_id(schema_id)


class Topic:
    """Records in memory, as Spark's Kafka source gives them: one partition, in order."""

    def __init__(self, spark: SparkSession, batch_records: int) -> None:
        self.spark, self.batch_records = spark, batch_records
        self.records: list[tuple[bytes | None, bytes | None]] = []

    def frame(self, records: Sequence[tuple[bytes | None, bytes | None]], first: int) -> DataFrame:
        rows = [
            (k and bytearray(k), v and bytearray(v), TOPIC, 0, first + n, 1000 + n, 0)
            for n, (k, v) in enumerate(records)
        ]
        columns = RECORDS.replace("timestamp TIMESTAMP", "timestamp BIGINT")
        made = self.spark.createDataFrame(rows, columns)
        return made.selectExpr(
            "key", "value", "topic", "partition", "offset",
            "timestamp_millis(timestamp) AS timestamp", "timestampType",
        )  # fmt: skip

    def schema(self) -> Any:
        types = cast(Any, self.spark)._jvm.org.apache.spark.sql.types.DataType
        return types.fromDDL(RECORDS)

    def getBatch(self, start: Any, end: Any) -> Any:
        first = offsets_of(start.get())[TOPIC][0] if start.isDefined() else 0
        rows = self.frame(self.records[first : offsets_of(end)[TOPIC][0]], first)
        still = cast(Any, rows)._jdf.queryExecution().toRdd()
        session = cast(Any, self.spark)._jsparkSession
        return session.internalCreateDataFrame(still, self.schema(), True)

    def latestOffset(self, start: Any, _limit: Any) -> Any:
        first = 0 if start is None else offsets_of(start)[TOPIC][0]
        last = min(len(self.records), first + self.batch_records)
        if last == first:
            return start
        return AvroSource.deserializeOffset(
            cast(Any, self.around), json.dumps({TOPIC: {"0": last}})
        )

    around: AvroSource

    def getDefaultReadLimit(self) -> Any:
        limits = cast(Any, self.spark)._jvm.org.apache.spark.sql.connector.read.streaming
        return limits.ReadLimit.allAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """The records do not change while a query runs."""

    def reportLatestOffset(self) -> None:
        """Not reported."""

    def commit(self, end: Any) -> None:
        """Nothing is dropped."""

    def stop(self) -> None:
        """Nothing is open."""


class Story:
    """One query that is run again and again, from one checkpoint, until it has read all."""

    def __init__(self, spark: SparkSession, folder: Path, batch_records: int = 100) -> None:
        self.spark, self.folder = spark, folder
        self.registry, self.topic = Registry(), Topic(spark, batch_records)
        self.source = SparkInput(
            source="S", topic=TOPIC, view="V", columns=COLUMNS, key_format="AVRO",
            value_format="AVRO",
        )  # fmt: skip
        self.key_id = self.registry.register("t-key", "AVRO", KEYS)
        #: of each batch
        self.sampled: dict[int, list[tuple[str, int]]] = {}

    def schema(self, text: str) -> RegisteredSchema:
        return RegisteredSchema(self.registry.register("t-value", "AVRO", text), "AVRO", text)

    def produce(self, schema: RegisteredSchema, *rows: Sequence[Any]) -> None:
        key = RegisteredSchema(self.key_id, "AVRO", KEYS)
        of_key = avro_row(key, [Column(name="K", type="BIGINT")], wraps=False)
        columns = [Column(name="n", type="INTEGER"), Column(name="note", type="STRING"),
                   Column(name="more", type="DOUBLE")]  # fmt: skip
        taken = columns if "note" in schema.text else columns[:1]
        write = avro_row(schema, taken, wraps=True)
        self.topic.records += [(of_key([each[0]]), write(list(each))) for each in rows]

    def value(self, value: bytes) -> None:
        self.topic.records.append((None, value))

    def run(self) -> dict[int, list[Any]]:
        """What the batches of this run have: (K, N, NOTE), or the offset of a bad record."""
        session = self.spark.newSession()
        java_rows.prepare(session)
        self.topic.spark = session
        schemas = WriterSchemas(parts_of(self.source), self.registry, KeptAnswers(self.folder, "V"))
        made = AvroSource(
            session, self.source, self.topic, schemas, bytes_max=BYTES_MAX,
            is_resumed=avro_source._ends_with_a_commit(self.folder),
        )  # fmt: skip
        self.topic.around = made
        rows = parse(stream_of(session, made), self.source, bytes_max=BYTES_MAX)
        rows = rows.select("__bad", *visible_columns(self.source))
        found: dict[int, list[Any]] = {}

        def note(batch: DataFrame, number: int) -> None:
            names = ("K", "N", "NOTE")
            self.sampled[number] = self.sample(rows.sparkSession)
            found[number] = [
                tuple(row[name] for name in names) if row["__bad"] is None
                else (row["__bad"], row["ROWOFFSET"])
                for row in sorted(batch.collect(), key=lambda row: row["ROWOFFSET"])
            ]  # fmt: skip

        query = (
            rows.writeStream.option("checkpointLocation", str(self.folder))
            .foreachBatch(note)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return found

    def sample(self, session: SparkSession) -> list[tuple[str, int]]:
        """The bad records of all that was produced, as `bad_records.sample` finds them."""
        programs = avro_source.latest_programs(session)[self.source.view]
        records = self.topic.frame(self.topic.records, 0)
        again = avro_source.decoded(records, self.source, programs, bytes_max=BYTES_MAX)
        bad = parse(again, self.source, bytes_max=BYTES_MAX).where("__bad IS NOT NULL")
        return sorted(((row["__bad"], row["offset"]) for row in bad.collect()), key=lambda r: r[1])

    def forget_commit(self, batch: int) -> None:
        """As if the driver had died before Spark noted that the batch is done."""
        for path in (self.folder / "commits").glob(f"*{batch}*"):
            path.unlink()


@pytest.fixture
def story(spark: SparkSession, tmp_path: Path) -> Story:
    return Story(spark, tmp_path)


def test_a_newer_schema_in_the_middle_of_a_batch(story: Story) -> None:
    """One field more, in another order; then one fewer again."""
    plain, noted = story.schema(PLAIN), story.schema(NOTED)
    story.produce(plain, [1])
    story.produce(noted, [2, "two", 0.5])
    story.produce(plain, [3])
    assert story.run() == {0: [(1, 1, None), (2, 2, "two"), (3, 3, None)]}
    story.produce(noted, [4, None, 0.5])
    asked = story.registry.asked
    assert story.run() == {1: [(4, 4, None)]}
    assert story.registry.asked == asked, "schemas are kept with the checkpoint"


def test_what_cannot_be_read_is_bad(story: Story) -> None:
    plain = story.schema(PLAIN)
    text = story.schema('{"type":"record","name":"V","fields":[{"name":"n","type":"string"}]}')
    story.produce(plain, [1])
    story.value(framed(plain.schema_id, b"\x02\x02"))
    story.value(framed(99, b"\x02"))
    story.value(framed(text.schema_id, b"\x02a"))
    story.value(b'{"n": 1}')
    story.value(framed(plain.schema_id, b"\x02" * BYTES_MAX))
    story.topic.records.append((framed(story.key_id, b""), framed(plain.schema_id, b"\x02")))
    story.produce(plain, [2])
    bad = [("VALUE", 1), ("VALUE", 2), ("VALUE", 3), ("VALUE", 4), ("TOO_LARGE", 5), ("KEY", 6)]
    assert story.run() == {0: [(1, 1, None), *bad, (2, 2, None)]}


def test_a_replay_has_the_same_rows(story: Story) -> None:
    """The schema is registered after the batch; later records under it are read."""
    plain = story.schema(PLAIN)
    story.produce(plain, [1])
    story.value(framed(plain.schema_id + 1, b"\x06"))
    first = story.run()
    assert first == {0: [(1, 1, None), ("VALUE", 1)]}
    late = story.schema(PLAIN.replace('"n"', '"N"'))
    assert late.schema_id == plain.schema_id + 1
    story.forget_commit(0)
    story.value(framed(late.schema_id, b"\x06"))
    assert story.run() == {**first, 1: [(None, 3, None)]}


def test_a_registry_that_does_not_know_a_schema_any_more(story: Story) -> None:
    """As one of its nodes may, that is behind the others."""
    plain = story.schema(PLAIN)
    story.produce(plain, [1])
    first = story.run()
    story.registry.subjects.clear()
    story.forget_commit(0)
    story.produce(plain, [2])
    assert story.run() == {**first, 1: [(2, 2, None)]}


def test_while_the_registry_is_away_no_record_is_left_out(story: Story) -> None:
    """Known schemas go on, and the query starts; a new one waits."""
    plain = story.schema(PLAIN)
    story.produce(plain, [1])
    story.run()
    noted = story.schema(NOTED)
    story.registry.is_down = True
    story.produce(plain, [2])
    assert story.run() == {1: [(2, 2, None)]}
    story.produce(noted, [3, "three", 0.5])
    for _ in range(2):
        with pytest.raises(Exception, match="SchemaRegistryUnavailable"):
            story.run()
    story.registry.is_down = False
    assert story.run() == {2: [(3, 3, "three")]}


def test_thousands_of_ids_that_nobody_registered(spark: SparkSession, tmp_path: Path) -> None:
    """Few are asked for: those of most records, among them a new schema. In a replay none."""
    story = Story(spark, tmp_path, batch_records=10_000)
    plain = story.schema(PLAIN)
    for number in range(3000):
        story.value(framed(10_000 + number, b"\x02"))
    story.produce(plain, [1], [2])
    (rows,) = story.run().values()
    assert rows[-2:] == [(1, 1, None), (2, 2, None)]
    assert sum(row[0] == "VALUE" for row in rows) == 3000
    assert story.registry.asked <= ASKED_MAX
    asked = story.registry.asked
    story.forget_commit(0)
    assert list(story.run().values()) == [rows]
    assert story.registry.asked == asked


def test_a_start_after_a_committed_batch_looks_at_none_of_its_records(story: Story) -> None:
    """They may have expired since. Spark asks for that batch, and does not run it."""
    plain = story.schema(PLAIN)
    story.value(framed(77, b"\x02"))
    story.run()
    asked = story.registry.asked
    story.produce(plain, [1])
    story.topic.records[0] = (None, framed(78, b"\x02"))
    assert story.run() == {1: [(1, 1, None)]}
    assert story.registry.asked == asked + 2  # of the key and of the value, not 78


def test_bad_records_are_sampled_as_the_batch_read_them(story: Story) -> None:
    """Nobody is asked: not a registry that is away, nor one that has learnt a schema since."""
    plain = story.schema(PLAIN)
    story.produce(plain, [1])
    story.run()
    late = plain.schema_id + 1
    story.value(framed(late, b"\x06"))
    story.run()
    assert story.sampled[1] == [("VALUE", 1)]
    assert story.schema(PLAIN.replace('"n"', '"N"')).schema_id == late
    story.forget_commit(1)
    asked, story.registry.is_down = story.registry.asked, True
    assert story.run() == {1: [("VALUE", 1)]}
    assert story.sampled[1] == [("VALUE", 1)]
    story.produce(plain, [2])
    story.value(framed(plain.schema_id, b"\x02\x02"))
    assert story.run() == {2: [(2, 2, None), ("VALUE", 3)]}
    assert story.sampled[2] == [("VALUE", 1), ("VALUE", 3)]
    assert story.registry.asked == asked


@pytest.mark.parametrize("kind", ["TUMBLING", "SESSION"])
def test_a_key_with_a_window(spark: SparkSession, kind: str) -> None:
    registry = KnownSchemas()
    key_id = registry.register("t-key", "AVRO", KEYS)
    window = Window(
        kind=cast(Any, kind), size_ms=1000, advance_ms=1000, grace_ms=0, retention_ms=1000
    )
    source = SparkInput(
        source="S", topic=TOPIC, view="V", columns=COLUMNS[:1], key_format="AVRO",
        value_format="NONE", window=window, is_table=True,
    )  # fmt: skip
    tail = (5000).to_bytes(8, "big") + (4000).to_bytes(8, "big")
    key = framed(key_id, b"\x0e") + (tail if kind == "SESSION" else tail[8:])
    rows = Topic(spark, 1).frame([(key, b"x"), (framed(key_id, b"\x0e"), b"x")], 0)
    programs = WriterSchemas(parts_of(source), registry).of_batch({}, {}, lambda _: [key_id])
    java_rows.prepare(spark)
    made = avro_source.decoded(rows, source, programs, bytes_max=BYTES_MAX)
    good, bad = parse(made, source, bytes_max=BYTES_MAX).collect()
    assert (good["__bad"], good["__key"]["K"]) == (None, 7)
    assert (good["WINDOWSTART"], good["WINDOWEND"]) == (4000, 5000)
    assert bad["__bad"] == "KEY"
