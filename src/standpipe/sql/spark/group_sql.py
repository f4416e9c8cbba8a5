"""Tables over one stream → one aggregation that fills them all: a `GroupPlan`.

    view of the stream → one row for each table that counts the event (`__TABLE`, the table's
    grouping keys, its window) → grouped by all of these → a row of one table

The stream is read and parsed once, and Spark plans, schedules and commits one batch instead of one
for each table. Lateness stays each table's own: `__DUE`, the end of a window plus its grace period,
is a key of the groups and has the watermark of the stream, whose delay is 0. Spark drops a row, and
the state of a group, once the watermark has reached `__DUE`; that is when the table alone would
have a watermark, delayed by its grace period, that has reached the end of the window.

One difference is left. The watermark of a table alone counts only events that pass its WHERE and
have a key; that of a group counts all events of the stream. So tables with windows share a group
only if their WHERE is the same.

Aggregates are computed over the rows of other tables, too, and their results are not read. So an
aggregation whose state has no bound (COLLECT_LIST) is not grouped. Equal aggregates of several
tables are computed once.

Not here: aggregations that run alone (`to_spark.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from standpipe.model import Record, SparkInput
from standpipe.sql.functions.cast import spark_name
from standpipe.sql.spark import stream_time
from standpipe.sql.spark.expression_sql import condition_sql, expression_sql, text_sql
from standpipe.sql.spark.to_spark import Aggregation
from standpipe.sql.types.typed_expression import (
    Operation,
    Typed,
    TypedColumn,
    WindowBound,
    rewrite,
)
from standpipe.sql.types.types import quoted

#: the view of the rows that `GroupPlan.each_sql` makes
EACH_VIEW: Final = "__EACH"
#: its column that carries the watermark
DUE: Final = "__DUE"
_BOUNDS: Final = ("WINDOWSTART", "WINDOWEND")
#: Spark's aggregates whose state grows with each row
_WITHOUT_BOUND: Final = ("collect_list(", "collect_set(")


class GroupRow(Record, frozen=True, kw_only=True):
    """What an event becomes for one table: `row`, a struct in Spark SQL, if `condition` holds."""

    condition: str
    row: str


class GroupPlan(Record, frozen=True, kw_only=True):
    """What Spark runs for a group of tables, in the order in which `__TABLE` numbers them.

    `each_sql` reads the view of `input`; its rows are the view `EACH_VIEW`, which `sql` reads. The
    result has `__TABLE` (INT) and, for each table, a column `row_name(number)`: a struct of what
    `SparkPlan.sql` returns, or null in a row of another table. `has_windows`: `DUE` carries the
    watermark. `timed`: what `each_sql` reads in place of the view; unset in older plans.
    """

    input: SparkInput
    rows: tuple[GroupRow, ...]
    sql: str
    has_windows: bool
    timed: str | msgspec.UnsetType = msgspec.UNSET

    def each_sql(self, numbers: Collection[int]) -> str:
        """The rows of these tables. Those of others keep their place: the types of the columns, and
        so the schema of Spark's state, are the same for any of them."""
        each = ", ".join(
            f"IF({row.condition if number in numbers else 'false'}, {row.row}, NULL)"
            for number, row in enumerate(self.rows)
        )
        rows = f"({self.timed})" if self.timed else quoted(self.input.view)
        return f"SELECT *, inline(array_compact(array({each}))) FROM {rows}"  # noqa: S608 - escaped


def row_name(number: int) -> str:
    """The column with the rows of table `number`."""
    return f"__ROW_{number}"


def can_be_grouped(aggregation: Aggregation) -> bool:
    """Whether the aggregation could share a group with others, or with another like it."""
    relation, window = aggregation.relation, aggregation.window
    if len(relation.inputs) != 1 or relation.steps or relation.has_state or relation.is_table:
        return False
    if aggregation.is_final or (window is not None and window.kind != "TUMBLING"):
        return False
    parts = [typed for _, typed in aggregation.values]
    if aggregation.having is not None:
        parts.append(aggregation.having)
    text = " ".join(expression_sql(typed) for typed in parts)
    return not any(name in text for name in _WITHOUT_BOUND)


def fits(one: Aggregation, other: Aggregation) -> bool:
    """Whether both may be in one group; each `can_be_grouped`."""
    if _stream_of(one) != _stream_of(other):
        return False
    return one.window is None or other.window is None or one.where == other.where


def group_plan(aggregations: Sequence[Aggregation], view: str) -> GroupPlan:
    """The plan of a group, each pair of which `fits`. `view`: a name for the view of the stream."""
    has_windows = any(each.window is not None for each in aggregations)
    stream = msgspec.structs.replace(
        _stream_of(aggregations[0]), view=view, watermark_delay_ms=0 if has_windows else None
    )
    slots = _slots(aggregations)
    results = ", ".join(
        f"IF(`__TABLE` = {number}, {_result_of(aggregation)}, NULL) AS {quoted(row_name(number))}"
        for number, aggregation in enumerate(aggregations)
    )
    keys = ", ".join(["`__TABLE`", f"`{DUE}`", "`__START`", "`__END`", *map(quoted, slots)])
    return GroupPlan(
        input=stream,
        rows=tuple(_row_of(number, each, slots) for number, each in enumerate(aggregations)),
        sql=f"SELECT `__TABLE`, {results} FROM `{EACH_VIEW}` GROUP BY {keys}",  # noqa: S608 - escaped
        has_windows=has_windows,
        timed=_timed(aggregations, quoted(view)),
    )


def _timed(aggregations: Sequence[Aggregation], view: str) -> str | msgspec.UnsetType:
    """The rows of the stream with their stream time, which those that WHERE keeps out do not move:
    the same WHERE for all tables with windows."""
    windowed = [each for each in aggregations if each.window is not None]
    if not windowed:
        return msgspec.UNSET
    where = windowed[0].where
    return stream_time.timed_sql(view, "true" if where is None else condition_sql(where))


def _stream_of(aggregation: Aggregation) -> SparkInput:
    """The input of an aggregation without what is its own."""
    (stream,) = aggregation.relation.inputs
    return msgspec.structs.replace(stream, view="", watermark_delay_ms=None)


def _slots(aggregations: Sequence[Aggregation]) -> dict[str, str]:
    """{column: its type in Spark} of all grouping keys: tables whose keys have the same place and
    type share one."""
    return {
        _slot(place, typed): spark_name(typed.type)
        for aggregation in aggregations
        for place, (_, typed) in enumerate(aggregation.keys)
    }


def _slot(place: int, typed: Typed) -> str:
    return f"__KEY_{place} {typed.type}"


def _row_of(number: int, aggregation: Aggregation, slots: dict[str, str]) -> GroupRow:
    keys = {
        _slot(place, typed): expression_sql(typed)
        for place, (_, typed) in enumerate(aggregation.keys)
    }
    conditions = [f"{key} IS NOT NULL" for key in keys.values()]
    if aggregation.where is not None:
        conditions.append(f"({condition_sql(aggregation.where)})")
    start, end, due = "NULL", "NULL", "NULL"
    if window := aggregation.window:
        size = f"{window.size_ms}L"
        start = f"unix_millis(`__TS`) - pmod(unix_millis(`__TS`), {size})"
        end = f"{start} + {size}"
        due = f"{end} + {window.grace_ms}L"
        conditions.append(stream_time.is_open(stream_time.tumbling_end(window), window))
    fields = [
        f"'__TABLE', {number}",
        f"'__START', CAST({start} AS BIGINT)",
        f"'__END', CAST({end} AS BIGINT)",
        f"'{DUE}', timestamp_millis(CAST({due} AS BIGINT))",
    ]
    fields += [
        f"{text_sql(slot)}, {keys.get(slot, f'CAST(NULL AS {name})')}"
        for slot, name in slots.items()
    ]
    row = f"named_struct({', '.join(fields)})"
    return GroupRow(condition=" AND ".join(conditions), row=row)


def _result_of(aggregation: Aggregation) -> str:
    """A struct of the columns that `to_spark.aggregation_sql` selects."""
    grouping = {typed: _slot(place, typed) for place, (_, typed) in enumerate(aggregation.keys)}

    def use_key(node: Typed) -> Typed | None:
        if isinstance(node, WindowBound):
            return Operation(node.type, _bound(node.name), ())
        return TypedColumn(node.type, grouping[node]) if node in grouping else None

    def outer(typed: Typed) -> str:
        return expression_sql(rewrite(typed, use_key))

    columns = [(name, outer(typed)) for name, typed in aggregation.keys]
    if aggregation.window is not None:
        columns += [(name, _bound(name)) for name in _BOUNDS]
    columns += [(name, outer(typed)) for name, typed in aggregation.values]
    having = aggregation.having
    live = (
        "true" if having is None else f"coalesce({condition_sql(rewrite(having, use_key))}, false)"
    )
    columns += [("__ROWTIME", "max(`ROWTIME`)"), ("__LIVE", live)]
    return f"struct({', '.join(f'{sql} AS {quoted(name)}' for name, sql in columns)})"


def _bound(name: str) -> str:
    return "`__START`" if name == "WINDOWSTART" else "`__END`"
