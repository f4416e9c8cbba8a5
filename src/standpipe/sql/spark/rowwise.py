"""The SELECT list of a query without GROUP BY: keys, values, and the arrays that EXPLODE unnests.

ksqlDB's rules: the key is that of the source, or the expressions of PARTITION BY; each key column
must be in the list, once; everything else is a value column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from standpipe.sql.expressions.admission import check_no_aggregates
from standpipe.sql.expressions.result_names import ResultNames
from standpipe.sql.expressions.scope import Scope
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.spark.join_scope import JoinScope
from standpipe.sql.spark.select_items import (
    CheckNames,
    NamedColumns,
    ScopeNames,
    any_keys,
    any_names,
    key_twice,
    missing_key,
    named_items,
    typed_items,
)
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types.typed_expression import (
    EXPLODE,
    Operation,
    Typed,
    TypedColumn,
    rewrite,
)
from standpipe.sql.types.types import quoted


@dataclass(frozen=True, slots=True)
class RowProjection:
    """The SELECT list of a row-by-row query, typed: each item is a key or a value."""

    keys: NamedColumns
    values: NamedColumns
    #: arrays that EXPLODE unnests in parallel; in the values they are the columns `__Z.__E<n>`
    exploded: tuple[Typed, ...]
    #: names in the order of the SELECT list
    shown: tuple[str, ...] = ()


def project_rows(
    query: ast.Query,
    scope: ScopeNames,
    sink: str,
    *,
    is_transient: bool = False,
    check_names: CheckNames = any_names,
) -> RowProjection:
    """Raises StatementError if the list does not contain the key, or contains it twice, except in
    a push query that needs Spark (`is_transient`). `check_names` is asked before the keys are
    looked for, as in ksqlDB (LogicalPlanner.buildOutputNode)."""
    check_no_aggregates(query)
    items = list(named_items(query, scope))
    typer = Typer(scope, "SELECT", takes_tables=True)
    typed = typed_items(items, typer)
    wanted = _keys(query, scope)
    if not isinstance(scope, JoinScope) or query.partition_by:  # of a join, one of them is the key
        _check_values(
            [each for _, each in typed if all(each != key.typed for key in wanted)], query
        )
    check_names(typed)
    if isinstance(scope, JoinScope) and not query.partition_by:
        if is_transient:
            wanted = _transient_key(wanted, typed, scope)
        elif scope.keeps_left_key:
            _check_left_key(wanted, typed, scope, query)
        else:
            wanted = [_joined_key(scope, typed, query, sink)]
    elif is_transient and not query.partition_by and not _has_key(wanted, typed, scope):
        wanted = []
    if query.partition_by and any(isinstance(item, ast.Star) for item in query.items):
        typed = _with_new_key(typed, wanted, scope)
    if is_transient:
        keys = any_keys([each.typed for each in wanted], typed)
    else:
        missing = _missing(wanted, query, sink, scope) if wanted else ""
        keys = tuple(_key(each, typed, query, missing) for each in wanted)
    values = tuple(each for each in typed if each not in keys)
    _check_values(values, query)
    _check_apart(keys, values, query)
    exploded: list[Typed] = []
    shown = tuple((name, _exploded(each, exploded)) for name, each in values)
    return RowProjection(keys, shown, tuple(exploded), tuple(name for name, _ in typed))


def _has_key(wanted: list[_Key], typed: list[tuple[str, Typed]], scope: ScopeNames) -> bool:
    """Whether a push query's result has a key: that of a stream may leave out its whole key."""
    if isinstance(scope, Scope) and scope.source.kind == "TABLE":
        return True
    shown = [each for _, each in typed]
    return any(key.typed in shown for key in wanted)


def _check_values(values: Sequence[object], query: ast.Query) -> None:
    """Refuses a list of keys alone (FinalProjectNode)."""
    if not values:
        raise refusal("The projection contains no value columns.", query.at)


def _check_apart(keys: NamedColumns, values: NamedColumns, query: ast.Query) -> None:
    """Refuses a value column with the name of a key column (KsqlStructuredDataOutputNode)."""
    names = {name for name, _ in keys}
    clashing = [quoted(name) for name, _ in values if name in names]
    if clashing:
        raise refusal(f"Value columns clash with key columns: {', '.join(clashing)}", query.at)


def _check_left_key(
    wanted: list[_Key], typed: list[tuple[str, Typed]], scope: JoinScope, query: ast.Query
) -> None:
    shown = [each for _, each in typed]
    missing = [key for key in wanted if key.typed not in shown]
    if missing:
        left = scope.sides[0]
        column = "column" if len(missing) == 1 else "columns"
        names = (quoted(key.name.removeprefix(f"{left.alias}_")) for key in missing)
        raise refusal(
            f"Primary key {column} missing in projection. For foreign-key table-table joins, the"
            " projection must include all primary key columns from the left input table"
            f" (`{left.alias}`). Missing {column}: {', '.join(names)}.",
            query.at,
        )


def _transient_key(
    wanted: list[_Key], typed: list[tuple[str, Typed]], scope: JoinScope
) -> list[_Key]:
    """All keys of the left table, else one join expression: one of the list, if it has any."""
    if scope.keeps_left_key:
        return wanted
    shown = [each for _, each in typed]
    return [next((key for key in wanted if key.typed in shown), wanted[0])]


@dataclass(frozen=True, slots=True)
class _Key:
    typed: Typed
    text: str  # as in the statement, for messages
    name: str  # its name if the list gives none


def _keys(query: ast.Query, scope: ScopeNames) -> list[_Key]:
    if not query.partition_by:
        return [_Key(typed, name, name.strip("`")) for name, typed in scope.key_columns()]
    typer = Typer(scope, "PARTITION BY")
    nodes = [node for node in query.partition_by if not _is_null(node)]
    if len(nodes) < len(query.partition_by) and len(query.partition_by) > 1:
        raise refusal("Cannot PARTITION BY multiple columns including NULL", query.at)
    keys: list[_Key] = []
    generated = ResultNames(scope.column_names(), ())
    for node in nodes:
        typed = typer.type(node)
        if any(typed == other.typed for other in keys):
            raise refusal(f"Duplicate PARTITION BY expression: {expression_text(node)}", node.at)
        name = node.name if isinstance(node, ast.ColumnName) else generated.of(node)
        keys.append(_Key(typed, expression_text(node), name))
    return keys


def _joined_key(
    scope: JoinScope, typed: list[tuple[str, Typed]], query: ast.Query, sink: str
) -> _Key:
    """The first join expression that the list contains."""
    alternatives = _keys(query, scope)
    shown = [each for _, each in typed]
    found = next((key for key in alternatives if key.typed in shown), None)
    if found is not None:
        return found
    texts = [key.text for key in alternatives]
    message = missing_key(
        sink, "join expression", texts, any_of_them=True, is_synthetic=scope.is_synthetic
    )
    raise refusal(message, query.at)


def _is_null(node: ast.Expression) -> bool:
    return isinstance(node, ast.LiteralValue) and node.kind == "NULL"


def _with_new_key(
    typed: list[tuple[str, Typed]], wanted: list[_Key], scope: ScopeNames
) -> list[tuple[str, Typed]]:
    """`SELECT *` expands to the rows after PARTITION BY: the new key, then the values, then the
    previous key. Of joined rows, each side has had its keys behind its values before."""
    there = [each for _, each in typed]
    if isinstance(scope, JoinScope):
        return [*((key.name, key.typed) for key in wanted if key.typed not in there), *typed]
    before = [each for _, each in scope.key_columns()]
    made = [(key.name, key.typed) for key in wanted if key.typed not in there]
    rest = [pair for pair in typed if pair[1] not in before]
    return [*made, *rest, *(pair for pair in typed if pair[1] in before)]


def _key(
    key: _Key, typed: list[tuple[str, Typed]], query: ast.Query, missing: str
) -> tuple[str, Typed]:
    names = [name for name, each in typed if each == key.typed]
    if not names:
        raise refusal(missing, query.at)
    if len(set(names)) < len(names):
        shown = f"{quoted(names[0])} {key.typed.type} KEY"
        raise refusal(f"Duplicate key columns found in schema: {shown}", query.at)
    if len(names) > 1:
        name = key.typed.name if isinstance(key.typed, TypedColumn) else key.name
        raise refusal(key_twice(sorted(names), quoted(name)), query.at)
    return names[0], key.typed


def _missing(wanted: list[_Key], query: ast.Query, sink: str, scope: ScopeNames) -> str:
    names = (ast.ColumnName(query.at, key.name) for key in wanted)
    what, texts = "key column", list(map(expression_text, names))
    if query.partition_by:
        what, nodes = "partitioning expression", query.partition_by
        alias = scope.alias if isinstance(scope, Scope) else ""
        texts = [expression_text(ast.qualified(node, alias)) for node in nodes]
    return missing_key(sink, what, texts)


def _exploded(typed: Typed, arrays: list[Typed]) -> Typed:
    """The value with each table function replaced by its column of unnested items."""

    def change(node: Typed) -> Typed | None:
        if not (isinstance(node, Operation) and node.template == EXPLODE):
            return None
        (array,) = node.arguments
        if array not in arrays:
            arrays.append(array)
        return TypedColumn(node.type, f"__E{arrays.index(array)}")

    return rewrite(typed, change)
