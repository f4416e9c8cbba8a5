"""RANDOM(), UUID(), UNIX_TIMESTAMP() and UNIX_DATE() as literals of one statement. Pure.

Spark computes them for each row of a persistent query. In a pull query, and in INSERT VALUES, a
call has one value for the whole statement: the same at each node and in each attempt. A pull query
is forwarded as a text, so it gets them in its text; an INSERT gets them in its tree.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass
from typing import Any, Final

from standpipe.sql.syntax import ast
from standpipe.sql.syntax.ast_statements import InsertValues

DAY_MS: Final = 86_400_000
_NAMES: Final = "RANDOM|UUID|UNIX_TIMESTAMP|UNIX_DATE"
# a comment that is not closed ends with the text, so that the rest is not searched at each of them
_CALL: Final = re.compile(
    r"(?P<other>'[^']*(?:''[^']*)*'|\"[^\"]*(?:\"\"[^\"]*)*\"|`[^`]*(?:``[^`]*)*`"
    r"|--[^\n]*|/\*.*?(?:\*/|\Z))"
    rf"|(?<![\w@.])(?P<name>{_NAMES})\s*\(\s*\)",
    re.DOTALL | re.IGNORECASE,
)
_MAY_HAVE: Final = re.compile(rf"(?:{_NAMES})\s*\(\s*\)", re.IGNORECASE)
#: part of each call, which a long text without one is searched for a hundred times as fast
_NO_ARGUMENTS: Final = re.compile(r"\(\s*\)")


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
    """Whether a text may call one of them: `in_text` then changes it, unless it is quoted."""
    return _NO_ARGUMENTS.search(text) is not None and _MAY_HAVE.search(text) is not None


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


def in_insert(statement: InsertValues, values: StatementValues) -> InsertValues:
    """INSERT VALUES with the calls replaced."""
    count = 0

    def change(node: Any) -> Any:
        nonlocal count
        if not isinstance(node, ast.FunctionCall) or node.arguments:
            return None
        if node.name not in _NAMES.split("|"):
            return None
        count += 1
        return values.literal(node.name, count, node.at)

    return ast.rewritten(statement, change)
