"""Which statements want each change of an aggregate, although a table has one for each batch.

ksqlDB puts out a row for each event. Here a batch is one change of a key, so a count may go from 0
to 2 at once. Two statements depend on the steps between: HAVING COUNT(*) = 1, the usual recipe for
dropping duplicates, and a stream over the topic of an aggregate. Both run, and a row may be missing
without an error; so their answers have a warning that says what to write instead.
"""

from __future__ import annotations

from typing import Final

from standpipe.control.metadata.catalog import Catalog
from standpipe.control.metadata.commands import (
    Command,
    CreateSource,
    CreateTableAs,
    ReplaceTableAs,
)
from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql.functions.registry import is_aggregate
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast_statements import CreateAs
from standpipe.sql.syntax.parser import parse

_INSTEAD: Final = (
    " For one row of each key, use EARLIEST_BY_OFFSET; for one event of each key in a stream, a"
    " window with EMIT FINAL (docs/migration.md)."
)


def warnings_of(command: Command, before: Catalog) -> tuple[str, ...]:
    """For the answer to a statement that is accepted. `before`: the catalog that it meets."""
    if isinstance(command, (CreateTableAs, ReplaceTableAs, CreateSource)):
        return warnings(command.source, before)
    return ()


def warnings(made: Source, before: Catalog) -> tuple[str, ...]:
    """Of a new stream or table."""
    query = _query(made)
    if query is not None:
        if query.emit == "FINAL" or not _is_met_in_passing(query.having):
            return ()
        text = (
            "HAVING is judged once a batch: a group that meets an aggregate's = in passing, within"
            f" a batch, is not in {made.name}.{_INSTEAD}"
        )
        return (text,)
    if made.kind == "TABLE":
        return ()
    sources = before.sources.values()
    same_topic = (each for each in sources if made.topic in (each.topic, each.public_topic))
    return tuple(
        f"The topic of {table.name} has a record for each key and batch, not for each event:"
        f" {made.name} may pass over values.{_INSTEAD}"
        for table in same_topic
        if _is_aggregate(table)
    )


def _query(source: Source) -> ast.Query | None:
    """The SELECT that made it, if any."""
    try:
        (statement,) = parse(source.statement)
    except (StatementError, ValueError):
        return None  # an older release may have read what this one does not
    return statement.query if isinstance(statement, CreateAs) else None


def _is_aggregate(table: Source) -> bool:
    query = _query(table) if table.kind == "TABLE" and table.query_id else None
    return query is not None and bool(query.group_by) and query.emit != "FINAL"


def _is_met_in_passing(node: ast.Expression | None) -> bool:
    """Whether the condition asks for one value of an aggregate, which later events change."""
    if isinstance(node, ast.Logical):
        return any(map(_is_met_in_passing, node.operands))
    if not isinstance(node, ast.Comparison) or node.operator != "=":
        return False
    return any(
        isinstance(side, ast.FunctionCall) and is_aggregate(side.name)
        for side in (node.left, node.right)
    )
