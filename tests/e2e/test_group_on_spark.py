"""Does one aggregation for several tables give each of them the rows that it would have alone?

The statements run over batch DataFrames, once alone and once as a group, down to the records that
go to Kafka; and as streams of files, with events so late that Spark drops them.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from tests.e2e.test_to_spark_on_spark import ROWS, SCHEMA, STREAM

from standpipe.model import Source
from standpipe.pipeline.io.group import group_rows
from standpipe.pipeline.io.sink import group_records_of, records_of
from standpipe.pipeline.run.start import session_functions
from standpipe.sql.analyzer import Context, analyze
from standpipe.sql.plans import CreateSourcePlan, CreateTableAsPlan
from standpipe.sql.spark.create_as import aggregation_of
from standpipe.sql.spark.group_sql import can_be_grouped, fits, group_plan
from standpipe.sql.spark.to_spark import Aggregation
from standpipe.sql.syntax.ast_statements import CreateAs
from standpipe.sql.syntax.parser import parse

pytestmark = pytest.mark.e2e

TUMBLING = "WINDOW TUMBLING (SIZE {size} SECONDS, GRACE PERIOD {grace} SECONDS)"
HOPPING = "WINDOW HOPPING (SIZE 2 SECONDS, ADVANCE BY 1 SECOND)"
TABLES = {
    "one key": "SELECT K, COUNT(*) AS N, SUM(I) AS S FROM S GROUP BY K",
    "a key of another type": "SELECT I, COUNT(*) AS N, MAX(T) AS M FROM S GROUP BY I",
    "a struct as key": "SELECT STRUCT(A := K, `it's` := L) AS KS, COUNT(*) AS N FROM S"
    " GROUP BY STRUCT(A := K, `it's` := L)",
    "two keys, JSON": "SELECT K, T, AVG(D) AS MEAN, SUM(I) AS S FROM S GROUP BY K, T",
    "an expression as key": "SELECT L * 2 AS TWICE, COUNT(T) AS N FROM S GROUP BY L * 2",
    "WHERE": "SELECT K, COUNT(*) AS N, LATEST_BY_OFFSET(T) AS LAST FROM S WHERE I > 0 GROUP BY K",
    "HAVING": "SELECT K, SUM(L) AS S FROM S GROUP BY K HAVING COUNT(*) > 1",
    "a window": f"SELECT K, COUNT(*) AS N FROM S {TUMBLING.format(size=1, grace=9)} GROUP BY K",
    "another window": "SELECT K, B, MIN(C) AS LEAST, WINDOWSTART AS WS, WINDOWEND - 1 AS LAST_MS"
    f" FROM S {TUMBLING.format(size=2, grace=0)} GROUP BY K, B",
    "keys and values mixed": "SELECT K, CONCAT(K, '!', CAST(COUNT(*) AS STRING)) AS SAID FROM S"
    " GROUP BY K",
}


class Made:
    """A table, its aggregation, and its plan alone."""

    def __init__(self, select: str, stream: str = STREAM, number: int = 1) -> None:
        (declared,) = parse(stream)
        plan = analyze(declared, {}, Context())
        assert isinstance(plan, CreateSourcePlan)
        sources: dict[str, Source] = {plan.source.name: plan.source}
        key_format = "WITH (KEY_FORMAT='JSON') "
        (statement,) = parse(f"CREATE TABLE T{number} {key_format}AS {select} EMIT CHANGES;")
        made = analyze(statement, sources, Context(next_index=number))
        assert isinstance(made, CreateTableAsPlan)
        assert isinstance(statement, CreateAs)
        aggregation = aggregation_of(statement, sources, Context(), str(made.source.table_id))
        assert aggregation is not None
        self.table, self.plan, self.aggregation = made.source, made.query.plan, aggregation


def test_rows_are_those_of_each_table_alone(spark: SparkSession) -> None:
    made = [Made(select, number=number) for number, select in enumerate(TABLES.values())]
    whole = [each for each in made if each.aggregation.where is None]
    for members in (made[:1], whole):
        _both_agree(spark, members)
    _both_agree(spark, [made[list(TABLES).index("WHERE")], made[0]])


def _both_agree(spark: SparkSession, made: list[Made]) -> None:
    events = (
        spark.createDataFrame(ROWS, SCHEMA)
        .withColumn("__TS", F.timestamp_millis("ROWTIME"))
        .withColumn("ROWPARTITION", F.lit(0))
        .withColumn("ROWOFFSET", F.col("__ORDER"))
        .coalesce(1)
    )
    for each in made:
        events.createOrReplaceTempView(each.plan.inputs[0].view)
    events.createOrReplaceTempView("OF_GROUP")
    plan = group_plan([each.aggregation for each in made], "OF_GROUP")
    grouped = group_records_of(
        group_rows(spark, plan, range(len(made))),
        {number: each.table for number, each in enumerate(made)},
    )
    of_table: dict[int, list[tuple[object, ...]]] = {}
    for row in grouped.collect():
        of_table.setdefault(row["__TABLE"], []).append(_record(row))
    for number, each in enumerate(made):
        alone = [_record(row) for row in records_of(spark.sql(each.plan.sql), each.table).collect()]
        assert sorted(of_table.get(number, []), key=repr) == sorted(alone, key=repr), each.plan.sql
        assert alone


def _record(row: Row) -> tuple[object, ...]:
    fields = row.asDict()
    value = fields["value"]
    value = value.encode() if isinstance(value, str) else value and bytes(value)
    return bytes(fields["key"]), value, bytes(fields["rowtime"]), fields.get("partition")


# ---------------------------------------------------------------------------------------- lateness

#: each file is a batch, five times; two steps more than the longest window with its grace
FILES, EVENTS_PER_FILE, STEP_MS = 7, 40, 12_000
READINGS = """
CREATE STREAM READINGS (ID STRING KEY, PLACE STRING, V BIGINT)
    WITH (KAFKA_TOPIC='readings', VALUE_FORMAT='JSON', PARTITIONS=1);
"""
SELECT = "SELECT {key}, COUNT(*) AS N, SUM(V) AS S FROM READINGS {window} GROUP BY {key}"
LATE_TABLES = [
    SELECT.format(key="ID", window=""),
    SELECT.format(key="PLACE", window=TUMBLING.format(size=10, grace=0)),
    SELECT.format(key="ID", window=TUMBLING.format(size=20, grace=5)),
    SELECT.format(key="ID", window=TUMBLING.format(size=30, grace=20)),
]


def test_late_events_are_dropped_as_by_each_table_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    late_ids = _write_events(tmp_path / "events")
    made = [Made(select, READINGS, number) for number, select in enumerate(LATE_TABLES)]
    alone: list[dict[object, object]] = []
    for number, each in enumerate(made):
        session = spark.newSession()
        grace_ms = each.plan.inputs[0].watermark_delay_ms
        _open_events(session, tmp_path / "events", each.plan.inputs[0].view, grace_ms)
        records = records_of(session.sql(each.plan.sql), each.table)
        rows, _ = _streamed(records, tmp_path / f"alone-{number}")
        alone.append(rows[0])
    session = spark.newSession()
    plan = group_plan([each.aggregation for each in made], "OF_GROUP")
    _open_events(session, tmp_path / "events", "OF_GROUP", plan.input.watermark_delay_ms)
    records = group_records_of(
        group_rows(session, plan, range(len(made))),
        {number: each.table for number, each in enumerate(made)},
    )
    rows, states = _streamed(records, tmp_path / "group")
    assert [rows[number] for number in range(len(made))] == alone
    assert late_ids
    assert sum(state["numRowsDroppedByWatermark"] for state in states) > 0, "some were too late"
    keys = sum(len(each) for each in alone)
    assert states[-1]["numRowsTotal"] < keys / 2, "the state of closed windows is dropped"


def _write_events(folder: Path) -> list[int]:
    folder.mkdir()
    seeded, late = random.Random(7), []
    for number in range(FILES):
        lines: list[str] = []
        for _ in range(EVENTS_PER_FILE):
            behind_ms = seeded.randint(-45_000, 15_000)
            event = {
                "ID": seeded.choice("abcd"),
                "PLACE": seeded.choice("xyz"),
                "V": seeded.randint(-5, 5),
                "ROWTIME": 100_000 + number * STEP_MS + behind_ms,
                "ROWPARTITION": 0,
                "ROWOFFSET": number * EVENTS_PER_FILE + len(lines),
            }
            late += [number] if behind_ms < -30_000 else []
            lines.append(json.dumps(event))
        path = folder / f"{number:03}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (1000 + number, 1000 + number))
    return late


def _open_events(
    session: SparkSession, folder: Path, view: str, watermark_delay_ms: int | None
) -> None:
    session.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    session_functions.register(session)
    schema = "ID STRING, PLACE STRING, V BIGINT, ROWTIME BIGINT, ROWPARTITION INT, ROWOFFSET BIGINT"
    events = (
        session.readStream.schema(schema)
        .option("maxFilesPerTrigger", 1)
        .json(str(folder))
        .withColumn("__TS", F.timestamp_millis("ROWTIME"))
    )
    if watermark_delay_ms is not None:
        events = events.withWatermark("__TS", f"{watermark_delay_ms} milliseconds")
    events.createOrReplaceTempView(view)


def _streamed(
    records: DataFrame, checkpoint: Path
) -> tuple[dict[int, dict[object, object]], list[dict[str, int]]]:
    """{table: {key: newest record}}, and the state of each batch."""
    found: dict[int, dict[object, object]] = {}

    def keep(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            number = row["__TABLE"] if "__TABLE" in row.asDict() else 0
            record = _record(row)
            found.setdefault(number, {})[record[0]] = record

    query = (
        records.writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .foreachBatch(keep)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found, [dict(each["stateOperators"][0]) for each in query.recentProgress]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("SELECT K, COUNT(*) AS N FROM S GROUP BY K", True),
        (f"SELECT K, COUNT(*) AS N FROM S {TUMBLING.format(size=1, grace=1)} GROUP BY K", True),
        ("SELECT K, COLLECT_LIST(I) AS ALL_I FROM S GROUP BY K", False),
        ("SELECT K, TOPK(I, 2) AS TOP FROM S GROUP BY K", False),
        (f"SELECT K, COUNT(*) AS N FROM S {HOPPING} GROUP BY K", False),
        ("SELECT K, COUNT(*) AS N FROM S WINDOW SESSION (2 SECONDS) GROUP BY K", False),
    ],
)  # fmt: skip
def test_what_can_be_grouped(select: str, *, expected: bool) -> None:
    assert can_be_grouped(Made(select).aggregation) is expected


def test_tables_with_windows_must_have_the_same_where() -> None:
    window = TUMBLING.format(size=1, grace=1)

    def made(where: str, window: str = window) -> Aggregation:
        return Made(f"SELECT K, COUNT(*) AS N FROM S {window} {where} GROUP BY K").aggregation

    assert fits(made("WHERE I > 1"), made("WHERE I > 1"))
    assert not fits(made("WHERE I > 1"), made("WHERE I > 2"))
    assert not fits(made("WHERE I > 1"), made(""))
    assert fits(made("WHERE I > 1"), made("WHERE I > 2", window=""))
