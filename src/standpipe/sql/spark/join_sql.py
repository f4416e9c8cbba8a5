"""Joins in Spark SQL: rows whose columns are ALIAS_COLUMN, with ROWTIME, ROWKEY and `__PRESENT`.

Two streams: Spark's own stream join, within the time of WITHIN. Tables on their primary keys: the
union of their changelogs, grouped by key, with the latest row of each side; the result is a
deletion if a required side is missing. Other joins: `join_steps.py`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from standpipe.sql.expressions.scope import PSEUDO
from standpipe.sql.spark import join_steps, to_spark
from standpipe.sql.spark.expression_sql import expression_sql, spark_type
from standpipe.sql.spark.join_scope import ROWKEY, JoinScope, Side, joined_name
from standpipe.sql.spark.select_items import NamedColumns
from standpipe.sql.types.typed_expression import TypedColumn
from standpipe.sql.types.types import quoted
from standpipe.sql.types.values import DAY_MS

_BOUNDS: Final = ("WINDOWSTART", "WINDOWEND")


def join_relation(scope: JoinScope, table_id: str) -> to_spark.SparkRelation:
    """The relation of a whole join."""
    views = [f"{table_id}__IN{index}" for index in range(len(scope.sides))]
    kinds = {side.source.kind for side in scope.sides}
    if kinds == {"STREAM"} and [side.kind for side in scope.sides[1:]] == ["INNER"]:
        return _streams(scope, views)
    if kinds == {"TABLE"} and scope.is_on_one_key:
        return _tables(scope, views)
    return join_steps.chain(scope, table_id)


def join_keys(keys: NamedColumns) -> NamedColumns:
    """The join key, from ROWKEY: a side's own column is NULL if its row is deleted."""
    return tuple((name, TypedColumn(typed.type, ROWKEY)) for name, typed in keys)


def _columns(side: Side, prefix: str) -> list[str]:
    """The side's columns and pseudo columns, read from `prefix`, under their joined names."""
    names = [*(column.name for column in side.source.columns), *PSEUDO]
    if side.source.window is not None:
        names += _BOUNDS
    return [f"{prefix}{quoted(name)} AS {quoted(joined_name(side.alias, name))}" for name in names]


def _streams(scope: JoinScope, views: list[str]) -> to_spark.SparkRelation:
    """Two streams. State is kept for the window plus grace, by default a day as in ksqlDB."""
    left, right = scope.sides
    within = right.within
    assert within is not None
    delay = within.grace_ms if within.grace_ms is not None else DAY_MS
    # shifted by 1 ms: Spark's join drops events that are not after its first watermark, the epoch
    inputs = tuple(
        msgspec.structs.replace(to_spark.spark_input(side.source, view, delay), time_shift_ms=1)
        for side, view in zip(scope.sides, views, strict=True)
    )
    keys = [
        f"SELECT *, {expression_sql(side.key)} AS `__JK` FROM {quoted(view)}"  # noqa: S608
        for side, view in zip(scope.sides, views, strict=True)
    ]
    columns = ", ".join([*_columns(left, "`__L`."), *_columns(right, "`__R`.")])
    after, before = within.after_ms, within.before_ms
    # the window is part of a windowed key
    is_windowed = left.source.window is not None and right.source.window is not None
    bounds = "".join(f" `__L`.{quoted(name)}," for name in _BOUNDS) if is_windowed else ""
    same = "".join(f" AND `__L`.{quoted(n)} = `__R`.{quoted(n)}" for n in _BOUNDS)
    text = (
        f"(SELECT {columns},{bounds} `__L`.`__JK` AS {quoted(ROWKEY)},"  # noqa: S608 - escaped
        " greatest(`__L`.`ROWTIME`, `__R`.`ROWTIME`) AS `ROWTIME`, true AS `__PRESENT`,"
        " timestamp_millis(greatest(`__L`.`ROWTIME`, `__R`.`ROWTIME`)) AS `__TS`,"
        " greatest(`__L`.`__ORDER`, `__R`.`__ORDER`) AS `__ORDER`"
        f" FROM ({keys[0]}) AS `__L` JOIN ({keys[1]}) AS `__R` ON `__L`.`__JK` = `__R`.`__JK`"
        f"{same if is_windowed else ''}"
        f" AND `__R`.`__TS` >= `__L`.`__TS` - INTERVAL '{before / 1000}' SECOND"
        f" AND `__R`.`__TS` <= `__L`.`__TS` + INTERVAL '{after / 1000}' SECOND)"
    )
    return to_spark.SparkRelation(
        inputs, text, has_presence=True, has_state=True, has_window=is_windowed
    )


def _tables(scope: JoinScope, views: list[str]) -> to_spark.SparkRelation:
    inputs = tuple(
        to_spark.spark_input(side.source, view, keeps_nulls=True)
        for side, view in zip(scope.sides, views, strict=True)
    )
    rows = " UNION ALL ".join(_changes(scope, index, views[index]) for index in range(len(views)))
    grouped = ", ".join(
        f"max_by(`__S{index}`, `__ORDER`) FILTER (WHERE `__SIDE` = {index}) AS `__S{index}`"
        for index in range(len(views))
    )
    latest = f"SELECT `__JK`, max(`__ORDER`) AS `__ORDER`, {grouped} FROM ({rows}) GROUP BY `__JK`"  # noqa: S608 - escaped
    columns: list[str] = []
    for index, side in enumerate(scope.sides):
        columns += _present_columns(side, index)
    times = ", ".join(f"`__S{index}`.`ROWTIME`" for index in range(len(views)))
    text = (
        f"(SELECT {', '.join(columns)}, `__JK` AS {quoted(ROWKEY)}, `__ORDER`,"  # noqa: S608 - escaped
        f" greatest({times}, {times}) AS `ROWTIME`, {_presence(scope)} AS `__PRESENT`"
        f" FROM ({latest}))"
    )
    return to_spark.SparkRelation(
        inputs, text, has_presence=True, is_table=True, key_names=(ROWKEY,), has_state=True
    )


def _changes(scope: JoinScope, index: int, view: str) -> str:
    """One side's changelog: its rows in the side's struct, the other structs null."""
    structs: list[str] = []
    for other, side in enumerate(scope.sides):
        names = [*(column.name for column in side.source.columns), "ROWTIME", "__PRESENT"]
        made = f"struct({', '.join(map(quoted, names))})"
        if other != index:
            made = f"CAST(NULL AS {_struct_type(side)})"
        structs.append(f"{made} AS `__S{other}`")
    key = expression_sql(scope.sides[index].key)
    return (
        f"SELECT {key} AS `__JK`, {index} AS `__SIDE`, `__ORDER`, {', '.join(structs)}"  # noqa: S608
        f" FROM {quoted(view)}"
    )


def _struct_type(side: Side) -> str:
    fields = [f"{quoted(column.name)}: {spark_type(column.type)}" for column in side.source.columns]
    return f"STRUCT<{', '.join([*fields, '`ROWTIME`: BIGINT', '`__PRESENT`: BOOLEAN'])}>"


def _present_columns(side: Side, index: int) -> list[str]:
    """The side's columns, NULL if its row was deleted or never existed."""
    names = [*(column.name for column in side.source.columns), "ROWTIME"]
    return [
        f"if(`__S{index}`.`__PRESENT`, `__S{index}`.{quoted(name)}, NULL)"
        f" AS {quoted(joined_name(side.alias, name))}"
        for name in names
    ]


def _presence(scope: JoinScope) -> str:
    """Whether the joined row exists, evaluated join by join from the left."""
    made = "coalesce(`__S0`.`__PRESENT`, false)"
    for index, side in enumerate(scope.sides[1:], start=1):
        own = f"coalesce(`__S{index}`.`__PRESENT`, false)"
        made = {
            "INNER": f"({made} AND {own})",
            "LEFT": made,
            "RIGHT": own,
            "FULL": f"({made} OR {own})",
        }[side.kind]
    return made
