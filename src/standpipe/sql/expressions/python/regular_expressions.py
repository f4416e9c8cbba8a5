"""Regular expressions of Java's, matched by RE2 in linear time.

A search takes at most `LinearPattern.steps` for each character (5 ns each, measured, where RE2
runs out of states to remember). A search for all matches may read to the end of the text again and
again to find that a longer match does not fit, so what it may have read is counted.

Source: ksqlDB's RegexpExtract, RegexpExtractAll, RegexpReplace and RegexpSplitToArray.
"""

# google-re2 has no types
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import re2

from standpipe.errors import NotComputable
from standpipe.sql.expressions.python.computed import Computed
from standpipe.sql.functions.pattern_parts import Loops, UnsupportedPattern
from standpipe.sql.functions.regular_expressions import CHARS_MAX, LinearPattern, linear

#: a step counts as two characters that another function reads: one row then takes 10 ms at most
_WORK_OF_STEP: Final = 2
#: what a match takes in Python, 3 µs
_STEPS_OF_MATCH: Final = 600
#: with its \Q and \E: what is longer than any that is accepted is not even kept
_PATTERN_CHARS_MAX: Final = 8 * CHARS_MAX
#: of one pattern in RE2; there may be 128 patterns
_BYTES_MAX: Final = 1 << 20


def _compiled(pattern: str) -> tuple[LinearPattern, Any] | None:
    """None: such a pattern out of a column gives NULL, as one that Java refuses does in ksqlDB."""
    if len(pattern) > _PATTERN_CHARS_MAX:
        return None
    return _compiled_short(pattern)


@lru_cache(maxsize=128)
def _compiled_short(pattern: str) -> tuple[LinearPattern, Any] | None:
    options = re2.Options()
    options.max_mem, options.log_errors = _BYTES_MAX, False
    try:
        made = linear(pattern)
        return made, re2.compile(made.text, options)
    except (UnsupportedPattern, re2.error):
        return None


def _once(pattern: str, text: str, *_: Any) -> int:
    found = _compiled(pattern)
    return 0 if found is None else 20 * len(pattern) + len(text) * found[0].steps * _WORK_OF_STEP


def _extract(pattern: str, text: str, group: int = 0) -> str | None:
    compiled = _compiled(pattern)
    if compiled is None or not 0 <= group <= compiled[0].groups:
        return None
    found = compiled[1].search(text)
    return None if found is None else found.group(group)


def _matches(
    compiled: tuple[LinearPattern, Any], text: bytes, budget: list[int]
) -> Iterator[Callable[[int], tuple[int, int]]]:
    """For each match from left to right, where its groups are; as long as all of them may have
    taken no more than the budget, from which they are taken."""
    pattern, expression = compiled
    start, last = 0, -1
    for found in expression.finditer(text):
        first, end = found.span()
        is_within = first < len(text) and text[first] & 0xC0 == 0x80  # ... a character
        if first == end and (first == last or is_within):
            continue  # google-re2 finds an empty match again, and each of a character's bytes
        yield found.span
        # otherwise no state outlives a match by more characters than the pattern has states
        is_ahead = pattern.loops == Loops.INNER
        read = len(text) - start if is_ahead else end - start + pattern.size
        budget[0] -= (_STEPS_OF_MATCH + read * pattern.steps) * _WORK_OF_STEP
        start = end
        last = end if first == end else -1
        if budget[0] < 0:
            raise NotComputable(
                "A regular expression would take too many steps to find all its matches in a"
                f" text of {len(text)} bytes."
            )


def _part(text: bytes, span: tuple[int, int]) -> str | None:
    return None if span[0] < 0 else text[span[0] : span[1]].decode()


def _extract_all(
    pattern: str, text: str, group: int = 0, *, budget: list[int]
) -> list[str | None] | None:
    compiled = _compiled(pattern)
    if compiled is None or not 0 <= group <= compiled[0].groups:
        return None
    given = text.encode()
    return [_part(given, span(group)) for span in _matches(compiled, given, budget)]


def _split(text: str, pattern: str, *, budget: list[int]) -> list[str] | None:
    """Java's split for a pattern that fits nothing, Guava's Splitter for any other."""
    compiled = _compiled(pattern)
    if compiled is None:
        return None
    fits_nothing = compiled[1].search("") is not None
    given = text.encode()
    made: list[str] = []
    start = 0
    for span in _matches(compiled, given, budget):
        first, end = span(0)
        if fits_nothing:
            skips = start == 0 and end == 0
        else:
            skips = first == end and first in (start, len(given))
        if not skips:
            made.append(given[start:first].decode())
            start = end
    made.append(given[start:].decode())
    while fits_nothing and start > 0 and made and not made[-1]:
        made.pop()
    return made


def _replace(text: str, pattern: str, replacement: str, *, budget: list[int]) -> str | None:
    compiled = _compiled(pattern)
    if compiled is None:
        return None
    given = text.encode()
    parts: list[str | int] | None = None
    allowed = budget[0]
    made: list[str] = []
    start = chars = 0
    for span in _matches(compiled, given, budget):
        if parts is None:
            parts = _parts(replacement, compiled[0])
            if parts is None:
                return None
        first, end = span(0)
        made.append(given[start:first].decode())
        made += [
            each if isinstance(each, str) else _part(given, span(each)) or "" for each in parts
        ]
        start = end
        chars += sum(len(each) for each in made[-1 - len(parts) :])
        if chars > allowed:
            raise NotComputable(
                f"REGEXP_REPLACE would make more than the {allowed} characters that are allowed."
            )
    budget[0] -= chars
    return "".join([*made, given[start:].decode()])


def _parts(replacement: str, pattern: LinearPattern) -> list[str | int] | None:
    """Texts and groups of Java's replacements: $1, ${name}, and a backslash before a character.
    None: Java refuses it."""
    made: list[str | int] = []
    at = 0
    while at < len(replacement):
        each, following = replacement[at], replacement[at + 1 : at + 2]
        at += 1
        if each not in "$\\":
            made.append(each)
        elif not following:
            return None
        elif each == "\\":
            made.append(following)
            at += 1
        elif following == "{":
            end = replacement.find("}", at)
            group = pattern.names.get(replacement[at + 1 : end]) if end > 0 else None
            if group is None:
                return None
            made.append(group)
            at = end + 1
        else:
            group, at = _number(replacement, at, pattern.groups)
            if group is None:
                return None
            made.append(group)
    return made


def _number(text: str, at: int, groups: int) -> tuple[int | None, int]:
    """As many digits as name a group; the first one must. And where they end."""
    group: int | None = None
    while at < len(text) and "0" <= text[at] <= "9":
        longer = (group or 0) * 10 + int(text[at])
        if longer > groups:
            break
        group, at = longer, at + 1
    return group, at


def _once_of_text(text: str, pattern: str, *_: Any) -> int:
    return _once(pattern, text)


FUNCTIONS: Final[Mapping[str, Computed]] = {
    "REGEXP_EXTRACT": Computed(_extract, work=_once),
    "REGEXP_EXTRACT_ALL": Computed(_extract_all, work=_once, takes_budget=True),
    "REGEXP_REPLACE": Computed(_replace, work=_once_of_text, takes_budget=True),
    "REGEXP_SPLIT_TO_ARRAY": Computed(_split, work=_once_of_text, takes_budget=True),
}
