r"""Java's regular expressions as RE2's, which match in linear time. Pure.

ksqlDB's patterns are Java's, whose engine goes back over the text: `(a+)+$` takes a power of two of
the length of one value, and nothing can interrupt it. RE2 (in Python) and RE2/J (in Spark) never
go back. Both read a pattern differently from Java without saying so: `.` and `\v`, `[a&&b]`,
`(?i)`. So a pattern is read here by Java's rules and written again in the few forms that mean the
same to all three; what has no such form is refused by name.
`pipeline/run/start/LinearPatterns.java` is the same for patterns that Spark finds in a column.

Differences from Java: `$` is the end of the text alone, not also before a last line break; `\b`
knows ASCII words (Java's since 19).
Source: java.util.regex.Pattern; RE2's syntax; R. Cox, "Regular Expression Matching Can Be Simple
And Fast" (2007).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from standpipe.sql.functions.character_classes import (
    BREAKS,
    CATEGORY,
    LAST,
    PLAIN,
    POSIX,
    SHORT,
    Range,
    cased,
    complement,
    written,
)
from standpipe.sql.functions.pattern_parts import (
    CLASS_SIZE,
    Loops,
    PatternPart,
    UnsupportedPattern,
    alternatives,
    checked,
    no_width,
    of_ranges,
    repeated,
    sequence,
    without_quotes,
)

#: characters of a pattern
CHARS_MAX: Final = 1_000
#: of one quantifier (RE2's limit)
COUNT_MAX: Final = 1_000
#: groups within groups, and in all
DEPTH_MAX: Final = 40
GROUPS_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class LinearPattern:
    """`text`: RE2's syntax. `names`: of groups. `loops`: see Loops.

    `steps`: that each character of a text takes at most; groups are copied with each state.
    """

    text: str
    size: int
    groups: int
    names: dict[str, int]
    may_be_empty: bool
    loops: Loops

    @property
    def steps(self) -> int:
        return self.size * (1 + self.groups // 4)


@dataclass(frozen=True, slots=True)
class _Flags:
    ignores_case: bool = False
    dot_is_all: bool = False
    unix_lines: bool = False


_HEX: Final = re.compile(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})")
_OCTAL: Final = re.compile(r"0([0-3][0-7]{2}|[0-7]{1,2})")
_QUANTIFIER: Final = re.compile(r"\{([0-9]{1,9})(?:(,)([0-9]{0,9}))?\}")
_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_NAME: Final = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
#: what begins a group that RE2 has not
_GROUPS: Final = {
    "(?=": "a lookahead",
    "(?!": "a lookahead",
    "(?<=": "a lookbehind",
    "(?<!": "a lookbehind",
    "(?>": "an atomic group",
}
_FLAG_NAMES: Final = {"m": "lines", "x": "comments", "u": "Unicode case", "U": "Unicode classes"}


@lru_cache(maxsize=256)
def linear(pattern: str) -> LinearPattern:
    """Raises UnsupportedPattern for a pattern that has no linear form, or that Java refuses."""
    plain = without_quotes(pattern)
    if len(plain) > CHARS_MAX:
        raise UnsupportedPattern(f"it has more than {CHARS_MAX} characters")
    return _PatternReader(plain).whole()


@dataclass(slots=True)
class _PatternReader:
    """Reads a pattern from left to right."""

    pattern: str
    at: int = 0
    groups: int = 0
    depth: int = 0
    names: dict[str, int] = field(default_factory=dict[str, int])

    def whole(self) -> LinearPattern:
        part = self._alternation(_Flags())
        if self.at < len(self.pattern):
            raise self._refused("a closing parenthesis without an opening one")
        if self.groups > GROUPS_MAX:
            raise UnsupportedPattern(f"it has more than {GROUPS_MAX} groups")
        return LinearPattern(
            part.text, part.size, self.groups, self.names, part.may_be_empty, part.loops
        )

    def _refused(self, what: str) -> UnsupportedPattern:
        return UnsupportedPattern(f"it has {what} near character {self.at + 1}")

    def _next(self, text: str) -> bool:
        """Whether `text` comes next; goes past it."""
        found = self.pattern.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def _match(self, expression: re.Pattern[str]) -> re.Match[str] | None:
        found = expression.match(self.pattern, self.at)
        if found is not None:
            self.at = found.end()
        return found

    # ------------------------------------------------------------------------------- structure

    def _alternation(self, flags: _Flags) -> PatternPart:
        branches: list[PatternPart] = []
        while True:
            branch, flags = self._sequence(flags)
            branches.append(branch)
            if not self._next("|"):
                break
        return alternatives(branches)

    def _sequence(self, flags: _Flags) -> tuple[PatternPart, _Flags]:
        """Flags such as `(?i)` hold until the end of the group, its other branches included."""
        items: list[PatternPart] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            changed = self._flags_alone(flags)
            if changed is None:
                before = self.groups
                atom = self._atom(flags)
                items.append(self._quantified(atom, has_groups=self.groups > before))
            else:
                flags = changed
        return sequence(items), flags

    def _flags_alone(self, flags: _Flags) -> _Flags | None:
        found = _FLAGS.match(self.pattern, self.at)
        if found is None or found[3] == ":":
            return None
        changed = self._changed(flags, found)
        self.at = found.end()
        return changed

    def _changed(self, flags: _Flags, found: re.Match[str]) -> _Flags:
        for letter in found[1]:
            if letter not in "isd":
                raise self._refused(f"the flag {letter} ({_FLAG_NAMES.get(letter, 'unknown')})")
        off = found[2] or ""
        letters = {*found[1]} - {*off}
        return _Flags(
            "i" in letters or (flags.ignores_case and "i" not in off),
            "s" in letters or (flags.dot_is_all and "s" not in off),
            "d" in letters or (flags.unix_lines and "d" not in off),
        )

    def _group(self, flags: _Flags) -> PatternPart:
        for opening, what in _GROUPS.items():
            if self.pattern.startswith(opening, self.at):
                raise self._refused(what)
        made, opening = _FLAGS.match(self.pattern, self.at), "(?:"
        if made is not None:
            flags = self._changed(flags, made)
            self.at = made.end()
        else:
            opening = "("
            named = self._match(_NAME)
            if named is None and self.pattern.startswith("(?", self.at):
                raise self._refused("a group of a kind that Java has not")
            self.groups += 1
            if named is None:
                self.at += 1
            elif named[1] in self.names:
                raise self._refused(f"two groups of the name {named[1]}")
            else:
                self.names[named[1]] = self.groups
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise UnsupportedPattern(f"its groups are nested more than {DEPTH_MAX} deep")
        inner = self._alternation(flags)
        self.depth -= 1
        if not self._next(")"):
            raise self._refused("a group without an end")
        return replace(inner, text=f"{opening}{inner.text})", size=checked(inner.size + 2))

    def _quantified(self, part: PatternPart, *, has_groups: bool) -> PatternPart:
        counts = self._counts()
        if counts is None:
            return part
        least, most, text = counts
        if not part.takes_quantifier:
            raise self._refused("a quantifier after what has no width")
        if self._next("+"):
            raise self._refused("a possessive quantifier")
        lazy = "?" if self._next("?") else ""
        if self._counts() is not None:
            raise self._refused("a quantifier after a quantifier")
        if part.may_be_empty and has_groups and most != 1:  # what they hold then, engines differ
            raise self._refused("a repetition of groups that may be empty")
        return repeated(part, least, most, f"{text}{lazy}")

    def _counts(self) -> tuple[int, int | None, str] | None:
        """Least, most (None: no bound) and the text of a quantifier; None if none comes next."""
        for text, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._next(text):
                return least, most, text
        found = self._match(_QUANTIFIER)
        if found is None:
            return None
        least = int(found[1])
        most = least if found[2] is None else int(found[3]) if found[3] else None
        if max(least, most or 0) > COUNT_MAX:
            raise self._refused(f"a repetition of more than {COUNT_MAX}")
        if most is not None and most < least:
            raise self._refused("a repetition whose bounds are out of order")
        return least, most, found[0]

    # ----------------------------------------------------------------------------------- atoms

    def _atom(self, flags: _Flags) -> PatternPart:
        character = self.pattern[self.at]
        if character == "(":
            return self._group(flags)
        if character == "[":
            return self._class(flags)
        if character in "*+?{":
            raise self._refused("a quantifier with nothing to repeat")
        if character == "\\":
            return self._escape(flags)
        self.at += 1
        if character in "^$":
            return no_width("\\A" if character == "^" else "\\z")
        if character == ".":
            if flags.dot_is_all:
                return PatternPart("(?s:.)", CLASS_SIZE)
            return of_ranges(BREAKS[:1] if flags.unix_lines else BREAKS, (), is_negated=True)
        return self._one(ord(character), flags)

    def _one(self, code: int, flags: _Flags) -> PatternPart:
        if 0xD800 <= code <= 0xDFFF:
            raise self._refused("half a character")
        cases = cased([(code, code)]) if flags.ignores_case else [(code, code)]
        return PatternPart(written(code), 1) if len(cases) == 1 else of_ranges(cases, ())

    def _escape(self, flags: _Flags) -> PatternPart:
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter in ("A", "z", "b", "B") and letter:
            self.at += 2
            return no_width(f"\\{letter}")
        if letter == "R":
            self.at += 2
            return PatternPart("(?:\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])", 8)
        code = self._escaped_code()
        if code is not None:
            return self._one(code, flags)
        ranges, categories = self._escaped_class(flags)
        return of_ranges(ranges, categories)

    def _escaped_code(self) -> int | None:
        """The character that an escape stands for; None if it stands for a class."""
        self.at += 1
        letter = self.pattern[self.at : self.at + 1]
        if not letter:
            raise self._refused("a backslash at its end")
        if not (letter.isascii() and letter.isalnum()):
            self.at += 1
            return ord(letter)
        if letter in PLAIN:
            self.at += 1
            return PLAIN[letter]
        if letter == "c" and self.at + 1 < len(self.pattern):
            self.at += 2
            return ord(self.pattern[self.at - 1]) ^ 64
        octal = self._match(_OCTAL)
        if octal is not None:
            return int(octal[1], 8)
        hexadecimal = self._match(_HEX)
        if hexadecimal is not None:
            code = int(hexadecimal[1] or hexadecimal[2] or hexadecimal[3], 16)
            if code > LAST:
                raise self._refused("a number that is no character's")
            return code
        return None

    def _escaped_class(self, flags: _Flags) -> tuple[list[Range], list[str]]:
        r"""The ranges and categories of \d, \W, \p{Alpha}, \PL …"""
        letter = self.pattern[self.at]
        if letter.lower() in SHORT:
            self.at += 1
            ranges = list(SHORT[letter.lower()])
            return (ranges if letter.islower() else complement(ranges)), []
        if letter in "123456789k":
            raise self._refused("a reference to a group")
        if letter not in "pP":
            raise self._refused(f"the escape \\{letter}")
        end = self.at + 2
        if self.pattern.startswith("{", self.at + 1):
            end = self.pattern.find("}", self.at) + 1 or len(self.pattern)
        name = self.pattern[self.at + 1 : end]
        name = name[1:-1] if name.startswith("{") else name
        name = name if name in POSIX else name.removeprefix("Is")
        if name not in POSIX and CATEGORY.fullmatch(name) is None:
            raise self._refused(f"the class \\{letter}{{{name}}}")
        if flags.ignores_case and name in ("Lower", "Upper", "Lu", "Ll", "Lt"):
            raise self._refused(f"the flag i and the class {name}")
        self.at = end
        if name not in POSIX:
            return [], [f"\\{letter}{{{name}}}"]
        ranges = list(POSIX[name])
        return (ranges if letter == "p" else complement(ranges)), []

    def _class(self, flags: _Flags) -> PatternPart:
        self.at += 1
        is_negated = self._next("^")
        ranges: list[Range] = []
        categories: list[str] = []
        low = ord("]") if self._next("]") else None  # first in a class, it is a character
        while low is not None or not self._next("]"):
            if low is None:
                low = self._class_item(flags, ranges, categories)
            if low is not None:
                ranges.append((low, self._range_end(low, flags)))
            low = None
        if flags.ignores_case:
            ranges = cased(ranges)
        return of_ranges(ranges, categories, is_negated=is_negated)

    def _class_item(self, flags: _Flags, ranges: list[Range], categories: list[str]) -> int | None:
        """One character; None for a class, which is added."""
        if self.at >= len(self.pattern):
            raise self._refused("a class without an end")
        if self.pattern.startswith("&&", self.at):
            raise self._refused("an intersection of classes")
        character = self.pattern[self.at]
        if character == "[":
            raise self._refused("a class within a class")
        if character != "\\":
            self.at += 1
            return self._whole(ord(character))
        code = self._escaped_code()
        if code is not None:
            return self._whole(code)
        more = self._escaped_class(flags)
        ranges += more[0]
        categories += more[1]
        return None

    def _range_end(self, low: int, flags: _Flags) -> int:
        following = self.pattern[self.at : self.at + 2]
        if len(following) < 2 or following[0] != "-" or following[1] in "[]":
            return low
        self.at += 1
        high = self._class_item(flags, [], [])
        if high is None or high < low:
            raise self._refused("a range that is out of order")
        return high

    def _whole(self, code: int) -> int:
        if 0xD800 <= code <= 0xDFFF:
            raise self._refused("half a character")
        return code
