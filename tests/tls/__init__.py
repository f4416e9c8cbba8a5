"""Certificates for tests; see README.md."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent


class Pair(NamedTuple):
    """A certificate and its key."""

    certificate: Path
    key: Path


FIRST = Pair(FOLDER / "first.crt", FOLDER / "first.key")
SECOND = Pair(FOLDER / "second.crt", FOLDER / "second.key")


def copied(pair: Pair, folder: Path) -> Pair:
    """As files that may be replaced."""
    folder.mkdir(exist_ok=True)
    return Pair(*(Path(shutil.copy(path, folder / f"tls{path.suffix}")) for path in pair))
