"""The conditions of a key lookup beside its key, as one test for all literals: `Filter`. Pure.

    SELECT … WHERE ID = 'k' AND SCORE > 5 AND NAME <> 'x';
                            └── conditions of rows ──┘

`Evaluator` compiles a WHERE with its literals in it, so each statement would have to be parsed. A
Filter is compiled once for a shape, and is given the literals with each row. It means the same, as
it takes only what means the same for all literals of their kinds:

- `column operator literal`, [NOT] BETWEEN and [NOT] IN, of the types in `_compared_as`: there,
  neither the types of the comparison nor its refusals depend on the literal's value;
- conditions without literals, which `Evaluator` compiles as they are;
- AND, OR and NOT of these.

Anything else has no Filter and is planned each time. Not here: which rows are read (`template.py`),
the meaning of expressions (`expressions/evaluator.py`).
"""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, cast

from standpipe.errors import StatementError
from standpipe.sql.expressions.evaluator import Evaluator
from standpipe.sql.expressions.python.arithmetic import with_nan
from standpipe.sql.expressions.python.logic import connected
from standpipe.sql.lookup.columns import PullNames
from standpipe.sql.lookup.template import Coercion, Condition, Slot, unchanged
from standpipe.sql.plans import PlanCondition
from standpipe.sql.syntax import ast
from standpipe.sql.types.types import SqlType

Row = Sequence[Any]
#: a condition: of the full row and the values of all slots; None is SQL's NULL
Test = Callable[[Row, Sequence[Any]], bool | None]

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FLIPPED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WHOLE: Final = frozenset({"INTEGER", "BIGINT"})
_NUMBERS: Final = frozenset({*_WHOLE, "DECIMAL", "DOUBLE"})
#: digits and places of a DECIMAL on either side, so that the type that holds both has at most 38
_DECIMAL_DIGITS_MAX: Final = 18


class NotBindable(Exception):
    """A condition whose meaning may depend on its literals' values."""


class Filter:
    """Compiles the conditions of one WHERE; `slots` are their literals, in any order."""

    def __init__(self, names: PullNames) -> None:
        self._names = names
        self._evaluator = Evaluator(names, "WHERE")
        self.slots: list[Slot] = []
        #: comparisons that were compiled; `place`: the literal's offset
        self._conditions: list[Condition] = []
        #: the WHERE is an AND of `_conditions` and nothing else
        self._is_conjunction = True
        #: offset of a literal -> its place among the values; complete when a test is called
        self._places: dict[int, int] = {}

    def test(self, conditions: Sequence[ast.Expression]) -> Callable[[Row, Sequence[Any]], bool]:
        """Whether a row satisfies all of them. Raises NotBindable."""
        tests = tuple(map(self._condition, conditions))
        if len(tests) == 1:
            (only,) = tests
            return lambda row, given: only(row, given) is True

        # as AND does: the first that is not true decides
        return lambda row, given: all(test(row, given) is True for test in tests)

    def conjunction(self) -> tuple[Condition, ...] | None:
        """What `test` has compiled, if that is an AND of comparisons with literals; None: it has
        anything else. Complete after `place`."""
        if not self._is_conjunction:
            return None
        places = self._places
        return tuple(each._replace(place=places[each.place]) for each in self._conditions)

    # -------------------------------------------------------------------------------- conditions

    def _condition(self, node: ast.Expression) -> Test:
        if not any(isinstance(each, ast.LiteralValue) for each, _ in ast.walk(node)):
            self._is_conjunction = False
            compute = self._evaluator.compile(node)
            return lambda row, _given: compute(row)
        match node:
            case ast.Logical():
                self._is_conjunction &= node.operator == "AND"
                return connected(node.operator, tuple(map(self._condition, node.operands)))
            case ast.Not():
                self._is_conjunction = False
                operand = self._condition(node.operand)
                return lambda row, given: _negated(operand(row, given))
            case ast.Comparison(operator=sign) if sign in _COMPARE:
                return self._comparison(node)
            case ast.Between():
                return self._between(node)
            case ast.InList():
                return self._in_list(node)
            case _:
                raise NotBindable

    def _comparison(self, node: ast.Comparison) -> Test:
        """False with NULL, as `Evaluator.comparison`."""
        left, right, sign = node.left, node.right, node.operator
        if isinstance(left, ast.LiteralValue):
            left, right, sign = right, left, _FLIPPED[sign]
        index, of = self._column(left)
        offset, compared = self._literal(right, of)
        self._conditions.append(Condition(index, sign, offset, compared))
        compare, places = _COMPARE[sign], self._places
        if compared == "DOUBLE":
            compare = with_nan(compare)

        def test(row: Row, given: Sequence[Any]) -> bool:
            value = row[index]
            return value is not None and compare(value, given[places[offset]])

        return test

    def _between(self, node: ast.Between) -> Test:
        low = self._comparison(ast.Comparison(node.at, ">=", node.value, node.low))
        high = self._comparison(ast.Comparison(node.at, "<=", node.value, node.high))
        negated = node.negated
        self._is_conjunction &= not negated
        return lambda row, given: (low(row, given) and high(row, given)) is not negated

    def _in_list(self, node: ast.InList) -> Test:
        """NULL is in no list, as `Evaluator.in_list`."""
        index, of = self._column(node.value)
        if of.base != "STRING" and of.base not in _WHOLE:
            raise NotBindable
        self._is_conjunction = False
        offsets = [self._literal(item, of)[0] for item in node.items]
        negated, places = node.negated, self._places

        def test(row: Row, given: Sequence[Any]) -> bool:
            value = row[index]
            return any(value == given[places[offset]] for offset in offsets) is not negated

        return test

    # ---------------------------------------------------------------------------------- operands

    def _column(self, node: ast.Expression) -> tuple[int, SqlType]:
        """Index in the full row, and type."""
        if not isinstance(node, ast.ColumnName):
            raise NotBindable
        self._names.resolve(node, "WHERE")
        index = self._names.index_of(node.name)
        assert index is not None, "resolve would have refused it"
        return index, self._names.type_of(index)

    def _literal(self, node: ast.Expression, column: SqlType) -> tuple[int, str]:
        """Its offset, and the type that it is compared as."""
        if not isinstance(node, ast.LiteralValue):
            raise NotBindable
        compared = _compared_as(column, node.kind)
        if compared is None:
            raise NotBindable
        coerce: Coercion = unchanged
        if node.kind == "DECIMAL":
            coerce = _short_double if compared == "DOUBLE" else _short
        elif compared == "DOUBLE":
            coerce = float
        coerce(cast("Any", node.value))
        self.slots.append(Slot(node.at.offset, coerce, node.text.startswith("-")))
        return node.at.offset, compared

    def place(self, slots: Sequence[Slot]) -> None:
        """All literals of the statement, in the order of the values that tests will be given."""
        self._places.update({slot.offset: place for place, slot in enumerate(slots)})


def conditions_of(
    nodes: Sequence[ast.Expression], names: PullNames
) -> tuple[PlanCondition, ...] | None:
    """Conditions of an AND, if all are comparisons of columns with literals; None: one is not."""
    made = Filter(names)
    if nodes:
        try:
            made.test(nodes)
        except (NotBindable, StatementError):
            return None
    made.place(made.slots)
    found = made.conjunction()
    if found is None:
        return None
    literals = {
        each.at.offset: each
        for node in nodes
        for each, _ in ast.walk(node)
        if isinstance(each, ast.LiteralValue)
    }
    slots = [made.slots[each.place] for each in found]
    return tuple(
        PlanCondition(
            column=each.column,
            sign=each.sign,
            literal=_written(literals[slot.offset]),
            is_negated=slot.negated,
            compared=each.compared,
        )
        for each, slot in zip(found, slots, strict=True)
    )


def _written(literal: ast.LiteralValue) -> bytes:
    shown = literal.value if literal.kind == "STRING" else literal.text.removeprefix("-")
    return str(shown).encode()


def _compared_as(column: SqlType, literal: str) -> str | None:
    """What both sides of a comparison are, if that is the same for all literals of the kind."""
    base = column.base
    if base == literal == "STRING":
        return base
    if base in _WHOLE and literal in _WHOLE:
        return "BIGINT"
    if base == "DOUBLE" and literal in _NUMBERS:
        return base
    if base == "DECIMAL" and literal in (*_WHOLE, "DECIMAL"):
        return base if column.precision <= _DECIMAL_DIGITS_MAX else None
    return None


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _short(number: Decimal) -> Decimal:
    """A DECIMAL literal whose type fits beside that of any column that is compared with it. Raises
    StatementError for others: they are planned each time."""
    _, digits, exponent = number.as_tuple()
    if len(digits) > _DECIMAL_DIGITS_MAX or not -_DECIMAL_DIGITS_MAX <= int(exponent) <= 0:
        raise StatementError("a long number")
    return number


def _short_double(number: Decimal) -> float:
    return float(_short(number))
