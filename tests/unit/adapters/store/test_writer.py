"""The storage rules, with real processes: kill -9, a growing map under readers, strangers."""

from __future__ import annotations

import errno
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import msgspec
import pytest

from standpipe.adapters.store import folders
from standpipe.adapters.store import reader as lmdb_reader
from standpipe.adapters.store import writer as lmdb_store
from standpipe.adapters.store.environment import open_environment
from standpipe.adapters.store.folders import store_path
from standpipe.adapters.store.reader import StoreReader
from standpipe.adapters.store.writer import StoreFailure, StoreWriter
from standpipe.data.encoding.stored_rows import rows_digest
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import DataDirectoryRefused, NotReady
from standpipe.model import Offset

IDENTITY = StoreIdentity(table_id="t", generation=1, partition=0)
Say = Callable[[int], object]
KILLS = int(os.environ.get("STANDPIPE_STORE_KILLS", "20"))


def meta(position: int = 0) -> StoreMeta:
    return StoreMeta(identity=IDENTITY, position=Offset(position))


def value_at(position: int, length: int = 20) -> bytes:
    return b"%012d" % position * length


def write_for_ever(path: Path, say: Say, transactions: int = 10**9) -> None:
    """Transaction n gives 50 keys the value n, and the position is n. Says which, now and then."""
    store = StoreWriter(path, IDENTITY, map_bytes=64 * 1024)
    first = store.meta().position + 1
    for position in range(first, first + transactions):
        rows = [(b"%08d" % n, value_at(position)) for n in range(50)]
        store.apply(rows, [], meta(position))
        if position % 20 == 0:
            say(position)


def read_until(path: Path, say: Say, last: int) -> None:
    """Reads what a writer writes until position `last`; fails if one view ever mixes two."""
    reader, seen = StoreReader(path), 0
    while seen < last:
        with reader.view() as view:
            values = {value for _, value in view.scan(b"", b"\xff", 1000)}
        assert len(values) == 1, values
        seen = reader.meta().position
    say(seen)


def read_on(path: Path, say: Say, last: int) -> None:
    """Reads one row until the store is at position `last`."""
    reader, seen = StoreReader(path), 0
    while seen < last:
        with reader.view() as view:
            assert view.get(b"%08d" % 7)
        seen = reader.meta().position
    say(seen)


def anonymous_bytes() -> int:
    """Memory of this process that is no file's."""
    return 1024 * int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0])


def pin(path: Path, say: Say) -> None:
    with StoreReader(path).view():
        say(0)
        time.sleep(60)


class Child:
    """A function of this file in a process of its own; forked, for it starts in a millisecond.

    No environment may be open in the parent: locks of LMDB do not survive a fork.
    """

    def __init__(self, function: Callable[..., None], path: Path, *arguments: int) -> None:
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                function(path, lambda number: os.write(write, b"%d\n" % number), *arguments)
                status = 0
            except BaseException:
                traceback.print_exc()  # nobody else sees it
                sys.stderr.flush()
            finally:
                os._exit(status)
        os.close(write)
        self._said = os.fdopen(read)

    def said(self) -> int:
        """The next number that it says; 0 when it has ended."""
        return int(self._said.readline() or 0)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.end()

    def end(self) -> int:
        """Wait for it. Its exit status, negative after a signal."""
        self._said.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.timeout(300)
def test_kill_9_at_random_moments(tmp_path: Path) -> None:
    """The store opens every time, its position equals its rows, and nothing goes back."""
    chance, before = random.Random(9), 0
    for _ in range(KILLS):
        writer = Child(write_for_ever, tmp_path / "s")
        known = writer.said()
        time.sleep(chance.random() / 20)
        writer.kill()
        store = StoreWriter(tmp_path / "s", IDENTITY)
        assert not store.was_closed_cleanly
        assert store.rows() == 50
        position = store.meta().position
        store.abandon()
        reader = StoreReader(tmp_path / "s")
        values = {value for _, value in reader.scan(b"", b"\xff", 100)}
        reader.close()
        assert values == {value_at(position)}
        assert position >= known > before
        before = position


@pytest.mark.timeout(60)
def test_the_map_grows_under_readers(tmp_path: Path) -> None:
    """From 64 KiB to over 1 MiB while two processes read: no error, no mixture of batches."""
    path, last = tmp_path / "s", 60
    assert Child(write_for_ever, path, 1).end() == 0
    readers = [Child(read_until, path, last) for _ in range(2)]
    store = StoreWriter(path, IDENTITY, map_bytes=64 * 1024)
    for position in range(2, last + 1):
        rows = [(b"%08d" % n, value_at(position, 20 + 5 * position)) for n in range(50)]
        store.apply(rows, [], meta(position))
        time.sleep(0.005)
    assert [reader.said() for reader in readers] == [last, last]
    assert [reader.end() for reader in readers] == [0, 0]
    assert (path / "data.mdb").stat().st_size > 1024 * 1024
    store.close()


def open_slowly(path: Path, say: Say) -> None:
    """Opens a store, and goes on with it when its map has grown."""

    def open_and_wait(*where: Path, **options: Any) -> lmdb.Environment:
        environment = open_environment(*where, **options)
        say(1)
        while not (path / "grown").exists():
            time.sleep(0.001)  # the parent says it with a file, which wakes nobody
        return environment

    lmdb_reader.open_environment = open_and_wait
    say(StoreReader(path).meta().position)


@pytest.mark.timeout(60)
def test_the_map_grows_while_a_reader_opens_the_store(tmp_path: Path) -> None:
    """The store is there all the time: the reader opens it, and does not say that there is none."""
    path, last = tmp_path / "s", 9
    assert Child(write_for_ever, path, 1).end() == 0
    reader = Child(open_slowly, path)
    assert reader.said() == 1
    store = StoreWriter(path, IDENTITY, map_bytes=64 * 1024)
    store.apply([(b"%08d" % n, bytes(20_000)) for n in range(50)], [], meta(last))
    (path / "grown").touch()
    assert reader.said() == last
    assert reader.end() == 0
    store.close()


@pytest.mark.timeout(60)
def test_memory_of_large_transactions_is_given_back_while_others_read(tmp_path: Path) -> None:
    """LMDB keeps that of the pages that the largest one changed, the C library what was freed."""
    path, chance = tmp_path / "s", random.Random(4)
    assert Child(write_for_ever, path, 1).end() == 0
    reader = Child(read_on, path, 9)
    store = StoreWriter(path, IDENTITY)
    for position in range(2, 8):
        rows = [(b"%08d" % chance.randrange(10**8), bytes(400)) for _ in range(30_000)]
        store.apply(rows, [], meta(position))
        del rows
    rows_before, digest, before = store.rows(), store.digest, anonymous_bytes()
    store.release_memory()
    assert before - anonymous_bytes() > 20_000_000
    assert (store.rows(), store.meta().digest) == (rows_before, digest)
    store.apply([(b"a", b"1")], [], meta(9))
    assert store.rows() == rows_before + 1
    assert reader.said() == 9
    assert reader.end() == 0
    store.close()


def test_small_transactions_are_no_reason_to_open_a_store_anew(tmp_path: Path) -> None:
    store = StoreWriter(tmp_path / "s", IDENTITY)
    store.apply([(b"a", b"1")], [], meta(1))
    before = store._environment
    store.release_memory()
    assert store._environment is before
    store.close()


def test_a_store_without_room_for_its_marker_is_closed_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = StoreWriter(tmp_path / "s", IDENTITY)
    store.apply([(b"a", b"1")], [], meta(1))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", fail)
        store.close()
    store = StoreWriter(tmp_path / "s", IDENTITY)
    assert not store.was_closed_cleanly
    assert store.meta().position == 1
    store.close()


def test_a_store_closed_in_order_says_so_once(tmp_path: Path) -> None:
    store = StoreWriter(tmp_path / "s", IDENTITY)
    assert not store.was_closed_cleanly
    store.close()
    store = StoreWriter(tmp_path / "s", IDENTITY)
    assert store.was_closed_cleanly
    store.apply([], [], meta(1))
    store.abandon()
    assert not StoreWriter(tmp_path / "s", IDENTITY).was_closed_cleanly


def test_a_store_that_was_only_read_is_still_closed_in_order(tmp_path: Path) -> None:
    """A tailer that was killed while it checked an intact store had it built again."""
    store = StoreWriter(tmp_path / "s", IDENTITY)
    store.apply([], [], meta(1))
    store.close()
    store = StoreWriter(tmp_path / "s", IDENTITY)
    assert store.meta().position == 1
    store.abandon()
    store = StoreWriter(tmp_path / "s", IDENTITY)
    assert store.was_closed_cleanly
    store.abandon()


def test_a_marker_that_cannot_be_dropped_keeps_the_store_from_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = StoreWriter(tmp_path / "s", IDENTITY)
    store.apply([], [], meta(1))
    store.close()
    store = StoreWriter(tmp_path / "s", IDENTITY)
    with monkeypatch.context() as patch:
        patch.setattr(lmdb_store, "sync", fail)
        with pytest.raises(StoreFailure, match="Input/output"):
            store.apply([], [], meta(2))
    assert store.meta().position == 1
    store.apply([], [], meta(2))
    store.abandon()
    assert not StoreWriter(tmp_path / "s", IDENTITY).was_closed_cleanly


@pytest.mark.parametrize(
    "other",
    [
        StoreIdentity(table_id="u", generation=1, partition=0),
        StoreIdentity(table_id="t", generation=2, partition=0),
        StoreIdentity(table_id="t", generation=1, partition=1),
    ],
)
def test_a_store_of_somebody_else_is_refused(tmp_path: Path, other: StoreIdentity) -> None:
    store = StoreWriter(tmp_path / "s", other)
    store.apply([], [], StoreMeta(identity=other))
    store.close()
    with pytest.raises(DataDirectoryRefused, match="holds"):
        StoreWriter(tmp_path / "s", IDENTITY)
    StoreWriter(tmp_path / "s", other).close()


def test_a_store_of_another_format_is_refused(tmp_path: Path) -> None:
    newer = msgspec.structs.replace(IDENTITY, format=99)
    store = StoreWriter(tmp_path / "s", newer)
    store.apply([], [], StoreMeta(identity=newer))
    store.close()
    with pytest.raises(DataDirectoryRefused, match="format 99"):
        StoreWriter(tmp_path / "s", IDENTITY)


def test_directories_are_private(tmp_path: Path) -> None:
    path = store_path(tmp_path, IDENTITY.replica_id)
    assert path == tmp_path / "t-1" / "0"
    path.mkdir(parents=True, mode=0o777)
    StoreWriter(path, IDENTITY).close()
    assert path.stat().st_mode & 0o777 == 0o700
    assert (path / "data.mdb").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", [b"not lmdb" * 2048, b""])
def test_a_file_that_is_no_store_is_a_failure_not_a_crash(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "data.mdb").write_bytes(damage)
    if damage:
        with pytest.raises(StoreFailure) as caught:
            StoreWriter(tmp_path, IDENTITY)
        assert caught.value.is_damaged
    with pytest.raises(NotReady):
        StoreReader(tmp_path).get(b"a")


def test_a_failed_transaction_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    store = StoreWriter(tmp_path / "s", IDENTITY)
    store.apply([(b"a", b"1")], [], meta(1))
    with pytest.raises(StoreFailure) as caught:
        store.apply([(b"a", b"2"), (b"x" * 600, b"too long a key")], [], meta(2))
    assert not caught.value.is_damaged
    assert (store.meta().position, store.rows()) == (1, 1)
    store.close()
    assert StoreReader(tmp_path / "s").get(b"a") == b"1"


def test_a_store_that_was_made_anew_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "t-1" / "0"
    old = StoreWriter(path, IDENTITY)
    old.apply([(b"a", b"old")], [], meta(1))
    old.close()
    reader = StoreReader(path)
    assert reader.get(b"a") == b"old"
    folders.retire(path, now_ms=1000)
    assert Child(write_for_ever, path, 1).end() == 0
    time.sleep(StoreReader.CHECK_S)
    assert reader.get(b"a") is None
    assert reader.meta().position == 1


def test_an_lmdb_that_copies_what_it_answers(tmp_path: Path) -> None:
    """`get` must never hand out memory of the map: it is only valid inside a transaction."""
    store = StoreWriter(tmp_path / "s", IDENTITY)
    store.apply([(b"a", b"1" * 100)], [], meta(1))
    store.close()
    reader = StoreReader(tmp_path / "s")
    assert type(reader.get(b"a")) is bytes
    assert [type(value) for _, value in reader.scan(b"", b"b", 1)] == [bytes]
    assert lmdb.version() >= (0, 9)


@pytest.mark.parametrize(
    ("again", "why"),
    [
        (0, "a restore: no key was there"),
        (1, "the last of many was there, and the transaction begins anew"),
        (lmdb_store.MANY_PUTS, "all were there"),
    ],
)
def test_the_digest_is_right_whether_keys_were_there_or_not(
    tmp_path: Path, again: int, why: str
) -> None:
    store, many = StoreWriter(tmp_path / "s", IDENTITY), lmdb_store.MANY_PUTS
    for position, first in enumerate((0, many, 2 * many - again, 3 * many), start=1):
        rows = [(b"%08d" % n, value_at(position, 1)) for n in range(first, first + many)]
        store.apply(rows, [b"%08d" % 0, b"none"] if position == 4 else [], meta(position))
    digest = store.meta().digest
    store.close()
    with StoreReader(tmp_path / "s").view() as view:
        left = view.scan(b"", b"\xff", 10 * many)
    assert digest == rows_digest(left), why
    assert len(left) == 4 * many - again - 1, why


@pytest.mark.parametrize("before", [0, 1, 2])
def test_the_last_row_of_a_key_that_is_put_again_counts(tmp_path: Path, before: int) -> None:
    """`before` large transactions of new keys make the store expect new ones."""
    store, many = StoreWriter(tmp_path / "s", IDENTITY), lmdb_store.MANY_PUTS
    for position in range(1, before + 1):
        rows = [(b"%08d" % (many * position + n), b"r%08d" % n) for n in range(many)]
        store.apply(rows, [], meta(position))
    rows = [(b"%08d" % n, b"row %d" % n) for n in range(many)]
    for position in (8, 9):
        again = [*rows, (b"%08d" % 7, b"newer %d" % position), (b"%08d" % 7, b"last %d" % position)]
        store.apply(again, [], meta(position))
        assert store.rows() == many * (before + 1)
    digest = store.meta().digest
    store.close()
    with StoreReader(tmp_path / "s").view() as view:
        left = view.scan(b"", b"\xff", 10 * many)
        assert view.get(b"%08d" % 7) == b"last 9"
    assert digest == rows_digest(left)


def test_rows_of_some_keys(tmp_path: Path) -> None:
    store = StoreWriter(tmp_path / "s", IDENTITY)
    store.apply([(b"a", b"1"), (b"b", b"2")], [], meta(1))
    assert store.rows_of([b"b", b"c"]) == {b"b": b"2"}
    assert store.rows_of([]) == {}
    store.close()
    with pytest.raises(StoreFailure):
        store.rows_of([b"a"])
