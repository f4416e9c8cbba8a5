"""What a persistent query must not contain, with ksqlDB's texts, and its window's defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from standpipe.model import Source, Window
from standpipe.sql.declarations.direct import SPARK, check_readable
from standpipe.sql.functions import registry
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast_statements import CreateAs, Creation
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types.values import DAY_MS

#: Windows that one event belongs to. Spark makes a row, and a part of its plan, for each of them:
#: a day that advances by a second would end the driver before the first batch.
WINDOWS_OF_AN_EVENT_MAX: Final = 2_500


def window_of(clause: ast.WindowClause) -> Window:
    """Defaults of ksqlDB: grace = max(24 h - size, 0), retention = size + grace. Raises
    StatementError for bounds that do not fit each other, or that Spark cannot compute."""
    size_ms = clause.size_ms
    advance_ms = clause.advance_ms
    if clause.kind != "SESSION" and not 0 < advance_ms <= size_ms:
        raise refusal("A window's SIZE must be above 0 and its ADVANCE in 1..SIZE.", clause.at)
    if clause.kind == "HOPPING" and -(-size_ms // advance_ms) > WINDOWS_OF_AN_EVENT_MAX:
        raise refusal(
            f"Each event would be in {-(-size_ms // advance_ms)} windows;"
            f" {WINDOWS_OF_AN_EVENT_MAX} are allowed. Raise ADVANCE BY, or lower SIZE.",
            clause.at,
        )
    grace_ms = max(DAY_MS - size_ms, 0) if clause.grace_ms is None else clause.grace_ms
    retention_ms = clause.retention_ms
    if retention_ms is not None and retention_ms < size_ms + grace_ms:
        raise refusal(
            "The retention period of the window must be no smaller than its size plus the grace"
            f" period. Got size=[{size_ms}], grace=[{grace_ms}], retention=[{retention_ms}] (ms).",
            clause.at,
        )
    return Window(
        kind=clause.kind,
        size_ms=size_ms,
        advance_ms=clause.advance_ms,
        grace_ms=grace_ms,
        retention_ms=size_ms + grace_ms if retention_ms is None else retention_ms,
    )


def refuse_clauses(statement: CreateAs) -> None:
    """Refuses clauses that a persistent query does not support, alone or in combination."""
    creation, query = statement.creation, statement.query
    if query.limit is not None:
        raise refusal(
            f"CREATE {creation.kind} AS SELECT statements don't support LIMIT clause.", query.at
        )
    if query.order_by is not None:
        raise refusal("ORDER BY is for pull queries: a topic has no such order.", query.at)
    if query.window is not None and not query.group_by:
        raise refusal("WINDOW clause requires a GROUP BY clause.", query.window.at)
    if query.having is not None and not query.group_by:
        raise refusal("HAVING requires a GROUP BY clause.", query.at)
    if query.partition_by and query.group_by:
        raise refusal("Queries only support one of PARTITION BY and GROUP BY", query.at)
    if query.emit == "FINAL" and query.window is None:
        raise refusal("EMIT FINAL is only supported for windowed aggregations.", query.at)


def check_is_no_source(creation: Creation) -> None:
    """Refuses CREATE SOURCE … AS SELECT, which ksqlDB's grammar does not have: it would be written
    by a query, and a source stream or table is written by others alone."""
    if creation.is_source:
        raise refusal(
            f"CREATE SOURCE {creation.kind} has no AS SELECT: other programs write what it reads."
            " Leave out SOURCE.",
            creation.at,
        )


def check_source(source: Source, statement: CreateAs) -> None:
    """Refuses a source that Spark cannot read, and clauses that do not fit its kind, window or
    format."""
    query = statement.query
    check_readable(source, SPARK, query.relation.at)
    if query.window is not None and source.kind == "TABLE":
        raise refusal("Windowing not supported for table aggregations.", query.window.at)
    if source.window is not None and source.kind == "TABLE":
        raise refusal("KSQL does not support persistent queries on windowed tables.", query.at)
    if query.partition_by and source.kind == "TABLE" and not _is_by_key(query, source):
        raise refusal(_no_other_key(source, query), query.at, hint="Use GROUP BY.")
    if source.kind == "TABLE" and not query.group_by:  # with it, they are refused anywhere
        _refuse_table_functions(query)
    if source.value_format == "KAFKA" and query.group_by:
        raise refusal(
            f"Source(s) {source.name} are using the 'KAFKA' value format. This format does not yet"
            " support GROUP BY.\nUse a different value format.",
            query.relation.at,
        )


def without_own_key(query: ast.Query, source: Source) -> ast.Query:
    """The query without a PARTITION BY of the key that the rows of a table have already."""
    is_own = source.kind == "TABLE" and _is_by_key(query, source)
    return replace(query, partition_by=()) if is_own else query


def _is_by_key(query: ast.Query, source: Source) -> bool:
    by = [each.name if isinstance(each, ast.ColumnName) else None for each in query.partition_by]
    return by == [column.name for column in source.key_columns]


def _no_other_key(table: Source, query: ast.Query) -> str:
    """ksqlDB's message (SchemaKTable.selectKey)."""
    names = [column.name for column in table.key_columns]
    if len(names) > 1:
        why = "joins on tables with multiple columns is not yet supported."
        return f"Cannot repartition a TABLE source. If this is a join, {why}"
    by = ", ".join(map(expression_text, query.partition_by))
    return (
        "Cannot repartition a TABLE source. If this is a join, make sure that the criteria uses the"
        f" TABLE's key column {names[0]} instead of [{by}]"
    )


def _refuse_table_functions(query: ast.Query) -> None:
    """A table function makes many rows of one; over a table they would have one key."""
    for node, _ in ast.walk(query.items):
        if isinstance(node, ast.FunctionCall) and registry.is_table_function(node.name):
            raise refusal(
                "Table source is not supported with table functions",
                node.at,
                hint="Declare a stream over the table's topic, and read that.",
            )


#: aggregates whose state is more than one plain value
_NESTED_STATE: Final = frozenset(
    {
        *("AVG", "EARLIEST_BY_OFFSET", "LATEST_BY_OFFSET"),
        *("COLLECT_LIST", "COLLECT_SET", "TOPK", "TOPKDISTINCT", "HISTOGRAM", "CORRELATION"),
        *("STDDEV_SAMP", "STDDEV_SAMPLE", "ATTR", "COUNT_DISTINCT"),
    }
)


def check_intermediate(query: ast.Query, source: Source, at: ast.Position) -> None:
    """ksqlDB keeps an aggregate's state in the value format of the first source, so DELIMITED
    cannot have these. Our state is Spark's, but we refuse them too, so that statements mean the
    same in both."""
    if not query.group_by or source.value_format != "DELIMITED":
        return
    nodes = [item.expression for item in query.items if isinstance(item, ast.SelectItem)]
    if query.having is not None:
        nodes.append(query.having)
    calls = [
        each for node in nodes for each, _ in ast.walk(node) if isinstance(each, ast.FunctionCall)
    ]
    if any(call.name in _NESTED_STATE for call in calls):
        raise refusal(
            "One of the functions used in the statement has an intermediate type that the value"
            " format can not handle. Please remove the function or change the format.",
            at,
        )


def check_undoable(query: ast.Query) -> None:
    """Refuses aggregates that ksqlDB cannot undo when a table's row changes or is deleted."""
    nodes = [item.expression for item in query.items if isinstance(item, ast.SelectItem)]
    if query.having is not None:
        nodes.append(query.having)
    calls = [
        each for node in nodes for each, _ in ast.walk(node) if isinstance(each, ast.FunctionCall)
    ]
    names = [call.name for call in calls if not registry.is_on_tables(call.name)]
    if names:
        *most, last = dict.fromkeys(names)
        listed = f"s {', '.join(most)} and {last}" if most else f" {last}"
        raise refusal(
            f"The aggregation function{listed} cannot be applied to a table source, only to a"
            " stream source.",
            query.at,
        )


def check_windows(result: Window | None, target: Source, at: ast.Position) -> None:
    """Refuses INSERT INTO of rows whose keys have other windows than those of the stream: nobody
    could read them there."""
    if _window_text(result) != _window_text(target.window):
        raise refusal(
            f"Cannot insert into {target.name}: its keys are {_window_text(target.window)}, those"
            f" of the query are {_window_text(result)}.",
            at,
        )


def _window_text(window: Window | None) -> str:
    if window is None:
        return "not windowed"
    return "SESSION windowed" if window.kind == "SESSION" else f"windowed ({window.size_ms} ms)"


def is_by_null(query: ast.Query) -> bool:
    """Whether it says PARTITION BY NULL: the result has no key."""
    return [getattr(each, "kind", "") for each in query.partition_by] == ["NULL"]


def check_not_repartitioned(query: ast.Query, sources: Sequence[Source]) -> None:
    """Refuses PARTITION BY over windowed keys: a new key would have no window (SchemaKStream)."""
    if query.partition_by and any(source.window for source in sources):
        raise refusal(
            "Implicit repartitioning of windowed sources is not supported. See"
            " https://github.com/confluentinc/ksql/issues/4385.",
            query.partition_by[0].at,
        )


def check_kind(statement: CreateAs, source: Source, *, is_insert: bool = False) -> None:
    """Refuses, with ksqlDB's text, CREATE STREAM for a result that is a table, and vice versa.
    `is_insert`: the result is inserted into the stream."""
    made = "TABLE" if statement.query.group_by or source.kind == "TABLE" else "STREAM"
    if made == statement.creation.kind:
        return
    if is_insert:
        raise refusal(
            f"Incompatible data sink and query result. Data sink ({statement.creation.name}) type"
            f" is K{statement.creation.kind} but select query result is K{made}.",
            statement.creation.at,
        )
    if statement.creation.kind == "STREAM":
        raise refusal(
            "Invalid result type. Your SELECT query produces a TABLE. Please use CREATE TABLE AS"
            " SELECT statement instead.",
            statement.creation.at,
        )
    raise refusal(
        "Invalid result type. Your SELECT query produces a STREAM. Please use CREATE STREAM AS"
        " SELECT statement instead.",
        statement.creation.at,
    )
