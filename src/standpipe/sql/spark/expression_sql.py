"""Typed expressions, constants, names and rows as Spark SQL text.

Only templates of this package and escaped constants get into the text: a user's name or value
cannot end a literal, start a `${…}` substitution or name a path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final

from standpipe.sql.expressions import failing
from standpipe.sql.expressions.evaluator import WORK_MAX
from standpipe.sql.functions.cast import spark_name
from standpipe.sql.syntax.errors import refusal
from standpipe.sql.types.typed_expression import (
    Constant,
    LambdaBody,
    LambdaVariable,
    Operation,
    Typed,
    TypedColumn,
)
from standpipe.sql.types.types import SqlType, parse_type, quoted

#: Spark's literal escapes. A `$` could begin ${…}, which spark.sql substitutes inside literals too.
_ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", "'": "\\'", "$": "\\u0024", "\n": "\\n", "\r": "\\r", "\0": "\\u0000"}
)


#: a template may name an argument several times, so nested calls multiply their text
SQL_CHARS_MAX: Final = 1_048_576
_BOUND: Final = "`standpipe_bound`"
#: the variables of a template's lambda: `e ->`, `(l, r) ->`
_LAMBDA: Final = re.compile(r"\b([a-z]\w*) ->|\(([a-z]\w*(?:, [a-z]\w*)+)\) ->")


def expression_sql(typed: Typed) -> str:
    """Spark SQL of a column: NULL where ksqlDB's expression fails."""
    return _sql(failing.whole(typed))


def condition_sql(condition: Typed) -> str:
    """Spark SQL of a WHERE or HAVING, not true where ksqlDB's expression fails."""
    return _sql(failing.kept(condition))


def _sql(typed: Typed) -> str:
    if isinstance(typed, Operation):
        parts = [_sql(argument) for argument in typed.arguments]
        made = _limited(typed, parts) if typed.size else _filled(typed.template, parts)
        if len(made) > SQL_CHARS_MAX:
            raise refusal(f"An expression is too large for Spark: {SQL_CHARS_MAX} characters.")
        return made
    if isinstance(typed, (TypedColumn, LambdaVariable)):
        return identifier_sql(typed.name)
    if isinstance(typed, LambdaBody):
        variables = ", ".join(identifier_sql(each.name) for each in typed.variables)
        head = variables if len(typed.variables) == 1 else f"({variables})"
        return f"{head} -> {_sql(typed.body)}"
    assert isinstance(typed, Constant), typed
    return constant_sql(typed.value, typed.type)


def _filled(template: str, parts: Sequence[str]) -> str:
    return _capture_free(template, parts).format(
        *parts,
        all=", ".join(parts),
        total=" + ".join(["0L", *(f"coalesce(length({part}), 0)" for part in parts)]),
        count=len(parts),
        limit=WORK_MAX,
    )


def _capture_free(template: str, parts: Sequence[str]) -> str:
    """The template with other variables in its lambdas, where an argument has a column or a
    parameter of that name: Spark would take the variable for it. Names are case-sensitive, and the
    variables are in small letters, so these are names in backquotes."""
    if "->" not in template:
        return template
    named = "".join(parts)
    variables = {
        each for one, some in _LAMBDA.findall(template) for each in (one or some).split(", ")
    }
    for variable in sorted(variables):
        if f"`{variable}`" in named:
            other = f"standpipe_{variable}"
            while f"`{other}`" in named:
                other += "_"
            template = _free(variable).sub(lambda found, to=other: found[1] or to, template)
    return template


@lru_cache(maxsize=64)
def _free(variable: str) -> re.Pattern[str]:
    """A variable's uses. What the first group finds stays: texts, quoted names, fields, aliases."""
    kept = r"'(?:[^'\\]|\\.)*'|`[^`]*`|\{\w+\}|\.\w+|\bAS \w+"
    return re.compile(rf"({kept})|\b{variable}\b")


def _limited(typed: Operation, parts: Sequence[str]) -> str:
    """NULL for a result above the limit. Size and result both name the arguments, so those that are
    more than a name or a constant are computed once, as fields of `_BOUND`."""
    arguments = typed.arguments
    bound = {
        place: part
        for place, (argument, part) in enumerate(zip(arguments, parts, strict=True))
        if not isinstance(argument, (TypedColumn, LambdaVariable, Constant)) or part == _BOUND
    }
    names = [f"{_BOUND}.`a{n}`" if n in bound else part for n, part in enumerate(parts)]
    size, result = _filled(typed.size, names), _filled(typed.template, names)
    limited = f"if({size} > {WORK_MAX}, NULL, {result})"
    if not bound:
        return limited
    fields = ", ".join(f"{part} AS `a{place}`" for place, part in bound.items())
    return f"element_at(transform(array(struct({fields})), {_BOUND} -> {limited}), 1)"


def identifier_sql(name: str) -> str:
    """A back-quoted name. Raises StatementError for a name in which spark.sql would substitute."""
    if "${" in name:
        raise refusal(f"Names with ${{ cannot be used: {name}")
    return quoted(name)


def text_sql(text: str) -> str:
    """A string literal, escaped: a backslash is a plain character in ksqlDB, but not in Spark."""
    return "'" + text.translate(_ESCAPES) + "'"


def constant_sql(value: object, of: SqlType) -> str:
    """A literal of type `of`; negative numbers in parentheses."""
    if value is None:
        return "NULL" if of.base == "NULL" else f"cast(NULL AS {spark_name(of)})"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return text_sql(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, int):
        return _integer_sql(value, of)
    if isinstance(value, float):
        return f"({value!r}D)"
    if isinstance(value, Decimal):
        return f"({value:f}BD)"
    raise refusal(f"A constant of type {of} is not supported yet.")


def _integer_sql(value: int, of: SqlType) -> str:
    """An integer; also DATE (days), TIME and TIMESTAMP (ms), whose values are integers."""
    if of.base == "DATE":
        return f"date_from_unix_date({value})"
    if of.base == "TIMESTAMP":
        return f"timestamp_millis({value}L)"
    return f"({value}L)" if of.base == "BIGINT" else f"({value})"


def spark_type(name: str) -> str:
    """Spark's spelling of a column's type."""
    return spark_name(parse_type(name))


# ------------------------------------------------------------------------------------ rows as text
# For operators that keep rows (`data/operators/keyed.py`). A field is named by its index (`c0`,
# `c1`, …). A STRUCT's type in `unpack` has the names of its fields, so its text is escaped.

#: (column, its Spark type)
Fields = Sequence[tuple[str, str]]


def pack(fields: Fields, prefix: str = "") -> str:
    """Packs columns into one text; nulls are kept."""
    named = ", ".join(
        f"{prefix}{quoted(name)} AS `c{index}`" for index, (name, _) in enumerate(fields)
    )
    return f"to_json(struct({named}), map('ignoreNullFields', 'false'))"


def unpack(text: str, fields: Fields) -> str:
    """The struct of a packed text; null for null."""
    listed = ", ".join(f"c{index}: {of}" for index, (_, of) in enumerate(fields))
    return f"from_json({text}, {text_sql(f'STRUCT<{listed}>')})"  # users name a STRUCT's fields


def unpacked(struct: str, fields: Fields) -> list[str]:
    """The original columns, from the struct that `unpack` returns."""
    return [f"{struct}.`c{index}` AS {quoted(name)}" for index, (name, _) in enumerate(fields)]
