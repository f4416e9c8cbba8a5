"""The user's text before it is parsed: where statements end, and which completions are possible.

It recognises quotes and comments only. The nodes' parser (`sql/syntax/parser.py`) is
authoritative.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

_OPAQUE = r"'(?:[^']|'')*'?|\"[^\"]*\"?|`[^`]*`?|--[^\n]*|/\*.*?(?:\*/|\Z)"
#: a quoted text, a comment, a semicolon, or any other single character
_PIECE = re.compile(rf"{_OPAQUE}|;|.", re.S)
#: a quoted text, a comment, or what ends a line that goes on
_CONTINUED = re.compile(rf"{_OPAQUE}|\\[ \t]*(?=\n)", re.S)

_SETTING = re.compile(
    r"(?P<word>UNSET|SET)\s*'(?P<name>(?:[^']|'')*)'(?:\s*=\s*'(?P<value>(?:[^']|'')*)')?\s*;?",
    re.I,
)

_SCRIPT = re.compile(r"RUN\s+SCRIPT\s*'(?P<path>(?:[^']|'')+)'\s*;?", re.I)

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
    """The complete statements, each with its `;`, and the rest after the last `;`."""
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


def without_continuations(text: str) -> str:
    """What was typed or pasted, without the backslash that ends a line and says that the statement
    goes on: ksqlDB's CLI leaves it out as well."""
    return _CONTINUED.sub(lambda found: "" if found[0].startswith("\\") else found[0], text)


def is_query(statement: str) -> bool:
    """Whether it is sent to /query-stream: SELECT and PRINT. All others are sent to /ksql."""
    words = without_comments(statement).split(None, 1)
    return bool(words) and words[0].upper() in ("SELECT", "PRINT")


def is_live(statement: str) -> bool:
    """Whether its answer continues until the client closes it: push queries and PRINT."""
    pieces = _PIECE.findall(statement)
    plain = "".join(
        " " if each.startswith(("'", '"', "`", "--", "/*")) else each for each in pieces
    )
    words = re.findall(r"\w+", plain.upper())
    emits = {("EMIT", "CHANGES"), ("EMIT", "FINAL")} & set(pairwise(words))
    return words[:1] == ["PRINT"] or (words[:1] == ["SELECT"] and bool(emits))


def is_definition(statement: str) -> bool:
    """Whether it is DEFINE or UNDEFINE."""
    words = without_comments(statement).split(None, 1)
    return bool(words) and words[0].upper() in ("DEFINE", "UNDEFINE")


def setting(statement: str) -> tuple[str, str | None] | None:
    """Name and value of SET; name and None of UNSET; None for other statements."""
    found = _SETTING.fullmatch(without_comments(statement).strip())
    if found is None or (found["word"].upper() == "SET") == (found["value"] is None):
        return None
    value = found["value"]
    return found["name"].replace("''", "'"), None if value is None else value.replace("''", "'")


def script(statement: str) -> str | None:
    """The path of RUN SCRIPT 'path'; None for other statements. ksqlDB's prompt has it, no node."""
    found = _SCRIPT.fullmatch(without_comments(statement).strip())
    return None if found is None else found["path"].replace("''", "'")


def completions(before: str, names: Sequence[str]) -> list[str]:
    """Words that could complete the text at its end, names of the catalog first. A name that needs
    quotes has them in `names`; if the text has the first one, the word is what follows it."""
    found = re.search(r"(`?)([A-Za-z_][A-Za-z_0-9.]*)$", before)
    if found is None:
        return []
    word, is_quoted = found[2].upper(), bool(found[1])
    fitting = [c for c in (*names, *KEYWORDS) if c.removeprefix("`").upper().startswith(word)]
    return list(dict.fromkeys(c.removeprefix("`") if is_quoted else c for c in fitting))
