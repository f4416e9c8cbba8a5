"""Where things are in a file of LMDB 0.9, for tests that damage one. Pages of 4 KiB, 64 bits."""

from __future__ import annotations

import random
import struct

PAGE_BYTES = 4096
_HEADER_BYTES, _NODE_BYTES, _BRANCH = 16, 8, 1
_UPPER = 14  # of a page: where its nodes begin
#: of a meta page: roots of what is free and of the databases, and the transaction that wrote it
_FREE_ROOT, _MAIN_ROOT, _TXN = 80, 128, 144


def free_root(data: bytes) -> int:
    """The page that lists what is free."""
    return _long(data, _newest_meta(data) + _FREE_ROOT)


def main_root(data: bytes) -> int:
    """A page that is in use for sure."""
    return _long(data, _newest_meta(data) + _MAIN_ROOT)


def first_free(data: bytes) -> int:
    """Where the number of a free page stands."""
    page = free_root(data) * PAGE_BYTES
    node = page + struct.unpack_from("=H", data, page + _HEADER_BYTES)[0]
    (key_bytes,) = struct.unpack_from("=H", data, node + 6)
    listed = node + _NODE_BYTES + key_bytes
    assert _long(data, listed) > 0, "of how many"
    return listed + 8


def pages_of_keys(data: bytes) -> list[int]:
    """Those that lead to rows; some may be of the past."""
    pages = range(2, len(data) // PAGE_BYTES)
    headers = [(page, struct.unpack_from("=QHH", data, page * PAGE_BYTES)) for page in pages]
    return [page for page, (number, _, flags) in headers if number == page and flags & _BRANCH]


def last_key(data: bytes, page: int) -> int:
    """Where the last key of a page of keys begins."""
    begin = page * PAGE_BYTES
    (lower,) = struct.unpack_from("=H", data, begin + 12)
    (node,) = struct.unpack_from("=H", data, begin + lower - 2)
    return begin + node + _NODE_BYTES


def flip_in(data: bytearray, page: int, chance: random.Random) -> None:
    """A bit of what the page holds, not of its header or of what is unused."""
    (upper,) = struct.unpack_from("=H", data, page * PAGE_BYTES + _UPPER)
    data[page * PAGE_BYTES + chance.randrange(upper, PAGE_BYTES)] ^= 1 << chance.randrange(8)


def _newest_meta(data: bytes) -> int:
    return max(0, PAGE_BYTES, key=lambda meta: _long(data, meta + _TXN))


def _long(data: bytes, at: int) -> int:
    return struct.unpack_from("=Q", data, at)[0]
