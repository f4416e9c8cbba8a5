"""SELECT … EMIT CHANGES → PushPlan: one source, row by row, until the client disconnects; PRINT.

A push query with an aggregate, or a clause that needs state (GROUP BY, JOIN, WINDOW, HAVING,
PARTITION BY, EMIT FINAL), gets a transient query of Spark (`sql.spark.transient`), and is then one
on what that writes. Below its feature level, such clauses are refused; the message says to use a
persistent query.
Source: ksqlDB's documentation, "Push queries".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final, cast

from standpipe.errors import NotComputable, StatementError
from standpipe.model import Source
from standpipe.sql.declarations.checks import check_topic_name
from standpipe.sql.declarations.direct import PUSH, check_readable
from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.expressions.evaluator_functions import has_costly_rows
from standpipe.sql.expressions.scope import PSEUDO, find_source
from standpipe.sql.expressions.statement_values import Draw
from standpipe.sql.functions.registry import is_aggregate
from standpipe.sql.lookup import exploded
from standpipe.sql.lookup.columns import Cell, PullNames, Shown, shown_columns
from standpipe.sql.plans import PrintPlan, PushPlan, TransientPlan
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast import Query
from standpipe.sql.syntax.ast_statements import PrintTopic
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types.types import quoted
from standpipe.topics import TopicRules

_KIND: Final = "a push query"
#: of a push query that is only explained or checked
EXAMPLE_ID: Final = "transient_0"


@dataclass(frozen=True, slots=True)
class PushNames(PullNames):
    """Names of one record of a source: as in a pull query, plus its position in the topic."""

    pseudo = tuple(PSEUDO.items())
    marks_keys = False


def undrawn(name: str) -> object:
    """In place of values, for a push query that is only explained or checked."""
    raise NotComputable(f"{name}() has no value here.")


def push(query: Query, sources: Mapping[str, Source], draw: Draw = undrawn) -> PushPlan:
    """`draw`: the values of RANDOM(), UUID() and the clock, for each row. Raises StatementError
    with positions in the whole text."""
    source = find_source(query.relation.name, sources, query.relation.at)
    check_readable(source, PUSH, query.relation.at)
    _refuse_state(query, source)
    names = PushNames.of(source, query.relation.alias)
    where = query.where
    arrays: tuple[Cell, ...] = ()
    picked: PullNames = names
    if exploded.has_calls(query):
        query, picked, arrays = exploded.without_calls(query, names, _KIND, draw)
    shown = shown_columns(query, picked, Evaluator(picked, "SELECT", _KIND, draw))
    evaluator = Evaluator(names, "WHERE", _KIND, draw)
    condition = None if where is None else evaluator.condition(where)
    keys = set(range(names.key_count))
    return PushPlan(
        source=source,
        schema=shown.schema,
        column_names=shown.names,
        column_types=shown.types,
        cells=_cells(shown, names),
        key_cells=tuple(index in keys for index in shown.indices),
        arrays=arrays,
        where=condition,
        is_left=source.kind == "TABLE" and not _reads_only(where, names, keys),
        has_costly_rows=has_costly_rows((query.items, where)),
        limit=_limit(query.limit),
    )


def pushed(plan: TransientPlan, limit: ast.LiteralValue | None) -> PushPlan:
    """A push query that needs Spark, as one over what its transient query writes."""
    names = PushNames.of(plan.source, None)
    picked = [(label, names.index_of(column)) for label, column in plan.shown]
    found = [(label, index) for label, index in picked if index is not None]
    types = [names.type_of(index) for _, index in found]
    pairs = zip(found, types, strict=True)
    return PushPlan(
        source=plan.source,
        schema=", ".join(f"{quoted(label)} {of}" for (label, _), of in pairs),
        column_names=tuple(label for label, _ in found),
        column_types=tuple(map(str, types)),
        cells=tuple(itemgetter(index) for _, index in found),
        key_cells=tuple(index < names.key_count for _, index in found),
        limit=_limit(limit),
    )


def needs_spark(query: Query) -> bool:
    """Whether a push query needs state that Spark keeps: it then has a query of its own."""
    return any(_clauses(grouped(query)).values())


def grouped(query: Query) -> Query:
    """The query; with an aggregate in its SELECT list and no GROUP BY, all rows are one group, as
    if it said GROUP BY 1. Source: ksqlDB pull request 8986; only push queries may leave it out."""
    if query.group_by or not _aggregates(query.items):
        return query
    return replace(query, group_by=(ast.LiteralValue(query.at, "INTEGER", 1, "1"),))


def _aggregates(parts: object) -> list[ast.FunctionCall]:
    calls = (node for node, _ in ast.walk(parts) if isinstance(node, ast.FunctionCall))
    return [call for call in calls if is_aggregate(call.name)]


def _cells(shown: Shown, names: PullNames) -> tuple[Cell, ...]:
    if shown.cells is not None:
        return shown.cells
    whole = range(len(names.row))
    return tuple(map(itemgetter, whole if shown.projection is None else shown.projection))


def _reads_only(where: ast.Expression | None, names: PullNames, allowed: set[int]) -> bool:
    columns = [each for each, _ in ast.walk(where) if isinstance(each, ast.ColumnName)]
    return {names.index_of(column.name) for column in columns} <= allowed


def _refuse_state(query: Query, source: Source) -> None:
    clauses = {**_clauses(query), "ORDER BY": query.order_by}
    is_stream = source.kind == "STREAM" and not query.group_by
    keeps_kind = {"JOIN", "PARTITION BY"} if is_stream else set[str]()
    for clause, given in clauses.items():
        if given:
            raise _stateful(clause, "STREAM" if clause in keeps_kind else "TABLE", query.at)
    for call in _aggregates((query.items, query.where)):
        raise refusal(f"Push queries don't support {call.name} without GROUP BY.", call.at)


def _clauses(query: Query) -> dict[str, object]:
    """The clauses that need state, with what the query says in them."""
    return {
        "JOIN": query.joins,
        "WINDOW": query.window,
        "GROUP BY": query.group_by,
        "PARTITION BY": query.partition_by,
        "HAVING": query.having,
        "EMIT FINAL": query.emit == "FINAL",
    }


def _stateful(clause: str, kind: str, at: ast.Position) -> StatementError:
    return refusal(
        f"Push queries don't support {clause}. Keep the result with a persistent query, and push"  # noqa: S608 - a message
        f" on that: CREATE {kind} name AS SELECT … EMIT CHANGES; then SELECT * FROM name EMIT"
        " CHANGES;",
        at,
    )


def print_topic(statement: PrintTopic, rules: TopicRules) -> PrintPlan:
    """PRINT. Raises StatementError. Does not check that the topic exists."""
    check_topic_name(statement.topic, rules, statement.at)
    interval = 1 if statement.interval is None else statement.interval
    if interval < 1:
        raise refusal(f"INTERVAL must be greater than one, but was: {interval}", statement.at)
    return PrintPlan(
        topic=statement.topic,
        from_beginning=statement.from_beginning,
        interval=interval,
        limit=_limit(statement.limit),
    )


def _limit(limit: ast.LiteralValue | None) -> int | None:
    if limit is None:
        return None
    if limit.kind != "INTEGER":
        raise refusal(
            "Failed to prepare statement: Value must be integer for command: LIMIT", limit.at
        )
    if limit.text.startswith("-"):
        raise refusal("LIMIT must not be negative in push queries and PRINT.", limit.at)
    return cast("int", limit.value)
