"""Text that a person types, before any parser sees it: where statements end, what may follow.

Only lexical: quotes and comments are known, nothing else. The nodes' parser is the authority.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: quoted text, comments, or anything else up to the next of them
_PIECE = re.compile(r"'(?:[^']|'')*'?|\"[^\"]*\"?|`[^`]*`?|--[^\n]*|/\*.*?(?:\*/|\Z)|;|.", re.S)

_KEYWORDS = (
    "AND AS AVG BETWEEN BIGINT BOOLEAN BY CHANGES COUNT CREATE DAY DAYS DESCRIBE DOUBLE DROP EMIT "
    "EXISTS EXTENDED FROM GRACE GROUP HAVING HOUR HOURS IF IN INSERT INTEGER INTO IS KAFKA_TOPIC "
    "KEY KEY_FORMAT LATEST_BY_OFFSET LIMIT LIST MAX MIN MINUTE MINUTES NOT NULL OR PARTITIONS "
    "PERIOD PRIMARY QUERIES RETENTION SECOND SECONDS SELECT SHOW SIZE STREAM STREAMS STRING SUM "
    "TABLE TABLES TERMINATE TIMESTAMP TOPIC TOPICS TUMBLING VALUES VALUE_FORMAT WHERE WINDOW "
    "WINDOWEND WINDOWSTART WITH"
)
KEYWORDS = tuple(_KEYWORDS.split())


def split_statements(text: str) -> tuple[list[str], str]:
    """Whole statements, each with its `;`, and what is left after the last `;`."""
    statements: list[str] = []
    current: list[str] = []
    for piece in _PIECE.findall(text):
        current.append(piece)
        if piece == ";":
            statements.append("".join(current).strip())
            current = []
    rest = "".join(current)
    return [s for s in statements if s != ";"], rest if without_comments(rest).strip() else ""


def without_comments(text: str) -> str:
    """The text with every comment replaced by a blank."""
    return "".join(
        " " if piece.startswith(("--", "/*")) else piece for piece in _PIECE.findall(text)
    )


def is_query(statement: str) -> bool:
    """Whether it goes to /query-stream: SELECT and PRINT; everything else goes to /ksql."""
    words = without_comments(statement).split(None, 1)
    return bool(words) and words[0].upper() in ("SELECT", "PRINT")


def completions(before: str, names: Sequence[str]) -> list[str]:
    """Words that could stand where the text ends, names of the catalog first."""
    found = re.search(r"[A-Za-z_][A-Za-z_0-9.]*$", before)
    word = found.group(0).upper() if found else ""
    if not word:
        return []
    candidates = (*names, *KEYWORDS)
    return list(dict.fromkeys(c for c in candidates if c.upper().startswith(word)))
