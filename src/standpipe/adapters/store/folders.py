"""The directories of stores. Those of stores that are no longer assigned here are moved aside, and
deleted after a while.

Readers that have such a store open can still read it. Not here: what is in a store (`writer.py`).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from standpipe.adapters.files.named_paths import folder_below
from standpipe.data.replica.positions import store_directory
from standpipe.model import ReplicaId

_RETIRED: Final = ".retired-"


def store_path(state: Path, replica_id: ReplicaId) -> Path:
    """Directory of a store below a node's `state/`. Raises UnsafePath."""
    return folder_below(state, *store_directory(replica_id).split("/"))


def retire(path: Path, now_ms: int) -> None:
    """Move a store aside. Open readers keep what they see; new ones find nothing. `now_ms`, of any
    clock, only makes the new name unique."""
    if path.exists():
        path.rename(path.with_name(f"{path.name}{_RETIRED}{now_ms}"))


class Strays:
    """Directories that no placement wants: moved aside after a delay, deleted after another.

    Both delays count from when this process first saw the directory: a wall-clock time in a name
    means nothing once the clock was set.
    """

    def __init__(self, state: Path, *, delay_ms: int) -> None:
        self._state = state
        self._delay_ms = delay_ms
        self._since_ms: dict[Path, int] = {}

    def clear(self, wanted: set[Path], now_ms: int) -> None:
        """`now_ms`: of a clock that is never set. Moves nothing aside while `wanted` is empty: an
        empty map may just be a young one."""
        found = {path for path in self._state.glob("*/*") if path.is_dir()}
        retired = {path for path in found if _RETIRED in path.name}
        strays = found - retired - wanted if wanted else set[Path]()
        self._since_ms = {path: self._since_ms.get(path, now_ms) for path in retired | strays}
        for path, since_ms in self._since_ms.items():
            if path in retired and now_ms - since_ms >= self._delay_ms:
                shutil.rmtree(path)
            elif path in strays and now_ms - since_ms > self._delay_ms:
                retire(path, now_ms)
