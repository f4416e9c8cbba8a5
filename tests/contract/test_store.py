"""One contract for stores: a dict in memory and LMDB under the same operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.adapters.store.reader import StoreReader
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.encoding.stored_rows import rows_digest
from standpipe.data.query.pull import ReadView
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import NotReady
from standpipe.model import Offset

pytestmark = pytest.mark.contract

IDENTITY = StoreIdentity(table_id="t", generation=1, partition=0)


class Store(ReadView, Protocol):
    """A reader of a store: each read by itself, or several of one instant."""

    def view(self) -> AbstractContextManager[ReadView]: ...


class FakeStore:
    """Rows in a dict: writer and reader in one."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.newest = StoreMeta(identity=IDENTITY)

    def apply(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes], meta: StoreMeta) -> None:
        for key in deletes:
            self.rows.pop(key, None)
        self.rows.update(puts)
        self.newest = msgspec.structs.replace(meta, digest=rows_digest(self.rows.items()))

    def count(self) -> int:
        return len(self.rows)

    def meta(self) -> StoreMeta:
        return self.newest

    def reader(self) -> Store:
        return self

    def get(self, key: bytes, /) -> bytes | None:
        return self.rows.get(key)

    def scan(self, low: bytes, high: bytes, limit: int, /) -> list[tuple[bytes, bytes]]:
        pairs = [(key, value) for key, value in sorted(self.rows.items()) if low <= key < high]
        return pairs[:limit]

    @contextmanager
    def view(self) -> Iterator[FakeStore]:
        yield self


class LmdbStore:
    """The real thing. A process opens a store once, so writing and reading take turns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.open: StoreWriter | StoreReader | None = None

    def writer(self) -> StoreWriter:
        if not isinstance(self.open, StoreWriter):
            self.close()
            self.open = StoreWriter(self.path, IDENTITY, map_bytes=64 * 1024)
        return self.open

    def apply(self, puts: list[tuple[bytes, bytes]], deletes: list[bytes], meta: StoreMeta) -> None:
        self.writer().apply(puts, deletes, meta)

    def count(self) -> int:
        return self.writer().rows()

    def meta(self) -> StoreMeta:
        return self.writer().meta()

    def reader(self) -> StoreReader:
        if not isinstance(self.open, StoreReader):
            self.close()
            self.open = StoreReader(self.path)
        return self.open

    def close(self) -> None:
        if self.open is not None:
            self.open.close()
        self.open = None


@pytest.fixture(params=["fake", "lmdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeStore | LmdbStore]:
    if request.param == "fake":
        yield FakeStore()
        return
    real = LmdbStore(tmp_path / "store")
    yield real
    real.close()


def meta(position: int) -> StoreMeta:
    return StoreMeta(identity=IDENTITY, position=Offset(position))


def test_an_empty_store(store: FakeStore | LmdbStore) -> None:
    assert store.meta() == StoreMeta(identity=IDENTITY)
    assert store.count() == 0
    assert store.reader().get(b"a") is None
    assert store.reader().scan(b"", b"\xff", 10) == []


def test_rows_and_meta_change_together(store: FakeStore | LmdbStore) -> None:
    store.apply([(b"a", b"1"), (b"b", b"2")], [], meta(2))
    store.apply([(b"a", b"3")], [b"b", b"never there"], meta(5))
    digest = rows_digest([(b"a", b"3")])
    assert (store.count(), store.meta()) == (1, msgspec.structs.replace(meta(5), digest=digest))
    assert (store.reader().get(b"a"), store.reader().get(b"b")) == (b"3", None)


@pytest.mark.parametrize(
    ("low", "high", "limit", "keys", "why"),
    [
        (b"", b"\xff" * 9, 10, [b"a", b"a\0", b"b", b"c"], "bytes in order"),
        (b"a", b"b", 10, [b"a", b"a\0"], "low is in, high is out"),
        (b"a\0", b"c", 10, [b"a\0", b"b"], ""),
        (b"aa", b"bb", 10, [b"b"], "bounds that are no keys"),
        (b"", b"\xff", 2, [b"a", b"a\0"], "limit"),
        (b"", b"\xff", 0, [], ""),
        (b"c", b"a", 10, [], "nothing between"),
        (b"d", b"e", 10, [], "behind the last"),
    ],
)
def test_scans(
    store: FakeStore | LmdbStore, low: bytes, high: bytes, limit: int, keys: list[bytes], why: str
) -> None:
    store.apply([(key, b"v") for key in (b"c", b"a", b"b", b"a\0")], [], meta(1))
    found = [(key, b"v") for key in keys]
    assert store.reader().scan(low, high, limit) == found, why
    with store.reader().view() as view:
        assert view.scan(low, high, limit) == found, why
        assert view.get(b"a") == b"v"
        assert view.get(b"x") is None


def test_a_scan_of_many_rows(store: FakeStore | LmdbStore) -> None:
    pairs = [(b"%06d" % n, b"x" * 100) for n in range(5000)]
    store.apply(pairs, [], meta(1))
    assert store.reader().scan(b"", b"9", 10_000) == pairs
    assert store.reader().scan(b"", b"9", 1025) == pairs[:1025]


KEYS = st.sampled_from([b"a", b"b", b"c", b"d\0", b"d", b"\xff" * 511])
OPERATIONS = st.lists(
    st.tuples(st.lists(st.tuples(KEYS, st.binary(max_size=3000)), max_size=5), st.sets(KEYS))
)


@settings(max_examples=examples(20), deadline=None)
@given(operations=OPERATIONS)
def test_the_fake_is_like_the_real_one(
    operations: list[tuple[list[tuple[bytes, bytes]], set[bytes]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    fake, real = FakeStore(), LmdbStore(tmp_path_factory.mktemp("store") / "s")
    for position, (puts, deletes) in enumerate(operations):
        for store in (fake, real):
            store.apply(puts, [*(deletes - dict(puts).keys())], meta(position))
        assert real.count() == fake.count()
    assert real.meta() == fake.meta()
    everything = (b"", b"\xff" * 512, 100)
    assert real.reader().scan(*everything) == fake.reader().scan(*everything)
    real.close()


def test_a_reader_of_nothing_is_not_ready(tmp_path: Path) -> None:
    reader = StoreReader(tmp_path / "nowhere")
    for read in (lambda: reader.get(b"a"), lambda: reader.scan(b"", b"a", 1), reader.meta):
        with pytest.raises(NotReady):
            read()
