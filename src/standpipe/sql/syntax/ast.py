"""The syntax tree of a statement, before its meaning is checked: frozen nodes with positions.

`at` is where a node begins (1-based line and column in the whole text that was parsed, and its
0-based offset); comparisons ignore it, so equal expressions are equal nodes. Names are already
upper-cased unless they were quoted. AND and OR have any number of operands; a sign before a number
is part of the number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple

from standpipe.sql.types.types import SqlType


class Position(NamedTuple):
    """A position in the parsed text: line and column from 1, offset in characters from 0."""

    line: int
    column: int
    offset: int


START: Final = Position(1, 1, 0)


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """Base of all nodes. `at`: where the node begins; comparisons ignore it."""

    at: Position = field(compare=False, repr=False)


# ---------------------------------------------------------------------------------- expressions

LiteralKind = Literal["NULL", "BOOLEAN", "STRING", "INTEGER", "BIGINT", "DECIMAL", "DOUBLE"]


@dataclass(frozen=True, slots=True)
class LiteralValue(SyntaxNode):
    """A literal. `at.offset` is that of the quote or of the first digit, after a folded sign."""

    kind: LiteralKind
    value: bool | str | int | float | Decimal | None
    #: digits and sign as written: 1.50, -1E3
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ColumnName(SyntaxNode):
    """NAME or SOURCE.NAME."""

    name: str
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Dereference(SyntaxNode):
    """base->field"""

    base: Expression
    field: str


@dataclass(frozen=True, slots=True)
class Subscript(SyntaxNode):
    """base[index]: an element of an ARRAY (from 1) or the value of a MAP's key."""

    base: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class FunctionCall(SyntaxNode):
    """A function, scalar or aggregate. COUNT(*) and COUNT() have no arguments."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Lambda(SyntaxNode):
    """x => body or (x, y) => body, an argument of TRANSFORM, FILTER or REDUCE."""

    parameters: tuple[str, ...]
    body: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic(SyntaxNode):
    """left + right, and the other operators; || joins text."""

    operator: Literal["+", "-", "*", "/", "%", "||"]
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Negative(SyntaxNode):
    """-operand, where the operand is not a number: a number's sign is part of its literal."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Logical(SyntaxNode):
    """a AND b AND c, or with OR: two operands or more."""

    operator: Literal["AND", "OR"]
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not(SyntaxNode):
    """NOT operand."""

    operand: Expression


Comparator = Literal["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]


@dataclass(frozen=True, slots=True)
class Comparison(SyntaxNode):
    """left = right, left IS DISTINCT FROM right, …; != is read as <>."""

    operator: Comparator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Between(SyntaxNode):
    """value [NOT] BETWEEN low AND high."""

    value: Expression
    low: Expression
    high: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class InList(SyntaxNode):
    """value [NOT] IN (item, …)."""

    value: Expression
    items: tuple[Expression, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like(SyntaxNode):
    """value [NOT] LIKE pattern [ESCAPE 'c']. The length of `escape` is not checked yet."""

    value: Expression
    pattern: Expression
    escape: str | None
    negated: bool


@dataclass(frozen=True, slots=True)
class IsNull(SyntaxNode):
    """value IS [NOT] NULL."""

    value: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class Case(SyntaxNode):
    """CASE [operand] WHEN … THEN … [ELSE otherwise] END"""

    operand: Expression | None
    whens: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression | None


@dataclass(frozen=True, slots=True)
class Cast(SyntaxNode):
    """CAST(operand AS type), also DATE '2020-02-23' and the like."""

    operand: Expression
    type: SqlType


@dataclass(frozen=True, slots=True)
class AtTimeZone(SyntaxNode):
    """operand AT TIME ZONE 'zone'. Parsed, but no pass supports it."""

    operand: Expression
    zone: str


@dataclass(frozen=True, slots=True)
class MakeArray(SyntaxNode):
    """ARRAY[item, …]."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class MakeMap(SyntaxNode):
    """MAP(key := value, …)."""

    entries: tuple[tuple[Expression, Expression], ...]


@dataclass(frozen=True, slots=True)
class MakeStruct(SyntaxNode):
    """STRUCT(name := value, …)."""

    entries: tuple[tuple[str, Expression], ...]


Expression = (
    LiteralValue
    | ColumnName
    | Dereference
    | Subscript
    | FunctionCall
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
class Star(SyntaxNode):
    """`*` or `source.*`"""

    source: str | None = None


@dataclass(frozen=True, slots=True)
class StructStar(SyntaxNode):
    """`base->*`: every field as a separate column."""

    base: Expression


@dataclass(frozen=True, slots=True)
class SelectItem(SyntaxNode):
    """expression [AS alias] of a SELECT list."""

    expression: Expression
    alias: str | None


@dataclass(frozen=True, slots=True)
class Relation(SyntaxNode):
    """A source after FROM or JOIN: NAME [AS alias]."""

    name: str
    alias: str | None


@dataclass(frozen=True, slots=True)
class Within(SyntaxNode):
    """WITHIN 1 HOUR, or (before, after), [GRACE PERIOD …] of a join of streams; all in ms.

    The right event may be up to `before_ms` older and `after_ms` newer than the left one.
    """

    before_ms: int
    after_ms: int
    grace_ms: int | None


@dataclass(frozen=True, slots=True)
class Join(SyntaxNode):
    """kind JOIN relation [WITHIN …] ON condition."""

    kind: Literal["INNER", "LEFT", "RIGHT", "FULL"]
    relation: Relation
    within: Within | None
    condition: Expression


@dataclass(frozen=True, slots=True)
class WindowClause(SyntaxNode):
    """A SESSION's `size_ms` is its gap of inactivity."""

    kind: Literal["TUMBLING", "HOPPING", "SESSION"]
    size_ms: int
    advance_ms: int
    retention_ms: int | None
    grace_ms: int | None


@dataclass(frozen=True, slots=True)
class Statement(SyntaxNode):
    """Base of statements. `text`: from the first word to the semicolon."""

    text: str = field(default="", compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class OrderBy(SyntaxNode):
    """ORDER BY of a pull query, which ksqlDB does not have."""

    keys: tuple[Expression, ...]
    is_descending: bool = False
    after: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Query(Statement):
    """SELECT … FROM …: a pull query, a push query (`emit`), or the SELECT of a persistent one."""

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


def walk(node: object) -> Iterator[tuple[SyntaxNode | SqlType, int]]:
    """Every node and type below and including `node`, with its depth, without recursion."""
    pending: list[tuple[object, int]] = [(node, 1)]
    while pending:
        current, depth = pending.pop()
        if isinstance(current, tuple) and not isinstance(current, Position):
            parts: tuple[object, ...] = current  # pyright: ignore[reportUnknownVariableType]
            pending.extend((part, depth) for part in parts)
        elif isinstance(current, (SyntaxNode, SqlType)):
            yield current, depth
            pending.extend((getattr(current, each.name), depth + 1) for each in fields(current))


def rewritten(part: Any, change: Callable[[SyntaxNode | SqlType], Any]) -> Any:
    """A tree, or a tuple of trees, with every topmost node or type for which `change` does not
    return None replaced by that result."""
    if isinstance(part, tuple) and not isinstance(part, Position):
        parts: tuple[Any, ...] = part  # pyright: ignore[reportUnknownVariableType]
        return tuple(rewritten(each, change) for each in parts)
    if not isinstance(part, (SyntaxNode, SqlType)):
        return part
    made = change(part)
    if made is not None:
        return made
    return replace(
        part, **{each.name: rewritten(getattr(part, each.name), change) for each in fields(part)}
    )


def renamed(node: Any, change: Callable[[ColumnName], ColumnName]) -> Any:
    """The expression with its column names changed, for messages."""
    return rewritten(node, lambda part: change(part) if isinstance(part, ColumnName) else None)


def qualified(node: Any, source: str) -> Any:
    """The expression with each column qualified by `source`."""
    return renamed(node, lambda column: replace(column, source=column.source or source))
