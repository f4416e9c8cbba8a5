"""The functions that pull and push queries and INSERT can compute, in Python.

Persistent queries have all of them. Not here: RANDOM, UUID and what asks the clock, which a pure
package does not have. In pull queries and INSERT VALUES they are literals, in push queries they are
drawn for each row (`statement_values.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from standpipe.sql.expressions import lambdas
from standpipe.sql.expressions.python import (
    collections,
    encodings,
    instants,
    json_texts,
    numbers,
    regular_expressions,
    texts,
)
from standpipe.sql.expressions.python.computed import Computed
from standpipe.sql.syntax import ast
from standpipe.sql.types.types import SqlType

FUNCTIONS: Final[Mapping[str, Computed]] = {
    **numbers.FUNCTIONS,
    **texts.FUNCTIONS,
    **collections.FUNCTIONS,
    **instants.FUNCTIONS,
    **encodings.FUNCTIONS,
    **regular_expressions.FUNCTIONS,
    **json_texts.FUNCTIONS,
}

#: functions that may take ten milliseconds for one row
SLOW: Final = frozenset(regular_expressions.FUNCTIONS) | lambdas.NAMES


def has_costly_rows(part: object) -> bool:
    """Whether a row may take long to compute, as it depends on the sizes of texts and lists."""
    return any(_is_costly_node(node) for node, _ in ast.walk(part))


def _is_costly_node(node: ast.SyntaxNode | SqlType) -> bool:
    match node:
        case ast.Like():
            return True
        case ast.Arithmetic(operator="||"):
            return True
        case ast.FunctionCall(name=name):
            made = FUNCTIONS.get(name)
            return name in SLOW or (made is not None and made.work is not None)
        case _:
            return False
