"""Parts of a regular expression in RE2's syntax, and what is known of each. Pure.

`regular_expressions.py` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from standpipe.sql.functions.character_classes import Range, written

#: states of the compiled pattern, about: each character of a text costs up to so many steps
SIZE_MAX: Final = 1_000
CLASS_SIZE: Final = 4
CATEGORY_SIZE: Final = 64
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.", re.DOTALL)


class UnsupportedPattern(ValueError):
    """The text says what the pattern has that cannot be matched in linear time, or is not
    Java's."""


class Loops(IntEnum):
    """Where a part repeats without bound.

    TAIL: what follows may be missing, so a repetition that goes on is a match at any time. INNER:
    an engine may read to the end of the text to find that nothing fits.
    """

    NONE = 0
    TAIL = 1
    INNER = 2


@dataclass(frozen=True, slots=True)
class PatternPart:
    """`may_be_empty`: it can match no character; `always_fits`: so it does at any place."""

    text: str
    size: int
    may_be_empty: bool = False
    always_fits: bool = False
    loops: Loops = Loops.NONE
    takes_quantifier: bool = True


def checked(size: int) -> int:
    """Raises UnsupportedPattern for a pattern that would get too large."""
    if size > SIZE_MAX:
        raise UnsupportedPattern(f"with its repetitions it has more than {SIZE_MAX} states")
    return size


def alternatives(branches: Sequence[PatternPart]) -> PatternPart:
    """One of these."""
    if len(branches) == 1:
        return branches[0]
    return PatternPart(
        "|".join(each.text for each in branches),
        checked(sum(each.size + 1 for each in branches)),
        any(each.may_be_empty for each in branches),
        any(each.always_fits for each in branches),
        max(each.loops for each in branches),
    )


def sequence(items: Sequence[PatternPart]) -> PatternPart:
    """One after the other."""
    loops, rest_fits = Loops.NONE, True
    for item in reversed(items):
        is_inner = item.loops == Loops.TAIL and not rest_fits
        loops = max(loops, Loops.INNER if is_inner else item.loops)
        rest_fits = rest_fits and item.always_fits
    return PatternPart(
        "".join(item.text for item in items),
        checked(sum(item.size for item in items)),
        all(item.may_be_empty for item in items),
        rest_fits,
        loops,
    )


def repeated(part: PatternPart, least: int, most: int | None, quantifier: str) -> PatternPart:
    """From least to most times; None: without bound."""
    loops = part.loops
    if most is None and loops == Loops.NONE:
        loops = Loops.TAIL
    elif loops == Loops.TAIL and least > 1 and not part.always_fits:
        loops = Loops.INNER
    return PatternPart(
        f"{part.text}{quantifier}",
        checked(part.size * max(1, least, most or 0) + 1),
        part.may_be_empty or least == 0,
        part.always_fits or least == 0,
        loops,
    )


def no_width(text: str) -> PatternPart:
    """What matches a place, not a character."""
    return PatternPart(text, 1, may_be_empty=True, takes_quantifier=False)


def of_ranges(
    ranges: Iterable[Range], categories: Iterable[str], *, is_negated: bool = False
) -> PatternPart:
    """A class of characters."""
    shown = [
        written(low) if low == high else f"{written(low)}-{written(high)}" for low, high in ranges
    ]
    listed = list(categories)
    size = CLASS_SIZE + len(shown) + CATEGORY_SIZE * len(listed)
    return PatternPart(f"[{'^' if is_negated else ''}{''.join([*shown, *listed])}]", size)


def without_quotes(pattern: str) -> str:
    r"""The pattern with an escape for each character between \Q and \E."""

    def escaped(found: re.Match[str]) -> str:
        quoted = found[1]
        if quoted is None:
            return found[0]
        return "".join(
            each if each.isascii() and each.isalnum() else f"\\{each}" for each in quoted
        )

    return _QUOTED.sub(escaped, pattern)
