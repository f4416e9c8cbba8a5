"""A lookup by one literal, from the bytes of its request to those of its response. Pure.

    body ── cut ──► body without the literal: the frame
                    │
    a request with an equal frame was planned before: what it needs besides the literal is known
                    │
    known_part ──► partition and store key of the literal, what holds of the partition
                    │
    stored row ── response ──► head, length, labels, row

Two kinds of literals are cut out (`place_in`), and each means itself in all bodies of one frame, if
it does in one:

- a text between the only quotes, which JSON, SQL and a store keep as it is: ASCII without control
  characters, quotes and backslashes, short enough for a whole key;
- without any quote, the digits of a whole number behind the last equals sign, as a number is
  usually written: no leading zero, no plus, no more digits than a BIGINT has. A minus stays in the
  frame, so none may follow the digits: `7-` would have the frame of `-7`.

The two have no frame in common: one has quotes.

`cut`, `known_literal`, `known_part` and `response` have a compiled form
(`data/encoding/native.py`); the Python here defines it. Not here: what is checked before a frame is
known (`node.worker.pull.known.frames`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import is_not
from typing import Any, Final, Generic, NamedTuple, TypeVar

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import (
    PREFIX_BYTES_MAX,
    murmur2,
    ordered_longs,
    window_at_end,
)
from standpipe.data.encoding.stored_rows import bare_value, fitted, unpack_row

#: what the store's key of a text ends with
END: Final = b"\0\1"
_BEFORE_END: Final = -len(END)
#: Longer ones are never known: what is known keeps all of them but the literal.
MESSAGE_BYTES_MAX: Final = 4_096
#: of a stored row: it is left to who counts the answers that are not sent yet. In C, too
LARGE_BYTES: Final = 64 * 1024
_TEXT_BYTES_MAX: Final = PREFIX_BYTES_MAX - len(END)
_plain: Final = re.compile(rb"[ !#-&(-\[\]-\x7f]*").fullmatch
_number: Final = re.compile(rb"= *(?:-(?!0))?(0|[1-9][0-9]{0,18})(?![0-9]| *-)").match
_MINUS: Final = ord("-")

#: type of a key column that a literal may be of -> its number in C, too
KINDS: Final = native.KINDS
_TEXT: Final = KINDS["STRING"]
#: kind of a number -> its bytes as a key in Kafka
_NUMBER_BYTES: Final = {KINDS["BIGINT"]: 8, KINDS["INTEGER"]: 4}


class LiteralPlace(NamedTuple):
    """Where a literal stands: a text without its quotes, a number without its sign."""

    begin: int
    end: int
    is_text: bool


def place_in(body: bytes) -> LiteralPlace | None:
    """Where the literal of a body is that may be cut out; None: there is none."""
    begin, end = body.find(b"'") + 1, body.rfind(b"'")
    if not begin:
        found = _number_in(body)
        return LiteralPlace(*found.span(1), is_text=False) if found else None
    return LiteralPlace(begin, end, is_text=True) if _is_text(body, begin, end) else None


def _is_text(body: bytes, begin: int, end: int) -> bool:
    """Whether what is between the first quote and the last one may be cut out."""
    return 0 <= end - begin <= _TEXT_BYTES_MAX and _plain(body, begin, end) is not None


def _number_in(body: bytes) -> re.Match[bytes] | None:
    at = body.rfind(b"=")
    return _number(body, at) if at >= 0 else None


def cut(mark: bytes, body: bytes) -> bytes | None:
    """`mark` and the body without its literal; None: nothing can be cut out."""
    found = native.cut(mark, body)
    if found is not None:
        return found
    place = place_in(body)
    return None if place is None else mark + body[: place.begin] + body[place.end :]


T = TypeVar("T")


class HeldPart(NamedTuple):
    """What is known of a partition, and what has to be as it was for that to hold."""

    part: Any
    #: Unix
    at_ms: int
    #: a buffer that begins with `front` for as long; it may be closed
    page: Any
    front: bytes
    #: others are in their place as soon as they say something else
    causes: tuple[object, ...]

    def holds(self, causes: Sequence[object]) -> bool:
        """With the causes as they are now, if only as of `at_ms`. A closed page says nothing."""
        if len(causes) != len(self.causes) or any(map(is_not, causes, self.causes)):
            return False
        front = self.front
        try:
            return front != b"" and self.page[: len(front)] == front
        except ValueError:
            return False


class KnownLiteral(NamedTuple, Generic[T]):
    """What bytes mean that differ only in a literal."""

    #: of the bytes, literal included; 0: any
    size: int
    #: of the key column, and the partitions of its table
    kind: int
    partitions: int
    meaning: T
    #: by partition; None: of none
    held: dict[int, HeldPart] | None = None


def known_literal(
    known: Mapping[bytes, KnownLiteral[T] | None], mark: bytes, message: bytes
) -> tuple[T, int, bytes] | None:
    """(meaning, partition of the literal, its key in the store) by `mark` and the bytes without
    their literal; None: they are not known, or longer than MESSAGE_BYTES_MAX, or `cut` finds none,
    or its column does not hold the number."""
    found = native.known_literal(known, mark, message)
    if found is not None:
        return found
    read = _read(known, mark, message)
    return None if read is None else (read[0].meaning, *read[1:])


def known_part(
    known: Mapping[bytes, KnownLiteral[T] | None],
    mark: bytes,
    message: bytes,
    now_s: float,
    *causes: object,
) -> tuple[T, int, bytes, Any, HeldPart | None] | None:
    """As `known_literal`, and what is held of the partition: its part, if it holds now, and the
    whole of it if it holds as of another millisecond; else None.

    `now_s`: Unix time; `causes`: as they are now.
    """
    if native.IS_COMPILED:  # the call alone would cost a twentieth of what follows
        found = native.known_part(known, mark, message, now_s, *causes)
        if found is not None:
            return found
    read = _read(known, mark, message)
    if read is None:
        return None
    entry, number, key = read
    held = None if entry.held is None else entry.held.get(number)
    if held is None or not held.holds(causes):
        return entry.meaning, number, key, None, None
    if held.at_ms != int(now_s * 1000):
        return entry.meaning, number, key, None, held
    return entry.meaning, number, key, held.part, None


def _read(
    known: Mapping[bytes, KnownLiteral[T] | None], mark: bytes, message: bytes
) -> tuple[KnownLiteral[T], int, bytes] | None:
    """Entry, partition and key. What `place_in` does is done here again: without C, each call is
    one in thirty of a lookup."""
    if len(message) > MESSAGE_BYTES_MAX:
        return None
    begin, end = message.find(b"'") + 1, message.rfind(b"'")
    is_text = begin > 0
    if is_text:
        if not _is_text(message, begin, end):
            return None
    else:
        number_in = _number_in(message)
        if number_in is None:
            return None
        begin, end = number_in.span(1)
    entry = known.get(mark + message[:begin] + message[end:])
    if entry is None or entry.size not in (0, len(message)) or is_text != (entry.kind == _TEXT):
        return None
    if is_text:
        raw = message[begin:end]
        key = raw + END
    else:
        number = int(message[begin:end])
        width = _NUMBER_BYTES[entry.kind]
        if number >> (8 * width - 1):
            return None
        number = -number if message[begin - 1] == _MINUS else number
        raw, key = number.to_bytes(width, "big", signed=True), ordered_longs((number,))
    return entry, (murmur2(raw) & 0x7FFFFFFF) % entry.partitions, key


def literal_of(key: bytes, is_text: bool) -> bytes:
    """The literal that `place_in` finds, from its key in the store: a text, or digits."""
    return key[:_BEFORE_END] if is_text else b"%d" % abs(window_at_end(key, 1)[0])


class Around(NamedTuple):
    """A response around its row. `before` ends where the length of the body follows, `middle` where
    the row does; `fixed_bytes`: what the body has besides the row; `is_text`: the key's column."""

    before: bytes
    middle: bytes
    after: bytes
    fixed_bytes: int
    is_text: bool


def response(around: Around, key: bytes, stored: bytes, added: int = 0) -> bytes | None:
    """The response with the whole row of a key. `added`: how many columns its table got in place.

    None: the row has its key in full, which the caller has to compare, or it has more than
    LARGE_BYTES, which are to be counted before they are sent. Raises DamagedRow.
    """
    if native.IS_COMPILED:
        found = native.response(around, key, stored, added)
        if found is not None:
            return found
    if len(stored) > LARGE_BYTES:
        return None
    others = None if added else bare_value(stored)
    if others is None:
        row = unpack_row(stored)
        if row.full_key:
            return None
        others = row.value_json if row.added == added else fitted(row, added)
    before, middle, after, fixed_bytes, is_text = around
    cell = b'"%b"' % key[:_BEFORE_END] if is_text else b"%d" % window_at_end(key, 1)
    shown = b"[%b%b%b" % (cell, b"" if others == b"[]" else b",", others[1:])
    return b"%b%d%b%b%b" % (before, fixed_bytes + len(shown), middle, shown, after)
