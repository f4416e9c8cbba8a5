"""Java's classes of characters as ranges of code points, for `regular_expressions.py`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

#: code points, both ends included
Range = tuple[int, int]
LAST: Final = 0x10FFFF
DIGITS: Final[tuple[Range, ...]] = ((48, 57),)
LOWER: Final[Range] = (97, 122)
UPPER: Final[Range] = (65, 90)
BREAKS: Final[tuple[Range, ...]] = ((10, 10), (13, 13), (0x85, 0x85), (0x2028, 0x2029))
SHORT: Final[dict[str, tuple[Range, ...]]] = {
    "d": DIGITS,
    "w": (*DIGITS, UPPER, (95, 95), LOWER),
    "s": ((9, 13), (32, 32)),
    "h": (
        *((9, 9), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E)),
        *((0x2000, 0x200A), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
    ),
    "v": ((10, 13), (0x85, 0x85), (0x2028, 0x2029)),
}
POSIX: Final[dict[str, tuple[Range, ...]]] = {
    "Lower": (LOWER,),
    "Upper": (UPPER,),
    "ASCII": ((0, 127),),
    "Alpha": (UPPER, LOWER),
    "Digit": DIGITS,
    "Alnum": (*DIGITS, UPPER, LOWER),
    "Punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "Graph": ((33, 126),),
    "Print": ((32, 126),),
    "Blank": ((9, 9), (32, 32)),
    "Cntrl": ((0, 31), (127, 127)),
    "XDigit": (*DIGITS, (65, 70), (97, 102)),
    "Space": ((9, 13), (32, 32)),
}
#: general categories that both engines know
CATEGORY: Final = re.compile(r"L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?")
PLAIN: Final = {"t": 9, "n": 10, "r": 13, "f": 12, "a": 7, "e": 27}


def written(code: int) -> str:
    """The character, as RE2 and RE2/J read it anywhere."""
    character = chr(code)
    return character if character.isascii() and character.isalnum() else f"\\x{{{code:X}}}"


def complement(ranges: Iterable[Range]) -> list[Range]:
    """All other characters; the ranges are in order."""
    made: list[Range] = []
    start = 0
    for low, high in ranges:
        if start < low:
            made.append((start, low - 1))
        start = high + 1
    return [*made, (start, LAST)]


def cased(ranges: Iterable[Range]) -> list[Range]:
    """With the other case of each ASCII letter, as Java's flag i has it."""
    made = list(ranges)
    for low, high in tuple(made):
        for (first, last), shift in ((UPPER, 32), (LOWER, -32)):
            if max(low, first) <= min(high, last):
                made.append((max(low, first) + shift, min(high, last) + shift))
    return made
