"""Which rows of a windowed store expire next: its keys by the edges of their windows.

A second database of the store's environment: slot (`data.expiry.slot_of`) -> store keys, as sorted
duplicates. It changes in the transactions of the rows, so it is as whole as they are, and what
expired is found without a look at what lives on. Not here: the rows (`lmdb_store.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Any, Final, cast
from zlib import crc32

import lmdb

from standpipe.data.expiry import Expiry, slot_after, slot_of

#: rows that are held in memory at once: all windows of a day may expire with one batch
CHUNK_ROWS: Final = 10_000

_Pairs = list[tuple[bytes, bytes]]


class WindowIndex:
    """The index of one open environment, whose writer this process is. `rows`: their database."""

    def __init__(self, environment: lmdb.Environment, rows: Any, expiry: Expiry) -> None:
        self._expiry = expiry
        self._rows: Any = rows
        self._slots: Any = environment.open_db(b"windows", dupsort=True)

    def change(
        self, transaction: lmdb.Transaction, added: Iterable[bytes], removed: Iterable[bytes]
    ) -> None:
        """Store keys that have a row now, or none any more."""
        for key in removed:
            transaction.delete(slot_of(key), key, db=self._slots)
        pairs = sorted((slot_of(key), key) for key in added)
        transaction.cursor(self._slots).putmulti(pairs, dupdata=True)

    def expire(
        self, transaction: lmdb.Transaction, watermark_ms: int
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Removes rows of expired windows, and says which, at most CHUNK_ROWS at a time.

        Raises lmdb.CorruptedError where the index is not that of the rows.
        """
        edge_ms = self._expiry.newest_expired_ms(watermark_ms)
        if edge_ms is None:
            return
        end = slot_after(edge_ms)
        while pairs := self._first(transaction, end):
            keys = [key for slot, key in pairs if slot == slot_of(key)]
            rows = cast(_Pairs, transaction.cursor(self._rows).getmulti(keys))
            if len(rows) < len(pairs):
                raise lmdb.CorruptedError("a window stands for a row that it does not have")
            for slot, key in pairs:
                transaction.delete(slot, key, db=self._slots)
                transaction.delete(key, db=self._rows)
            yield rows

    def _first(self, transaction: lmdb.Transaction, end: bytes) -> _Pairs:
        cursor = transaction.cursor(self._slots)
        if not cursor.first():
            return []
        pairs = cast("Iterator[tuple[bytes, bytes]]", cursor.iternext())
        return list(islice(takewhile(lambda pair: pair[0] < end, pairs), CHUNK_ROWS))

    def make_sound(self, transaction: lmdb.Transaction) -> None:
        """Make it anew where it is not that of the rows: of a store from before there was one, or
        damaged. Reads both through."""
        if _sum(_all(transaction, self._slots)) == _sum(
            (slot_of(key), key) for key, _ in _all(transaction, self._rows)
        ):
            return
        transaction.drop(self._slots, delete=False)
        keys = (key for key, _ in _all(transaction, self._rows))
        while chunk := list(islice(keys, CHUNK_ROWS)):
            self.change(transaction, chunk, ())


def _all(transaction: lmdb.Transaction, database: Any) -> Iterator[tuple[bytes, bytes]]:
    return cast("Iterator[tuple[bytes, bytes]]", iter(transaction.cursor(database)))


def _sum(pairs: Iterable[tuple[bytes, bytes]]) -> int:
    """Equal for equal pairs, in whatever order."""
    return sum((crc32(key, crc32(slot)) << 1) + 1 for slot, key in pairs)
