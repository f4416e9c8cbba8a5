"""Text → statements: `parse`. The only module that handles lark's errors.

A syntax error carries both of ksqlDB's texts (both occur in its test cases; the rule is not clear
from them), the position in the parsed text, and the words that were expected instead. Nesting is
limited here, once, so that the later passes may recurse.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final, cast

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from standpipe.errors import SqlSyntaxError
from standpipe.sql.syntax import ast, limits, tables
from standpipe.sql.syntax.ast import Position, Statement
from standpipe.sql.syntax.build import Ended, StatementBuilder
from standpipe.sql.syntax.errors import located, refusal
from standpipe.sql.types.values import BIGINT_MAX

#: Levels of expressions, or of brackets in a type. Later passes need a few frames per level.
DEPTH_MAX: Final = 120
#: More alternatives than this do not help the user; the message leaves them out.
EXPECTED_MAX: Final = 6

_BLANK: Final = re.compile(r"(?:[ \t\r\n\f\u00a0]|--[^\n]*|/\*[^*]*(?:\*(?!/)[^*]*)*\*/)*")
_PIECE: Final = re.compile(
    r"'[^']*(?:''[^']*)*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|;", re.DOTALL
)
_LONG_NUMBER: Final = re.compile(r"[0-9]{19}|[eE]\+?[0-9]{3}")
_MARKS: Final = {
    "_COMMA": "','",
    "_DOT": "'.'",
    "_LPAR": "'('",
    "_RPAR": "')'",
    "_LBRACKET": "'['",
    "_RBRACKET": "']'",
    "_ASSIGN": "':='",
    "_EQ": "'='",
    "_LT": "'<'",
    "_GT": "'>'",
    "SEMICOLON": "';'",
    "ASTERISK": "'*'",
    "MINUS": "'-'",
    "INTEGER": "INTEGER_VALUE",
    "DECIMAL": "DECIMAL_VALUE",
    "DOUBLE": "FLOATING_POINT_VALUE",
    "TEXT": "STRING",
    "NAME": "IDENTIFIER",
    "$END": "<EOF>",
}


def parse(text: str) -> tuple[Statement, ...]:
    """The statements of `text`, in order; their positions are in the whole text.

    Raises SqlSyntaxError; StatementError if a number is out of range, nesting is deeper than
    DEPTH_MAX or the text is over a limit of `sql.syntax.limits`.
    """
    limits.check(text)
    try:
        parts = cast("tuple[Ended, ...]", _lark().parse(text))  # pyright: ignore[reportUnknownMemberType]
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None
    statements: list[Statement] = []
    start = 0
    for statement, end in parts:
        first = _skip_blank(text, start)
        last = len(text.rstrip()) if end < 0 else end
        at = position_at(text, first)
        placed = replace(statement, at=at, text=text[first:last])
        _check(placed)
        statements.append(placed)
        start = last
    return tuple(statements)


def warm_up(saved: bytes = b"") -> bytes:
    """Build the grammar's tables now, or restore them from `saved`, which an earlier call returned.

    Returns the tables to save: `saved` itself where it was of use. See `sql.syntax.tables`.
    """
    parser = tables.restore(saved, _callbacks())
    _made[:] = [parser or tables.build(_callbacks())]
    return saved if parser else tables.dump(_made[0])


class _Callbacks:
    """The object that lark calls: lark passes the parts of a rule as one list."""

    def __init__(self, builder: StatementBuilder) -> None:
        self._builder = builder

    def __getattr__(self, rule: str) -> Callable[[list[object]], object]:
        method = getattr(self._builder, rule)
        return lambda parts: method(*parts)


def _callbacks() -> _Callbacks:
    return _Callbacks(StatementBuilder())


_made: list[Lark] = []


def _lark() -> Lark:
    """The grammar's tables, built once per process."""
    if not _made:
        _made.append(tables.build(_callbacks()))
    return _made[0]


def position_at(text: str, offset: int) -> Position:
    """Line and column, both from 1, of an offset in `text`."""
    line_start = text.rfind("\n", 0, offset) + 1
    return Position(text.count("\n", 0, offset) + 1, offset - line_start + 1, offset)


def _skip_blank(text: str, offset: int) -> int:
    match = _BLANK.match(text, offset)
    return match.end() if match else offset


def _check(statement: Statement) -> None:
    """Refuses what the grammar cannot: numbers out of range, excessive nesting.

    Most texts are short and have no long numbers, so they can contain neither.
    """
    if len(statement.text) <= DEPTH_MAX and not _LONG_NUMBER.search(statement.text):
        return
    for node, depth in ast.walk(statement):
        if depth > DEPTH_MAX:
            text = f"The statement is nested deeper than {DEPTH_MAX} levels."
            at = node.at if isinstance(node, ast.SyntaxNode) else statement.at
            raise located(refusal(text, at), statement)
        if isinstance(node, ast.LiteralValue):
            _check_range(node, statement)


def _check_range(literal: ast.LiteralValue, statement: Statement) -> None:
    value, at = literal.value, literal.at
    if literal.kind == "BIGINT" and not -BIGINT_MAX - 1 <= cast("int", value) <= BIGINT_MAX:
        # ksqlDB's own column here is one to the right of the number's first digit
        text = f"line {at.line}:{at.column + 1}: Invalid numeric literal: {literal.text}"
    elif isinstance(value, float) and math.isinf(value):
        text = f"line {at.line}:{at.column + 1}: Number overflows DOUBLE: {literal.text}"
    else:
        return
    raise located(refusal(f"Failed to prepare statement: {text}", at), statement)


def _syntax_error(text: str, error: UnexpectedInput) -> SqlSyntaxError:
    offset = len(text.rstrip()) if error.pos_in_stream is None else error.pos_in_stream
    word, expecting, is_end = "", "", False
    if isinstance(error, UnexpectedToken):
        token = cast("Token", error.token)  # pyright: ignore[reportUnknownMemberType]
        is_end = token.type == "$END"
        word = "<EOF>" if is_end else str(token)
        names = sorted(_spelling(name) for name in error.expected)
        if len(names) <= EXPECTED_MAX:
            expecting = "Expecting " + (f"{{{', '.join(names)}}}" if len(names) > 1 else names[0])
    elif isinstance(error, UnexpectedCharacters):
        word = text[offset]
    if is_end:
        offset = len(text.rstrip())
    start = _statement_start(text, offset)
    stop = text.find(";", offset)
    own = text[start : len(text.rstrip()) if stop < 0 else stop + 1]
    at, first = position_at(text, offset), position_at(text, start)
    place = f"line {at.line}:{at.column}"
    message = f"{place}: Syntax Error\n{expecting}\nStatement: {own}"
    message += f"\nSyntax error at or near {word!r} at {place}"
    line = at.line - first.line + 1
    column = at.column - (first.column - 1 if line == 1 else 0)
    return SqlSyntaxError(message, statement=own, line=line, column=column, hint=expecting)


def _statement_start(text: str, offset: int) -> int:
    """Where the statement that contains `offset` begins: after the preceding semicolon."""
    start = 0
    for match in _PIECE.finditer(text, 0, offset):
        if match[0] == ";":
            start = match.end()
    return min(_skip_blank(text, start), offset)


def _spelling(name: str) -> str:
    """A terminal's name as ksqlDB's messages spell it: 'STRING', INTEGER_VALUE."""
    if name in _MARKS:
        return _MARKS[name]
    return f"'{name.removeprefix('_')}'"
