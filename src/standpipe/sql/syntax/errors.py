"""Refusals of all passes: an error with its position, and the nearest of the known names.

Passes know positions in the whole request; a client needs them in its statement. So passes raise
`refusal(…)` with the former, and `located` converts it once, where the statement is known.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from standpipe.errors import StatementError, UnknownName
from standpipe.sql.syntax.ast import Position, Statement

#: of a name that is compared with the known ones
COMPARED_CHARS_MAX: Final = 249


def refusal(message: str, at: Position | None = None, hint: str = "") -> StatementError:
    """An error at a position in the whole text; pass it to `located` before a client sees it."""
    line, column = (None, None) if at is None else (at.line, at.column)
    return StatementError(message, line=line, column=column, hint=hint)


def unknown_name(message: str, at: Position | None, hint: str) -> UnknownName:
    """Like `refusal`, for an unknown name; its code lets clients tell it from other errors."""
    line, column = (None, None) if at is None else (at.line, at.column)
    return UnknownName(message, line=line, column=column, hint=hint)


def unsupported(what: str, at: Position | None = None) -> StatementError:
    """A refusal of something that ksqlDB supports and Standpipe does not yet."""
    return refusal(f"{what} is not supported yet.", at)


def located(error: StatementError, statement: Statement) -> StatementError:
    """The same error, with the statement's text and the position relative to its first word."""
    if error.statement:
        return error
    error.statement = statement.text
    if error.line is not None and error.column is not None:
        error.line -= statement.at.line - 1
        error.column -= statement.at.column - 1 if error.line == 1 else 0
    return error


def place(at: Position) -> str:
    """ksqlDB's prefix for a message with a position."""
    return f"Line: {at.line}, Col: {at.column}"


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names what was probably meant; "" if nothing is similar, or the name is longer
    than any: comparing two texts takes the product of their lengths."""
    if len(name) > COMPARED_CHARS_MAX:
        return ""
    candidates = sorted(set(known))
    for candidate in candidates:
        if candidate.upper() == name.upper():
            return _other_case(name, candidate)
    close = difflib.get_close_matches(name.upper(), candidates, n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else ""


def _other_case(name: str, candidate: str) -> str:
    """ksqlDB's text for a name that differs only in case, because of quotes or their absence."""
    if name == name.upper():
        return (
            f'Did you mean "{candidate}"? Hint: wrap the source name in double quotes'
            " to make it case-sensitive."
        )
    return f"Did you mean {candidate}? Hint: try removing double quotes from the source name."
