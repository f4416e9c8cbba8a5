"""Opening a store that may have been damaged: whole, or made anew.

Not here: what damage is (`StoreWriter.damage`), where a store comes from when there is none
(`node/store_fetch.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from standpipe.adapters.lmdb_store import StoreFailure, StoreWriter
from standpipe.adapters.store_folders import retire
from standpipe.data.expiry import Expiry
from standpipe.data.positions import StoreIdentity
from standpipe.errors import DataDirectoryRefused, NotReady

#: tries to open a store that ended with the death of the process; it may have been killed by chance
_TRIES_MAX: Final = 5


def open_verified(
    path: Path,
    identity: StoreIdentity,
    map_bytes: int,
    now_ms: int,
    *,
    expiry: Expiry | None = None,
) -> StoreWriter:
    """A store whose rows are those that were written and that takes more, or NotReady: then it was
    moved aside.

    LMDB's pages have no checksums. A damaged one may hide rows, raise an error, or end the process
    (a truncated file is SIGBUS), so the tries are counted in a file that outlives it. Reads all
    rows: about a second for two million. Raises also what StoreWriter raises.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    tries = path / "opening"
    count = len(tries.read_bytes()) if tries.exists() else 0
    why = "it ended the process that opened it"
    if count < _TRIES_MAX:
        tries.write_bytes(b"." * (count + 1))
        try:
            store = StoreWriter(path, identity, map_bytes=map_bytes, expiry=expiry)
            why = store.damage()
            if not why:
                tries.unlink()
                return store
            store.abandon()
        except DataDirectoryRefused:  # somebody else's: not to be moved by us
            tries.unlink()
            raise
        except StoreFailure as failure:
            if not failure.is_damaged:
                tries.unlink()
                raise
            why = str(failure)
    retire(path, now_ms)
    raise NotReady(f"{path} is made anew: {why}")
