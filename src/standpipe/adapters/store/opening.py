"""Opens a store that may be damaged: if it is, the store is moved aside and rebuilt.

Not here: what damage is (`StoreWriter.damage`), where a store comes from when there is none
(`node/store_transfer/receiver.py`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import lmdb
from lmdb import verify

from standpipe.adapters.store.environment import DATA_FILE
from standpipe.adapters.store.folders import retire
from standpipe.adapters.store.writer import StoreFailure, StoreWriter, check_owner
from standpipe.data.commit.expiry import Expiry
from standpipe.data.replica.positions import StoreIdentity
from standpipe.errors import DataDirectoryRefused, NotReady

#: it has no annotations; called by its name, its result would be unknown to pyright
_verify: Final = cast("Callable[[str], list[str]]", vars(verify)["verify"])
#: how many tries to open a store may kill the process; a kill may have another cause
_TRIES_MAX: Final = 5


def open_verified(
    path: Path,
    identity: StoreIdentity,
    map_bytes: int,
    now_ms: int,
    *,
    expiry: Expiry | None = None,
) -> StoreWriter:
    """A store whose rows are those that were written and that accepts more. Raises NotReady if it
    had to be moved aside.

    LMDB's pages have no checksums. A damaged one may hide rows, raise an error, kill the process (a
    truncated file is SIGBUS), or list a page with rows as free: they would be lost batches later,
    under readers. So the file's structure is checked before LMDB sees it, then every row; tries are
    counted in a file that outlives the process. Takes about 2.3 s for a million rows.
    Raises also what StoreWriter raises.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    tries = path / "opening"
    count = len(tries.read_bytes()) if tries.exists() else 0
    why = "opening it killed the process"
    if count < _TRIES_MAX:
        try:
            _check_structure(path)  # cannot kill the process, so it does not count
            tries.write_bytes(b"." * (count + 1))
            store = StoreWriter(path, identity, map_bytes=map_bytes, expiry=expiry)
            why = store.damage()
            if not why:
                tries.unlink()
                return store
            store.abandon()
        except DataDirectoryRefused:  # another user's or table's: not ours to move
            tries.unlink(missing_ok=True)
            raise
        except StoreFailure as failure:
            if not failure.is_damaged:
                tries.unlink(missing_ok=True)
                raise
            why = str(failure)
    retire(path, now_ms)
    raise NotReady(f"{path} is rebuilt: {why}")


def _check_structure(path: Path) -> None:
    """Raises StoreFailure if the file, at rest, is not one that LMDB would have left."""
    check_owner(path)
    data = path / DATA_FILE
    if not data.exists() or not data.stat().st_size:
        return  # not created yet
    try:
        found = _verify(str(path))
    except verify.VerifyError as error:
        found = [str(error)]
    except OSError as error:
        is_damaged = error.errno == errno.EIO  # a bad sector stays bad; anything else may pass
        kind = lmdb.CorruptedError if is_damaged else lmdb.Error
        raise StoreFailure(path, kind(str(error))) from error
    if found:
        raise StoreFailure(path, lmdb.CorruptedError(found[0]))
