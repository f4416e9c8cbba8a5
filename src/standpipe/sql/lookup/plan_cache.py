"""Avoids parsing a pull query that differs from an earlier one only in its literals: `PlanCache`.

One regular expression cuts the literals out; the rest of the text, with the class of each literal
(string, INTEGER, BIGINT, DECIMAL, DOUBLE), is the statement's shape. A template is kept for a shape
only if the regular expression found exactly the literals that the parser found, at the same
offsets, and nothing in the shape can begin a quoted name or a comment. Both depend on the shape
alone, so in any later text of that shape the regular expression finds the literals again.
A list of keys has one shape for all its lengths (`sql/lookup/list_shapes.py`). Conditions of rows
beside one key are kept if they mean the same for all literals (`sql/lookup/filter.py`).

Budget: 5 µs for a repeat. `tests/unit/sql/lookup/test_plan_cache.py` compares it with the parser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec

from standpipe.errors import StatementError
from standpipe.model import Source
from standpipe.sql.context import Context
from standpipe.sql.lookup import plan as pull_plan
from standpipe.sql.lookup.list_shapes import ListShape, ListTemplate, ListText, class_of_number
from standpipe.sql.lookup.template import Coercion, PullTemplate, unchanged
from standpipe.sql.plans import PullPlan
from standpipe.sql.syntax import parser
from standpipe.sql.syntax.ast import LiteralValue, Query, walk
from standpipe.sql.syntax.ast_statements import PrintTopic
from standpipe.sql.syntax.errors import located, refusal

SHAPES_MAX: Final = 1_000
#: What all of them may take, by `bytes_of`: a text may have a thousand columns.
SHAPES_BYTES_MAX: Final = 64 * 1024 * 1024
#: Shapes with more literals are not kept, but for those of one list of keys.
LITERALS_MAX: Final = 64

_LITERAL: Final = re.compile(
    r"('[^']*(?:''[^']*)*'"
    r"|(?<![\w@.])(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w@.]))"
)
_split: Final = _LITERAL.split
_OPENERS: Final = re.compile(r"[\"`\0]|--|/\*")

#: of what is compiled, for each character of a text: comparisons of columns take 266
_COMPILED_BYTES: Final = 300

#: Template and, for the most common shape (one key, one literal), the coercion of that literal.
_Entry = tuple[PullTemplate, Coercion | None]
Shape = tuple[str, ...] | ListShape


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a text became. `template`: serves any text of `shape`; None: only this one."""

    plan: PullPlan
    shape: Shape = ()
    template: PullTemplate | ListTemplate | None = None
    #: about what shape and template take in memory
    bytes_: int = 0


class NotAPullQuery(Exception):
    """The text is one statement with an endless answer: a push query, or PRINT."""

    def __init__(self, statement: Query | PrintTopic) -> None:
        super().__init__("no pull query")
        self.statement = statement


class PlanCache:
    """Plans of pull queries over fixed sources: create a new cache when the catalog changes."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        shapes_max: int = SHAPES_MAX,
        bytes_max: int = SHAPES_BYTES_MAX,
    ) -> None:
        self._sources = sources
        self._shapes_max, self._bytes_max = shapes_max, bytes_max
        self._entries: dict[Shape, _Entry | ListTemplate] = {}  # least recently used first
        #: of each, what it takes
        self._sizes: dict[Shape, int] = {}
        self._bytes = 0  # of all

    def __len__(self) -> int:
        return len(self._entries)

    def plan(self, text: str, properties: Mapping[str, str]) -> PullPlan:
        """The plan of one pull query. Raises StatementError as parse and analyze would, and
        NotAPullQuery for a query whose answer has no end."""
        found = self.cached(text, properties)
        return self.keep(self.compiled(text, properties)) if found is None else found

    def cached(self, text: str, properties: Mapping[str, str]) -> PullPlan | None:
        """The plan, if an earlier query had this shape. None: `compiled` finds it, or the error."""
        if properties and not pull_plan.PROPERTIES.isdisjoint(properties):
            return None
        try:
            return (self._cached_list(text) if "," in text else None) or self._cached(text)
        except StatementError:
            return None  # `compiled` raises it again, with the right position

    def _cached_list(self, text: str) -> PullPlan | None:
        listed = ListText.read(text)
        template = None if listed is None else self._entries.pop(listed.shape, None)
        if listed is None or not isinstance(template, ListTemplate):
            return None
        self._entries[listed.shape] = template
        return template.bind(listed)

    def _cached(self, text: str) -> PullPlan | None:
        pieces = _split(text, LITERALS_MAX + 1)
        literals = pieces[1::2]
        if len(literals) > LITERALS_MAX:
            return None
        shape: Shape = (*pieces[::2], *map(_class_of, literals))
        entry = self._entries.pop(shape, None)
        if entry is None or isinstance(entry, ListTemplate):
            return None
        self._entries[shape] = entry
        template, coerce = entry
        if coerce is not None:
            key = coerce(_value_of(literals[0]))
            return msgspec.structs.replace(template.plan, keys=((key,),))
        return template.bind(list(map(_value_of, literals)))

    def any_key_at(self, text: str, properties: Mapping[str, str]) -> slice | None:
        """Where the only literal of a text is, without its quotes or its sign, if its plan is known
        to be that of this literal, which is the only key as it is: with another one in its place,
        the plan has that one for its key. None: it is not known.

        The other literal is of the same kind: a text, or a whole number that the type of the key
        column holds. An INTEGER and a BIGINT have other shapes, but the same place, and neither is
        converted.
        """
        if not pull_plan.PROPERTIES.isdisjoint(properties):
            return None
        pieces = _split(text, 2)
        shape = (*pieces[::2], _class_of(pieces[1])) if len(pieces) == 3 else ()
        entry = self._entries.get(shape)
        if entry is None or isinstance(entry, ListTemplate):
            return None
        template, coerce = entry
        if coerce is None or template.slots[0].coerce is not unchanged:
            return None
        begin, end = len(pieces[0]), len(pieces[0]) + len(pieces[1])
        if pieces[1][0] == "'":
            return slice(begin + 1, end - 1)
        return slice(begin, end) if pieces[1].isdigit() else None

    def literals_of(
        self, text: str, properties: Mapping[str, str]
    ) -> tuple[PullTemplate, tuple[slice, ...]] | None:
        """The template of a text, and where its literals are, without their quotes or signs; None:
        none is known. As with `any_key_at`, it serves other literals of these kinds in their
        places: a whole number means the same as an INTEGER and as a BIGINT wherever a template is
        kept, but for a key, which its column has to hold."""
        if not pull_plan.PROPERTIES.isdisjoint(properties):
            return None
        pieces = _split(text, LITERALS_MAX + 1)
        literals = pieces[1::2]
        entry = self._entries.get((*pieces[::2], *map(_class_of, literals)))
        if entry is None or isinstance(entry, ListTemplate) or len(literals) > LITERALS_MAX:
            return None
        places: list[slice] = []
        end = 0
        for around, literal in zip(pieces[::2], literals, strict=False):
            begin = end + len(around)
            end = begin + len(literal)
            places.append(slice(begin + 1, end - 1) if literal[0] == "'" else slice(begin, end))
        return entry[0], tuple(places)

    def has_any_keys(self, text: str, properties: Mapping[str, str]) -> bool:
        """Whether the plan of a text is known to be that of the texts in its only list, which are
        the keys as they are: with another list in its place, the plan has those for its keys."""
        if not pull_plan.PROPERTIES.isdisjoint(properties):
            return False
        listed = ListText.read(text)
        template = None if listed is None else self._entries.get(listed.shape)
        return isinstance(template, ListTemplate) and template.has_texts_as_keys

    def compiled(self, text: str, properties: Mapping[str, str]) -> Compiled:
        """The plan by parsing and analysing the text. Changes nothing here: any thread may call it.

        Raises as `plan` does.
        """
        statements = parser.parse(text)
        only = statements[0] if len(statements) == 1 else None
        if isinstance(only, PrintTopic) or (isinstance(only, Query) and only.emit is not None):
            raise NotAPullQuery(only)
        if len(statements) != 1 or not isinstance(statements[0], Query):
            raise refusal(
                f"Expected exactly one KSQL statement; found {len(statements)} instead"
                if len(statements) != 1
                else "Only a SELECT can be answered here; send other statements to /ksql."
            )
        query = statements[0]
        try:
            context = Context(properties=properties)
            template = pull_plan.compile_pull(query, self._sources, context)
            plan = pull_plan.first_plan(query, template)
        except StatementError as error:
            raise located(error, query) from None
        if not pull_plan.PROPERTIES.isdisjoint(properties):
            return Compiled(plan)
        listed = ListText.read(text) if "," in text else None
        list_template = listed and ListTemplate.of(query, template, listed)
        if listed is not None and list_template is not None:
            chars = sum(map(len, listed.shape[1:]))
            return Compiled(plan, listed.shape, list_template, bytes_of(chars, plan))
        pieces = _split(text)
        if not _is_sound(query, template, pieces):
            return Compiled(plan)
        shape: Shape = (*pieces[::2], *map(_class_of, pieces[1::2]))
        # its literals are kept with the conditions
        bytes_ = bytes_of(sum(map(len, shape)), plan) + len(text)
        return Compiled(plan, shape, template, bytes_)

    def keep(self, compiled: Compiled) -> PullPlan:
        """The plan; its template is kept for queries of the same shape, if it serves them."""
        template, shape, needed = compiled.template, compiled.shape, compiled.bytes_
        if template is None or needed > self._bytes_max:
            return compiled.plan
        self._drop(shape)
        while len(self._entries) >= self._shapes_max or self._bytes + needed > self._bytes_max:
            self._drop(next(iter(self._entries)))
        is_list = isinstance(template, ListTemplate)
        self._entries[shape] = template if is_list else (template, template.key_coercion)
        self._sizes[shape] = needed
        self._bytes += needed
        return compiled.plan

    def _drop(self, shape: Shape) -> None:
        self._entries.pop(shape, None)
        self._bytes -= self._sizes.pop(shape, 0)


def bytes_of(chars: int, plan: PullPlan) -> int:
    """About what the plan of a text of so many characters takes: what it is compiled to, and the
    names and types of the columns of the answer, together and one by one."""
    return _COMPILED_BYTES * chars + 2 * len(plan.schema)


def _is_sound(query: Query, template: PullTemplate, pieces: list[str]) -> bool:
    """Whether regular expression, parser and template agree on where the literals are."""
    if len(pieces) > 2 * LITERALS_MAX or any(map(_OPENERS.search, pieces[::2])):
        return False
    offsets: list[int] = []
    offset = 0
    for index, piece in enumerate(pieces):
        if index % 2:
            offsets.append(offset)
        offset += len(piece)
    parsed = [
        node
        for node, _ in walk(query)
        if isinstance(node, LiteralValue) and node.kind not in ("NULL", "BOOLEAN")  # words
    ]
    if sorted(node.at.offset for node in parsed) != offsets:
        return False
    if [slot.offset for slot in template.slots] != offsets:
        return False
    # -2147483648 is an INTEGER, 2147483648 is not: the class comes from the unsigned digits
    long = [len(piece) > 9 for piece in pieces[1::2]]
    return not any(
        slot.negated and is_long for slot, is_long in zip(template.slots, long, strict=True)
    )


def _class_of(literal: str) -> str:
    """One letter: s(tring), i(nteger), b(igint), d(ecimal), f(loating), x: beyond BIGINT."""
    if literal[0] == "'":
        return "s"
    if literal.isdigit():
        return "i" if len(literal) < 10 else class_of_number(literal)
    return "f" if "e" in literal or "E" in literal else "d"


def _value_of(literal: str) -> object:
    """The value that the parser gives to the literal."""
    if literal[0] == "'":
        text = literal[1:-1]
        return text.replace("''", "'") if "'" in text else text
    if literal.isdigit():
        return int(literal)
    return float(literal) if "e" in literal or "E" in literal else Decimal(literal)
