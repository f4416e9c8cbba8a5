"""A store whose writer is killed, and a store whose files are damaged: no wrong row is ever read.

The writer is a child that is killed at random moments (`STORE_KILLS`, default 8; `make
store-kills` does 1,000). The damage is a flipped bit, a zeroed page, a cut or a swapped directory
at a random place (`STORE_DAMAGES`, default 21), and bits flipped where only lookups or a writer
would notice; each store is opened in a child, for it may be SIGBUS. The table has windows that
expire, for such a store has a second database (its index).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.adapters import lmdb_file

from standpipe.adapters.process import die_with_parent
from standpipe.adapters.store.folders import retire
from standpipe.adapters.store.opening import open_verified
from standpipe.adapters.store.writer import StoreFailure, StoreWriter
from standpipe.data.commit.expiry import Expiry
from standpipe.data.encoding.store_keys import ordered_longs
from standpipe.data.encoding.stored_rows import pack_row, rows_digest
from standpipe.data.replica.positions import StoreIdentity, StoreMeta
from standpipe.errors import DataDirectoryRefused, NotReady
from standpipe.model import Offset

pytestmark = pytest.mark.e2e
KILLS = int(os.environ.get("STORE_KILLS", "8"))
DAMAGES = int(os.environ.get("STORE_DAMAGES", "21"))
IDENTITY = StoreIdentity(table_id="t", generation=1, partition=0)
MAP_BYTES = 1024 * 1024
KEYS = 400
MORE = 20  # batches after a damage
#: each WINDOW batches a new window, which leaves the store RETENTION batches after its start
WINDOW, RETENTION = 20, 60
EXPIRY = Expiry(bounds=1, grace_ms=0, retention_ms=RETENTION)


def key_of(number: int, chance: random.Random) -> bytes:
    window = ordered_longs((number // WINDOW * WINDOW,))
    return b"k%05d" % chance.randrange(KEYS) + window


def batch(number: int) -> tuple[dict[bytes, bytes], list[bytes]]:
    """What batch `number` puts and deletes."""
    chance = random.Random(number)
    keys = [key_of(number, chance) for _ in range(20)]
    deletes = [key_of(max(0, number - chance.randrange(2) * WINDOW), chance) for _ in range(5)]
    puts = {key: pack_row(b"[%d]" % number + b" " * 50, number) for key in keys}
    return puts, [key for key in dict.fromkeys(deletes) if key not in puts]


def meta_after(number: int) -> StoreMeta:
    """The watermark moves with the batches."""
    return StoreMeta(identity=IDENTITY, position=Offset(number + 1), watermark_ms=number + 1)


def fold(rows: dict[bytes, bytes], first: int, end: int) -> None:
    """What the batches from `first` to before `end` make of `rows`."""
    for number in range(first, end):
        puts, deletes = batch(number)
        for key in deletes:
            rows.pop(key, None)
        rows |= puts
        expired = ordered_longs((number + 1 - RETENTION,))
        for key in [key for key in rows if key[-8:] <= expired]:
            del rows[key]


def write_for_ever(path: Path, ready: Path) -> None:
    """The child: goes on from the store's position, for as long as there is somebody to kill it."""
    die_with_parent()
    store = open_verified(path, IDENTITY, MAP_BYTES, 0, expiry=EXPIRY)
    number = int(store.meta().position)
    ready.touch()
    while True:
        puts, deletes = batch(number)
        store.apply([*puts.items()], deletes, meta_after(number))
        number += 1


def write_on(path: Path, first: int, rows: dict[bytes, bytes]) -> None:
    """MORE batches, each looked at by whoever reads by key. `rows`: those of the batches before."""
    store = open_verified(path, IDENTITY, MAP_BYTES, 0, expiry=EXPIRY)
    for number in range(first, first + MORE):
        puts, deletes = batch(number)
        store.apply([*puts.items()], deletes, meta_after(number))
        fold(rows, number, number + 1)
        with store._environment.begin(db=store._rows) as transaction:
            if any(transaction.get(key) != row for key, row in rows.items()):
                raise SystemExit(7)
    store.abandon()


def rows_of(path: Path) -> tuple[int, dict[bytes, bytes]]:
    """(position, rows) of a store that opens."""
    store = open_verified(path, IDENTITY, MAP_BYTES, 0, expiry=EXPIRY)
    with store._environment.begin(db=store._rows) as transaction:
        rows = {bytes(key): bytes(row) for key, row in transaction.cursor()}
        assert {key: transaction.get(key) for key in rows} == rows, "each is found by its key"
    position, digest = int(store.meta().position), store.meta().digest
    store.abandon()
    assert digest in (None, rows_digest(rows.items()))
    return position, rows


def child(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    here = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=here,
        env={**os.environ, "PYTHONPATH": f"{here}:{here / 'src'}"},
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.timeout(3600)
def test_a_killed_writer_leaves_whole_batches(tmp_path: Path) -> None:
    path, ready = tmp_path / "store", tmp_path / "ready"
    chance, positions = random.Random(1), [0]
    expected: dict[bytes, bytes] = {}
    code = "import sys; from pathlib import Path; import tests.e2e.test_store_crash as t;"
    for _ in range(KILLS):
        ready.unlink(missing_ok=True)
        writer = child(code + "t.write_for_ever(*map(Path, sys.argv[1:]))", path, ready)
        while not ready.exists():
            assert writer.poll() is None, "the writer cannot open the store"
            time.sleep(0.01)
        time.sleep(chance.random() * 0.3)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        position, rows = rows_of(path)
        assert position >= positions[-1], "it never goes back"
        fold(expected, positions[-1], position)
        assert rows == expected, "the position and the rows are of one batch"
        positions.append(position)
    assert positions[-1] > KILLS, "the writer got somewhere between its deaths"


def flip(path: Path, chance: random.Random) -> None:
    data = path / "data.mdb"
    place = chance.randrange(data.stat().st_size)
    with data.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1 << chance.randrange(8)]))


def flip_what_leads_to_rows(path: Path, chance: random.Random) -> None:
    """In a page of keys: a walk along the rows would not notice."""
    data = bytearray((path / "data.mdb").read_bytes())
    lmdb_file.flip_in(data, chance.choice(lmdb_file.pages_of_keys(data)), chance)
    (path / "data.mdb").write_bytes(data)


def flip_what_is_free(path: Path, chance: random.Random) -> None:
    """In the list of free pages: rows would be gone batches later."""
    data = bytearray((path / "data.mdb").read_bytes())
    lmdb_file.flip_in(data, lmdb_file.free_root(data), chance)
    (path / "data.mdb").write_bytes(data)


def zero_a_page(path: Path, chance: random.Random) -> None:
    data = path / "data.mdb"
    with data.open("r+b") as file:
        file.seek(chance.randrange(data.stat().st_size // 4096) * 4096)
        file.write(bytes(4096))


def cut(path: Path, chance: random.Random) -> None:
    data = path / "data.mdb"
    os.truncate(data, chance.randrange(data.stat().st_size))


def swap(path: Path, chance: random.Random) -> None:
    """Another partition's directory lies here."""
    shutil.rmtree(path)
    other = StoreWriter(path, StoreIdentity(table_id="t", generation=1, partition=1))
    other.apply([(b"a", pack_row(b"[1]", 1))], [], StoreMeta(identity=other.identity))
    other.close()


def open_and_compare(path: Path, position: int) -> None:
    """The child. Exit status 0: right rows, also after each of MORE writes; 3: known to be damaged,
    or refused; 7: rows that no batch left."""
    expected: dict[bytes, bytes] = {}
    try:
        found, rows = rows_of(path)  # an older batch: the other meta page of LMDB; 0: made anew
        fold(expected, 0, found)
        if found > position + MORE or rows != expected:
            raise SystemExit(7)
        write_on(path, found, expected)
        found, rows = rows_of(path)
    except (NotReady, DataDirectoryRefused):
        raise SystemExit(3) from None
    except StoreFailure as failure:
        if not failure.is_damaged:
            raise
        retire(path, 1)  # as the tailer does
        raise SystemExit(3) from None
    raise SystemExit(0 if rows == expected else 7)


@pytest.mark.timeout(3600)
def test_a_damaged_store_is_known_or_harmless(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    store = StoreWriter(whole, IDENTITY, map_bytes=MAP_BYTES, expiry=EXPIRY)
    for number in range(200):
        puts, deletes = batch(number)
        store.apply([*puts.items()], deletes, meta_after(number))
    store.close()
    chance, ends = random.Random(2), dict[int, int]()
    kinds: list[Callable[[Path, random.Random], None]] = [
        *(flip, flip, zero_a_page, cut, swap),
        *(flip_what_leads_to_rows, flip_what_is_free),
    ]
    code = "import sys; from pathlib import Path; import tests.e2e.test_store_crash as t;"
    for number in range(DAMAGES):
        path = tmp_path / str(number)
        shutil.copytree(whole, path)
        kinds[number % len(kinds)](path, chance)
        for _ in range(8):  # a death counts; after five of them it is made anew
            opener = child(code + "t.open_and_compare(Path(sys.argv[1]), 200)", path)
            status = opener.wait()
            assert status != 7, f"wrong rows after {kinds[number % len(kinds)].__name__} {number}"
            ends[status] = ends.get(status, 0) + 1
            if status == 0:
                break
        is_refused = kinds[number % len(kinds)] is swap
        assert status == (3 if is_refused else 0), f"damage {number} is never overcome: {status}"
    assert ends.get(3, 0) > 0, "no damage was noticed: nothing was tested"
