"""How much memory this worker uses, and whether it has to refuse expensive requests.

The parent kills a worker above `standpipe.worker.memory.bytes.max`
(`node.supervisor.worker_watch`). Above REFUSE_SHARE of that, the worker refuses new requests that
may need much memory: scans, streams, and reads that wait. Lookups and running requests continue.

What was freed counts until the C library gives it back to the system, and by itself it keeps blocks
that lie between others in use. It is asked to whenever the worker has grown by GIVE_BACK_BYTES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from standpipe.adapters.process import give_back_freed_memory, own_bytes
from standpipe.errors import TooManyRequests

#: How often the memory is read.
WEIGH_MS: Final = 200
REFUSE_SHARE: Final = 0.75
GIVE_BACK_BYTES: Final = 16 * 1024 * 1024


class OwnMemory:
    """The memory of this process, as of the last `weigh`."""

    def __init__(
        self,
        bytes_max: int,
        read: Callable[[], int | None] = own_bytes,
        give_back: Callable[[], None] = give_back_freed_memory,
    ) -> None:
        self._refused_from = int(bytes_max * REFUSE_SHARE)
        self._read, self._give_back = read, give_back
        self._bytes = 0
        #: after the C library was asked last, or less since then
        self._least_bytes: int | None = None

    def weigh(self) -> None:
        """Read it now, and give back what is free if it has grown."""
        self._bytes = self._read() or 0
        if self._least_bytes is None:
            self._least_bytes = self._bytes
        if self._bytes >= self._least_bytes + GIVE_BACK_BYTES:
            self._give_back()
            self._least_bytes = self._bytes = self._read() or 0
        self._least_bytes = min(self._least_bytes, self._bytes)

    def check(self) -> None:
        """Raises TooManyRequests while the worker takes too much for another one of these."""
        if self._bytes >= self._refused_from:
            raise TooManyRequests(
                "this worker is short of memory (standpipe.worker.memory.bytes.max) and takes no "
                "scan, no stream and no read that waits now: retry in a second"
            )
