"""Several tables from one streaming query: what `Standpipe.serve_many` does under their leases.

    source ──► a batch of its rows, kept in memory ──► function of each table ──► records ─┐
                                                                     one job writes all ◄──┘

A function gets the rows of a batch as `foreachBatch` has them, so programs that write to several
sinks can be carried over as they are. A batch commits its tables one after the other, by the code
for groups of queries in a pipeline (`CommitBatch`): killed in between, it is replayed for all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from standpipe.model import Source
from standpipe.pipeline.commit.batch import CommitBatch
from standpipe.pipeline.io.bad_records import BadRecords
from standpipe.pipeline.run.start.query_run import (
    PipelineContext,
    Stream,
    limits_of,
    run_of,
    started,
)
from standpipe.pipeline.run.start.running_query import QueryRun
from standpipe.pipeline.wanted import WantedQuery
from standpipe.spark.complete import Differences
from standpipe.spark.errors import ServeEnded, ServeRefused
from standpipe.spark.rows import RowRules, records
from standpipe.spark.schema import ServedTable, capitals, served_table, window_of
from standpipe.spark.together import resume_together


@dataclass(frozen=True)
class Table:
    """One of the tables of `serve_many`. `rows`: makes its rows from those of a batch, both as
    batch DataFrames; of the same rows it must make the same. `key`: its key columns. The others: as
    of `Standpipe.serve`."""

    rows: Callable[[DataFrame], DataFrame]
    key: Sequence[str]
    _: KW_ONLY
    deleted: str | None = None
    deleted_if_null: bool = False
    timestamp: str | None = None
    window_size: str | None = None
    retention: str | None = None
    partitions: int | None = None


class TableFunctionFailed(Exception):
    """The function of a table has raised an error: the cause. Not a ServeEnded, as the error may be
    one that the source has raised, if the function was the first to compute the batch."""


@dataclass(frozen=True, kw_only=True)
class TablePart:
    """A table, as a program asks for it. `schema`: of the rows that its function makes."""

    asked: ServedTable
    rows: Callable[[DataFrame], DataFrame]
    rules: RowRules
    schema: t.StructType

    def of(self, batch: DataFrame) -> DataFrame:
        """Its rows of a batch. Raises TableFunctionFailed, and ServeEnded if its columns are not
        those from the start."""
        name = self.asked.name
        try:
            found: Any = self.rows(batch)
        except Exception as error:
            raise TableFunctionFailed(f"of {name}: {type(error).__name__}: {error}") from error
        if why := _no_batch(found, name):
            raise ServeEnded("FAILED", why)
        if _columns(found.schema) != _columns(self.schema):
            raise ServeEnded(
                "FAILED",
                f"the function of {name} returns {found.schema.simpleString()}, and"
                f" {self.schema.simpleString()} when it was started: let it return the same"
                " columns, and start the program again",
            )
        return cast(DataFrame, found)


def parts_of(
    source: DataFrame, tables: Mapping[str, Table], output_mode: str
) -> dict[str, TablePart]:
    """{name in capitals: what is asked for}. Calls each function with no rows, to see which columns
    it makes. Raises ServeRefused, and what a function raises."""
    if not tables:
        raise ServeRefused("`tables` has no table", next_step="give one at least, by its name")
    session: Any = source.sparkSession
    nothing = session.createDataFrame([], source.schema)
    found = {
        capitals(name): _part(name, each, nothing, output_mode) for name, each in tables.items()
    }
    if len(found) < len(tables):
        raise ServeRefused(
            f"two of the tables have the same name in SQL: {', '.join(tables)}",
            next_step="rename one, or put its name in back-quotes",
        )
    return found


def _part(name: str, table: Table, nothing: DataFrame, output_mode: str) -> TablePart:
    given: Any = table  # perhaps of a program without types
    if not isinstance(given, Table):
        raise ServeRefused(
            f"{name} is {type(given).__name__}", next_step="give Table(function, key=[…])"
        )
    made: Any = table.rows(nothing)
    if why := _no_batch(made, name):
        raise ServeRefused(why, next_step="let it return a DataFrame made from its argument")
    if output_mode == "complete" and table.retention is not None:
        raise ServeRefused(
            "in output mode complete the result has all windows, so none can be dropped",
            next_step=f"use output mode update, or leave out `retention` of {name}",
        )
    schema = made.schema
    rules = RowRules(
        deleted=table.deleted, deleted_if_null=table.deleted_if_null, timestamp=table.timestamp
    )
    rules.check(schema)
    window = window_of(
        schema, table.window_size, table.retention, is_append=output_mode == "append"
    )
    asked = served_table(
        schema,
        table=name,
        key=table.key,
        left_out=[table.deleted] if table.deleted else [],
        partitions=table.partitions,
        window=window,
    )
    return TablePart(asked=asked, rows=table.rows, rules=rules, schema=schema)


def _no_batch(made: Any, name: str) -> str | None:
    """Why a function cannot have returned this; None: it can."""
    if not isinstance(made, DataFrame):
        return f"the function of {name} returns {type(made).__name__}, and no DataFrame"
    if made.isStreaming:  # it has used the source instead of its argument
        return f"the function of {name} returns a stream, and not rows of the batch that it gets"
    return None


def _columns(schema: t.StructType) -> set[tuple[str, str]]:
    return {(each.name.upper(), each.dataType.simpleString()) for each in schema.fields}


@dataclass(frozen=True, kw_only=True)
class RecordsOfAll:
    """Makes the records of all tables from the rows of a batch (`CommitBatch.finish`), with the
    number of each in `__TABLE`. `differences`: of each, in output mode complete."""

    parts: Sequence[TablePart]
    tables: Sequence[Source]
    differences: Sequence[Differences] = ()

    def __call__(self, rows: DataFrame, started_ms: int) -> DataFrame:
        """`started_ms`: the ROWTIME of rows without a time. Raises as `TablePart.of` does."""
        time = f.timestamp_millis(f.lit(started_ms))
        found: list[DataFrame] = []
        for number, (part, table) in enumerate(zip(self.parts, self.tables, strict=True)):
            own = records(part.of(rows), table, part.rules, time)
            if self.differences:
                own = self.differences[number](own, started_ms)
            value = f.col("value").cast("binary").alias("value")
            of_table = f.lit(number).alias("__TABLE")
            found.append(own.select(of_table, "key", value, "rowtime", "partition"))
        return functools.reduce(DataFrame.unionByName, found)


@dataclass(frozen=True, kw_only=True)
class ManyOrder:
    """What `serve_many` was asked for. `parts`: by the names of their tables."""

    source: DataFrame
    parts: Mapping[str, TablePart]
    output_mode: str
    trigger: Mapping[str, Any] | None


def start_many(
    members: Sequence[WantedQuery],
    order: ManyOrder,
    around: PipelineContext,
    is_there: Callable[[str], bool],
) -> QueryRun:
    """Take the queries of all tables over, and start the one that writes them. Raises as
    `resume_together` does."""
    taken, checkpoint = resume_together(members, around, is_there)
    tables = tuple(each.commit(around) for each in taken)
    query_ids = tuple(each.query_id for each in members)
    name = ", ".join(each.table.name for each in members)
    counted = BadRecords(order.source.sparkSession, query_ids, (), around.reads, around.log)
    finish = RecordsOfAll(
        parts=[order.parts[each.table.name] for each in members],
        tables=[each.table for each in members],
        differences=_differences(members, around) if order.output_mode == "complete" else (),
    )
    commit = CommitBatch(
        name=name,
        tables=tables,
        numbers=tuple(range(len(members))),
        kafka=around.reads.kafka,
        checkpoint=checkpoint,
        log=around.log,
        limits=limits_of(members, around, looks=True),
        source_instant=functools.partial(around.probe.covered, name),
        report_bad=counted.report,
        finish=finish,
        marks=around.marks,
        replicas=around.replicas,
        pressure=around.pressure(),
    )
    stream = Stream(plan=order.source, output_mode=order.output_mode, trigger=order.trigger)
    running = started(stream, commit, checkpoint, around)
    counted.set_query(running)
    return run_of(running, tables, members, around, run_id=name)


def _differences(members: Sequence[WantedQuery], around: PipelineContext) -> list[Differences]:
    return [Differences(table=each.table, log=around.log, reads=around.reads) for each in members]
