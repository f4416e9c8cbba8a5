"""How large a text may be, checked in one pass before anything else reads it. Pure.

Parsing takes about 20 µs a token, and lookups share its core: a text of half a megabyte would
occupy a worker for ten seconds. So a request has at most TEXT_CHARS_MAX characters and
STATEMENTS_MAX statements, and each statement at most TOKENS_MAX tokens. The values of variables
count, too.

Not here: nesting, which the parser checks on its tree; how many keys a pull query may name
(`sql.lookup.template`).
"""

from __future__ import annotations

import re
from typing import Final

from standpipe.errors import StatementError

#: Characters of a request's SQL.
TEXT_CHARS_MAX: Final = 65_536
#: Words, numbers, quoted texts and marks of one statement; blanks and comments are free.
TOKENS_MAX: Final = 5_000
#: Statements of one request.
STATEMENTS_MAX: Final = 200

# What is not closed ends with the text, so that no alternative is tried twice over the rest.
_TOKEN: Final = re.compile(
    r"(?P<blank>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))|(?P<end>;)"
    r"|'[^']*(?:''[^']*)*(?:'|\Z)|\"[^\"]*(?:\"|\Z)|`[^`]*(?:`|\Z)|[\w@]+|.",
    re.DOTALL,
)


def check(text: str) -> None:
    """Raises StatementError, which names the limit, when `text` is over one of them."""
    if len(text) > TEXT_CHARS_MAX:
        raise StatementError(
            f"The statements are too long: {len(text)} characters. One request may have "
            f"{TEXT_CHARS_MAX}: send fewer statements at a time."
        )
    if len(text) <= STATEMENTS_MAX:  # too short for either
        return
    tokens = statements = 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup
        if kind == "end":
            statements, tokens = statements + 1, 0
        elif kind is None:
            tokens += 1
        if tokens > TOKENS_MAX:
            raise StatementError(
                f"A statement is too large: it has more than {TOKENS_MAX} words, numbers, texts "
                "and marks. Send its keys or values in several statements."
            )
    if statements > STATEMENTS_MAX:
        raise StatementError(
            f"One request may have {STATEMENTS_MAX} statements; this one has {statements}."
        )
