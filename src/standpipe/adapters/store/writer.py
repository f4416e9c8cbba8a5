"""Stores: one LMDB environment per table partition, one writer process, any number of readers
(`adapters/store/reader.py`).

The reasons: DESIGN.md beside this file. The rules, and where they are enforced:

- rows and meta change in one transaction: `StoreWriter.apply` is the only way rows become visible;
- nothing is awaited inside a transaction: everything here is synchronous. The one exception is a
  `HeldView`, which a scan holds for at most a second (`node/worker/pull/scans.py`), half of what
  PinWatch allows: what it reads must be of one batch;
- `sync` is off: the changelog is the durable copy. A boot id in meta and a marker file `clean`,
  made only after a sync, tell an intact store from one that a power loss may have torn;
- `writemap` is off: it would write 1.6 times as fast, but on a full disk a store into the map is
  SIGBUS, which kills the process, while a failed write is an error that can be reported;
- the map grows by a protocol: the writer gets MDB_MAP_FULL, aborts, doubles the map and repeats the
  transaction; a reader gets MDB_MAP_RESIZED, adopts the new size and reads again;
- a buffer is valid only inside its transaction: `get` copies the answer, once;
- environments must not cross a fork, and a process opens each one once (LMDB's locks are per
  process): open them where they are used;
- a store is never deleted under readers: it is marked `retired`, moved aside, deleted later;
- a meta that names another table, partition or format is refused.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, cast

import lmdb
import msgspec
import structlog

from standpipe.adapters.files.fsync import sync
from standpipe.adapters.process import give_back_freed_memory
from standpipe.adapters.store.environment import (
    CLEAN,
    DAMAGE,
    META_KEY,
    decode_meta,
    open_environment,
    rows_by_lookup,
)
from standpipe.adapters.store.window_index import WindowIndex
from standpipe.data.commit.expiry import Expiry
from standpipe.data.encoding import native
from standpipe.data.encoding.stored_rows import (
    EMPTY_DIGEST,
    digest_after,
    rows_digest,
    sound_digest,
)
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import DataDirectoryRefused

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

MAP_BYTES_START: Final = 256 * 1024 * 1024
#: a transaction with at least this many puts, all of new keys, is a sign of a restore
MANY_PUTS: Final = 1000
#: with at least this many changes, a transaction leaves memory worth giving back: up to 4 KiB each
MEMORY_CHANGES: Final = 10_000

_meta_encoder = msgspec.msgpack.Encoder()


def _as_they_are(cursor: lmdb.Cursor, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Rows of those keys that exist. One call for all: a transaction may have 100,000."""
    return cast("list[tuple[bytes, bytes]]", cursor.getmulti(keys)) if keys else []


class _NotAllNew(Exception):
    """Some keys of a transaction existed before: their old rows have to be read first."""


class StoreFailure(Exception):
    """An operation of LMDB failed. `is_damaged`: permanently, because the store is torn; otherwise
    (a full disk) the store is as before and can be opened again."""

    def __init__(self, path: Path, error: lmdb.Error) -> None:
        super().__init__(f"{path}: {error}")
        self.is_damaged = isinstance(error, DAMAGE)


class StoreWriter:
    """The tailer's side of a store. Creates it if it does not exist.

    Raises DataDirectoryRefused when the directory holds the store of another table, StoreFailure
    when it cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        identity: StoreIdentity,
        *,
        map_bytes: int = MAP_BYTES_START,
        expiry: Expiry | None = None,
    ) -> None:
        """`expiry`: which rows expire with the watermark of each transaction's meta; None: none."""
        self.path = path
        self.identity = identity
        self._expiry, self._windows = expiry, None
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        check_owner(path)
        self._clean_marker = path / CLEAN
        #: of all rows as of the newest transaction; None: not known yet
        self.digest: int | None = None
        #: the newest large transaction met no existing key: the next one may not either
        self._expects_new_keys = False
        self._has_grown_memory = False
        #: the previous writer closed in order, and everything reached the disk
        self.was_closed_cleanly = self._has_marker = self._clean_marker.exists()
        self._open(map_bytes)

    def _open(self, map_bytes: int) -> None:
        try:
            self._environment = open_environment(self.path, map_bytes=map_bytes, writes=True)
        except lmdb.Error as error:
            raise StoreFailure(self.path, error) from error
        try:
            self._rows = self._environment.open_db(b"rows")
            self._meta = self._environment.open_db(b"meta")
            if self._expiry:
                self._windows = WindowIndex(self._environment, self._rows, self._expiry)
            self._check_identity()
        except lmdb.Error as error:
            self._environment.close()
            raise StoreFailure(self.path, error) from error
        except DataDirectoryRefused:
            self._environment.close()
            raise

    def release_memory(self) -> None:
        """After large transactions: LMDB keeps memory for the pages that the largest one changed,
        up to 512 MB, until the store is closed. So it is closed and opened again, which readers in
        other processes do not notice; 10 ms and more, too much for each transaction.

        Raises StoreFailure or DataDirectoryRefused when it cannot be opened: it must be closed.
        """
        if self._has_grown_memory:
            map_bytes = self._environment.info()["map_size"]
            self._environment.close()
            self._open(map_bytes)
            self._has_grown_memory = False
            give_back_freed_memory()

    def _check_identity(self) -> None:
        with self._environment.begin(db=self._meta) as transaction:
            data = transaction.get(META_KEY)
        if data is None:
            return
        found = decode_meta(bytes(data), self.path).identity
        if found != self.identity:
            raise DataDirectoryRefused(
                f"{self.path} holds {found}, not {self.identity}",
                next_step="move that directory away; the store is rebuilt from Kafka",
            )

    def _drop_clean_marker(self) -> None:
        """Durable before the first write, from which on a power loss must be noticed. Not before:
        a process that ends while it checks an intact store leaves it as it was. Raises
        StoreFailure."""
        if not self._has_marker:
            return
        try:
            self._clean_marker.unlink(missing_ok=True)
            sync(self.path)
        except OSError as error:
            raise StoreFailure(self.path, lmdb.Error(str(error))) from error
        self._has_marker = False

    def meta(self) -> StoreMeta:
        """As the newest transaction left it; for an empty store, a blank one."""
        with self._environment.begin(db=self._meta) as transaction:
            data = transaction.get(META_KEY)
        if data is None:
            return StoreMeta(identity=self.identity)
        return decode_meta(bytes(data), self.path)

    def rows(self) -> int:
        """How many rows there are now."""
        with self._environment.begin(db=self._rows) as transaction:
            return transaction.stat(self._rows)["entries"]

    def rows_of(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The rows of those keys that exist. Raises StoreFailure."""
        try:
            with self._environment.begin(db=self._rows) as transaction:
                return dict(_as_they_are(transaction.cursor(), keys))
        except lmdb.Error as error:
            raise StoreFailure(self.path, error) from error

    def apply(
        self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes], meta: StoreMeta
    ) -> None:
        """One transaction: all of it is visible afterwards, or nothing is. If a key is put twice,
        the last row counts; a key is put or deleted, not both. The store computes the digest
        itself: the one in `meta` is ignored.

        Raises StoreFailure when the disk is full or broken.
        """
        self._drop_clean_marker()
        while True:
            try:
                self._transact(puts, deletes, meta)
            except _NotAllNew:
                continue  # aborted; the retry reads old rows
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                raise StoreFailure(self.path, error) from error
            else:
                self._has_grown_memory |= len(puts) + len(deletes) >= MEMORY_CHANGES
                return

    def _transact(
        self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes], meta: StoreMeta
    ) -> None:
        with self._environment.begin(write=True, db=self._rows) as transaction:
            cursor = transaction.cursor()
            before = self._digest_in(transaction)
            deleted = _as_they_are(cursor, deletes)
            if sum(map(transaction.delete, deletes)) != len(deleted):
                raise lmdb.CorruptedError("an existing key cannot be found")
            replaced, put = self._put(cursor, puts)
            digest = digest_after(before, replaced, deleted, put)
            if self._windows:
                added = {key for key, _ in put}.difference(key for key, _ in replaced)
                self._windows.change(transaction, added, (key for key, _ in deleted))
                for rows in self._windows.expire(transaction, meta.watermark_ms):
                    digest = digest_after(digest, (), rows, ())
            stamped = msgspec.structs.replace(meta, digest=digest)
            transaction.put(META_KEY, _meta_encoder.encode(stamped), db=self._meta)
        self.digest = digest

    def _put(
        self, cursor: lmdb.Cursor, puts: Sequence[tuple[bytes, bytes]]
    ) -> tuple[list[tuple[bytes, bytes]], Collection[tuple[bytes, bytes]]]:
        """The rows that were replaced, and those that were put. Raises _NotAllNew."""
        if puts and self._expects_new_keys:
            # a restore: looking up missing keys costs as much as putting them; in key order a put
            # finds its page where the one before it was
            consumed, added = cursor.putmulti(native.in_order(puts), overwrite=False)
            self._expects_new_keys = consumed == added == len(puts)
            if not self._expects_new_keys:  # or a key was put twice
                raise _NotAllNew
            return [], puts
        last = dict(puts)
        replaced = _as_they_are(cursor, [*last])
        self._expects_new_keys = len(last) == len(puts) >= MANY_PUTS and not replaced
        if last:
            cursor.putmulti([*last.items()])
        return replaced, last.items()

    def _digest_in(self, transaction: lmdb.Transaction) -> int:
        """Digest of the existing rows. A store that was made before digests is read completely."""
        if self.digest is None:
            data = transaction.get(META_KEY, db=self._meta)
            self.digest = None if data is None else decode_meta(bytes(data), self.path).digest
        if self.digest is None:
            self.digest = rows_digest(cast("Iterable[tuple[bytes, bytes]]", transaction.cursor()))
        return self.digest

    def _grow(self) -> None:
        """The aborted transaction is gone, and this process has no other: the map may move."""
        size = self._environment.info()["map_size"] * 2
        self._environment.set_mapsize(size)
        _log.info("store map grown", path=str(self.path), map_bytes=size)

    def drop_dead_readers(self) -> int:
        """Free the slots of readers that were killed; they would pin pages permanently."""
        return self._environment.reader_check()

    def pinning_readers(self) -> dict[int, int]:
        """{process id: transaction that it reads} of readers behind the newest transaction."""
        newest = self._environment.info()["last_txnid"]
        found: dict[int, int] = {}
        for line in self._environment.readers().splitlines()[1:]:
            process, _, transaction = line.split()[:3]
            if transaction.isdigit() and int(transaction) < newest:
                found[int(process)] = int(transaction)
        return found

    def close(self) -> None:
        """Close in order: sync the data, then make the marker that says so. Without a marker, if
        the disk is full or broken: the store counts as one whose process was killed."""
        try:
            self._environment.sync(True)
            self._clean_marker.touch()
            for path in (self._clean_marker, self.path):
                sync(path)
        except (lmdb.Error, OSError) as error:
            _log.error("store not closed in order", path=str(self.path), error=str(error))
        finally:
            self._environment.close()

    def abandon(self) -> None:
        """Close without the marker: the store is about to be replaced."""
        self._environment.close()

    def damage(self) -> str:
        """What is wrong with the store; "": every row is as it was written and found by its key,
        none is missing, and a transaction succeeds. Looks up all rows, and reads the pages of the
        free list, which only a writer reads.

        Raises StoreFailure when it cannot be written for another reason (a full disk).
        """
        try:
            with self._environment.begin(db=self._rows) as transaction:
                data = transaction.get(META_KEY, db=self._meta)
                meta = None if data is None else decode_meta(bytes(data), self.path)
                found = sound_digest(rows_by_lookup(transaction))
            said = (
                EMPTY_DIGEST if meta is None else meta.digest
            )  # rows without a meta: its page is gone
            if found is None or said not in (None, found):
                return "its rows are not those that were written"
            if self._windows:
                self._drop_clean_marker()
                with self._environment.begin(write=True) as transaction:
                    self._windows.rebuild_if_damaged(transaction)
            if meta:
                self.apply([], [], meta)
        except lmdb.Error as error:
            return str(error)
        except StoreFailure as failure:
            if not failure.is_damaged:
                self.abandon()
                raise
            return str(failure)
        return ""


def check_owner(path: Path) -> None:
    """Raises DataDirectoryRefused for a directory of another user; makes ours private."""
    stat = path.stat()
    if stat.st_uid != os.geteuid():
        raise DataDirectoryRefused(
            f"{path} belongs to user {stat.st_uid}", next_step="run as that user, or move it away"
        )
    if stat.st_mode & 0o077:
        path.chmod(0o700)
