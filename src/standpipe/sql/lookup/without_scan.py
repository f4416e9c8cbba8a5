"""What a WHERE may say where table scans are disabled, and ksqlDB's text for what it may not.

ksqlDB reads the clause as an OR of ANDs, IN as an OR of =, BETWEEN as >= AND <=. Each AND must
compare every key column with a constant, once, by =; or, if it is the only one, bound the only key
column, a STRING or BYTES, by <, <=, > or >=. Conditions on other columns are filters, of any form.
Source: ksqlDB's QueryFilterNode. It refuses some forms of filters too, such as IS NULL; here they
are refused only where no key stands beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

from standpipe.errors import StatementError
from standpipe.model import Column
from standpipe.sql.lookup.columns import HELP, ROWKEY, PullNames
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types.types import quoted

_ENABLE: Final = "Table scans can be enabled by setting ksql.query.pull.table.scan.enabled=true"
SCAN: Final = f"Query requires table scan to be enabled. {_ENABLE}"
#: one that these do not include needs a scan, whatever it is compared with
_KEY_OPERATORS: Final = ("=", "<", "<=", ">", ">=")
_RANGE_TYPES: Final = ("STRING", "BYTES")
_WINDOW: Final = ("WINDOWSTART", "WINDOWEND")
#: of a clause with more of them, only the operands of its AND are judged
_DISJUNCTS_MAX: Final = 1_000
_TOO_MANY: Final = f"WHERE is an OR of more than {_DISJUNCTS_MAX} conditions"


def check(
    where: ast.Expression | None, names: PullNames, at: ast.Position, *, ranges: bool
) -> bool:
    """Whether the clause needs a range of keys. `ranges`: whether the session allows one. Raises
    StatementError for a clause that needs a table scan."""
    if where is None:
        raise _refused("Missing WHERE clause", names, at)
    disjuncts = [_Disjunct(names, parts) for parts in _disjuncts(where)]
    for disjunct in disjuncts:
        disjunct.check()
    if not any(disjunct.is_range for disjunct in disjuncts):
        return False
    is_one = len(disjuncts) == 1 and not disjuncts[0].has_list
    if not (ranges and is_one and _has_ranges(names)):
        raise refusal(f"{SCAN}{HELP}", where.at)
    return True


def _has_ranges(names: PullNames) -> bool:
    """Whether a range of the source's keys can be read."""
    keys = names.source.key_columns
    return len(keys) == 1 and keys[0].type in _RANGE_TYPES and names.source.window is None


def _refused(why: str, names: PullNames, at: ast.Position) -> StatementError:
    windows = "" if names.source.window is None else f", and {' and '.join(_WINDOW)} by bounds"
    rule = (
        "Without table scans, WHERE compares every key column with constants by = or IN, or the"
        f" only one, if it is a STRING or BYTES, by <, <=, > or >=, once each{windows}."
    )
    return refusal(f"{why}.{HELP}\n{rule} {_ENABLE}", at)


@dataclass
class _Disjunct:
    """One AND: which key columns it compares."""

    names: PullNames
    parts: Sequence[ast.Expression]
    #: of key columns, in the order of the key
    seen: set[int] = field(default_factory=set[int])
    is_range: bool = False
    has_list: bool = False
    #: why ksqlDB refuses a filter; matters only without a key
    refused_filter: StatementError | None = None

    def check(self) -> None:
        """Raises StatementError if a key column is missing, or compared as none can be."""
        for node in self.parts:
            self._take(node)
        keys = self.names.source.key_columns
        if not self.seen:
            raise self.refused_filter or self._missing()
        if len(self.seen) < len(keys):
            given = ", ".join(quoted(keys[index].name) for index in sorted(self.seen))
            raise _refused(
                "Multi-column sources must specify every key in the WHERE clause."
                f" Specified: [{given}] Expected: [{_columns(keys)}]",
                self.names,
                self.parts[0].at,
            )

    def _missing(self) -> StatementError:
        shown = tuple(map(_without_list, self.parts))
        whole = shown[0] if len(shown) == 1 else ast.Logical(shown[0].at, "AND", shown)
        why = f"WHERE clause missing key column for disjunct: {expression_text(whole)}"
        return _refused(why, self.names, whole.at)

    def _take(self, node: ast.Expression) -> None:
        if isinstance(node, ast.InList) and not node.negated:
            comparisons = [_equality(node, item) for item in node.items]
            self.has_list |= len(comparisons) > 1
            self._compare(comparisons[0])
            for each in comparisons[1:]:
                self._column(each)
        elif isinstance(node, ast.Comparison):
            self._compare(node)
        elif isinstance(node, ast.Logical):
            self._refuse(_TOO_MANY, node)
        elif not isinstance(node, ast.Like):
            text = expression_text(_without_list(node))
            self._refuse(f"Unsupported expression in WHERE clause: {text}", node)
        elif not isinstance(node.value, ast.ColumnName):
            self._refuse("Like condition must be between strings", node)

    def _compare(self, node: ast.Comparison) -> None:
        column = self._column(node)
        index = None if column is None else self._key_index(column)
        if index is None:
            return
        keys = self.names.source.key_columns
        if node.operator not in _KEY_OPERATORS:
            why = f"Bound on key columns '[{_columns(keys)}]' must currently be '='"
            raise _refused(why, self.names, node.at)
        if index in self.seen:
            raise _refused(
                "A comparison condition on the key column cannot be combined with other"
                " comparisons such as an IN predicate",
                self.names,
                node.at,
            )
        self.seen.add(index)
        self.is_range |= node.operator != "="

    def _column(self, node: ast.Comparison) -> ast.ColumnName | None:
        """The column that is compared with a constant; None if it is another comparison."""
        column, other = node.right, node.left
        if not isinstance(column, ast.ColumnName):
            column, other = other, column
        if not isinstance(column, ast.ColumnName):
            self._refuse("A comparison must directly reference a key column", node)
            return None
        if any(_column_names(other)):
            why = "A comparison must be between a key column and a resolvable expression"
            self._refuse(f"{why}. Got: {expression_text(node)}", node)
            return None
        return column

    def _refuse(self, why: str, node: ast.Expression) -> None:
        """Raises StatementError at once if the condition is about a key column."""
        error = _refused(why, self.names, node.at)
        if any(self._key_index(each) is not None for each in _column_names(node)):
            raise error
        self.refused_filter = self.refused_filter or error

    def _key_index(self, node: ast.ColumnName) -> int | None:
        keys = [column.name for column in self.names.source.key_columns]
        if node.name == ROWKEY and len(keys) == 1:
            return 0
        return keys.index(node.name) if node.name in keys else None


def _columns(columns: Sequence[Column]) -> str:
    return ", ".join(f"{quoted(column.name)} {column.type} KEY" for column in columns)


def _column_names(node: ast.Expression) -> Iterator[ast.ColumnName]:
    return (each for each, _ in ast.walk(node) if isinstance(each, ast.ColumnName))


def _equality(node: ast.InList, item: ast.Expression) -> ast.Comparison:
    return ast.Comparison(node.at, "=", node.value, item)


def _without_list(node: ast.Expression) -> ast.Expression:
    """As ksqlDB shows it: of a list, its first value."""
    if not isinstance(node, ast.InList):
        return node
    first = _equality(node, node.items[0])
    return ast.Not(node.at, first) if node.negated else first


#: an OR of ANDs
_Ors = list[tuple[ast.Expression, ...]]


def _disjuncts(where: ast.Expression) -> _Ors:
    """The clause as an OR of these; as its one AND, if they would be too many."""
    parts = _ors(where, negated=False)
    if parts is not None:
        return parts
    if isinstance(where, ast.Logical) and where.operator == "AND":
        return [where.operands]
    return [(where,)]


def _ors(node: ast.Expression, *, negated: bool) -> _Ors | None:
    if isinstance(node, ast.Not):
        return _ors(node.operand, negated=not negated)
    if isinstance(node, ast.Between):
        low = ast.Comparison(node.at, ">=", node.value, node.low)
        high = ast.Comparison(node.at, "<=", node.value, node.high)
        return _ors(ast.Logical(node.at, "AND", (low, high)), negated=negated != node.negated)
    if isinstance(node, ast.Logical):
        parts = [_ors(operand, negated=negated) for operand in node.operands]
        known = [part for part in parts if part is not None]
        is_or = (node.operator == "OR") != negated
        return None if len(known) < len(parts) else (_sum if is_or else _product)(known)
    return [(_negation(node) if negated else node,)]


def _negation(node: ast.Expression) -> ast.Expression:
    """A negated comparison stays one: ksqlDB reads NOT a > 1 as no bound of a."""
    if isinstance(node, (ast.InList, ast.Like, ast.IsNull)):
        return replace(node, negated=not node.negated)
    return ast.Not(node.at, node)


def _sum(parts: list[_Ors]) -> _Ors | None:
    made = [each for part in parts for each in part]
    return made if len(made) <= _DISJUNCTS_MAX else None


def _product(parts: list[_Ors]) -> _Ors | None:
    count = 1
    for part in parts:
        count *= len(part)
    if count > _DISJUNCTS_MAX:
        return None
    return [tuple(node for part in chosen for node in part) for chosen in product(*parts)]
