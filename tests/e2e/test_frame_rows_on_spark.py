"""A user's DataFrame as records of its table, by Spark, whatever the settings of its session."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.unit.control.ddl.test_propose import asked

from standpipe.control.ddl.propose import judge
from standpipe.control.metadata.catalog import EMPTY
from standpipe.control.metadata.commands import CreateTableAs
from standpipe.data.encoding.kafka_keys import encode_key
from standpipe.model import Column, Source
from standpipe.spark.errors import ServeRefused
from standpipe.spark.rows import RowRules, one_of_each_key, records
from standpipe.spark.schema import served_table, window_of
from standpipe.spark.session_checks import check_batch, check_stream

pytestmark = pytest.mark.e2e

ROWS = """
SELECT 'ada' AS k, CAST(-2 AS BIGINT) AS n, CAST(7 AS INT) AS i, 1.5F AS f, 0.1D AS d,
    CAST(12.30 AS DECIMAL(6, 2)) AS money, X'00FF' AS bytes, true AS flag, DATE'2026-01-02' AS day,
    TIMESTAMP'2026-01-02 03:04:05.678' AS at, array(CAST(1 AS TINYINT)) AS small,
    map('a', CAST(1 AS SMALLINT)) AS counts, named_struct('x y', 1, 'z', DATE'1970-01-03') AS deep
"""


@pytest.fixture(params=["true", "false"], ids=["ansi", "not ansi"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    """As a program's own: ANSI mode is on by default, and names are in any case."""
    own = spark.newSession()
    own.conf.set("spark.sql.ansi.enabled", request.param)
    own.conf.set("spark.sql.caseSensitive", "false")
    own.conf.set("spark.sql.session.timeZone", "UTC")
    return own


def table_of(frame: DataFrame, *key: str, left_out: Sequence[str] = ()) -> Source:
    asked_for = served_table(frame.schema, table="T", key=key, left_out=left_out, partitions=1)
    command = judge(asked(asked_for.statement), EMPTY, {})
    assert isinstance(command, CreateTableAs)
    return command.source


def test_every_type_as_it_is_stored(session: SparkSession) -> None:
    frame = session.sql(ROWS)
    (row,) = records(frame, table_of(frame, "k"), RowRules(timestamp="at")).collect()
    assert bytes(row["key"]) == b"ada"
    assert int.from_bytes(row["rowtime"], "big", signed=True) == 1767323045678
    assert json.loads(row["value"]) == {
        "N": -2,
        "I": 7,
        "F": 1.5,
        "D": 0.1,
        "MONEY": 12.30,
        "BYTES": "AP8=",
        "FLAG": True,
        "DAY": 20455,
        "AT": 1767323045678,
        "SMALL": [1],
        "COUNTS": {"a": 1},
        "DEEP": {"X Y": 1, "Z": 2},
    }


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (["k"], ["ada"]),
        (["n"], [-2]),
        (["i"], [7]),
        (["d"], [0.1]),
        (["bytes"], [b"\x00\xff"]),
        (["flag"], [True]),
        (["day"], [20455]),
        (["k", "n"], ["ada", -2]),
    ],
    ids=str,
)
def test_keys_are_those_that_a_lookup_asks_for(
    session: SparkSession, key: list[str], values: list[Any]
) -> None:
    frame = session.sql(ROWS)
    table = table_of(frame, *key)
    (row,) = records(frame, table, RowRules()).collect()
    assert bytes(row["key"]) == encode_key(values, table.key_columns, table.key_format)


INVALID = """
SELECT CAST(X'C328' AS STRING) AS k, array('a', NULL, CAST(X'FF' AS STRING)) AS many, 'ada' AS good,
    named_struct('n', 1, 'x y', array(named_struct('z', CAST(X'80' AS STRING)))) AS deep,
    X'FF' AS bytes, 1 AS v
"""


@pytest.mark.parametrize("key", [["k"], ["good", "k"], ["many"], ["deep"]], ids=str)
def test_a_key_that_is_not_utf8_is_an_error(session: SparkSession, key: list[str]) -> None:
    """No replica could show its row: `load` would report that it is committed."""
    frame = session.sql(INVALID)
    words = f"key column {key[-1]} is not UTF-8, so nobody could look the row up in T: leave it out"
    with pytest.raises(Exception, match=words):
        records(frame, table_of(frame, *key), RowRules()).collect()


@pytest.mark.parametrize(
    ("key", "change", "written", "why"),
    [
        ("good", "*", [b"ada"], "a value is written with replacement characters"),
        ("bytes", "*", [b"\xff"], "bytes are no text"),
        ("k", "* EXCEPT (k), make_valid_utf8(k) AS k", ["\ufffd(".encode()], "made valid"),
        ("k", "* EXCEPT (k), CAST(NULL AS STRING) AS k", [], "a row without a key"),
        ("many", "* EXCEPT (many), array('a', NULL) AS many", [b'["a",null]'], "a null within"),
    ],
)
def test_keys_that_are_utf8(
    session: SparkSession, key: str, change: str, written: list[bytes], why: str
) -> None:
    frame = session.sql(f"SELECT {change} FROM ({INVALID})")
    rows = records(frame, table_of(frame, key), RowRules()).collect()
    assert [bytes(row["key"]) for row in rows] == written, why


def test_rows_that_a_program_leaves_out_are_not_checked(session: SparkSession) -> None:
    frame = session.sql(INVALID)
    counts = frame.groupBy("k").agg(f.count("*").alias("n"))
    for kept in (frame.filter(f.is_valid_utf8("k")), counts.filter("n > 1")):
        assert records(kept, table_of(kept, "k"), RowRules()).collect() == []


def test_deleted_rows_and_rows_without_a_key(session: SparkSession) -> None:
    frame = session.createDataFrame(
        [("a", 1, True), ("b", 2, False), ("c", 3, None), (None, 4, False)],
        "k STRING, v INT, gone BOOLEAN",
    )
    table = table_of(frame, "k", left_out=["gone"])
    rows = records(frame, table, RowRules(deleted="GONE")).collect()
    found = {bytes(row["key"]): row["value"] for row in rows}
    assert found == {b"a": None, b"b": '{"V":2}', b"c": '{"V":3}'}


def test_rows_without_a_value(session: SparkSession) -> None:
    frame = session.createDataFrame(
        [
            ("a", None, None, None),
            ("b", None, "", False),
            ("c", 0, None, None),
            ("d", 1, "x", True),
        ],
        "k STRING, v INT, `w x` STRING, gone BOOLEAN",
    )
    table = table_of(frame, "k", left_out=["gone"])
    for rules, deleted in (
        (RowRules(), set[bytes]()),
        (RowRules(deleted_if_null=True), {b"a"}),
        (RowRules(deleted_if_null=True, deleted="gone"), {b"a", b"d"}),
    ):
        rows = records(frame, table, rules).collect()
        assert {bytes(row["key"]) for row in rows if row["value"] is None} == deleted


def test_columns_that_another_program_added(session: SparkSession) -> None:
    """They are null, and say nothing about whether a row has a value."""
    frame = session.createDataFrame([("a", None), ("b", 1)], "k STRING, v INT")
    table = table_of(frame, "k")
    more = (Column(name="W", type="DECIMAL(4, 2)"), Column(name="Z", type="ARRAY<INTEGER>"))
    grown = structs.replace(table, columns=(*table.columns, *more), columns_first=1)
    for rules, of_a in (
        (RowRules(), '{"V":null,"W":null,"Z":null}'),
        (RowRules(deleted_if_null=True), None),
    ):
        rows = records(frame, grown, rules).collect()
        found = {bytes(row["key"]): row["value"] for row in rows}
        assert found == {b"a": of_a, b"b": '{"V":1,"W":null,"Z":null}'}


def test_rows_of_windows(session: SparkSession) -> None:
    events = session.sql(
        "SELECT * FROM VALUES ('ada', timestamp_millis(59999), 1), ('ada', timestamp_millis(60000),"
        " 2), ('bob', NULL, 3), (NULL, timestamp_millis(1), 4) AS t(k, at, n)"
    )
    minutes = events.groupBy("k", f.window("at", "1 minute")).agg(f.sum("n").alias("n"))
    window = window_of(minutes.schema, "1 minute", "1 hour")
    asked_for = served_table(
        minutes.schema, table="T", key=["k"], left_out=[], partitions=1, window=window
    )
    command = judge(asked(asked_for.statement), EMPTY, {})
    assert isinstance(command, CreateTableAs)
    rows = records(minutes, command.source, RowRules()).collect()
    found = {bytes(row["key"]): row["value"] for row in rows}
    starts = (struct.pack(">q", start_ms) for start_ms in (0, 60_000))
    first, second = (b"ada" + each for each in starts)
    assert found == {first: '{"N":1}', second: '{"N":2}'}
    hours = events.groupBy("k", f.window("at", "1 hour")).agg(f.sum("n").alias("n"))
    with pytest.raises(Exception, match="a window has 60000 ms, as `window_size` says, but not"):
        records(hours, command.source, RowRules()).collect()


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (RowRules(deleted="v"), "column v must be there, as boolean"),
        (RowRules(deleted="nobody"), "column nobody must be there"),
        (RowRules(timestamp="v"), "column v must be there, as timestamp"),
    ],
)
def test_columns_of_another_type(spark: SparkSession, rules: RowRules, words: str) -> None:
    with pytest.raises(ServeRefused, match=words):
        rules.check(spark.createDataFrame([("a", 1)], "k STRING, v INT").schema)


@pytest.mark.parametrize(
    ("rows", "timestamp", "kept", "why"),
    [
        ([("a", 1, 5), ("a", 2, 9), ("b", 3, 1)], "at", {"a": 2, "b": 3}, "the later row"),
        ([("a", 2, 9), ("a", 1, 5)], "at", {"a": 2}, "in any order"),
        ([("a", 1, -5), ("a", 2, -9)], "at", {"a": 1}, "also before the epoch"),
        ([("a", 2, 9), ("a", 2, 9)], "at", {"a": 2}, "twice the same row"),
        ([("a", 1, 5), ("a", 1, 9)], None, {"a": 1}, "the same values at another time"),
        ([("a", 1, 5), ("a", None, 9)], "at", {}, "deleted later"),
        ([("a", None, 5), ("a", 1, 9)], "at", {"a": 1}, "deleted earlier"),
    ],
)
def test_of_two_rows_of_a_key_the_later_one_is_loaded(
    session: SparkSession,
    rows: list[tuple[str, int | None, int]],
    timestamp: str | None,
    kept: dict[str, int],
    why: str,
) -> None:
    frame = loaded(session, rows)
    table = table_of(frame.drop("at", "gone"), "k")
    rules = RowRules(timestamp=timestamp, deleted="gone")
    found = one_of_each_key(records(frame, table, rules)).collect()
    values = {bytes(row["key"]).decode(): row["value"] for row in found}
    shown = {key: json.loads(value)["V"] for key, value in values.items() if value is not None}
    assert shown == kept, why


@pytest.mark.parametrize(
    ("rows", "timestamp", "why"),
    [
        ([("a", 1, 9), ("a", 2, 9)], "at", "at the same time"),
        ([("a", 1, 5), ("a", 2, 9)], None, "nobody says which is the later one"),
        ([("a", 1, 9), ("a", None, 9)], "at", "one of them deletes the row"),
    ],
)
def test_two_rows_of_a_key_of_which_neither_is_later_are_an_error(
    session: SparkSession,
    rows: list[tuple[str, int | None, int]],
    timestamp: str | None,
    why: str,
) -> None:
    frame = loaded(session, [*rows, ("b", 1, 1)])
    table = table_of(frame.drop("at", "gone"), "k")
    rules = RowRules(timestamp=timestamp, deleted="gone")
    words = "two rows of one key, and neither is newer; its bytes: 61. Give `timestamp`"
    with pytest.raises(Exception, match=words):
        one_of_each_key(records(frame, table, rules)).collect()


def loaded(session: SparkSession, rows: Sequence[tuple[str, int | None, int]]) -> DataFrame:
    """Rows of key, value and ms; without a value the row is deleted."""
    return session.createDataFrame(rows, "k STRING, v INT, ms BIGINT").selectExpr(
        "k", "v", "timestamp_millis(ms) AS at", "v IS NULL AS gone"
    )


def test_what_is_not_served_is_refused_by_name(spark: SparkSession) -> None:
    batch, stream = spark.range(1), spark.readStream.format("rate").load()
    with pytest.raises(ServeRefused, match="this DataFrame is not a stream"):
        check_stream(batch, "update")
    with pytest.raises(ServeRefused, match="there is no output mode 'upsert'"):
        check_stream(stream, "upsert")
    check_stream(stream, "append")
    check_stream(stream, "complete")
    with pytest.raises(ServeRefused, match="the result has all windows, so none can be dropped"):
        check_stream(stream, "complete", retention="1 day")
    with pytest.raises(ServeRefused, match="this DataFrame is a stream"):
        check_batch(stream)
    check_batch(batch)
