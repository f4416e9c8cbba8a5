"""The WHERE of a pull query, read as: which keys, which windows.

One `Predicate` reads one clause: it sorts the operands of AND, one by one, into terms for key
columns and bounds for windows. A condition that is neither is refused, with ksqlDB's text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from standpipe.errors import StatementError
from standpipe.model import Column
from standpipe.sql.expressions.constants import constant, unexpected
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.lookup.columns import HELP, ROWKEY, PullNames
from standpipe.sql.lookup.filter import Filter, NotBindable
from standpipe.sql.lookup.scan import NotAKeyLookup
from standpipe.sql.lookup.template import (
    Bound,
    Coercion,
    FilterTest,
    PullTemplate,
    Slot,
    unchanged,
)
from standpipe.sql.plans import PullPlan
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import COMPARISON_NAMES, expression_text, name_text
from standpipe.sql.types import values
from standpipe.sql.types.types import BIGINT, SqlType, parse_type, quoted

_FLIPPED: Final = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<>": "<>"}
_WINDOW: Final = ("WINDOWSTART", "WINDOWEND")
#: which bound of a window each operator sets, in ksqlDB's words; one may be set once
_SIDES: Final = {
    "=": "EQUAL",
    "<": "LESS_THAN",
    "<=": "LESS_THAN",
    ">": "GREATER_THAN",
    ">=": "GREATER_THAN",
}


@dataclass(frozen=True, slots=True)
class Fixed:
    """A constant that is not a bare literal: it is the same in all statements of one shape."""

    value: object


Operand = Slot | Fixed


class Predicate:
    """Reads one WHERE clause. `keys`, `bounds` and `slots` are complete after `read`."""

    def __init__(self, names: PullNames, where: ast.Expression | None, at: ast.Position) -> None:
        self.names = names
        self.where = where
        self.at = at
        #: per key column, the lists of operands that it must be in
        self.keys: dict[str, list[tuple[Operand, ...]]] = {
            column.name: [] for column in names.source.key_columns
        }
        self.bounds: list[tuple[str, str, Operand]] = []  # column, operator, operand
        self.slots: list[Slot] = []
        #: conditions that name neither keys nor windows; None: not all were read
        self.others: list[ast.Expression] | None = None
        self.typer = Typer(names, "WHERE")
        self.typer.whole = where

    def read(self) -> None:
        """Read the clause. Raises StatementError, or NotAKeyLookup if it is not a key lookup."""
        where = self.where
        if where is None:
            raise NotAKeyLookup
        conditions: tuple[ast.Expression, ...] = (where,)
        if isinstance(where, ast.Logical) and where.operator == "AND":
            conditions = where.operands
        others = self.others = [each for each in conditions if not self._take(each)]
        if others or not all(self.keys.values()):
            raise NotAKeyLookup

    # ------------------------------------------------------------------------------- conditions

    def _take(self, node: ast.Expression) -> bool:
        """Classifies one condition; False if it is about other columns."""
        if isinstance(node, ast.InList) and not node.negated:
            column = self._key(node.value)
            if column is not None:
                operands = tuple(self._key_operand(item, column) for item in node.items)
                self.keys[column.name].append(operands)
                return True
        if isinstance(node, ast.Between) and not node.negated and self._window(node.value):
            low = ast.Comparison(node.at, ">=", node.value, node.low)
            high = ast.Comparison(node.at, "<=", node.value, node.high)
            return self._take(low) and self._take(high)
        if not isinstance(node, ast.Comparison):
            self.typer.condition(node)
            return False
        left, right, operator = node.left, node.right, node.operator
        if self._key(left) is None and self._window(left) is None:
            left, right, operator = right, left, _FLIPPED.get(operator, operator)
        bound = self._window(left)
        if bound is not None:
            self._take_bound(bound, operator, right, node)
            return True
        self.typer.condition(node)
        column = self._key(left)
        if column is None or operator != "=":
            return False
        self.keys[column.name].append((self._key_operand(right, column),))
        return True

    def _take_bound(
        self, name: str, operator: str, operand: ast.Expression, node: ast.Comparison
    ) -> None:
        if operator not in _SIDES:
            raise refusal(
                f"Unsupported {quoted(name)} bounds: {COMPARISON_NAMES[operator]}.{HELP}"
                f"\n{name} takes {', '.join(_SIDES)}.",
                node.at,
            )
        given = {_SIDES[other] for column, other, _ in self.bounds if column == name}
        side = _SIDES[operator]
        if given and (side == "EQUAL") != ("EQUAL" in given):
            raise refusal(
                f"`{expression_text(node)}` cannot be combined with other {quoted(name)} bounds."
                f"{HELP}",
                node.at,
            )
        if side in given:
            raise refusal(f"Duplicate {quoted(name)} bounds on: {side}.{HELP}", node.at)
        self.typer.condition(node)
        value = self._operand(operand, BIGINT, _window_bound(operand.at), name)
        self.bounds.append((name, operator, value))

    def filtered(self, plan: PullPlan, limit: Slot | None) -> PullTemplate | None:
        """A template for `plan`, which was made with the literals and reads what `others` say, too;
        None: their meaning may depend on the literals' values, or several keys are read."""
        if not self.others or plan.is_scan or not all(self.keys.values()):
            return None
        if any(map(self._binds_key, self.others)):
            return None  # which keys are read may depend on it
        made = Filter(self.names)
        try:
            test = made.test(self.others)
        except (NotBindable, StatementError):
            return None
        template = self.template(plan, limit, made, test)
        return template if template.is_single and all(map(_is_kept, self.slots)) else None

    def _binds_key(self, node: ast.Expression) -> bool:
        for each, _ in ast.walk(node):
            if isinstance(each, ast.Comparison) and each.operator == "=":
                sides: tuple[ast.Expression, ...] = (each.left, each.right)
            elif isinstance(each, ast.InList):
                sides = (each.value,)
            else:
                continue
            if any(self._key(side) is not None for side in sides):
                return True
        return False

    def template(
        self,
        plan: PullPlan,
        limit: Slot | None,
        others: Filter | None = None,
        test: FilterTest | None = None,
    ) -> PullTemplate:
        """The plan with slots for its literals, in the order of the text."""
        more = [] if limit is None else [limit]
        if others is not None:
            more += others.slots
        slots = sorted([*self.slots, *more], key=_offset_of)
        if others is not None:
            others.place(slots)
        places = {slot.offset: place for place, slot in enumerate(slots)}
        constants: list[object] = []

        def place_of(operand: Operand) -> int:
            if isinstance(operand, Slot):
                return places[operand.offset]
            constants.append(operand.value)
            return len(slots) + len(constants) - 1

        terms = tuple(
            tuple(tuple(map(place_of, operands)) for operands in lists)
            for lists in self.keys.values()
        )
        bounds = tuple(
            Bound(cast("Any", column), operator, place_of(operand))
            for column, operator, operand in self.bounds
        )
        limit_at = None if limit is None else places[limit.offset]
        return PullTemplate(
            plan,
            tuple(slots),
            tuple(constants),
            terms,
            bounds,
            limit_at,
            test,
            None if others is None else others.conjunction(),
        )

    # ---------------------------------------------------------------------------------- operands

    def _key_operand(self, node: ast.Expression, column: Column) -> Operand:
        target = parse_type(column.type)
        coercer = _key_value(column, node.at, is_bare=isinstance(node, ast.LiteralValue))
        return self._operand(node, target, coercer, column.name)

    def _operand(
        self, node: ast.Expression, target: SqlType, coercion: Coercer, name: str
    ) -> Operand:
        if isinstance(node, ast.LiteralValue):
            source, _ = constant(node)
            if node.kind == "NULL":
                raise _no_null(name, node)
            negated = node.text.startswith("-")
            slot = Slot(node.at.offset, coercion(source, target), negated)
            slot.coerce(node.value)
            self.slots.append(slot)
            return slot
        try:
            source, value = constant(node)
        except StatementError:
            self.typer.type(node)
            raise NotAKeyLookup from None
        if value is None:  # CAST(NULL AS …), 1 / 0
            raise _no_null(name, node)
        return Fixed(coercion(source, target)(value))

    def _key(self, node: ast.Expression) -> Column | None:
        """The key column that the expression names, directly or as ROWKEY; None if it does not."""
        if not isinstance(node, ast.ColumnName):
            return None
        keys = self.names.source.key_columns
        for column in keys:
            if column.name == node.name or (node.name == ROWKEY and len(keys) == 1):
                self.names.resolve(node, "WHERE")
                return column
        return None

    def _window(self, node: ast.Expression) -> str | None:
        if isinstance(node, ast.ColumnName) and node.name in _WINDOW and self.names.source.window:
            return node.name
        return None


# ----------------------------------------------------------------------------------------- values


def _no_null(name: str, node: ast.Expression) -> StatementError:
    """The refusal of a constant that no key can have, nor a window."""
    shown = f"({name_text(name)} = {expression_text(node)})"
    return refusal(f"Primary key columns can not be NULL: {shown}.{HELP}", node.at)


def _offset_of(slot: Slot) -> int:
    return slot.offset


def _is_kept(slot: Slot) -> bool:
    return slot.coerce is unchanged


#: (type of a literal, wanted type) -> the coercion between them.
Coercer = Callable[[SqlType, SqlType], Coercion]


def _key_value(column: Column, at: ast.Position, *, is_bare: bool) -> Coercer:
    """`is_bare`: a literal, of which ksqlDB says it in other words than of an expression."""

    def coercer(source: SqlType, target: SqlType) -> Coercion:
        is_same = source == target and target.base in ("INTEGER", "BIGINT", "STRING")
        if is_same or (source.base, target.base) == ("INTEGER", "BIGINT"):
            return unchanged

        def coerce(value: Any) -> Any:
            try:
                return values.coerce(value, source, target)
            except ValueError:
                why = f"'{value}' can not be converted to the type of the key column:"
                why = f"{why} {column.name} {column.type} KEY"
                if not is_bare:
                    why = unexpected(value, source, target, column.name)
                raise refusal(f"{why}{HELP}", at) from None

        return coerce

    return coercer


def _window_bound(at: ast.Position) -> Coercer:
    def coercer(source: SqlType, _target: SqlType) -> Coercion:
        if source.base in ("INTEGER", "BIGINT", "TIMESTAMP"):
            return unchanged
        if source.base != "STRING":
            raise refusal(
                "Window bounds must resolve to an INT, BIGINT, or STRING containing a datetime."
                f"{HELP}",
                at,
            )
        return parse

    def parse(text: str) -> int:
        try:
            return values.parse_timestamp(text)
        except ValueError:
            raise refusal(f"Failed to parse timestamp '{text}'{HELP}", at) from None

    return coercer
