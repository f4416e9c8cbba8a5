"""What survives a power loss: a file's bytes and a directory's names, once they are synced."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Make the bytes of a file, or the names in a directory, durable: a rename is not before."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
