"""A lookup by one text, from the bytes of its request to those of its response. Pure.

    body ── cut ──► body without the text (the frame), hash of the text, its key in the store
                    │
    a request with an equal frame was planned before: what it needs besides the text is known
                    │
    stored row ── response ──► head, length, labels, row

A text is cut out only if JSON, SQL and a store keep it as it is: ASCII without control characters,
quotes and backslashes, short enough for a whole key. So in all bodies of one frame the texts mean
themselves, if they do in one.

Both functions have a compiled form (`data/encoding/native.py`); the Python here defines it. Not
here: what is checked before a frame is known (`node.worker.pull.known_frames`).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import PREFIX_BYTES_MAX, murmur2
from standpipe.data.encoding.stored_rows import unpack_row

#: what the store's key of a text ends with
END: Final = b"\0\1"
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
