"""The SELECT list of an aggregation: which items are keys, which are values, and their names.

ksqlDB's rules: every grouping expression must be in the list, once; it becomes a key column. Every
other item consists of grouping expressions and aggregates, and becomes a value column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from standpipe.errors import StatementError
from standpipe.sql.expressions.admission import check_no_tables
from standpipe.sql.expressions.typer import Typer
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
    Aggregate,
    LambdaBody,
    Operation,
    Typed,
    TypedColumn,
    aggregates_in,
)
from standpipe.sql.types.types import quoted

#: function -> the session property that limits how many items it collects
_BOUNDED: Final = {
    "COLLECT_LIST": "ksql.functions.collect_list.limit",
    "COLLECT_SET": "ksql.functions.collect_set.limit",
}


@dataclass(frozen=True, slots=True)
class Projection:
    """The SELECT list of an aggregation, typed: each item is a key or a value."""

    keys: NamedColumns  # in the order of GROUP BY
    values: NamedColumns  # in the order of the SELECT list
    having: Typed | None
    shown: tuple[str, ...] = ()  # names in the order of the SELECT list


def with_limits(query: ast.Query, properties: Mapping[str, str]) -> ast.Query:
    """The query with SLICE around each COLLECT_LIST and COLLECT_SET that the session limits.

    So the limit is part of the query from its creation; a later SET does not change it.
    """
    texts = {name: properties[key] for name, key in _BOUNDED.items() if key in properties}
    limits = {name: int(text) for name, text in texts.items() if text.isdecimal()}

    def limited(part: object) -> ast.FunctionCall | None:
        if not isinstance(part, ast.FunctionCall) or part.name not in limits:
            return None
        first, most = (
            ast.LiteralValue(part.at, "INTEGER", count, str(count))
            for count in (1, limits[part.name])
        )
        size = ast.FunctionCall(part.at, "ARRAY_LENGTH", (part,))
        last = ast.FunctionCall(part.at, "LEAST", (size, most))
        return ast.FunctionCall(part.at, "SLICE", (part, first, last))

    return ast.rewritten(query, limited) if limits else query


def project(
    query: ast.Query,
    scope: ScopeNames,
    sink: str,
    *,
    is_transient: bool = False,
    check_names: CheckNames = any_names,
) -> Projection:
    """The typed SELECT list of an aggregating query, and its HAVING.

    `is_transient`: of a push query, whose list may leave grouping expressions out, or have them
    several times (ksqlDB). `check_names` is asked before the keys are looked for.
    """
    check_no_tables(query)
    grouping = _grouping(query, scope)
    typer = Typer(scope, "SELECT", takes_aggregates=bool(query.group_by))
    items = list(named_items(query, scope))
    typed = typed_items(items, typer)
    having = None
    if query.having is not None:
        having = Typer(scope, "HAVING", takes_aggregates=True).condition(query.having)
    if not any(aggregates_in(each) for _, each in typed) and having is None:
        raise refusal(
            "GROUP BY requires aggregate functions in either the SELECT or HAVING clause.", query.at
        )
    _check_grouped([item for _, item in items], typed, grouping, scope)
    check_names(typed)
    if is_transient:
        keys = any_keys(grouping, typed)
    else:
        _check_keys(query, typed, grouping, sink)
        keys = tuple(_key(key, typed, query) for key in grouping)
    values = tuple(pair for pair in typed if pair not in keys)
    used = [each for _, each in values] + ([having] if having is not None else [])
    if not any(map(aggregates_in, used)):
        raise refusal(
            "GROUP BY requires aggregate functions in either the SELECT or HAVING clause.", query.at
        )
    if not values:
        raise refusal("The projection contains no value columns.", query.at)
    if having is not None and (stray := list(_stray(having, grouping))):
        assert query.having is not None
        names = (expression_text(ast.ColumnName(query.having.at, each.name)) for each in stray)
        raise refusal(
            f"Non-aggregate HAVING expression not part of GROUP BY: {', '.join(names)}"
            "\nConsider switching the HAVING clause to a WHERE clause before the GROUP BY.",
            query.having.at,
        )
    return Projection(keys, values, having, tuple(name for name, _ in typed))


def _grouping(query: ast.Query, scope: ScopeNames) -> list[Typed]:
    typer = Typer(scope, "GROUP BY")
    grouping: list[Typed] = []
    for node in query.group_by:
        typed = typer.type(node)
        if typed in grouping:
            raise refusal(f"Duplicate GROUP BY expression: {expression_text(node)}", node.at)
        grouping.append(typed)
    return grouping


def _stray(typed: Typed, grouping: list[Typed]) -> Iterator[TypedColumn]:
    """The columns that are used outside the grouping expressions and aggregates."""
    if typed in grouping or isinstance(typed, Aggregate):
        return
    if isinstance(typed, LambdaBody):
        yield from _stray(typed.body, grouping)
    elif isinstance(typed, Operation):
        for argument in typed.arguments:
            yield from _stray(argument, grouping)
    elif isinstance(typed, TypedColumn):
        yield typed


def _resolved(node: ast.Expression, scope: ScopeNames) -> ast.Expression:
    """The expression as ksqlDB writes it of rows that were read, or joined: names alone."""

    def shown(column: ast.ColumnName) -> ast.ColumnName:
        try:
            found = scope.resolve(column, "SELECT")
        except StatementError:  # a lambda's parameter
            return column
        return ast.ColumnName(column.at, found.name) if isinstance(found, TypedColumn) else column

    return ast.renamed(node, shown)


def _check_grouped(
    items: list[ast.SelectItem],
    typed: list[tuple[str, Typed]],
    grouping: list[Typed],
    scope: ScopeNames,
) -> None:
    """Refuses columns that are not grouped by. As ksqlDB's AggregateAnalyzer, it names items
    without an aggregate whole, and columns beside aggregates only if there is no such item."""
    plain: list[ast.Expression] = []
    beside: list[tuple[ast.Expression, str]] = []
    for item, (_, each) in zip(items, typed, strict=True):
        found = [column.name for column in _stray(each, grouping)]
        if found and not aggregates_in(each):
            plain.append(item.expression)
        beside += [(item.expression, name) for name in found]
    advice = "\nEither add the column(s) to the GROUP BY or remove them from the SELECT."
    if plain:
        texts = ", ".join(expression_text(_resolved(each, scope)) for each in plain)
        message = f"Non-aggregate SELECT expression(s) not part of GROUP BY: {texts}"
        raise refusal(f"{message}{advice}", plain[0].at)
    if beside:
        node, _ = beside[0]
        names = dict.fromkeys(name for _, name in beside)
        texts = ", ".join(expression_text(ast.ColumnName(node.at, name)) for name in names)
        raise refusal(
            "Column used in aggregate SELECT expression(s) outside of aggregate functions not part"
            f" of GROUP BY: {texts}{advice}",
            node.at,
        )


def _check_keys(
    query: ast.Query, typed: list[tuple[str, Typed]], grouping: list[Typed], sink: str
) -> None:
    """Refuses a list that lacks grouping expressions, and names these."""
    shown = [each for _, each in typed]
    lacking = [
        expression_text(node)
        for node, of in zip(query.group_by, grouping, strict=True)
        if of not in shown
    ]
    if lacking:
        raise refusal(missing_key(sink, "grouping expression", lacking), query.at)


def _key(key: Typed, typed: list[tuple[str, Typed]], query: ast.Query) -> tuple[str, Typed]:
    """The key column of a grouping expression, under its name in the list, which has it."""
    names = [name for name, each in typed if each == key]
    if len(names) > 1:
        raise refusal(key_twice([quoted(name) for name in names]), query.at)
    return names[0], key
