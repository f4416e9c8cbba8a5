"""Syncs the bytes of files and the names in directories, so that they survive a power loss.

Not here: files that need not survive it (`adapters.files.published`).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

#: of a file that a crash left before it had its name
DRAFT_SUFFIX: Final = ".new"


def sync(path: Path) -> None:
    """Make a file's bytes, or a directory's names (such as after a rename), durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, in as many calls as that takes. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def replace_durably(path: Path, data: bytes) -> None:
    """Replace a small file: after a crash or a power loss it is the old one or the new one.

    Returns when the new one is durable: its bytes are synced, then its name. Raises OSError; then
    nothing is left of the new one, which a full disk would need room for.
    """
    draft = path.with_name(path.name + DRAFT_SUFFIX)
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        draft.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
    sync(path.parent)
