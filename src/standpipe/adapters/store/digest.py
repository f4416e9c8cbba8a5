"""The digest of a live store: `python -m standpipe.adapters.store.digest PATH [recompute]`.

A separate process, like `copy.py`: LMDB opens a store once per process, reading all rows may be
slow, and a truncated file kills its reader (SIGBUS). One JSON line on stdout, a `StoreDigest`; else
exit status 1 and a line on stderr.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import msgspec

from standpipe.adapters.process import die_with_parent
from standpipe.adapters.store.environment import DAMAGE
from standpipe.adapters.store.reader import StoreReader
from standpipe.data.encoding.stored_rows import sound_digest
from standpipe.data.replica.digest_verdict import StoreDigest

RECOMPUTE: Final = "recompute"
_NICE: Final = 10  # readers come first


def digest_of(reader: StoreReader, *, recompute: bool) -> StoreDigest:
    """`recompute`: also compute it from the rows. Raises NotReady and lmdb.Error."""
    found, damage = None, ""
    with reader.whole() as (meta, rows):
        if recompute:
            try:
                found = sound_digest(rows)
                damage = "a row does not match its checksum" if found is None else ""
            except DAMAGE as error:
                damage = str(error)
    return StoreDigest(
        position=meta.position,
        batch=meta.batch,
        digest=meta.digest,
        recomputed=found,
        damage=damage,
    )


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    die_with_parent()
    os.nice(_NICE)
    path, *more = arguments
    reader = StoreReader(Path(path))
    try:
        said = digest_of(reader, recompute=RECOMPUTE in more)
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    finally:
        reader.close()
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
