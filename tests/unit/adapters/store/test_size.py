"""Sizes of real stores, against what LMDB itself says of them."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from standpipe.adapters.store.size import disk_bytes, map_bytes, size_of
from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.replica.positions import StoreIdentity, StoreMeta

IDENTITY = StoreIdentity(table_id="t", generation=1, partition=0)
START_BYTES = 256 * 1024


def write(path: Path, rows: int) -> None:
    store = StoreWriter(path, IDENTITY, map_bytes=START_BYTES)
    puts = [(b"%08d" % n, b"x" * 1000) for n in range(rows)]
    store.apply(puts, [], StoreMeta(identity=IDENTITY))
    store.close()


def by_lmdb(path: Path) -> int:
    with lmdb.open(str(path), map_size=0, readonly=True, lock=False) as environment:
        return environment.info()["map_size"]


@pytest.mark.parametrize(
    ("rows", "factor", "why"),
    [
        (1, 1, "as it was made"),
        (100, 1, "rows that fit leave the map as it is"),
        (2000, 16, "2 MB: doubled four times, and only one of the two pages says so"),
    ],
)
def test_the_map_is_as_large_as_lmdb_says(tmp_path: Path, rows: int, factor: int, why: str) -> None:
    write(tmp_path, rows)
    assert map_bytes(tmp_path) == by_lmdb(tmp_path) == factor * START_BYTES, why


def test_the_size_is_what_was_written_not_the_map(tmp_path: Path) -> None:
    write(tmp_path / "small", 1)
    write(tmp_path / "large", 100)
    small, large = size_of(tmp_path / "small"), size_of(tmp_path / "large")
    assert small is not None
    assert large is not None
    assert 0 < small.disk_bytes < 100_000 < large.disk_bytes
    assert small.map_bytes == large.map_bytes == START_BYTES


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "no file"),
        (b"", "made, and nothing written"),
        (b"\0" * 8192, "zeroed"),
        (b"\xff" * 40, "shorter than a page"),
        (b"no store of LMDB" * 1000, "something else"),
    ],
)
def test_a_file_that_says_no_size(tmp_path: Path, data: bytes | None, why: str) -> None:
    if data is not None:
        (tmp_path / "data.mdb").write_bytes(data)
    assert map_bytes(tmp_path) is None, why


def test_no_store_has_no_size(tmp_path: Path) -> None:
    assert size_of(tmp_path / "absent") is None
    assert disk_bytes(tmp_path / "absent") == 0
