"""What a statement says, before anybody asks whether it makes sense: frozen nodes with positions.

`at` is where a node begins (1-based line and column over the whole text that was parsed, and its
offset from 0); it takes no part in comparisons, so equal expressions are equal nodes. Names are
already upper-cased unless they were quoted. AND and OR hold any number of operands; a sign before a
number is part of the number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple

from standpipe.sql.types.types import SqlType


class Position(NamedTuple):
    line: int
    column: int
    offset: int


START: Final = Position(1, 1, 0)


@dataclass(frozen=True, slots=True)
class Node:
    at: Position = field(compare=False, repr=False)


# ---------------------------------------------------------------------------------- expressions

LiteralKind = Literal["NULL", "BOOLEAN", "STRING", "INTEGER", "BIGINT", "DECIMAL", "DOUBLE"]


@dataclass(frozen=True, slots=True)
class LiteralValue(Node):
    """A literal. `at.offset` is that of the quote or of the first digit, behind a folded sign."""

    kind: LiteralKind
    value: bool | str | int | float | Decimal | None
    #: digits and sign as written: 1.50, -1E3
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ColumnName(Node):
    name: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Dereference(Node):
    """base->field"""

    base: Expression
    field: str


@dataclass(frozen=True, slots=True)
class Subscript(Node):
    """base[index]: an element of an ARRAY (from 1) or the value of a MAP's key."""

    base: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function, scalar or aggregate. COUNT(*) and COUNT() have no arguments."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Lambda(Node):
    parameters: tuple[str, ...]
    body: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    operator: Literal["+", "-", "*", "/", "%", "||"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Negative(Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class Logical(Node):
    operator: Literal["AND", "OR"]
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(Node):
    operand: Expression


Comparator = Literal["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    operator: Comparator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Between(Node):
    value: Expression
    low: Expression
    high: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class InList(Node):
    value: Expression
    items: tuple[Expression, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like(Node):
    value: Expression
    pattern: Expression
    escape: str | None
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    value: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class Case(Node):
    """CASE [operand] WHEN … THEN … [ELSE otherwise] END"""

    operand: Expression | None
    whens: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


@dataclass(frozen=True, slots=True)
class Cast(Node):
    operand: Expression
    type: SqlType


@dataclass(frozen=True, slots=True)
class AtTimeZone(Node):
    operand: Expression
    zone: str


@dataclass(frozen=True, slots=True)
class MakeArray(Node):
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class MakeMap(Node):
    entries: tuple[tuple[Expression, Expression], ...]


@dataclass(frozen=True, slots=True)
class MakeStruct(Node):
    entries: tuple[tuple[str, Expression], ...]


Expression = (
    LiteralValue
    | ColumnName
    | Dereference
    | Subscript
    | Call
    | Lambda
    | Arithmetic
    | Negative
    | Logical
    | Not
    | Comparison
    | Between
    | InList
    | Like
    | IsNull
    | Case
    | Cast
    | AtTimeZone
    | MakeArray
    | MakeMap
    | MakeStruct
)


# -------------------------------------------------------------------------------------- queries


@dataclass(frozen=True, slots=True)
class Star(Node):
    """`*` or `source.*`"""

    source: str | None = None


@dataclass(frozen=True, slots=True)
class StructStar(Node):
    """`base->*`: every field as a column of its own."""

    base: Expression


@dataclass(frozen=True, slots=True)
class SelectItem(Node):
    expression: Expression
    alias: str | None


@dataclass(frozen=True, slots=True)
class Relation(Node):
    name: str
    alias: str | None


@dataclass(frozen=True, slots=True)
class Within(Node):
    before_ms: int
    after_ms: int
    grace_ms: int | None


@dataclass(frozen=True, slots=True)
class Join(Node):
    kind: Literal["INNER", "LEFT", "RIGHT", "FULL"]
    relation: Relation
    within: Within | None
    condition: Expression


@dataclass(frozen=True, slots=True)
class WindowClause(Node):
    """A SESSION's `size_ms` is its gap of inactivity."""

    kind: Literal["TUMBLING", "HOPPING", "SESSION"]
    size_ms: int
    advance_ms: int
    retention_ms: int | None
    grace_ms: int | None


@dataclass(frozen=True, slots=True)
class Statement(Node):
    """Base of statements. `text`: from its first word to its semicolon."""

    text: str = field(default="", compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class OrderBy(Node):
    """ORDER BY of a pull query: ours."""

    keys: tuple[Expression, ...]
    is_descending: bool = False
    after: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Query(Statement):
    items: tuple[Star | StructStar | SelectItem, ...]
    relation: Relation
    joins: tuple[Join, ...] = ()
    window: WindowClause | None = None
    where: Expression | None = None
    group_by: tuple[Expression, ...] = ()
    partition_by: tuple[Expression, ...] = ()
    having: Expression | None = None
    emit: Literal["CHANGES", "FINAL"] | None = None
    order_by: OrderBy | None = None
    limit: LiteralValue | None = None


def walk(node: object) -> Iterator[tuple[Node | SqlType, int]]:
    """Every node and type below and including `node`, with its depth, without recursion."""
    pending: list[tuple[object, int]] = [(node, 1)]
    while pending:
        current, depth = pending.pop()
        if isinstance(current, tuple) and not isinstance(current, Position):
            parts: tuple[object, ...] = current  # pyright: ignore[reportUnknownVariableType]
            pending.extend((part, depth) for part in parts)
        elif isinstance(current, (Node, SqlType)):
            yield current, depth
            pending.extend((getattr(current, each.name), depth + 1) for each in fields(current))


def rewritten(part: Any, change: Callable[[Node | SqlType], Any]) -> Any:
    """A tree, or a tuple of trees, with every topmost node or type replaced for which `change`
    returns something other than None."""
    if isinstance(part, tuple) and not isinstance(part, Position):
        parts: tuple[Any, ...] = part  # pyright: ignore[reportUnknownVariableType]
        return tuple(rewritten(each, change) for each in parts)
    if not isinstance(part, (Node, SqlType)):
        return part
    made = change(part)
    if made is not None:
        return made
    return replace(
        part, **{each.name: rewritten(getattr(part, each.name), change) for each in fields(part)}
    )


def renamed(node: Any, change: Callable[[ColumnName], ColumnName]) -> Any:
    """The expression with its column names changed, as messages show it."""
    return rewritten(node, lambda part: change(part) if isinstance(part, ColumnName) else None)


def qualified(node: Any, source: str) -> Any:
    """The expression with its source before each column."""
    return renamed(node, lambda column: replace(column, source=column.source or source))
