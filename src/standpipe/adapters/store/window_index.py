"""Which rows of a windowed store expire next: its keys by the edges of their windows.

A second database of the store's environment holds each row's key with the window's edge put first
(`data.commit.expiry.by_edge`). It changes in the same transactions as the rows, so it matches them,
and expired rows are found without reading live ones. Not here: the rows (`writer.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Any, Final, cast

import lmdb

from standpipe.data.commit.expiry import Expiry, by_edge, edges_after, store_key_of

#: rows that are held in memory at once: all windows of a day may expire with one batch
CHUNK_ROWS: Final = 10_000

_Pairs = list[tuple[bytes, bytes]]


class WindowIndex:
    """The index of one open environment, which this process writes. `rows`: the rows' database."""

    def __init__(self, environment: lmdb.Environment, rows: Any, expiry: Expiry) -> None:
        self._expiry = expiry
        self._rows: Any = rows
        self._edges: Any = environment.open_db(b"edges")

    def change(
        self, transaction: lmdb.Transaction, added: Iterable[bytes], removed: Iterable[bytes]
    ) -> None:
        """Update the index for store keys that were added or removed.

        Raises lmdb.CorruptedError if the index does not match the rows.
        """
        for key in removed:
            _remove(transaction, by_edge(key), self._edges)
        turned = sorted(map(by_edge, added))
        transaction.cursor(self._edges).putmulti([(each, b"") for each in turned])

    def expire(
        self, transaction: lmdb.Transaction, watermark_ms: int
    ) -> Iterator[list[tuple[bytes, bytes]]]:
        """Removes rows of expired windows and yields them, at most CHUNK_ROWS at a time.

        Raises lmdb.CorruptedError if the index does not match the rows.
        """
        edge_ms = self._expiry.newest_expired_ms(watermark_ms)
        if edge_ms is None:
            return
        end = edges_after(edge_ms)
        while turned := self._first(transaction, end):
            keys = [store_key_of(each) for each in turned]
            rows = cast(_Pairs, transaction.cursor(self._rows).getmulti(keys))
            if len(rows) < len(keys):
                raise lmdb.CorruptedError("the window index refers to a missing row")
            for key in keys:
                _remove(transaction, by_edge(key), self._edges)
                _remove(transaction, key, self._rows)
            yield rows

    def _first(self, transaction: lmdb.Transaction, end: bytes) -> list[bytes]:
        turned = takewhile(lambda each: each < end, _keys(transaction, self._edges))
        return list(islice(turned, CHUNK_ROWS))

    def rebuild_if_damaged(self, transaction: lmdb.Transaction) -> None:
        """Rebuild the index if it does not match the rows: it is missing or damaged.

        Reads both completely.
        """
        if self._is_sound(transaction):
            return
        transaction.drop(self._edges, delete=False)
        keys = _keys(transaction, self._rows)
        while chunk := list(islice(keys, CHUNK_ROWS)):
            self.change(transaction, chunk, ())

    def _is_sound(self, transaction: lmdb.Transaction) -> bool:
        rows = 0
        for key in _keys(transaction, self._rows):
            rows += 1
            if transaction.get(by_edge(key), db=self._edges) is None:
                return False
        return rows == sum(1 for _ in _keys(transaction, self._edges))


def _keys(transaction: lmdb.Transaction, database: Any) -> Iterator[bytes]:
    cursor = transaction.cursor(database)
    return cast("Iterator[bytes]", cursor.iternext(keys=True, values=False))


def _remove(transaction: lmdb.Transaction, key: bytes, database: Any) -> None:
    if not transaction.delete(key, db=database):
        raise lmdb.CorruptedError("an existing key cannot be found")
