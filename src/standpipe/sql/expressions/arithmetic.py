"""+, -, *, / and % of typed operands: the type of the result, and Spark SQL that is Java's.

Not here: `||`, which is CONCAT; the same in Python (`python/arithmetic.py`).
"""

from __future__ import annotations

from typing import Final

from standpipe.sql.expressions.arguments import decimal_operands
from standpipe.sql.functions.cast import convert
from standpipe.sql.functions.text import SIZE_OF_TEXTS
from standpipe.sql.types import types
from standpipe.sql.types.typed_expression import Constant, Failing, Operation, Typed
from standpipe.sql.types.types import STRING, SqlType

#: of DOUBLE: infinity or NaN where Spark's is null
_BY_ZERO: Final = {
    "/": "if({1} = 0, {0} * if(cast({1} AS STRING) = '-0.0', double('-Infinity'),"
    " double('Infinity')), ({0} / {1}))",
    "%": "if({1} = 0, {0} * double('NaN'), ({0} % {1}))",
}


def computed(sign: str, left: Typed, right: Typed) -> Typed | None:
    """The result; None for types that have none. With NULL it fails (Java's null has no number)."""
    of = types.arithmetic_type(sign, left.type, right.type)
    if of is None:
        return None
    if of == STRING:
        places = (_shown(left, "{0}"), _shown(right, "{1}"))
        template = f"concat({', '.join(places)})"
        return Operation(STRING, template, (left, right), SIZE_OF_TEXTS, failing=Failing.TOO_LONG)
    if of.base == "DECIMAL":
        plain = _failing(of, _decimal(sign, left, right), *decimal_operands(sign, left, right))
        return _failing(of, f"cast({{0}} AS {of})", plain)
    operands = (convert(left, of), convert(right, of))
    if of == types.DOUBLE:
        may_be_zero = not (isinstance(operands[1], Constant) and operands[1].value)
        template = _BY_ZERO[sign] if sign in _BY_ZERO and may_be_zero else f"({{0}} {sign} {{1}})"
        return _failing(of, template, *operands)
    if sign == "/":  # integers divide as integers; Spark's / would make them doubles
        return convert(_failing(types.BIGINT, "({0} div {1})", *operands), of)
    return _failing(of, f"({{0}} {sign} {{1}})", *operands)


def _decimal(sign: str, left: Typed, right: Typed) -> str:
    """Spark's remainder ends the query if the quotient has more than 38 digits."""
    one, two = types.as_decimal(left.type), types.as_decimal(right.type)
    quotient_max = 10.0 ** (one.precision - one.scale + two.scale)
    if sign != "%" or quotient_max <= types.REMAINDER_QUOTIENT_MAX:
        return f"({{0}} {sign} {{1}})"
    most = f"{types.REMAINDER_QUOTIENT_MAX!r}D"
    return f"if(abs(cast({{0}} AS DOUBLE) / cast({{1}} AS DOUBLE)) < {most}, {{0}} % {{1}}, NULL)"


def negated(operand: Typed) -> Typed:
    """-operand, of a number."""
    return _failing(operand.type, "(- {0})", operand)


def _failing(of: SqlType, template: str, *operands: Typed) -> Typed:
    return Operation(of, template, operands, failing=Failing.IF_NULL)


def _shown(text: Typed, place: str) -> str:
    """Java's + shows a null as that word, where || and CONCAT leave it out."""
    is_there = isinstance(text, Constant) and text.value is not None
    return place if is_there else f"coalesce({place}, 'null')"
