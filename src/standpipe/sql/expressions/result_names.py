"""Names of result columns that have none: KSQL_COL_n, and fields under their own names.

The same in persistent, push and pull queries. Source: ksqlDB's ColumnNames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from standpipe.sql.syntax import ast


class ResultNames:
    """The generated names of one SELECT list, asked for in its order."""

    def __init__(self, columns: Iterable[str], items: Iterable[object]) -> None:
        """`columns`: of the sources; `items`: of the list. No generated name repeats theirs."""
        given = {each.alias for each in items if isinstance(each, ast.SelectItem)}
        self._taken: set[str | None] = {*columns, *given}
        self._unnamed = 0
        #: field -> the last number that its name was tried with
        self._numbers: Counter[str] = Counter()

    def of(self, expression: ast.Expression) -> str:
        """The name of an expression without AS that is no bare column."""
        if isinstance(expression, ast.Dereference):
            return self._free(expression.field)
        while f"KSQL_COL_{self._unnamed}" in self._taken:
            self._unnamed += 1
        name = f"KSQL_COL_{self._unnamed}"
        self._taken.add(name)
        return name

    def _free(self, field: str) -> str:
        """A field's name, with a number if a column or another field has the same."""
        found = field
        while found in self._taken:
            self._numbers[field] += 1
            found = f"{field}_{self._numbers[field]}"
        self._taken.add(found)
        return found
