"""A number that grows with every start of a process, whatever becomes of the wall clock.

Receivers take the larger number for the later life. Unix time alone would do until the clock is set
back: then the next life seems to be one of the past, for as long as the clock was ahead.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from standpipe.adapters.files import published


def next_number(path: Path, now_ms: int) -> int:
    """The number of this start; `path` remembers it for the next one.

    `now_ms` (Unix time) where the file says nothing better, so that a directory that lost the file
    continues above what it gave before. Not synced: after a power loss the time is there.
    A full disk leaves the number before, and the start after this one has this number again.
    """
    number = max(_before(path) + 1, now_ms)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        published.replace(path, b"%d\n" % number)
    return number


def _before(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return -1
