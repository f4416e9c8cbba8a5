"""LIKE patterns, matched without backtracking. Pure.

A pattern is cut at each `%` into pieces of a fixed length. The first piece has to be at the start
of the text, the last one at its end, and each of the others is taken at its first place behind the
piece before it: the first place leaves the most text to the rest, so no other has to be tried. One
match takes at most `steps(text)` comparisons. A regular expression with several `.*` takes a power
of the length of the text, and nothing can interrupt it.

Source: SQL-92 8.5 <like predicate>; ksqlDB's LIKE, whose ESCAPE has no default.
"""

from __future__ import annotations

import re
from typing import Final


class LikePattern:
    """One pattern; `%` stands for any text and `_` for any one character."""

    __slots__ = ("_first", "_last", "_length", "_middle", "_one_piece", "_wild_length_max")

    def __init__(self, pattern: str, escape: str | None = None) -> None:
        pieces = _pieces(pattern, escape)
        self._one_piece = len(pieces) == 1
        self._first: Final = pieces[0]
        self._last: Final = pieces[-1]
        self._middle: Final = tuple(piece for piece in pieces[1:-1] if piece.length)
        self._length = sum(piece.length for piece in (pieces[:1] if self._one_piece else pieces))
        self._wild_length_max = max((piece.length for piece in pieces if piece.wild), default=1)

    def matches(self, text: str) -> bool:
        """Whether all of `text` fits the pattern."""
        if len(text) < self._length or not self._first.is_at(text, 0):
            return False
        if self._one_piece:
            return len(text) == self._length
        at = self._first.length
        for piece in self._middle:
            at = piece.find(text, at)
            if at < 0:
                return False
            at += piece.length
        last_at = len(text) - self._last.length
        return at <= last_at and self._last.is_at(text, last_at)

    def steps(self, text: str) -> int:
        """Comparisons of characters that `matches` makes at most."""
        return len(text) * self._wild_length_max


class _Piece:
    """Characters between two `%`: a text, or where it has a `_` an expression of fixed length."""

    __slots__ = ("_text", "length", "wild")

    def __init__(self, characters: list[str | None]) -> None:
        self.length = len(characters)
        self._text = "".join(each for each in characters if each is not None)
        is_wild = len(self._text) < self.length
        expression = "".join("." if each is None else re.escape(each) for each in characters)
        self.wild = re.compile(expression, re.DOTALL) if is_wild else None

    def is_at(self, text: str, at: int) -> bool:
        if self.wild is None:
            return text.startswith(self._text, at)
        return self.wild.match(text, at) is not None

    def find(self, text: str, start: int) -> int:
        """The first place from `start` on; -1: none."""
        if self.wild is None:
            return text.find(self._text, start)
        found = self.wild.search(text, start)
        return -1 if found is None else found.start()


def _pieces(pattern: str, escape: str | None) -> list[_Piece]:
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            pieces[-1] += next(characters, "")
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "_" else character)
    return [_Piece(each) for each in pieces]


def ends_with_escape(pattern: str, escape: str | None) -> bool:
    """Whether the last character escapes nothing, which no literal may say."""
    if escape is None:
        return False
    at, size = 0, len(pattern)
    while at < size:
        at += 1 + (pattern[at] == escape)
    return at > size


def like_template(pattern: str | None, escape: str | None) -> str:
    """Spark SQL for LIKE, of {0} and the pattern as `spark_pattern` writes it, {1}. None: it is not
    a literal; then, and where Spark's backtracking expression takes more than one `%` for several
    places, it is our function (`pipeline/run/start/LinearPatterns.java`), of the pattern itself."""
    pieces = None if pattern is None else _pieces(pattern, escape)
    if pieces is not None:
        is_contains = len(pieces) == 3 and not pieces[0].length and not pieces[2].length
        if len(pieces) <= 2 or is_contains:
            return "{0} LIKE {1}"
    return "standpipe_like({1}, {0}, {2})"


def spark_pattern(pattern: str, escape: str | None = None) -> str:
    """The same pattern for Spark, whose escape is the backslash, and which accepts that only before
    a character that needs it."""
    made: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            plain = next(characters, "")
            made.append(f"\\{plain}" if plain in _NEED_ESCAPE else plain)
        else:
            made.append("\\\\" if character == "\\" else character)
    return "".join(made)


_NEED_ESCAPE: Final = ("%", "_", "\\")
