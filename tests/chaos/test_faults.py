"""What faults do by themselves, without a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LIMIT = 131_000  # no multiple of what is written at once: the last write is taken in part

FILL = f"""
import pathlib, resource, sys
from tests.chaos.faults import fill
resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, resource.RLIM_INFINITY))
fill(pathlib.Path(sys.argv[1]))
"""


def test_a_disk_is_filled_to_the_last_byte(tmp_path: Path) -> None:
    """By a process of its own: a disk that takes no more is a file that may not grow."""
    file = tmp_path / "filler"
    subprocess.run([sys.executable, "-c", FILL, file], check=True)
    assert file.stat().st_size == LIMIT
