"""The records of several tables from the rows of one batch, by Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.unit.control.ddl.test_propose import asked

from standpipe.control.ddl.propose import judge
from standpipe.control.metadata.catalog import EMPTY
from standpipe.control.metadata.commands import CreateTableAs
from standpipe.model import Source
from standpipe.spark import ServeEnded, ServeRefused, Table
from standpipe.spark.many import RecordsOfAll, TableFunctionFailed, TablePart, parts_of

pytestmark = pytest.mark.e2e

STARTED_MS = 1_767_323_045_678


@pytest.fixture
def batch(spark: SparkSession) -> DataFrame:
    """As `foreachBatch` has it, in a program's own session."""
    own = spark.newSession()
    own.conf.set("spark.sql.ansi.enabled", "true")
    own.conf.set("spark.sql.caseSensitive", "false")
    rows = [("ada", "a", 5, False), ("bob", "b", 7, True)]
    return own.createDataFrame(rows, "user STRING, shop STRING, cents BIGINT, closed BOOLEAN")


def users(rows: DataFrame) -> DataFrame:
    return rows.select("user", "cents", "closed")


def shops(rows: DataFrame) -> DataFrame:
    return rows.groupBy("shop").agg(f.count("*").alias("n"))


def nobody(rows: DataFrame) -> DataFrame:
    return rows.select("user", "cents").where("false")


def tables_of(parts: dict[str, TablePart]) -> list[Source]:
    found: list[Source] = []
    for part in parts.values():
        command = judge(asked(part.asked.statement), EMPTY, {})
        assert isinstance(command, CreateTableAs)
        found.append(command.source)
    return found


def test_each_record_says_of_which_table_it_is(batch: DataFrame) -> None:
    tables = {
        "users": Table(users, ["user"], deleted="closed"),
        "Nobody": Table(nobody, ["user"]),
        "shops": Table(shops, key=["shop"]),
    }
    parts = parts_of(batch, tables, "update")
    assert list(parts) == ["USERS", "NOBODY", "SHOPS"]
    records = RecordsOfAll(parts=list(parts.values()), tables=tables_of(parts))
    rows = records(batch, STARTED_MS).collect()
    found = {
        (row["__TABLE"], bytes(row["key"])): row["value"] and json.loads(bytes(row["value"]))
        for row in rows
    }
    assert found == {
        (0, b"ada"): {"CENTS": 5},
        (0, b"bob"): None,
        (2, b"a"): {"N": 1},
        (2, b"b"): {"N": 1},
    }
    times = {int.from_bytes(row["rowtime"], "big", signed=True) for row in rows}
    assert times == {STARTED_MS}, "a replay does not change them"


def test_functions_see_no_rows_when_they_are_asked_for_their_columns(batch: DataFrame) -> None:
    counts: list[int] = []

    def counted(rows: DataFrame) -> DataFrame:
        counts.append(rows.count())  # a batch, of which each action is allowed
        return users(rows)

    parts_of(batch, {"T": Table(counted, ["user"], deleted="closed")}, "update")
    assert counts == [0]


def test_a_function_whose_columns_change_ends_the_query(batch: DataFrame) -> None:
    def changing(rows: DataFrame) -> DataFrame:
        return rows.select("user", "cents" if rows.isEmpty() else "shop")

    (part,) = parts_of(batch, {"T": Table(changing, ["user"])}, "update").values()
    with pytest.raises(ServeEnded, match="the function of T returns struct<user:string,shop:str"):
        part.of(batch)


@pytest.mark.parametrize(
    ("tables", "mode", "words"),
    [
        ({}, "update", "`tables` has no table"),
        ({"T": Table(users, ["user"]), "t": Table(shops, ["shop"])}, "update", "the same name in"),
        ({"T": Table(cast(Any, print), ["user"])}, "update", "function of T returns NoneType"),
        (cast(Any, {"T": users}), "update", "T is function"),
        ({"T": Table(users, ["nobody"])}, "update", "no column NOBODY"),
        (
            {"T": Table(users, ["user"], window_size="1 hour", retention="1 day")},
            "complete",
            "so none can be dropped",
        ),
    ],
)
def test_what_is_asked_for_is_refused_by_name(
    batch: DataFrame, tables: dict[str, Table], mode: str, words: str
) -> None:
    with pytest.raises(ServeRefused, match=words):
        parts_of(batch, tables, mode)


def test_a_function_that_fails_in_a_batch_is_named(batch: DataFrame) -> None:
    def failing(rows: DataFrame) -> DataFrame:
        if not rows.isEmpty():
            raise ZeroDivisionError("of a user")
        return users(rows)

    (part,) = parts_of(batch, {"t": Table(failing, ["user"])}, "update").values()
    with pytest.raises(TableFunctionFailed, match="of T: ZeroDivisionError: of a user") as caught:
        part.of(batch)
    assert isinstance(caught.value.__cause__, ZeroDivisionError), "its traceback has the line"


def test_a_function_that_returns_nothing_in_a_batch_is_named(batch: DataFrame) -> None:
    def forgetful(rows: DataFrame) -> DataFrame:
        return users(rows) if rows.isEmpty() else cast(DataFrame, None)

    (part,) = parts_of(batch, {"T": Table(forgetful, ["user"])}, "update").values()
    with pytest.raises(ServeEnded, match="FAILED: the function of T returns NoneType"):
        part.of(batch)


def test_a_function_that_returns_the_stream_is_refused(batch: DataFrame) -> None:
    stream = batch.sparkSession.readStream.format("rate").load()
    with pytest.raises(ServeRefused, match="the function of T returns a stream, and not rows"):
        parts_of(batch, {"T": Table(lambda _: stream, ["value"])}, "update")


def test_an_error_of_a_function_is_the_callers(batch: DataFrame) -> None:
    def broken(_rows: DataFrame) -> DataFrame:
        raise ZeroDivisionError

    rows: Callable[[DataFrame], DataFrame] = broken
    with pytest.raises(ZeroDivisionError):
        parts_of(batch, {"T": Table(rows, ["user"])}, "update")
