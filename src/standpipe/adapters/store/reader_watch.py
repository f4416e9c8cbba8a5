"""Finds readers that hang inside a transaction, and so pin pages of a store permanently.

LMDB's writer cannot reuse a page that a reader may still look at, so the map would grow until the
disk is full. Not here: killing such a process (`node/tailer/main.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from standpipe.adapters.store.writer import StoreWriter


class PinWatch:
    """Finds processes that pin pages of a store for too long: the map would grow without end."""

    def __init__(self) -> None:
        #: (process id, transaction) -> when it was seen first
        self._since_ms: dict[tuple[int, int], int] = {}

    def look(self, stores: Iterable[StoreWriter], now_ms: int, pin_ms_max: int) -> set[int]:
        """Ids of such processes. Also frees the slots of dead readers."""
        pins: set[tuple[int, int]] = set()
        for store in stores:
            store.drop_dead_readers()
            pins |= store.pinning_readers().items()
        self._since_ms = {pin: self._since_ms.get(pin, now_ms) for pin in pins}
        return {pin[0] for pin, since in self._since_ms.items() if now_ms - since > pin_ms_max}
