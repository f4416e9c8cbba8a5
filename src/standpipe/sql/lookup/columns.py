"""The columns of a pull query: what names refer to, and which parts of the full row are shown.

The full row is: key columns, WINDOWSTART and WINDOWEND if windowed, value columns; ROWTIME follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar, Final, Protocol

from standpipe.model import Source
from standpipe.sql.expressions.admission import check_alias, check_item, check_struct
from standpipe.sql.expressions.result_names import ResultNames
from standpipe.sql.expressions.scope import WINDOW_BOUNDS, by_alias, unresolved
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import nearest, refusal, unknown_name
from standpipe.sql.types.typed_expression import Typed, TypedColumn
from standpipe.sql.types.types import BIGINT, SqlType, parse_type, quoted

ROWKEY: Final = "ROWKEY"
#: ksqlDB takes a star alone (QueryProjectNode); we take what its columns do not clash with
_ONLY_STAR: Final = (
    "Pull queries only support wildcards in the projects if they are the only expression"
)
_REFUSED: Final = ("ROWPARTITION", "ROWOFFSET")
HELP: Final = (
    " See https://cnfl.io/queries for more info."
    "\nAdd EMIT CHANGES if you intended to issue a push query."
)


@dataclass(frozen=True, slots=True)
class PullNames:
    """Names of a table in a pull query. `row`: names and types of the full row's columns."""

    #: after the full row, in this order
    pseudo: ClassVar[tuple[tuple[str, SqlType], ...]] = (("ROWTIME", BIGINT),)
    #: whether the schema of an answer marks the key columns of a table
    marks_keys: ClassVar[bool] = True

    source: Source
    alias: str
    row: tuple[tuple[str, SqlType], ...]
    key_count: int  # leading columns of `row` that are keys; window bounds count as such

    @classmethod
    def of(cls, source: Source, alias: str | None) -> PullNames:
        """The names of a source under its alias."""
        bounds = (("WINDOWSTART", BIGINT), ("WINDOWEND", BIGINT)) if source.window else ()
        keys = tuple((each.name, parse_type(each.type)) for each in source.key_columns)
        rest = tuple((each.name, parse_type(each.type)) for each in source.value_columns)
        row = (*keys, *bounds, *rest)
        return cls(source, alias or source.name, row, len(keys) + len(bounds))

    def index_of(self, name: str) -> int | None:
        """Index in the full row; ROWTIME's is the row's width; ROWKEY is the single key column."""
        for index, (each, _) in enumerate((*self.row, *self.pseudo)):
            if each == name:
                return index
        if name == ROWKEY and len(self.source.key_columns) == 1:
            return 0
        return None

    def is_shown_as_key(self, name: str) -> bool:
        """Whether a column of the answer counts as a key. As in ksqlDB (QueryProjectNode), its name
        decides, not what it shows: a key that AS renames is a value."""
        if self.source.kind != "TABLE" or not self.marks_keys:
            return False
        return any(key == name for key, _ in self.row[: self.key_count])

    def type_of(self, index: int) -> SqlType:
        """Type of the column at an index in the full row; the pseudo columns follow it."""
        return (*self.row, *self.pseudo)[index][1]

    def resolve(self, node: ast.ColumnName, clause: str, *, in_aggregate: bool = False) -> Typed:
        """A column of the row under its own name (`scope.Names`). Raises StatementError."""
        del in_aggregate  # pull queries have none
        if node.source is not None and node.source not in (self.alias, self.source.name):
            hint = nearest(node.source, (self.alias, self.source.name))
            message = f"'{node.source}' is not a valid stream/table name or alias."
            raise unknown_name(message, node.at, hint)
        if node.source not in (None, self.alias):
            raise unresolved(node, clause, by_alias(node, self.alias))
        index = self.index_of(node.name)
        if index is None:
            self._refuse(node, clause)
            raise unresolved(node, clause, nearest(node.name, (name for name, _ in self.row)))
        name, of = (*self.row, *self.pseudo)[index]
        return TypedColumn(of, name)

    def own_columns(self) -> frozenset[str]:
        """The names of the source's columns, without pseudo columns and window bounds."""
        return frozenset(name for name, _ in self.row).difference(WINDOW_BOUNDS)

    def _refuse(self, node: ast.ColumnName, clause: str) -> None:
        if node.name in _REFUSED:
            raise refusal(
                f"Pull queries don't support the following columns in {clause} clauses:"
                f" `{node.name}`.{HELP}",
                node.at,
            )


Cell = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """The columns of the answer. `projection` None: the full row as it is.

    `cells`: set if a column has to be computed, or is shown differently from how it is stored.
    `indices`: each column's index in the full row, None if it is computed.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    schema: str
    projection: tuple[int, ...] | None
    cells: tuple[Cell, ...] | None = None
    indices: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class _Picked:
    """A column of the answer; `index`: its index in the full row, None if it is computed."""

    name: str
    of: SqlType
    index: int | None
    cell: Cell


class Compiler(Protocol):
    """The part of `evaluator.Evaluator` that `shown_columns` calls."""

    def type(self, node: ast.Expression) -> SqlType:
        """The type of an expression. Raises StatementError."""
        ...

    def compile(self, node: ast.Expression) -> Cell:
        """The function from the full row to the expression's value. Raises StatementError."""
        ...


def shown_columns(query: ast.Query, names: PullNames, compiler: Compiler) -> Shown:
    """What the SELECT list shows. Raises StatementError for unknown and repeated names."""
    picked = list(_picked(query, names, compiler))
    _check_unique(picked, names, query)
    schema = ", ".join(f"{quoted(each.name)} {each.of}{_mark(each, names)}" for each in picked)
    everything = [(name, index) for index, (name, _) in enumerate(names.row)]
    plain = [each.index for each in picked if each.index is not None]
    is_whole = [(each.name, each.index) for each in picked] == everything
    is_computed = len(plain) < len(picked) or any(map(_is_reformatted, picked))
    return Shown(
        names=tuple(each.name for each in picked),
        types=tuple(str(each.of) for each in picked),
        schema=schema,
        projection=None if is_whole else tuple(plain),
        cells=tuple(each.cell for each in picked) if is_computed else None,
        indices=tuple(each.index for each in picked),
    )


def _is_reformatted(picked: _Picked) -> bool:
    """Whether the column is stored as numbers but shown as text."""
    return any(picked.of.contains(base) for base in ("DATE", "TIME", "TIMESTAMP"))


def _mark(picked: _Picked, names: PullNames) -> str:
    """Keys of tables are marked, those of streams are not."""
    return " KEY" if names.is_shown_as_key(picked.name) else ""


def _picked(query: ast.Query, names: PullNames, compiler: Compiler) -> Iterator[_Picked]:
    generated = ResultNames((name for name, _ in (*names.row, *names.pseudo)), query.items)
    for item in query.items:
        if isinstance(item, ast.StructStar):
            base = compiler.type(item.base)
            check_struct(base, item)
            for field, of in zip(base.field_names, base.arguments, strict=True):
                node = ast.Dereference(item.at, item.base, field)
                yield _Picked(field, of, None, compiler.compile(node))
            continue
        if isinstance(item, ast.Star):
            if item.source not in (None, names.alias):
                message = f"'{item.source}' is not a valid stream/table name or alias."
                raise unknown_name(message, item.at, nearest(str(item.source), (names.alias,)))
            for index, (name, of) in enumerate(names.row):
                yield _Picked(name, of, index, itemgetter(index))
            continue
        expression = item.expression
        if item.alias is not None and not _is_named(expression, item.alias):
            check_alias(item.alias, item.at)
        if isinstance(expression, ast.ColumnName):
            names.resolve(expression, "SELECT")
            index = names.index_of(expression.name)
            assert index is not None, "resolve would have refused it"
            name = item.alias or expression.name
            yield _Picked(name, names.type_of(index), index, itemgetter(index))
            continue
        name = generated.of(expression) if item.alias is None else item.alias
        of = compiler.type(expression)
        check_item(of, expression)
        yield _Picked(name, of, None, compiler.compile(expression))


def _is_named(node: ast.Expression, name: str) -> bool:
    return isinstance(node, ast.ColumnName) and node.name == name


def _check_unique(picked: list[_Picked], names: PullNames, query: ast.Query) -> None:
    seen: set[str] = set()
    for each in picked:
        if each.name in seen:
            mark = _mark(each, names)
            has_star = any(isinstance(item, ast.Star) for item in query.items)
            if has_star and names.marks_keys and names.source.kind == "TABLE":
                raise refusal(_ONLY_STAR, query.at)
            raise refusal(
                f"Duplicate {'key' if mark else 'value'} columns found in schema:"
                f" {quoted(each.name)} {each.of}{mark}",
                query.at,
            )
        seen.add(each.name)
