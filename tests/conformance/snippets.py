"""The ksqlDB statements in a file of somebody's repository, each on the line where it stands there.

A file of SQL is taken as it is. In Markdown and AsciiDoc the statements are in blocks of code,
often after the prompt of ksqlDB's CLI and above its output; in shell scripts they are in a
here-document for the CLI. What is no statement becomes blank lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Final

from standpipe.local.cli import sql_text
from standpipe.sql.syntax import variables

#: words that begin a statement of ksqlDB
_BEGINS: Final = re.compile(
    r"(?:ALTER|ASSERT|CREATE|DEFINE|DESCRIBE|DROP|EXPLAIN|INSERT|LIST|PAUSE|PRINT|RESUME|SELECT|SET"
    r"|SHOW|TERMINATE|UNDEFINE|UNSET)\s",
    re.IGNORECASE,
)
_PROMPT: Final = re.compile(r"^\s*ksql>\s?")
#: the CLI's prompt for another line of a statement
_MORE: Final = re.compile(r"^\s*>\s?")
#: a line of a table that the CLI printed, or a setting of the CLI
_NO_PART: Final = re.compile(r"\s*(?:\+-|\||-{5,}|SET\s+CLI\s)", re.IGNORECASE)
_NO_STATEMENT: Final = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_FENCE: Final = re.compile(r"\s*(`{3,}|~{3,})\s*\{?\.?([\w-]*)")
_LISTING: Final = re.compile(r"-{4,}\s*$")
_HERE: Final = re.compile(r"ksql.*<<-?\s*['\"\\]?(\w+)")
#: languages of blocks that may hold statements; many name none
_LANGUAGES: Final = frozenset(
    ("", "sql", "ksql", "ksqldb", "bash", "sh", "shell", "console", "text", "txt", "jsx", "plain")
)


def statements(path: str, text: str) -> str:
    """The statements of a file, and blank lines in place of everything else."""
    suffix = PurePosixPath(path).suffix.lower()
    blocks = _BLOCKS.get(suffix)
    if blocks is None:
        return text
    lines = text.split("\n")
    kept = [""] * len(lines)
    for first, last in blocks(lines):
        kept[first:last] = _of_block(lines[first:last])
    return "\n".join(kept)


def _fenced(lines: list[str]) -> Iterator[tuple[int, int]]:
    """The insides of Markdown's blocks: indexes of the first line and of the one after the last."""
    end, first, is_wanted = "", 0, False
    for index, line in enumerate(lines):
        if end:
            if line.strip().startswith(end):
                if is_wanted:
                    yield first, index
                end = ""
        elif fence := _FENCE.match(line):
            end, first = fence[1], index + 1
            is_wanted = fence[2].lower() in _LANGUAGES


def _listed(lines: list[str]) -> Iterator[tuple[int, int]]:
    """The insides of AsciiDoc's listings."""
    first: int | None = None
    for index, line in enumerate(lines):
        if _LISTING.match(line):
            if first is not None:
                yield first, index
            first = index + 1 if first is None else None


def _here_documents(lines: list[str]) -> Iterator[tuple[int, int]]:
    """What a shell script gives to the CLI as a here-document."""
    end, first = "", 0
    for index, line in enumerate(lines):
        if end:
            if line.strip() == end:
                yield first, index
                end = ""
        elif here := _HERE.search(line):
            end, first = here[1], index + 1


_BLOCKS: Final[dict[str, Callable[[list[str]], Iterator[tuple[int, int]]]]] = {
    ".md": _fenced,
    ".adoc": _listed,
    ".sh": _here_documents,
}


def _of_block(lines: list[str]) -> list[str]:
    """The block's statements, line by line."""
    if any(map(_PROMPT.match, lines)):
        lines = [_MORE.sub("", line) for line in _typed(lines)]
    elif all(map(_MORE.match, filter(str.strip, lines[1:]))):
        lines = [*lines[:1], *(_MORE.sub("", line) for line in lines[1:])]
    text = "\n".join("" if _NO_PART.match(line) else line for line in lines)
    text = sql_text.without_continuations(text)
    kept = "".join(map(_statement_or_blank, variables.split(text))).split("\n")
    return kept + [""] * (len(lines) - len(kept))  # nothing but blanks after the last `;`


def _typed(lines: list[str]) -> Iterator[str]:
    """What was typed at the prompt: from it to the end of the statement."""
    is_typed = False
    for line in lines:
        is_typed = is_typed or _PROMPT.match(line) is not None
        yield _PROMPT.sub("", line) if is_typed else ""
        is_typed = is_typed and not line.rstrip().endswith(";")


def _statement_or_blank(piece: str) -> str:
    before = _NO_STATEMENT.match(piece)
    start = before.end() if before else 0
    is_statement = piece.endswith(";") and _BEGINS.match(piece, start)
    return piece if is_statement else "\n" * piece.count("\n")
