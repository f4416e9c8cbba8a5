"""The functions that pull and push queries and INSERT can compute, in Python.

Persistent queries have all of them. Not here: RANDOM, UUID and what asks the clock, which a pure
package does not have. In pull queries and INSERT VALUES they are literals (`statement_values.py`).
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
#: how many others one of them counts for: as many as one step of a scan (`data/query/scan.py`)
SLOW_EXPRESSIONS: Final = 4_000
