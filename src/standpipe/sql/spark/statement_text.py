"""A CREATE … AS SELECT as ksqlDB's formatter prints it after "Statement:" in its messages.

Only for queries over one source: names are qualified, each column has a name, and each clause is on
its own line.
"""

from __future__ import annotations

from collections.abc import Iterator

from standpipe.sql.expressions.scope import Scope
from standpipe.sql.spark.select_items import named_items
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast_statements import CreateAs
from standpipe.sql.syntax.printer import expression_text, name_text


def statement_text(statement: CreateAs, scope: Scope) -> str:
    """The statement in the formatter's style."""
    creation = statement.creation
    head = f"CREATE {creation.kind} {name_text(creation.name)} AS "
    lines = [head + _select(statement.query, scope), *_clauses(statement.query, scope)]
    return "\n".join(lines)


def _text(node: ast.Expression, scope: Scope) -> str:
    shown = expression_text(ast.qualified(node, scope.alias))
    return shown.replace("COUNT()", "COUNT(*)")


def _select(query: ast.Query, scope: Scope) -> str:
    items = [
        f"  {_text(item.expression, scope)} {name_text(name)}"
        for name, item in named_items(query, scope)
    ]
    return "SELECT\n" + ",\n".join(items)


def _clauses(query: ast.Query, scope: Scope) -> Iterator[str]:
    yield f"FROM {name_text(query.relation.name)} {name_text(scope.alias)}"
    if query.window is not None:
        yield f"WINDOW {_window(query.window)}"
    if query.where is not None:
        yield f"WHERE {_text(query.where, scope)}"
    for word, nodes in (("GROUP BY", query.group_by), ("PARTITION BY", query.partition_by)):
        if nodes:
            yield f"{word} {', '.join(_text(node, scope) for node in nodes)}"
    if query.having is not None:
        yield f"HAVING {_text(query.having, scope)}"
    yield f"EMIT {query.emit or 'CHANGES'}"


def _window(window: ast.WindowClause) -> str:
    parts = [f"SIZE {window.size_ms} MILLISECONDS"]
    if window.kind == "SESSION":
        parts = [f"{window.size_ms} MILLISECONDS"]
    if window.kind == "HOPPING":
        parts.append(f"ADVANCE BY {window.advance_ms} MILLISECONDS")
    if window.retention_ms is not None:
        parts.append(f"RETENTION {window.retention_ms} MILLISECONDS")
    if window.grace_ms is not None:
        parts.append(f"GRACE PERIOD {window.grace_ms} MILLISECONDS")
    return f"{window.kind} ( {', '.join(parts)} )"
