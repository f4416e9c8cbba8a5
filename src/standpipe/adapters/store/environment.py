"""A store's file as LMDB opens it: names, options, meta, and which errors mean damage.

What the writer shares with everything that only reads a store. The child processes that read one
(`digest.py`, `copy.py`) start quickly because this imports little.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol, cast

import lmdb
import msgspec

from standpipe.data.replica.positions import STORE_FORMAT, StoreMeta
from standpipe.errors import DataDirectoryRefused

READERS_MAX: Final = 512  # slots in the lock file: one for each thread that reads

META_KEY: Final = b"meta"
CLEAN: Final = "clean"
DATA_FILE: Final = "data.mdb"

#: LMDB's errors for a file that is not as it wrote it. NotFoundError: a put met a bad free-list
#: page; BadTxnError: the call before failed, and a delete said "not there"
DAMAGE: Final = (
    lmdb.CorruptedError,
    lmdb.NotFoundError,
    lmdb.BadTxnError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
    lmdb.CursorFullError,
    lmdb.PageFullError,
)

_meta_decoder = msgspec.msgpack.Decoder(StoreMeta)


def open_environment(path: Path, *, map_bytes: int, writes: bool) -> lmdb.Environment:
    """Open LMDB with the options of every store. Raises lmdb.Error."""
    return lmdb.open(
        str(path),
        map_size=map_bytes,
        max_dbs=3,
        max_readers=READERS_MAX,
        create=writes,
        readonly=not writes,
        sync=False,
        writemap=False,
        readahead=writes,  # lookups are random: reading ahead would only push out other pages
        mode=0o600,
    )


class ReadsRows(Protocol):
    """A transaction whose database is that of the rows."""

    def get(self, key: bytes, /) -> Any: ...
    def cursor(self) -> Any: ...


def rows_by_lookup(transaction: ReadsRows) -> Iterator[tuple[bytes, bytes]]:
    """All rows, each looked up from the root: a damaged page of keys can break lookups while a scan
    of the rows notices nothing. Raises lmdb.CorruptedError."""
    for key in cast("Iterator[bytes]", transaction.cursor().iternext(values=False)):
        row = cast("bytes | None", transaction.get(key))
        if row is None:
            raise lmdb.CorruptedError("a row that is there cannot be found by its key")
        yield key, row


def decode_meta(data: bytes, store: Path | str) -> StoreMeta:
    """The meta of a store. `store`: where it is, or its name if clients see errors. Raises
    DataDirectoryRefused for another format."""
    try:
        meta = _meta_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise DataDirectoryRefused(
            f"{store} has an unreadable meta: {error}",
            next_step="move that directory away; the store is rebuilt from Kafka",
        ) from error
    if meta.identity.format != STORE_FORMAT:
        raise DataDirectoryRefused(
            f"{store} has format {meta.identity.format}, this is {STORE_FORMAT}",
            next_step="use the version that wrote it, or move it away",
        )
    return meta
