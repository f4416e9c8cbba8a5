"""Relations, row-by-row queries and aggregations → a SparkPlan: Spark SQL over temporary views.

Assumes spark.sql.ansi.enabled=false, spark.sql.caseSensitive=true and session time zone UTC.

Shape of an aggregation: the inner query filters and computes the keys (`__KEY_0`, …), the outer one
groups. So a grouping expression is computed once, however often the SELECT list uses it.

Why text, and why plans are stored: `DESIGN.md`. Not here: expressions (`expression_sql.py`), joins
(`join_sql.py`), queries with our own operators (`stateful_sql.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import UNSET

from standpipe.model import Column, Source, SparkInput, SparkPlan, SparkStep, Window
from standpipe.sql.spark import stream_time
from standpipe.sql.spark.expression_sql import condition_sql, expression_sql, text_sql
from standpipe.sql.types.typed_expression import (
    Operation,
    Typed,
    TypedColumn,
    WindowBound,
    rewrite,
)
from standpipe.sql.types.types import quoted

#: Version of SparkPlan that this module writes.
VERSION: Final = 1
#: The version for plans with steps or `batch_sql`.
STEPS_VERSION: Final = 2
_BOUNDS: Final = {"WINDOWSTART": "start", "WINDOWEND": "end"}


@dataclass(frozen=True, slots=True)
class SparkRelation:
    """Where rows come from: `text` goes into FROM; it reads the views of `inputs`."""

    inputs: tuple[SparkInput, ...]
    text: str
    #: rows include deletions (null values); `__PRESENT` tells them apart
    has_presence: bool = False
    #: for a table: a row that a filter now drops may have passed it before
    is_table: bool = False
    has_window: bool = False
    #: for a table: the columns that identify a row
    key_names: tuple[str, ...] = ()
    #: operators that must run first
    steps: tuple[SparkStep, ...] = ()
    #: stateful operators produce it
    has_state: bool = False

    @property
    def is_ordered(self) -> bool:
        """Whether its rows come in the order of one topic's records, whose places they have."""
        return len(self.inputs) == 1 and not (self.steps or self.has_state or self.is_table)

    @classmethod
    def of(
        cls,
        source: Source,
        view: str,
        watermark_delay_ms: int | None = None,
        *,
        keeps_nulls: bool = False,
    ) -> SparkRelation:
        """One source, whose columns keep their names."""
        made = spark_input(source, view, watermark_delay_ms, keeps_nulls=keeps_nulls)
        is_windowed = source.window is not None
        is_table = source.kind == "TABLE"
        keys = tuple(column.name for column in source.key_columns)
        return cls((made,), quoted(view), keeps_nulls, is_table, is_windowed, keys)


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The column of a result that is its ROWTIME, with the format if it is text."""

    typed: Typed
    format: str | None


@dataclass(frozen=True, slots=True)
class Aggregation:
    """SELECT keys, values FROM relation [WINDOW] [WHERE] GROUP BY keys [HAVING], typed."""

    relation: SparkRelation
    keys: tuple[tuple[str, Typed], ...]  # name in the result, grouping expression
    values: tuple[tuple[str, Typed], ...]
    window: Window | None
    where: Typed | None
    having: Typed | None
    #: EMIT FINAL: a window is emitted once, when it has closed
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """SELECT keys, values FROM relation [WHERE], one row per row (or per item of `exploded`)."""

    relation: SparkRelation
    keys: tuple[tuple[str, Typed], ...]
    values: tuple[tuple[str, Typed], ...]
    exploded: tuple[Typed, ...]
    where: Typed | None
    timestamp: Timestamp | None = None
    #: Spark's join of two streams supports only append mode
    is_append: bool = False
    #: PARTITION BY determines the key
    has_own_key: bool = False


def spark_input(
    source: Source, view: str, watermark_delay_ms: int | None = None, *, keeps_nulls: bool = False
) -> SparkInput:
    """The topic of a source as a view of Spark. `watermark_delay_ms`: how late rows may come."""
    # our queries write its topic: ROWTIME is in a header
    is_ours = source.takes_inserts or (source.query_id is not None and source.changelog is None)
    return SparkInput(
        source=source.name,
        topic=source.topic,
        view=view,
        columns=source.columns,
        key_format=source.key_format,
        value_format=source.value_format,
        timestamp_column=source.timestamp_column,
        timestamp_format=source.timestamp_format,
        wrap_single_value=source.wrap_single_value,
        value_delimiter=source.value_delimiter,
        key_delimiter=UNSET if source.key_delimiter == "," else source.key_delimiter,
        watermark_delay_ms=watermark_delay_ms,
        is_table=True if source.kind == "TABLE" else None,
        keeps_nulls=True if keeps_nulls else None,
        is_ours=True if is_ours else None,
        window=source.window,
    )


def emit(aggregation: Aggregation) -> SparkPlan:
    """The plan of an aggregation: emits what changed, or (EMIT FINAL) windows that have closed."""
    steps = aggregation.relation.steps
    return SparkPlan(
        version=STEPS_VERSION if steps or aggregation.relation.has_state else VERSION,
        inputs=aggregation.relation.inputs,
        steps=steps,
        sql=aggregation_sql(aggregation),
        output_mode="append" if aggregation.is_final else "update",
        is_windowed=aggregation.window is not None,
    )


def emit_rows(rows: Rows) -> SparkPlan:
    """The plan of a query that produces one row for each row of its relation."""
    relation, sql, batch_sql = rows.relation, rows_sql(rows), None
    if relation.steps and not relation.is_table:
        # operators process key after key, so their output must be sorted back into arrival order
        sorted_rows = "(SELECT * FROM `__BATCH` SORT BY `__ORDER`)"
        sql = f"SELECT * FROM {relation.text}"  # noqa: S608 - escaped
        batch_sql = rows_sql(replace(rows, relation=replace(relation, text=sorted_rows)))
    return SparkPlan(
        version=STEPS_VERSION if relation.steps else VERSION,
        inputs=relation.inputs,
        steps=relation.steps,
        sql=sql,
        batch_sql=batch_sql,
        output_mode="append" if rows.is_append else "update",
        is_windowed=relation.has_window,
        has_own_key=True if rows.has_own_key else UNSET,
    )


def rows_sql(rows: Rows) -> str:
    """The SELECT of a row-by-row query, with `__ROWTIME` (Unix ms) and `__LIVE` (not deleted)."""
    relation = rows.relation
    selected = [f"{expression_sql(typed)} AS {quoted(name)}" for name, typed in rows.keys]
    if relation.has_window:
        selected += [quoted(name) for name in _BOUNDS]
    selected += [f"{expression_sql(typed)} AS {quoted(name)}" for name, typed in rows.values]
    selected.append(f"{_rowtime_sql(rows.timestamp)} AS `__ROWTIME`")
    where = None if rows.where is None else condition_sql(rows.where)
    # ksqlDB's filters never let a null value through
    there = "`__PRESENT` AND " if relation.has_presence else ""
    filtered = "" if where is None else f" WHERE {there}{where}"
    live = "`__PRESENT`" if relation.has_presence else "true"
    if relation.is_table and where is not None:
        live, filtered = f"(`__PRESENT` AND coalesce({where}, false))", ""
    selected.append(f"{live} AS `__LIVE`")
    sql = f"SELECT {', '.join(selected)} FROM {_exploded_sql(rows, filtered)}"  # noqa: S608 - escaped
    if rows.timestamp is None:
        return sql
    return f"SELECT * FROM ({sql}) WHERE `__ROWTIME` >= 0 OR NOT `__LIVE`"  # noqa: S608


def _exploded_sql(rows: Rows, filtered: str) -> str:
    """EXPLODEs unnest in parallel; shorter arrays are padded with nulls (ksqlDB)."""
    if not rows.exploded:
        return f"{rows.relation.text}{filtered}"
    arrays = ", ".join(
        f"coalesce({expression_sql(typed)}, array()) AS `__E{index}`"
        for index, typed in enumerate(rows.exploded)
    )
    names = ", ".join(f"`__E{index}`" for index in range(len(rows.exploded)))
    picked = ", ".join(f"`__Z`.`__E{index}` AS `__E{index}`" for index in range(len(rows.exploded)))
    inner = f"SELECT *, {arrays} FROM {rows.relation.text}{filtered}"  # noqa: S608 - escaped
    zipped = f"SELECT * EXCEPT ({names}), explode(arrays_zip({names})) AS `__Z` FROM ({inner})"  # noqa: S608
    return f"(SELECT * EXCEPT (`__Z`), {picked} FROM ({zipped}))"  # noqa: S608


def _rowtime_sql(timestamp: Timestamp | None) -> str:
    if timestamp is None:
        return "`ROWTIME`"
    column = expression_sql(timestamp.typed)
    if timestamp.format is not None:
        return f"standpipe_instant({column}, {text_sql(timestamp.format)}, 'UTC')"
    if timestamp.typed.type.base == "TIMESTAMP":
        return f"unix_millis({column})"
    return column


def aggregation_sql(aggregation: Aggregation) -> str:
    """The SELECT of an aggregation, with `__ROWTIME` (Unix ms) and `__LIVE` (HAVING holds)."""
    grouping = {typed: key_name(index) for index, (_, typed) in enumerate(aggregation.keys)}

    window, is_ordered = aggregation.window, aggregation.relation.is_ordered
    bounds = "" if window is None else stream_time.WINDOW if is_ordered else _window_sql(window)

    def use_key(node: Typed) -> Typed | None:
        if isinstance(node, WindowBound):
            return Operation(node.type, _bound_sql(node.name, bounds), ())
        return TypedColumn(node.type, grouping[node]) if node in grouping else None

    def outer(typed: Typed) -> str:
        return expression_sql(rewrite(typed, use_key))

    selected = [
        f"{quoted(key_name(index))} AS {quoted(name)}"
        for index, (name, _) in enumerate(aggregation.keys)
    ]
    if window is not None:
        selected += [f"{_bound_sql(name, bounds)} AS {quoted(name)}" for name in _BOUNDS]
    selected += [f"{outer(typed)} AS {quoted(name)}" for name, typed in aggregation.values]
    selected.append("max(`ROWTIME`) AS `__ROWTIME`")
    having = aggregation.having
    live = (
        "true" if having is None else f"coalesce({condition_sql(rewrite(having, use_key))}, false)"
    )
    selected.append(f"{live} AS `__LIVE`")

    computed = [f"{expression_sql(typed)} AS {quoted(name)}" for typed, name in grouping.items()]
    where = aggregation.where
    filtered = "" if where is None else f" WHERE {condition_sql(where)}"
    inner = f"SELECT *, {', '.join(computed)} FROM {aggregation.relation.text}{filtered}"  # noqa: S608 - escaped
    names = [quoted(name) for name in grouping.values()]
    present = " AND ".join(f"{name} IS NOT NULL" for name in names)
    rows = f"({inner}) WHERE {present}"
    if window is not None and is_ordered:
        rows = _open_rows(rows, window)
    groups = names if window is None else [bounds, *names]
    sql = f"SELECT {', '.join(selected)} FROM {rows} GROUP BY {', '.join(groups)}"  # noqa: S608
    if window is None or window.kind != "HOPPING":
        return sql
    # ksqlDB has no windows that begin before the epoch
    return f"SELECT * FROM ({sql}) WHERE `WINDOWSTART` >= 0"  # noqa: S608


def key_name(index: int) -> str:
    """Name of the column that holds a grouping expression inside the query."""
    return f"__KEY_{index}"


def _window_sql(window: Window) -> str:
    size = f"'{window.size_ms} milliseconds'"
    if window.kind == "HOPPING":
        return f"window(`__TS`, {size}, '{window.advance_ms} milliseconds')"
    assert window.kind == "TUMBLING", "sessions are in stateful_sql.py"
    return f"window(`__TS`, {size})"


def _open_rows(rows: str, window: Window) -> str:
    """The rows, each with a window that is still open at it."""
    timed = f"({stream_time.timed_sql(rows)})"
    if window.kind == "TUMBLING":  # judged before the window is made, which takes longer
        end = stream_time.tumbling_end(window)
        timed = f"(SELECT * FROM {timed} WHERE {stream_time.is_open(end, window)})"  # noqa: S608
    windowed = f"(SELECT *, {_window_sql(window)} AS {stream_time.WINDOW} FROM {timed})"  # noqa: S608
    if window.kind == "TUMBLING":
        return windowed
    end = f"unix_millis({stream_time.WINDOW}.end)"
    return f"{windowed} WHERE {stream_time.is_open(end, window)}"


def _bound_sql(name: str, window: str) -> str:
    """Spelled out instead of `window.start`, because the source may have a column of that name."""
    return f"unix_millis({window}.{_BOUNDS[name]})"


def columns_of(plan_columns: Sequence[tuple[str, Typed]], *, is_key: bool) -> tuple[Column, ...]:
    """The columns that named expressions produce."""
    return tuple(
        Column(name=name, type=str(typed.type), is_key=is_key) for name, typed in plan_columns
    )
