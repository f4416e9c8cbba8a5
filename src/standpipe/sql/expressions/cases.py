"""CASE … END: conditions, and results of one type."""

from __future__ import annotations

from standpipe.sql.expressions.admission import check_branches
from standpipe.sql.expressions.constructors import Types
from standpipe.sql.functions.cast import convert
from standpipe.sql.syntax import ast
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.syntax.printer import expression_text
from standpipe.sql.types import types
from standpipe.sql.types.typed_expression import Operation, Typed
from standpipe.sql.types.types import NULL, SqlType


def case(typer: Types, node: ast.Case) -> Typed:
    """All results converted to their common type; there must be one."""
    check_branches(node)
    conditions = [_condition(typer, node, condition) for condition, _ in node.whens]
    results = [typer.type(result) for _, result in node.whens]
    common = _common(node, results)
    if node.otherwise is not None:
        results.append(typer.type(node.otherwise))
        common = _with_default(node, common, results[-1].type)
    if common == NULL:
        raise refusal("Invalid Case expression. All case branches have NULL type", node.at)
    return _joined(conditions, [_as(result, common, node) for result in results], common)


def _condition(typer: Types, node: ast.Case, condition: ast.Expression) -> Typed:
    if node.operand is None:
        return typer.condition(condition)
    return typer.type(ast.Comparison(condition.at, "=", node.operand, condition))


def _common(node: ast.Case, results: list[Typed]) -> SqlType:
    common = NULL
    for (_, result), typed in zip(node.whens, results, strict=True):
        wider = types.common_type(common, typed.type)
        if wider is None:
            raise refusal(
                "Invalid Case expression. Type for all 'THEN' clauses should be the same."
                f"\nTHEN expression '{expression_text(result)}' has type: {typed.type}."
                f"\nPrevious THEN expression(s) type: {common}.",
                result.at,
            )
        common = wider
    return common


def _with_default(node: ast.Case, common: SqlType, default: SqlType) -> SqlType:
    wider = types.common_type(common, default)
    if wider is None:
        assert node.otherwise is not None
        raise refusal(
            "Invalid Case expression. Type for the default clause should be the same as for 'THEN'"
            f" clauses.\nTHEN type: {common}.\nDEFAULT type: {default}.",
            node.otherwise.at,
        )
    return wider


def _as(typed: Typed, target: SqlType, node: ast.Case) -> Typed:
    try:
        return convert(typed, target)
    except ValueError as error:
        raise refusal(f"Invalid Case expression: {error}", node.at) from None


def _joined(conditions: list[Typed], results: list[Typed], of: SqlType) -> Typed:
    count = len(conditions)
    whens = "".join(f" WHEN {{{index}}} THEN {{{count + index}}}" for index in range(count))
    otherwise = f" ELSE {{{2 * count}}}" if len(results) > count else ""
    return Operation(of, f"(CASE{whens}{otherwise} END)", (*conditions, *results))
