"""CASE … END: conditions, and results of one type.

As in ksqlDB, no result is converted to the type of another: not even an INTEGER beside a BIGINT.
Source: ksqlDB's ExpressionTypeManager.
"""

from __future__ import annotations

from standpipe.sql.expressions.admission import check_branches
from standpipe.sql.expressions.constructors import Types
from standpipe.sql.functions.cast import convert
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types.typed_expression import Failing, Operation, Typed
from standpipe.sql.types.types import BOOLEAN, NULL, SqlType


def case(typer: Types, node: ast.Case) -> Typed:
    """All results have one type, or none (NULL). Raises StatementError if not."""
    check_branches(node, typer.checked_cases)
    conditions = [_condition(typer, node, condition) for condition, _ in node.whens]
    results = [typer.type(result) for _, result in node.whens]
    of = _common(node, results)
    if node.otherwise is not None:
        results.append(typer.type(node.otherwise))
        of = _with_default(node.otherwise, of, results[-1].type)
    if of == NULL:
        raise refusal("Invalid Case expression. All case branches have NULL type", node.at)
    return _joined(conditions, [convert(result, of) for result in results], of)


def _condition(typer: Types, node: ast.Case, condition: ast.Expression) -> Typed:
    if node.operand is not None:
        return typer.type(ast.Comparison(condition.at, "=", node.operand, condition))
    typed = typer.type(condition)
    if typed.type not in (BOOLEAN, NULL):
        raise refusal(
            "WHEN operand type should be boolean."
            f"\nType for '{expression_text(condition)}' is {typed.type}",
            condition.at,
        )
    return typed


def _common(node: ast.Case, results: list[Typed]) -> SqlType:
    common = NULL
    for (condition, result), typed in zip(node.whens, results, strict=True):
        if common != NULL and typed.type not in (common, NULL):
            shown = f"WHEN {expression_text(condition)} THEN {expression_text(result)}"
            raise refusal(
                "Invalid Case expression. Type for all 'THEN' clauses should be the same."
                f"\nTHEN expression '{shown}' has type: {typed.type}."
                f"\nPrevious THEN expression(s) type: {common}.",
                result.at,
                hint=_hint(common),
            )
        common = typed.type if common == NULL else common
    return common


def _with_default(otherwise: ast.Expression, common: SqlType, default: SqlType) -> SqlType:
    if common != NULL and default not in (common, NULL):
        raise refusal(
            "Invalid Case expression. Type for the default clause should be the same as for 'THEN'"
            f" clauses.\nTHEN type: {common}.\nDEFAULT type: {default}.",
            otherwise.at,
            hint=_hint(common),
        )
    return default if common == NULL else common


def _hint(wanted: SqlType) -> str:
    return f"Convert the other results: CAST(… AS {wanted})."


def _joined(conditions: list[Typed], results: list[Typed], of: SqlType) -> Typed:
    count = len(conditions)
    whens = "".join(f" WHEN {{{index}}} THEN {{{count + index}}}" for index in range(count))
    otherwise = f" ELSE {{{2 * count}}}" if len(results) > count else ""
    template = f"(CASE{whens}{otherwise} END)"
    return Operation(of, template, (*conditions, *results), failing=Failing.CASE)
