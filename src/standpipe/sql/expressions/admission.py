"""What may stand where: aggregates, table functions, NULL as a column, reserved names as aliases.

Each rule is here once, with ksqlDB's text; the Typer and the SELECT lists of all kinds of queries
ask it. Not here: types of arguments (`functions/registry.py`), grouping (`spark/projection.py`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final

from standpipe.errors import StatementError
from standpipe.sql.expressions.scope import RESERVED
from standpipe.sql.functions import registry
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types.typed_expression import (
    Aggregate,
    LambdaBody,
    Operation,
    Typed,
    exploded_in,
    variables_in,
)
from standpipe.sql.types.types import NESTING_MAX, NULL, TOO_DEEP, SqlType, quoted

#: clauses that are computed before rows are grouped or unnested
_BEFORE: Final = ("GROUP BY", "PARTITION BY", "WHERE")


def check_aggregate(
    node: ast.FunctionCall, clause: str, outer: str | None, *, takes_aggregates: bool
) -> None:
    """Refuses an aggregate inside another one (`outer`), in a clause that has none, and in a query
    that groups nothing."""
    if outer:
        raise refusal(f"Aggregate functions can not be nested: {outer}({node.name}())", node.at)
    if clause in _BEFORE:
        raise refusal(
            f"{clause} does not support aggregate functions: {node.name} is an aggregate function.",
            node.at,
        )
    if not takes_aggregates:
        raise _without_group([node])


def check_no_aggregates(query: ast.Query) -> None:
    """Refuses the aggregates of a SELECT list that groups nothing, all at once (AggregateNode)."""
    calls = _calls(query)
    if named := [call for call in calls if registry.is_aggregate(call.name)]:
        raise _without_group(named)


def check_no_tables(query: ast.Query) -> None:
    """Refuses table functions in the SELECT list of a query that groups, before other clauses are
    looked at (Analyzer.visitSelect)."""
    calls = _calls(query)
    if named := [call for call in calls if registry.is_table_function(call.name)]:
        raise refusal("Table functions cannot be used with aggregations.", named[0].at)


def _calls(query: ast.Query) -> list[ast.FunctionCall]:
    calls = (each for each, _ in ast.walk(query.items) if isinstance(each, ast.FunctionCall))
    return sorted(calls, key=lambda call: call.at.offset)


def _without_group(calls: Sequence[ast.FunctionCall]) -> StatementError:
    texts = (expression_text(call).replace("COUNT()", "COUNT(ROWTIME)") for call in calls)
    return refusal(
        f"CREATE TABLE AS SELECT statement does not support aggregate function [{', '.join(texts)}]"
        " without a GROUP BY clause.",
        calls[0].at,
    )


def check_table_function(
    node: ast.FunctionCall,
    clause: str,
    outer: str | None,
    *,
    takes_tables: bool,
    takes_aggregates: bool,
) -> None:
    """Refuses a table function inside another one (`outer`), beside aggregates, and anywhere but in
    the SELECT list of a query of rows."""
    text = expression_text(node)
    if outer:
        inner = f"{quoted(outer)}({quoted(node.name)}())"
        raise refusal(f"Table functions cannot be nested: {inner}", node.at)
    if takes_aggregates:
        raise refusal("Table functions cannot be used with aggregations.", node.at)
    if clause in _BEFORE:
        raise refusal(
            f"{clause} does not support table functions: {node.name} is a table function.", node.at
        )
    if not takes_tables:
        raise refusal(
            "Table functions can only be used in the SELECT list of a query without aggregation:"
            f" {text}",
            node.at,
        )


def check_branches(node: ast.Case, checked: set[int]) -> None:
    """Refuses a table function in a CASE, some of whose rows would have no rows. `checked`: ids of
    the CASE expressions that need not be looked at again; gets those within this one."""
    if id(node) in checked:
        return
    for each, _ in ast.walk(node):
        if isinstance(each, ast.Case):
            checked.add(id(each))
        if isinstance(each, ast.FunctionCall) and registry.is_table_function(each.name):
            raise refusal(
                f"Table functions cannot be used in CASE: {expression_text(node)}", each.at
            )


def check_lambda(node: ast.Lambda, body: Typed) -> None:
    """Refuses in a lambda what no element of a list can have: several rows, and an aggregate of
    it. `body`: what the lambda makes."""
    if exploded_in(body):
        text = expression_text(node)
        raise refusal(f"Table functions cannot be used in a lambda: {text}", node.body.at)
    if _aggregates_a_variable(body):
        raise refusal(
            f"Aggregate functions cannot be used on the parameters of a lambda:"
            f" {expression_text(node)}",
            node.body.at,
            hint="REDUCE combines the elements of a list.",
        )


def _aggregates_a_variable(node: Typed) -> bool:
    if isinstance(node, LambdaBody):
        return _aggregates_a_variable(node.body)
    if isinstance(node, Aggregate):
        return bool(variables_in(node))
    return isinstance(node, Operation) and any(map(_aggregates_a_variable, node.arguments))


def check_parameters(
    names: Iterable[str], outer: Container[str], columns: Container[str], at: ast.Position
) -> None:
    """Refuses parameters of a lambda that have the name of a column, or of a parameter of a lambda
    around it (AstSanitizer). `outer`: those parameters."""
    for name in names:
        if name in columns:
            raise refusal(f"Lambda function argument can't be a column name: {name}", at)
        if name in outer:
            raise refusal("Reusing lambda arguments in nested lambda is not allowed", at)


def check_subscript(node: ast.Subscript, of: SqlType, index: SqlType) -> None:
    """Refuses base[index] where the base is no ARRAY and no MAP, and an ARRAY's index that is no
    whole number. `of`, `index`: their types."""
    if of.base == "MAP":
        return
    if of.base != "ARRAY":
        raise _no_elements(node, of)
    if index.base not in ("INTEGER", "BIGINT", NULL.base):
        text = f"An index of an ARRAY is an INTEGER, not {index}: {expression_text(node)}"
        raise refusal(text, node.index.at)


def _no_elements(node: ast.Subscript, of: SqlType) -> StatementError:
    hint = ""
    if of.base == "STRUCT":
        field = f"{expression_text(node.base)}->{expression_text(node.index)}"
        hint = f" Use the dereference operator for STRUCTS: {field}"
    text = f"Subscript expression ({expression_text(node)}) do not apply to {of}.{hint}"
    return refusal(text, node.at)


def check_struct(of: SqlType, item: ast.StructStar) -> None:
    """Refuses base->* where the base is no STRUCT (SelectionUtil.resolveStructFields)."""
    if of.base == "STRUCT":
        return
    node = item.base
    if isinstance(node, ast.Dereference):
        raise refusal(f"Field {node.field} is not a STRUCT type.", item.at)
    name = quoted(node.name) if isinstance(node, ast.ColumnName) else expression_text(node)
    raise refusal(f"Column {name} is not a STRUCT type.", item.at)


def check_item(of: SqlType, node: ast.Expression) -> None:
    """Refuses an item of a SELECT list that has no type, or one that no column can have."""
    if of.nesting > NESTING_MAX:
        raise refusal(TOO_DEEP, node.at)
    if of.contains(NULL.base):
        raise refusal(
            "Can't infer a type of null. Please explicitly cast it to a required type, e.g."
            " CAST(null AS VARCHAR).",
            node.at,
        )


def check_alias(alias: str, at: ast.Position) -> None:
    """Refuses the name of a pseudo column as an alias."""
    if alias.upper() in RESERVED:
        raise refusal(
            f"`{alias}` is a reserved column name. You cannot use it as an alias for a column.", at
        )
