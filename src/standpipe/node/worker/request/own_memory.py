"""How much memory this worker uses, and whether it has to refuse expensive requests.

The parent kills a worker above `standpipe.worker.memory.bytes.max`
(`node.supervisor.worker_watch`). Above REFUSE_SHARE of that, the worker refuses new requests that
may need much memory: scans and streams. Lookups and running requests continue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from standpipe.adapters.process import own_bytes
from standpipe.errors import TooManyRequests

#: How often the memory is read.
WEIGH_MS: Final = 200
REFUSE_SHARE: Final = 0.75


class OwnMemory:
    """The memory of this process, as of the last `weigh`."""

    def __init__(self, bytes_max: int, read: Callable[[], int | None] = own_bytes) -> None:
        self._refused_from = int(bytes_max * REFUSE_SHARE)
        self._read = read
        self._bytes = 0

    def weigh(self) -> None:
        """Read it now."""
        self._bytes = self._read() or 0

    def check(self) -> None:
        """Raises TooManyRequests while the worker takes too much for another scan or stream."""
        if self._bytes >= self._refused_from:
            raise TooManyRequests(
                "this worker is short of memory (standpipe.worker.memory.bytes.max) and takes no "
                "scan and no stream now: retry in a second"
            )
