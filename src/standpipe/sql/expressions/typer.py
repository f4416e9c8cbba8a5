"""AST → typed expressions: resolves names, chooses functions, checks and converts types.

One `Typer` per clause, because messages name the clause. Conversions become explicit here: in the
result, both sides of a comparison and all branches of a CASE have equal types.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Final

from standpipe.errors import StatementError
from standpipe.sql.expressions import (
    admission,
    arithmetic,
    cases,
    comparisons,
    constructors,
    map_sets,
)
from standpipe.sql.expressions.arguments import (
    Called,
    as_written,
    check_expression,
    check_literals,
    with_unit,
)
from standpipe.sql.expressions.scope import Names
from standpipe.sql.functions import registry, times
from standpipe.sql.functions.cast import check_cast, check_known, comparable, convert, spark_name
from standpipe.sql.functions.failing_calls import failing_of
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal, unknown_name, unsupported
from standpipe.sql.syntax.printer import COMPARISON_NAMES, expression_text
from standpipe.sql.types import types, values
from standpipe.sql.types.typed_expression import (
    Aggregate,
    Constant,
    Failing,
    Operation,
    Typed,
    caught,
)
from standpipe.sql.types.types import BOOLEAN, NULL, SqlType

#: In Spark's text of TRANSFORM and FILTER a body stands twice: each level doubles it.
LAMBDA_NESTING_MAX: Final = 8
_FILTERS: Final = ("WHERE", "HAVING")  # clauses that are one condition
_SAME_ONLY: Final = frozenset({"BOOLEAN", "ARRAY", "MAP", "STRUCT"})  # only = and <>, no ordering


class Typer:
    """Types the expressions of one clause ("SELECT", "WHERE", …) over the names of a scope."""

    def __init__(
        self,
        names: Names,
        clause: str,
        *,
        takes_aggregates: bool = False,
        takes_tables: bool = False,
    ) -> None:
        self.names = names
        self.clause = clause
        self.takes_aggregates = takes_aggregates
        #: whether table functions are allowed here
        self.takes_tables = takes_tables
        #: the aggregate and the table function whose arguments are being typed
        self._aggregate: str | None = None
        self._table: str | None = None
        self._variables: dict[str, Typed] = {}  # of the enclosing lambdas
        self._scope = 0  # the same for equal variables
        self._scopes: dict[Hashable, int] = {}  # hashed once: a Typed takes long
        self._lambda_depth = 0
        self.checked_cases: set[int] = set()
        #: the WHERE or HAVING that messages about types show; None: none yet, or another clause
        self.whole: ast.Expression | None = None
        #: Callers ask for each level of a nested expression, and each answer needs all below. The
        #: node beside the result keeps its id from being used again.
        self._typed: dict[Hashable, tuple[ast.Expression, Typed]] = {}

    def type(self, node: ast.Expression) -> Typed:
        """The typed expression. Raises StatementError at the node that is wrong."""
        key = (id(node), self._scope, self._aggregate, self._table)
        if known := self._typed.get(key):
            return known[1]
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise unsupported(_NOT_YET.get(type(node), expression_text(node)), node.at)
        typed = handler(self, node)
        self._typed[key] = (node, typed)
        return typed

    def condition(self, node: ast.Expression) -> Typed:
        """An expression that must be BOOLEAN: a WHERE, a HAVING, an operand of AND."""
        if self.whole is None and self.clause in _FILTERS:
            self.whole = node
        typed = self.type(node)
        if typed.type not in (BOOLEAN, NULL):
            text = expression_text(node)
            raise refusal(
                f"Type error in {self.clause} expression: Should evaluate to boolean but is "
                f"{text} ({typed.type}) instead.\nStatement: {text}",
                node.at,
            )
        return typed

    # ------------------------------------------------------------------------------ simple nodes

    def literal(self, node: ast.LiteralValue) -> Typed:
        """A constant; a decimal literal has the precision and scale with which it is written."""
        if node.kind == "DECIMAL":
            check_known(of := types.literal_decimal(node.text), node.at)
            return Constant(of, node.value)
        return Constant(SqlType(node.kind), node.value)

    def under(self, variables: dict[str, Typed], body: ast.Expression) -> Typed:
        """A lambda's typed body, in which its parameters may be used as names."""
        if self._lambda_depth == LAMBDA_NESTING_MAX:
            raise refusal(f"Lambdas are nested deeper than {LAMBDA_NESTING_MAX} levels.", body.at)
        admission.check_parameters(variables, self._variables, self.names.own_columns(), body.at)
        self._lambda_depth += 1
        try:
            with self.variables(variables):
                return self.type(body)
        finally:
            self._lambda_depth -= 1

    @contextmanager
    def variables(self, variables: Mapping[str, Typed]) -> Generator[None]:
        """Meanwhile, parameters of a lambda may be used as names."""
        outer, scope = self._variables, self._scope
        self._variables = {**outer, **variables}
        made = (scope, tuple(sorted(variables.items(), key=itemgetter(0))))
        self._scope = self._scopes.setdefault(made, len(self._scopes) + 1)
        try:
            yield
        finally:
            self._variables, self._scope = outer, scope

    def column(self, node: ast.ColumnName) -> Typed:
        """A variable of an enclosing lambda, otherwise a column of the scope."""
        if node.source is None and node.name in self._variables:
            return self._variables[node.name]
        return self.names.resolve(node, self.clause, in_aggregate=self._aggregate is not None)

    def dereference(self, node: ast.Dereference) -> Typed:
        """base->field. Raises UnknownName for a field that the STRUCT lacks."""
        base = self.type(node.base)
        if base.type.base != "STRUCT":
            raise self._wrong(f"Expected STRUCT type, got: {base.type}", node)
        of = base.type.field(node.field)
        if of is None:
            raise unknown_name(
                self._explained(
                    f"Could not find field '{node.field}' in '{expression_text(node.base)}'."
                    f" It is {base.type}."
                ),
                node.at,
                registry.nearest(node.field, base.type.field_names),
            )
        field = types.quoted(node.field).replace("{", "{{").replace("}", "}}")
        return Operation(of, f"{{0}}.{field}", (base,), failing=Failing.FIELD)

    def subscript(self, node: ast.Subscript) -> Typed:
        """base[index]: an ARRAY counts from 1, or from the end if negative; NULL out of range."""
        base, index = self.type(node.base), self.type(node.index)
        admission.check_subscript(node, base.type, index.type)
        if base.type.base == "MAP":
            key, value = base.type.arguments
            return Operation(value, "element_at({0}, {1})", (base, self._as(index, key, node)))
        position = self._as(index, types.INTEGER, node)
        template = "if({1} IN (0, -2147483648), NULL, try_element_at({0}, {1}))"
        of = base.type.arguments[0]
        return Operation(of, template, (base, position), failing=Failing.ELEMENT)

    def cast(self, node: ast.Cast) -> Typed:
        """CAST(operand AS type). A constant that does not fit is NULL, as for a column."""
        operand = self.type(node.operand)
        check_known(node.type, node.at)
        prefix = "Invalid Select: " if self.clause == "SELECT" else ""
        check_cast(operand.type, node.type, node.at, prefix)
        try:
            made = convert(operand, node.type)
        except ValueError as error:
            if not isinstance(operand, Constant):
                raise refusal(str(error), node.at) from None
            # for example text that is not a number: NULL for every row, as for a column
            return Constant(node.type, None)
        return caught(made, unless=operand)

    # -------------------------------------------------------------------------------- operations

    def arithmetic(self, node: ast.Arithmetic) -> Typed:
        """left operator right, both converted to the result's type; || is CONCAT."""
        if node.operator == "||":
            return self.call(ast.FunctionCall(node.at, "CONCAT", (node.left, node.right)))
        left, right = self.type(node.left), self.type(node.right)
        result = arithmetic.computed(node.operator, left, right)
        if result is None:
            text = self._text(node)
            raise self._wrong(
                f"Error processing expression: {text}. Unsupported arithmetic types."
                f" {left.type.base} {right.type.base}\nStatement: {text}",
                node,
            )
        return result

    def negative(self, node: ast.Negative) -> Typed:
        """-operand, of a number."""
        operand = self.type(node.operand)
        if not operand.type.is_numeric:
            raise refusal(f"Cannot negate {expression_text(node.operand)}", node.at)
        return arithmetic.negated(operand)

    def logical(self, node: ast.Logical) -> Typed:
        """AND or OR of conditions."""
        parts = tuple(self.condition(operand) for operand in node.operands)
        places = f" {node.operator} ".join(f"{{{index}}}" for index in range(len(parts)))
        failing = Failing.ALL if node.operator == "AND" else Failing.ANY
        return Operation(BOOLEAN, f"({places})", parts, failing=failing)

    def not_(self, node: ast.Not) -> Typed:
        """NOT operand."""
        operand = self.condition(node.operand)
        return Operation(BOOLEAN, "(NOT {0})", (operand,), failing=Failing.NOT)

    def comparison(self, node: ast.Comparison) -> Typed:
        """left operator right: false if a side is NULL (ksqlDB), except for IS DISTINCT FROM."""
        left, right = map(comparable, self.compared(node))
        template = {
            "IS DISTINCT FROM": "(NOT ({0} <=> {1}))",
            "IS NOT DISTINCT FROM": "({0} <=> {1})",
            # ksqlDB: a comparison with NULL is false, so NOT (a = NULL) is true
        }.get(node.operator, f"coalesce({{0}} {node.operator} {{1}}, false)")
        failing = Failing.TESTED if node.operator.endswith("FROM") else Failing.COMPARED
        return Operation(BOOLEAN, template, (left, right), failing=failing)

    def compared(self, node: ast.Comparison) -> tuple[Typed, Typed]:
        """Both sides, converted to one type. Raises ksqlDB's "Cannot compare …"."""
        left, right = comparisons.as_instants(self.type(node.left), self.type(node.right), node)
        distinct = node.operator.endswith("FROM")
        if NULL in (left.type, right.type) and not distinct:
            raise self._wrong(
                f"Comparison with NULL not supported: {left.type.base} {node.operator}"
                f" {right.type.base}\nUse 'IS NULL' or 'IS NOT NULL' instead.",
                node,
            )
        common = values.unified(left.type, right.type)
        ordered = node.operator not in ("=", "<>") and not distinct
        if common is None or (ordered and common.base in _SAME_ONLY):
            raise self._wrong(
                f"Cannot compare {self._text(node.left)} ({left.type}) to"
                f" {self._text(node.right)} ({right.type}) with"
                f" {COMPARISON_NAMES[node.operator]}.\nStatement: {self._text(node)}",
                node,
            )
        return self._as(left, common, node), self._as(right, common, node)

    def between(self, node: ast.Between) -> Typed:
        """value [NOT] BETWEEN low AND high, as two comparisons."""
        low = self.comparison(ast.Comparison(node.at, ">=", node.value, node.low))
        high = self.comparison(ast.Comparison(node.at, "<=", node.value, node.high))
        template = "(NOT ({0} AND {1}))" if node.negated else "({0} AND {1})"
        failing = Failing.TESTED if node.negated else Failing.ALL
        return Operation(BOOLEAN, template, (low, high), failing=failing)

    def is_null(self, node: ast.IsNull) -> Typed:
        """value IS [NOT] NULL."""
        word = "IS NOT NULL" if node.negated else "IS NULL"
        value = self.type(node.value)
        return Operation(BOOLEAN, f"({{0}} {word})", (value,), failing=Failing.TESTED)

    # --------------------------------------------------------------------------------- functions

    def call(self, node: ast.FunctionCall) -> Typed:
        """A function: chooses the variant by the arguments' types, then converts the arguments."""
        if any(isinstance(argument, ast.Lambda) for argument in node.arguments):
            return constructors.call_with_lambdas(self, node)
        called = self.called(node)
        node, found, arguments = called.node, called.found, called.arguments
        check_literals(node, arguments, found.function.literals)
        check_expression(node, arguments, found.function.expression)
        converted = tuple(
            caught(self._as(argument, parameter, node), unless=argument)
            for argument, parameter in zip(arguments, found.parameters, strict=True)
        )
        converted = as_written(node.name, converted)
        by_text = map_sets.over_maps(node.name, converted, found.result)
        if by_text is not None:
            return by_text
        if found.function.inner:
            made = types.array(found.result)
            converted = (Operation(made, found.function.inner, converted, found.function.size),)
        kind = Aggregate if registry.is_aggregate(node.name) else Operation
        size = "" if found.function.inner else found.function.size
        try:
            template = times.template_for(found.function, converted)
        except ValueError as error:
            raise refusal(f"{expression_text(node)}: {error}.", node.at) from None
        failing = failing_of(node.name, found.parameters)
        plain = kind(found.result, template, converted, size, failing)
        if found.result.is_numeric:  # Spark's own result type may be wider or narrower
            cast = f"cast({{0}} AS {spark_name(found.result)})"
            return Operation(found.result, cast, (plain,))
        return plain

    def called(self, node: ast.FunctionCall) -> Called:
        """The variant that a call without lambdas means. Raises StatementError if there is none."""
        if node.name in times.TAKES_UNIT:
            node = with_unit(node)
        outer = self._aggregate, self._table
        self._admit(node)
        arguments = tuple(self.type(argument) for argument in node.arguments)
        self._aggregate, self._table = outer
        try:
            found = registry.resolve(node.name, [argument.type for argument in arguments])
        except registry.NoSuchFunction as error:
            constructors.check_has_lambda(node, arguments)
            raise unknown_name(str(error), node.at, error.hint) from None
        except registry.NotAccepted as error:
            raise self._wrong(str(error), node) from None
        return Called(node, found, arguments)

    # ------------------------------------------------------------------------------------- parts

    def _admit(self, node: ast.FunctionCall) -> None:
        """Whether an aggregate or a table function may stand here; its arguments come next."""
        of_groups = self.takes_aggregates
        if registry.is_aggregate(node.name):
            outer = self._aggregate
            admission.check_aggregate(node, self.clause, outer, takes_aggregates=of_groups)
            self._aggregate = node.name
        elif registry.is_table_function(node.name):
            admission.check_table_function(
                node,
                self.clause,
                self._table,
                takes_tables=self.takes_tables,
                takes_aggregates=of_groups,
            )
            self._table = node.name

    def _wrong(self, message: str, node: ast.Expression) -> StatementError:
        return refusal(self._explained(message), node.at)

    def _explained(self, message: str) -> str:
        """A message about types; in a filter, it shows the whole one (FilterTypeValidator)."""
        if self.whole is None:
            return message
        shown = f"\nStatement: {self._text(self.whole)}"
        whole = "" if message.endswith(shown) else shown
        return f"Error in {self.clause} expression: {message}{whole}"

    def _text(self, node: ast.Expression) -> str:
        """The node as messages show it: over joined rows, columns have their joined names."""
        shown = getattr(self.names, "shown", None)
        return expression_text(node if shown is None else ast.renamed(node, shown))

    def _as(self, typed: Typed, target: SqlType, node: ast.SyntaxNode) -> Typed:
        """`convert`; a constant that does not fit is refused at its position."""
        try:
            return convert(typed, target)
        except ValueError as error:
            raise refusal(f"Error in {self.clause} expression: {error}", node.at) from None


_HANDLERS: Final[dict[type, Callable[[Typer, Any], Typed]]] = {
    ast.LiteralValue: Typer.literal,
    ast.ColumnName: Typer.column,
    ast.Dereference: Typer.dereference,
    ast.Subscript: Typer.subscript,
    ast.FunctionCall: Typer.call,
    ast.Arithmetic: Typer.arithmetic,
    ast.Negative: Typer.negative,
    ast.Logical: Typer.logical,
    ast.Not: Typer.not_,
    ast.Comparison: Typer.comparison,
    ast.Between: Typer.between,
    ast.InList: comparisons.in_list,
    ast.Like: comparisons.like,
    ast.IsNull: Typer.is_null,
    ast.Case: cases.case,
    ast.Cast: Typer.cast,
    ast.MakeArray: constructors.make_array,
    ast.MakeMap: constructors.make_map,
    ast.MakeStruct: constructors.make_struct,
}
_NOT_YET: Final[dict[type, str]] = {
    ast.Lambda: "A lambda",
    ast.AtTimeZone: "AT TIME ZONE",
}
