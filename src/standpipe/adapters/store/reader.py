"""A worker's side of a store: any number of processes read it beside its one writer.

The rules are those of `adapters/store/writer.py`. Not here: which rows are wanted
(`data/query/pull.py`, `data/query/scan.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol, Self, cast

import lmdb

from standpipe.adapters.store.environment import (
    DATA_FILE,
    META_KEY,
    decode_meta,
    open_environment,
    rows_by_lookup,
)
from standpipe.data.replica.positions import StoreMeta
from standpipe.errors import NotReady

NO_NUMBER: Final = -1  # LMDB's begin with 0
SCAN_CHUNK_ROWS: Final = 1024  # rows of one read transaction of `StoreReader.scan`


class Instant(Protocol):
    """A read transaction as py-lmdb has it with `buffers=False`: everything is copied."""

    def get(self, key: bytes, /, *, db: object = ...) -> bytes | None: ...
    def id(self) -> int: ...
    def cursor(self) -> _ChunkCursor: ...
    def abort(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *why: object) -> None: ...


class _ChunkCursor(Protocol):
    def set_range(self, key: bytes, /) -> bool: ...
    def __iter__(self) -> Iterator[tuple[bytes, bytes]]: ...


class View:
    """A store at one instant: see `data.query.pull.ReadView`."""

    __slots__ = ("_instant", "get")

    def __init__(self, instant: Instant) -> None:
        self._instant = instant
        self.get: Final = instant.get  # a call less for each lookup

    def scan(self, low: bytes, high: bytes, limit: int, /) -> list[tuple[bytes, bytes]]:
        """At most `limit` pairs with low <= key < high, in order."""
        cursor = self._instant.cursor()
        if not cursor.set_range(low):
            return []
        pairs: list[tuple[bytes, bytes]] = []
        for pair in islice(cursor, limit):  # a call for each takes a third longer
            if pair[0] >= high:
                break
            pairs.append(pair)
        return pairs


class HeldView(View):
    """A view that outlives one iteration of the event loop; its reader must close it soon.

    The store ends it (`is_over`) when it has to: the map grew, and pages move in memory, or the
    store was rebuilt.
    """

    __slots__ = ("_reader", "is_over", "label")

    def __init__(self, instant: Instant, reader: StoreReader, label: bytes | None) -> None:
        super().__init__(instant)
        self._reader = reader
        #: two views of a store with equal labels have equal rows; None: no batch yet
        self.label = label
        self.is_over = False

    def meta(self) -> StoreMeta:
        """As `StoreReader.meta_of`, of the view's instant."""
        return self._reader.meta_of(self._instant)

    def close(self) -> None:
        """Release the pages; the view may be over by then."""
        self.is_over = True
        self._instant.abort()
        self._reader.forget(self)


class StoreReader:
    """A worker's side of a store. Opened at its first use, in the process that uses it.

    Every method raises NotReady while there is no store. A store that was rebuilt (another file
    under the same path) is noticed within CHECK_S.
    """

    CHECK_S: Final = 0.1

    def __init__(self, path: Path) -> None:
        self.path = path
        #: in errors, which clients see: table and partition, not the place
        self.name = f"{path.parent.name}/{path.name}"
        self._environment: lmdb.Environment | None = None
        self._start: Callable[[], Instant] = self._open_and_start
        self._meta: object = None
        #: the id of the transaction that left the meta which was decoded last, and that
        self._number: int = NO_NUMBER
        self._newest: StoreMeta
        self._inode = 0
        self._check_due = 0.0  # monotonic, s
        #: not closed yet
        self._instants: list[HeldView] = []

    def get(self, key: bytes, /) -> bytes | None:
        """The stored value, copied out of the map once."""
        with self.begin() as transaction:
            return transaction.get(key)

    def scan(self, low: bytes, high: bytes, limit: int, /) -> list[tuple[bytes, bytes]]:
        """At most `limit` pairs with low <= key < high, in order; chunks may differ in batch."""
        pairs: list[tuple[bytes, bytes]] = []
        while len(pairs) < limit:
            rows = min(SCAN_CHUNK_ROWS, limit - len(pairs))
            with self.view() as view:
                chunk = view.scan(low, high, rows)
            pairs += chunk
            if len(chunk) < rows:
                break
            low = chunk[-1][0] + b"\0"
        return pairs

    @contextmanager
    def view(self) -> Generator[View]:
        """Several reads of one instant. Do not await inside: it pins pages."""
        with self.begin() as instant:
            yield View(instant)

    def instant(self) -> HeldView:
        """A view of the newest transaction that may be held across awaits. Close it."""
        instant = self.begin()
        found = HeldView(instant, self, instant.get(META_KEY, db=self._meta))
        self._instants.append(found)
        return found

    @property
    def is_held(self) -> bool:
        """Whether a view of it is not closed yet."""
        return bool(self._instants)

    def forget(self, view: HeldView) -> None:
        """A view is closed: its transaction's slot is free once nothing refers to it."""
        self._instants = [each for each in self._instants if each is not view]

    def meta(self) -> StoreMeta:
        """What the newest transaction recorded about its rows."""
        with self.begin() as instant:
            return self.meta_of(instant)

    def meta_of(self, instant: Instant) -> StoreMeta:
        """What was recorded with the rows of an instant. LMDB numbers the transactions that write,
        and a reader has the number of the newest one: the meta is decoded once for each, and a
        lookup costs one call more. Raises NotReady if there is none."""
        number = instant.id()
        if number != self._number:
            self._newest, self._number = self._meta_in(instant), number
        return self._newest

    def read(self, key: bytes, now_s: float, /) -> tuple[bytes | None, StoreMeta]:
        """The stored value of a key, and what was recorded with it: `begin`, `get` and `meta_of` in
        one call, for lookups. `now_s`: of the monotonic clock. Raises NotReady."""
        if now_s >= self._check_due:
            self._check(now_s)
        try:
            instant = self._start()
        except lmdb.MapResizedError:
            instant = self.begin()
        try:
            value = instant.get(key)
            if instant.id() == self._number:
                return value, self._newest
            return value, self.meta_of(instant)
        finally:
            instant.abort()

    @contextmanager
    def whole(self) -> Generator[tuple[StoreMeta, Iterable[tuple[bytes, bytes]]]]:
        """Meta and all rows of one instant, looked up one by one (`rows_by_lookup`). This may
        take long: never call it in a process that serves requests."""
        with self.begin() as transaction:
            yield self._meta_in(transaction), rows_by_lookup(transaction)

    def _meta_in(self, transaction: Instant) -> StoreMeta:
        data = transaction.get(META_KEY, db=self._meta)
        if data is None:
            raise NotReady(f"the store of {self.name} holds no batch yet")
        return decode_meta(data, self.name)

    def close(self) -> None:
        self._end_instants()
        if self._environment is not None:
            self._environment.close()
        self._environment, self._start = None, self._open_and_start
        self._number = NO_NUMBER  # the next store numbers its own transactions

    def begin(self) -> Instant:
        """The store now, to be left as a context at once: `view` without its cost."""
        now = time.monotonic()
        if now >= self._check_due:
            self._check(now)
        while True:  # the map may grow again before it has been adopted
            try:
                return self._start()
            except lmdb.MapResizedError:
                self._adopt_map_size()

    def _check(self, now_s: float) -> None:
        """Close the file, if another one is in its place."""
        self._check_due = now_s + self.CHECK_S
        if self._environment is not None and not self._is_current():
            self.close()

    def _is_current(self) -> bool:
        try:
            return (self.path / DATA_FILE).stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _open_and_start(self) -> Instant:
        environment: lmdb.Environment | None = None
        try:
            self._inode = (self.path / DATA_FILE).stat().st_ino
            environment = open_environment(
                self.path, map_bytes=0, writes=False
            )  # 0: the size in the file
            rows = self._open_databases(environment)
        except (OSError, lmdb.Error) as error:
            if environment is not None:
                environment.close()
            raise NotReady(f"there is no store of {self.name} here yet") from error
        self._environment = environment
        # by position: py-lmdb takes a third less time than with a name
        self._start = cast(Callable[[], Instant], partial(environment.begin, rows))
        return self._start()

    def _open_databases(self, environment: lmdb.Environment) -> Any:
        """That of the rows. The map may grow while they are opened."""
        while True:
            try:
                rows = environment.open_db(b"rows", create=False)
                self._meta = environment.open_db(b"meta", create=False)
                return rows
            except lmdb.MapResizedError:
                environment.set_mapsize(0)  # to the size in the file

    def _adopt_map_size(self) -> None:
        """The writer has grown the map; 0 means: to the size in the file.

        LMDB unmaps the old one even under open views, so these are ended first.
        """
        assert self._environment is not None
        self._end_instants()
        self._environment.set_mapsize(0)

    def _end_instants(self) -> None:
        for instant in self._instants:
            instant.close()
        self._instants.clear()
