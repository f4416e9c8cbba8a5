"""Expressions of pull queries as Python functions over a row: what Spark does for streams.

`Evaluator.compile` returns a function from the full row (types.py defines the values; ROWTIME is
last) to the value. The Typer has already checked the expression, so only NULL and the limits of
arithmetic are handled here. Arithmetic with NULL, and AND, OR and NOT of NULL, fail, which makes
the whole expression NULL (`failing.py`); comparisons with NULL are false.
"""

# SQL values have no static types: these functions pass Any
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from standpipe.errors import NotComputable
from standpipe.sql.expressions import coercion, evaluator_conditions, lambdas
from standpipe.sql.expressions.evaluator_conditions import null_if_failed, raising, strict
from standpipe.sql.expressions.evaluator_functions import FUNCTIONS
from standpipe.sql.expressions.python.arithmetic import computed, with_nan
from standpipe.sql.expressions.python.collections import element, entries_of, key_of
from standpipe.sql.expressions.python.computed import ITEM_WORK, Computed, lengths
from standpipe.sql.expressions.scope import Names
from standpipe.sql.expressions.statement_values import NAMES, Draw
from standpipe.sql.expressions.typer import Typer
from standpipe.sql.functions.failing_calls import failing_of
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import unsupported
from standpipe.sql.types import casts, values
from standpipe.sql.types.typed_expression import Constant, Failing
from standpipe.sql.types.types import SqlType, common_type

Row = Sequence[Any]
Compute = Callable[[Row], Any]

#: Characters and items that the functions of one clause may read and make for a row, in equal
#: parts: some 20 ms, in which nothing else of the process may run. WORK_MIN: the least that each
#: may have.
WORK_MAX: Final = 4_194_304
WORK_MIN: Final = 1_024

_ADDED_TEXT: Final = Computed(operator.add, work=lengths)
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class RowNames(Names, Protocol):
    """The columns of the row that expressions are evaluated on: `lookup.columns.PullNames`."""

    def index_of(self, name: str) -> int | None:
        """Index of a column in the row; None if there is no such column."""
        ...


class Evaluator:
    """Compiles the expressions of one clause ("SELECT", "WHERE" or "VALUES").

    `kind`: the name of the statement in refusals. `draw`: what RANDOM() and the like are in a row;
    None: they are refused, as the statement has them as literals.
    """

    def __init__(
        self, names: RowNames, clause: str, kind: str = "a pull query", draw: Draw | None = None
    ) -> None:
        self.names = names
        self.kind = kind
        self._draw = draw
        self.typer = Typer(names, clause)
        #: functions of the clause that share WORK_MAX
        self._limited_count = 0
        self.parameters = lambdas.LambdaParameters(self.typer)
        #: of each node, as a lambda's arithmetic is asked for and then its whole body. Empty while
        #: nothing is compiled: what is compiled refers to this object, and a ring of thousands of
        #: objects would be left to the collection of garbage. The last: it may raise Failed
        self._compiled: dict[Hashable, tuple[ast.Expression, Compute, bool]] = {}
        self._depth = 0
        #: whether what is being compiled may raise Failed
        self._may_fail = False

    def type(self, node: ast.Expression) -> SqlType:
        """The type of an expression. Raises StatementError as the Typer does."""
        return self.typer.type(node).type

    def condition(self, node: ast.Expression) -> Callable[[Row], bool]:
        """A WHERE condition: NULL counts as false."""
        self.typer.condition(node)
        compute = self.compile(node)
        return lambda row: compute(row) is True

    def compile(self, node: ast.Expression) -> Compute:
        """The whole expression: NULL where a part of it fails. Within another one, what fails
        raises Failed. Raises StatementError for an expression that pull queries cannot compute."""
        key = (id(node), self.parameters.scope)
        outer = self._may_fail
        if key not in self._compiled:
            handler = _HANDLERS.get(type(node))
            if handler is None:
                raise unsupported(f"This expression in {self.kind}", node.at)
            self._depth += 1
            self._may_fail = False
            try:
                compute = handler(self, node)
                if self._depth == 1 and self._may_fail:
                    compute, self._may_fail = null_if_failed(compute), False
                self._compiled[key] = node, compute, self._may_fail
                return compute
            finally:
                self._depth -= 1
                self._may_fail |= outer
                if not self._depth:
                    self._compiled.clear()
        _, compute, may_fail = self._compiled[key]
        self._may_fail = outer or may_fail
        return compute

    def caught(self, node: ast.Expression) -> Compute:
        """The expression, NULL where it fails, as a part of another one."""
        outer, self._may_fail = self._may_fail, False
        compute = self.compile(node)
        may_fail, self._may_fail = self._may_fail, outer
        return null_if_failed(compute) if may_fail else compute

    def failing(self, compute: Compute, unless_null: Sequence[Compute] = ()) -> Compute:
        """Raises Failed where the value is NULL, except if one of `unless_null` is."""
        self._may_fail = True
        return raising(compute, unless_null)

    def argument(self, node: ast.Expression) -> Compute:
        """An argument of a call: what fails in a call or a field is NULL there."""
        is_call = isinstance(node, (ast.FunctionCall, ast.Dereference))
        if is_call or (isinstance(node, ast.Arithmetic) and node.operator == "||"):
            return self.caught(node)
        return self.compile(node)

    # ------------------------------------------------------------------------------ simple nodes

    def literal(self, node: ast.LiteralValue) -> Compute:
        """1.5, 'text', TRUE, NULL: the value itself."""
        value = node.value
        return lambda _: value

    def column(self, node: ast.ColumnName) -> Compute:
        """A parameter of an enclosing lambda, otherwise a column of the row, by its index."""
        index = self.parameters.index_of(node)
        if index is None:
            index = self.names.index_of(node.name)
        assert index is not None, "the typer would have refused it"
        return operator.itemgetter(index)

    def dereference(self, node: ast.Dereference) -> Compute:
        """base->field; NULL if the STRUCT is NULL."""
        base, field = self.compile(node.base), node.field
        return strict(lambda value: value.get(field), base)

    def subscript(self, node: ast.Subscript) -> Compute:
        """base[index]; NULL if the array has no such index, or the map no such key."""
        base, index = self.compile(node.base), self.compile(node.index)
        if self.type(node.base).base == "MAP":
            return strict(lambda value, key: value.get(key), base, index)
        if isinstance(node.index, ast.LiteralValue):
            return strict(element, base, index)
        place = self.failing(index)

        def pick(row: Row) -> Any:
            items = base(row)
            return None if items is None else element(items, place(row))

        return pick

    def cast(self, node: ast.Cast) -> Compute:
        """CAST(operand AS type); NULL for a value that does not fit, as for a column in ksqlDB."""
        return self.converted(self.caught(node.operand), self.type(node.operand), node.type)

    # -------------------------------------------------------------------------------- operations

    def arithmetic(self, node: ast.Arithmetic) -> Compute:
        """+, -, *, /, % and ||. Integers wrap; an integer divided by zero is NULL."""
        if node.operator == "||":
            return self.call(ast.FunctionCall(node.at, "CONCAT", (node.left, node.right)))
        left, right = self.compile(node.left), self.compile(node.right)
        of = self.type(node)
        if of.base == "STRING":
            return self.limited("+", _ADDED_TEXT, [_shown(left), _shown(right)])
        return self.failing(
            strict(lambda one, two: computed(node.operator, one, two, of), left, right)
        )

    def negative(self, node: ast.Negative) -> Compute:
        """-operand; an integer wraps."""
        of = self.type(node.operand)
        operand = self.failing(self.compile(node.operand))
        if of.base in ("INTEGER", "BIGINT"):
            return lambda row: casts.wrapped(-operand(row), of.base)
        return lambda row: -operand(row)

    def comparison(self, node: ast.Comparison) -> Compute:
        """=, <>, <, <=, >, >= are false with NULL; IS [NOT] DISTINCT FROM compares NULLs."""
        left, right = self._alike(node.left, node.right)
        if node.operator.startswith("IS"):
            same = node.operator == "IS NOT DISTINCT FROM"
            return lambda row: (key_of(left(row)) == key_of(right(row))) is same
        compare = strict(with_nan(_COMPARE[node.operator]), left, right)
        return lambda row: compare(row) is True  # ksqlDB: a comparison with NULL is false

    def between(self, node: ast.Between) -> Compute:
        """value [NOT] BETWEEN low AND high, bounds included."""
        low = self.comparison(ast.Comparison(node.at, ">=", node.value, node.low))
        high = self.comparison(ast.Comparison(node.at, "<=", node.value, node.high))
        negated = node.negated
        return lambda row: (low(row) and high(row)) is not negated

    def array(self, node: ast.MakeArray) -> Compute:
        """ARRAY[…] as a list; what fails within is NULL there."""
        (of,) = self.type(node).arguments
        items = [self.coerced(item, of) for item in node.items]
        return lambda row: [item(row) for item in items]

    def map(self, node: ast.MakeMap) -> Compute:
        """MAP(…) as a dict; the last of equal keys wins."""
        of_key, of_value = self.type(node).arguments
        entries = [
            (self.coerced(key, of_key), self.coerced(value, of_value))
            for key, value in node.entries
        ]
        return lambda row: entries_of(of_key, [(key(row), value(row)) for key, value in entries])

    def struct(self, node: ast.MakeStruct) -> Compute:
        """STRUCT(…) as a dict by field name."""
        fields = [(name, self.caught(value)) for name, value in node.entries]
        return lambda row: {name: value(row) for name, value in fields}

    def call(self, node: ast.FunctionCall) -> Compute:
        """A function of `evaluator_functions.FUNCTIONS`. Raises StatementError for others."""
        if node.name in lambdas.NAMES:
            return lambdas.call(self, node)
        draw = self._draw
        if draw is not None and node.name in NAMES and not node.arguments:
            self.typer.called(node)
            return lambda _: draw(node.name)
        made = FUNCTIONS.get(node.name)
        if made is None or (made.counts and len(node.arguments) not in made.counts):
            shown = node.name if made is None else f"{node.name}()"
            raise unsupported(f"The function {shown} in {self.kind}", node.at)
        called = self.typer.called(node)
        found = called.found
        arguments = [
            self._argument_as(argument, parameter)
            for argument, parameter in zip(called.node.arguments, found.parameters, strict=True)
        ]
        if made.for_types is not None:
            made = replace(made, compute=made.for_types(found.parameters, found.result))
        failing = failing_of(node.name, found.parameters)
        compute = self._computed(node.name, made, arguments)
        if failing is Failing.FAILING_CALL:
            return self.failing(compute)
        return self.failing(compute, arguments) if failing is Failing.INVALID_CALL else compute

    def _argument_as(self, node: ast.Expression, parameter: SqlType) -> Compute:
        """To convert an argument is a CAST."""
        source = self.type(node)
        compute = self.argument(node) if source == parameter else self.caught(node)
        return self.converted(compute, source, parameter)

    def _computed(self, name: str, made: Computed, arguments: Sequence[Compute]) -> Compute:
        if made.work is not None:
            return self.limited(name, made, arguments)
        if not made.is_strict:
            return lambda row: made.compute(*(argument(row) for argument in arguments))
        return strict(made.compute, *arguments)

    def limited(self, name: str, made: Computed, arguments: Sequence[Compute]) -> Compute:
        """A function over texts or lists. What all those of a clause do for one row is limited:
        REPLACE within REPLACE makes 225 MB of a few words."""
        if self.parameters.count:
            return lambdas.limited(made, arguments, self.parameters.budget)
        work, share = made.work, self.share()
        assert work is not None

        def compute(*given: Any) -> Any:
            wanted, allowed = work(*given), share()
            if wanted > allowed:
                raise NotComputable(
                    f"{name} would work on {wanted} characters of a row; {allowed} are allowed."
                    f" An item of a list counts as {ITEM_WORK} characters."
                )
            if made.takes_budget:
                return made.compute(*given, budget=[allowed - wanted])
            return made.compute(*given)

        if made.is_strict:
            return strict(compute, *arguments)
        return lambda row: compute(*(argument(row) for argument in arguments))

    def share(self) -> Callable[[], int]:
        """What the functions of one more call may work on, once all are compiled."""
        self._limited_count += 1
        return lambda: max(WORK_MIN, WORK_MAX // self._limited_count)

    # ------------------------------------------------------------------------------------- parts

    def converted(self, compute: Compute, source: SqlType, target: SqlType) -> Compute:
        """The value as another type, NULL where it does not fit."""
        if source == target or "NULL" in (source.base, target.base):
            return compute

        def convert(value: Any) -> Any:
            try:
                return casts.cast_value(value, source, target)
            except (ValueError, ArithmeticError):
                return None

        return strict(convert, compute)

    def coerced(self, node: ast.Expression, wanted: SqlType) -> Compute:
        """An item of a list as the list's common type; a literal as the typer reads it there."""
        made = coercion.coerced(self.typer.type(node), wanted)
        if isinstance(made, Constant):
            value = made.value
            return lambda _: value
        return self.converted(self.caught(node), self.type(node), wanted)

    def _alike(self, one: ast.Expression, two: ast.Expression) -> tuple[Compute, Compute]:
        """Both sides of a comparison as one type: text beside a date or time becomes one."""
        wanted = self._compared_as(one, two)
        return self._as(one, self.type(one), wanted), self._as(two, self.type(two), wanted)

    def _compared_as(self, one: ast.Expression, two: ast.Expression) -> SqlType | None:
        left, right = self.type(one), self.type(two)
        wanted = values.unified(left, right) or common_type(left, right)
        if wanted is None and "STRING" in (left.base, right.base):
            return SqlType("TIMESTAMP")  # ROWTIME or a window bound against datetime text
        return wanted

    def _as(self, node: ast.Expression, source: SqlType, wanted: SqlType | None) -> Compute:
        compute = self.compile(node)
        if wanted is None or wanted.base not in _COMPARED_AS:
            return compute
        if source.base == "STRING" or (source.base, wanted.base) == ("DATE", "TIMESTAMP"):
            return self.converted(compute, source, wanted)
        return self.converted(compute, source, wanted) if wanted.base == "DOUBLE" else compute


#: types that a side of a comparison is converted to
_COMPARED_AS: Final = frozenset({"DATE", "TIME", "TIMESTAMP", "BYTES", "DOUBLE"})


def _shown(text: Compute) -> Compute:
    """Java's + shows a null as that word."""

    def shown(row: Row) -> Any:
        value = text(row)
        return "null" if value is None else value

    return shown


_HANDLERS: Final[dict[type, Callable[[Evaluator, Any], Compute]]] = {
    ast.LiteralValue: Evaluator.literal,
    ast.ColumnName: Evaluator.column,
    ast.Dereference: Evaluator.dereference,
    ast.Subscript: Evaluator.subscript,
    ast.Cast: Evaluator.cast,
    ast.Arithmetic: Evaluator.arithmetic,
    ast.Negative: Evaluator.negative,
    ast.Logical: evaluator_conditions.logical,
    ast.Not: evaluator_conditions.not_,
    ast.Comparison: Evaluator.comparison,
    ast.Between: Evaluator.between,
    ast.InList: evaluator_conditions.in_list,
    ast.Like: evaluator_conditions.like,
    ast.IsNull: evaluator_conditions.is_null,
    ast.Case: evaluator_conditions.case,
    ast.MakeArray: Evaluator.array,
    ast.MakeMap: Evaluator.map,
    ast.MakeStruct: Evaluator.struct,
    ast.FunctionCall: Evaluator.call,
}
