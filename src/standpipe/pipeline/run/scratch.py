"""A driver's folder for Spark's temporary files: RocksDB's library, shuffle files, artifacts.

Spark removes them on a clean exit. A killed driver leaves several hundred megabytes behind, and the
next one on the machine would add its own. So each driver has its own folder in the system's
temporary directory, locked while it runs, and removes folders whose lock is free.
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
    """A new folder, removed at the end. `base`: by default, the system's temporary directory."""
    within = base or Path(tempfile.gettempdir())
    _remove_abandoned(within)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=within))
    unlocked = folder / f"{_LOCK}.new"  # it gets its final name once it is locked
    with unlocked.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unlocked.rename(folder / _LOCK)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(base: Path) -> None:
    """Keeps folders without a lock file: another driver is just creating them."""
    for found in base.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), found.open("r+") as lock:
            if found.stat().st_uid != os.getuid():
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(found.parent, ignore_errors=True)
