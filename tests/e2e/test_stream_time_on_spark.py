"""Does Spark judge what is late record by record, as ksqlDB does, however large the batch is?

The plans of statements run over one batch of records of several Kafka partitions, and are compared
with a twin that reads the records of a partition one after another. Source of the rule: Kafka
Streams' windowed aggregation counts a record in the windows that end after stream time less grace.
Sessions: tests/unit/data/operators/test_sessions.py. Between batches: Spark's watermark.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.e2e.test_group_on_spark import Made

from standpipe.pipeline.io.group import group_rows
from standpipe.sql.spark.group_sql import group_plan

pytestmark = pytest.mark.e2e

READINGS = """
CREATE STREAM READINGS (ID STRING KEY, V BIGINT)
    WITH (KAFKA_TOPIC='readings', VALUE_FORMAT='JSON', PARTITIONS=3);
"""
SELECT = "SELECT ID, COUNT(*) AS N FROM READINGS WINDOW {} {} GROUP BY ID"
TUMBLING = "TUMBLING (SIZE 10 MILLISECONDS, GRACE PERIOD {} MILLISECONDS)"
HOPPING = "HOPPING (SIZE 10 MILLISECONDS, ADVANCE BY 4 MILLISECONDS, GRACE PERIOD {} MILLISECONDS)"

IN_A_JVM = """
from standpipe.config import registry
from standpipe.local.cluster import jvm
from standpipe.pipeline.run import session
from standpipe.pipeline.run.start import session_functions

java = jvm.find_java()
config = registry.load({})
spark = session.open_session(config, master="local[1]", jars=jvm.jars("spark"), java_home=java.home)
session_functions.register(spark)
print(spark.sql("SELECT standpipe_stream_time(0, 1L, 5L)").collect()[0][0])
session.kill_jvm()
"""

#: partition, ID, V, ROWTIME
Event = tuple[int, str | None, int, int]
Counts = dict[tuple[str, int], int]


def events_of(times: Iterable[int]) -> list[Event]:
    return [(0, "a", 1, at_ms) for at_ms in times]


def view(spark: SparkSession, name: str, events: list[Event], tasks: int = 1) -> DataFrame:
    """The events as `pipeline.io.source` has them: the records of a partition in one task."""
    placed: list[tuple[Any, ...]] = []
    seen: Counter[int] = Counter()
    for partition, *event in events:
        placed.append((*event, partition, seen[partition]))
        seen[partition] += 1
    schema = "ID STRING, V BIGINT, ROWTIME BIGINT, ROWPARTITION INT, ROWOFFSET BIGINT"
    rows = spark.createDataFrame(spark.sparkContext.parallelize(placed, 1), schema)
    if tasks > 1:
        rows = rows.repartitionByRange(tasks, "ROWPARTITION").sortWithinPartitions(
            "ROWPARTITION", "ROWOFFSET"
        )
    rows = rows.withColumn("__TS", F.timestamp_millis("ROWTIME")).withColumn(
        "__ORDER", F.col("ROWOFFSET") * 65536 + F.col("ROWPARTITION")
    )
    rows.createOrReplaceTempView(name)
    return rows


def counted(
    spark: SparkSession, window: str, events: list[Event], where: str = "", tasks: int = 1
) -> Counts:
    plan = Made(SELECT.format(window, where), READINGS).plan
    view(spark, plan.inputs[0].view, events, tasks)
    return {(row["ID"], row["WINDOWSTART"]): row["N"] for row in spark.sql(plan.sql).collect()}


def one_by_one(events: list[Event], *, advance_ms: int, grace_ms: int, v_min: int = -99) -> Counts:
    """The twin: ksqlDB's rule, in the order of each partition."""
    counts: Counter[tuple[str, int]] = Counter()
    newest: dict[int, int] = {}
    for partition, key, v, at_ms in events:
        if key is None or v < v_min:
            continue
        newest[partition] = max(newest.get(partition, -1), at_ms)
        start = at_ms - at_ms % advance_ms
        while start >= 0 and start + 10 > at_ms:
            if start + 10 + grace_ms > newest[partition]:
                counts[key, start] += 1
            start -= advance_ms
    return dict(counts)


@pytest.mark.parametrize(
    ("times", "grace_ms", "expected", "why"),
    [
        ((0, 15, 5), 6, {0: 2, 10: 1}, "stream time 15 is before 10 + 6"),
        ((0, 16, 5), 6, {0: 1, 10: 1}, "at 10 + 6 the window is closed"),
        ((0, 16, 5, 17), 6, {0: 1, 10: 2}, "what came before stays counted"),
        ((5, 0, 9), 0, {0: 3}, "late is what comes behind the window, not behind an event"),
        ((5, 10, 9), 0, {0: 1, 10: 1}, "without grace the end itself closes it"),
    ],
)
def test_a_window_is_closed_for_what_comes_after_in_a_batch(
    spark: SparkSession, times: tuple[int, ...], grace_ms: int, expected: dict[int, int], why: str
) -> None:
    counts = counted(spark, TUMBLING.format(grace_ms), events_of(times))
    assert counts == {("a", start): n for start, n in expected.items()}, why


def test_each_window_of_an_event_is_judged_alone(spark: SparkSession) -> None:
    """Windows from 0, 4 and 8 hold the 9; at 12, without grace, that from 0 is closed."""
    counts = counted(spark, HOPPING.format(0), events_of([12, 9]))
    assert counts == {("a", 4): 2, ("a", 8): 2, ("a", 12): 1}


def test_what_where_keeps_out_does_not_move_stream_time(spark: SparkSession) -> None:
    events: list[Event] = [(0, "a", 1, 5), (0, "a", 9, 900_000), (0, "a", 1, 6)]
    assert counted(spark, TUMBLING.format(0), events, "WHERE V < 9") == {("a", 0): 2}


def test_nor_does_an_event_without_a_key(spark: SparkSession) -> None:
    events: list[Event] = [(0, "a", 1, 5), (0, None, 1, 900_000), (0, "a", 1, 6)]
    assert counted(spark, TUMBLING.format(0), events) == {("a", 0): 2}


def test_partitions_do_not_close_windows_for_each_other(spark: SparkSession) -> None:
    events: list[Event] = [(0, "a", 1, 900_000), (1, "b", 1, 5), (1, "b", 1, 6)]
    counts = counted(spark, TUMBLING.format(0), events)
    assert counts == {("a", 900_000): 1, ("b", 0): 2}


def random_events(seed: int) -> list[Event]:
    seeded, events = random.Random(seed), list[Event]()
    for number in range(600):
        key = seeded.choice(["a", "b", "c", None])
        at_ms = max(0, number // 3 + seeded.randint(-30, 5))
        events.append((seeded.randrange(3), key, seeded.randint(0, 9), at_ms))
    return events


@pytest.mark.parametrize(("tasks", "grace_ms"), [(1, 0), (3, 3), (2, 25)])
def test_agrees_with_reading_one_by_one(spark: SparkSession, tasks: int, grace_ms: int) -> None:
    events = random_events(seed=tasks * 100 + grace_ms)
    plain = one_by_one(events, advance_ms=10, grace_ms=grace_ms)
    assert counted(spark, TUMBLING.format(grace_ms), events, tasks=tasks) == plain
    some = one_by_one(events, advance_ms=10, grace_ms=grace_ms, v_min=4)
    assert counted(spark, TUMBLING.format(grace_ms), events, "WHERE V >= 4", tasks) == some
    hopping = one_by_one(events, advance_ms=4, grace_ms=grace_ms)
    assert counted(spark, HOPPING.format(grace_ms), events, tasks=tasks) == hopping
    assert sum(plain.values()) < len([each for each in events if each[1]]), "some were late"


def test_in_a_group_as_alone(spark: SparkSession) -> None:
    """No event lacks a key: in a group, such an event moves the stream time of all."""
    events: list[Event] = [(p, key or "d", v, at) for p, key, v, at in random_events(seed=5)]
    view(spark, "OF_GROUP", events)
    made = [
        Made(SELECT.format(TUMBLING.format(grace_ms), "WHERE V >= 4"), READINGS, number)
        for number, grace_ms in enumerate((0, 25))
    ]
    made.append(Made("SELECT ID, COUNT(*) AS N FROM READINGS GROUP BY ID", READINGS, 2))
    plan = group_plan([each.aggregation for each in made], "OF_GROUP")
    found: list[Counts] = [{}, {}, {}]
    for row in group_rows(spark, plan, range(3)).collect():
        own = row[f"__ROW_{row['__TABLE']}"].asDict()
        found[row["__TABLE"]][own["ID"], own.get("WINDOWSTART", 0)] = own["N"]
    for number, grace_ms in enumerate((0, 25)):
        assert found[number] == one_by_one(events, advance_ms=10, grace_ms=grace_ms, v_min=4)
    assert sum(found[2].values()) == len(events), "a table without windows counts every event"


def test_the_function_is_there_in_any_jvm() -> None:
    """Py4J chose another overload of `functions.udf` in most JVMs, not in that of the tests."""
    ran = subprocess.run(
        [sys.executable, "-c", IN_A_JVM], capture_output=True, text=True, check=False
    )
    assert ran.stdout == "5\n", ran.stderr[-2000:]
