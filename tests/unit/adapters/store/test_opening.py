"""A store with any one page damaged opens and takes more in the end: as it was, or made anew."""

from __future__ import annotations

import errno
import faulthandler
import os
import shutil
import struct
from pathlib import Path

import lmdb
import pytest
from tests.unit.adapters import lmdb_file

from standpipe.adapters.store import opening
from standpipe.adapters.store.opening import open_verified
from standpipe.adapters.store.writer import StoreFailure, StoreWriter
from standpipe.data.encoding.stored_rows import pack_row
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import NotReady
from standpipe.model import Offset

IDENTITY = StoreIdentity(table_id="t", generation=1, partition=0)
MAP_BYTES = 1024 * 1024
PAGE = 4096
TRANSACTIONS = 40
GOOD, MADE_ANEW, NOT_WRITTEN = 0, 3, 4  # exit statuses; negative: its death by a damaged page


def write(store: StoreWriter, first: int, end: int) -> None:
    """Transaction n puts ten keys, deletes one, and sets the position to n + 1."""
    for number in range(first, end):
        row = pack_row(b"[%d]" % number + b" " * 60, number)
        puts = [(b"k%04d" % (7 * number + n), row) for n in range(10)]
        deletes = [b"k%04d" % (7 * number - 1)]
        meta = StoreMeta(identity=IDENTITY, position=Offset(number + 1))
        store.apply(puts, deletes, meta)


def open_and_write_on(path: Path) -> int:
    """In a process of its own, for LMDB may end it."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # LMDB's last words
        status = 1
        try:
            store = open_verified(path, IDENTITY, MAP_BYTES, 0)
            status = NOT_WRITTEN
            position = int(store.meta().position)
            write(store, position, position + 5)
            status = GOOD
        except NotReady:
            status = MADE_ANEW
        except StoreFailure:
            pass
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    store = StoreWriter(tmp_path / "whole", IDENTITY, map_bytes=MAP_BYTES)
    write(store, 0, TRANSACTIONS)
    store.close()
    return store.path


def test_a_page_of_what_is_free_is_damaged(tmp_path: Path, whole: Path) -> None:
    """Only a writer reads it: all rows are sound, and the store would never open (chaos, seed 15:
    it failed at each try, for ever)."""
    ends: dict[int, list[int]] = {}
    for page in range(2, (whole / "data.mdb").stat().st_size // PAGE):
        path = tmp_path / str(page)
        shutil.copytree(whole, path)
        with (path / "data.mdb").open("r+b") as file:
            file.seek(page * PAGE)
            file.write(bytes(PAGE))
        ends[page] = [open_and_write_on(path)]
        while ends[page][-1] != GOOD and len(ends[page]) < 8:
            ends[page].append(open_and_write_on(path))
        shutil.rmtree(path)
    assert {page: found for page, found in ends.items() if found[-1] != GOOD} == {}
    assert not [page for page, found in ends.items() if NOT_WRITTEN in found]
    assert [page for page, found in ends.items() if found == [MADE_ANEW, GOOD]]


def test_rows_without_a_meta_are_damage(tmp_path: Path, whole: Path) -> None:
    """Found by make store-kills: a cut file had lost the page that says up to where its rows go. It
    would have begun at offset 0 over rows that the changelog may have deleted since."""
    with lmdb.open(str(whole), max_dbs=3) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True) as transaction:
            transaction.drop(meta, delete=False)
    with pytest.raises(NotReady, match="not those that were written"):
        open_verified(whole, IDENTITY, MAP_BYTES, 0)


def test_a_page_that_is_in_use_and_called_free(whole: Path) -> None:
    """A later batch would write over it, under readers."""
    data = bytearray((whole / "data.mdb").read_bytes())
    struct.pack_into("=Q", data, lmdb_file.first_free(data), lmdb_file.main_root(data))
    (whole / "data.mdb").write_bytes(data)
    with pytest.raises(NotReady, match="both reachable and in the freeDB"):
        open_verified(whole, IDENTITY, MAP_BYTES, 0)
    assert not (whole / "data.mdb").exists(), "before LMDB has seen it"


def test_rows_that_no_lookup_finds(whole: Path) -> None:
    """All of them are where they were, and in order; a page of keys leads elsewhere."""
    data = bytearray((whole / "data.mdb").read_bytes())
    for page in lmdb_file.pages_of_keys(data):
        data[lmdb_file.last_key(data, page)] = 0xFF
    (whole / "data.mdb").write_bytes(data)
    with pytest.raises(NotReady, match="cannot be found by its key"):
        open_verified(whole, IDENTITY, MAP_BYTES, 0)


@pytest.mark.parametrize("is_made", [True, False])
def test_a_store_that_was_only_begun_opens(tmp_path: Path, is_made: bool) -> None:
    if is_made:
        lmdb.open(str(tmp_path), max_dbs=3).close()
    else:
        (tmp_path / "data.mdb").touch()
    store = open_verified(tmp_path, IDENTITY, MAP_BYTES, 0)
    assert store.rows() == 0
    store.close()


@pytest.mark.parametrize(
    ("number", "is_damaged", "why"),
    [(errno.EIO, True, "a sector is bad"), (errno.EACCES, False, "it may be let in later")],
)
def test_a_file_that_cannot_be_read(
    whole: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_damaged: bool, why: str
) -> None:
    """Neither ends the tailer, which has other replicas."""

    def refuse(path: str) -> list[str]:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(opening, "_verify", refuse)
    with pytest.raises(NotReady if is_damaged else StoreFailure):
        open_verified(whole, IDENTITY, MAP_BYTES, 0)
    assert (whole / "data.mdb").exists() is not is_damaged, why
    assert not (whole / "opening").exists(), "no try that ended a process"
