"""Names of the catalog in a statement: which need quotes. Pure."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from standpipe.sql.types.types import quoted

_PLAIN_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
#: words that are no names; tests/unit/client/core/test_literals.py compares them with the grammar
_RESERVED_WORDS: Final = """
ALL AND AS BETWEEN BY CASE CAST CREATE DESCRIBE DISTINCT DROP ELSE END EXISTS FALSE FROM FULL GROUP
HAVING IN INNER INSERT INTO IS JOIN LEFT LIKE LIMIT NOT NULL ON OR OUTER RIGHT SELECT STREAM STREAMS
TABLE THEN TRUE VALUES WHEN WHERE WINDOW WITH WITHIN
"""
RESERVED: Final = frozenset(_RESERVED_WORDS.split())


def is_plain_name(name: str) -> bool:
    """Whether a name of the catalog needs no quotes, apart from reserved words."""
    return _PLAIN_NAME.fullmatch(name) is not None


@lru_cache(maxsize=1024)
def name_literal(name: str) -> str:
    """A name as it is in the catalog, quoted only where it must be: nodes keep plans of statements
    without quoted names, and answer those faster."""
    if is_plain_name(name) and name not in RESERVED:
        return name
    return quoted(name)


@lru_cache(maxsize=1024)
def folded(name: str) -> str:
    """The name in the catalog that a user means: upper case, unless it is quoted."""
    if len(name) > 2 and name[0] == name[-1] and name[0] in '`"':
        return name[1:-1].replace(name[0] * 2, name[0])
    return name.upper()
