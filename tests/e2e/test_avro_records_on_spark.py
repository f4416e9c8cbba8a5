"""The records of streams and tables in AVRO: keys, values, copies, and rows that a schema has not.
Static frames, no Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.samples import sample_stream, sample_table

from standpipe.data.encoding import avro_reading, store_keys
from standpipe.data.encoding.framed_values import unframed
from standpipe.model import Column, Source, SparkPlan, Window, WrittenSchema
from standpipe.pipeline.io.avro import avro_rows
from standpipe.pipeline.io.sink import addressed, records_of
from standpipe.pipeline.io.sink_writer import WriteLimits, parsed, writable
from standpipe.pipeline.run.start import session_functions
from standpipe.pipeline.run.start.public_topic import _in_public_form, lacking
from standpipe.pipeline.wanted import WantedQuery
from standpipe.sql.declarations.published import kept_form, public_form
from standpipe.sql.declarations.registered import given_id, own_schema
from standpipe.sql.schemas import avro

COLUMNS: Final = (
    Column(name="K", type="STRING", is_key=True),
    Column(name="N", type="INTEGER"),
    Column(name="AT", type="TIMESTAMP"),
)
STREAM: Final = sample_stream(columns=COLUMNS, key_format="AVRO", value_format="AVRO")
TABLE: Final = kept_form(
    sample_table(
        columns=COLUMNS,
        key_format="AVRO",
        value_format="AVRO",
        query_id="CTAS_T_1",
        table_id="T_1",
        partitions=7,
    )
)
WINDOW: Final = Window(kind="TUMBLING", size_ms=1, advance_ms=1, grace_ms=0, retention_ms=1)
#: of another program: N may not be NULL
STRICT: Final = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        ],
    }
)
NONE: Final = "CAST(NULL AS STRING)"
AT_MS: Final = 1500
PLAN: Final = SparkPlan(version=1, inputs=(), sql="", output_mode="append", is_windowed=False)


def plan_of(source: Source) -> SparkPlan:
    """The plan of a query that writes it: keys under schema 5, values under 6, or as it says."""
    public = public_form(source)
    value = STRICT if given_id(source, "VALUE") else own_schema(public, "VALUE")
    schemas: tuple[WrittenSchema | None, WrittenSchema | None] = (
        (5, own_schema(public, "KEY")),
        (6, value),
    )
    return replace(PLAN, schemas=schemas)


def result_of(spark: SparkSession, source: Source, *rows: str) -> DataFrame:
    """The records of rows, each the SQL of its columns."""
    session = spark.newSession()
    session_functions.register_avro(session, avro_rows.writers_of(source, plan_of(source)))
    selected = " UNION ALL ".join(f"SELECT {row}" for row in rows)
    return records_of(session.sql(selected), source, schemas=plan_of(source).schemas)


def row(key: str, number: str, *, live: str = "true", window: str = "") -> str:
    return f"{key}, {window}{number}, timestamp_millis({AT_MS}), 9L, {live}"


def key_of(data: Any) -> Any:
    assert data is not None
    schema_id, rest = unframed(bytes(data))
    columns = [COLUMNS[0]]
    (key,) = avro_reading.to_cells(avro.parse('"string"'), columns, wraps=False)(rest)
    assert schema_id == 5
    return key


def value_of(source: Source, data: Any) -> Any:
    if data is None:
        return None
    schema_id, rest = unframed(bytes(data))
    (_, (known, text)) = cast(Any, plan_of(source).schemas)
    assert schema_id == known
    return avro_reading.to_cells(avro.parse(text), source.value_columns, wraps=True)(rest)


def test_a_stream(spark: SparkSession) -> None:
    rows = result_of(spark, STREAM, row("'a'", "1"), row(NONE, "CAST(NULL AS INT)")).collect()
    assert [value_of(STREAM, each["value"]) for each in rows] == [[1, AT_MS], [None, AT_MS]]
    assert key_of(rows[0]["key"]) == "a"
    assert rows[1]["key"] is None, "no key, so none in AVRO"
    assert "unwritable" not in rows[0], "our own schema has all rows"


def test_a_table_and_its_copy(spark: SparkSession) -> None:
    alive, dead = result_of(spark, TABLE, row("'a'", "1"), row("'b'", "2", live="false")).collect()
    assert (bytes(alive["key"]), json.loads(alive["value"])) == (b"a", {"N": 1, "AT": AT_MS})
    assert key_of(alive["public_key"]) == "a"
    assert value_of(TABLE, alive["public_value"]) == [1, AT_MS]
    assert alive["public_partition"] is None, "Kafka's producer finds it by the key in AVRO"
    assert alive["partition"] == store_keys.partition_of(b"a", TABLE.partitions)
    assert (dead["value"], dead["public_value"]) == (None, None)
    assert key_of(dead["public_key"]) == "b"


def test_a_windowed_key_ends_with_its_window(spark: SparkSession) -> None:
    table = replace(TABLE, window=WINDOW)
    (found,) = result_of(spark, table, row("'a'", "1", window="5L, 6L, ")).collect()
    public = bytes(found["public_key"])
    assert bytes(found["key"]) == store_keys.windowed_key(b"a", 5)
    assert public[-8:] == (5).to_bytes(8, "big")
    assert key_of(public[:-8]) == "a"
    expected = store_keys.partition_of(public[:-8], table.partitions)
    assert found["public_partition"] == expected, "of the key without its window"


def test_a_bare_value_that_is_null_is_none(spark: SparkSession) -> None:
    """As in ksqlDB: it is not a row that is left out."""
    bare = replace(STREAM, columns=COLUMNS[:2], wrap_single_value=False, schema_ids=(None, 6))
    text = '{"type": "int"}'  # another program's
    session = spark.newSession()
    plan = replace(PLAN, schemas=((5, '"string"'), (6, text)))
    session_functions.register_avro(session, avro_rows.writers_of(bare, plan))
    found = records_of(
        session.sql("SELECT 'a', 1, 9L, true UNION ALL SELECT 'b', CAST(NULL AS INT), 9L, true"),
        bare,
        schemas=plan.schemas,
    ).collect()
    assert [each["value"] and bytes(each["value"]) for each in found] == [
        b"\0\0\0\0\6\2",
        None,
    ]
    assert [each["unwritable"] for each in found] == [False, False]


# ----------------------------------------------------------- where they go, what is left out

HEADERS: Final = "array(struct('sp-rowtime' AS key, rowtime AS value)) AS headers"
LIMITS: Final = WriteLimits(bytes_max=1000, samples_max=2)


def sent(records: DataFrame, *, is_table: bool) -> tuple[list[Any], Any]:
    """What Kafka gets: (topic, key, value); and what is told of the others."""
    if "unwritable" not in records.columns:
        return [(r["topic"], r["key"], r["value"]) for r in records.collect()], None
    left = writable(records, LIMITS, is_table=is_table)
    execution = cast(Any, left)._jdf.queryExecution()
    execution.toRdd().count()
    told = execution.observedMetrics().get("rows not in their schema").get().json()
    return [(r["topic"], r["key"], r["value"]) for r in left.collect()], parsed(told, None)


def addressed_of(records: DataFrame, table: Source, published: str | None) -> DataFrame:
    topic = f"'{table.topic}'"
    return addressed(records, table, headers=HEADERS, topic=topic, published_topic=published)


def test_a_stream_leaves_out_what_its_schema_has_not(spark: SparkSession) -> None:
    stream = replace(STREAM, schema_ids=(None, 6))
    records = result_of(spark, stream, row("'a'", "1"), row("'b'", "CAST(NULL AS INT)"))
    left, told = sent(addressed_of(records, stream, None), is_table=False)
    assert [(topic, key_of(key), value_of(stream, value)) for topic, key, value in left] == [
        ("s", "a", [1, AT_MS])
    ]
    assert told.count == 1
    (sample,) = told.samples
    assert (sample["reason"], sample["topic"]) == ("ROW_NOT_IN_SCHEMA", "s")


def test_rows_are_judged_by_the_schema_that_is_written(spark: SparkSession) -> None:
    """A stream that is declared again names no schema; INSERT INTO keeps that of its statement."""
    before = replace(STREAM, schema_ids=(None, 6))
    plan = plan_of(before)
    session = spark.newSession()
    session_functions.register_avro(session, avro_rows.writers_of(STREAM, plan))
    good, bad = row("'a'", "1"), row("'b'", "CAST(NULL AS INT)")
    rows = session.sql(f"SELECT {good} UNION ALL SELECT {bad}")
    records = records_of(rows, STREAM, schemas=plan.schemas)
    left, told = sent(addressed_of(records, STREAM, None), is_table=False)
    assert [(key_of(key), value_of(before, value)) for _, key, value in left] == [("a", [1, AT_MS])]
    assert (told.count, told.samples[0]["reason"]) == (1, "ROW_NOT_IN_SCHEMA")


def test_a_table_has_the_row_and_its_copy_a_tombstone(spark: SparkSession) -> None:
    """An older row of the key must not pass for the current one."""
    table = replace(TABLE, schema_ids=(None, 6))
    records = result_of(spark, table, row("'a'", "1"), row("'b'", "CAST(NULL AS INT)"))
    left, told = sent(addressed_of(records, table, "T"), is_table=True)
    own = {bytes(key): json.loads(value) for topic, key, value in left if topic == table.topic}
    public = {key_of(key): value_of(table, value) for topic, key, value in left if topic == "T"}
    assert own == {b"a": {"N": 1, "AT": AT_MS}, b"b": {"N": None, "AT": AT_MS}}
    assert public == {"a": [1, AT_MS], "b": None}
    assert (told.count, told.samples[0]["topic"]) == (1, "T")


def test_the_next_generation_is_not_copied_yet(spark: SparkSession) -> None:
    table = replace(TABLE, generation=2, schema_ids=(None, 6))
    records = result_of(spark, table, row("'b'", "CAST(NULL AS INT)"))
    ((topic, key, value),), told = sent(addressed_of(records, table, None), is_table=True)
    assert (topic, bytes(key), json.loads(value)["N"]) == (table.topic, b"b", None)
    assert told is None


@pytest.mark.parametrize("window", [None, WINDOW])
def test_what_is_there_is_copied_as_batches_write_it(
    spark: SparkSession, window: Window | None
) -> None:
    """When reads have moved to another generation: out of the table's own topic."""
    table = replace(TABLE, window=window)
    bounds = "" if window is None else "5L, 6L, "
    rows = [row("'a'", "1", window=bounds), row("'b'", "2", window=bounds, live="false")]
    records = result_of(spark, table, *rows)
    stored = records.selectExpr("key", "value", HEADERS, "partition")
    query: Any = SimpleNamespace(plan=plan_of(table))
    wanted: Any = SimpleNamespace(table=table, query=query)
    session = records.sparkSession
    found = _in_public_form(session, stored, cast(WantedQuery, wanted), bytes_max=2**20)
    expected = records.selectExpr(
        "public_key AS key", "public_value AS value", HEADERS, "public_partition AS partition"
    )
    assert sorted(map(str, found.collect())) == sorted(map(str, expected.collect()))


def test_a_public_topic_gets_what_it_lacks(spark: SparkSession) -> None:
    """Rows of other programs too become tombstones, in the partition where they are."""
    headers = "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers"

    def newest(rows: str) -> DataFrame:
        return spark.sql(f"SELECT *, {headers} FROM VALUES {rows} AS t(key, value, partition)")

    ours = newest("('same', '1', 0), ('newer', '2', 1), ('new', '3', 2), ('dead', NULL, 3)")
    there = newest("('same', '1', 0), ('newer', '1', 1), ('foreign', '9', 4), ('gone', NULL, 5)")
    found = {r["key"]: (r["value"], r["partition"]) for r in lacking(ours, there).collect()}
    assert found == {"newer": ("2", 1), "new": ("3", 2), "foreign": (None, 4)}


def test_a_table_that_was_replaced_is_copied_as_before(spark: SparkSession) -> None:
    table = sample_table(columns=COLUMNS[:2], topic="CTAS_T_2-changelog", public_topic="T")
    records = records_of(spark.sql("SELECT 'a', 1, 9L, true"), table)
    both = addressed_of(records, table, "T")
    assert [(r["topic"], r["partition"]) for r in both.orderBy("topic").collect()] == [
        (table.topic, 0),
        ("T", None),
    ]
    assert {bytes(r["key"]) for r in both.select(f.col("key").cast("binary")).collect()} == {b"a"}


def test_the_functions_are_there_in_batches_of_a_streaming_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark gives each streaming query, and so each batch, a copy of the session."""
    events = tmp_path / "events"
    events.mkdir()
    (events / "one.json").write_text('{"K":"a","N":1}\n')
    session = spark.newSession()
    session_functions.register_avro(session, avro_rows.writers_of(STREAM, plan_of(STREAM)))
    read = session.readStream.schema("K STRING, N INT").json(str(events))
    rows = read.selectExpr("K", "N", f"timestamp_millis({AT_MS}) AS AT", "9L AS R", "true AS LIVE")
    found: list[Any] = []

    def of_the_plan(batch: DataFrame, _: int) -> None:
        found.extend(batch.collect())

    def of_each_batch(batch: DataFrame, _: int) -> None:
        batch.createOrReplaceTempView("__BATCH")
        again = batch.sparkSession.sql("SELECT * FROM __BATCH")
        found.extend(records_of(again, STREAM).collect())

    for name, plan, take in (
        ("plan", records_of(rows, STREAM), of_the_plan),
        ("batch", rows, of_each_batch),
    ):
        writer = plan.writeStream.foreachBatch(take).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / name)).start().awaitTermination()
    assert [value_of(STREAM, each["value"]) for each in found] == [[1, AT_MS]] * 2
