"""Queries that need more state than Spark SQL keeps: aggregations over tables, session windows.

    relation → changes per key → all rows of the groups that changed → GROUP BY over the batch

The first steps are our own operators (`data/operators/keyed.py`). The aggregation itself is plain
Spark SQL over a batch's rows (`SparkPlan.batch_sql`), so each aggregate means the same as over a
stream. All rows of a group are available, so no aggregate has to subtract a row.
"""

from __future__ import annotations

from typing import Final

import msgspec

from standpipe.model import SparkPlan, SparkStep
from standpipe.sql.functions.cast import spark_name
from standpipe.sql.spark import stream_time
from standpipe.sql.spark.expression_sql import (
    condition_sql,
    expression_sql,
    pack,
    unpack,
    unpacked,
)
from standpipe.sql.spark.to_spark import STEPS_VERSION, Aggregation, key_name
from standpipe.sql.types.typed_expression import (
    Aggregate,
    Typed,
    TypedColumn,
    WindowBound,
    columns_in,
    rewrite,
)
from standpipe.sql.types.types import quoted

_BOUNDS: Final = ("WINDOWSTART", "WINDOWEND")


def emit_table_aggregation(aggregation: Aggregation, table_id: str) -> SparkPlan:
    """GROUP BY over a table. A group that loses its last row stays, with a count of 0 (ksqlDB)."""
    relation = aggregation.relation
    ids = pack([(name, "") for name in relation.key_names])
    present = ["`__PRESENT`", *_grouped(aggregation)]
    if aggregation.where is not None:
        present.append(f"coalesce({condition_sql(aggregation.where)}, false)")
    changes = SparkStep(
        view=f"{table_id}__CHANGES",
        operator="CHANGES",
        sql=f"SELECT {ids} AS `__K`, `__ORDER`, `ROWTIME` AS `__ROWTIME`,"  # noqa: S608 - escaped
        f" ({' AND '.join(present)}) AS `__LIVE`, {pack(_kept(aggregation))} AS `__ROW`"
        f" FROM ({_computed(aggregation)})",
    )
    # the kept row contains its group
    keys = _keys(aggregation)
    group = f"{unpack('`__ROW`', _kept(aggregation))} AS `__U`"
    shown = ", ".join(unpacked("`__U`", keys))
    members = SparkStep(
        view=f"{table_id}__MEMBERS",
        operator="MEMBERS",
        sql=f"SELECT {pack(keys)} AS `__K`, `__ID`, `__ORDER`, `__ROWTIME`, `__SIGN`, `__ROW`"  # noqa: S608
        f" FROM (SELECT *, {shown} FROM (SELECT `__K` AS `__ID`, `__ORDER`, `__ROWTIME`,"
        f" `__SIGN`, `__ROW`, {group} FROM {quoted(changes.view)}))",
    )
    return SparkPlan(
        version=STEPS_VERSION,
        inputs=relation.inputs,
        steps=(*relation.steps, changes, members),
        sql=f"SELECT * FROM {quoted(members.view)}",  # noqa: S608
        batch_sql=_group_sql(aggregation),
        output_mode="update",
        is_windowed=False,
    )


def emit_sessions(aggregation: Aggregation, table_id: str) -> SparkPlan:
    """WINDOW SESSION: a session that grows gets a new key, so its previous row is deleted."""
    window = aggregation.window
    assert window is not None
    wanted = _grouped(aggregation)
    if aggregation.where is not None:
        wanted.append(condition_sql(aggregation.where))
    rows = f"({_computed(aggregation)}) WHERE {' AND '.join(wanted)}"
    options, time = {"gap_ms": window.size_ms}, ""
    if aggregation.relation.is_ordered:
        options |= {"grace_ms": window.grace_ms, "retention_ms": window.retention_ms}
        rows, time = f"({stream_time.timed_sql(rows)})", f" {stream_time.STREAM_TIME},"
    step = SparkStep(
        view=f"{table_id}__SESSIONS",
        operator="SESSIONS",
        sql=f"SELECT {pack(_keys(aggregation))} AS `__K`, `__TS`, `__ORDER`,{time}"  # noqa: S608
        f" `ROWTIME` AS `__ROWTIME`, {pack(_kept(aggregation))} AS `__ROW` FROM {rows}",
        options=options | ({"is_final": 1} if aggregation.is_final else {}),
    )
    inputs = tuple(
        msgspec.structs.replace(each, time_shift_ms=1)
        if each.watermark_delay_ms is not None
        else each
        for each in aggregation.relation.inputs
    )
    return SparkPlan(
        version=STEPS_VERSION,
        inputs=inputs,
        steps=(*aggregation.relation.steps, step),
        sql=f"SELECT * FROM {quoted(step.view)}",  # noqa: S608
        batch_sql=_session_sql(aggregation),
        output_mode="append" if aggregation.is_final else "update",
        is_windowed=True,
    )


def _keys(aggregation: Aggregation) -> list[tuple[str, str]]:
    return [
        (key_name(index), spark_name(typed.type))
        for index, (_, typed) in enumerate(aggregation.keys)
    ]


def _grouped(aggregation: Aggregation) -> list[str]:
    """Conditions for a row to be in a group: no grouping expression is null."""
    return [f"{quoted(name)} IS NOT NULL" for name, _ in _keys(aggregation)]


def _computed(aggregation: Aggregation) -> str:
    """The relation's rows with the grouping expressions as columns."""
    computed = ", ".join(
        f"{expression_sql(typed)} AS {quoted(key_name(index))}"
        for index, (_, typed) in enumerate(aggregation.keys)
    )
    return f"SELECT *, {computed} FROM {aggregation.relation.text}"  # noqa: S608 - escaped


def _used(aggregation: Aggregation) -> list[tuple[str, str]]:
    """Columns that the aggregates read, and the arrival order."""
    typed = [each for _, each in aggregation.values]
    if aggregation.having is not None:
        typed.append(aggregation.having)
    grouping = {each for _, each in aggregation.keys}
    found: set[TypedColumn] = set()

    def look(node: Typed) -> Typed | None:
        if node in grouping:
            return node
        if isinstance(node, TypedColumn):
            found.add(node)
        return None

    for each in typed:
        rewrite(each, look)
    for each in typed:
        found |= _inside_aggregates(each)
    columns = sorted((each.name, spark_name(each.type)) for each in found)
    return [("__ORDER", "BIGINT"), *columns]


def _inside_aggregates(typed: Typed) -> set[TypedColumn]:
    found: set[TypedColumn] = set()

    def look(node: Typed) -> Typed | None:
        if isinstance(node, Aggregate):
            found.update(columns_in(node))
            return node
        return None

    rewrite(typed, look)
    return found


def _kept(aggregation: Aggregation) -> list[tuple[str, str]]:
    """The columns that are kept of a row, starting with its group."""
    return [*_keys(aggregation), *_used(aggregation)]


def _batch_rows(aggregation: Aggregation) -> str:
    """The batch's rows, with their columns unpacked from text."""
    keys, kept = _keys(aggregation), _kept(aggregation)
    bounds = "".join(f"{quoted(name)}, " for name in _BOUNDS) if aggregation.window else ""
    names = ", ".join([*unpacked("`__G`", keys), *unpacked("`__U`", kept)[len(keys) :]])
    return (
        f"SELECT {bounds}`__ROWTIME`, `__MEMBER`, {names} FROM (SELECT *,"  # noqa: S608 - escaped
        f" {unpack('`__K`', keys)} AS `__G`, {unpack('`__ROW`', kept)} AS `__U` FROM `__BATCH`)"
    )


def _outputs(aggregation: Aggregation) -> tuple[list[tuple[str, Typed]], Typed | None]:
    """Values and HAVING over the batch's columns, which include the grouping expressions."""
    grouping = {typed: key_name(index) for index, (_, typed) in enumerate(aggregation.keys)}

    def use_key(node: Typed) -> Typed | None:
        if isinstance(node, WindowBound):
            return TypedColumn(node.type, node.name)
        if isinstance(node, Aggregate):
            return node
        return TypedColumn(node.type, grouping[node]) if node in grouping else None

    values = [(name, rewrite(typed, use_key)) for name, typed in aggregation.values]
    having = aggregation.having
    return values, None if having is None else rewrite(having, use_key)


def _live(having: Typed | None) -> str:
    return "true" if having is None else f"coalesce({condition_sql(having)}, false)"


def _selected(values: list[tuple[str, Typed]]) -> list[str]:
    return [f"{expression_sql(typed)} AS {quoted(name)}" for name, typed in values]


def _group_sql(aggregation: Aggregation) -> str:
    """The groups that have rows, and those that no longer have any."""
    keys = [quoted(name) for name, _ in _keys(aggregation)]
    taken = ", ".join(keys)
    shown = [f"{key} AS {quoted(n)}" for key, (n, _) in zip(keys, aggregation.keys, strict=True)]
    values, having = _outputs(aggregation)
    aggregates: list[Typed] = []

    def of_nothing(node: Typed) -> Typed | None:
        if not isinstance(node, Aggregate):
            return None
        if node not in aggregates:
            aggregates.append(node)
        return TypedColumn(node.type, f"__A{aggregates.index(node)}")

    bare = [(name, rewrite(typed, of_nothing)) for name, typed in values]
    bare_having = None if having is None else rewrite(having, of_nothing)
    zero = ", ".join(f"{expression_sql(each)} AS `__A{i}`" for i, each in enumerate(aggregates))
    rows = _batch_rows(aggregation)
    return (
        f"SELECT {', '.join([*shown, *_selected(values)])}, max(`__ROWTIME`) AS `__ROWTIME`,"  # noqa: S608
        f" {_live(having)} AS `__LIVE` FROM ({rows}) WHERE `__MEMBER` GROUP BY {taken} UNION ALL"
        f" SELECT {', '.join([*shown, *_selected(bare)])}, `__ROWTIME`, {_live(bare_having)}"
        f" AS `__LIVE` FROM (SELECT {taken}, `__ROWTIME` FROM ({rows}) WHERE NOT `__MEMBER`)"
        f" CROSS JOIN (SELECT {zero} FROM ({rows}) WHERE false)"
    )


def _session_sql(aggregation: Aggregation) -> str:
    keys = [quoted(name) for name, _ in _keys(aggregation)]
    bounds = [quoted(name) for name in _BOUNDS]
    shown = [f"{key} AS {quoted(n)}" for key, (n, _) in zip(keys, aggregation.keys, strict=True)]
    values, having = _outputs(aggregation)
    return (
        f"SELECT {', '.join([*shown, *bounds, *_selected(values)])},"  # noqa: S608 - escaped
        f" max(`__ROWTIME`) AS `__ROWTIME`, (bool_or(`__MEMBER`) AND {_live(having)}) AS `__LIVE`"
        f" FROM ({_batch_rows(aggregation)}) GROUP BY {', '.join([*keys, *bounds])}"
    )
