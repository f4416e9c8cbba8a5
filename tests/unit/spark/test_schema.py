"""From a DataFrame's schema to the columns of a table, and to the statement that declares it."""

from __future__ import annotations

import msgspec
import pytest
from pyspark.sql import types as t
from tests.unit.control.ddl.test_propose import asked

from standpipe.control.ddl.propose import judge
from standpipe.control.metadata import feature_levels
from standpipe.control.metadata.apply import apply
from standpipe.control.metadata.catalog import EMPTY, Catalog
from standpipe.control.metadata.commands import CreateSource, CreateTableAs
from standpipe.model import Column, LogIndex, Source, Window
from standpipe.spark.errors import ServeRefused
from standpipe.spark.schema import (
    ServedTable,
    capitals,
    served_table,
    sql_type,
    window_of,
)
from standpipe.spark_source.columns import spark_type
from standpipe.sql.types.types import parse_type

SCORES = t.StructType(
    [
        t.StructField("score", t.DoubleType()),
        t.StructField("user_id", t.StringType()),
        t.StructField("_deleted", t.BooleanType()),
    ]
)


def table_of(schema: t.StructType, *key: str, partitions: int | None = None) -> ServedTable:
    return served_table(schema, table="scores", key=key, left_out=[], partitions=partitions)


def declared(table: ServedTable) -> Source:
    """As the leader would put it into the catalog."""
    command = judge(asked(table.statement), EMPTY, {})
    assert isinstance(command, CreateTableAs)
    assert command.query.is_external
    return command.source


@pytest.mark.parametrize(
    ("of", "ours"),
    [
        (t.BooleanType(), "BOOLEAN"),
        (t.ByteType(), "INTEGER"),
        (t.ShortType(), "INTEGER"),
        (t.IntegerType(), "INTEGER"),
        (t.LongType(), "BIGINT"),
        (t.FloatType(), "DOUBLE"),
        (t.DoubleType(), "DOUBLE"),
        (t.DecimalType(12, 3), "DECIMAL(12, 3)"),
        (t.StringType(), "STRING"),
        (t.VarcharType(10), "STRING"),
        (t.BinaryType(), "BYTES"),
        (t.DateType(), "DATE"),
        (t.TimestampType(), "TIMESTAMP"),
        (t.ArrayType(t.FloatType()), "ARRAY<DOUBLE>"),
        (t.MapType(t.StringType(), t.LongType()), "MAP<STRING, BIGINT>"),
        (
            t.StructType([t.StructField("a", t.ShortType()), t.StructField("b c", t.DateType())]),
            "STRUCT<`A` INTEGER, `B C` DATE>",
        ),
    ],
)
def test_types(of: t.DataType, ours: str) -> None:
    found = sql_type(of, "c")
    assert str(found) == ours
    assert parse_type(ours) == found
    assert sql_type(spark_type(found), "c") == found, "what it is cast to holds the same values"


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (t.TimestampNTZType(), "column c is timestamp_ntz, which no type of a table can hold"),
        (t.DayTimeIntervalType(), "column c is interval day to second"),
        (t.NullType(), "column c is void"),
        (t.ArrayType(t.TimestampNTZType()), r"column c\[\] is timestamp_ntz"),
        (t.MapType(t.IntegerType(), t.StringType()), "cast the keys of the map to STRING"),
        (
            t.StructType([t.StructField("deep", t.VariantType())]),
            r"column c\.deep is variant",
        ),
        (
            t.StructType([t.StructField("a", t.LongType()), t.StructField("A", t.LongType())]),
            "a name of its own, in any case",
        ),
    ],
)
def test_a_type_that_no_column_can_have_is_refused_with_the_column(
    of: t.DataType, words: str
) -> None:
    with pytest.raises(ServeRefused, match=words):
        sql_type(of, "c")


BOUNDS = t.StructType(
    [t.StructField("start", t.TimestampType()), t.StructField("end", t.TimestampType())]
)
HOURLY = t.StructType([t.StructField("window", BOUNDS), *SCORES.fields[:2]])


@pytest.mark.parametrize(
    ("column", "instead"),
    [
        ("window", r"give `window_size`, or select its bounds as columns: window\.start"),
        ("session_window", r"next: select its bounds as columns: session_window\.start"),
    ],
)
def test_a_window_of_which_nothing_is_said_is_refused_by_name(column: str, instead: str) -> None:
    with pytest.raises(ServeRefused, match=rf"(?i)column {column} is a window(.|\n)*{instead}"):
        sql_type(BOUNDS, column)


@pytest.mark.parametrize(
    ("retention", "retention_ms"), [(None, 0), ("1 hour", 3_600_000), ("7 days", 604_800_000)]
)
def test_the_table_of_a_data_frame_with_windows(retention: str | None, retention_ms: int) -> None:
    window = window_of(HOURLY, "1 hour", retention)
    assert window == Window(
        kind="TUMBLING",
        size_ms=3_600_000,
        advance_ms=3_600_000,
        grace_ms=0,
        retention_ms=retention_ms,
    )
    table = served_table(
        HOURLY, table="scores", key=["user_id"], left_out=[], partitions=None, window=window
    )
    source = declared(table)
    assert [column.name for column in source.columns] == ["USER_ID", "SCORE"]
    assert source.window == window
    table.added_to(source)
    other = msgspec.structs.replace(source, window=None)
    with pytest.raises(ServeRefused, match="SCORES has no windows, not windows of 3600000 ms"):
        table.added_to(other)


@pytest.mark.parametrize(
    ("schema", "size", "retention", "words"),
    [
        (SCORES, "1 hour", None, "has no column `window`"),
        (SCORES, None, "1 hour", "`retention` is for windows"),
        (HOURLY, "1 hour", "59 minutes", "a retention of 59 minutes is less than the size"),
        (HOURLY, "hour", None, "'hour' is no duration: Expected string with format"),
        (HOURLY, "1 hour", "1 week", "'1 week' is no duration: Unknown time unit: 'WEEK'"),
    ],
)
def test_windows_that_cannot_be_served(
    schema: t.StructType, size: str | None, retention: str | None, words: str
) -> None:
    with pytest.raises(ServeRefused, match=words):
        window_of(schema, size, retention)


def test_windows_that_come_after_their_end_are_kept_for_longer() -> None:
    """Each row would have expired on arrival, and the table would always be empty."""
    with pytest.raises(ServeRefused, match="a window comes after its end, when so short"):
        window_of(HOURLY, "1 hour", "60 minutes", is_append=True)
    assert window_of(HOURLY, "1 hour", "61 minutes", is_append=True) is not None
    assert window_of(HOURLY, "1 hour", "60 minutes") is not None
    assert window_of(HOURLY, "1 hour", None, is_append=True) is not None


def test_without_windows_nothing_is_dropped() -> None:
    assert window_of(SCORES, None, None) is None


def test_the_table_of_a_data_frame() -> None:
    table = served_table(
        SCORES, table="scores", key=["USER_ID"], left_out=["_deleted"], partitions=2
    )
    assert table == ServedTable(
        name="SCORES",
        columns=(
            Column(name="USER_ID", type="STRING", is_key=True),
            Column(name="SCORE", type="DOUBLE"),
        ),
        partitions=2,
    )
    assert table.statement == (
        "CREATE TABLE `SCORES` (`USER_ID` STRING PRIMARY KEY, `SCORE` DOUBLE) WITH"
        " (KAFKA_TOPIC='SCORES', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=2,"
        " WRITER='EXTERNAL');"
    )
    assert declared(table).columns == table.columns


@pytest.mark.parametrize(
    ("key", "key_format"),
    [
        (("user_id",), "KAFKA"),
        (("score",), "KAFKA"),
        (("_deleted",), "JSON"),
        (("user_id", "score"), "JSON"),
    ],
)
def test_how_a_key_is_written(key: tuple[str, ...], key_format: str) -> None:
    assert declared(table_of(SCORES, *key)).key_format == key_format


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ((), "`key` names no column"),
        (("nobody",), "the DataFrame has no column NOBODY"),
        (("user_id", "score", "_deleted"), "all columns are in the key"),
    ],
)
def test_a_key_that_cannot_be_one(key: tuple[str, ...], words: str) -> None:
    with pytest.raises(ServeRefused, match=words):
        table_of(SCORES, *key)


def test_two_columns_that_differ_in_case_only() -> None:
    twice = t.StructType([*SCORES.fields, t.StructField("Score", t.LongType())])
    with pytest.raises(ServeRefused, match="two columns are SCORE in SQL"):
        table_of(twice, "user_id")


@pytest.mark.parametrize(
    ("name", "sql"), [("scores", "SCORES"), ("`scores`", "scores"), ("`a``b`", "a`b")]
)
def test_names(name: str, sql: str) -> None:
    assert capitals(name) == sql


OTHER_TYPE = t.StructType([SCORES["user_id"], t.StructField("score", t.LongType())])
TWO = t.StructType([SCORES["user_id"], SCORES["score"]])
RENAMED = t.StructType([SCORES["user_id"], t.StructField("points", t.DoubleType())])
IN_ANOTHER_ORDER = t.StructType([SCORES["score"], SCORES["user_id"]])


def test_the_same_table_again_is_resumed() -> None:
    there = declared(table_of(TWO, "user_id", partitions=2))
    assert table_of(IN_ANOTHER_ORDER, "user_id").added_to(there) == ()


def after(*statements: str) -> Catalog:
    """A catalog of the newest feature level."""
    catalog = msgspec.structs.replace(EMPTY, feature_level=feature_levels.NEWEST)
    for sql in statements:
        command = judge(asked(sql), catalog, {})
        assert isinstance(command, CreateTableAs | CreateSource)
        command = msgspec.structs.replace(command, request_id="")
        catalog = apply(catalog, LogIndex(catalog.index + 1), command)
    return catalog


def test_new_columns_are_added_behind_the_others() -> None:
    there = after(table_of(TWO, "user_id").statement).sources["SCORES"]
    asked_for = table_of(SCORES, "user_id")
    new = asked_for.added_to(there)
    assert [each.name for each in new] == [
        each.name.upper() for each in SCORES.fields if each not in TWO.fields
    ]
    altered = after(table_of(TWO, "user_id").statement, asked_for.additions(new))
    grown = altered.sources[there.name]
    assert grown.columns == (*there.columns, *new)
    assert (grown.query_id, grown.table_id) == (there.query_id, there.table_id)
    assert asked_for.added_to(grown) == ()
    assert table_of(TWO, "user_id").added_to(grown) == (), "a program from before goes on"
    delimited = msgspec.structs.replace(there, value_format="DELIMITED")
    with pytest.raises(ServeRefused, match="its VALUE_FORMAT is not JSON with names"):
        asked_for.added_to(delimited)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (table_of(OTHER_TYPE, "user_id"), "the DataFrame has `SCORE` BIGINT instead of `SCORE` "),
        (table_of(RENAMED, "user_id"), "the DataFrame lacks `SCORE`"),
        (table_of(TWO, "score"), "its key is `USER_ID` STRING KEY"),
        (table_of(TWO, "user_id", partitions=3), "has 2 partitions, not 3"),
    ],
)
def test_another_table_of_that_name_is_refused(table: ServedTable, words: str) -> None:
    there = declared(table_of(TWO, "user_id", partitions=2))
    with pytest.raises(ServeRefused, match=words) as refused:
        table.added_to(msgspec.structs.replace(there))
    assert "DROP TABLE SCORES" in refused.value.next_step
