"""Does every store open with the rows and the position of one batch, whatever its writer met?

    make store-kills
    python -m tests.e2e.store_kills [--kills 1000] [--damages 500]
                                    [--result bench/results/store_kills.json]

The writer is a child that is killed at random moments.  The damage is a flipped bit, a zeroed page,
a cut or a swapped directory at a random place, and bits flipped where only lookups or a writer
would notice; each store is opened in a child, as it may be SIGBUS.  The table has windows that
expire, since such a store has a second database (its index).  `test_store_crash.py` does a few of
each.  Raises AssertionError where a row is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.progress import track
from tests import report
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

QUESTION = (
    "Does every store open with position and rows of one batch, however often its writer dies, "
    "and is every damage noticed or harmless?"
)
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


def write_until_killed(path: Path, ready: Path) -> None:
    """The child: continues from the store's position until it is killed."""
    die_with_parent()
    store = open_verified(path, IDENTITY, MAP_BYTES, 0, expiry=EXPIRY)
    number = int(store.meta().position)
    ready.touch()
    while True:
        puts, deletes = batch(number)
        store.apply([*puts.items()], deletes, meta_after(number))
        number += 1


def write_on(path: Path, first: int, rows: dict[bytes, bytes]) -> None:
    """MORE batches; after each, all rows are read by key. `rows`: those of the batches before."""
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


def kill_writers(folder: Path, kills: int) -> int:
    """Kill the writer of one store `kills` times, and on until it has written more batches than
    that, as a slow disk may take longer for one than a writer lives; how many it wrote."""
    folder.mkdir()
    path, ready = folder / "store", folder / "ready"
    chance, positions = random.Random(1), [0]
    expected: dict[bytes, bytes] = {}
    code = "import sys; from pathlib import Path; import tests.e2e.store_kills as t;"
    numbers = itertools.count()
    rounds = itertools.takewhile(lambda done: done < kills or positions[-1] <= kills, numbers)
    for _ in track(rounds, "writers killed", total=kills, disable=kills < 100):
        ready.unlink(missing_ok=True)
        writer = child(code + "t.write_until_killed(*map(Path, sys.argv[1:]))", path, ready)
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
    return positions[-1]


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
        found, rows = rows_of(path)  # an older batch: the other meta page of LMDB; 0: rebuilt
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


def damage_stores(folder: Path, damages: int) -> dict[int, int]:
    """Damage a copy of one store `damages` times; {exit status of an opener: how often}."""
    folder.mkdir()
    whole = folder / "whole"
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
    code = "import sys; from pathlib import Path; import tests.e2e.store_kills as t;"
    for number in track(range(damages), "stores damaged", disable=damages < 100):
        path = folder / str(number)
        shutil.copytree(whole, path)
        kinds[number % len(kinds)](path, chance)
        for _ in range(8):  # a death counts; after five of them the store is rebuilt
            opener = child(code + "t.open_and_compare(Path(sys.argv[1]), 200)", path)
            status = opener.wait()
            assert status != 7, f"wrong rows after {kinds[number % len(kinds)].__name__} {number}"
            ends[status] = ends.get(status, 0) + 1
            if status == 0:
                break
        is_refused = kinds[number % len(kinds)] is swap
        assert status == (3 if is_refused else 0), f"damage {number} is never overcome: {status}"
        shutil.rmtree(path)
    assert ends.get(3, 0) > 0, "no damage was noticed: nothing was tested"
    return ends


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--damages", type=int, default=500)
    parser.add_argument("--result", type=Path, help="write the totals to this file")
    given = parser.parse_args()
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        batches = kill_writers(Path(folder) / "kills", given.kills)
        ends = damage_stores(Path(folder) / "damages", given.damages)
    result = {
        "question": QUESTION,
        **report.circumstances(),
        "kills": given.kills,
        "batches": batches,
        "damages": given.damages,
        "noticed": ends.get(3, 0),
        "openers_killed": sum(count for status, count in ends.items() if status < 0),
        "wrong_rows": 0,  # else an assertion ended the run
        "seconds": round(time.monotonic() - began_s),
    }
    print(result)
    if given.result:
        report.write(given.result, result)


if __name__ == "__main__":
    main()
