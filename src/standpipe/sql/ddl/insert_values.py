"""INSERT INTO … VALUES: one row of typed values, as wide as the schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql.context import Context
from standpipe.sql.declarations.checks import check_writable_topic
from standpipe.sql.expressions.constants import constant, unexpected
from standpipe.sql.expressions.scope import PSEUDO
from standpipe.sql.plans import InsertValuesPlan
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast import Expression
from standpipe.sql.syntax.ast_statements import InsertValues
from standpipe.sql.syntax.errors import nearest, refusal, unknown_name
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types import types, values
from standpipe.sql.types.types import SqlType, parse_type, quoted
from standpipe.topics import TopicRules

_NOT_INSERTABLE: Final = frozenset(PSEUDO) - {"ROWTIME"}


def insert_values(
    statement: InsertValues, sources: Mapping[str, Source], context: Context
) -> InsertValuesPlan:
    """The row of an INSERT INTO … VALUES. Raises StatementError if target or values do not fit."""
    source = _target(statement, sources, context.rules)
    names = statement.columns or tuple(column.name for column in source.columns)
    columns = {column.name: column for column in source.columns}
    of_headers = [name for name in names if name in columns and columns[name].header is not None]
    if of_headers and not _is_miscounted(statement):
        raise refusal(f"Cannot insert into HEADER columns: {', '.join(of_headers)}", statement.at)
    if len(names) != len(statement.values):
        raise _miscounted(names, source, statement)
    row: dict[str, object] = {}
    rowtime_ms: int | None = None
    for name, node in zip(names, statement.values, strict=True):
        if name in row:
            raise refusal(f"Column {name} is named twice.", node.at)
        if name == "ROWTIME" and name not in columns:
            rowtime_ms = cast("int | None", _value(node, types.BIGINT, name, source))
            _check_rowtime(rowtime_ms, source, node)
            continue
        column = columns.get(name)
        if column is None:
            raise _unknown_column(name, source, statement)
        row[name] = _value(node, parse_type(column.type), name, source)
    _check_key(source, row, statement)
    full = tuple(row.get(column.name) for column in source.columns)
    return InsertValuesPlan(source=source, values=full, rowtime_ms=rowtime_ms)


def _target(statement: InsertValues, sources: Mapping[str, Source], rules: TopicRules) -> Source:
    source = sources.get(statement.target)
    if source is None:
        hint = nearest(statement.target, sources)
        tail = f"\n{hint}" if hint else ""  # only here does ksqlDB put it into the message
        message = f"Cannot insert values into an unknown stream/table: `{statement.target}`{tail}"
        raise unknown_name(message, statement.at, "")
    check_writable(source, sources, rules, statement.at)
    return source


def check_writable(
    source: Source, sources: Mapping[str, Source], rules: TopicRules, at: ast.Position | None
) -> None:
    """Raises StatementError for a source that is read-only, that a query writes or whose keys have
    windows, or whose topic must not be written."""
    if source.is_read_only:
        raise refusal(
            f"Cannot insert values into read-only {source.kind.lower()}: {source.name}", at
        )
    if source.query_id is not None:
        raise refusal(
            f"Cannot insert values into {source.kind.lower()} `{source.name}`: it is written by"
            f" query {source.query_id}.",
            at,
        )
    if source.window is not None:  # a record of ours would have a key without a window
        raise refusal("Cannot insert values into windowed stream/table!", at)
    check_writable_topic(source, sources, rules, at)


#: how ksqlDB's parser begins what it says before there is a row
_SAYS_WHERE: Final = "Failed to prepare statement: "


def _failed(source: Source, why: str) -> str:
    """How ksqlDB begins what it says of a row (InsertValuesExecutor)."""
    return f"Failed to insert values into '{source.name}'. {why}"


def _is_miscounted(statement: InsertValues) -> bool:
    """Whether ksqlDB's parser refuses the statement, before it knows the columns."""
    return bool(statement.columns) and len(statement.columns) != len(statement.values)


def _miscounted(names: Sequence[str], source: Source, statement: InsertValues) -> Exception:
    if statement.columns:
        why = f"Expected number columns and values to match: {len(names)}, {len(statement.values)}"
        return refusal(f"Failed to prepare statement: {why}", statement.at)
    texts = ", ".join(map(expression_text, statement.values))
    listed = ", ".join(map(quoted, names))
    why = f"Expected a value for each column. Expected Columns: [{listed}]. Got [{texts}]"
    return refusal(_failed(source, why), statement.at)


def _check_rowtime(rowtime_ms: int | None, source: Source, node: Expression) -> None:
    if rowtime_ms is not None and rowtime_ms < 0:  # Kafka takes -1 for none
        why = f"Invalid timestamp: {rowtime_ms}. Timestamp should always be non-negative or null."
        raise refusal(_failed(source, why), node.at)


def _unknown_column(name: str, source: Source, statement: InsertValues) -> Exception:
    if name in _NOT_INSERTABLE:
        why = f"Inserting into column `{name}` is not allowed."
        return refusal(_failed(source, why), statement.at)
    hint = nearest(name, (column.name for column in source.columns))
    why = f"Column name `{name}` does not exist."
    return unknown_name(_failed(source, why), statement.at, hint)


def _check_key(source: Source, row: Mapping[str, object], statement: InsertValues) -> None:
    if source.kind != "TABLE":
        return
    missing = [column for column in source.key_columns if row.get(column.name) is None]
    if missing:
        names = ", ".join(column.name for column in missing)
        why = f"Value for primary key column(s) {names} is required for tables"
        raise refusal(_failed(source, why), statement.at)


def _check_no_column(node: Expression, into: Source) -> None:
    """Refuses names of columns; a parameter of a lambda is none."""
    parameters = {
        name
        for each, _ in ast.walk(node)
        if isinstance(each, ast.Lambda)
        for name in each.parameters
    }
    for each, _ in ast.walk(node):
        if isinstance(each, ast.ColumnName) and not each.source and each.name not in parameters:
            why = f"Unsupported column reference in insert value: {expression_text(node)}"
            raise refusal(_failed(into, why), each.at)


def _value(node: Expression, target: SqlType, name: str, into: Source) -> object:
    """A constant expression as the column's type. Raises StatementError if it does not fit."""
    _check_no_column(node, into)
    try:
        source, value = constant(node)
    except StatementError as error:
        if not error.message.startswith(_SAYS_WHERE):
            error.message = _failed(into, error.message)
        raise
    try:
        fitted = values.coerce(value, source, target)
    except ValueError:
        why = unexpected(value, source, target, name)
        raise refusal(_failed(into, why), node.at) from None
    if not values.is_finite(fitted):
        why = f"Number overflows DOUBLE in field `{name}`: {expression_text(node)}"
        raise refusal(_failed(into, why), node.at)
    return fitted
