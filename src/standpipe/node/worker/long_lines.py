"""Lines of a body that are too long to be read on the worker's loop.

A line of a megabyte takes a second to become a row, and several if it has STRUCTs of which few
fields are given (`sql/types/made_fields.py`). It is read in the worker's thread for costly rows
(`request/row_thread.py`), one at a time, and is in hand meanwhile (`request/in_hand.py`): if the
worker ends over it, the node refuses the line for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from standpipe.node.worker.request.in_hand import TextsInHand
from standpipe.node.worker.request.row_thread import RowThread

#: Bytes of a line that the loop still reads: 10 ms, or 70 ms if they make all fields that they may.
INLINE_BYTES_MAX: Final = 16 * 1024

T = TypeVar("T")


@dataclass(frozen=True)
class LongLines:
    """Those of one worker."""

    beside: RowThread = field(default_factory=RowThread)
    in_hand: TextsInHand = field(default_factory=TextsInHand)

    def is_long(self, line: bytes) -> bool:
        """Whether the line is for `read`."""
        return len(line) > INLINE_BYTES_MAX

    async def read(self, line: bytes, made: Callable[[], T]) -> T:
        """What `made` returns or raises, of the line. Raises TextRefused."""
        digest = self.in_hand.admitted(line.decode("utf-8", "surrogateescape"))

        def work() -> T:
            with self.in_hand.in_thread(digest):
                return made()

        return await self.beside.run(work)
