"""A driver's folder for Spark's temporary files: RocksDB's library, shuffle files, artifacts.

Spark removes them at an orderly end. A driver that is killed leaves some hundred megabytes, and
the next one on the machine would add its own; so each has a folder of its own in the system's
temporary directory, locked while it lives, and removes those whose lock is free.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PREFIX: Final = "standpipe-pipeline-"
_LOCK: Final = "lock"


@contextmanager
def scratch_folder(base: Path | None = None) -> Generator[Path]:
    """A new folder, gone at the end. `base`: default the system's temporary directory."""
    within = base or Path(tempfile.gettempdir())
    _remove_abandoned(within)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=within))
    unlocked = folder / f"{_LOCK}.new"  # under its own name it is held from the first instant on
    with unlocked.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unlocked.rename(folder / _LOCK)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(base: Path) -> None:
    """A folder without a lock file is one that is just being made."""
    for found in base.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), found.open("r+") as lock:
            if found.stat().st_uid != os.getuid():
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(found.parent, ignore_errors=True)
