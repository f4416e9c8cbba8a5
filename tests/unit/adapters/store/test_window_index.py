"""Windows that expire in a real store: which rows go, and that the digest goes with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from standpipe.adapters.store import window_index
from standpipe.adapters.store.writer import StoreFailure, StoreWriter
from standpipe.data.commit.expiry import Expiry, by_edge
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row, rows_digest
from standpipe.data.replica.positions import StoreIdentity, StoreMeta

IDENTITY = StoreIdentity(table_id="t", generation=1, partition=0)
#: a window has expired when its start is 100 or more behind the watermark
EXPIRY = Expiry(bounds=1, grace_ms=0, retention_ms=100)


def meta(watermark_ms: int) -> StoreMeta:
    return StoreMeta(identity=IDENTITY, watermark_ms=watermark_ms)


def key(name: str, start_ms: int) -> bytes:
    return store_key((name,), ("STRING",), start_ms)


def row(text: str) -> bytes:
    return pack_row(b'["%b"]' % text.encode(), 0)


def opened(path: Path, expiry: Expiry | None = EXPIRY) -> StoreWriter:
    return StoreWriter(path, IDENTITY, map_bytes=1024 * 1024, expiry=expiry)


def holds(store: StoreWriter, *keys: bytes) -> bool:
    """Whether it has just these, each with the row "x"."""
    of_them = rows_digest([(each, row("x")) for each in keys])
    return (store.rows(), store.digest) == (len(keys), of_them)


def test_rows_leave_with_the_watermark_of_the_transaction(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    old, edge, young = key("a", 0), key("b", 50), key("a", 51)
    store.apply([(each, row("x")) for each in (old, edge, young)], [], meta(0))
    assert store.rows() == 3, "no watermark yet"
    store.apply([], [], meta(150))
    assert holds(store, young)
    store.apply([(old, row("late"))], [], meta(150))
    assert holds(store, young), "what expired does not come back"
    store.close()


def test_rows_that_change_and_go_before_they_expire(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    changed, deleted = key("a", 0), key("b", 0)
    store.apply([(changed, row("1")), (deleted, row("1"))], [], meta(1))
    store.apply([(changed, row("2"))], [deleted], meta(1))
    store.apply([(changed, row("3")), (deleted, row("3"))], [], meta(1))
    store.apply([], [], meta(200))
    assert (store.rows(), store.digest) == (0, 0)
    store.close()


def test_more_rows_than_are_held_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_index, "CHUNK_ROWS", 10)
    store = opened(tmp_path / "s")
    store.apply([(key(f"{n:04}", n), row("x")) for n in range(95)], [], meta(0))
    store.apply([], [], meta(150))
    assert holds(store, *(key(f"{n:04}", n) for n in range(51, 95)))
    store.close()


def test_a_store_of_an_older_release_gets_its_index(tmp_path: Path) -> None:
    old = opened(tmp_path / "s", expiry=None)
    old.apply([(key("a", 0), row("x")), (key("a", 90), row("x"))], [], meta(150))
    old.close()
    store = opened(tmp_path / "s")
    assert store.damage() == ""
    assert holds(store, key("a", 90)), "opening it writes once"
    store.close()


def test_a_damaged_index_takes_no_row_along(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    store.apply([(key("a", 120), row("x"))], [], meta(0))
    store.close()
    with lmdb.open(str(tmp_path / "s"), max_dbs=3) as environment:
        edges = environment.open_db(b"edges")
        with environment.begin(write=True) as transaction:
            transaction.put(by_edge(key("b", 0)), b"", db=edges)
    store = opened(tmp_path / "s")
    with pytest.raises(StoreFailure) as caught:
        store.apply([], [], meta(150))
    assert caught.value.is_damaged, "a row that is not there"
    assert store.rows() == 1, "and the transaction did not count"
    assert store.damage() == "", "the index is made anew from the rows"
    store.apply([], [], meta(150))
    assert holds(store, key("a", 120))
    store.close()


def test_an_index_that_lacks_a_row_is_made_anew(tmp_path: Path) -> None:
    store = opened(tmp_path / "s")
    store.apply([(key("a", 0), row("x")), (key("b", 120), row("x"))], [], meta(0))
    store.close()
    with lmdb.open(str(tmp_path / "s"), max_dbs=3) as environment:
        edges = environment.open_db(b"edges")
        with environment.begin(write=True) as transaction:
            assert transaction.delete(by_edge(key("a", 0)), db=edges)
    store = opened(tmp_path / "s")
    with pytest.raises(StoreFailure) as caught:
        store.apply([], [key("a", 0)], meta(0))
    assert (caught.value.is_damaged, store.rows()) == (True, 2), "the transaction did not count"
    assert store.damage() == ""
    store.apply([], [], meta(150))
    assert holds(store, key("b", 120))
    store.close()


_changes = st.lists(
    st.tuples(
        st.lists(  # key, window, what becomes of it
            st.tuples(st.sampled_from("ab"), st.integers(0, 30), st.booleans()), max_size=6
        ),
        st.integers(0, 60),  # by how much the watermark moves
    ),
    max_size=8,
)


@settings(max_examples=examples(20), deadline=None)
@given(batches=_changes, cuts=st.sets(st.integers(0, 8)))
def test_replicas_agree_however_they_group_batches(
    batches: Sequence[tuple[list[tuple[str, int, bool]], int]], cuts: set[int]
) -> None:
    """One replica takes batch by batch, the other several in one transaction (a restore)."""
    with TemporaryDirectory() as folder:
        one, other = opened(Path(folder) / "1"), opened(Path(folder) / "2")
        twin: dict[bytes, bytes] = {}
        gathered: dict[bytes, bytes | None] = {}
        watermark_ms = 0
        for number, (changes, moved_ms) in enumerate(batches):
            watermark_ms += moved_ms
            batch = {
                key(name, start * 10): row(str(number)) if lives else None
                for name, start, lives in changes
            }
            gathered |= batch
            apply(one, batch, watermark_ms)
            for each, value in batch.items():
                twin.pop(each, None) if value is None else twin.update({each: value})
            twin = {
                each: value
                for each, value in twin.items()
                if not watermark_ms or each[-8:] > key("", watermark_ms - 100)[-8:]
            }
            assert (one.rows(), one.digest or 0) == (len(twin), rows_digest(twin.items()))
            if number in cuts:
                apply(other, gathered, watermark_ms)
                gathered = {}
        apply(other, gathered, watermark_ms)
        assert (other.rows(), other.digest or 0) == (one.rows(), one.digest or 0)
        one.close()
        other.close()


def apply(store: StoreWriter, batch: dict[bytes, bytes | None], watermark_ms: int) -> None:
    puts = [(each, value) for each, value in batch.items() if value is not None]
    deletes = [each for each, value in batch.items() if value is None]
    store.apply(puts, deletes, meta(watermark_ms))
