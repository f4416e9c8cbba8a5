"""An instant of a store that is held while the store goes on, with a real writer."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import lmdb
import pytest

from standpipe.adapters.store.environment import META_KEY, open_environment
from standpipe.adapters.store.folders import retire
from standpipe.adapters.store.reader import StoreReader
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import DataDirectoryRefused, NotReady
from standpipe.model import Offset

IDENTITY = StoreIdentity(table_id="t", generation=1, partition=0)
ALL = (b"", b"\xff", 1000)
#: writers fork from one process that has imported this file, and that never opens a store
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([__name__])


def write(path: str, orders: Connection) -> None:
    """Another process: LMDB opens a store once in each. An order: position, bytes of its row."""
    store = StoreWriter(Path(path), IDENTITY, map_bytes=64 * 1024)
    while (order := orders.recv()) is not None:
        position, size = order
        meta = StoreMeta(identity=IDENTITY, position=Offset(position))
        store.apply([(b"k", b"%d" % position + b"." * size)], [], meta)
        orders.send(None)
    store.abandon()
    orders.send(None)


class Writer:
    def __init__(self, path: Path) -> None:
        self._orders, theirs = processes.Pipe()
        self._process = processes.Process(target=write, args=(str(path), theirs), daemon=True)
        self._process.start()

    def apply(self, position: int, size: int = 0) -> None:
        self._orders.send((position, size))
        self._orders.recv()

    def end(self) -> None:
        if self._process.is_alive():
            self._orders.send(None)
            self._orders.recv()
            self._process.join()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "store")
    yield made
    made.end()


def test_without_a_store_there_is_no_instant(tmp_path: Path) -> None:
    with pytest.raises(NotReady):
        StoreReader(tmp_path / "store").instant()


def test_an_instant_stays_as_it_was(tmp_path: Path, writer: Writer) -> None:
    reader = StoreReader(tmp_path / "store")
    writer.apply(1)
    first, same = reader.instant(), reader.instant()
    writer.apply(2)
    second = reader.instant()
    assert first.label == same.label != second.label
    assert first.scan(*ALL) == same.scan(*ALL) == [(b"k", b"1")]
    assert second.scan(*ALL) == [(b"k", b"2")]
    assert reader.get(b"k") == b"2", "lookups beside it see what is newest"
    for each in (first, same, second):
        each.close()
        each.close()
    reader.close()


def test_an_instant_ends_when_the_map_moves(tmp_path: Path, writer: Writer) -> None:
    """LMDB would unmap what it reads: the first lookup that meets the grown map ends it."""
    reader = StoreReader(tmp_path / "store")
    writer.apply(1)
    held = reader.instant()
    writer.apply(2, size=1_000_000)
    assert not held.is_over
    assert held.scan(*ALL) == [(b"k", b"1")], "until then it is sound"
    found = reader.get(b"k")
    assert found is not None
    assert found.startswith(b"2")
    assert held.is_over
    held.close()
    reader.close()


def test_an_instant_ends_with_its_store(
    tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoreReader, "CHECK_S", 0.0)
    reader = StoreReader(tmp_path / "store")
    writer.apply(1)
    held = reader.instant()
    writer.end()
    retire(tmp_path / "store", 0)
    with pytest.raises(NotReady):
        reader.get(b"k")
    assert held.is_over
    held.close()


def test_a_lookup_has_the_meta_of_its_transaction(tmp_path: Path, writer: Writer) -> None:
    reader = StoreReader(tmp_path / "store")
    for turn in range(2):
        with pytest.raises(NotReady):
            reader.read(b"k", float(turn))
    writer.apply(1)
    value, meta = reader.read(b"k", time.monotonic())
    assert (value, meta.position) == (b"1", 1)
    assert reader.read(b"k", time.monotonic())[1] is meta, "it was decoded once"
    assert reader.read(b"other", time.monotonic()) == (None, meta)
    writer.apply(2)
    value, newer = reader.read(b"k", time.monotonic())
    assert (value, newer.position) == (b"2", 2)
    assert reader.meta() is newer
    reader.close()


def test_a_lookup_meets_a_grown_map(tmp_path: Path, writer: Writer) -> None:
    reader = StoreReader(tmp_path / "store")
    writer.apply(1)
    assert reader.read(b"k", time.monotonic())[0] == b"1"
    held = reader.instant()
    writer.apply(2, size=1_000_000)
    value, meta = reader.read(b"k", time.monotonic())
    assert (value, meta.position) == (b"2" + b"." * 1_000_000, 2)
    assert held.is_over
    reader.close()


def test_a_lookup_notices_another_store_in_time(tmp_path: Path, writer: Writer) -> None:
    """Not before: each check asks the file system."""
    reader = StoreReader(tmp_path / "store")
    writer.apply(1)
    now_s = time.monotonic()
    assert reader.read(b"k", now_s)[0] == b"1"
    reader.read(b"k", now_s + reader.CHECK_S)
    writer.end()
    retire(tmp_path / "store", 0)
    assert reader.read(b"k", now_s + 1.9 * reader.CHECK_S)[0] == b"1"
    with pytest.raises(NotReady):
        reader.read(b"k", now_s + 2.1 * reader.CHECK_S)  # sums of floats may differ at 2.0


def test_a_lookup_that_fails_keeps_no_transaction(tmp_path: Path, writer: Writer) -> None:
    """Its slot would pin pages: the table of readers has few."""
    reader = StoreReader(tmp_path / "store")
    writer.apply(1)
    for _ in range(300):
        with pytest.raises(lmdb.BadValsizeError):
            reader.read(b"", time.monotonic())
    assert reader.read(b"k", time.monotonic())[0] == b"1"
    reader.close()


@pytest.mark.parametrize(
    "meta", [b"", b"\xc1", b"\x81\xa1x\x01", b"{}"], ids=["empty", "no msgpack", "other", "JSON"]
)
def test_an_unreadable_meta_is_told_without_the_place(tmp_path: Path, meta: bytes) -> None:
    """Clients get the error as the reason why a replica did not answer."""
    place = tmp_path / "TABLE_1" / "0"
    place.mkdir(parents=True)
    with open_environment(place, map_bytes=1 << 20, writes=True) as environment:
        environment.open_db(b"rows")
        with environment.begin(environment.open_db(b"meta"), write=True) as transaction:
            transaction.put(META_KEY, meta)
    reader = StoreReader(place)
    with pytest.raises(DataDirectoryRefused) as caught:
        reader.read(b"k", time.monotonic())
    assert str(tmp_path) not in str(caught.value)
    assert "TABLE_1/0 has an unreadable meta" in str(caught.value)
    reader.close()
