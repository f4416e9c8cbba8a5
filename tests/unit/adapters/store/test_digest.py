"""What a store says of its rows, asked as a node asks it: by a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lmdb
import msgspec
from tests.unit.adapters import lmdb_file

from standpipe.adapters.store.writer import StoreWriter
from standpipe.data.encoding.store_keys import store_key
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.replica.digest_verdict import StoreDigest
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.model import BatchId, Offset

IDENTITY = StoreIdentity(table_id="T", generation=1, partition=3)


def row(number: int) -> tuple[bytes, bytes]:
    key = store_key((f"k{number}",), ("STRING",))
    return key, pack_row(b"[%d]" % number, 1)


def make_store(path: Path) -> None:
    writer = StoreWriter(path, IDENTITY)
    meta = StoreMeta(identity=IDENTITY, position=Offset(9), batch=BatchId(7))
    writer.apply([row(number) for number in range(9)], [], meta)
    writer.close()


def ask(path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "standpipe.adapters.store.digest", str(path), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def said(path: Path, *more: str) -> StoreDigest:
    return msgspec.json.decode(ask(path, *more).stdout, type=StoreDigest)


def test_the_digest_that_was_kept_is_that_of_the_rows(tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    kept = said(tmp_path / "store")
    assert (kept.position, kept.batch, kept.recomputed) == (9, 7, None)
    again = said(tmp_path / "store", "recompute")
    assert again.recomputed == kept.digest != 0
    assert again.damage == ""


def test_a_row_that_is_gone_and_one_that_is_damaged(tmp_path: Path) -> None:
    for name in ("gone", "damaged"):
        path = tmp_path / name
        make_store(path)
        environment = lmdb.open(str(path), max_dbs=2)
        rows = environment.open_db(b"rows")
        key, value = row(4)
        with environment.begin(db=rows, write=True) as transaction:
            if name == "gone":
                transaction.delete(key)
            else:
                transaction.put(key, value[:-1] + b"!")
        environment.close()
    assert said(tmp_path / "gone").recomputed is None, "not without being asked to look"
    gone = said(tmp_path / "gone", "recompute")
    assert gone.recomputed not in (None, gone.digest)
    assert said(tmp_path / "damaged", "recompute").damage == "a row does not match its checksum"


def test_rows_that_no_lookup_finds(tmp_path: Path) -> None:
    """A bit of the page of keys that leads to them: a walk along the rows sees all of them."""
    writer = StoreWriter(tmp_path / "store", IDENTITY)
    rows = [row(number) for number in range(1000)]
    writer.apply(rows, [], StoreMeta(identity=IDENTITY, position=Offset(9)))
    writer.close()
    path = tmp_path / "store" / "data.mdb"
    data = bytearray(path.read_bytes())
    (page,) = lmdb_file.pages_of_keys(data)
    data[lmdb_file.last_key(data, page)] = 0xFF  # what is behind it is looked for before it
    path.write_bytes(data)
    assert "cannot be found by its key" in said(tmp_path / "store", "recompute").damage


def test_no_store_is_said_in_a_line(tmp_path: Path) -> None:
    ended = ask(tmp_path / "none")
    assert ended.returncode == 1
    assert ended.stderr.startswith("NotReady: ")
    assert "Traceback" not in ended.stderr
