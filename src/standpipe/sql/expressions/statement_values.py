"""RANDOM(), UUID(), UNIX_TIMESTAMP() and UNIX_DATE() outside of a persistent query. Pure.

Spark computes them for each row of a persistent query. In a pull query, and in INSERT VALUES, a
call has one value for the whole statement: the same at each node and in each attempt. A pull query
is forwarded as a text, so it gets them in its text; an INSERT, and a pull query that is only
explained, get them in their tree. A push query lasts, so each of its rows has values of its own
(`Draw`).
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast_statements import Explain, ExplainRoute, InsertValues

DAY_MS: Final = 86_400_000
#: the value of a call in one row of a push query, by the function's name
Draw = Callable[[str], object]
NAMES: Final = ("RANDOM", "UUID", "UNIX_TIMESTAMP", "UNIX_DATE")
_NAMES: Final = "|".join(NAMES)
# a comment that is not closed ends with the text, so that the rest is not searched at each of them
_OTHER: Final = (
    r"'[^']*(?:''[^']*)*'|\"[^\"]*(?:\"\"[^\"]*)*\"|`[^`]*(?:``[^`]*)*`"
    r"|--[^\n]*|/\*.*?(?:\*/|\Z)"
)
_CALL: Final = re.compile(
    rf"(?P<other>{_OTHER})"
    rf"|(?<![\w@.])(?P<name>{_NAMES})\s*\(\s*\)",
    re.DOTALL | re.IGNORECASE,
)
_MAY_HAVE: Final = re.compile(rf"(?:{_NAMES})\s*\(\s*\)", re.IGNORECASE)
_NOT_PLAIN: Final = re.compile(_OTHER, re.DOTALL)
#: what a pull query has only in quotes and comments
_EMIT: Final = re.compile(r"\bEMIT\s+(?:CHANGES|FINAL)\b", re.IGNORECASE)
#: part of each call, which a long text without one is searched for a hundred times as fast
_NO_ARGUMENTS: Final = re.compile(r"\(\s*\)")


_Statement = TypeVar("_Statement", bound=ast.Statement)


@dataclass(frozen=True, slots=True)
class StatementValues:
    """`now_ms`: Unix time of the statement. `seed`: random bytes; each call has a value of its own
    made of them."""

    now_ms: int
    seed: bytes

    def literal(self, name: str, number: int, at: ast.Position) -> ast.LiteralValue:
        """The value of a call, the number-th of its statement."""
        drawn = hashlib.sha256(self.seed + number.to_bytes(4, "big")).digest()
        match name:
            case "UUID":
                text = str(uuid.UUID(bytes=drawn[:16], version=4))
                return ast.LiteralValue(at, "STRING", text, f"'{text}'")
            case "RANDOM":
                value = int.from_bytes(drawn[:8], "big") / 2**64 * (1 - 2**-53)
                return ast.LiteralValue(at, "DOUBLE", value, f"{value:.17E}")
            case "UNIX_TIMESTAMP":
                return ast.LiteralValue(at, "BIGINT", self.now_ms, str(self.now_ms))
            case _:
                days = self.now_ms // DAY_MS
                return ast.LiteralValue(at, "INTEGER", days, str(days))


def are_in(text: str) -> bool:
    """Whether the text of a pull query may call one of them: `in_text` then changes it, unless it
    is quoted. False for a push query."""
    if _NO_ARGUMENTS.search(text) is None or _MAY_HAVE.search(text) is None:
        return False
    return _EMIT.search(_NOT_PLAIN.sub(" ", text)) is None


def in_text(text: str, values: StatementValues) -> str:
    """The text of a statement with the calls replaced."""
    count = 0

    def change(found: re.Match[str]) -> str:
        nonlocal count
        if found["name"] is None:
            return found[0]
        count += 1
        return values.literal(found["name"].upper(), count, ast.Position(1, 1, 0)).text

    return _CALL.sub(change, text)


def in_tree(statement: _Statement, values: StatementValues) -> _Statement:
    """INSERT VALUES, or EXPLAIN of a pull query, with the calls replaced; any other as it is."""
    if isinstance(statement, Explain):
        is_pull = isinstance(statement.subject, ast.Query) and statement.subject.emit is None
    else:
        is_pull = isinstance(statement, ExplainRoute)
    if not (is_pull or isinstance(statement, InsertValues)):
        return statement
    count = 0

    def change(node: Any) -> Any:
        nonlocal count
        if not isinstance(node, ast.FunctionCall) or node.arguments:
            return None
        if node.name not in NAMES:
            return None
        count += 1
        return values.literal(node.name, count, node.at)

    return ast.rewritten(statement, change)
