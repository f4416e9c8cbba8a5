"""DEFINE and `${name}`: text substitution before a statement is parsed.

In quoted text a value is inserted as it is, with its quotes doubled; anywhere else it must be one
word, number or quoted text, so that it cannot end the statement. `$${name}` is an escape for
`${name}`. An undefined name stays as it was written. Names are case-insensitive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from standpipe.errors import StatementError
from standpipe.sql.syntax import limits, parser
from standpipe.sql.syntax.ast import Statement
from standpipe.sql.syntax.ast_statements import Define
from standpipe.sql.syntax.limits import TEXT_CHARS_MAX

#: session property: whether `${…}` is substituted
SUBSTITUTION: Final = "ksql.variable.substitution.enable"

_VARIABLE: Final = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# a comment that is not closed ends with the text, so that the rest is not searched at each of them
_PIECE: Final = re.compile(
    r"(?P<quoted>'[^']*(?:''[^']*)*'|\"[^\"]*(?:\"\"[^\"]*)*\"|`[^`]*(?:``[^`]*)*`)"
    r"|(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))|(?P<end>;)|(?P<plain>[^'\"`;/-]+|.)",
    re.DOTALL,
)
_ONE_TOKEN: Final = re.compile(
    r"\s*(?:[A-Za-z0-9_@.]+|-?[0-9.]+(?:[eE][+-]?[0-9]+)?|'[^']*(?:''[^']*)*'"
    r"|\"[^\"]*(?:\"\"[^\"]*)*\"|`[^`]*(?:``[^`]*)*`)\s*"
)


def substitutes(properties: Mapping[str, str]) -> bool:
    """Whether the properties of a request leave the substitution of variables on."""
    return properties.get(SUBSTITUTION, "true").lower() != "false"


def parse(text: str, variables: Mapping[str, str], *, is_on: bool = True) -> tuple[Statement, ...]:
    """The statements of a request: each sees the DEFINEs before it. Raises like `parser.parse`, and
    StatementError for a value that is not allowed where it is used."""
    if not is_on or "${" not in text:
        return parser.parse(text)
    limits.check(text)  # here of all statements together, by the parser of each alone
    known = folded(variables)
    values = _Values(known)
    statements: list[Statement] = []
    line = 0
    for piece in split(text):
        # positions are in the whole request, as they are without variables
        for statement in parser.parse("\n" * line + values.put_into_statement(piece)):
            statements.append(statement)
            if isinstance(statement, Define):
                define(known, statement)
        line += piece.count("\n")
    return tuple(statements)


def folded(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables by upper-cased name."""
    return {name.upper(): value for name, value in variables.items()}


def define(known: dict[str, str], statement: Define) -> None:
    """Applies DEFINE or UNDEFINE to the folded variables."""
    known.pop(statement.name.upper(), None)
    if statement.value is not None:
        known[statement.name.upper()] = statement.value


def substituted(text: str, known: Mapping[str, str]) -> str:
    """The text with variables replaced by their values in `known`, which is folded."""
    if "${" not in text:
        return text
    limits.check(text)
    return _Values(known).put_into_statement(text)


def split(text: str) -> Iterator[str]:
    """The statements' texts, each with its semicolon and what stands before it."""
    start = 0
    for match in _PIECE.finditer(text):
        if match["end"]:
            yield text[start : match.end()]
            start = match.end()
    if text[start:].strip():
        yield text[start:]


class _Values:
    """Puts values in place of names, until they are longer together than any text may be."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = known
        self._room = TEXT_CHARS_MAX

    def put_into_statement(self, text: str) -> str:
        parts: list[str] = []
        for match in _PIECE.finditer(text):
            piece = match[0]
            if match["quoted"]:
                piece = self._put_into(piece, quote=piece[0])
            elif match["plain"]:
                piece = self._put_into(piece, quote="")
            parts.append(piece)
        return "".join(parts)

    def _put_into(self, piece: str, *, quote: str) -> str:
        return _VARIABLE.sub(lambda match: self._value_of(match, quote), piece)

    def _value_of(self, match: re.Match[str], quote: str) -> str:
        name = match[2].upper()
        if match[1]:
            return match[0][1:]
        if name not in self._known:
            return match[0]
        value = self._known[name]
        self._room -= len(value)
        if self._room < 0:
            raise StatementError(
                f"The values of variables are longer than {TEXT_CHARS_MAX} characters together."
            )
        if quote:
            return value.replace(quote, quote * 2)
        if not _ONE_TOKEN.fullmatch(value):
            raise StatementError(
                f"Variable {match[2]} is not allowed here: {value!r} is not a single name, "
                "number or text."
            )
        return value
