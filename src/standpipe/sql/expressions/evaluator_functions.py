"""The functions that pull and push queries and INSERT can compute, in Python.

Persistent queries have all of them. Not here: RANDOM, UUID and what asks the clock, which a pure
room does not have; and functions of JSON texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from standpipe.sql.expressions.python import (
    collections,
    encodings,
    instants,
    numbers,
    regular_expressions,
    texts,
)
from standpipe.sql.expressions.python.computed import Computed

FUNCTIONS: Final[Mapping[str, Computed]] = {
    **numbers.FUNCTIONS,
    **texts.FUNCTIONS,
    **collections.FUNCTIONS,
    **instants.FUNCTIONS,
    **encodings.FUNCTIONS,
    **regular_expressions.FUNCTIONS,
}
