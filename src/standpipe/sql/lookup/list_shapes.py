"""Lookups with one list of keys, `… K IN ('a', 'b', …)…`: one plan for lists of any length. Pure.

    text ── ListText.read ──► what stands around and between the items, and the items
                              │
    a text with equal surroundings was planned before ──► ListTemplate.bind ──► the plan

A list has two items or more, all of them texts or all of them whole numbers without a sign, with
the same blanks around every comma, and nothing else in the statement is a literal. So most lists
need no regular expression: what is between quotes, or between commas, is an item. Whether a text
of these surroundings is such a lookup depends on them alone: the parser reads the first of them
(`ListTemplate.of` compares what it found), and no later one.

Other lists take the ways of other statements: `sql/lookup/plan_cache.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec

from standpipe.sql.lookup.template import KEYS_MAX, Coercion, PullTemplate, unchanged
from standpipe.sql.plans import PullPlan
from standpipe.sql.syntax.ast import LiteralValue, Query, walk
from standpipe.sql.syntax.limits import TEXT_CHARS_MAX
from standpipe.sql.types.values import BIGINT_MAX, INTEGER_MAX

#: a text before, between and behind the items, and the classes of the items, in order
ListShape = tuple[None, str, str, str, str]
#: finds texts where one holds a quote, which is written twice, or nothing
_split: Final = re.compile(r"'([^']*(?:''[^']*)*)'").split
_OPENERS: Final = re.compile(r"[\"`\0']|--|/\*|(?<![\w@.])\.?[0-9]")
_PLAIN_DIGITS: Final = 9  # an INTEGER, whatever the digits
#: class of a number that no column holds
BEYOND: Final = "x"


@dataclass(frozen=True, slots=True)
class ListText:
    """A statement cut into surroundings and items, which are as in the text, without their quotes.

    `shape` begins with None: no other one does.
    """

    shape: ListShape
    items: Sequence[str]
    #: some item may hold a quote, which is written twice
    has_quotes: bool = False

    @classmethod
    def read(cls, text: str) -> Self | None:
        """None: the text has no such list, or is one that the parser must judge."""
        if len(text) > TEXT_CHARS_MAX:
            return None
        return cls._texts(text) if "'" in text else cls._numbers(text)

    @classmethod
    def _texts(cls, text: str) -> Self | None:
        has_quotes = "''" in text
        parts = _split(text) if has_quotes else text.split("'")
        between = parts[2:-1:2]
        if len(parts) % 2 == 0 or not between or len(between) >= KEYS_MAX:
            return None
        separator = between[0]
        if separator.strip() != "," or between.count(separator) != len(between):
            return None
        return cls((None, parts[0], separator, parts[-1], "s"), parts[1::2], has_quotes)

    @classmethod
    def _numbers(cls, text: str) -> Self | None:
        head, bracket, rest = text.partition("(")
        listed, _, tail = rest.rpartition(")")
        _, comma, second = listed.partition(",")
        if not bracket or not comma:
            return None
        separator = comma + second[: len(second) - len(second.lstrip())]
        items = listed.split(separator)
        digits = "".join(items)
        if len(items) > KEYS_MAX or "" in items or not (digits.isascii() and digits.isdigit()):
            return None
        classes = "i"
        if max(map(len, items)) > _PLAIN_DIGITS:
            classes = "".join(sorted(set(map(class_of_number, items))))
        if BEYOND in classes:
            return None
        return cls((None, head + bracket, separator, ")" + tail, classes), items)

    @property
    def _is_of_texts(self) -> bool:
        return self.shape[4] == "s"

    def values(self) -> list[Any]:
        """The values that the parser gives to the items."""
        if not self._is_of_texts:
            return list(map(int, self.items))
        if self.has_quotes:
            return [each.replace("''", "'") for each in self.items]
        return list(self.items)

    def offsets(self) -> list[int]:
        """Where each item begins in the text."""
        _, head, separator, _, _ = self.shape
        quotes = 2 if self._is_of_texts else 0
        offsets = [len(head)]
        for each in self.items:
            offsets.append(offsets[-1] + len(each) + quotes + len(separator))
        return offsets[:-1]


@dataclass(frozen=True, slots=True)
class ListTemplate:
    """The plan of all lists with the same surroundings. `coercions`: by the class of an item."""

    plan: PullPlan
    coercions: Mapping[str, Coercion]

    @classmethod
    def of(cls, query: Query, template: PullTemplate, text: ListText) -> Self | None:
        """None: the parser found anything but a lookup of the items of one list."""
        _, head, separator, tail, classes = text.shape
        offsets = text.offsets()
        parsed = [node.at.offset for node, _ in walk(query) if isinstance(node, LiteralValue)]
        if (
            any(map(_OPENERS.search, (head, separator, tail)))
            or sorted(parsed) != offsets
            or [slot.offset for slot in template.slots] != offsets
            or any(slot.negated for slot in template.slots)
            or template.terms != ((tuple(range(len(offsets))),),)
            or template.bounds
        ):
            return None
        kinds = classes if classes == "s" else list(map(class_of_number, text.items))
        coercions = dict(zip(kinds, (slot.coerce for slot in template.slots), strict=False))
        return cls(template.plan, coercions)

    @property
    def has_texts_as_keys(self) -> bool:
        """Whether its items are texts, and keys as they are."""
        return self.coercions == {"s": unchanged}

    def bind(self, text: ListText) -> PullPlan:
        """The plan of a text. Raises StatementError if an item is no key of the column."""
        values = text.values()
        needed = [each for each in self.coercions.values() if each is not unchanged]
        if needed and text.shape[4] == "s":
            values = list(map(needed[0], values))
        elif needed:
            kinds = map(class_of_number, text.items)
            values = [
                self.coercions[kind](value) for kind, value in zip(kinds, values, strict=True)
            ]
        keys = tuple(zip(dict.fromkeys(values), strict=True))
        return msgspec.structs.replace(self.plan, keys=keys)


def class_of_number(digits: str) -> str:
    """The class of a whole number without a sign: i(nteger), b(igint), or BEYOND."""
    if len(digits) <= _PLAIN_DIGITS:
        return "i"
    value = int(digits[:40])
    return "i" if value <= INTEGER_MAX else "b" if value <= BIGINT_MAX else BEYOND
