"""What a WHERE may say where table scans are disabled, and ksqlDB's text for what it may not.

ksqlDB reads the clause as an OR of ANDs. Each of them must name every key column once, by = or by
IN; or, if it is the only one, bound the only key column, a STRING, by <, <=, > or >=. What it says
about other columns is a filter. Source: ksqlDB's documentation, "SELECT (Pull Query)".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from standpipe.errors import StatementError
from standpipe.model import Column
from standpipe.sql.lookup.columns import HELP, ROWKEY, PullNames
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types.types import quoted

SCAN: Final = (
    "Query requires table scan to be enabled. Table scans can be enabled by setting"
    " ksql.query.pull.table.scan.enabled=true"
)
_IN_TWICE: Final = "The IN predicate cannot be combined with other comparisons"
_RANGES: Final = ("<", "<=", ">", ">=")
_OPPOSITE: Final[dict[str, ast.Comparator]] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}
_WINDOW: Final = ("WINDOWSTART", "WINDOWEND")
#: a clause with more of them is judged as a whole
_DISJUNCTS_MAX: Final = 1_000
_COMBINED: Final = " cannot be combined with other comparisons such as an IN predicate"


def check(
    where: ast.Expression | None, names: PullNames, at: ast.Position, *, ranges: bool
) -> bool:
    """Whether the clause needs a range of keys. `ranges`: whether the session allows one. Raises
    StatementError for a clause that needs a table scan."""
    if where is None:
        raise _refused("Missing WHERE clause.", at)
    needs_range = False
    disjuncts = _disjuncts(where)
    for disjunct in disjuncts:
        keys = _Keys(names, ranges=ranges)
        for node in _conjuncts(disjunct):
            keys.take(node)
        keys.check_whole(disjunct)
        needs_range |= keys.has_range
    if needs_range and len(disjuncts) > 1:
        raise refusal(f"{SCAN}{HELP}", where.at)
    return needs_range


def _refused(why: str, at: ast.Position) -> StatementError:
    return refusal(f"{why} {SCAN}{HELP}", at)


@dataclass
class _Keys:
    """The key columns that one AND names."""

    names: PullNames
    ranges: bool
    seen: list[str] = field(default_factory=list[str])
    has_range: bool = False

    def take(self, node: ast.Expression) -> None:
        """One of its conditions."""
        if isinstance(node, ast.InList) and not node.negated:
            column = self._key(node.value)
            if column is not None:
                self._check_new(column, _IN_TWICE, node)
                for item in node.items:
                    self._check_constant(item)
                self.seen.append(column.name)
        elif isinstance(node, ast.Like) and isinstance(node.value, ast.LiteralValue):
            raise _refused("Like condition must be between strings.", node.at)
        elif isinstance(node, ast.Comparison) and not self._is_bound(node):
            self._compare(node)

    def check_whole(self, disjunct: ast.Expression) -> None:
        """Whether all key columns were named."""
        if not self.seen:
            text = expression_text(disjunct)
            raise _refused(f"WHERE clause missing key column for disjunct: {text}.", disjunct.at)
        if set(self.seen) < {column.name for column in self._columns}:
            raise self._partial(self.seen, disjunct.at)

    def _compare(self, node: ast.Comparison) -> None:
        column, other = self._key(node.left), node.right
        if column is None:
            column, other = self._key(node.right), node.left
        if column is None:
            if any(self._key(each) for each, _ in ast.walk(node)):
                raise _refused("A comparison must directly reference a key column.", node.at)
            return
        self._check_constant(other)
        if node.operator == "=":
            self._check_new(column, f"An equality condition on the key column{_COMBINED}", node)
        else:
            self._check_range(column, node)
        self.seen.append(column.name)

    def _check_range(self, column: Column, node: ast.Comparison) -> None:
        if len(self._columns) > 1:
            raise self._partial([column.name], node.at)
        if node.operator not in _RANGES:
            key = f"[{quoted(column.name)} {column.type} KEY]"
            raise refusal(f"Bound on key columns '{key}' must currently be '='. {HELP}", node.at)
        self._check_new(column, f"A comparison condition on the key column{_COMBINED}", node)
        if column.type != "STRING" or self.names.source.window is not None or not self.ranges:
            raise refusal(f"{SCAN}{HELP}", node.at)
        self.has_range = True

    def _check_new(self, column: Column, why: str, node: ast.Expression) -> None:
        if column.name in self.seen:
            raise _refused(f"{why}.", node.at)

    def _check_constant(self, node: ast.Expression) -> None:
        if any(isinstance(each, ast.ColumnName) for each, _ in ast.walk(node)):
            raise refusal(
                "A comparison must be between a key column and a resolvable expression."
                f" Got: {expression_text(node)}{HELP}",
                node.at,
            )

    def _partial(self, given: Sequence[str], at: ast.Position) -> StatementError:
        specified = ", ".join(map(quoted, given))
        expected = ", ".join(quoted(column.name) for column in self._columns)
        return refusal(
            "Multi-column sources must specify every key in the WHERE clause."
            f" Specified: [{specified}] Expected: [{expected}]{HELP}",
            at,
        )

    @property
    def _columns(self) -> Sequence[Column]:
        return self.names.source.key_columns

    def _key(self, node: object) -> Column | None:
        if not isinstance(node, ast.ColumnName):
            return None
        keys = self._columns
        if node.name == ROWKEY and len(keys) == 1:
            return keys[0]
        return next((column for column in keys if column.name == node.name), None)

    def _is_bound(self, node: ast.Comparison) -> bool:
        sides = (node.left, node.right)
        return any(isinstance(each, ast.ColumnName) and each.name in _WINDOW for each in sides)


def _conjuncts(node: ast.Expression) -> Iterator[ast.Expression]:
    if isinstance(node, ast.Logical) and node.operator == "AND":
        for operand in node.operands:
            yield from _conjuncts(operand)
    else:
        yield node


def _disjuncts(where: ast.Expression) -> list[ast.Expression]:
    """The clause as an OR of these; itself, if it would be too many."""
    parts = _ors(where, negated=False)
    return [where] if parts is None else [_all_of(part) for part in parts]


def _all_of(part: tuple[ast.Expression, ...]) -> ast.Expression:
    return part[0] if len(part) == 1 else ast.Logical(part[0].at, "AND", part)


#: an OR of ANDs
_Ors = list[tuple[ast.Expression, ...]]


def _ors(node: ast.Expression, *, negated: bool) -> _Ors | None:
    if isinstance(node, ast.Not):
        return _ors(node.operand, negated=not negated)
    if isinstance(node, ast.Logical):
        parts = [_ors(operand, negated=negated) for operand in node.operands]
        known = [part for part in parts if part is not None]
        is_or = (node.operator == "OR") != negated
        return None if len(known) < len(parts) else (_sum if is_or else _product)(known)
    return [(_opposite(node) if negated else node,)]


def _opposite(node: ast.Expression) -> ast.Expression:
    if isinstance(node, ast.Comparison) and node.operator in _OPPOSITE:
        return ast.Comparison(node.at, _OPPOSITE[node.operator], node.left, node.right)
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
