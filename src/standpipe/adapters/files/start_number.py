"""A number that grows with every start of a process, even if the wall clock is set back.

Receivers treat the larger number as the later start. Unix time alone would do until the clock is
set back: then a new start looks like an old one, for as long as the clock was ahead.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from standpipe.adapters.files import published


def next_number(path: Path, now_ms: int) -> int:
    """The number of this start; `path` remembers it for the next one.

    At least `now_ms` (Unix time), so that a directory that lost the file continues above its
    earlier numbers. Not synced: after a power loss the time serves. On a full disk the file keeps
    the previous number, and the next start may get this one again.
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
