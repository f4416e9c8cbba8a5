"""A lookup by a statement with several literals, from the bytes of its request to its row. Pure.

    body ── cut_all ──► body with one byte for each literal
                        │
    a request with equal ones was planned before: which literal is the key, which conditions and
    which columns there are is known
                        │
    known_statement ──► partition and store key of the key, and the literals
                        │
    stored row ── shown, or the plan with these literals ──► the row as the statement shows it

Literals are cut out of the JSON strings of a body (`places_in`): a text between quotes that JSON
and SQL keep as it is, and a whole number as it is usually written, with nothing beside it that
makes it a part of a name or of another number. Each leaves one byte, and the two bytes are control
characters, which no JSON string has. No literal has a double quote, so bodies that are equal
without their literals have them in the same places.

`cut_all`, `known_statement` and `shown` have a compiled form (`data/encoding/native.py`). The
Python here defines the first two; what `lookup` finds by the plan defines the third. Not here: what
is checked before a statement is known (`node.worker.pull.known.statements`), a whole row by one
literal (`data/query/literal_lookup.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import PREFIX_BYTES_MAX, murmur2, ordered_longs
from standpipe.data.query.literal_lookup import END, MESSAGE_BYTES_MAX, Around, LiteralPlace
from standpipe.data.query.pull import lookup
from standpipe.data.query.row_program import ProgramCondition, row_program
from standpipe.sql.lookup.template import PullTemplate
from standpipe.sql.plans import PullPlan
from standpipe.sql.types.values import BIGINT_MAX

#: Bodies with more are none of ours.
LITERALS_MAX: Final = 16
_TEXT_MARK, _NUMBER_MARK = b"\1", b"\2"
#: a JSON string in which nothing is escaped
_string: Final = re.compile(rb'"([^"\\\x00-\x1f]*)"').match
_piece: Final = re.compile(
    rb"'([ !#-&(-\[\]-\x7f]*)'(?!')"
    rb"|(?<![\w@.$\"\x80-\xff])((?:(?<!-)0|[1-9][0-9]{0,18})(?![\w@.$\x80-\xff]))"
    rb"|(')|[0-9]+|[^'0-9]+"
).finditer


def places_in(body: bytes) -> list[LiteralPlace] | None:
    """Where the literals of a body are; None: something is unusual, or there are too many."""
    places: list[LiteralPlace] = []
    at = body.find(b'"')
    while at >= 0:
        found = _string(body, at)
        if found is None:
            return None
        for piece in _piece(body, *found.span(1)):
            if piece[3] is not None:
                return None
            if piece[1] is not None:
                places.append(LiteralPlace(*piece.span(1), is_text=True))
            elif piece[2] is not None and int(piece[2]) <= BIGINT_MAX:
                places.append(LiteralPlace(*piece.span(2), is_text=False))
        at = body.find(b'"', found.end())
    return places if len(places) <= LITERALS_MAX else None


def _with_marks(mark: bytes, body: bytes, places: Sequence[LiteralPlace]) -> bytes:
    pieces, at = [mark], 0
    for begin, end, is_text in places:
        pieces += (body[at:begin], _TEXT_MARK if is_text else _NUMBER_MARK)
        at = end
    return b"".join((*pieces, body[at:]))


def cut_all(mark: bytes, body: bytes) -> bytes | None:
    """`mark` and the body with a byte for each literal; None: it has none, or `places_in` says
    None."""
    found = native.cut_all(mark, body)
    if found is not None:
        return found
    places = places_in(body)
    return _with_marks(mark, body, places) if places else None


T = TypeVar("T")


class KnownStatement(NamedTuple, Generic[T]):
    """What bytes mean that differ only in their literals."""

    #: of the bytes, literals included; 0: any
    size: int
    #: of the key column, and the partitions of its table
    kind: int
    partitions: int
    #: which literal is the key, and whether a minus belongs to it
    place: int
    is_negated: bool
    meaning: T


def known_statement(
    known: Mapping[bytes, KnownStatement[T] | None], mark: bytes, message: bytes
) -> tuple[T, int, bytes, tuple[bytes, ...]] | None:
    """(meaning, partition of the key, the key in the store, all literals) by what `cut_all` makes;
    None: it is not known, or longer than MESSAGE_BYTES_MAX, or the key is none that its column
    holds, or too long."""
    found = native.known_statement(known, mark, message)
    if found is not None:
        return found
    places = places_in(message) if len(message) <= MESSAGE_BYTES_MAX else None
    entry = known.get(_with_marks(mark, message, places)) if places else None
    if not places or entry is None or entry.size not in (0, len(message)):
        return None
    literals = tuple(message[each.begin : each.end] for each in places)
    literal, is_text = literals[entry.place], places[entry.place].is_text
    if is_text != (entry.kind == native.KINDS["STRING"]):
        return None
    if is_text:
        raw, key = literal, literal + END
        if len(key) > PREFIX_BYTES_MAX:
            return None
    else:
        width = 8 if entry.kind == native.KINDS["BIGINT"] else 4
        number = int(literal)
        if number >> (8 * width - 1):
            return None
        number = -number if entry.is_negated else number
        raw, key = number.to_bytes(width, "big", signed=True), ordered_longs((number,))
    return entry.meaning, (murmur2(raw) & 0x7FFFFFFF) % entry.partitions, key, literals


def program_of(template: PullTemplate) -> bytes | None:
    """Conditions and columns of a template with one key, as C reads them; None: it is computed by
    Python."""
    if template.test is not None and template.conditions is None:
        return None
    conditions: list[ProgramCondition] = []
    for index, sign, place, compared in template.conditions or ():
        if place >= len(template.slots):
            return None
        conditions.append((index, sign, place, template.slots[place].negated, compared))
    return row_program(template.plan, conditions, is_decoded=template.test is not None)


class _OneRow:
    """`data.query.pull.ReadView` of one key, which was read before."""

    def __init__(self, stored: bytes) -> None:
        self._stored = stored

    def get(self, _key: bytes, /) -> bytes:
        return self._stored

    def scan(self, low: bytes, _high: bytes, _limit: int, /) -> list[tuple[bytes, bytes]]:
        return [(low, self._stored)]


def row_of_plan(plan: PullPlan, stored: bytes, partition: int) -> bytes | None:
    """The row of the key of a plan without windows; None: its conditions do not hold. Raises
    DamagedRow, NotComputable."""
    rows = lookup(plan, _OneRow(stored), partition)
    return rows[0] if rows else None


def whole(around: Around, row: bytes) -> bytes:
    """The response with a row."""
    before, middle, after, fixed_bytes, _ = around
    return b"%b%d%b%b%b" % (before, fixed_bytes + len(row), middle, row, after)
