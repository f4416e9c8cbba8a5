"""A lookup by one text, from the bytes of its request to those of its response. Pure.

    body ── cut ──► body without the text (the frame), hash of the text, its key in the store
                    │
    a request with an equal frame was planned before: what it needs besides the text is known
                    │
    stored row ── response ──► head, length, labels, row

A text is cut out only if JSON, SQL and a store keep it as it is: ASCII without control characters,
quotes and backslashes, short enough for a whole key. So in all bodies of one frame the texts mean
themselves, if they do in one.

`cut`, `known_text` and `response` have a compiled form (`data/encoding/native.py`); the Python here
defines it. Not here: what is checked before a frame is known (`node.worker.pull.known_frames`).
"""

from __future__ import annotations

import re
from typing import Final, Generic, NamedTuple, TypeVar

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import PREFIX_BYTES_MAX, murmur2
from standpipe.data.encoding.stored_rows import unpack_row

#: what the store's key of a text ends with
END: Final = b"\0\1"
#: Longer ones are never known: what is known keeps all of them but the text.
MESSAGE_BYTES_MAX: Final = 4_096
_plain: Final = re.compile(rb"[ !#-&(-\[\]-\x7f]*").fullmatch


def cut(mark: bytes, body: bytes) -> tuple[bytes, int, bytes] | None:
    """(`mark` and the body without its text, hash of the text as a key in Kafka, its key in the
    store); None: the body has not exactly one text, or one that is not plain.

    The hash is not negative: its remainder is the partition.
    """
    found = native.cut(mark, body)
    if found is not None:
        return found
    begin, end = body.find(b"'") + 1, body.rfind(b"'")
    text = body[begin:end]
    if begin > end or not _plain(text) or len(text) + len(END) > PREFIX_BYTES_MAX:
        return None
    return mark + body[:begin] + body[end:], murmur2(text) & 0x7FFFFFFF, text + END


T = TypeVar("T")


class KnownText(NamedTuple, Generic[T]):
    """What bytes mean that differ only in a text of one length."""

    #: of the bytes, text included
    size: int
    #: of the table that the text is a key of
    partitions: int
    meaning: T


def known_text(known: dict[bytes, KnownText[T]], message: bytes) -> tuple[T, int, bytes] | None:
    """(meaning, partition of the text, its key in the store) by the bytes without their text; None:
    they are not known, or longer than MESSAGE_BYTES_MAX, or `cut` finds none."""
    found = native.known_text(known, message)
    if found is not None:
        return found
    if len(message) > MESSAGE_BYTES_MAX:
        return None
    parts = cut(b"", message)
    entry = known.get(parts[0]) if parts else None
    if parts is None or entry is None or entry.size != len(message):
        return None
    return entry.meaning, parts[1] % entry.partitions, parts[2]


class Around(NamedTuple):
    """A response around its row. `before` ends where the length of the body follows, `middle` where
    the row does; `fixed_bytes`: what the body has besides the row."""

    before: bytes
    middle: bytes
    after: bytes
    fixed_bytes: int


def response(around: Around, key: bytes, stored: bytes) -> bytes | None:
    """The response with the whole row of a text's key.

    None: the row has its key in full, which the caller has to compare. Raises DamagedRow.
    """
    found = native.response(around, key, stored)
    if found is not None:
        return found
    row = unpack_row(stored)
    if row.full_key:
        return None
    others = row.value_json
    shown = b'["%b"%b%b' % (key[: -len(END)], b"" if others == b"[]" else b",", others[1:])
    before, middle, after, fixed_bytes = around
    return b"%b%d%b%b%b" % (before, fixed_bytes + len(shown), middle, shown, after)
