"""A copy of a live store, by `copyfd` in one read transaction: the only safe way.

A separate process, `python -m standpipe.adapters.store.copy FROM TO`: LMDB opens a store once per
process, and a copy reads the whole file, which neither tailer nor worker may wait for. The copy is
compacted; its identity, position and batch are read from the copy itself. One JSON line on stdout
describes the copy; exit status 1 and a line on stderr if there is none.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Final

import lmdb
import msgspec

from standpipe.adapters.process import die_with_parent
from standpipe.adapters.store.environment import DATA_FILE, READERS_MAX
from standpipe.adapters.store.reader import StoreReader
from standpipe.data.replica.positions import StoreMeta
from standpipe.model import Record

_BLOCK: Final = 1 << 20
_NICE: Final = 10  # readers come first


class Copied(Record, frozen=True, kw_only=True):
    """A copy that was made."""

    size_bytes: int
    checksum: str
    meta: StoreMeta


def copy_store(source: Path, target: Path) -> Copied:
    """Make the directory `target` with a copy of the store in `source`.

    Raises OSError, lmdb.Error, and NotReady where `source` holds no batch yet.
    """
    target.mkdir(parents=True, mode=0o700)
    file = target / DATA_FILE
    environment = lmdb.open(
        str(source), map_size=0, max_dbs=2, max_readers=READERS_MAX, create=False, readonly=True
    )
    try:
        with file.open("wb") as copy:
            environment.copyfd(copy.fileno(), compact=True)
    finally:
        environment.close()
    reader = StoreReader(target)
    try:
        meta = reader.meta()
    finally:
        reader.close()
    return Copied(size_bytes=file.stat().st_size, checksum=checksum_of(file), meta=meta)


def checksum_of(path: Path) -> str:
    """blake2b of a file, hex."""
    digest = hashlib.blake2b(digest_size=32)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    die_with_parent()
    os.nice(_NICE)
    source, target = map(Path, arguments)
    try:
        copied = copy_store(source, target)
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    sys.stdout.write(msgspec.json.encode(copied).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
