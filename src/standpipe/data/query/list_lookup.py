"""A lookup by one list of texts, `K IN ('a', 'b', …)`, from the bytes of its request. Pure.

    body ── cut_list ──► body with a list of two marks: the frame
                         │
    a request with an equal frame was planned before: what it needs besides the keys is known
                         │
    known_list ──► the keys in the store, by partition

What stands between all quotes of a body is one list: texts that JSON, SQL and a store keep as they
are, with the same separator between any two, a comma and blanks. Two marks and the separator stand
for lists of any length. A mark is a control character, which no text between quotes has.

Both have a compiled form (`data/encoding/native.py`); the Python here defines it. Not here: what is
checked before a frame is known (`node.worker.pull.known.lists`), the rows (`data/query/pull.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from standpipe.data.encoding import native
from standpipe.data.encoding.store_keys import PREFIX_BYTES_MAX, partition_of
from standpipe.data.query.literal_lookup import END

#: keys of a known list, as many as are read without a turn of the loop, and bytes of its body
ITEMS_MAX: Final = 256
LIST_BYTES_MAX: Final = 16_384
_MARK: Final = b"\1"
_is_plain: Final = re.compile(rb"[ !#-&(-\[\]-\x7f]*").fullmatch


class ListBody(NamedTuple):
    """A body cut at its list. `head` ends with a quote, `tail` begins with one."""

    head: bytes
    separator: bytes
    tail: bytes
    items: list[bytes]

    def frame(self, mark: bytes) -> bytes:
        """`mark`, and the body with marks for its items."""
        return b"%b%b%b'%b'%b%b" % (mark, self.head, _MARK, self.separator, _MARK, self.tail)


def list_in(body: bytes) -> ListBody | None:
    """None: what stands between its quotes is no such list."""
    parts = body.split(b"'") if len(body) <= LIST_BYTES_MAX else []
    items, between = parts[1::2], parts[2:-1:2]
    if len(parts) % 2 == 0 or not 1 < len(items) <= ITEMS_MAX:
        return None
    separator = between[0]
    if separator.strip(b" ") != b"," or between.count(separator) != len(between):
        return None
    if not all(map(_is_plain, items)) or max(map(len, items)) + len(END) > PREFIX_BYTES_MAX:
        return None
    return ListBody(parts[0] + b"'", separator, b"'" + parts[-1], items)


def cut_list(mark: bytes, body: bytes) -> bytes | None:
    """`mark` and the body with marks for its list; None: it has none."""
    found = native.cut_list(mark, body)
    if found is not None:
        return found
    listed = list_in(body)
    return None if listed is None else listed.frame(mark)


T = TypeVar("T")


class KnownList(NamedTuple, Generic[T]):
    """What bodies mean that differ only in their list. `partitions`: of the table."""

    partitions: int
    meaning: T


def known_list(
    known: Mapping[bytes, KnownList[T] | None], mark: bytes, body: bytes
) -> tuple[T, dict[int, list[bytes]]] | None:
    """(meaning, keys in the store by partition, in their order) by what `cut_list` makes; None: it
    is not known, or a key is named twice."""
    found = native.known_list(known, mark, body)
    if found is not None:
        return found
    listed = list_in(body) if known else None
    entry = None if listed is None else known.get(listed.frame(mark))
    if listed is None or entry is None or len(set(listed.items)) != len(listed.items):
        return None
    keys: dict[int, list[bytes]] = {}
    for each in listed.items:
        keys.setdefault(partition_of(each, entry.partitions), []).append(each + END)
    return entry.meaning, keys
