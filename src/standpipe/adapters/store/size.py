"""Disk usage of a store, and the size of its map, read from its files alone.

No environment is opened for it: a process may open a store only once, a worker keeps a bounded
number open, and a caller wants the sizes of all. The size of the map is on the first two pages of
LMDB's file (`MDB_meta` in LMDB's mdb.c; the layout, unchanged since 0.9.0, has a version beside
it).

Not here: what is in a store (`writer.py`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_DATA: Final = "data.mdb"
#: of a page with meta: its header (16 bytes), magic, version, an address, bytes of the map, and the
#: first field of the first database, which is the size of pages
_META: Final = struct.Struct("=16xIIQQI")
_MAGIC: Final = 0xBEEF_C0DE
_VERSION: Final = 1
_BLOCK_BYTES: Final = 512  # what st_blocks counts, whatever the file system's own blocks are


@dataclass(frozen=True)
class StoreSize:
    """Sizes of one store. `disk_bytes`: what is written of all its files.

    `map_bytes`: how large the file may grow before the writer doubles it; None: not known.
    """

    disk_bytes: int
    map_bytes: int | None


def size_of(store: Path) -> StoreSize | None:
    """Sizes of the store in a directory; None: there is none yet, or no longer."""
    found = disk_bytes(store)
    return StoreSize(found, map_bytes(store)) if found else None


def disk_bytes(store: Path) -> int:
    """What its files take: a store's map is larger than the pages that were written."""
    try:
        return sum(file.stat().st_blocks * _BLOCK_BYTES for file in store.iterdir())
    except OSError:
        return 0  # not created yet, or being deleted


def map_bytes(store: Path) -> int | None:
    """The size of the map as the newest transactions left it; None: no file has it."""
    try:
        with (store / _DATA).open("rb") as file:
            first = file.read(_META.size)
            page_bytes = _META.unpack(first)[4] if len(first) == _META.size else 0
            file.seek(page_bytes)
            pages = (first, file.read(_META.size))
    except OSError:
        return None
    # Transactions write the two pages in turn, and a map only grows: the larger size is newer.
    return max((size for page in pages if (size := _map_bytes_of(page))), default=None)


def _map_bytes_of(page: bytes) -> int | None:
    if len(page) != _META.size:
        return None
    magic, version, _, size, _ = _META.unpack(page)
    return size if (magic, version) == (_MAGIC, _VERSION) else None
