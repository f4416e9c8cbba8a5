"""The items of a SELECT list with their names: stars expanded, KSQL_COL_n for items without a name.

The scope resolves names: one source (`scope.Scope`) or several joined ones
(`join_scope.JoinScope`); both are `ScopeNames`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Protocol

from standpipe.sql.declarations.checks import check_own_name
from standpipe.sql.expressions.admission import check_alias, check_item, check_struct
from standpipe.sql.expressions.result_names import ResultNames
from standpipe.sql.expressions.scope import RESERVED, Names
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types.typed_expression import Typed
from standpipe.sql.types.types import quoted

#: columns of a result in order: name, and the expression that computes it
NamedColumns = tuple[tuple[str, Typed], ...]
#: what may refuse the columns of a SELECT list, with StatementError
CheckNames = Callable[[Sequence[tuple[str, Typed]]], None]

_RESERVED = "Reserved column name in select: `{}`. Please remove or alias the column."


class ScopeNames(Names, Protocol):
    """The columns that a query may use."""

    def key_columns(self) -> list[tuple[str, Typed]]:
        """Key columns of the rows, named as in messages."""
        ...

    def star(self, item: ast.Star) -> Iterator[tuple[ast.ColumnName, str]]:
        """The columns of `*` or `source.*`, each with its name in the result."""
        ...

    def column_names(self) -> frozenset[str]:
        """Names that generated names must not repeat."""
        ...

    def name_of(self, node: ast.ColumnName) -> str:
        """The name of a bare column in the result."""
        ...


def named_items(query: ast.Query, scope: ScopeNames) -> Iterator[tuple[str, ast.SelectItem]]:
    """The items with stars expanded, each with the name of its column."""
    generated = ResultNames(scope.column_names(), query.items)
    for item in _expanded(query, scope):
        expression = item.expression
        if item.alias is not None:
            is_plain = isinstance(expression, ast.ColumnName) and expression.name == item.alias
            if item.alias in RESERVED and is_plain:
                raise refusal(_RESERVED.format(item.alias), item.at)
            check_alias(item.alias, item.at)
            check_own_name(item.alias, item.at)
            yield item.alias, item
        elif isinstance(expression, ast.ColumnName):
            name = scope.name_of(expression)
            if name in RESERVED:
                raise refusal(_RESERVED.format(name), item.at)
            yield name, item
        else:
            yield generated.of(expression), item


def typed_items(
    items: Sequence[tuple[str, ast.SelectItem]], typer: Typer
) -> list[tuple[str, Typed]]:
    """The items with their types. Raises StatementError also for one that has none."""
    typed = [(name, typer.type(item.expression)) for name, item in items]
    for (_, item), (_, each) in zip(items, typed, strict=True):
        check_item(each.type, item.expression)
    return typed


def any_names(_typed: Sequence[tuple[str, Typed]]) -> None:
    """Refuses no column."""


def any_keys(keys: Sequence[Typed], typed: Sequence[tuple[str, Typed]]) -> NamedColumns:
    """The key columns of a push query's result: each under its first name in the list, or, if the
    list leaves it out, under one of ours, which the client does not see."""
    taken = {name for name, _ in typed}
    free = (name for number in count() if (name := f"KSQL_KEY_{number}") not in taken)
    return tuple(
        (next((name for name, each in typed if each == key), None) or next(free), key)
        for key in keys
    )


def _expanded(query: ast.Query, scope: ScopeNames) -> Iterator[ast.SelectItem]:
    for item in query.items:
        if isinstance(item, ast.StructStar):
            base = Typer(scope, "SELECT", takes_tables=True).type(item.base).type
            check_struct(base, item)
            for field in base.field_names:
                node = ast.Dereference(item.at, item.base, field)
                yield ast.SelectItem(item.at, node, field)
        elif isinstance(item, ast.Star):
            for node, name in scope.star(item):
                yield ast.SelectItem(item.at, node, name)
        else:
            yield item


def missing_key(
    sink: str,
    what: str,
    texts: Sequence[str],
    *,
    any_of_them: bool = False,
    is_synthetic: bool = False,
) -> str:
    """ksqlDB's message for a SELECT list without the key (PlanNode.throwKeysNotIncludedError).
    `what`: e.g. "key column"; it must include all of `texts`, or one of them. `is_synthetic`: the
    key is no column of a source."""
    *most, last = texts
    listed = ", ".join(most) + (f" {'or' if any_of_them else 'and'} {last}" if most else last)
    example = texts[0] if any_of_them else ", ".join(texts)
    link, note = "", ""
    if is_synthetic:
        link = " See https://cnfl.io/2LV7ouS."
        note = (
            f"\n{texts[0]} was added as a synthetic key column because the join criteria did not"
            " match any source column. This expression must be included in the projection and may"
            " be aliased."
        )
    return (
        f"Key{'s' if most and not any_of_them else ''} missing from projection (ie, SELECT).{link}"
        f"\nThe query used to build {quoted(sink)} must include the {what}{'s' if most else ''}"
        f" {listed} in its projection (eg, SELECT {example}...).{note}"
    )


def key_twice(names: Sequence[str], of: str = "") -> str:
    """ksqlDB's message for a SELECT list that has a key column under several names. `of`: its own
    name, if it is a column."""
    *most, last = names
    listed = f"{', '.join(most)} and {last}"
    found = f" ({of}) more than once, aliased as: {listed}" if of else f" more than once: {listed}"
    return (
        f"The projection contains a key column{found}.\nEach key column must only be in the"
        " projection once. If you intended to copy the key into the value, then consider using the"
        " AS_VALUE function to indicate which key reference should be copied."
    )
