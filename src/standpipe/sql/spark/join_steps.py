"""Joins for which Spark has no streaming operator, as a chain of our own operators.

    stream ⋈ table   LOOKUP    each event with the table's row at its time
    stream ⋈ stream  STREAMS   outer joins, and inner ones of more than two streams
    table  ⋈ table   FOREIGN   on a foreign key of the left table (after CHANGES, which remembers
                               the previous key of a left row)

Each step's result is a relation like any other, so joins can be chained in any combination.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import msgspec

from standpipe.model import SparkInput, SparkStep
from standpipe.sql.functions.cast import spark_name
from standpipe.sql.spark import to_spark
from standpipe.sql.spark.expression_sql import expression_sql, pack, unpack, unpacked
from standpipe.sql.spark.join_scope import ROWKEY, JoinScope, Side, joined_name, over_joined
from standpipe.sql.types.types import parse_type, quoted
from standpipe.sql.types.values import DAY_MS

Fields = list[tuple[str, str]]

#: where a record is in its topic
_POSITION: Final = (("ROWPARTITION", "INT"), ("ROWOFFSET", "BIGINT"))


@dataclass(frozen=True, slots=True)
class _Joined:
    """Rows joined so far. `fields`: their columns; `ids`: those that identify a table's row."""

    text: str
    fields: Fields
    ids: Fields
    is_table: bool
    inputs: tuple[SparkInput, ...]
    steps: tuple[SparkStep, ...]
    positions: bool  # whether rows have the position of each side's record

    def step(self, name: str, operator: str, sql: str, **options: int) -> SparkStep:
        view = f"{name}__J{len(self.steps)}"
        return SparkStep(view=view, operator=operator, sql=sql, options=options)  # pyright: ignore[reportArgumentType]


def chain(scope: JoinScope, table_id: str) -> to_spark.SparkRelation:
    """The relation of joins that are executed from left to right."""
    joined = _first(scope, table_id)
    for index, side in enumerate(scope.sides[1:], start=1):
        view = f"{table_id}__IN{index}"
        is_stream = side.source.kind == "STREAM"
        made = to_spark.spark_input(
            side.source, view, _delay(side) if is_stream else None, keeps_nulls=not is_stream
        )
        if is_stream:
            made = msgspec.structs.replace(made, time_shift_ms=1)
        joined = replace(joined, inputs=(*joined.inputs, made))
        if joined.is_table:
            joined = _foreign(joined, side, view, table_id)
        elif is_stream:
            joined = _streams(joined, side, view, table_id)
        else:
            joined = _lookup(joined, side, view, table_id)
    return to_spark.SparkRelation(
        inputs=joined.inputs,
        text=joined.text,
        has_presence=True,
        is_table=joined.is_table,
        key_names=tuple(name for name, _ in joined.ids),
        steps=joined.steps,
    )


def _delay(side: Side) -> int | None:
    """How long to wait for a stream event's partners, in ms; None: not a stream join."""
    within = side.within
    if within is None:
        return None
    return DAY_MS if within.grace_ms is None else within.grace_ms


def _fields(side: Side, *, positions: bool) -> Fields:
    named = [
        (joined_name(side.alias, column.name), spark_name(parse_type(column.type)))
        for column in side.source.columns
    ]
    if side.source.window is not None:
        named += [(joined_name(side.alias, n), "BIGINT") for n in ("WINDOWSTART", "WINDOWEND")]
    if positions:
        named += [(joined_name(side.alias, name), of) for name, of in _POSITION]
    return [*named, (joined_name(side.alias, "ROWTIME"), "BIGINT")]


def _renamed(side: Side, view: str, *, positions: bool) -> str:
    """One source with its columns under their joined names."""
    names = [column.name for column in side.source.columns]
    if side.source.window is not None:
        names += ["WINDOWSTART", "WINDOWEND"]
    if positions:
        names += [name for name, _ in _POSITION]
    listed = [f"{quoted(n)} AS {quoted(joined_name(side.alias, n))}" for n in [*names, "ROWTIME"]]
    present = "`__PRESENT`" if side.source.kind == "TABLE" else "true"
    return (
        f"(SELECT {', '.join(listed)}, `ROWTIME`, `__ORDER`, `__TS`, {present} AS `__PRESENT`"  # noqa: S608
        f" FROM {quoted(view)})"
    )


def _first(scope: JoinScope, table_id: str) -> _Joined:
    side, second = scope.sides[0], scope.sides[1]
    view = f"{table_id}__IN0"
    is_table = side.source.kind == "TABLE"
    delay = None if is_table else _delay(second)
    made = to_spark.spark_input(side.source, view, delay, keeps_nulls=is_table)
    ids = [
        (joined_name(side.alias, column.name), spark_name(parse_type(column.type)))
        for column in side.source.key_columns
    ]
    positions = scope.has_positions
    text, fields = _renamed(side, view, positions=positions), _fields(side, positions=positions)
    return _Joined(text, fields, ids, is_table, (made,), (), positions)


def _key(expression: str) -> str:
    return f"to_json(struct({expression} AS `c0`), map('ignoreNullFields', 'false'))"


_TIME: Final = ("ROWTIME", "BIGINT")


def _lookup(joined: _Joined, side: Side, view: str, table_id: str) -> _Joined:
    left_fields, right_fields = [*joined.fields, _TIME], _fields(side, positions=joined.positions)
    left_key = expression_sql(over_joined(side.left_key, side.left_alias))
    right = _renamed(side, view, positions=joined.positions)
    right_key = expression_sql(over_joined(side.key, side.alias))
    step = joined.step(
        table_id,
        "LOOKUP",
        f"SELECT {_key(left_key)} AS `__K`, 0 AS `__SIDE`, `__ORDER`, `ROWTIME` AS `__ROWTIME`,"  # noqa: S608
        f" true AS `__LIVE`, {pack(left_fields)} AS `__ROW` FROM {joined.text} UNION ALL"
        f" SELECT {_key(right_key)}, 1, `__ORDER`, `ROWTIME`, `__PRESENT`, {pack(right_fields)}"
        f" FROM {right}",
    )
    where = " WHERE `__RIGHT` IS NOT NULL" if side.kind == "INNER" else ""
    columns = [*unpacked("`__L`", left_fields), *unpacked("`__R`", right_fields)]
    text = _result(
        step, left_fields, right_fields, columns=columns, key=left_key, present="true", where=where
    )
    fields = [*joined.fields, *right_fields]
    return replace(joined, text=text, fields=fields, steps=(*joined.steps, step))


def _streams(joined: _Joined, side: Side, view: str, table_id: str) -> _Joined:
    within = side.within
    assert within is not None
    left_fields, right_fields = [*joined.fields, _TIME], _fields(side, positions=joined.positions)
    left_key = expression_sql(over_joined(side.left_key, side.left_alias))
    right_key = expression_sql(over_joined(side.key, side.alias))
    right = _renamed(side, view, positions=joined.positions)
    step = joined.step(
        table_id,
        "STREAMS",
        # right side first: a union has the watermark of its first part
        f"SELECT {_key(right_key)} AS `__K`, `__TS`, 1 AS `__SIDE`, `__ORDER`,"  # noqa: S608
        f" `ROWTIME` AS `__ROWTIME`, {pack(right_fields)} AS `__ROW` FROM {right}"
        f" WHERE {right_key} IS NOT NULL{_or_kept(side, 'RIGHT')} UNION ALL"
        f" SELECT {_key(left_key)}, timestamp_millis(`ROWTIME` + 1), 0, `__ORDER`, `ROWTIME`,"
        f" {pack(left_fields)} FROM {joined.text}"
        f" WHERE {left_key} IS NOT NULL{_or_kept(side, 'LEFT')}",
        before_ms=within.before_ms,
        after_ms=within.after_ms,
        grace_ms=-1 if within.grace_ms is None else within.grace_ms,
        keeps_left=int(side.kind in ("LEFT", "FULL")),
        keeps_right=int(side.kind in ("RIGHT", "FULL")),
    )
    columns = [
        *unpacked("`__L`", joined.fields),
        *unpacked("`__R`", right_fields),
        "`__ROWTIME` AS `ROWTIME`",
    ]
    key = f"coalesce({left_key}, {right_key})"
    text = _result(step, left_fields, right_fields, columns=columns, key=key, present="true")
    fields = [*joined.fields, *right_fields]
    return replace(joined, text=text, fields=fields, steps=(*joined.steps, step))


def _or_kept(side: Side, which: str) -> str:
    """An event without a key has no partner; an outer join keeps it."""
    return " OR true" if side.kind in (which, "FULL") else ""


def _foreign(joined: _Joined, side: Side, view: str, table_id: str) -> _Joined:
    left_fields, right_fields = [*joined.fields, _TIME], _fields(side, positions=joined.positions)
    left_key = expression_sql(over_joined(side.left_key, side.left_alias))
    right_key = expression_sql(over_joined(side.key, side.alias))
    right = _renamed(side, view, positions=joined.positions)
    changes = joined.step(
        table_id,
        "CHANGES",
        f"SELECT {pack(joined.ids)} AS `__K`, `__ORDER`, `ROWTIME` AS `__ROWTIME`,"  # noqa: S608
        f" `__PRESENT` AS `__LIVE`, {pack(left_fields)} AS `__ROW` FROM {joined.text}",
    )
    joined = replace(joined, steps=(*joined.steps, changes))
    unfolded = ", ".join(unpacked("`__U`", left_fields))
    step = joined.step(
        table_id,
        "FOREIGN",
        f"SELECT {_key(left_key)} AS `__K`, 0 AS `__SIDE`, `__SIGN`, `__STAYS`, true AS `__LIVE`,"  # noqa: S608
        f" ({left_key} IS NULL) AS `__LOOSE`, `__ID`, `__ORDER`, `__ROWTIME`, `__ROW` FROM"
        f" (SELECT *, {unfolded} FROM (SELECT `__K` AS `__ID`, `__SIGN`, `__STAYS`, `__ORDER`,"
        f" `__ROWTIME`, `__ROW`, {unpack('`__ROW`', left_fields)} AS `__U`"
        f" FROM {quoted(changes.view)})) UNION ALL"
        f" SELECT {_key(right_key)}, 1, 0L, false, `__PRESENT`, false, CAST(NULL AS STRING),"
        f" `__ORDER`, `ROWTIME`, {pack(right_fields)} FROM {right}",
    )
    names = {name for name, _ in joined.ids}
    own = [
        column
        for column, (name, _) in zip(unpacked("`__L`", joined.fields), joined.fields, strict=True)
        if name not in names
    ]
    columns = [
        *unpacked("`__I`", joined.ids),
        *own,
        *unpacked("`__R`", right_fields),
        "`__ROWTIME` AS `ROWTIME`",
    ]
    present = "`__LEFT` IS NOT NULL"
    if side.kind == "INNER":
        present += " AND `__RIGHT` IS NOT NULL"
    key = quoted(joined.ids[0][0])
    text = _result(
        step, left_fields, right_fields, columns=columns, key=key, present=present, ids=joined.ids
    )
    fields = [*joined.fields, *right_fields]
    return replace(joined, text=text, fields=fields, steps=(*joined.steps, step))


def _result(
    step: SparkStep,
    left: Fields,
    right: Fields,
    *,
    columns: list[str],
    key: str,
    present: str,
    where: str = "",
    ids: Fields | None = None,
) -> str:
    """The relation that a join step produces."""
    identity = "" if ids is None else f", {unpack('`__ID`', ids)} AS `__I`"
    return (
        f"(SELECT *, {key} AS {quoted(ROWKEY)}, timestamp_millis(`ROWTIME`) AS `__TS` FROM"  # noqa: S608
        f" (SELECT {', '.join(columns)}, `__ORDER`, ({present}) AS `__PRESENT`"
        f" FROM (SELECT *, {unpack('`__LEFT`', left)} AS `__L`,"
        f" {unpack('`__RIGHT`', right)} AS `__R`{identity} FROM {quoted(step.view)}{where})))"
    )
