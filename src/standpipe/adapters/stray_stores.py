"""Stores that no placement asks for any more, on their way out."""

from __future__ import annotations

import shutil
from pathlib import Path

from standpipe.adapters.lmdb_store import RETIRED, retire


class Strays:
    """Directories that no placement asks for: moved aside after a while, deleted after another."""

    def __init__(self, state: Path, *, delay_ms: int) -> None:
        self._state = state
        self._delay_ms = delay_ms
        self._since_ms: dict[Path, int] = {}

    def clear(self, wanted: set[Path], now_ms: int) -> None:
        """Does nothing while `wanted` is empty: an empty map may just be a young one."""
        found = {path for path in self._state.glob("*/*") if path.is_dir()}
        retired = {path for path in found if RETIRED in path.name}
        for path in retired:
            if now_ms - int(path.name.rpartition("-")[2]) >= self._delay_ms:
                shutil.rmtree(path)
        strays = found - retired - wanted if wanted else set[Path]()
        self._since_ms = {path: self._since_ms.get(path, now_ms) for path in strays}
        for path, since in self._since_ms.items():
            if now_ms - since > self._delay_ms:
                retire(path, now_ms)
